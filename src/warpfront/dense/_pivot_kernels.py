"""Unblocked LU of small matrices and with rook or complete pivoting, for matrices that grow under partial pivoting.

Column-major, in place, ``P A Q = L U``. Right-looking, one column at a time. Products are rounded before they
are subtracted (no fused multiply-add), so that an exactly singular matrix such as [[4, 4], [12, 12]] is found singular on
every processor. Largest entries are compared by absolute value, the first one in column order wins ties.

Complete pivoting: Wilkinson (1961), J. ACM 8. Rook pivoting: Neal and Poole (1992), Linear Algebra Appl. 173.
"""

from __future__ import annotations

import math

import numpy as np

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit

__all__ = [
    "COMPLETE",
    "PARTIAL",
    "ROOK",
    "lu_unblocked",
    "scaled_product",
    "solve_unblocked",
    "sweep_unblocked",
]

PARTIAL, ROOK, COMPLETE = 0, 1, 2


@njit(cache=True, nogil=True)
def _largest_in_column(a, n, k, j):
    column = view(a, j * n, n)
    best, row = abs(column[k]), k
    for i in range(np.uint64(k + 1), np.uint64(n)):
        size = abs(column[i])
        if size > best:
            best, row = size, np.int64(i)
    return row, best


@njit(cache=True, nogil=True)
def _largest_in_row(a, n, k, i):
    best, column = abs(a[i + k * n]), k
    for j in range(k + 1, n):
        size = abs(a[i + j * n])
        if size > best:
            best, column = size, j
    return column, best


@njit(cache=True, nogil=True)
def _pivot(a, n, k, rule):
    """Row and column of the k-th pivot."""
    row, best = _largest_in_column(a, n, k, k)
    column = k
    if rule == COMPLETE:
        for j in range(k + 1, n):
            i, size = _largest_in_column(a, n, k, j)
            if size > best:
                row, column, best = i, j, size
    elif rule == ROOK:
        if best == 0:  # an empty column says nothing about the others
            for j in range(k + 1, n):
                i, size = _largest_in_column(a, n, k, j)
                if size > best:
                    row, column, best = i, j, size
        while True:
            j, size = _largest_in_row(a, n, k, row)
            if size <= best:
                break
            column, best = j, size
            i, size = _largest_in_column(a, n, k, column)
            if size <= best:
                break
            row, best = i, size
    return row, column


@njit(cache=True, nogil=True)
def lu_unblocked(a, n, rule, rows, cols):
    """Factor in place.

    Parameters
    ----------
    a : float or complex [n * n]
        Column-major; overwritten by L and U.
    n, rule : int
        Order; PARTIAL, ROOK or COMPLETE.
    rows, cols : int32[n]
        Written: row and column interchanged with the k-th, counted from 1 as LAPACK does.

    Returns
    -------
    int
        Column of U of the first zero pivot, or -1. Factoring goes on behind it.
    """
    zero = -1
    for k in range(n):
        row, column = _pivot(a, n, k, rule)
        rows[k], cols[k] = row + 1, column + 1
        if row != k:
            here, there, step = np.uint64(k), np.uint64(row), np.uint64(n)
            for _ in range(n):
                held = a[here]
                a[here] = a[there]
                a[there] = held
                here += step
                there += step
        if column != k:
            for i in range(n):
                a[i + k * n], a[i + column * n] = a[i + column * n], a[i + k * n]
        pivot = a[k + k * n]
        if pivot == 0:
            if zero < 0:
                zero = k
            continue
        below = view(a, k + 1 + k * n, n - k - 1)
        for i in range(n - k - 1):
            below[i] = below[i] / pivot
        _subtract_columns(a, n, k, below)
    return zero


@njit(cache=True, nogil=True)
def _subtract_columns(a, n, k, below):
    """Take the k-th column's multiples off the columns right of it, four at a time: short loops cost their beginning."""
    left, size = k + 1, n - k - 1
    while left + 4 <= n:
        at = k + 1 + left * n
        p, q = view(a, at, size), view(a, at + n, size)
        r, s = view(a, at + 2 * n, size), view(a, at + 3 * n, size)
        u, v, w, z = a[at - 1], a[at - 1 + n], a[at - 1 + 2 * n], a[at - 1 + 3 * n]
        for i in range(size):
            l = below[i]
            p[i] = p[i] - l * u
            q[i] = q[i] - l * v
            r[i] = r[i] - l * w
            s[i] = s[i] - l * z
        left += 4
    for j in range(left, n):
        u, target = a[k + j * n], view(a, k + 1 + j * n, size)
        for i in range(size):
            target[i] = target[i] - below[i] * u


@njit(cache=True, nogil=True)
def _sweep_one(a, n, x):
    for k in range(n):
        below, rest = view(a, k + 1 + k * n, n - k - 1), view(x, k + 1, n - k - 1)
        t = x[k]
        for i in range(n - k - 1):
            rest[i] = rest[i] - below[i] * t
    for q in range(n):
        k = n - 1 - q
        x[k] = x[k] / a[k + k * n]
        above, t = view(a, k * n, k), x[k]
        for i in range(k):
            x[i] = x[i] - above[i] * t


@njit(cache=True, nogil=True)
def _sweep_four(a, n, b, at):
    """As `_sweep_one`, for four columns of ``b`` from ``at`` on."""
    x, y, z, w = view(b, at, n), view(b, at + n, n), view(b, at + 2 * n, n), view(b, at + 3 * n, n)
    for k in range(n):
        below = view(a, k * n, n)
        t, u, v, s = x[k], y[k], z[k], w[k]
        if t == 0 and u == 0 and v == 0 and s == 0:
            continue  # the columns of an identity begin with zeros
        for i in range(k + 1, n):
            l = below[i]
            x[i] = x[i] - l * t
            y[i] = y[i] - l * u
            z[i] = z[i] - l * v
            w[i] = w[i] - l * s
    for q in range(n):
        k = n - 1 - q
        above, pivot = view(a, k * n, n), a[k + k * n]
        t, u, v, s = x[k] / pivot, y[k] / pivot, z[k] / pivot, w[k] / pivot
        x[k], y[k], z[k], w[k] = t, u, v, s
        for i in range(k):
            l = above[i]
            x[i] = x[i] - l * t
            y[i] = y[i] - l * u
            z[i] = z[i] - l * v
            w[i] = w[i] - l * s


@njit(cache=True, nogil=True)
def sweep_unblocked(a, n, b, count, rows):
    """Solve in place with a factor of `lu_unblocked` (partial pivoting) for column-major right-hand sides."""
    for c in range(count):
        x = view(b, c * n, n)
        for k in range(n):
            row = rows[k] - 1
            x[k], x[row] = x[row], x[k]
    done = 0
    while done + 4 <= count:
        _sweep_four(a, n, b, done * n)
        done += 4
    for c in range(done, count):
        _sweep_one(a, n, view(b, c * n, n))


@njit(cache=True, nogil=True)
def scaled_product(diagonal, pivots):
    """Product of real pivots as sign, mantissa in [1/2, 1) and exponent, interchanges counted into the sign."""
    sign, product, power = 1.0, 1.0, 0
    for k in range(diagonal.size):
        if pivots[k] != k + 1:
            sign = -sign
        if diagonal[k] < 0:
            sign = -sign
        mantissa, exponent = math.frexp(abs(float(diagonal[k])))
        product, shift = math.frexp(product * mantissa)
        power += exponent + shift
    return sign, product, power


@njit(cache=True, nogil=True)
def determinant_unblocked(a, n):
    """Check, factor with partial pivoting and multiply the pivots: `scaled_product`, with True; False for a closer look.

    ``a``: real [n * n], column-major, overwritten.
    """
    nothing = a.dtype.type(0)
    for i in range(n * n):
        nothing += a[i] * 0
    rows, cols = np.empty(n, np.int32), np.empty(n, np.int32)
    if nothing != 0 or lu_unblocked(a, n, PARTIAL, rows, cols) >= 0:
        return False, 0.0, 0.0, 0
    diagonal = np.empty(n, a.dtype)
    for k in range(n):
        diagonal[k] = a[k + k * n]
    sign, product, power = scaled_product(diagonal, rows)
    return True, sign, product, power


@njit(cache=True, nogil=True)
def solve_unblocked(a, n, b, count, suspicion):
    """Check, factor with partial pivoting and solve in place for a few right-hand sides: one call for a small system.

    Parameters
    ----------
    a : float or complex [n * n]
        Column-major; overwritten by L and U.
    b : same type [n * count]
        Column-major right-hand sides; overwritten by the solution.
    suspicion : float
        Smallest over largest pivot below which the condition number has to be looked at.

    Returns
    -------
    bool
        True if solved; False for NaN, infinity, a zero pivot, or suspicion.
    """
    nothing = a.dtype.type(0)
    for i in range(n * n):
        nothing += a[i] * 0
    for i in range(n * count):
        nothing += b[i] * 0
    if nothing != 0:  # NaN or infinity times zero is NaN
        return False
    rows, cols = np.empty(n, np.int32), np.empty(n, np.int32)
    if lu_unblocked(a, n, PARTIAL, rows, cols) >= 0:
        return False
    smallest = largest = abs(a[0])
    for k in range(1, n):
        size = abs(a[k + k * n])
        smallest, largest = min(smallest, size), max(largest, size)
    if smallest < suspicion * largest:
        return False
    sweep_unblocked(a, n, b, count, rows)
    return True
