"""Sparse matrix times vector or block of vectors on the CPU: a thread owns rows, a row is summed in entry order.

So the bits of a result depend neither on the number of threads nor on the other columns of the block.
"""

from __future__ import annotations

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit

__all__ = ["csr_times_block", "csr_times_vector", "ell_times_vector"]


@njit(cache=True, nogil=True)
def csr_times_vector(ptr, ind, values, x, y, first, last):
    """``y[first:last] = A[first:last] x``."""
    for i in range(first, last):
        total = values.dtype.type(0)
        begin, count = ptr[i], ptr[i + 1] - ptr[i]
        column, value = view(ind, begin, count), view(values, begin, count)
        for e in range(count):
            total += value[e] * x[column[e]]
        y[i] = total


@njit(cache=True, nogil=True)
def csr_times_block(ptr, ind, values, x, y, k, first, last):
    """``Y[first:last] = A[first:last] X`` for row-major X and Y of k columns, given as 1-D arrays."""
    for i in range(first, last):
        out = view(y, i * k, k)
        for j in range(k):
            out[j] = 0
        for e in range(ptr[i], ptr[i + 1]):
            a = values[e]
            row = view(x, ind[e] * k, k)
            for j in range(k):
                out[j] += a * row[j]


@njit(cache=True, nogil=True)
def ell_times_vector(ind, values, x, y, rows, width, first, last):
    """``y[first:last] = A[first:last] x`` for slots at ``k * rows + i``; -1 is padding."""
    for i in range(first, last):
        y[i] = 0
    for k in range(width):
        column, value = view(ind, k * rows, rows), view(values, k * rows, rows)
        for i in range(first, last):
            if column[i] >= 0:
                y[i] += value[i] * x[column[i]]
