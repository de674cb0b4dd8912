"""LU in less than double precision on the GPU: float32, or blocked with products on tensor cores in TF32 or FP16.

Right-looking blocks of 256 columns: cuSOLVER factors the panel in float32, cuBLAS solves the triangle and multiplies.
With ``tf32`` the product rounds its operands to TF32, with ``float16`` they are converted to FP16 (the matrix has been
scaled to entries below 1); sums are float32 in every case.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from warpfront.dense.mixed import power_of_two
from warpfront.errors import NotSupportedError

__all__ = ["LowFactor"]

BLOCK = 256
TF32_MATH, DEFAULT_MATH = 3, 0  # CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_DEFAULT_MATH
LEFT, LOWER, NO_TRANS, UNIT = 0, 0, 0, 1
R_32F, R_16F, COMPUTE_32F, DEFAULT_GEMM = 0, 2, 68, -1


class LowFactor:
    """A factor of ``scale * A``; see `warpfront.dense.mixed.LowPrecision`."""

    def __init__(self, factors: Any, scale: float, name: str) -> None:
        self._factors, self.scale, self.name = factors, scale, name
        self.column = int(factors.zero[0]) if factors.zero[0] >= 0 else -1

    @classmethod
    def of(cls, a: Any, precision: str) -> LowFactor:
        """Factor one matrix [n, n] on the device in ``precision``."""
        import cupy

        from warpfront.dense import _device_lu

        scale = power_of_two(a)
        kind = np.complex64 if a.dtype.kind == "c" else np.float32
        single = (a * scale).astype(kind)
        if precision == "float32" or len(a) <= BLOCK:
            return cls(_device_lu.factor(single[None]), scale, "float32")
        if kind == np.complex64:
            raise NotSupportedError(f"precision={precision!r} is for real matrices; use 'float32'")
        lu, pivots = _blocked(cupy.ascontiguousarray(single.T), precision)
        return cls(_device_lu.summarised(single[None], lu[None], pivots[None]), scale, precision)

    @cached_property
    def rcond(self) -> float:
        """Reciprocal condition estimate."""
        return float(self._factors.rcond[0])

    def solve(self, b: Any) -> Any:
        """Solve for single-precision columns [n, k]."""
        return self._factors.solve(b[None])[0]

    def inv(self) -> Any:
        """Inverse of ``scale A``."""
        import cupy

        return self.solve(cupy.eye(self._factors.order, dtype=self._factors.lu.dtype))


def _blocked(lu: Any, precision: str) -> tuple[Any, Any]:
    """Factor a column-major matrix in place (``lu[j, i]`` is entry i, j); returns it and LAPACK's pivots."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas, cusolver

    n, item = len(lu), lu.itemsize
    pivots, infos = cupy.zeros(n, np.int32), cupy.zeros(-(-n // BLOCK), np.int32)
    solver, blas = device.get_cusolver_handle(), device.get_cublas_handle()
    words = cusolver.sgetrf_bufferSize(solver, n, BLOCK, lu.data.ptr, n)
    work = cupy.empty(words, np.float32)
    one = np.ones(1, np.float32)
    for step, k in enumerate(range(0, n, BLOCK)):
        wide = min(BLOCK, n - k)
        at = lu.data.ptr + (k + k * n) * item
        cusolver.sgetrf(solver, n - k, wide, at, n, work.data.ptr, pivots[k:].data.ptr, infos[step:].data.ptr)
        order = _order(pivots[k : k + wide], n - k)
        for first, last in ((0, k), (k + wide, n)):
            if last > first:
                lu[first:last, k:] = lu[first:last, k:][:, order]
        pivots[k : k + wide] += k
        if k + wide < n:
            rest = at + wide * n * item
            cublas.strsm(
                blas, LEFT, LOWER, NO_TRANS, UNIT, wide, n - k - wide, one.ctypes.data, at, n, rest, n
            )
            _subtract(lu, k, wide, precision)
    return lu, pivots


def _order(pivots: Any, rows: int) -> Any:
    """Row order that a panel's interchanges produce; on the device through the host, a few hundred integers."""
    import cupy

    order = np.arange(rows)
    for i, other in enumerate((cupy.asnumpy(pivots) - 1).tolist()):
        order[i], order[other] = order[other], order[i]
    return cupy.asarray(order)


def _subtract(lu: Any, k: int, wide: int, precision: str) -> None:
    """``A22 -= L21 U12`` with operands rounded to TF32 or FP16."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    n, item, first = len(lu), lu.itemsize, k + wide
    blas, scalars = device.get_cublas_handle(), np.array([-1, 1], np.float32)
    minus, one = scalars.ctypes.data, scalars.ctypes.data + 4
    target = lu.data.ptr + (first + first * n) * item
    if precision == "tf32":
        left, right = lu.data.ptr + (first + k * n) * item, lu.data.ptr + (k + first * n) * item
        before = cublas.getMathMode(blas)
        cublas.setMathMode(blas, TF32_MATH)
        try:
            cublas.sgemm(
                blas, NO_TRANS, NO_TRANS, n - first, n - first, wide, minus, left, n, right, n, one, target, n
            )
        finally:
            cublas.setMathMode(blas, before)
        return
    import cupy

    left = cupy.ascontiguousarray(lu[k:first, first:]).astype(np.float16)
    right = cupy.ascontiguousarray(lu[first:, k:first]).astype(np.float16)
    cublas.gemmEx(
        blas, NO_TRANS, NO_TRANS, n - first, n - first, wide, minus, left.data.ptr, R_16F, n - first,
        right.data.ptr, R_16F, wide, one, target, R_32F, n, COMPUTE_32F, DEFAULT_GEMM,
    )  # fmt: skip
