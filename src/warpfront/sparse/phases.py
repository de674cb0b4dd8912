"""What each phase of a solver does with the matrix: one function a phase, records included.

`DirectSolver` keeps the state; nothing here remembers anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings as environment
from warpfront.errors import InvalidValueError, Status
from warpfront.report import AnalysisRecord, FactorRecord, SolveRecord
from warpfront.sparse.general import analyze_lu, factor_lu, with_defaults
from warpfront.sparse.parameters import Settings
from warpfront.sparse.structure import System, positive_diagonal

__all__ = [
    "Factored",
    "analysis_record",
    "analyze_system",
    "factor_record",
    "factor_values",
    "fit_settings",
    "refiner",
    "solve_columns",
    "solve_record",
]


def analyze_system(system: System, values: NDArray[Any], settings: Settings) -> Any:
    """Order, find the fronts and plan memory; returns a `Symbolic`."""
    if system.structure == "G":
        return analyze_lu(system.pattern, values, settings)
    from warpfront.sparse.analysis import analyze

    return analyze(
        system.pattern,
        values,
        indefinite=system.structure == "S",
        ordering=settings["reordering_alg"],
        user_perm=settings["user_perm"],
    )


def analysis_record(system: System, symbolic: Any, seconds: float, jit_seconds: float) -> AnalysisRecord:
    """Say what the analysis chose."""
    return AnalysisRecord(
        n=symbolic.n,
        nnz=system.operand.nnz,
        structure=system.structure,
        structure_reason=system.reason,
        ordering=symbolic.ordering.method,
        ordering_reason=symbolic.ordering.reason,
        candidates=symbolic.ordering.candidates,
        nnz_factor=symbolic.nnz_factor,
        flops=symbolic.flops,
        n_supernodes=symbolic.n_supernodes,
        max_front=symbolic.max_front,
        tree_depth=symbolic.tree_depth,
        n_pairs=symbolic.pairs,
        seconds=seconds,
        jit_seconds=jit_seconds,
        **_lu_facts(symbolic.general),
    )


def _lu_facts(general: Any) -> dict[str, Any]:
    if general is None:
        return {}
    return {
        "matching": general.matching,
        "n_blocks": general.n_blocks,
        "structural_rank": general.structural_rank,
    }


class Factored(NamedTuple):
    """A factor, the name of its method, and its buffers with the key they may be used again under.

    LU: ``scaling`` in words, and whether it replaces one that no longer fits.
    """

    factor: Any
    method: str
    kept: tuple[tuple[bool, int], Any] | None
    scaling: str = ""
    stale: bool = False


def _threads(settings: Settings) -> int:
    asked = int(settings["host_nthreads"])
    return asked if asked > 0 else environment.threads()


def factor_values(
    system: System, symbolic: Any, values: NDArray[Any], settings: Settings, kept: Any
) -> Factored:
    """Factor canonical ``values``; ``kept`` are the buffers of an earlier call, or None."""
    from warpfront.sparse.analysis import equilibrate
    from warpfront.sparse.numeric.factorize import FactorOptions, factorize

    threads = _threads(settings)
    if system.structure == "G":
        buffers = kept[1] if kept is not None and kept[0] == (False, threads) else None
        lu = factor_lu(symbolic, values, settings, threads, buffers)
        again = ((False, threads), lu.factor.state) if lu.symbolic is symbolic else None
        return Factored(lu.factor, "LU", again, lu.scaling.how, lu.scaling.stale)
    cholesky = system.structure == "SPD"
    if system.open_choice:
        cholesky = positive_diagonal(system.pattern, values)
    buffers = kept[1] if kept is not None and kept[0] == (cholesky, threads) else None
    scaled = settings["scaling"] == "equilibrate" or (settings["scaling"] == "auto" and not cholesky)
    scale = equilibrate(system.pattern, values) if scaled else None
    options = FactorOptions(
        cholesky=cholesky,
        threads=threads,
        pivot_threshold=settings["pivot_threshold"],
        zero_pivot=settings["zero_pivot_tol"] if scaled else min(settings["zero_pivot_tol"], 1e-15),
        pivot_epsilon=settings["pivot_epsilon"],
        perturb=settings["on_unstable"] == "perturb" and settings["pivot_epsilon"] > 0,
    )
    factor = factorize(symbolic, values, scale, options, buffers)
    method = "LL^T" if cholesky else "LDL^T"
    if system.open_choice and factor.status == Status.NOT_POSITIVE_DEFINITE:
        method = f"LDL^T (Cholesky stopped at column {factor.column}: not positive definite)"
        scale = equilibrate(system.pattern, values) if settings["scaling"] != "none" else None
        factor = factorize(symbolic, values, scale, replace(options, cholesky=False))
    return Factored(factor, method, ((factor.options.cholesky, threads), factor.state))


def factor_record(
    symbolic: Any, factored: Factored, itemsize: int, seconds: float, jit_seconds: float
) -> FactorRecord:
    """Say what the factorisation did; ``itemsize`` is that of one entry of the factor."""
    factor = factored.factor
    return FactorRecord(
        status=factor.status,
        column=factor.column,
        method=factored.method,
        scaling=factored.scaling or ("none" if factor.scale is None else "symmetric equilibration"),
        inertia=None if symbolic.general is not None else factor.inertia,
        inertia_certain=symbolic.general is None
        and factor.status in (Status.OK, Status.SINGULAR)
        and factor.pivots.perturbed + factor.pivots.doubtful == 0,
        pivots=factor.pivots,
        nnz_factor=factor.nnz_factor,
        flops=symbolic.flops,
        factor_bytes=factor.nnz_factor * itemsize,
        peak_bytes=factor.nbytes,
        threads=factor.options.threads,
        seconds=seconds,
        jit_seconds=jit_seconds,
        stale_matching=factored.stale,
    )


def fit_settings(system: System, settings: Settings) -> None:
    """Fill in the defaults that depend on the structure, and check what only some structures allow.

    Raises
    ------
    InvalidValueError
        A threshold no pivot of order 2 can keep.
    """
    if system.structure == "G":
        with_defaults(settings)
    elif settings["pivot_threshold"] > 0.5:
        raise InvalidValueError(
            f"pivot_threshold is {settings['pivot_threshold']!r}; allowed is 0.0 to 0.5 for LDL^T (1.0 for LU)"
        )


def refiner(system: System, factor: Any, values: NDArray[Any]) -> Callable[[str], Any]:
    """Return the function that gives the refined solver of ``trans``: "N", "T" or "H"."""
    from warpfront.sparse.solve.triangular import Sweeper

    sweeper = Sweeper(factor)
    if system.structure == "G":
        from warpfront.sparse.solve.refine_general import GeneralRefiner

        return cache(lambda trans: GeneralRefiner(sweeper, system.pattern, values, trans))
    from warpfront.sparse.solve.refine import Refiner

    return cache(lambda _: Refiner(sweeper, system.pattern, values))


def solve_columns(
    refiner: Any, rhs: NDArray[np.float64], steps: int
) -> tuple[NDArray[np.float64], tuple[int, float, float]]:
    """Solve column by column, so that a column's bits do not depend on its neighbours.

    Returns
    -------
    x, (steps, componentwise, normwise) : float64 of rhs's shape, and the worst over the columns
    """
    columns = rhs[None, :] if rhs.ndim == 1 else np.ascontiguousarray(rhs.T)
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
    return np.ascontiguousarray(x.T).reshape(rhs.shape), (taken, component, whole)


def solve_record(
    status: Status,
    shape: tuple[int, ...],
    worst: tuple[int, float, float],
    tolerance: float,
    seconds: float,
    jit_seconds: float,
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
        seconds=seconds,
        jit_seconds=jit_seconds,
    )
