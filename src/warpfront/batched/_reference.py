"""The room's mathematics, plainly: what every kernel has to compute, bit for bit, and what SciPy says.

`cholesky_serial` and `lu_serial` are the serial recurrences in the element type of the input: loops over pivots,
rows and the k of every inner product; a NumPy statement covers all systems and elements that are independent,
so nothing is reordered, and each product and each sum is rounded by itself. `solve_exactly` is SciPy's
float64 answer, which shares no code with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["cholesky_serial", "lu_serial", "power_scale", "solve_exactly"]

Array = NDArray[Any]
NON_FINITE_INPUT, NOT_SYMMETRIC, NON_FINITE_INTERMEDIATE = -1, -2, -3


def cholesky_serial(
    a: Array, b: Array, shift: float = 0.0, rtol: float = 0.0, atol: float = 0.0
) -> tuple[Array, Array, Array]:
    """Return (solution, factor, status) of ``(A + shift I) x = b`` by Cholesky, without pivoting.

    Parameters
    ----------
    a : float[batch, n, n]
    b : float[batch, n, nrhs]
        Of the same type.
    shift, rtol, atol : float
        Added to the diagonal; symmetry is ``|a_ij - a_ji| <= atol + rtol * max|a|``.

    Returns
    -------
    solution : float[batch, n, nrhs]
    factor : float[batch, n, n]
        L, zeros above the diagonal.
    status : int32[batch]
    """
    kind = a.dtype.type
    n = a.shape[1]
    with np.errstate(all="ignore"):
        largest = np.abs(a).max(axis=(1, 2), initial=0)
        apart = np.abs(a - np.swapaxes(a, 1, 2)).max(axis=(1, 2), initial=0)
        status = np.where(apart <= kind(atol) + kind(rtol) * largest, 0, NOT_SYMMETRIC).astype(np.int32)
        status[_non_finite(a) | _non_finite(b)] = NON_FINITE_INPUT
        low = np.zeros_like(a)
        for j in range(n):
            column = a[:, j:, j].copy()
            column[:, 0] = column[:, 0] + kind(shift)
            for k in range(j):
                column = column - low[:, j:, k] * low[:, j, k, None]
            value = column[:, 0]
            bad = ~((value > 0) & np.isfinite(value))
            code = np.where(np.isfinite(value), j + 1, NON_FINITE_INTERMEDIATE)
            status = np.where((status == 0) & bad, code, status).astype(np.int32)
            low[:, j, j] = np.sqrt(np.where(bad, kind(1), value))
            low[:, j + 1 :, j] = column[:, 1:] / low[:, j, j, None]
        x = b.copy()
        for i in range(n):
            for k in range(i):
                x[:, i] = x[:, i] - low[:, i, k, None] * x[:, k]
            x[:, i] = x[:, i] / low[:, i, i, None]
        for i in reversed(range(n)):
            for k in reversed(range(i + 1, n)):
                x[:, i] = x[:, i] - low[:, k, i, None] * x[:, k]
            x[:, i] = x[:, i] / low[:, i, i, None]
    status[(status == 0) & _non_finite(x)] = NON_FINITE_INTERMEDIATE
    x[status != 0] = 0
    low[status != 0] = 0
    return x, low, status


def power_scale(largest: Array) -> tuple[Array, Array]:
    """Return ``2**-e`` and ``2**e`` with ``2**e <= largest < 2**(e + 1)``, ``e`` held to the normal exponents."""
    limit = np.finfo(largest.dtype).maxexp - 2  # 126 for float32
    exponent = np.clip(np.frexp(largest)[1] - 1, -limit, limit)
    exponent[largest == 0] = -limit
    one = largest.dtype.type(1)
    return np.ldexp(one, -exponent), np.ldexp(one, exponent)


def lu_serial(a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """Return (solution, lu, pivots, status) of ``A x = b`` by LU with partial pivoting by rows.

    Parameters
    ----------
    a : float[batch, n, n]
    b : float[batch, n, nrhs]

    Returns
    -------
    solution : float[batch, n, nrhs]
    lu : float[batch, n, n]
        L below the diagonal (its diagonal is 1), U on and above it.
    pivots : int32[batch, n]
        In step k, row k was exchanged with row ``pivots[k]``; from 0.
    status : int32[batch]
    """
    batch, n, _ = a.shape
    everyone = np.arange(batch)
    with np.errstate(all="ignore"):
        status = np.where(_non_finite(a) | _non_finite(b), NON_FINITE_INPUT, 0).astype(np.int32)
        work = np.where(status[:, None, None] == 0, a, 0).astype(a.dtype)
        scale, inverse = power_scale(np.abs(work).max(axis=(1, 2), initial=0))
        work = work * scale[:, None, None]
        x = np.where(status[:, None, None] == 0, b, 0).astype(b.dtype)
        pivots = np.zeros((batch, n), np.int32)
        for k in range(n):
            best, row = np.full(batch, -1, a.dtype), np.full(batch, k)
            for i in range(k, n):
                size = np.abs(work[:, i, k])
                row = np.where(size > best, i, row)
                best = np.where(size > best, size, best)
            status = np.where((status == 0) & (best == 0), k + 1, status).astype(np.int32)
            pivots[:, k] = row
            for m in (work, x):
                upper, lower = m[:, k].copy(), m[everyone, row].copy()
                m[:, k], m[everyone, row] = lower, upper
            pivot = np.where(best == 0, a.dtype.type(1), work[:, k, k])
            for i in range(k + 1, n):
                work[:, i, k] = work[:, i, k] / pivot
                work[:, i, k + 1 :] = work[:, i, k + 1 :] - work[:, i, k, None] * work[:, k, k + 1 :]
        for i in range(n):
            for k in range(i):
                x[:, i] = x[:, i] - work[:, i, k, None] * x[:, k]
        for i in reversed(range(n)):
            for k in reversed(range(i + 1, n)):
                x[:, i] = x[:, i] - work[:, i, k, None] * x[:, k]
            x[:, i] = x[:, i] / work[:, i, i, None]
        x = x * scale[:, None, None]
        upper_part = np.triu(np.ones((n, n), bool))
        lu = np.where(upper_part, work * inverse[:, None, None], work)
    status[(status == 0) & (_non_finite(x) | _non_finite(lu))] = NON_FINITE_INTERMEDIATE
    failed = status != 0
    x[failed], lu[failed], pivots[failed] = 0, 0, -1
    return x, lu, pivots, status


def solve_exactly(a: Array, b: Array) -> Array:
    """Return SciPy's float64 solutions, one system at a time."""
    from scipy.linalg import solve

    return np.stack([solve(m, r) for m, r in zip(a.astype(np.float64), b.astype(np.float64), strict=True)])


def _non_finite(a: Array) -> Array:
    return np.logical_not(np.isfinite(a).all(axis=(1, 2)))
