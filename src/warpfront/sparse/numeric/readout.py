"""Read a finished factor: pivots, determinant, L as a sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.numeric.factorize import Factor

__all__ = ["elimination_order", "lower_factor", "pivots", "slogdet"]


def elimination_order(factor: Factor) -> NDArray[np.int64]:
    """``order[k]``: the caller's index of the k-th pivot, delayed pivots where they were eliminated."""
    state, perm = factor.state, factor.symbolic.perm
    parts = [state.ind[node[1] : node[1] + node[5]] for node in state.node]
    return perm[np.concatenate(parts)].astype(np.int64) if parts else np.empty(0, np.int64)


def pivots(factor: Factor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Diagonal and subdiagonal of D in the caller's numbering (the row of a 2x2 pivot's first column).

    D belongs to the scaled matrix; for LL^T it is the squared diagonal of L. Both have the factor's type.
    """
    state, n = factor.state, factor.symbolic.n
    diagonal, off = np.zeros((2, n), state.diagonal.dtype)
    for panel_at, ind_at, pivot_at, rows, _, done, _, _ in state.node.tolist():
        at = factor.symbolic.perm[state.ind[ind_at : ind_at + done]]
        if factor.options.cholesky:
            diagonal[at] = state.panel[panel_at : panel_at + done * rows : rows + 1][:done] ** 2
        else:
            diagonal[at] = state.diagonal[2 * pivot_at : 2 * (pivot_at + done) : 2]
            off[at] = state.diagonal[2 * pivot_at + 1 : 2 * (pivot_at + done) : 2]
    return diagonal, off


def slogdet(factor: Factor) -> tuple[complex, float]:
    """Sign (for a complex matrix: phase) and natural logarithm of |det A|; (0, -inf) for a singular matrix."""
    wide = np.complex128 if factor.state.diagonal.dtype.kind == "c" else np.float64
    order = elimination_order(factor)
    d, e = (part[order].astype(wide) for part in pivots(factor))
    first = np.flatnonzero(e)
    single = np.ones(d.size, bool)
    single[first] = single[first + 1] = False
    if np.any(d[single] == 0):
        return (0j if wide is np.complex128 else 0.0), -np.inf
    # det of a 2x2 pivot, scaled by its subdiagonal entry
    above = e[first].conj() if factor.options.hermitian else e[first]
    ratio = (d[first] / above) * (d[first + 1] / e[first]) - 1.0
    logarithm = float(
        np.log(np.abs(d[single])).sum() + (np.log(np.abs(ratio)) + 2 * np.log(np.abs(e[first]))).sum()
    )
    if factor.scale is not None:
        logarithm -= 2 * float(np.log(factor.scale).sum())
    if wide is np.complex128:
        phases = np.concatenate([d[single], ratio, e[first], above])
        sign = complex(np.prod(phases / np.abs(phases)))
        return (complex(np.sign(sign.real)) if factor.options.hermitian else sign), logarithm
    negative = int(np.count_nonzero(d[single] < 0)) + int(np.count_nonzero(ratio < 0))
    return (-1.0 if negative % 2 else 1.0), logarithm


def lower_factor(factor: Factor) -> Any:
    """L in elimination order as a ``csc_array``, relaxed zeros included."""
    from scipy import sparse

    state, n = factor.state, factor.symbolic.n
    place = np.empty(n, np.int64)
    order = elimination_order(factor)
    place[order] = np.arange(n)
    rows_out, data_out, lengths = [], [], []
    for panel_at, ind_at, _, rows, _, done, _, _ in state.node.tolist():
        at = place[factor.symbolic.perm[state.ind[ind_at : ind_at + rows]]]
        for j in range(done):
            start = panel_at + j * rows
            rows_out.append(at[j:])
            data_out.append(state.panel[start + j : start + rows])
            lengths.append(rows - j)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    empty: NDArray[Any] = np.empty(0)
    data = np.concatenate(data_out) if data_out else empty
    ind = np.concatenate(rows_out) if rows_out else empty.astype(np.int64)
    lower = sparse.csc_array((data, ind, ptr), shape=(n, n))
    lower.sort_indices()
    return lower
