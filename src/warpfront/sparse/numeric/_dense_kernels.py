"""Dense kernels of a front, for every dtype. Column-major, 1-D storage with offsets; views start where their loops start.

Every sum runs over the eliminated columns in ascending order, four at a time, so that a result does not depend on
how the rows or columns of an update are split into tiles.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import conjugate_if, gemm_nt, real_part, view
from warpfront.backend.jit import njit

__all__ = ["BLOCK", "TILE", "cholesky_columns", "subtract_columns", "update"]

BLOCK = 64  # columns of a lower-triangular tile that share one rectangular product
TILE = 192  # rows and columns of a tile given to a thread
HAND_SIZE = 72  # below this size of a tile hand-written loops are ahead of BLAS
HAND_DEPTH = 12


@njit(cache=True, nogil=True, fastmath={"contract"})
def subtract_columns(c, a, lda, depth, row, b, ldb, conj, rows):
    """``c[:rows] -= A[row:row+rows, :depth] b[:depth]``, b with stride ldb, conjugated where ``conj``."""
    p = 0
    while p + 4 <= depth:
        a0 = view(a, row + p * lda, rows)
        a1 = view(a, row + (p + 1) * lda, rows)
        a2 = view(a, row + (p + 2) * lda, rows)
        a3 = view(a, row + (p + 3) * lda, rows)
        b0, b1 = conjugate_if(conj, b[p * ldb]), conjugate_if(conj, b[(p + 1) * ldb])
        b2, b3 = conjugate_if(conj, b[(p + 2) * ldb]), conjugate_if(conj, b[(p + 3) * ldb])
        for i in range(rows):
            c[i] -= a0[i] * b0 + a1[i] * b1 + a2[i] * b2 + a3[i] * b3
        p += 4
    while p < depth:
        a0 = view(a, row + p * lda, rows)
        b0 = conjugate_if(conj, b[p * ldb])
        for i in range(rows):
            c[i] -= a0[i] * b0
        p += 1


@njit(cache=True, nogil=True, fastmath={"contract"})
def _update_loops(c, ldc, a, lda, b, ldb, conj, m, n, depth, lower, fresh):
    """Two columns of C and four of A at a time; the odd last column goes through `subtract_columns`."""
    j = 0
    while j < n:
        top = j if lower else 0
        rows = m - top
        c0 = view(c, top + j * ldc, rows)
        if fresh:
            for i in range(rows):
                c0[i] = 0.0
        if j + 1 == n:
            subtract_columns(c0, a, lda, depth, top, view(b, j, depth * ldb), ldb, conj, rows)
            break
        c1 = view(
            c, top + (j + 1) * ldc, rows
        )  # for lower, its first entry lies above the diagonal: never read
        if fresh:
            for i in range(rows):
                c1[i] = 0.0
        p = 0
        while p + 4 <= depth:
            a0 = view(a, top + p * lda, rows)
            a1 = view(a, top + (p + 1) * lda, rows)
            a2 = view(a, top + (p + 2) * lda, rows)
            a3 = view(a, top + (p + 3) * lda, rows)
            bp = view(b, j + p * ldb, 3 * ldb + 2)
            x0, x1 = conjugate_if(conj, bp[0]), conjugate_if(conj, bp[ldb])
            x2, x3 = conjugate_if(conj, bp[2 * ldb]), conjugate_if(conj, bp[3 * ldb])
            y0, y1 = conjugate_if(conj, bp[1]), conjugate_if(conj, bp[ldb + 1])
            y2, y3 = conjugate_if(conj, bp[2 * ldb + 1]), conjugate_if(conj, bp[3 * ldb + 1])
            for i in range(rows):
                c0[i] -= a0[i] * x0 + a1[i] * x1 + a2[i] * x2 + a3[i] * x3
                c1[i] -= a0[i] * y0 + a1[i] * y1 + a2[i] * y2 + a3[i] * y3
            p += 4
        while p < depth:
            a0 = view(a, top + p * lda, rows)
            x0, y0 = conjugate_if(conj, b[j + p * ldb]), conjugate_if(conj, b[j + 1 + p * ldb])
            for i in range(rows):
                c0[i] -= a0[i] * x0
                c1[i] -= a0[i] * y0
            p += 1
        j += 2


@njit(cache=True, nogil=True)
def update(gemm, c, ldc, a, lda, b, ldb, conj, m, n, depth, lower, fresh):
    """``C -= A B^T``, or ``A B^H`` where ``conj`` (``C = ...`` when ``fresh``).

    With ``lower`` only rows i >= j of an m x n trapezoid count.
    """
    if depth == 0 and not fresh:
        return
    if depth < HAND_DEPTH or m < HAND_SIZE:
        _update_loops(c, ldc, a, lda, b, ldb, conj, m, n, depth, lower, fresh)
        return
    beta = 0.0 if fresh else 1.0
    step = BLOCK if lower else n
    for j in range(0, n, step):
        top = j if lower else 0
        columns = min(step, n - j)
        here = view(c, top + j * ldc, (columns - 1) * ldc + m - top)
        left = view(a, top, (depth - 1) * lda + m - top)
        right = view(b, j, (depth - 1) * ldb + columns)
        gemm_nt(gemm, m - top, columns, depth, left, lda, right, ldb, conj, beta, here, ldc)


@njit(cache=True, nogil=True, fastmath={"contract"})
def cholesky_columns(a, lda, rows, n):
    """Factor the first n columns of a rows x n lower trapezoid, left-looking; complex ones as LL^H.

    Returns the first column whose pivot is not positive (NaN included), or -1.
    """
    for j in range(n):
        column = view(a, j + j * lda, rows - j)
        subtract_columns(column, a, lda, j, j, view(a, j, j * lda), lda, True, rows - j)
        pivot = real_part(column[0])
        if not pivot > 0.0:
            return j
        root = np.sqrt(pivot)
        column[0] = root
        inverse = real_part(column.dtype.type(1)) / root
        below = view(column, 1, rows - j - 1)
        for i in range(rows - j - 1):
            below[i] *= inverse
    return -1
