"""LU in less than double precision on the GPU: float32, or blocked with products on tensor cores in TF32 or FP16.

Blocks of 256 columns are factored in float32, by the panels of every real LU (`warpfront.dense._lu_panel_cuda`); cuBLAS
solves the triangle and multiplies. With ``tf32`` the product that follows a block rounds its operands to TF32, with
``float16`` they are converted to FP16 (the matrix has been scaled to entries below 1); sums are float32 in every case.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from warpfront.dense import _lu_graph_cuda as graphs
from warpfront.dense import _lu_panel_cuda as panels
from warpfront.dense._blas_cuda import Blas
from warpfront.dense.mixed import power_of_two
from warpfront.dense.transpose import transpose
from warpfront.errors import NotSupportedError

__all__ = ["LowFactor"]

BLOCK = 256


class LowFactor:
    """A factor of ``scale * A``; see `warpfront.dense.mixed.LowPrecision`."""

    def __init__(self, factors: Any, scale: float, name: str) -> None:
        self._factors, self.scale, self.name = factors, scale, name
        self.column = int(factors.zero[0]) if factors.zero[0] >= 0 else -1
        self.overflowed = bool(factors.zero[0] == -2)

    @classmethod
    def of(cls, a: Any, precision: str) -> LowFactor:
        """Factor one matrix [n, n] on the device in ``precision``."""
        from warpfront.dense import _device_lu

        scale = power_of_two(a)
        kind = np.complex64 if a.dtype.kind == "c" else np.float32
        single = (a * scale).astype(kind)
        if precision == "float32" or len(a) <= BLOCK:
            return cls(_device_lu.factor(single[None]), scale, "float32")
        if kind == np.complex64:
            raise NotSupportedError(f"precision={precision!r} is for real matrices; use 'float32'")
        if not panels.supported("float32", len(a)):
            most = panels.MAX_ORDER["float32"]
            raise NotSupportedError(
                f"precision={precision!r} goes up to order {most}, got {len(a)}; use 'float32'"
            )
        lu, pivots = _blocked(transpose(single), precision)
        return cls(_device_lu.summarised(single[None], lu[None], pivots[None]), scale, precision)

    @cached_property
    def rcond(self) -> float:
        """Reciprocal condition estimate."""
        return float(self._factors.rcond[0])

    @property
    def doubtful(self) -> bool:
        """Whether the pivots give reason to look at the condition number."""
        return bool(self._factors.doubtful[0])

    def solve(self, b: Any) -> Any:
        """Solve for single-precision columns [n, k]."""
        return self._factors.solve(b[None])[0]

    def inv(self) -> Any:
        """Inverse of ``scale A``."""
        import cupy

        return self.solve(cupy.eye(self._factors.order, dtype=self._factors.lu.dtype))


class _Products:
    """`Blas` whose products behind a whole block run on tensor cores.

    Parameters
    ----------
    routines : Blas
    lu : cupy float32 [n, n]
        The matrix that all addresses point into.
    precision : {"tf32", "float16"}
    stream : int
        The stream of ``routines``.
    """

    def __init__(self, routines: Blas, lu: Any, precision: str, stream: int) -> None:
        import cupy

        self._routines, self._lu, self._half = routines, lu, precision == "float16"
        self._stream = cupy.cuda.ExternalStream(stream)
        self.solve_triangle = routines.solve_triangle

    def subtract_product(
        self, m: int, n: int, k: int, a: int, b: int, c: int, ld: int, batch: int = 1, stride: int = 0
    ) -> None:
        """As `Blas.subtract_product`."""
        if k < BLOCK or batch > 1:
            self._routines.subtract_product(m, n, k, a, b, c, ld, batch, stride)
        elif self._half:
            with self._stream:
                left, right = self._rounded(a, m, k), self._rounded(b, k, n)
                self._routines.subtract_rounded(
                    m, n, k, left.data.ptr, m, right.data.ptr, k, c, ld, half=True
                )
        else:
            self._routines.subtract_rounded(m, n, k, a, ld, b, ld, c, ld, half=False)

    def _rounded(self, at: int, rows: int, columns: int) -> Any:
        """Copy of a block in float16, column-major without gaps."""
        column, row = divmod((at - self._lu.data.ptr) // self._lu.itemsize, len(self._lu))
        return self._lu[column : column + columns, row : row + rows].astype(np.float16, order="C")


def _blocked(lu: Any, precision: str) -> tuple[Any, Any]:
    """Factor a column-major matrix in place (``lu[j, i]`` is entry i, j); returns it and LAPACK's pivots."""
    import cupy

    n, stream = len(lu), int(cupy.cuda.get_current_stream().ptr)
    pivots = cupy.empty(n, np.int32)
    room = graphs.make_room(n, 1, "float32", BLOCK)

    def products(routines: Blas, at: int) -> _Products:
        return _Products(routines, lu, precision, at)

    graphs.queue_ahead(lu[None], pivots[None], room, stream, BLOCK, products)
    return lu, pivots
