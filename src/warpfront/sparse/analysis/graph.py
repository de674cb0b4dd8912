"""Symmetric adjacency of a sparse pattern, and its quotient by groups of rows.

A symmetric pattern travels as ``(n, xadj, adj)``: ``xadj`` int64[n+1], ``adj`` int32, both triangles, no
diagonal, every list ascending and free of duplicates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from warpfront.errors import InvalidValueError

__all__ = ["adjacency", "compress", "expand", "pairs_to_groups"]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def adjacency(n: int, ptr: npt.NDArray[Any], ind: npt.NDArray[Any]) -> tuple[Int64Array, Int32Array]:
    """Return the adjacency of the pattern of ``A + A^T`` without its diagonal.

    Parameters
    ----------
    n : int
        Order of the matrix.
    ptr, ind : integer arrays
        CSC (or, the union being symmetric, CSR) pattern: one triangle, both, or anything between. Row
        indices in ``[0, n)``, in any order, duplicates allowed. Not modified.

    Returns
    -------
    xadj : int64[n+1]
    adj : int32[xadj[n]]
        Both triangles, no diagonal, each list strictly ascending. Time O(n + nnz).
    """
    from warpfront.sparse.analysis._graph_kernels import symmetrise

    xadj, adj = symmetrise(
        n, np.ascontiguousarray(ptr, dtype=np.int64), np.ascontiguousarray(ind, dtype=np.int32)
    )
    return xadj, adj


def compress(
    n: int, xadj: Int64Array, adj: Int32Array, groups: npt.NDArray[Any], joined: bool = False
) -> tuple[int, Int64Array, Int32Array, Int32Array]:
    """Return the quotient graph in which each group of rows is one vertex.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern.
    groups : int32[n]
        Group number of each row; the numbers used are exactly ``0..n_groups-1``.
    joined : bool
        Refuse groups of which a row is no neighbour of the group's next one: no postorder could keep those together.

    Returns
    -------
    n_groups : int
    group_xadj : int64[n_groups+1]
    group_adj : int32
        Adjacency of the groups, in the same form as the input's.
    weights : int32[n_groups]
        Rows in each group.

    Raises
    ------
    InvalidValueError
        ``groups`` has the wrong length, a negative number, or leaves a number out; or (``joined``) rows that are no
        neighbours.
    """
    from warpfront.sparse.analysis._graph_kernels import quotient, symmetrise

    groups = _checked_groups(n, groups)
    n_groups = int(groups.max()) + 1 if n else 0
    q_ptr, q_ind, weights, loose = quotient(n_groups, xadj, adj, groups)
    if joined and loose >= 0:
        same = np.flatnonzero(groups == groups[loose])
        other = int(same[np.searchsorted(same, loose) + 1])
        raise InvalidValueError(
            f"groups[{loose}] = groups[{other}] = {groups[loose]}, but these rows are not neighbours"
        )
    group_xadj, group_adj = symmetrise(n_groups, q_ptr, q_ind)
    return n_groups, group_xadj, group_adj, weights


def expand(perm_compressed: npt.NDArray[Any], groups: npt.NDArray[Any]) -> Int32Array:
    """Turn a permutation of groups into one of rows; a group's rows follow each other, ascending.

    Parameters
    ----------
    perm_compressed : integer[n_groups]
        ``perm_compressed[k]`` is the k-th group.
    groups : int32[n]
        Group number of each row.

    Returns
    -------
    int32[n]
        ``perm[k]`` is the k-th row.
    """
    from warpfront.sparse.analysis._graph_kernels import expand_groups

    rows: Int32Array = expand_groups(
        np.ascontiguousarray(perm_compressed, np.int32), np.ascontiguousarray(groups, np.int32)
    )
    return rows


def pairs_to_groups(mate: npt.NDArray[Any]) -> Int32Array:
    """Number the groups of a partner array: ``mate[i]`` is the partner of row i, or -1 when it stands alone.

    Groups are numbered by their smallest row, ascending. ``mate`` is symmetric: ``mate[mate[i]] == i``.
    """
    rows = np.arange(len(mate), dtype=np.int64)
    leader = np.where(mate < 0, rows, np.minimum(rows, mate))
    number = np.cumsum(leader == rows) - 1
    return number[leader].astype(np.int32)


def _checked_groups(n: int, groups: npt.NDArray[Any]) -> Int32Array:
    groups = np.ascontiguousarray(groups)
    if groups.shape != (n,) or groups.dtype.kind not in "iu":
        raise InvalidValueError(
            f"groups must be an integer array of shape ({n},), got {groups.dtype}{groups.shape}"
        )
    if n == 0:
        return groups.astype(np.int32)
    if groups.min() < 0 or groups.max() >= n:
        bad = int(np.flatnonzero((groups < 0) | (groups >= n))[0])
        raise InvalidValueError(f"groups[{bad}] = {groups[bad]} is outside [0, {n})")
    unused = np.flatnonzero(np.bincount(groups) == 0)
    if unused.size:
        raise InvalidValueError(f"groups must use every number up to its largest; {int(unused[0])} is unused")
    return groups.astype(np.int32)
