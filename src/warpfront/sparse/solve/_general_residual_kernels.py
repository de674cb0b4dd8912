"""Residual of a general square system stored by columns, for A and for A^T."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["general_residual", "general_sums"]


@njit(cache=True, nogil=True)
def general_residual(ptr, ind, values, transposed, x, b, residual, size):
    """``residual = b - A x`` and ``size = |A| |x| + |b|``, columns in ascending order; of A^T where ``transposed``."""
    n = ptr.size - 1
    for i in range(n):
        residual[i] = b[i]
        size[i] = abs(b[i])
    for j in range(n):
        if transposed == 1:
            total = 0 * x[j]
            total_size = abs(total)
            for k in range(ptr[j], ptr[j + 1]):
                total += values[k] * x[ind[k]]
                total_size += abs(values[k]) * abs(x[ind[k]])
            residual[j] -= total
            size[j] += total_size
        else:
            xj = x[j]
            xj_size = abs(xj)
            for k in range(ptr[j], ptr[j + 1]):
                residual[ind[k]] -= values[k] * xj
                size[ind[k]] += abs(values[k]) * xj_size


@njit(cache=True, nogil=True)
def general_sums(ptr, ind, values, transposed):
    """Row sums of |A|, or (``transposed``) its column sums."""
    sums = np.zeros(ptr.size - 1, values.real.dtype)
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            sums[j if transposed == 1 else ind[k]] += abs(values[k])
    return sums
