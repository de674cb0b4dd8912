"""Residual and backward error of a symmetric or Hermitian system stored as its lower triangle, for every dtype.

Sizes of complex numbers are ``|re| + |im|``, as in LAPACK's refinement: within a factor sqrt(2) of the modulus.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import conjugate_if, magnitude
from warpfront.backend.jit import njit
from warpfront.sparse.solve._lanes_kernels import muladd

__all__ = ["backward_errors", "permute_in", "permute_out", "row_sums", "symmetric_residual"]


@njit(cache=True, nogil=True)
def symmetric_residual(ptr, ind, values, hermitian, x, b, residual, size):
    """``residual = b - A x`` and ``size = |A| |x| + |b|``, columns in ascending order."""
    n = ptr.size - 1
    for i in range(n):
        residual[i] = b[i]
        size[i] = magnitude(b[i])
    for j in range(n):
        xj = x[j]
        xj_size = magnitude(xj)
        total = x.dtype.type(0)
        total_size = size.dtype.type(0)
        first = ptr[j]
        if first < ptr[j + 1] and ind[first] == j:
            residual[j] = muladd(-values[first], xj, residual[j])
            size[j] = muladd(magnitude(values[first]), xj_size, size[j])
            first += 1
        for k in range(first, ptr[j + 1]):
            i = np.uint32(ind[k])
            a = values[k]
            a_size = magnitude(a)
            xi = x[i]
            residual[i] = muladd(-a, xj, residual[i])
            size[i] = muladd(a_size, xj_size, size[i])
            total = muladd(conjugate_if(hermitian, a), xi, total)
            total_size = muladd(a_size, magnitude(xi), total_size)
        residual[j] -= total
        size[j] += total_size


@njit(cache=True, nogil=True)
def row_sums(ptr, ind, values):
    """Row sums of |A|, float64; the largest is the infinity norm."""
    sums = np.zeros(ptr.size - 1)
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            a = magnitude(values[k])
            sums[ind[k]] += a
            if ind[k] != j:
                sums[j] += a
    return sums


@njit(cache=True, nogil=True)
def backward_errors(residual, size, x, b, sums, eps):
    """Componentwise max |r_i| / (|A||x| + |b|)_i, and normwise ||r|| / (||A|| ||x|| + ||b||) in the infinity norm.

    Where |A||x| + |b| is itself no more than rounding (rows whose exact solution and right-hand side are zero), b_i is
    replaced by ||A_i|| ||x|| (Arioli, Demmel and Duff 1989): otherwise the quotient stays near 1 whatever one does.
    ``eps`` is that of the residual's type.

    NaN anywhere gives infinity: a failed solve must never look converged.
    """
    component = 0.0
    r_max, x_max, b_max, norm = 0.0, 0.0, 0.0, 0.0
    n = residual.size
    for i in range(n):
        x_size = 1.0 * magnitude(x[i])
        x_max = x_size if x_size > x_max else x_max
        norm = sums[i] if sums[i] > norm else norm
    rounding = 1000.0 * n * eps
    for i in range(n):
        r = 1.0 * magnitude(residual[i])
        scale = 1.0 * size[i]
        if not (r < np.inf and scale < np.inf):
            return np.inf, np.inf
        r_max = r if r > r_max else r_max
        b_size = 1.0 * magnitude(b[i])
        b_max = b_size if b_size > b_max else b_max
        if r > component * scale:  # seldom: what follows makes `scale` larger, if anything
            whole_row = sums[i] * x_max
            if scale <= rounding * (whole_row + b_size):
                scale += whole_row - b_size
            component = max(component, r / scale)
    whole = norm * x_max + b_max
    return component, (r_max / whole if r_max > 0.0 else 0.0)


@njit(cache=True, nogil=True)
def permute_in(perm, scale, b, out):
    """``out = P^T S b``; an empty ``scale`` means none."""
    for k in range(perm.size):
        i = perm[k]
        out[k] = b[i] * scale[i] if scale.size else b[i]


@njit(cache=True, nogil=True)
def permute_out(perm, scale, y, base, x):
    """``x = base + S P y``; an empty ``base`` means zero."""
    for k in range(perm.size):
        i = perm[k]
        value = y[k] * scale[i] if scale.size else y[k]
        x[i] = base[i] + value if base.size else value
