"""Read a finished LU: pivots, permutations, determinant, L and U as sparse matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.symbolic import General
from warpfront.sparse.numeric.factorize import Factor

__all__ = ["lower_upper", "lu_orders", "lu_pivots", "lu_slogdet"]

Ints = NDArray[np.int64]


def _general(factor: Factor) -> General:
    assert factor.symbolic.general is not None
    return factor.symbolic.general


def _fronts(factor: Factor) -> Iterator[list[int]]:
    """Facts of every front in the order of the diagonal blocks, which is that of L and U."""
    node = factor.state.node
    for first, last in _general(factor).blocks.tolist():
        yield from node[first : last + 1].tolist()


def _labels(factor: Factor) -> tuple[Ints, Ints]:
    """Rows and columns in pivot order, in the permuted numbering."""
    state = factor.state
    row, col = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _, at, _, _, _, done, _, _ in _fronts(factor):
        row.append(state.ind[at : at + done])
        col.append(state.col[at : at + done])
    return np.concatenate(row).astype(np.int64), np.concatenate(col).astype(np.int64)


def lu_orders(factor: Factor) -> tuple[Ints, Ints]:
    """Rows and columns of A in the order of the pivots, caller's numbering: ``A[rows][:, cols]`` is what L U equals."""
    on_device = getattr(factor, "orders", None)
    if on_device is not None:
        found: tuple[Ints, Ints] = on_device()
        return found
    row, col = _labels(factor)
    return _general(factor).rows[row].astype(np.int64), factor.symbolic.perm[col].astype(np.int64)


def lu_pivots(factor: Factor) -> NDArray[Any]:
    """Pivots of the scaled matrix in pivot order; 0 where there is none."""
    on_device = getattr(factor, "pivot_values", None)
    if on_device is not None:
        values: NDArray[Any] = on_device()
        return values
    parts = [
        factor.state.diagonal[2 * at : 2 * (at + done) : 2] for _, _, at, _, _, done, _, _ in _fronts(factor)
    ]
    return np.concatenate([np.empty(0, factor.state.diagonal.dtype), *parts])


def _sign(order: Ints) -> int:
    """Sign of a permutation, by its cycles."""
    rest = order.tolist()
    odd = 0
    for start in range(len(rest)):
        i = start
        while rest[i] != i:  # put i's entry in its place; each exchange flips the sign
            j = rest[i]
            rest[i], rest[j] = rest[j], j
            odd ^= 1
    return -1 if odd else 1


def lu_slogdet(factor: Factor) -> tuple[Any, float]:
    """Sign (a phase for complex A) and natural logarithm of |det A|; (0, -inf) for a singular matrix."""
    d = lu_pivots(factor)
    if np.any(d == 0):
        return d.dtype.type(0), -np.inf
    rows, cols = lu_orders(factor)
    size = np.abs(d).astype(np.float64)
    logarithm = float(np.log(size).sum())
    for scale in (factor.scale, factor.col_scale):
        if scale is not None:
            logarithm -= float(np.log(scale).sum())
    phase = d.dtype.type(_sign(rows) * _sign(cols))
    for part in d / np.abs(d):
        phase = phase * part
    return phase / np.abs(phase), logarithm


def lower_upper(factor: Factor) -> tuple[Any, Any]:
    """L and U with ``L U = A[rows][:, cols]`` for ``rows, cols = lu_orders(factor)``, as ``csc_array``.

    The scaling, by powers of two, is taken out again; L has a unit diagonal. Stored zeros are left out.
    """
    from scipy import sparse

    n = factor.symbolic.n
    row, col = _labels(factor)
    row_place, col_place = np.empty(n, np.int64), np.empty(n, np.int64)
    row_place[row] = col_place[col] = np.arange(n)
    lower, upper = _triangles(factor, row_place, col_place)
    general = _general(factor)
    if general.coupling.slot.size:
        c = general.coupling
        where = np.repeat(row_place, np.diff(c.ptr))
        coupling = sparse.csc_array((factor.state.values[c.slot], (where, col_place[c.col])), shape=(n, n))
        upper = upper + _through(lower, coupling)
    rows, cols = lu_orders(factor)
    if factor.scale is not None and factor.col_scale is not None:
        r = factor.scale[rows].astype(lower.data.real.dtype)
        c_scale = factor.col_scale[cols].astype(lower.data.real.dtype)
        lower = sparse.diags_array(1 / r) @ lower @ sparse.diags_array(r)
        upper = sparse.diags_array(1 / r) @ upper @ sparse.diags_array(1 / c_scale)
    lower, upper = sparse.csc_array(lower), sparse.csc_array(upper)
    for matrix in (lower, upper):
        matrix.eliminate_zeros()
        matrix.sort_indices()
    return lower, upper


def _triangles(factor: Factor, row_place: Ints, col_place: Ints) -> tuple[Any, Any]:
    """L, and U inside the diagonal blocks, of the scaled matrix."""
    from scipy import sparse

    state, n = factor.state, factor.symbolic.n
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("li", "lj", "lv", "ui", "uj", "uv")}
    first = 0
    for panel_at, at, pivot_at, rows, _, done, _, _ in _fronts(factor):
        shape = (done, rows)
        panel = state.panel[panel_at : panel_at + done * rows].reshape(shape)
        upper = state.upper[panel_at : panel_at + done * rows].reshape(shape)
        k, i = np.triu_indices(done, 0, rows)
        below = i > k
        parts["li"].append(row_place[state.ind[at : at + rows]][i[below]])
        parts["lj"].append(first + k[below])
        parts["lv"].append(panel[k[below], i[below]])
        parts["ui"].append(first + k)
        parts["uj"].append(col_place[state.col[at : at + rows]][i])
        value = upper[k, i].copy()
        value[~below] = state.diagonal[2 * pivot_at : 2 * (pivot_at + done) : 2]
        parts["uv"].append(value)
        first += done
    one = np.arange(n)
    joined = {
        name: np.concatenate(part) if part else np.empty(0, state.panel.dtype if name[1] == "v" else np.int64)
        for name, part in parts.items()
    }
    unit = sparse.csc_array((np.ones(n, state.panel.dtype), (one, one)), shape=(n, n))
    lower = sparse.csc_array((joined["lv"], (joined["li"], joined["lj"])), shape=(n, n)) + unit
    lower.sort_indices()
    return lower, sparse.csc_array((joined["uv"], (joined["ui"], joined["uj"])), shape=(n, n))


def _through(lower: Any, coupling: Any) -> Any:
    """``L^-1 C``."""
    from scipy import sparse

    from warpfront.sparse.numeric import _readout_kernels as kernels

    def arrays(matrix: Any) -> tuple[Ints, Ints, NDArray[Any]]:
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data

    ptr = kernels.count_upper(*arrays(lower), *arrays(coupling))
    ind, data = np.empty(int(ptr[-1]), np.int64), np.empty(int(ptr[-1]), lower.data.dtype)
    kernels.fill_upper(*arrays(lower), *arrays(coupling), ptr, ind, data)
    return sparse.csc_array((data, ind, ptr), shape=lower.shape)
