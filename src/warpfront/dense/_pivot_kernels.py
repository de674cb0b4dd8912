"""Unblocked LU of small matrices and with rook or complete pivoting, for matrices that grow under partial pivoting.

Column-major, in place, ``P A Q = L U``. Right-looking, one column at a time. Products are rounded before they
are subtracted (no fused multiply-add), so that an exactly singular matrix such as [[4, 4], [12, 12]] is found singular on
every processor. Largest entries are compared by absolute value, the first one in column order wins ties.

Complete pivoting: Wilkinson (1961), J. ACM 8. Rook pivoting: Neal and Poole (1992), Linear Algebra Appl. 173.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit

__all__ = ["COMPLETE", "PARTIAL", "ROOK", "lu_unblocked", "solve_unblocked", "sweep_unblocked"]

PARTIAL, ROOK, COMPLETE = 0, 1, 2


@njit(cache=True, nogil=True)
def _largest_in_column(a, n, k, j):
    best, row = abs(a[k + j * n]), k
    for i in range(k + 1, n):
        size = abs(a[i + j * n])
        if size > best:
            best, row = size, i
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
            for j in range(n):
                a[k + j * n], a[row + j * n] = a[row + j * n], a[k + j * n]
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
        for j in range(k + 1, n):
            u = a[k + j * n]
            target = view(a, k + 1 + j * n, n - k - 1)
            for i in range(n - k - 1):
                target[i] = target[i] - below[i] * u
    return zero


@njit(cache=True, nogil=True)
def sweep_unblocked(a, n, b, count, rows):
    """Solve in place with a factor of `lu_unblocked` (partial pivoting) for column-major right-hand sides."""
    for c in range(count):
        x = view(b, c * n, n)
        for k in range(n):
            row = rows[k] - 1
            x[k], x[row] = x[row], x[k]
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
