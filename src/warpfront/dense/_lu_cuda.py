"""The public dense functions on the GPU. NumPy in gives NumPy out; device arrays stay in their library.

The status of a factorisation is read back before anything is returned: an inverse of a singular matrix never leaves
this module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpfront.backend import arrays, capability
from warpfront.dense._batch import answer
from warpfront.dense._checks import own_type, right_hand_sides, working_dtype
from warpfront.dense._device_lu import DeviceLU, factor, fan_out, mark_not_finite
from warpfront.dense._lu_small_cuda import RESULT, RIGHT_HAND_SIDE
from warpfront.dense.factor import product_of
from warpfront.dense.mixed import refine_inverse, refine_solve
from warpfront.dense.records import OVERFLOWED, DenseOutcome, Determinant, SignLog
from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError, Status

__all__ = ["determinant", "inv", "many_on_device", "rcond", "solve"]


@dataclass(frozen=True)
class _Input:
    """Matrices on the device, and how to hand the answer back."""

    matrices: Any
    library: str
    batched: bool

    def back(self, array: Any) -> Any:
        import cupy

        if self.library == "numpy":
            return cupy.asnumpy(array)
        if self.library == "torch":
            import torch

            return torch.from_dlpack(cupy.ascontiguousarray(array))
        return arrays.to_library(array, self.library)


def _to_device(x: Any) -> Any:
    import cupy

    return arrays.as_device_array(x) if arrays.is_device_array(x) else cupy.asarray(np.asarray(x))


def _read(a: Any) -> _Input:
    reason = capability.missing()
    if reason is not None:
        raise NotSupportedError(reason)
    library = arrays.library_of(a) or "numpy"
    array = _to_device(a)
    if array.ndim not in (2, 3) or array.shape[-1] != array.shape[-2]:
        raise InvalidValueError(f"a has shape {array.shape}; it must be [n, n] or [batch, n, n]")
    array = array.astype(working_dtype(array.dtype), copy=False)
    return _Input(array if array.ndim == 3 else array[None], library, array.ndim == 3)


def _only_partial(pivoting: str) -> None:
    if pivoting not in ("partial", "rook", "complete"):
        raise InvalidValueError(f"pivoting is {pivoting!r}; allowed are 'partial', 'rook', 'complete'")
    if pivoting != "partial":
        raise NotSupportedError(f"pivoting={pivoting!r} runs on the CPU only; copy the matrix to the host")


def _outcomes(found: DeviceLU, check: str, errors: Any, method: str) -> list[DenseOutcome]:
    result, nan = [], float("nan")
    for b, zero in enumerate(found.zero.tolist()):
        status, how = _status(found, b, method)
        condition, error = nan, nan
        if status == Status.SINGULAR:
            condition = 0.0
        elif status == Status.OK:
            error = float(errors[b])
            condition = found.condition(b) if check == "status" or found.doubtful[b] else nan
        column = zero if status == Status.SINGULAR else -1
        result.append(DenseOutcome(None, status, column, condition, error, 0, how))
    return result


def _status(found: DeviceLU, b: int, method: str) -> tuple[Status, str]:
    """Return what became of one system, and its method in words; as on the CPU, input that is not finite comes first."""
    facts, zero = found.facts[b], int(found.zero[b])
    if facts[RIGHT_HAND_SIDE] != 0 or (zero == -2 and not found.given_finite(b)):
        return Status.NON_FINITE, "not started"
    if zero >= 0:
        return Status.SINGULAR, method
    if zero == -2 or facts[RESULT] != 0:
        return Status.NON_FINITE, method + OVERFLOWED
    return Status.OK, method


def _errors(a: Any, x: Any, b: Any) -> Any:
    """Normwise backward errors, float64[batch] on the host."""
    import cupy

    if not b.size:
        return np.zeros(len(a))
    residual = abs(b - a @ x).max(axis=1)
    below = abs(a).sum(axis=2).max(axis=1)[:, None] * abs(x).max(axis=1) + abs(b).max(axis=1)
    return cupy.asnumpy((residual / cupy.where(below > 0, below, 1)).max(axis=1))


class _Queued:
    """An operation whose work is queued; `finish` waits for it and makes the answer."""

    def __init__(self, given: _Input, kind: Any, shape: tuple[int, ...], method: str) -> None:
        self.given, self.kind, self.shape, self.method = given, kind, shape, method
        self.factors: DeviceLU | None = None
        self.found: list[DenseOutcome] = []
        self.x: Any = None
        self.right: Any = None

    def finish(self, check: str) -> Any:
        import cupy

        if self.factors is not None:
            matrices, report = self.given.matrices, self.factors.report
            mark_not_finite(self.x, report, RESULT)
            if self.right is not None:
                mark_not_finite(self.right, report, RIGHT_HAND_SIDE)
            errors = np.full(len(matrices), np.nan)
            if check == "status":
                right = (
                    cupy.eye(matrices.shape[1], dtype=self.kind)[None] if self.right is None else self.right
                )
                errors = _errors(matrices, self.x, right)
            self.found = _outcomes(self.factors, check, errors, self.method)
        x = cupy.ascontiguousarray(_blank_failed(self.x, self.found).astype(self.kind, copy=False))
        value = self.given.back(x.reshape(self.shape))
        return answer(value, self.found, self.given.batched, check, float(np.finfo(self.kind).eps))


def _queue_solve(a: Any, b: Any, precision: str, check: str = "status") -> _Queued:
    given = _read(a)
    import cupy

    rhs, shape = right_hand_sides(given.matrices if given.batched else given.matrices[0], _to_device(b), cupy)
    kind = np.result_type(given.matrices.dtype, rhs.dtype)
    columns = rhs if rhs.ndim == 3 else rhs[:, :, None]
    queued = _Queued(given, kind, shape, "LU on the GPU, partial pivoting")
    queued.right = columns
    if precision != "working":
        queued.x, queued.found = _refined(given.matrices, columns, precision, kind, check == "status")
        return queued
    matrices = given.matrices.astype(own_type(given.matrices.dtype, kind), copy=False)
    queued.factors = factor(matrices)
    if columns.dtype.kind == "c" and matrices.dtype.kind != "c":
        queued.x = queued.factors.solve(columns.real) + 1j * queued.factors.solve(columns.imag)
    else:
        queued.x = queued.factors.solve(columns)
    return queued


def _queue_inverse(a: Any, precision: str, check: str = "status") -> _Queued:
    given = _read(a)
    matrices = given.matrices
    kind, n = matrices.dtype, matrices.shape[1]
    queued = _Queued(given, kind, matrices.shape if given.batched else (n, n), "inverse from LU on the GPU")
    if precision != "working":
        queued.x, queued.found = _refined(matrices, None, precision, kind, check == "status")
    else:
        queued.factors = factor(matrices)
        queued.x = queued.factors.inverse()
    return queued


def solve(a: Any, b: Any, pivoting: str, precision: str, check: str) -> Any:
    """As `warpfront.dense.solve`, on the GPU."""
    _only_partial(pivoting)
    return _queue_solve(a, b, precision, check).finish(check)


def inv(a: Any, pivoting: str, precision: str, check: str) -> Any:
    """As `warpfront.dense.inv`, on the GPU."""
    _only_partial(pivoting)
    return _queue_inverse(a, precision, check).finish(check)


def many_on_device(operation: str, matrices: Any, others: Any, streams: int) -> list[Any]:
    """As `warpfront.dense.many`: everything is queued, then the answers are made one by one."""
    waiting: list[Any] = [None] * len(matrices)

    def run(k: int) -> None:
        if operation == "solve":
            waiting[k] = _queue_solve(matrices[k], others[k], "working")
        elif operation == "inv":
            waiting[k] = _queue_inverse(matrices[k], "working")
        else:
            given = _read(matrices[k])
            waiting[k] = (given, factor(given.matrices))

    fan_out(len(matrices), run, streams)
    if operation in ("solve", "inv"):
        return [queued.finish("status") for queued in waiting]
    if operation == "rcond":
        return [_condition_of(*pair) for pair in waiting]
    found = [_determinant_of(*pair) for pair in waiting]
    return found if operation == "det" else [SignLog(one.sign, one.logabsdet) for one in found]


def _blank_failed(x: Any, found: list[DenseOutcome]) -> Any:
    failed = [k for k, one in enumerate(found) if one.status not in (Status.OK, Status.REFINEMENT_FAILED)]
    if failed:
        x[failed] = np.nan
    return x


def _refined(
    matrices: Any, columns: Any, precision: str, kind: Any, estimate: bool
) -> tuple[Any, list[DenseOutcome]]:
    """Solve (or invert, without right-hand sides) with factors of low precision, one matrix after another."""
    import cupy

    from warpfront.dense._lu_low_cuda import LowFactor

    found = []
    for b in range(len(matrices)):
        finite = cupy.isfinite(matrices[b]).all()
        if not bool(finite if columns is None else finite & cupy.isfinite(columns[b]).all()):
            empty = cupy.full_like(matrices[b] if columns is None else columns[b], np.nan, dtype=kind)
            found.append(
                DenseOutcome(empty, Status.NON_FINITE, -1, float("nan"), float("nan"), 0, "not started")
            )
            continue
        low = LowFactor.of(matrices[b], precision)
        if columns is None:
            found.append(refine_inverse(matrices[b], low, cupy, estimate=estimate))
        else:
            found.append(refine_solve(matrices[b], columns[b], low, kind, cupy, estimate=estimate))
    like = matrices if columns is None else columns
    x = cupy.stack([one.value for one in found]) if found else cupy.empty(like.shape, kind)
    return x, found


def rcond(a: Any) -> Any:
    """As `warpfront.dense.rcond`, on the GPU; the answer is on the host."""
    given = _read(a)
    return _condition_of(given, factor(given.matrices))


def _condition_of(given: _Input, found: DeviceLU) -> Any:
    again = _rescaled(found)
    result = [again[b][0].condition(0) if b in again else found.condition(b) for b in range(len(found.lu))]
    return np.array(result, np.float64) if given.batched else float(result[0])


def _rescaled(found: DeviceLU) -> dict[int, tuple[DeviceLU, int]]:
    """Factor again, with the largest entry in [0.5, 1), what overflowed; matrices by number, and their exponents.

    Raises
    ------
    NonFiniteError
        A matrix itself is not finite, or overflows all the same.
    """
    again = {}
    for b in np.flatnonzero(found.zero == -2).tolist():
        a = found.matrices[b]
        if not found.given_finite(b):
            raise NonFiniteError(f"an entry of matrix {b} is NaN or infinite")
        largest = float(max(abs(a.real).max(), abs(a.imag).max()) if a.dtype.kind == "c" else abs(a).max())
        power = math.frexp(largest)[1]
        half = power // 2  # in two steps: CuPy takes a factor below the normal range for 0
        scaled = factor((a * a.dtype.type(2.0**-half) * a.dtype.type(2.0 ** (half - power)))[None])
        if scaled.zero[0] == -2:
            raise NonFiniteError(
                f"the factors of matrix {b} overflow, scaled or not: its entries grow too much"
            )
        again[b] = scaled, power
    return again


def determinant(a: Any) -> Determinant:
    """As `warpfront.dense.det`, on the GPU: mantissas and exponents of the pivots, multiplied in pieces of 512."""
    given = _read(a)
    return _determinant_of(given, factor(given.matrices))


def _product(scaled: DeviceLU, power: int) -> tuple[Any, float, Any]:
    """Sign, logarithm and value of the determinant of one matrix that was factored as ``2**-power`` of itself."""
    import cupy

    if scaled.zero[0] >= 0:
        return 0, float("-inf"), 0
    diagonal, swaps = cupy.asnumpy(scaled.lu[0].diagonal()), cupy.asnumpy(scaled.pivots[0])
    return product_of(diagonal, [swaps], scaled.order * power)


def _determinant_of(given: _Input, found: DeviceLU) -> Determinant:
    columns, sizes, logarithm = found.zero.copy(), found.facts[:, 5].copy(), found.facts[:, 4].copy()
    for b, (scaled, power) in _rescaled(found).items():
        found.sign[b], logarithm[b], found.value[b] = _product(scaled, power)
        columns[b], sizes[b] = scaled.zero[0], float(abs(found.value[b]))
    columns = columns.tolist()
    flags = [
        "singular" if zero >= 0 else "underflow" if size == 0 else "ok" if np.isfinite(size) else "overflow"
        for zero, size in zip(columns, sizes.tolist(), strict=True)
    ]
    if given.library != "numpy":
        import cupy

        logarithm = cupy.asarray(logarithm)
    if given.batched:
        return Determinant(
            given.back(found.value), given.back(found.sign), given.back(logarithm), flags, columns
        )
    return Determinant(
        given.back(found.value)[0], given.back(found.sign)[0], given.back(logarithm)[0], flags[0], columns[0]
    )
