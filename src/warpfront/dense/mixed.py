"""Factor in low precision, refine to float64: the loops, for NumPy and CuPy alike.

Plain refinement (Wilkinson 1963) while each step gains a factor of two, then GMRES preconditioned by the low-precision
factor (Carson and Higham 2017, SIAM J. Sci. Comput. 39). Residuals are float64. The matrix is scaled by a power of two
first, so that its entries fit the lower range. What does not converge is REFINEMENT_FAILED.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfront.dense._quick import suspicious
from warpfront.dense.factor import DenseLU, factor_matrix
from warpfront.dense.records import DenseOutcome
from warpfront.errors import InvalidValueError, Status

__all__ = ["PRECISIONS", "LowPrecision", "power_of_two", "refine_inverse", "refine_solve", "single_factor"]

PRECISIONS = ("working", "float32", "tf32", "float16")
STEPS = 40
NEWTON_STEPS = 8
EPS = float(np.finfo(np.float64).eps)


class LowPrecision(Protocol):
    """A factor of ``scale * A`` in low precision."""

    @property
    def scale(self) -> float:
        """Power of two that brought A into range."""

    @property
    def column(self) -> int:
        """Column of the first zero pivot, or -1."""

    @property
    def overflowed(self) -> bool:
        """Whether entries grew beyond the low precision's range: there is nothing to solve with."""

    @property
    def rcond(self) -> float:
        """Reciprocal condition estimate."""

    @property
    def doubtful(self) -> bool:
        """Whether the pivots give reason to look at the condition number."""

    @property
    def name(self) -> str:
        """The precision in words."""

    def solve(self, b: Any) -> Any:
        """Solve ``(scale A) x = b`` for single-precision columns."""

    def inv(self) -> Any:
        """Inverse of ``scale A``."""


class _SingleFactor:
    """Single precision on the CPU."""

    name = "float32"

    def __init__(self, factor: DenseLU, scale: float) -> None:
        self._factor, self.scale = factor, scale
        self.column, self.solve, self.inv = factor.column, factor.solve, factor.inv
        self.overflowed = factor.overflowed

    @property
    def rcond(self) -> float:
        return self._factor.rcond

    @property
    def doubtful(self) -> bool:
        return suspicious(self._factor)


def power_of_two(a: Any) -> float:
    """Return the power of two that brings the largest entry of a double-precision matrix to [0.5, 1).

    Raises
    ------
    InvalidValueError
        Not float64 or complex128: there is no precision to win.
    """
    if a.dtype not in (np.float64, np.complex128):
        raise InvalidValueError(f"a lower precision needs a float64 or complex128 matrix, got {a.dtype}")
    largest = float(abs(a).max()) if a.size else 0.0
    return float(2.0 ** -float(np.frexp(largest)[1])) if largest > 0 else 1.0


def single_factor(a: NDArray[Any], pivoting: str, threads: int) -> LowPrecision:
    """Factor in single precision on the CPU."""
    scale = power_of_two(a)
    kind = np.complex64 if a.dtype.kind == "c" else np.float32
    return _SingleFactor(factor_matrix((a * scale).astype(kind), pivoting, threads), scale)


def _condition(low: LowPrecision, always: bool) -> float:
    return low.rcond if always or low.doubtful else float("nan")


def _error(norm: float, x: Any, b: Any, residual: Any, xp: Any) -> Any:
    below = norm * abs(x).max(axis=0) + abs(b).max(axis=0)
    return abs(residual).max(axis=0) / xp.where(below > 0, below, 1)


def refine_solve(
    a: Any, b: Any, low: LowPrecision, kind: Any, xp: Any, *, estimate: bool = True
) -> DenseOutcome:
    """Solve with a low-precision factor and refine.

    Parameters
    ----------
    a : float64 or complex128 [n, n]
    b : array [n] or [n, k]
    low : LowPrecision
    kind : dtype
        Of the solution: float64 or complex128.
    xp : module
        numpy or cupy.
    estimate : bool
        Estimate the condition number (several solves) also where the pivots give no reason to.

    Returns
    -------
    DenseOutcome
        OK where the normwise backward error reached ``n eps``.
    """
    method = f"LU in {low.name}, refinement in {np.dtype(kind).name}"
    if low.overflowed or low.column >= 0:
        return _unusable(low, xp.full(b.shape, np.nan, kind), method)
    n = len(a)
    rhs = b.reshape(n, 1 if b.ndim == 1 else b.shape[1]).astype(kind, copy=False)
    if not rhs.size:
        return DenseOutcome(xp.zeros(b.shape, kind), Status.OK, -1, _condition(low, estimate), 0.0, 0, method)
    norm, target = float(abs(a).sum(axis=1).max()), max(n, 10) * EPS
    x = xp.zeros_like(rhs)
    residual, steps, krylov = rhs.copy(), 0, False
    error = _error(norm, x, rhs, residual, xp)
    while steps < STEPS:
        steps += 1
        correction = _krylov(a, low, residual, xp) if krylov else _apply(low, residual, xp)
        candidate = x + correction
        left = rhs - a @ candidate
        reached = _error(norm, candidate, rhs, left, xp)
        better = reached < error
        x, residual = xp.where(better, candidate, x), xp.where(better, left, residual)
        stalled = not bool((reached < 0.5 * error).any())
        error = xp.where(better, reached, error)
        if bool((error <= target).all()) or (stalled and krylov):
            break
        if stalled:
            krylov = True
            method += ", GMRES after plain steps stalled"
    worst = float(error.max())
    status = Status.OK if worst <= target else Status.REFINEMENT_FAILED
    return DenseOutcome(x.reshape(b.shape), status, -1, _condition(low, estimate), worst, steps, method)


def _unusable(low: LowPrecision, value: Any, method: str) -> DenseOutcome:
    nan = float("nan")
    if low.overflowed:
        return DenseOutcome(
            value, Status.REFINEMENT_FAILED, -1, nan, nan, 0, method + ", whose entries overflow"
        )
    return DenseOutcome(value, Status.SINGULAR, low.column, 0.0, nan, 0, method)


def _apply(low: LowPrecision, residual: Any, xp: Any) -> Any:
    """Low-precision solve of each column, scaled into range by a power of two."""
    size = abs(residual).max(axis=0)
    power = xp.where(size > 0, 2.0 ** -xp.frexp(size)[1].astype(np.float64), 1.0)
    single = np.complex64 if residual.dtype.kind == "c" else np.float32
    solution = low.solve((residual * power).astype(single))
    return solution.astype(residual.dtype) * (low.scale / power)


def _krylov(a: Any, low: LowPrecision, residual: Any, xp: Any) -> Any:
    """One GMRES correction of each column, preconditioned by the factor."""
    if xp is np:
        from scipy.sparse.linalg import LinearOperator, gmres
    else:
        from cupyx.scipy.sparse.linalg import LinearOperator, gmres
    n, kind = len(a), residual.dtype
    restart = min(n, 60)
    cycles = 2 if xp is np else 2 * restart  # CuPy counts steps where SciPy counts restarts

    def precondition(vector: Any) -> Any:
        return _apply(low, vector.reshape(n, 1).astype(kind), xp).ravel()

    inverse = LinearOperator((n, n), matvec=precondition, dtype=kind)
    out = xp.empty_like(residual)
    for j in range(residual.shape[1]):
        out[:, j], _ = gmres(
            a.astype(kind, copy=False),
            residual[:, j],
            M=inverse,
            rtol=1e-6,
            atol=0.0,
            restart=restart,
            maxiter=cycles,
        )
    return out


def refine_inverse(a: Any, low: LowPrecision, xp: Any, *, estimate: bool = True) -> DenseOutcome:
    """Invert in low precision and correct by Newton's iteration (Schulz 1933), ``X <- X + X (I - A X)``, in float64.

    Parameters
    ----------
    a : float64 or complex128 [n, n]
    low : LowPrecision
    xp : module
        numpy or cupy.
    estimate : bool
        Estimate the condition number (several solves) also where the pivots give no reason to.

    Returns
    -------
    DenseOutcome
        ``backward_error`` is that of ``A X = I``; OK where it reached ``n eps``.
    """
    method = f"inverse in {low.name}, Newton's iteration in {a.dtype.name}"
    if low.overflowed or low.column >= 0:
        return _unusable(low, xp.full(a.shape, np.nan, a.dtype), method)
    n = len(a)
    if n == 0:
        return DenseOutcome(a.copy(), Status.OK, -1, 1.0, 0.0, 0, method)
    eye = xp.eye(n, dtype=a.dtype)
    x = low.inv().astype(a.dtype) * low.scale
    norm, target = float(abs(a).sum(axis=1).max()), max(n, 10) * EPS
    residual, steps = eye - a @ x, 0
    error = float(_error(norm, x, eye, residual, xp).max())
    while steps < NEWTON_STEPS and error > target:
        candidate = x + x @ residual
        left = eye - a @ candidate
        reached = float(_error(norm, candidate, eye, left, xp).max())
        steps += 1
        if not reached < error:
            break
        x, residual, error = candidate, left, reached
    status = Status.OK if error <= target else Status.REFINEMENT_FAILED
    return DenseOutcome(x, status, -1, _condition(low, estimate), error, steps, method)
