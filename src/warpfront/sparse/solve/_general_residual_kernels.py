"""Residual of a general square system stored by columns, for A, A^T and A^H.

Sizes of complex numbers are ``|re| + |im|``, as in `_residual_kernels`.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import conjugate_if, magnitude
from warpfront.backend.jit import njit
from warpfront.sparse.solve._lanes_kernels import muladd

__all__ = ["general_residual", "general_sums"]


@njit(cache=True, nogil=True)
def general_residual(ptr, ind, values, kind, x, b, residual, size):
    """``residual = b - A x`` and ``size = |A| |x| + |b|``, columns in ascending order; of A^T (kind 1), A^H (2)."""
    n = ptr.size - 1
    for i in range(n):
        residual[i] = b[i]
        size[i] = magnitude(b[i])
    for j in range(n):
        xj = x[j]
        xj_size = magnitude(xj)
        if kind > 0:
            total = x.dtype.type(0)
            total_size = size.dtype.type(0)
            for k in range(ptr[j], ptr[j + 1]):
                a = values[k]
                xi = x[np.uint32(ind[k])]
                total = muladd(conjugate_if(kind == 2, a), xi, total)
                total_size = muladd(magnitude(a), magnitude(xi), total_size)
            residual[j] -= total
            size[j] += total_size
        else:
            for k in range(ptr[j], ptr[j + 1]):
                i = np.uint32(ind[k])
                a = values[k]
                residual[i] = muladd(-a, xj, residual[i])
                size[i] = muladd(magnitude(a), xj_size, size[i])


@njit(cache=True, nogil=True)
def general_sums(ptr, ind, values, kind):
    """Row sums of |A|, or (kind 1 and 2) its column sums; float64."""
    sums = np.zeros(ptr.size - 1)
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            sums[j if kind > 0 else ind[k]] += magnitude(values[k])
    return sums
