"""Run the dense functions over a batch, and turn outcomes into what the caller asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from warpfront.backend import settings
from warpfront.dense import _lu_blocked as cpu
from warpfront.dense.factor import matrix_threads
from warpfront.dense.records import OVERFLOWED, DenseOutcome
from warpfront.errors import (
    IllConditionedWarning,
    NonFiniteError,
    RefinementFailedError,
    SingularMatrixError,
    Status,
)

__all__ = ["answer", "each", "raise_for"]


def each(matrices: NDArray[Any], work: Callable[[int, int], Any]) -> list[Any]:
    """Run ``work(k, threads)`` for every matrix: threads inside a single one, or one thread for each of many."""
    count = len(matrices)
    if count == 1:
        return [work(0, matrix_threads(matrices.shape[-1]))]
    found: list[Any] = [None] * count

    def run(first: int, last: int) -> None:
        for k in range(first, last):
            found[k] = work(k, 1)

    step = max(1, min(64, count // 8))
    threads = settings.threads() if matrices.size > 1 << 16 else 1
    cpu.share_jobs(threads, (partial(run, k, min(k + step, count)) for k in range(0, count, step)))
    return found


def answer(value: Any, found: list[DenseOutcome], batched: bool, check: str, eps: float) -> Any:
    if check == "status":
        if not batched:
            return _with_value(found[0], value)
        return DenseOutcome(
            value,
            [one.status for one in found],
            [one.column for one in found],
            [one.rcond for one in found],
            [one.backward_error for one in found],
            [one.refinement_steps for one in found],
            found[0].method if found else "empty batch",
        )
    for k, one in enumerate(found):
        raise_for(one, f" of matrix {k}" if batched else "")
    worst = min((one.rcond for one in found if one.rcond == one.rcond), default=1.0)
    if worst < eps:
        warnings.warn(
            f"ill-conditioned: reciprocal condition estimate {worst:.1e}; few or no digits of the result are right",
            IllConditionedWarning,
            stacklevel=3,
        )
    return value


def _with_value(one: DenseOutcome, value: Any) -> DenseOutcome:
    return DenseOutcome(
        value, one.status, one.column, one.rcond, one.backward_error, one.refinement_steps, one.method
    )


def raise_for(one: DenseOutcome, where: str) -> None:
    """Raise what a status stands for."""
    if one.status == Status.SINGULAR:
        raise SingularMatrixError(f"singular: pivot {one.column}{where} is exactly zero", one.column)
    if one.status == Status.NON_FINITE and one.method.endswith(OVERFLOWED):
        raise NonFiniteError(
            f"the result{where} does not fit its type, or the factors do not: an entry overflows; scale the matrix"
        )
    if one.status == Status.NON_FINITE:
        raise NonFiniteError(f"an entry{where} (matrix or right-hand side) is NaN or infinite")
    if one.status == Status.REFINEMENT_FAILED:
        raise RefinementFailedError(
            f"refinement{where} stays at a backward error of {one.backward_error:.1e}; use precision='working'",
            one.backward_error,
        )
