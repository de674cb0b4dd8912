"""Residual of a general square system stored by columns, for A, A^T and A^H.

Sizes of complex numbers are ``|re| + |im|``, as in `_residual_kernels`.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import conjugate_if, magnitude
from warpfront.backend.jit import njit

__all__ = ["general_residual", "general_sums"]


@njit(cache=True, nogil=True)
def general_residual(ptr, ind, values, kind, x, b, residual, size):
    """``residual = b - A x`` and ``size = |A| |x| + |b|``, columns in ascending order; of A^T (kind 1), A^H (2)."""
    n = ptr.size - 1
    for i in range(n):
        residual[i] = b[i]
        size[i] = magnitude(b[i])
    for j in range(n):
        if kind > 0:
            total = 0 * x[j]
            total_size = magnitude(total)
            for k in range(ptr[j], ptr[j + 1]):
                total += conjugate_if(kind == 2, values[k]) * x[ind[k]]
                total_size += magnitude(values[k]) * magnitude(x[ind[k]])
            residual[j] -= total
            size[j] += total_size
        else:
            xj = x[j]
            xj_size = magnitude(xj)
            for k in range(ptr[j], ptr[j + 1]):
                residual[ind[k]] -= values[k] * xj
                size[ind[k]] += magnitude(values[k]) * xj_size


@njit(cache=True, nogil=True)
def general_sums(ptr, ind, values, kind):
    """Row sums of |A|, or (kind 1 and 2) its column sums; float64."""
    sums = np.zeros(ptr.size - 1)
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            sums[j if kind > 0 else ind[k]] += magnitude(values[k])
    return sums
