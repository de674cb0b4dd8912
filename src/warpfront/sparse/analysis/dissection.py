"""Nested dissection: multilevel, METIS's, and a cheap one by breadth-first levels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from warpfront.backend import settings
from warpfront.backend.cpu import run_jobs
from warpfront.errors import NotSupportedError, OrderingFailedError

__all__ = ["OrderingFailedError", "level_set", "metis", "multilevel"]

_LEAF_SIZE = 200
_WIDEST_SEPARATOR = 0.25
_THINNEST_SIDE = 0.1
# Multilevel: parts up to which one thread goes on alone, as a share of the graph and at least; vertices of a leaf.
_ALONE_SHARE, _ALONE, _LEAF = 16, 2000, 100


def metis(
    n: int,
    xadj: npt.NDArray[np.int64],
    adj: npt.NDArray[np.int32],
    weights: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.int32]:
    """Order a symmetric pattern by METIS multilevel nested dissection (default options, its fixed seed).

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern; not modified. Any number of components.
    weights : int32[n], optional
        Rows each vertex stands for.

    Returns
    -------
    int32[n]
        ``perm[k]`` is the k-th vertex to eliminate. Vertices without a neighbour come first and never
        reach METIS.

    Raises
    ------
    NotSupportedError
        pymetis is not installed, or the graph is past its index range.
    OrderingFailedError
        METIS failed.

    Notes
    -----
    The call holds the interpreter lock. G. Karypis, V. Kumar, SIAM J. Sci. Comput. 20 (1998).
    """
    degree = np.diff(xadj)
    alone = np.flatnonzero(degree == 0).astype(np.int32)
    if n - alone.size <= 2:
        return np.arange(n, dtype=np.int32)
    try:
        import pymetis
    except ImportError as error:
        raise NotSupportedError(
            "ordering 'metis' needs the pymetis package, which is not installed"
        ) from error
    index = pymetis.zero_copy_dtype()
    if adj.size > np.iinfo(index).max:
        raise NotSupportedError(
            f"this METIS build has {index} indices: {adj.size} adjacency entries are too many"
        )
    joined = np.flatnonzero(degree > 0).astype(np.int32)
    number = np.zeros(n, dtype=index)
    number[joined] = np.arange(joined.size)
    starts = np.concatenate((xadj[joined], xadj[n:])).astype(index)
    vertex_weights = (
        None if weights is None else np.ascontiguousarray(np.asarray(weights)[joined], dtype=index)
    )
    try:
        result = pymetis.nested_dissection(pymetis.CSRAdjacency(starts, number[adj]), vweights=vertex_weights)
    except Exception as error:
        raise OrderingFailedError(f"METIS failed: {error}") from error
    order = np.asarray(result[0], dtype=np.int64)
    if order.shape != joined.shape or not np.array_equal(np.sort(order), np.arange(joined.size)):
        raise OrderingFailedError("METIS returned something that is no permutation")
    return np.concatenate((alone, joined[order]))


def level_set(
    n: int,
    xadj: npt.NDArray[np.int64],
    adj: npt.NDArray[np.int32],
    weights: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.int32]:
    """Order a symmetric pattern by nested dissection at breadth-first levels; the leaves by minimum degree.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern; not modified. Any number of components.
    weights : int32[n], optional
        Rows each vertex stands for; they count in the degrees, not in the balance of the parts.

    Returns
    -------
    int32[n]
        ``perm[k]`` is the k-th vertex to eliminate.

    Notes
    -----
    Good on 5- and 7-point grids, where thin levels exist; a part without one is left to minimum degree.
    The search starts from a pseudo-peripheral vertex, found by one search before. A. George, J. W. H. Liu,
    SIAM J. Numer. Anal. 15 (1978).
    """
    from warpfront.sparse.analysis._amd_kernels import approximate_minimum_degree
    from warpfront.sparse.analysis._level_set_kernels import level_separators

    nested, n_leaf = level_separators(n, xadj, adj, _LEAF_SIZE, _WIDEST_SEPARATOR, _THINNEST_SIDE)
    sizes = np.ones(n, dtype=np.int32) if weights is None else np.array(weights, dtype=np.int32)
    sizes[nested[n_leaf:]] = 0
    perm: npt.NDArray[np.int32] = approximate_minimum_degree(n, xadj, adj, sizes, n)
    perm[n_leaf:] = nested[n_leaf:]
    return perm


def multilevel(
    n: int,
    xadj: npt.NDArray[np.int64],
    adj: npt.NDArray[np.int32],
    weights: npt.NDArray[Any] | None = None,
) -> npt.NDArray[np.int32]:
    """Order a symmetric pattern by multilevel nested dissection; the leaves by minimum degree.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern; not modified. Any number of components.
    weights : int32[n], optional
        Rows each vertex stands for.

    Returns
    -------
    int32[n]
        ``perm[k]`` is the k-th vertex to eliminate; the same for any number of threads.

    Notes
    -----
    Threads take parts once the first cuts have been made. B. Hendrickson, E. Rothberg, SIAM J. Sci. Comput. 20 (1998).
    """
    from warpfront.sparse.analysis import _multilevel_kernels as kernels
    from warpfront.sparse.analysis._amd_kernels import approximate_minimum_degree

    sizes = np.ones(n, np.int32) if weights is None else np.array(weights, np.int32)
    perm, inside = np.arange(n, dtype=np.int32), np.ones(n, np.bool_)
    place, threads, alone = perm.copy(), settings.threads(), max(n // _ALONE_SHARE, _ALONE)
    waiting, whole = [(0, n)], []

    def cut(lo: int, hi: int, made: list[tuple[int, int]]) -> None:
        first, second = kernels.dissect(xadj, adj, sizes, perm, place, lo, hi, _LEAF, True, inside)
        made += [(lo, first), (first, second)] if second < hi else [(lo, lo)]

    def finish(lo: int, hi: int) -> None:
        kernels.dissect(xadj, adj, sizes, perm, place, lo, hi, _LEAF, False, inside)
        leaves, mine = inside[lo:hi], perm[lo:hi].copy()
        weight = np.where(leaves, sizes[mine], np.int32(0))
        order = approximate_minimum_degree(
            hi - lo, *kernels.piece(xadj, adj, perm, place, lo, hi), weight, hi - lo
        )
        count = int(np.count_nonzero(leaves))
        perm[lo:hi] = np.concatenate([mine[order[:count]], mine[~leaves]])

    while waiting:
        large = [part for part in waiting if part[1] - part[0] > alone]
        whole += [part for part in waiting if part[1] - part[0] <= alone]
        made: list[list[tuple[int, int]]] = [[] for _ in large]
        run_jobs(threads, [partial(cut, *part, found) for part, found in zip(large, made, strict=True)])
        waiting = []
        for part, found in zip(large, made, strict=True):
            if found[0] == (part[0], part[0]):
                whole.append(part)  # nothing separates it
            else:
                waiting += found
    run_jobs(threads, [partial(finish, *part) for part in sorted(whole, key=lambda p: p[0] - p[1])])
    return perm
