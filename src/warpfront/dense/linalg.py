"""Dense linear algebra: `solve`, `inv`, `det`, `slogdet`, `rcond`, for one matrix or a batch.

A failure is said, never hidden: a singular matrix raises (or is a status), an ill-conditioned one warns, a determinant that
leaves its type's range warns. Bits do not depend on the number of threads, nor on the batch a matrix is in.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import dispatch
from warpfront.dense._batch import answer, each
from warpfront.dense._checks import (
    check_choice,
    check_finite,
    first_bad,
    on_gpu,
    own_type,
    right_hand_sides,
    working_matrix,
)
from warpfront.dense._quick import determined, inverted, solved, suspicious
from warpfront.dense.factor import EXACT, DenseLU, factor_matrix, product_of, rescaled
from warpfront.dense.mixed import PRECISIONS, refine_inverse, refine_solve, single_factor
from warpfront.dense.records import OVERFLOWED, DenseOutcome, Determinant, SignLog
from warpfront.errors import DeterminantRangeWarning, Status

__all__ = ["det", "inv", "rcond", "slogdet", "solve"]

CHECKS = ("raise", "status")


def solve(
    a: Any,
    b: Any,
    *,
    pivoting: str = "partial",
    precision: str = "working",
    device: dispatch.Device = "auto",
    check: str = "raise",
) -> Any:
    """Solve ``A x = b`` by LU with row interchanges.

    Parameters
    ----------
    a : array [n, n] or [batch, n, n]
        float32, float64, complex64, complex128 (integers become float64). NumPy, or CuPy or PyTorch on a GPU. Read.
    b : array [n], [n, k]; for a batch also [batch, n], [batch, n, k]
        Right-hand sides; read. One without the batch's axis is used for every matrix.
    pivoting : {"partial", "rook", "complete"}
        See `lu_factor`.
    precision : {"working", "float32", "tf32", "float16"}
        Precision of the factorisation. ``"working"``: that of the input. Otherwise the input is float64 or complex128,
        the factor is less, and refinement (by GMRES where plain steps stall) brings the solution to float64's backward
        error; if it does not get there, that is REFINEMENT_FAILED, never a factorisation in full precision. ``"tf32"`` and
        ``"float16"`` run on the GPU's tensor cores from order 257; a smaller matrix is one float32 panel there, and
        ``method`` says so.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: where the data is.
    check : {"raise", "status"}
        Raise for a system that cannot be solved, or return a `DenseOutcome` that says so.

    Returns
    -------
    array
        Solution, shaped as ``b`` (with the batch's axis). With ``check="status"`` a `DenseOutcome`.

    Raises
    ------
    SingularMatrixError, NonFiniteError, RefinementFailedError
        ``check="raise"``. For a batch the message names the first such matrix.
    InvalidValueError, NotSupportedError
        Arguments that do not fit, or a device that is not there.

    Warns
    -----
    IllConditionedWarning
        The condition estimate exceeds the type's precision (``check="raise"``; otherwise read ``rcond``).
    """
    if (pivoting, precision, device, check) == ("partial", "working", "auto", "raise"):
        quick = solved(a, b)
        if quick is not None:
            return quick
    check_choice("check", check, CHECKS)
    check_choice("precision", precision, PRECISIONS)
    if on_gpu(a, device, precision):
        from warpfront.dense import _lu_cuda

        return _lu_cuda.solve(a, b, pivoting, precision, check)
    matrices = working_matrix(a, 2, 3, finite=False)
    rhs, shape = right_hand_sides(matrices, np.asarray(b), np)
    dtype = np.result_type(matrices.dtype, rhs.dtype)
    if precision == "working":
        matrices = matrices.astype(own_type(matrices.dtype, dtype), copy=False)
    batched, stack = matrices.ndim == 3, matrices if matrices.ndim == 3 else matrices[None]
    names = [f" {k}" if batched else "" for k in range(len(stack))]

    def one(k: int, threads: int) -> DenseOutcome:
        if check == "raise":
            check_finite(stack[k], f"matrix{names[k]}")
            check_finite(rhs[k], f"right-hand side{names[k]}")
        return _solve_one(stack[k], rhs[k], pivoting, precision, threads, check)

    found = each(stack, one)
    value = np.stack([one.value for one in found]) if found else np.empty(rhs.shape, dtype)
    return answer(value.astype(dtype, copy=False).reshape(shape), found, batched, check, np.finfo(dtype).eps)


def inv(
    a: Any,
    *,
    pivoting: str = "partial",
    precision: str = "working",
    device: dispatch.Device = "auto",
    check: str = "raise",
) -> Any:
    """Invert a matrix, or every matrix of a batch. A singular one is an error or a status, never a wrong inverse.

    Parameters
    ----------
    a : array [n, n] or [batch, n, n]
        As for `solve`.
    pivoting, precision, device, check
        As for `solve`; in less than working precision the inverse is corrected by Newton's iteration.

    Returns
    -------
    array, shape of ``a``
        With ``check="status"`` a `DenseOutcome`.

    Raises
    ------
    As `solve`.
    """
    if (pivoting, precision, device, check) == ("partial", "working", "auto", "raise"):
        quick = inverted(a)
        if quick is not None:
            return quick
    check_choice("check", check, CHECKS)
    check_choice("precision", precision, PRECISIONS)
    if on_gpu(a, device, precision):
        from warpfront.dense import _lu_cuda

        return _lu_cuda.inv(a, pivoting, precision, check)
    given = working_matrix(a, 2, 3, finite=False)
    matrices = given if given.ndim == 3 else given[None]
    batched = given.ndim == 3

    def one(k: int, threads: int) -> DenseOutcome:
        if check == "raise":
            check_finite(matrices[k], f"matrix {k}" if batched else "a")
        return _invert_one(matrices[k], pivoting, precision, threads, check)

    found = each(matrices, one)
    if batched:
        value = np.stack([one.value for one in found]) if found else np.empty(matrices.shape, matrices.dtype)
    else:
        value = found[0].value
    return answer(value.reshape(given.shape), found, given.ndim == 3, check, np.finfo(given.dtype).eps)


def slogdet(a: Any, *, device: dispatch.Device = "auto") -> SignLog:
    """Sign and natural logarithm of the absolute determinant; ``(0, -inf)`` for a singular matrix.

    Parameters
    ----------
    a : array [n, n] or [batch, n, n]
        As for `solve`. The determinant of a 0 x 0 matrix is 1.
    device : {"auto", "cpu", "cuda"}

    Raises
    ------
    NonFiniteError, InvalidValueError, NotSupportedError
    """
    if device == "auto":
        quick = determined(a)
        if quick is not None:
            return SignLog(quick[0], quick[1])
    found = _determinant(a, device)
    return SignLog(found.sign, found.logabsdet)


def det(a: Any, *, device: dispatch.Device = "auto", check: str = "raise") -> Any:
    """Determinant, from the LU factorisation with products kept as mantissa and exponent.

    Parameters
    ----------
    a : array [n, n] or [batch, n, n]
        As for `solve`.
    device : {"auto", "cpu", "cuda"}
    check : {"raise", "status"}
        ``"status"``: return a `Determinant`, whose ``flag`` says ``singular``, ``underflow`` or ``overflow``.

    Returns
    -------
    number, or array [batch]
        Exactly 0 for a matrix with a zero pivot.

    Warns
    -----
    DeterminantRangeWarning
        The value underflowed to 0 or overflowed; `slogdet` has it.
    """
    check_choice("check", check, CHECKS)
    found = _determinant(a, device)
    if check == "status":
        return found
    flags = found.flag if isinstance(found.flag, list) else [found.flag]
    for flag in ("underflow", "overflow"):
        if flag in flags:
            warnings.warn(
                f"the determinant has an {flag} of its type; slogdet gives it",
                DeterminantRangeWarning,
                stacklevel=2,
            )
    return found.value


def rcond(a: Any, *, device: dispatch.Device = "auto") -> Any:
    """Reciprocal condition estimate in the 1-norm (Hager 1984; Higham 1988); 0 for a singular matrix.

    Parameters
    ----------
    a : array [n, n] or [batch, n, n]
    device : {"auto", "cpu", "cuda"}

    Returns
    -------
    float, or float64[batch]
    """
    if on_gpu(a, device, "working"):
        from warpfront.dense import _lu_cuda

        return _lu_cuda.rcond(a)
    given = working_matrix(a, 2, 3)
    matrices = given if given.ndim == 3 else given[None]
    found = np.array(each(matrices, lambda k, threads: _condition_one(matrices[k], threads)))
    return found if given.ndim == 3 else float(found[0])


# ---------------------------------------------------------------------- one matrix
def _solve_one(
    a: NDArray[Any], b: NDArray[Any], pivoting: str, precision: str, threads: int, check: str
) -> DenseOutcome:
    if first_bad(a) >= 0 or first_bad(b) >= 0:
        return _refused(b, Status.NON_FINITE, -1, "not started")
    if precision != "working":
        low = single_factor(a, pivoting, threads)
        kind = np.result_type(a.dtype, b.dtype)
        return refine_solve(a, b, low, kind, np, estimate=check == "status")
    factor = factor_matrix(a, pivoting, threads)
    method = f"LU, {pivoting} pivoting"
    if factor.overflowed:
        return _refused(b, Status.NON_FINITE, -1, method + OVERFLOWED)
    if factor.column >= 0:
        return _refused(b, Status.SINGULAR, factor.column, method)
    x = factor.solve(b)
    if first_bad(x) >= 0:
        return _refused(b, Status.NON_FINITE, -1, method + OVERFLOWED)
    if check == "raise":
        return DenseOutcome(x, Status.OK, -1, _screened_rcond(factor), float("nan"), 0, method)
    return DenseOutcome(x, Status.OK, -1, factor.rcond, backward_error(a, x, b), 0, method)


def _invert_one(a: NDArray[Any], pivoting: str, precision: str, threads: int, check: str) -> DenseOutcome:
    if first_bad(a) >= 0:
        return _refused(a, Status.NON_FINITE, -1, "not started")
    if precision != "working":
        low = single_factor(a, pivoting, threads)
        return refine_inverse(a, low, np, estimate=check == "status")
    factor = factor_matrix(a, pivoting, threads)
    method = f"inverse from LU, {pivoting} pivoting"
    if factor.overflowed:
        return _refused(a, Status.NON_FINITE, -1, method + OVERFLOWED)
    if factor.column >= 0:
        return _refused(a, Status.SINGULAR, factor.column, method)
    x = factor.solve(np.eye(len(a), dtype=a.dtype)) if len(a) <= EXACT else factor.inv()
    if first_bad(x) >= 0:
        return _refused(a, Status.NON_FINITE, -1, method + OVERFLOWED)
    if check == "raise":
        return DenseOutcome(x, Status.OK, -1, _screened_rcond(factor), float("nan"), 0, method)
    error = backward_error(a, x, np.eye(len(a), dtype=a.dtype))
    return DenseOutcome(x, Status.OK, -1, factor.rcond, error, 0, method)


def _refused(like: NDArray[Any], status: Status, column: int, method: str) -> DenseOutcome:
    value = np.full(like.shape, np.nan, like.dtype if like.dtype.kind in "fc" else np.float64)
    condition = 0.0 if status == Status.SINGULAR else float("nan")
    return DenseOutcome(value, status, column, condition, float("nan"), 0, method)


def _screened_rcond(factor: DenseLU) -> float:
    """Condition estimate where the pivots give reason for one, else NaN."""
    if not factor.lu.size:
        return 1.0
    return factor.rcond if suspicious(factor) else float("nan")


def backward_error(a: NDArray[Any], x: NDArray[Any], b: NDArray[Any]) -> float:
    """Normwise backward error in the infinity norm, worst column."""
    if not a.size:
        return 0.0
    x, b = x.reshape(len(a), -1), b.reshape(len(a), -1)
    if not x.shape[1]:
        return 0.0
    residual = np.abs(b - a @ x).max(axis=0)
    norm = float(np.abs(a).sum(axis=1).max())
    below = norm * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return float((residual / np.where(below > 0, below, 1)).max())


def _determinant(a: Any, device: dispatch.Device) -> Determinant:
    if device == "auto":
        plain = determined(a)
        if plain is not None:
            return _described(*plain, column=-1)
    if on_gpu(a, device, "working"):
        from warpfront.dense import _lu_cuda

        found: Determinant = _lu_cuda.determinant(a)
        return found
    given = working_matrix(a, 2, 3)
    matrices = given if given.ndim == 3 else given[None]
    members = each(matrices, lambda k, threads: _determinant_one(matrices[k], threads))
    if given.ndim == 2:
        single: Determinant = members[0]
        return single
    kind = given.dtype
    return Determinant(
        value=np.array([one.value for one in members], kind),
        sign=np.array([one.sign for one in members], kind),
        logabsdet=np.array([one.logabsdet for one in members], np.float64),
        flag=[one.flag for one in members],
        column=[one.column for one in members],
    )


def _condition_one(a: NDArray[Any], threads: int) -> float:
    factor = factor_matrix(a, "partial", threads)
    return (rescaled(a, "partial", threads)[0] if factor.overflowed else factor).rcond


def _determinant_one(a: NDArray[Any], threads: int) -> Determinant:
    factor = factor_matrix(a, "partial", threads)
    if not factor.overflowed:
        return _described(*factor.scaled_product(), column=factor.column)
    factor, power = rescaled(a, "partial", threads)
    if factor.column >= 0:
        return _described(*factor.scaled_product(), column=factor.column)
    return _described(*product_of(factor.lu.diagonal(), [factor.pivots], len(a) * power), column=-1)


def _described(sign: Any, logarithm: float, value: Any, *, column: int) -> Determinant:
    flag = "singular" if column >= 0 else "ok"
    if flag == "ok" and (value == 0 or not np.isfinite(value)):
        flag = "underflow" if value == 0 else "overflow"
    return Determinant(value, sign, logarithm, flag, column)
