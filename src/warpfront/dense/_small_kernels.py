"""A small matrix in one compiled call: copy, check, unblocked LU, and what is asked of it; see `_pivot_kernels`."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit
from warpfront.dense._pivot_kernels import lu_partial, scaled_product, sweep_rows, sweep_unblocked

__all__ = ["determinant_unblocked", "invert_unblocked", "solve_unblocked"]


@njit(cache=True, nogil=True)
def _finite(x):
    """Whether no entry is NaN or infinite: such a one times zero is NaN."""
    nothing = x.dtype.type(0)
    for i in range(x.size):
        nothing += x[i] * 0
    return nothing == 0


@njit(cache=True, nogil=True)
def _factored(a, n, suspicion):
    """Column-major factors of row-major ``a``, its interchanges, and whether nothing needs a closer look."""
    lu, rows, cols = np.empty(n * n, a.dtype), np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(n):
        for j in range(n):
            lu[i + j * n] = a[i * n + j]
    if not _finite(lu) or lu_partial(lu, n, rows, cols) >= 0:
        return lu, rows, False
    smallest = largest = abs(lu[0])
    for k in range(1, n):
        size = abs(lu[k + k * n])
        smallest, largest = min(smallest, size), max(largest, size)
    return lu, rows, not smallest < suspicion * largest


@njit(cache=True, nogil=True)
def determinant_unblocked(a, n):
    """`scaled_product` of the pivots of a real row-major matrix [n * n], with True; False for a closer look."""
    lu, rows, plain = _factored(a, n, 0.0)
    if not plain:
        return False, 0.0, 0.0, 0
    diagonal = np.empty(n, a.dtype)
    for k in range(n):
        diagonal[k] = lu[k + k * n]
    sign, product, power = scaled_product(diagonal, rows)
    return True, sign, product, power


@njit(cache=True, nogil=True)
def solve_unblocked(a, n, b, count, suspicion):
    """Check, factor with partial pivoting and solve in place for a few right-hand sides: one call for a small system.

    Parameters
    ----------
    a : float or complex [n * n]
        Row-major; read.
    b : same type [n * count]
        Column-major right-hand sides; overwritten by the solution.
    suspicion : float
        Smallest over largest pivot below which the condition number has to be looked at.

    Returns
    -------
    bool
        True if solved; False for NaN, infinity, also in the solution, a zero pivot, or suspicion.
    """
    if not _finite(b):
        return False
    lu, rows, plain = _factored(a, n, suspicion)
    if not plain:
        return False
    sweep_unblocked(lu, n, b, count, rows)
    return _finite(b)


@njit(cache=True, nogil=True)
def invert_unblocked(a, n, out, suspicion):
    """As `solve_unblocked`, for the inverse: row-major, into ``out``, zeros."""
    lu, rows, plain = _factored(a, n, suspicion)
    if not plain:
        return False
    order = np.arange(n)
    for k in range(n):
        row = rows[k] - 1
        order[k], order[row] = order[row], order[k]
    wide = (n + 3) // 4 * 4
    x = out if wide == n else np.zeros(n * wide, a.dtype)
    for k in range(n):
        x[k * wide + order[k]] = 1
    sweep_rows(lu, n, x, wide)
    if wide != n:
        for k in range(n):
            for c in range(n):
                out[k * n + c] = x[k * wide + c]
    return _finite(out)
