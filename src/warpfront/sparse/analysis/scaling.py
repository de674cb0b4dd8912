"""Equilibration: diagonal scalings by powers of two that bring every row's largest entry into [0.5, 2).

Infinity norm, on binary exponents, so scaling is exact (no rounding of the values) and cannot overflow. A few
sweeps of Ruiz's iteration balance rows against each other; one Gauss-Seidel pass afterwards raises whatever
is still too small, so the bounds below hold after any number of sweeps (Ruiz alone halves the distance per
sweep).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError

__all__ = ["equilibrate_general", "equilibrate_symmetric"]

Floats = NDArray[np.float64]


def equilibrate_symmetric(
    n: int,
    ptr: NDArray[np.int64],
    ind: NDArray[np.int32],
    values_abs: Floats,
    iterations: int = 3,
    col: NDArray[np.int32] | None = None,
) -> Floats:
    """Scale a symmetric matrix given by its lower triangle: ``diag(s) A diag(s)``.

    Parameters
    ----------
    n : int
        Order.
    ptr, ind : int64[n + 1], int32[nnz]
        CSC pattern of the lower triangle (row >= column in every entry; order within a column is free). Read
        only.
    values_abs : float64[nnz]
        Absolute values, finite. Zeros count as absent. Read only.
    iterations : int, default 3
        Sweeps of Ruiz's iteration at most, at least 1; they stop early once every row maximum lies in [0.5,
        2). The bounds hold for any number; more sweeps spread the scaling more evenly over the rows.
    col : int32[nnz], optional
        Column of each entry, where it is at hand.

    Returns
    -------
    float64[n]
        Powers of two in [2**-1000, 2**1000]. Every scaled entry is < 2 and every nonzero row has a scaled
        entry >= 0.5, unless that needs a scale beyond the range above (then only "< 2" holds). Zero rows keep
        1.

    Raises
    ------
    NonFiniteError
        With the position in ``values_abs`` of the first entry that is NaN or infinite.
    InvalidValueError
        A negative value, or ``iterations`` < 1.
    """
    from warpfront.sparse.analysis import _scaling_kernels as kernels

    values, ptr, rows = _checked(ptr, ind, values_abs, iterations)
    col = np.repeat(np.arange(n, dtype=np.int32), np.diff(ptr)) if col is None else col
    scale = np.empty(n)
    check_magnitudes(
        values, kernels.equilibrate(n, ptr, rows, col.view(np.uint32), values, iterations, scale)
    )
    return scale


def equilibrate_general(
    n_rows: int,
    n_cols: int,
    ptr: NDArray[np.int64],
    ind: NDArray[np.int32],
    values_abs: Floats,
    iterations: int = 3,
) -> tuple[Floats, Floats]:
    """Scale rows and columns of a matrix: ``diag(r) A diag(c)``.

    Parameters
    ----------
    n_rows, n_cols : int
        Shape; any.
    ptr, ind : int64[n_cols + 1], int32[nnz]
        CSC pattern. Read only.
    values_abs : float64[nnz]
        Absolute values, finite. Zeros count as absent. Read only.
    iterations : int, default 3
        As in `equilibrate_symmetric`.

    Returns
    -------
    row_scale, col_scale : float64[n_rows], float64[n_cols]
        Powers of two in [2**-1000, 2**1000]. Every scaled entry is < 2; every nonzero row and column has a
        scaled entry >= 0.5, unless that needs a scale beyond the range above. Zero rows and columns keep 1.

    Raises
    ------
    NonFiniteError, InvalidValueError
        As in `equilibrate_symmetric`.
    """
    from warpfront.sparse.analysis import _scaling_kernels as kernels

    values, ptr, rows = _checked(ptr, ind, values_abs, iterations)
    k = np.empty(values.size, np.int16)
    check_magnitudes(values, kernels.binary_exponents(values.view(np.int64), values, k))
    row, col = np.zeros(n_rows, np.int32), np.zeros(n_cols, np.int32)
    kernels.general_exponents(n_cols, ptr, rows, k, iterations, row, col, np.empty(n_rows, np.int32))
    return _powers_of_two(row, kernels), _powers_of_two(col, kernels)


def check_magnitudes(values_abs: Floats, entry: int) -> None:
    """Raise for ``values_abs[entry]``, found NaN, infinite or negative by a kernel; -1 means none was."""
    if entry < 0:
        return
    value = float(values_abs[entry])
    if np.isfinite(value):
        raise InvalidValueError(f"values_abs holds the negative value {value} at entry {entry}")
    raise NonFiniteError(f"values_abs holds {value} at entry {entry}", entry=int(entry))


def _checked(
    ptr: NDArray[np.int64], ind: NDArray[np.int32], values_abs: Floats, iterations: int
) -> tuple[Floats, NDArray[np.int64], NDArray[np.uint32]]:
    """Fix the dtypes: one specialisation of every kernel.

    Indices go to the kernels as unsigned: for signed ones Numba tests every access for Python's negative
    indexing.
    """
    if iterations < 1:
        raise InvalidValueError(f"iterations must be at least 1, got {iterations}")
    values = np.ascontiguousarray(values_abs, np.float64)
    return values, np.ascontiguousarray(ptr, np.int64), np.ascontiguousarray(ind, np.int32).view(np.uint32)


def _powers_of_two(exponents: NDArray[np.int32], kernels: Any) -> Floats:
    bits = np.empty(exponents.size, np.int64)
    kernels.power_bits(exponents, bits)
    return bits.view(np.float64)
