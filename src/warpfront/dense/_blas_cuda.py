"""cuBLAS by address: a handle of our own, which may be captured into a graph (CuPy's refuses that).

A handle belongs to a thread, a device and a stream: cuBLAS promises the same bits from run to run for one stream at a
time, and its workspace is given to it here, so that nothing is allocated inside a graph. The library is the one that
CuPy uses.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int, c_longlong, c_void_p
from functools import cache
from typing import Any

import numpy as np

from warpfront.errors import NotSupportedError

__all__ = ["Blas", "blas"]

WORKSPACE_BYTES = 32 << 20  # what cuBLAS recommends for compute capability 9.0
_REAL = {"float32": "S", "float64": "D"}
_LEFT, _LOWER, _UPPER, _PLAIN, _UNIT, _NON_UNIT = 0, 0, 1, 0, 1, 0
_SINGLE, _HALF, _COMPUTE_SINGLE, _COMPUTE_TF32 = (
    0,
    2,
    68,
    77,
)  # CUDA_R_32F, CUDA_R_16F, CUBLAS_COMPUTE_32F[_FAST_TF32]
_held = threading.local()


@cache
def _library() -> Any:
    import cupy
    from cuda.pathfinder import load_nvidia_dynamic_lib

    cupy.cuda.device.get_cublas_handle()  # CuPy's library first: the loader then finds the same one
    return ctypes.CDLL(str(load_nvidia_dynamic_lib("cublas").abs_path))


class Blas:
    """Routines of one real type on one stream. Matrices are addresses of column-major blocks.

    Parameters
    ----------
    dtype : {"float32", "float64"}
    stream : int
        Stream handle.
    device : int
    """

    def __init__(self, dtype: str, stream: int, device: int) -> None:
        import cupy

        self._library = _library()
        handle = c_void_p()
        with cupy.cuda.Device(device):
            self._call("cublasCreate_v2", byref(handle))
            self._workspace = cupy.cuda.alloc(WORKSPACE_BYTES)
        self._handle = handle
        self._call("cublasSetStream_v2", handle, c_void_p(stream))
        self._call(
            "cublasSetWorkspace_v2", handle, c_void_p(self._workspace.ptr), ctypes.c_size_t(WORKSPACE_BYTES)
        )
        letter, kind = _REAL[dtype], np.dtype(dtype)
        self._gemm = getattr(self._library, f"cublas{letter}gemm_v2")
        self._gemms = getattr(self._library, f"cublas{letter}gemmStridedBatched")
        self._trsm = getattr(self._library, f"cublas{letter}trsm_v2")
        self._scalars = np.array([1, -1, 0], kind)
        at, item = int(self._scalars.ctypes.data), kind.itemsize
        self._one, self._minus = c_void_p(at), c_void_p(at + item)

    def _call(self, name: str, *args: Any) -> None:
        _check(getattr(self._library, name)(*args), name)

    def subtract_product(
        self, m: int, n: int, k: int, a: int, b: int, c: int, ld: int, batch: int = 1, stride: int = 0
    ) -> None:
        """``C -= A B``, A m x k and B k x n, all with leading dimension ``ld``; each of ``batch`` a ``stride`` apart."""
        sizes = c_int(m), c_int(n), c_int(k)
        step, lead = c_longlong(stride), c_int(ld)
        head = self._handle, c_int(_PLAIN), c_int(_PLAIN), *sizes, self._minus
        if batch == 1:
            status = self._gemm(*head, c_void_p(a), lead, c_void_p(b), lead, self._one, c_void_p(c), lead)
        else:
            status = self._gemms(
                *head, c_void_p(a), lead, step, c_void_p(b), lead, step, self._one, c_void_p(c), lead, step,
                c_int(batch),
            )  # fmt: skip
        _check(status, "gemm")

    def subtract_rounded(
        self, m: int, n: int, k: int, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, *, half: bool
    ) -> None:
        """``C -= A B`` on tensor cores, C float32: A and B float32 rounded to TF32, or given as float16 (``half``)."""
        kind, compute = (_HALF, _COMPUTE_SINGLE) if half else (_SINGLE, _COMPUTE_TF32)
        status = self._library.cublasGemmEx(
            self._handle, c_int(_PLAIN), c_int(_PLAIN), c_int(m), c_int(n), c_int(k), self._minus, c_void_p(a),
            c_int(kind), c_int(lda), c_void_p(b), c_int(kind), c_int(ldb), self._one, c_void_p(c), c_int(_SINGLE),
            c_int(ldc), c_int(compute), c_int(-1),
        )  # fmt: skip
        _check(status, "GemmEx")

    def solve_triangle(self, upper: bool, m: int, n: int, a: int, lda: int, b: int, ldb: int) -> None:
        """``B = T^-1 B`` with the upper triangle of an m x m block, or its lower one with a unit diagonal."""
        status = self._trsm(
            self._handle, c_int(_LEFT), c_int(_UPPER if upper else _LOWER), c_int(_PLAIN),
            c_int(_NON_UNIT if upper else _UNIT), c_int(m), c_int(n), self._one, c_void_p(a), c_int(lda),
            c_void_p(b), c_int(ldb),
        )  # fmt: skip
        _check(status, "trsm")


def _check(status: int, name: str) -> None:
    if status:
        raise NotSupportedError(f"cuBLAS's {name} failed with status {status}")


def blas(dtype: str, stream: int, device: int) -> Blas:
    """Return this thread's routines of a type on a stream."""
    found: dict[tuple[str, int, int], Blas] = _held.__dict__.setdefault("routines", {})
    key = (dtype, stream, device)
    if key not in found:
        if len(found) >= 16:  # streams come and go: start over, once nothing uses the old workspaces
            from cupy.cuda import runtime

            runtime.deviceSynchronize()
            found.clear()
        found[key] = Blas(*key)
    return found[key]
