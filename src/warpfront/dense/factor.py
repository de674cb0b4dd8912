"""LU factorisation of one dense matrix: `lu_factor` and the object it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings
from warpfront.backend.cpu import run_jobs
from warpfront.dense import _lu_blocked as cpu
from warpfront.dense._checks import working_matrix
from warpfront.dense.records import SignLog
from warpfront.errors import InvalidValueError, NonFiniteError, SingularMatrixError, Status

__all__ = ["DenseLU", "factor_matrix", "lu_factor", "matrix_threads", "product_of", "rescaled"]

PIVOTING = ("partial", "rook", "complete")
EXACT = 64  # up to this order products are rounded before they are subtracted: an exactly singular matrix is found so
COPY_ORDER = 768  # the same for the copy by columns
THREAD_ORDER = 400  # below this order a second thread costs more than it brings


@dataclass(frozen=True, eq=False)
class DenseLU:
    """``P A Q = L U`` of a square matrix.

    Attributes
    ----------
    lu : float or complex [n, n], column-major
        L (unit, below the diagonal) and U.
    pivots : int32[n]
        Row interchanged with the k-th, counted from 1 as LAPACK does.
    column_pivots : int32[n] or None
        The same for columns; None where columns stay (partial pivoting).
    norm1 : float
        1-norm of A.
    column : int
        Column of A whose pivot is the first exact zero, or -1.
    """

    lu: NDArray[Any]
    pivots: NDArray[np.int32]
    column_pivots: NDArray[np.int32] | None
    norm1: float
    column: int

    @property
    def status(self) -> Status:
        """OK, SINGULAR where a pivot is exactly zero, or NON_FINITE where entries overflowed on the way."""
        if self.overflowed:
            return Status.NON_FINITE
        return Status.OK if self.column < 0 else Status.SINGULAR

    @cached_property
    def overflowed(self) -> bool:
        """Whether a pivot is infinite or NaN though the matrix was finite: its factors do not fit its type."""
        return not self.extremes[0]

    @cached_property
    def extremes(self) -> tuple[bool, float, float]:
        """Whether all pivots are finite, and the smallest and largest absolute one; 1 and 1 of none."""
        if not self.lu.size:
            return True, 1.0, 1.0
        from warpfront.dense import _load_kernels as kernels

        return kernels.look(self.lu.reshape(-1, order="F"), len(self.lu))[1:]  # type: ignore[no-any-return]

    @cached_property
    def rcond(self) -> float:
        """Reciprocal condition estimate in the 1-norm (Hager 1984; Higham 1988); 0 for a singular matrix.

        NaN where the factors overflowed.
        """
        n = self.lu.shape[0]
        if n == 0:
            return 1.0
        if self.overflowed:
            return float("nan")
        if self.column >= 0:
            return 0.0
        return cpu.condition(self.lu, self.norm1)

    @property
    def growth(self) -> float:
        """Largest entry of U over the largest column sum of A: far above 1 where pivoting let entries grow."""
        largest = float(np.abs(np.triu(self.lu)).max(initial=0.0))
        return largest / self.norm1 if self.norm1 > 0 else 1.0

    def solve(self, b: Any, trans: str = "N") -> NDArray[Any]:
        """Solve ``A x = b``, ``A^T x = b`` or ``A^H x = b``.

        Parameters
        ----------
        b : array [n] or [n, k]
            Real or complex; read.
        trans : {"N", "T", "H"}

        Raises
        ------
        SingularMatrixError
            A pivot is zero.
        NonFiniteError
            The factors overflowed.
        InvalidValueError
            ``b`` does not fit.
        """
        if trans not in ("N", "T", "H"):
            raise InvalidValueError(f"trans is {trans!r}; allowed are 'N', 'T', 'H'")
        self._check_usable()
        n = self.lu.shape[0]
        rhs = np.asarray(b)
        if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
            raise InvalidValueError(f"b has shape {rhs.shape}; it must be [{n}] or [{n}, k]")
        apart = rhs.dtype.kind == "c" and self.lu.dtype.kind != "c"
        columns = rhs.reshape(n, 1 if rhs.ndim == 1 else rhs.shape[1])
        if apart:
            columns = np.concatenate([columns.real, columns.imag], axis=1)
        work = np.array(columns, dtype=self.lu.dtype, order="F", copy=True)
        self._sweep(work, trans)
        if apart:
            half = work.shape[1] // 2
            work = work[:, :half] + 1j * work[:, half:]
        return np.ascontiguousarray(work).reshape(rhs.shape)

    def _check_usable(self) -> None:
        if self.overflowed:
            raise NonFiniteError("the factors do not fit their type: an entry overflows; scale the matrix")
        if self.column >= 0:
            raise singular(self.column)

    def _sweep(self, work: NDArray[Any], trans: str) -> None:
        order = None if self.column_pivots is None else cpu.row_order(self.column_pivots)
        if order is not None and trans != "N":
            work[...] = work[order]
        if trans == "N" and order is None and len(work) <= EXACT:
            from warpfront.dense import _pivot_kernels as kernels

            flat, columns = self.lu.reshape(-1, order="F"), work.reshape(-1, order="F")
            kernels.sweep_unblocked(flat, len(work), columns, work.shape[1], self.pivots)
        else:
            cpu.solve(self.lu, self.pivots, work, trans, matrix_threads(len(work)))
        if order is not None and trans == "N":
            work[order] = work.copy()

    def inv(self) -> NDArray[Any]:
        """Inverse, [n, n]. Raises SingularMatrixError where a pivot is zero, NonFiniteError where factors overflowed."""
        self._check_usable()
        out = cpu.invert(self.lu, self.pivots, matrix_threads(self.lu.shape[0]))
        if self.column_pivots is not None:
            out[cpu.row_order(self.column_pivots)] = out.copy()
        return out

    def slogdet(self) -> SignLog:
        """Sign and logarithm of the absolute determinant; ``(0, -inf)`` for a singular matrix."""
        return SignLog(*self.scaled_product()[:2])

    def det(self) -> Any:
        """Determinant in the matrix's type; 0 after underflow, infinite after overflow (`slogdet` has neither)."""
        return self.scaled_product()[2]

    def scaled_product(self) -> tuple[Any, float, Any]:
        """Return sign, logarithm and value of the product of pivots, kept as a mantissa and a power of two."""
        kind = self.lu.dtype
        if self.column >= 0:
            return kind.type(0), float("-inf"), kind.type(0)
        swaps = [self.pivots] if self.column_pivots is None else [self.pivots, self.column_pivots]
        return product_of(self.lu.diagonal(), swaps)


def product_of(
    pivots: NDArray[Any], swaps: list[NDArray[np.int32]], shift: int = 0
) -> tuple[Any, float, Any]:
    """Return sign, logarithm and value of ``2**shift`` times a product of pivots; each interchange turns the sign."""
    kind = pivots.dtype
    if kind.kind != "c" and len(swaps) == 1:
        from warpfront.dense import _pivot_kernels as kernels

        sign, product, power = kernels.scaled_product(np.ascontiguousarray(pivots), swaps[0])
        return valued(kind, sign, product, power + shift)
    real, imaginary = pivots.real.astype(np.float64), pivots.imag.astype(np.float64)
    exponent = np.frexp(np.maximum(np.abs(real), np.abs(imaginary)))[1]
    near_one = np.ldexp(real, -exponent) + 1j * np.ldexp(imaginary, -exponent)
    mantissa = np.abs(near_one)
    odd = sum(int(np.count_nonzero(p != np.arange(1, p.size + 1))) for p in swaps) % 2
    sign = np.prod(near_one / mantissa) * (-1 if odd else 1)
    sign = sign / abs(sign) if kind.kind == "c" else sign.real
    product, power = 1.0, int(exponent.sum()) + shift
    for first in range(0, mantissa.size, 512):
        product, more = np.frexp(product * np.prod(mantissa[first : first + 512]))
        power += int(more)
    return valued(kind, sign, product, power)


def valued(kind: np.dtype[Any], sign: Any, product: float, power: int) -> tuple[Any, float, Any]:
    """Return sign, logarithm and value, of type ``kind``, of ``sign * product * 2**power``."""
    logarithm = math.log(product) + power * math.log(2.0)
    if (
        kind.itemsize >= 8 and kind.char != "F" and abs(power) < 1000
    ):  # nothing overflows: the plain way is the fast one
        return kind.type(sign), logarithm, kind.type(sign * math.ldexp(product, power))
    with np.errstate(over="ignore", under="ignore"):
        power = max(-1_000_000, min(1_000_000, power))
        parts = [float(np.ldexp(float(part) * product, power)) for part in (sign.real, sign.imag)]
        value = kind.type(complex(*parts) if kind.kind == "c" else parts[0])
    return kind.type(sign), logarithm, value


def singular(column: int) -> SingularMatrixError:
    """Return the error for a zero pivot."""
    return SingularMatrixError(f"the matrix is singular: pivot {column} is exactly zero", column)


def matrix_threads(n: int) -> int:
    """Threads worth using on one matrix of order n."""
    return settings.threads() if n >= THREAD_ORDER else 1


def lu_factor(a: Any, *, pivoting: str = "partial") -> DenseLU:
    """Factor a square matrix on the CPU.

    Parameters
    ----------
    a : array [n, n]
        float32, float64, complex64 or complex128; integers and booleans become float64. Read.
    pivoting : {"partial", "rook", "complete"}
        Which entry becomes a pivot: the largest of its column; the largest of both its row and its column; the
        largest of all that is left. The last two keep entries small where partial pivoting lets them grow; they are
        unblocked and meant for small or hard systems.

    Returns
    -------
    DenseLU
        Also for a singular matrix: its status says so.

    Raises
    ------
    InvalidValueError
        Not square, or an element type without a factorisation (half precision, objects, ...).
    NonFiniteError
        NaN or infinity, with the entry.
    """
    return factor_matrix(working_matrix(a, 2), pivoting, matrix_threads(np.shape(a)[0] if np.ndim(a) else 0))


def columns_of(a: NDArray[Any], threads: int) -> tuple[NDArray[Any], float]:
    """Return a column-major copy of a matrix of a working type and its 1-norm, not finite where an entry is not."""
    n = a.shape[0]
    if n <= EXACT or not a.flags.c_contiguous:
        with np.errstate(over="ignore"):  # the caller sees an infinite norm
            return np.array(a, order="F", copy=True), float(np.abs(a).sum(axis=0).max(initial=0.0))
    from warpfront.dense import _load_kernels as kernels

    lu = np.empty((n, n), a.dtype, order="F")
    sums = np.zeros(n, lu.real.dtype)
    flat, columns = a.reshape(-1), lu.reshape(-1, order="F")
    sizes = tuple(np.array([n, kernels.TILE, 0], np.uint64))
    tiles = -(-n // kernels.TILE)

    def part(first: int, last: int) -> None:
        kernels.load_columns(flat, columns, sums, sizes, np.uint64(first), np.uint64(last))

    if threads == 1 or n < COPY_ORDER:
        part(0, tiles)
    else:
        step = max(1, tiles // (4 * threads))
        run_jobs(threads, (partial(part, k, min(k + step, tiles)) for k in range(0, tiles, step)))
    return lu, float(sums.max())


def factor_matrix(a: NDArray[Any], pivoting: str, threads: int) -> DenseLU:
    """Factor a checked matrix; ``a`` is read."""
    factor = factor_columns(a, pivoting, threads)
    if factor is None:  # finite, but the sum of a column is not
        lu = np.array(a, order="F", copy=True)
        factor = _factored(lu, float(np.finfo(a.dtype).max), pivoting, threads)
    return factor


def rescaled(a: NDArray[Any], pivoting: str, threads: int) -> tuple[DenseLU, int]:
    """Factor ``2**-power`` of a matrix whose factors overflow, its largest entry in [0.5, 1); returns that and ``power``.

    Raises
    ------
    NonFiniteError
        Entries grow too much even so.
    """
    parts = (a.real, a.imag) if a.dtype.kind == "c" else (a,)
    power = math.frexp(max(float(np.abs(part).max(initial=0.0)) for part in parts))[1]
    factor = factor_matrix(a * a.real.dtype.type(2.0**-power), pivoting, threads)
    if factor.overflowed:
        raise NonFiniteError("the factors overflow, scaled or not: entries grow too much")
    return factor, power


def factor_columns(a: NDArray[Any], pivoting: str, threads: int) -> DenseLU | None:
    """Factor a matrix of a working type, or return None where a column's absolute sum is not finite; ``a`` is read."""
    if pivoting not in PIVOTING:
        raise InvalidValueError(f"pivoting is {pivoting!r}; allowed are {', '.join(map(repr, PIVOTING))}")
    lu, norm1 = columns_of(a, threads)
    return _factored(lu, norm1, pivoting, threads) if np.isfinite(norm1) else None


def _factored(lu: NDArray[Any], norm1: float, pivoting: str, threads: int) -> DenseLU:
    n = lu.shape[0]
    if pivoting == "partial" and n > EXACT:
        pivots = cpu.factor(lu, threads)
        from warpfront.dense import _load_kernels

        return DenseLU(lu, pivots, None, norm1, int(_load_kernels.look(lu.reshape(-1, order="F"), n)[0]))
    from warpfront.dense import _pivot_kernels as kernels

    pivots, columns = np.zeros(n, np.int32), np.zeros(n, np.int32)
    zero = int(kernels.lu_unblocked(lu.reshape(-1, order="F"), n, PIVOTING.index(pivoting), pivots, columns))
    if pivoting == "partial":
        return DenseLU(lu, pivots, None, norm1, zero)
    named = int(cpu.row_order(columns)[zero]) if zero >= 0 else -1
    return DenseLU(lu, pivots, columns, norm1, named)
