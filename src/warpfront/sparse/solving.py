"""The solve phase of a solver: refinement set up, right-hand sides solved one by one, errors measured, record made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import Clock
from warpfront.errors import Status
from warpfront.report import SolveRecord
from warpfront.sparse.parameters import Settings
from warpfront.sparse.structure import System

MANY = 4  # right-hand sides from which they are solved in blocks

__all__ = ["forward_error_bound", "make_refiner", "one_norm", "solve_columns", "solve_record"]


def make_refiner(
    system: System, factor: Any, values: NDArray[Any], settings: Settings
) -> Callable[[str], Any]:
    """Return the function that gives the `Refiner` of ``trans``: "N", "T" or "H"."""
    from warpfront.sparse.solve.refine import Refiner, SymmetricOperator
    from warpfront.sparse.solve.triangular import Sweeper

    sweeper, fgmres = Sweeper(factor), settings["ir_mode"] == "fgmres"
    if system.structure == "G":
        from warpfront.sparse.solve.refine_general import GeneralOperator, GeneralRefiner

        return cache(
            lambda trans: GeneralRefiner(
                sweeper, GeneralOperator(system.pattern, values, trans), fgmres, trans
            )
        )
    one = Refiner(sweeper, SymmetricOperator(system.pattern, values, system.hermitian), fgmres)
    return lambda _: one


def one_norm(system: System, values: NDArray[Any]) -> float:
    """1-norm of the matrix; sizes of complex entries are ``|re| + |im|``."""
    from warpfront.sparse.solve._general_residual_kernels import general_sums
    from warpfront.sparse.solve._residual_kernels import row_sums

    pattern = system.pattern
    if system.structure == "G":
        return float(general_sums(pattern.ptr, pattern.ind, values, 1).max(initial=0.0))
    return float(row_sums(pattern.ptr, pattern.ind, values).max(initial=0.0))


def solve_columns(
    refiner: Any, rhs: NDArray[Any], steps: int, conjugate: bool
) -> tuple[NDArray[Any], tuple[int, float, float]]:
    """Solve column by column, or many at a time; a column's bits do not depend on its neighbours.

    Parameters
    ----------
    refiner : Refiner
    rhs : [n] or [n, k]
        Complex for a real matrix: real and imaginary parts are solved apart.
    steps : int
        Refinement steps at most.
    conjugate : bool
        Solve with the conjugate of the matrix.

    Returns
    -------
    x, (steps, componentwise, normwise) : array like rhs, and the worst over the columns
    """
    if (
        rhs.ndim == 2
        and rhs.shape[1] >= MANY
        and rhs.dtype == refiner.operator.dtype
        and refiner.takes_blocks
    ):
        x = np.empty_like(rhs)
        result = refiner.solve_block(rhs, x, steps)
        errors = (result.componentwise, result.normwise) if steps else (float("nan"), float("nan"))
        return x, (result.steps, *errors)
    columns = rhs[None, :] if rhs.ndim == 1 else np.ascontiguousarray(rhs.T)
    split = columns.dtype != refiner.operator.dtype
    count = columns.shape[0]
    if split:
        columns = np.concatenate([columns.real, columns.imag])
    elif conjugate:
        columns = columns.conj()
    x = np.empty_like(columns)
    taken, component, whole = 0, 0.0, 0.0
    for k in range(columns.shape[0]):
        if steps == 0:
            refiner.solve_unrefined(columns[k], x[k])
            component = whole = float("nan")
        else:
            result = refiner.solve(columns[k], x[k], steps)
            taken = max(taken, result.steps)
            component, whole = max(component, result.componentwise), max(whole, result.normwise)
    if split:
        joined = np.empty((count, x.shape[1]), rhs.dtype)
        joined.real, joined.imag = x[:count], x[count:]
        x = joined
    elif conjugate:
        np.conjugate(x, out=x)
    return np.ascontiguousarray(x.T).reshape(rhs.shape), (taken, component, whole)


def forward_error_bound(refiner: Any, rhs: NDArray[Any], x: NDArray[Any], solve: Any, adjoint: Any) -> float:
    """Bound of ``max |x - x_exact| / max |x|``, the worst over the columns; LAPACK's, by Hager's estimator.

    ``|A^-1| (|r| + (m + 1) eps (|A| |x| + |b|))`` bounds the error where m entries stand in a row: r has that much
    rounding of its own. ``solve`` and ``adjoint`` apply ``A^-1`` and ``A^-H``.
    """
    from warpfront.sparse.solve.condition import weighted_inverse_norm

    worst = 0.0
    operator = refiner.operator
    columns, solutions = (np.ascontiguousarray(np.atleast_2d(part.T)) for part in (rhs, x))
    for b, y in zip(columns, solutions, strict=True):
        top = float(np.abs(y).max(initial=0.0))
        if top == 0.0:
            continue
        refiner.measure(b, y)
        weights = np.abs(refiner.residual) + (operator.row_entries + 1) * refiner.eps * refiner.size
        worst = max(worst, weighted_inverse_norm(weights, solve, adjoint, operator.dtype) / top)
    return worst


def solve_record(
    status: Status,
    shape: tuple[int, ...],
    worst: tuple[int, float, float],
    tolerance: float,
    clock: Clock,
    forward: float = float("nan"),
) -> SolveRecord:
    """Say what a solve did; ``status`` is the factor's."""
    taken, component, whole = worst
    failed = whole > tolerance and status == Status.OK
    return SolveRecord(
        status=Status.REFINEMENT_FAILED if failed else status,
        n_rhs=1 if len(shape) == 1 else shape[1],
        refinement_steps=taken,
        backward_error=whole,
        componentwise_error=component,
        seconds=clock.seconds,
        jit_seconds=clock.jit_seconds,
        forward_error=forward,
    )
