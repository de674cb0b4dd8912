"""The plain case on the CPU without ceremony: one NumPy matrix of a working type, partial pivoting, nothing wrong with it.

Each function returns None where anything needs a closer look (another kind of input, an entry that is not finite, a
zero pivot, pivots that give reason for a condition estimate); the caller then takes the whole way and says what it is.
The numbers are those of the whole way, bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import single_threaded_blas
from warpfront.dense._checks import WORKING, first_bad
from warpfront.dense._lapack import addresses
from warpfront.dense._lu_blocked import RHS_BLOCK, UNSPLIT, WHOLE
from warpfront.dense.factor import EXACT, DenseLU, factor_columns, matrix_threads, valued

__all__ = ["SUSPICION", "determined", "inverted", "solved", "suspicious"]

# Smallest over largest pivot, per row, below which the condition number is estimated.
LARGEST = {np.dtype(kind).char: float(np.finfo(kind).max) for kind in WORKING}
TILE = np.uint64(32)  # of the copy by columns
SUSPICION = {np.dtype(kind).char: 16 * float(np.finfo(kind).eps) for kind in WORKING}


def suspicious(factor: DenseLU) -> bool:
    """Whether the pivots give reason for a condition estimate (it costs several solves)."""
    finite, least, most = factor.extremes
    return not finite or not least >= len(factor.lu) * SUSPICION[factor.lu.dtype.char] * most


def _order(a: Any) -> int:
    """Order of a plain matrix, or 0."""
    if type(a) is not np.ndarray or a.ndim != 2 or a.shape[0] != a.shape[1]:
        return 0
    return a.shape[0] if a.dtype.char in SUSPICION and a.dtype.isnative else 0


def _factored(a: Any) -> DenseLU | None:
    factor = factor_columns(a, "partial", matrix_threads(len(a)))
    if factor is None or factor.column >= 0 or suspicious(factor):  # infinite pivots are suspicious
        return None
    return factor


def _solved_small(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any] | None:
    """Solve a system of order up to EXACT in one compiled call."""
    from warpfront.dense import _small_kernels as kernels

    n = len(a)
    x = np.array(b, order="F")
    flat = x.reshape(-1, order="F")
    if not kernels.solve_unblocked(np.ravel(a), n, flat, b.size // n, n * SUSPICION[a.dtype.char]):
        return None
    return x if b.ndim == 1 else np.ascontiguousarray(x)


def _inverted_small(a: NDArray[Any]) -> NDArray[Any] | None:
    from warpfront.dense import _small_kernels as kernels

    out, n = np.zeros(a.shape, a.dtype), len(a)
    fine = kernels.invert_unblocked(np.ravel(a), n, out.reshape(-1), n * SUSPICION[a.dtype.char])
    return out if fine else None


def _medium(a: NDArray[Any], most: int) -> tuple[Any, ...] | None:
    """Return what a compiled call for a medium matrix begins with, or None where it is none."""
    n = len(a)
    if not EXACT < n <= most or not a.flags.c_contiguous:
        return None
    return a.reshape(-1), n, TILE, LARGEST[a.dtype.char]


def _fitting(x: NDArray[Any]) -> NDArray[Any] | None:
    return x if first_bad(x) < 0 else None


def solved(a: Any, b: Any) -> NDArray[Any] | None:
    """Solve for a vector or a block of columns of the matrix's own type."""
    n = _order(a)
    if not n or type(b) is not np.ndarray or a.dtype != b.dtype or b.ndim not in (1, 2) or len(b) != n:
        return None
    if not b.size:
        return None
    if n <= EXACT:
        return _solved_small(a, b) if b.size <= EXACT * n else None
    medium = _medium(a, WHOLE)
    if medium and b.size <= RHS_BLOCK * n:
        from warpfront.dense import _whole_kernels as whole

        x, (getrf, getrs) = np.array(b, order="F"), addresses(a.dtype.name, "getrf", "getrs")
        with single_threaded_blas():
            columns = x.reshape(-1, order="F")
            fine = whole.solve_whole(*medium, n * SUSPICION[a.dtype.char], getrf, getrs, columns, b.size // n)
        return np.ascontiguousarray(x) if fine else None
    factor = _factored(a) if first_bad(b) < 0 else None
    return None if factor is None else _fitting(factor.solve(b))


def inverted(a: Any) -> NDArray[Any] | None:
    """Invert; the result is column-major where the matrix is larger than EXACT."""
    n = _order(a)
    if not n:
        return None
    if n <= EXACT:
        return _inverted_small(a)
    medium = _medium(a, UNSPLIT)
    if medium:
        from warpfront.dense import _whole_kernels as whole

        out, (getrf, trsm) = np.zeros((n, n), a.dtype, order="F"), addresses(a.dtype.name, "getrf", "trsm")
        with single_threaded_blas():
            flat = out.reshape(-1, order="F")
            fine = whole.invert_whole(*medium, n * SUSPICION[a.dtype.char], getrf, trsm, flat)
        return out if fine else None
    factor = _factored(a)
    return None if factor is None else _fitting(factor.inv())


def determined(a: Any) -> tuple[Any, float, Any] | None:
    """Sign, logarithm and value of the determinant of a matrix without a zero pivot, whatever its condition."""
    n = _order(a)
    if not n:
        return None
    if n <= EXACT and a.dtype.kind != "c":
        from warpfront.dense import _small_kernels as kernels

        plain, *product = kernels.determinant_unblocked(np.ravel(a), n)
        return _in_range(valued(a.dtype, *product)) if plain else None
    medium = _medium(a, WHOLE) if a.dtype.kind != "c" else None
    if medium:
        from warpfront.dense import _whole_kernels as whole

        with single_threaded_blas():
            plain, *product = whole.determinant_whole(*medium, *addresses(a.dtype.name, "getrf"))
        return _in_range(valued(a.dtype, *product)) if plain else None
    factor = factor_columns(a, "partial", matrix_threads(n))
    return _in_range(factor.scaled_product()) if factor is not None and factor.column < 0 else None


def _in_range(found: tuple[Any, float, Any]) -> tuple[Any, float, Any] | None:
    return found if math.isfinite(found[1]) else None
