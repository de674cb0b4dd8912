"""BLAS and LAPACK on blocks of a column-major matrix, by address, without holding the interpreter's lock.

The routines are those inside SciPy (``cython_blas``, ``cython_lapack``). A block is given by the address of its first
entry and the leading dimension of its matrix, so that threads can work on blocks of one array side by side. The
caller holds the library at one thread (`warpfront.backend.cpu.single_threaded_blas`).
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int
from functools import cache
from typing import Any

import numpy as np

__all__ = ["Lapack", "addresses", "lapack"]

_PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_REAL = {"float32": ctypes.c_float, "complex64": ctypes.c_float}
_N, _T, _C = c_char(b"N"), c_char(b"T"), c_char(b"C")
_TRANS = {"N": _N, "T": _T, "H": _C}
_LEFT, _LOWER, _UPPER, _UNIT, _ONE_NORM = (c_char(letter) for letter in (b"L", b"L", b"U", b"U", b"1"))


def _routine(name: str, arguments: int, *, lapack: bool) -> Any:
    from warpfront.backend.cpu import routine_address

    return ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * arguments))(routine_address(name, lapack=lapack))


@cache
def addresses(dtype: str, *names: str) -> tuple[int, ...]:
    """Return the addresses of routines of an element type, named without their letter."""
    from warpfront.backend.cpu import routine_address

    return tuple(routine_address(_PREFIX[dtype] + name, lapack=name.startswith("ge")) for name in names)


class Lapack:
    """Routines of one element type. Matrices are addresses of column-major blocks.

    Parameters
    ----------
    dtype : {"float32", "float64", "complex64", "complex128"}
    """

    def __init__(self, dtype: str) -> None:
        letter = _PREFIX[dtype]
        kind = np.dtype(dtype)
        self.itemsize = kind.itemsize
        self._real = _REAL.get(dtype, ctypes.c_double)
        self._constants = np.array([1, -1], kind)
        self._one = int(self._constants.ctypes.data)
        self._minus = self._one + kind.itemsize
        self._complex = kind.kind == "c"
        self._getrf = _routine(letter + "getrf", 6, lapack=True)
        self._getrs = _routine(letter + "getrs", 9, lapack=True)
        self._laswp = _routine(letter + "laswp", 7, lapack=True)
        self._gecon = _routine(letter + "gecon", 9, lapack=True)
        self._trsm = _routine(letter + "trsm", 11, lapack=False)
        self._gemm = _routine(letter + "gemm", 13, lapack=False)
        self.dtype = kind

    def getrf(self, m: int, n: int, a: int, lda: int, pivots: int) -> int:
        """Factor an m x n block in place with partial pivoting; returns LAPACK's info."""
        info = c_int()
        self._getrf(byref(c_int(m)), byref(c_int(n)), a, byref(c_int(lda)), pivots, byref(info))
        return info.value

    def getrs(self, trans: str, n: int, count: int, a: int, lda: int, pivots: int, b: int, ldb: int) -> None:
        """Solve with a factored matrix, in place, for ``count`` right-hand sides."""
        self._getrs(
            byref(_TRANS[trans]), byref(c_int(n)), byref(c_int(count)), a, byref(c_int(lda)), pivots, b,
            byref(c_int(ldb)), byref(c_int()),
        )  # fmt: skip

    def laswp(self, count: int, a: int, lda: int, first: int, last: int, pivots: int) -> None:
        """Interchange rows of ``count`` columns by the pivots ``first`` to ``last``, counted from 1."""
        self._laswp(
            byref(c_int(count)), a, byref(c_int(lda)), byref(c_int(first)), byref(c_int(last)), pivots,
            byref(c_int(1)),
        )  # fmt: skip

    def gecon(self, n: int, a: int, lda: int, norm: float) -> float:
        """Estimate the reciprocal condition number in the 1-norm from an LU factorisation."""
        work = np.empty(4 * n + 1, self.dtype)
        other = np.empty(2 * n + 1, np.float64)  # rwork or iwork: wide enough for either
        rcond, info = self._real(), c_int()
        self._gecon(
            byref(_ONE_NORM), byref(c_int(n)), a, byref(c_int(lda)), byref(self._real(norm)), byref(rcond),
            work.ctypes.data, other.ctypes.data, byref(info),
        )  # fmt: skip
        return float(rcond.value)

    def solve_unit_lower(self, m: int, n: int, a: int, lda: int, b: int, ldb: int) -> None:
        """``B = L^-1 B`` with the unit lower triangle of an m x m block."""
        self._triangle(_LOWER, _UNIT, m, n, a, lda, b, ldb)

    def solve_upper(self, m: int, n: int, a: int, lda: int, b: int, ldb: int) -> None:
        """``B = U^-1 B`` with the upper triangle of an m x m block."""
        self._triangle(_UPPER, _N, m, n, a, lda, b, ldb)

    def _triangle(
        self, uplo: c_char, unit: c_char, m: int, n: int, a: int, lda: int, b: int, ldb: int
    ) -> None:
        self._trsm(
            byref(_LEFT), byref(uplo), byref(_N), byref(unit), byref(c_int(m)), byref(c_int(n)), self._one, a,
            byref(c_int(lda)), b, byref(c_int(ldb)),
        )  # fmt: skip

    def subtract_product(
        self, m: int, n: int, k: int, a: int, lda: int, b: int, ldb: int, c: int, ldc: int
    ) -> None:
        """``C -= A B``, A m x k and B k x n."""
        self._gemm(
            byref(_N), byref(_N), byref(c_int(m)), byref(c_int(n)), byref(c_int(k)), self._minus, a,
            byref(c_int(lda)), b, byref(c_int(ldb)), self._one, c, byref(c_int(ldc)),
        )  # fmt: skip


@cache
def lapack(dtype: str) -> Lapack:
    """Return the routines of an element type."""
    return Lapack(dtype)
