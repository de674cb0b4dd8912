"""Maximum-product matching with its scaling (MC64's job 5), and its symmetrised form.

`maximum_product_matching` picks one entry per row and column so that the product of their magnitudes is as
large as possible, and scales so that these entries become 1 and no other exceeds 1 (I. S. Duff and J. Koster,
SIAM J. Matrix Anal. Appl. 22, 2001). `symmetric_matching` makes a symmetric scaling and pivots of order 1 and
2 of it (I. S. Duff and S. Pralet, SIAM J. Matrix Anal. Appl. 27, 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.scaling import check_magnitudes

__all__ = ["Matching", "maximum_product_matching", "symmetric_matching"]

Floats = NDArray[np.float64]
# Scales stay in [exp(-690), exp(690)], so they and their reciprocals are normal numbers.
LOG_LIMIT = 690.0


@dataclass(frozen=True)
class Matching:
    """One entry for each matched row and column, and the scaling that makes it the largest.

    Attributes
    ----------
    row_of_column : int32[n_cols]
        Row matched with each column, -1 where there is none.
    row_scale, col_scale : float64[n_rows], float64[n_cols]
        Positive. Matched entries scale to 1 in magnitude, all others to at most 1, up to rounding; the
        largest entry of an unmatched row or column scales to 1 as well; zero rows and columns keep 1.
    structural_rank : int
        Number of matched pairs, the largest possible.
    unmatched_rows, unmatched_columns : int32[...]
        Ascending. Both empty if and only if the matrix is square and structurally nonsingular.
    """

    row_of_column: NDArray[np.int32]
    row_scale: Floats
    col_scale: Floats
    structural_rank: int
    unmatched_rows: NDArray[np.int32]
    unmatched_columns: NDArray[np.int32]


class _Columns(NamedTuple):
    """CSC arrays in the kernels' types."""

    ptr: NDArray[np.int64]
    ind: NDArray[np.uint32]
    values: Floats


class _Assignment(NamedTuple):
    """Matching in both directions; natural logarithms of the scales, infinity for zero rows and columns."""

    row_of: NDArray[np.int32]
    col_of: NDArray[np.int32]
    log_row: Floats
    log_col: Floats


def maximum_product_matching(
    n_rows: int,
    n_cols: int,
    ptr: NDArray[np.int64],
    ind: NDArray[np.int32],
    values_abs: Floats,
    *,
    exact: bool = False,
) -> Matching:
    """Match rows with columns so that the product of the matched magnitudes is largest.

    Parameters
    ----------
    n_rows, n_cols : int
        Shape; any. With full structural rank min(n_rows, n_cols) the product is the largest over all
        matchings of that size. Otherwise the number of matched pairs is largest, and the product is largest
        for the matched rows and columns.
    ptr, ind : int64[n_cols + 1], int32[nnz]
        CSC pattern without duplicates. Read only.
    values_abs : float64[nnz]
        Absolute values, finite. Zeros count as absent. Read only.
    exact : bool, default False
        Round both scales to the nearest powers of two, so that scaling does not round the values. Matched
        entries then scale into [0.5, 2] and others to at most 2.

    Returns
    -------
    Matching
        If the scaling would need a factor outside [exp(-690), exp(690)], the factor is confined to that
        range: no entry exceeds 1 then either, but some matched entries fall below it.

    Raises
    ------
    NonFiniteError
        With the position in ``values_abs`` of the first entry that is NaN or infinite.
    InvalidValueError
        A negative value.
    """
    a = _columns(ptr, ind, values_abs)
    if n_rows >= n_cols:
        found = _assign(n_rows, a)
    else:
        # Every column of the taller matrix finds a row: then, and only then, are the duals optimal.
        swapped = _assign(n_cols, _transpose(n_rows, a))
        found = _Assignment(swapped.col_of, swapped.row_of, swapped.log_col, swapped.log_row)
    unmatched = free_rows = np.empty(0, np.int32)
    if n_rows != n_cols or (n_cols and found.row_of.min() < 0):
        unmatched = np.flatnonzero(found.row_of < 0).astype(np.int32)
        free_rows = np.flatnonzero(found.col_of < 0).astype(np.int32)
    row_scale, col_scale = _scales(a, found, exact)
    return Matching(
        row_of_column=found.row_of,
        row_scale=row_scale,
        col_scale=col_scale,
        structural_rank=n_cols - unmatched.size,
        unmatched_rows=free_rows,
        unmatched_columns=unmatched,
    )


def symmetric_matching(
    n: int,
    ptr_full: NDArray[np.int64],
    ind_full: NDArray[np.int32],
    values_abs: Floats,
    *,
    exact: bool = False,
) -> tuple[Floats, NDArray[np.int32]]:
    """Scale a symmetric matrix, ``diag(s) A diag(s)``, and propose its pivots of order 1 and 2.

    Parameters
    ----------
    n : int
        Order.
    ptr_full, ind_full : int64[n + 1], int32[nnz]
        CSC pattern of both triangles, sorted, without duplicates. Read only.
    values_abs : float64[nnz]
        Absolute values, finite and symmetric. Zeros count as absent. Read only.
    exact : bool, default False
        Round the scale to powers of two; the bounds below then hold within a factor of 2.

    Returns
    -------
    scale : float64[n]
        No scaled entry exceeds 1, up to rounding, and every nonzero row has one that is 1. Zero rows keep 1.
        Confined to [exp(-690), exp(690)] as in `maximum_product_matching`.
    mate : int32[n]
        ``mate[i] = j`` and ``mate[j] = i``: the pair is a 2x2 pivot whose off-diagonal entry scales to 1.
        ``mate[i] = i``: a 1x1 pivot; its diagonal scales to 1, except for the vertex that an odd cycle of the
        matching leaves over, whose diagonal may even be zero. ``mate[i] = -1``: not matched, the matrix is
        structurally singular; the rows with a mate have full structural rank among themselves.

    Raises
    ------
    NonFiniteError, InvalidValueError
        As in `maximum_product_matching`.
    """
    from warpfront.sparse.analysis import _matching_kernels as kernels

    a = _columns(ptr_full, ind_full, values_abs)
    found = _assign(n, a)
    keep = np.flatnonzero(found.col_of >= 0).astype(np.int32)
    core = a
    if keep.size < n:
        # The matched rows, taken as columns too, have a perfect matching: one covers these rows, its
        # transpose these columns, hence one both (Mendelsohn and Dulmage). Only there do the two one-sided
        # scalings agree.
        core = _principal(n, a, keep)
        found = _assign(keep.size, core)
    log_core = (found.log_row + found.log_col) * 0.5
    core_mate = np.full(keep.size, -1, np.int32)
    cycle, weight, diagonal = np.empty(keep.size, np.int32), np.empty(keep.size), np.empty(keep.size)
    log_scale = log_core if keep.size == n else _extended(n, a, keep, log_core)
    if _out_of_range(log_scale):
        log_scale = _capped(log_scale, _row_log_max(n, a))
    scale = _scale(log_scale, False)
    kernels.split_cycles(*core, scale[keep], found.row_of, core_mate, cycle, weight, diagonal)
    mate = np.full(n, -1, np.int32)
    mate[keep] = keep[core_mate]
    return (_scale(log_scale, True) if exact else scale), mate


def _columns(ptr: NDArray[np.int64], ind: NDArray[np.int32], values_abs: Floats) -> _Columns:
    return _Columns(
        np.ascontiguousarray(ptr, np.int64),
        np.ascontiguousarray(ind, np.int32).view(np.uint32),
        np.ascontiguousarray(values_abs, np.float64),
    )


def _assign(n_rows: int, a: _Columns) -> _Assignment:
    """Run the kernels on a matrix with at least as many rows as columns."""
    from warpfront.sparse.analysis import _matching_kernels as kernels

    n_cols = a.ptr.size - 1
    bad, free, cost, log_max, u, v, row_of, col_of = kernels.begin(*a, n_rows)
    check_magnitudes(a.values, bad)
    if free:
        dist, generation = np.full(n_rows, np.inf), np.full(n_rows, n_cols, np.int32)
        work = np.empty((4, n_rows), np.uint32)
        kernels.augment(a.ptr, a.ind, cost, u, v, row_of, col_of, dist, generation, work)
        if row_of.min() < 0:
            matched = np.flatnonzero(row_of >= 0)
            order = matched[np.argsort(-generation[row_of[matched]], kind="stable")]
            shift = np.zeros(n_cols + 1)
            kernels.separate_generations(a.ptr, a.ind, cost, u, v, row_of, generation, order, shift)
    if free or n_rows > n_cols:
        kernels.end(a.ptr, a.ind, cost, u, v, col_of)
    return _Assignment(row_of, col_of, u, v - log_max)


def _transpose(n_rows: int, a: _Columns) -> _Columns:
    from warpfront.sparse.analysis import _matching_kernels as kernels

    t = _Columns(np.zeros(n_rows + 1, np.int64), np.empty_like(a.ind), np.empty_like(a.values))
    kernels.transpose(n_rows, *a, *t)
    return t


def _principal(n: int, a: _Columns, keep: NDArray[np.int32]) -> _Columns:
    """Return the principal submatrix of the rows ``keep``, numbered in that order."""
    number = np.full(n, -1, np.int64)
    number[keep] = np.arange(keep.size)
    col = np.repeat(number, np.diff(a.ptr))
    inside = (col >= 0) & (number[a.ind] >= 0)
    ptr = np.zeros(keep.size + 1, np.int64)
    np.cumsum(np.bincount(col[inside], minlength=keep.size), out=ptr[1:])
    return _Columns(ptr, number[a.ind[inside]].astype(np.uint32), a.values[inside])


def _extended(n: int, a: _Columns, keep: NDArray[np.int32], log_core: Floats) -> Floats:
    """Scale the rows outside ``keep`` by their largest entry; two such rows have no entry in common."""
    log_scale = np.full(n, -np.inf)
    log_scale[keep] = log_core
    top = np.full(n, -np.inf)
    col = np.repeat(np.arange(n), np.diff(a.ptr))
    stored = a.values > 0.0
    np.maximum.at(top, col[stored], np.log(a.values[stored]) + log_scale[a.ind[stored]])
    outside = np.ones(n, bool)
    outside[keep] = False
    log_scale[outside] = -top[outside]
    return log_scale


def _scales(a: _Columns, found: _Assignment, exact: bool) -> tuple[Floats, Floats]:
    """Scales of rows and columns."""
    from warpfront.sparse.analysis._scaling_kernels import balanced_powers

    if exact:
        row_scale, col_scale, inside = balanced_powers(found.log_row, found.log_col, LOG_LIMIT)
        if inside:
            return row_scale, col_scale
    log_row, log_col = _balanced(found.log_row, found.log_col)
    if _out_of_range(log_row) or _out_of_range(log_col):
        log_row, log_col = _confined(a, log_row)
    return _scale(log_row, exact), _scale(log_col, exact)


def _balanced(log_row: Floats, log_col: Floats) -> tuple[Floats, Floats]:
    """Move a common factor between the two sides until their geometric means agree."""
    row, col = np.isfinite(log_row), np.isfinite(log_col)
    if not row.any():
        return log_row, log_col
    shift = 0.5 * (log_col[col].mean() - log_row[row].mean())
    return log_row + shift, log_col - shift


def _out_of_range(log_scale: Floats) -> bool:
    return bool(np.any(np.abs(log_scale[np.isfinite(log_scale)]) > LOG_LIMIT))


def _row_log_max(n_rows: int, a: _Columns) -> Floats:
    top = np.zeros(n_rows)
    np.maximum.at(top, a.ind, a.values)
    with np.errstate(divide="ignore"):
        return np.log(top)


def _capped(log_scale: Floats, log_max: Floats) -> Floats:
    """Confine one side so that the other side, confined as well, still can keep every entry at or below 1."""
    return np.where(
        np.isfinite(log_scale),
        np.minimum(np.maximum(log_scale, -LOG_LIMIT), LOG_LIMIT - np.maximum(log_max, 0.0)),
        log_scale,
    )


def _confined(a: _Columns, log_row: Floats) -> tuple[Floats, Floats]:
    """Confine the row scale, then give each column the largest scale that keeps its entries at or below 1."""
    log_row = _capped(log_row, _row_log_max(log_row.size, a))
    stored = a.values > 0.0
    top = np.full(a.ptr.size - 1, -np.inf)
    col = np.repeat(np.arange(top.size), np.diff(a.ptr))
    np.maximum.at(top, col[stored], np.log(a.values[stored]) + log_row[a.ind[stored]])
    return log_row, np.where(np.isfinite(top), np.minimum(-top, LOG_LIMIT), np.inf)


def _scale(logarithm: Floats, exact: bool) -> Floats:
    """Exponentiate; zero rows and columns (infinite logarithm) get 1."""
    finite = np.where(np.isfinite(logarithm), logarithm, 0.0)
    if exact:
        powers: Floats = np.ldexp(1.0, np.rint(finite / np.log(2.0)).astype(np.int32))
        return powers
    return np.asarray(np.exp(finite))
