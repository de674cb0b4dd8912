"""`Canonical`: sorted, unique, compressed columns, and the map from the caller's entries into them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NotSupportedError, PatternChangedError
from warpfront.formats.operand import Operand

__all__ = ["Canonical", "SymmetryEvidence", "canonicalize", "gather_if_equal", "symmetry", "triangles"]

Triangle = Literal["all", "lower", "upper_as_lower", "lower_as_lower"]
MAX_ENTRIES = 2**32 - 1
_TOLERANCE_IN_EPS = 8


@dataclass(frozen=True)
class Canonical:
    """Compressed sparse columns with sorted, unique row indices.

    Attributes
    ----------
    n_rows, n_cols : int
        Shape.
    ptr : int64[n_cols + 1]
        Start of each column in `ind`.
    ind : int32[nnz]
        Row indices, strictly increasing within a column. Explicit zeros are entries like any other.
    value_map : int64[nnz_in]
        Slot of each entry of the caller, -1 where the chosen triangle leaves it out. Duplicates share a slot.
    mirrored : bool
        True if the slots hold entries of the upper triangle at their transposed place (``upper_as_lower``).
        For a Hermitian matrix the gathered values must then be conjugated.
    """

    n_rows: int
    n_cols: int
    ptr: NDArray[np.int64]
    ind: NDArray[np.int32]
    value_map: NDArray[np.int64]
    mirrored: bool = False

    @property
    def nnz(self) -> int:
        """Number of slots."""
        return int(self.ind.shape[0])

    @cached_property
    def col(self) -> NDArray[np.int32]:
        """Column of each slot, int32[nnz]."""
        return np.repeat(np.arange(self.n_cols, dtype=np.int32), np.diff(self.ptr))

    @cached_property
    def diagonal(self) -> NDArray[np.int64] | None:
        """Slots of the diagonal of a lower triangle, int64[n_cols]; None where an entry is not stored."""
        begin = self.ptr[:-1]
        if bool(np.any(begin == self.ptr[1:])) or not bool(np.all(self.ind[begin] == np.arange(self.n_cols))):
            return None
        return begin

    def gather(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the slots, dtype of `values`, from the caller's ``values[nnz_in]``."""
        out = np.empty(self.nnz, dtype=np.asarray(values).dtype)
        self.gather_into(values, out)
        return out

    def gather_into(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the values of the slots to `out`.

        Parameters
        ----------
        values : float32, float64, complex64 or complex128 [nnz_in]
            The caller's values in the caller's order. Duplicates are summed in this order, in this precision.
        out : same dtype, [nnz], contiguous
            Overwritten.

        Raises
        ------
        PatternChangedError
            `values` has another length than the analysed matrix.
        InvalidValueError
            `out` has another dtype, length or layout.
        """
        from warpfront.formats._canonical_kernels import scatter_add

        values = np.asarray(values)
        if values.shape != self.value_map.shape:
            raise PatternChangedError(
                f"values has shape {values.shape}; the analysed matrix has {self.value_map.shape[0]} entries"
            )
        if out.shape != self.ind.shape or out.dtype != values.dtype or not out.flags.c_contiguous:
            raise InvalidValueError(
                f"out is {out.dtype.name}{list(out.shape)}; it must be a contiguous "
                f"{values.dtype.name}[{self.nnz}]"
            )
        if not (values.flags.c_contiguous and values.flags.writeable):
            values = values.copy()  # a copy costs less than compiling the kernel for one more array type
        scatter_add(self.value_map, values, out)


@dataclass(frozen=True)
class SymmetryEvidence:
    """What one pass over a matrix and its transpose found.

    Attributes
    ----------
    pattern_symmetric : bool
        Every stored (i, j) has a stored (j, i).
    symmetric, hermitian, skew : bool
        a_ij equals a_ji, conj(a_ji), -a_ji, exactly or within 8 eps max(|a_ij|, |a_ji|). An entry that is not
        stored is 0. Real matrices are Hermitian when they are symmetric.
    max_relative_difference : float
        Largest |a_ij - a_ji| / max(|a_ij|, |a_ji|), or the same with conj(a_ji) where that is smaller. NaN if
        values are; inf for a matrix that is not square.
    zero_diagonals : int
        Diagonal entries that are zero or not stored.
    all_positive_diagonal : bool
        Every diagonal entry is real and positive.
    """

    pattern_symmetric: bool
    symmetric: bool
    hermitian: bool
    skew: bool
    max_relative_difference: float
    zero_diagonals: int
    all_positive_diagonal: bool


def canonicalize(operand: Operand, triangle: Triangle = "all") -> Canonical:
    """Return the canonical pattern of `operand` and the map into it, in linear time.

    Parameters
    ----------
    operand : Operand
        Checked matrix, any kind.
    triangle : {"all", "lower", "upper_as_lower", "lower_as_lower"}
        ``lower`` keeps the lower triangle of a matrix given in full; ``lower_as_lower`` does the same for one
        given as its lower triangle, whatever lies above is ignored; ``upper_as_lower`` stores the upper
        triangle at its transposed place and ignores what lies below the diagonal.

    Raises
    ------
    InvalidValueError
        Another `triangle`, or a triangle of a matrix that is not square.
    NotSupportedError
        More than 2^32 - 1 entries.
    """
    if triangle not in get_args(Triangle):
        raise InvalidValueError(f"triangle is {triangle!r}; allowed are {', '.join(get_args(Triangle))}")
    n_rows, n_cols = operand.shape
    if triangle != "all" and n_rows != n_cols:
        raise InvalidValueError(f"a triangle needs a square matrix; this one is {n_rows} x {n_cols}")
    if operand.nnz > MAX_ENTRIES:
        raise NotSupportedError(f"the matrix has {operand.nnz} entries; the limit is {MAX_ENTRIES}")
    if triangle == "all" and operand.kind == "csc":
        stands = _as_it_stands(operand)
        if stands is not None:
            return stands
    row, col = operand.coordinates()
    if triangle == "upper_as_lower":
        row, col = col, row
    from warpfront.formats._canonical_kernels import compress

    start, pairs = _column_major_pairs(row, col, operand.shape, lower_only=triangle != "all")
    ptr = np.empty(n_cols + 1, dtype=np.int64)
    ind = np.empty(pairs.shape[0], dtype=np.int32)
    value_map = np.full(row.shape[0], -1, dtype=np.int64)
    nnz = int(compress(start, pairs, ptr, ind, value_map))
    if nnz < ind.shape[0]:
        ind = ind[:nnz].copy()
    return Canonical(n_rows, n_cols, ptr, ind, value_map, mirrored=triangle == "upper_as_lower")


def _as_it_stands(operand: Operand) -> Canonical | None:
    """Return the pattern of a CSC matrix whose columns are sorted and hold no entry twice; else None."""
    from warpfront.formats._canonical_kernels import ascending_columns

    assert operand.ptr is not None
    assert operand.ind is not None
    ptr, ind = operand.ptr.astype(np.int64), operand.ind.astype(np.int32)  # copies, of one array type
    if not ascending_columns(ptr, ind):
        return None
    return Canonical(*operand.shape, ptr, ind, np.arange(ind.shape[0], dtype=np.int64))


def triangles(full: Canonical, symmetric: bool) -> tuple[Canonical, Canonical | None]:
    """Return the lower triangle of a square matrix; where its pattern is `symmetric` also the upper one, mirrored.

    As `canonicalize` with ``"lower"`` and ``"upper_as_lower"`` does, from ``canonicalize(operand, "all")``.
    """
    from warpfront.formats._canonical_kernels import split_triangles

    n = full.n_cols
    ptr, ind = np.empty(n + 1, np.int64), np.empty(full.nnz, np.int32)
    to_lower = np.empty(full.nnz, np.int64)
    to_upper = np.empty(full.nnz if symmetric else 0, np.int64)
    split_triangles(full.ptr, full.ind, symmetric, ptr, ind, to_lower, to_upper)
    ind = ind[: ptr[n]].copy()
    entries = full.value_map
    if entries.size != full.nnz or bool(
        np.any(entries[1:] < entries[:-1])
    ):  # else each entry is its own slot
        to_lower = to_lower[entries]
        to_upper = to_upper[entries] if symmetric else to_upper
    lower = Canonical(n, n, ptr, ind, to_lower)
    return lower, Canonical(n, n, ptr, ind, to_upper, mirrored=True) if symmetric else None


def gather_if_equal(lower: Canonical, upper: Canonical, values: NDArray[Any]) -> NDArray[Any] | None:
    """Return the values of the lower triangle where the upper one, mirrored, has the same and all are finite; or None.

    Parameters
    ----------
    lower, upper : Canonical
        Of one matrix, with the same slots (`triangles`).
    values : float32, float64, complex64 or complex128 [nnz_in]
        The caller's values in the caller's order.
    """
    from warpfront.formats._canonical_kernels import gather_equal

    if values.shape != lower.value_map.shape:
        return None
    if not (values.flags.c_contiguous and values.flags.writeable):
        values = values.copy()
    out = np.empty(lower.nnz, values.dtype)
    return out if gather_equal(lower.value_map, upper.value_map, values, out, np.empty_like(out)) else None


def _column_major_pairs(
    row: NDArray[Any], col: NDArray[Any], shape: tuple[int, int], *, lower_only: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return column starts, and (row, entry) pairs sorted by column, then row, then the caller's order."""
    from warpfront.formats._canonical_kernels import sort_by_column, sort_by_row, sortedness

    if lower_only:
        entry = np.flatnonzero(row >= col).astype(np.int64, copy=False)
        row, col = row[entry], col[entry]
    else:
        entry = np.arange(row.shape[0], dtype=np.int64)
    # contiguous and writable: the one array type the kernels are compiled for
    row, col = np.require(row, np.int32, ["C", "W"]), np.require(col, np.int32, ["C", "W"])
    known = int(sortedness(row, col))
    if known == 2:
        return _starts(col, shape[1]), (row.astype(np.int64) << 32) | entry
    pairs = np.empty_like(entry)
    if known == 1:
        row_ptr = _starts(row, shape[0])
        np.bitwise_or(col.astype(np.int64) << 32, entry, out=pairs)
    else:
        row_ptr = np.zeros(shape[0] + 2, dtype=np.int64)
        sort_by_row(row, col, entry, row_ptr, pairs)
        row_ptr = row_ptr[:-1]
    start = np.zeros(shape[1] + 2, dtype=np.int64)
    out = entry  # no longer needed as such
    sort_by_column(row_ptr, pairs, start, out)
    return start[:-1], out


def _starts(sorted_key: NDArray[np.int32], n_keys: int) -> NDArray[np.int64]:
    start = np.zeros(n_keys + 1, dtype=np.int64)
    np.cumsum(np.bincount(sorted_key, minlength=n_keys), out=start[1:])
    return start


def symmetry(operand: Operand, canonical: Canonical | None = None) -> SymmetryEvidence:
    """Compare `operand` with its transpose, in time linear in its entries.

    Parameters
    ----------
    operand : Operand
        Checked matrix with its values.
    canonical : Canonical, optional
        ``canonicalize(operand, "all")`` if it is at hand.
    """
    n_rows, n_cols = operand.shape
    full = canonicalize(operand, "all") if canonical is None else canonical
    if full.value_map.shape[0] != operand.nnz or (full.n_rows, full.n_cols) != operand.shape:
        raise InvalidValueError("canonical does not belong to this matrix")
    values = full.gather(operand.data)
    if n_rows != n_cols:
        zeros, positive = _signs(_diagonal(full, values))
        return SymmetryEvidence(False, False, False, False, float("inf"), zeros, positive)
    from warpfront.formats._canonical_kernels import compare_with_transpose

    difference, diagonal = np.empty(3, dtype=np.float64), np.zeros(n_cols, values.dtype)
    unpaired = int(compare_with_transpose(full.ptr, full.ind, values, difference, diagonal))
    zeros, positive = _signs(diagonal)
    within = difference <= _TOLERANCE_IN_EPS * np.finfo(values.dtype).eps
    return SymmetryEvidence(
        pattern_symmetric=unpaired == 0,
        symmetric=bool(within[0]),
        hermitian=bool(within[1]),
        skew=bool(within[2]),
        max_relative_difference=float(np.min(difference[:2])),
        zero_diagonals=zeros,
        all_positive_diagonal=positive,
    )


def _signs(diagonal: NDArray[Any]) -> tuple[int, bool]:
    """How many entries are zero, and whether all are real and positive."""
    positive = diagonal.real > 0
    if diagonal.dtype.kind == "c":
        positive &= diagonal.imag == 0
    return int(np.count_nonzero(diagonal == 0)), bool(np.all(positive))


def _diagonal(canonical: Canonical, values: NDArray[Any]) -> NDArray[Any]:
    """Return the min(n_rows, n_cols) diagonal values, 0 where nothing is stored."""
    diagonal = np.zeros(min(canonical.n_rows, canonical.n_cols), dtype=values.dtype)
    column = np.repeat(np.arange(canonical.n_cols, dtype=np.int32), np.diff(canonical.ptr))
    slot = np.flatnonzero(canonical.ind == column)
    diagonal[canonical.ind[slot]] = values[slot]
    return diagonal
