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
    "lu_partial",
    "lu_unblocked",
    "scaled_product",
    "sweep_rows",
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
def _interchange_rows(a, n, k, row):
    here, there, step = np.uint64(k), np.uint64(row), np.uint64(n)
    for _ in range(n):
        held = a[here]
        a[here] = a[there]
        a[there] = held
        here += step
        there += step


@njit(cache=True, nogil=True)
def lu_partial(a, n, rows, cols):
    """`lu_unblocked` with partial pivoting: four columns, then what is right of them, each entry in the same order.

    An entry loses the multiples of the four columns one after another, in a register: it is read and written once.
    """
    zero = -1
    for j in range(0, n, 4):
        end = min(j + 4, n)
        for k in range(j, end):
            row, _ = _largest_in_column(a, n, k, k)
            rows[k], cols[k] = row + 1, k + 1
            if row != k:
                _interchange_rows(a, n, k, row)
            pivot = a[k + k * n]
            if pivot == 0:
                if zero < 0:
                    zero = k
                continue
            below = view(a, k + 1 + k * n, n - k - 1)
            for i in range(n - k - 1):
                below[i] = below[i] / pivot
            for c in range(k + 1, end):
                u, target = a[k + c * n], view(a, k + 1 + c * n, n - k - 1)
                for i in range(n - k - 1):
                    target[i] = target[i] - below[i] * u
        if end < n:
            _subtract_four(a, n, j)
    return zero


@njit(cache=True, nogil=True)
def _top_of_four(a, n, j, column):
    """Four rows of a column right of four finished ones; returns them."""
    at = j + column * n
    u = a[at]
    v = a[at + 1] - a[j + 1 + j * n] * u
    w = a[at + 2] - a[j + 2 + j * n] * u
    w = w - a[j + 2 + (j + 1) * n] * v
    z = a[at + 3] - a[j + 3 + j * n] * u
    z = z - a[j + 3 + (j + 1) * n] * v
    z = z - a[j + 3 + (j + 2) * n] * w
    a[at + 1], a[at + 2], a[at + 3] = v, w, z
    return u, v, w, z


@njit(cache=True, nogil=True)
def _subtract_four(a, n, j):
    """Take the multiples of columns j to j + 3 off the columns right of them, two at a time."""
    size, at = n - j - 4, j + 4 + j * n
    p, q = view(a, at, size), view(a, at + n, size)
    r, s = view(a, at + 2 * n, size), view(a, at + 3 * n, size)
    left = j + 4
    while left + 2 <= n:
        u, v, w, z = _top_of_four(a, n, j, left)
        e, f, g, h = _top_of_four(a, n, j, left + 1)
        x, y = view(a, j + 4 + left * n, size), view(a, j + 4 + (left + 1) * n, size)
        for i in range(size):
            x[i] = x[i] - p[i] * u - q[i] * v - r[i] * w - s[i] * z
            y[i] = y[i] - p[i] * e - q[i] * f - r[i] * g - s[i] * h
        left += 2
    if left < n:
        u, v, w, z = _top_of_four(a, n, j, left)
        x = view(a, j + 4 + left * n, size)
        for i in range(size):
            x[i] = x[i] - p[i] * u - q[i] * v - r[i] * w - s[i] * z


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
    if rule == PARTIAL:
        return lu_partial(a, n, rows, cols)
    zero = -1
    for k in range(n):
        row, column = _pivot(a, n, k, rule)
        rows[k], cols[k] = row + 1, column + 1
        if row != k:
            _interchange_rows(a, n, k, row)
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
def sweep_rows(a, n, x, wide):
    """As `_sweep_one` for many right-hand sides by rows: ``x`` [n * wide]; each entry in the same order.

    A row loses the multiples of four others at a time, in registers.
    """
    for i in range(1, n):
        row, k = view(x, i * wide, wide), 0
        while k + 4 <= i:
            _subtract_rows(
                row, x, wide, k, 1, a[i + k * n], a[i + (k + 1) * n], a[i + (k + 2) * n], a[i + (k + 3) * n]
            )
            k += 4
        while k < i:
            other, l = view(x, k * wide, wide), a[i + k * n]
            for c in range(wide):
                row[c] = row[c] - l * other[c]
            k += 1
    for q in range(n):
        i = n - 1 - q
        row, k = view(x, i * wide, wide), n - 1
        while k - 4 >= i:
            _subtract_rows(
                row, x, wide, k, -1, a[i + k * n], a[i + (k - 1) * n], a[i + (k - 2) * n], a[i + (k - 3) * n]
            )
            k -= 4
        while k > i:
            other, l = view(x, k * wide, wide), a[i + k * n]
            for c in range(wide):
                row[c] = row[c] - l * other[c]
            k -= 1
        pivot = a[i + i * n]
        for c in range(wide):
            row[c] = row[c] / pivot


@njit(cache=True, nogil=True)
def _subtract_rows(row, x, wide, k, step, t, u, v, w):
    p, q = view(x, k * wide, wide), view(x, (k + step) * wide, wide)
    r, s = view(x, (k + 2 * step) * wide, wide), view(x, (k + 3 * step) * wide, wide)
    for c in range(wide):
        row[c] = row[c] - t * p[c] - u * q[c] - v * r[c] - w * s[c]


@njit(cache=True, nogil=True)
def sweep_unblocked(a, n, b, count, rows):
    """Solve in place with a factor of `lu_unblocked` (partial pivoting) for column-major right-hand sides."""
    for c in range(count):
        x = view(b, c * n, n)
        for k in range(n):
            row = rows[k] - 1
            x[k], x[row] = x[row], x[k]
    if count < 4:
        for c in range(count):
            _sweep_one(a, n, view(b, c * n, n))
        return
    wide = (count + 3) // 4 * 4  # whole vectors
    turned = np.zeros(n * wide, b.dtype)
    for c in range(count):
        for i in range(n):
            turned[i * wide + c] = b[i + c * n]
    sweep_rows(a, n, turned, wide)
    for c in range(count):
        for i in range(n):
            b[i + c * n] = turned[i * wide + c]


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
