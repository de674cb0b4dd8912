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
from warpfront.backend.cpu import Clock
from warpfront.errors import InvalidValueError, NotSupportedError, Status
from warpfront.report import AnalysisRecord, FactorRecord, SolveRecord
from warpfront.sparse.general import analyze_lu, factor_lu
from warpfront.sparse.parameters import Settings
from warpfront.sparse.structure import System, positive_diagonal

__all__ = [
    "Factored",
    "analysis_record",
    "analyze_system",
    "check_settings",
    "factor_record",
    "factor_values",
    "forward_error_bound",
    "make_refiner",
    "not_factored",
    "one_norm",
    "solve_columns",
    "solve_record",
]

SEARCH = {"auto": 0, "bunch_kaufman": 0, "diagonal": 1, "none": 2}  # as in numeric/_ldlt_kernels


def analyze_system(system: System, values: NDArray[Any], settings: Settings) -> Any:
    """Order, find the fronts and plan memory; returns a `Symbolic`."""
    if system.structure == "G":
        return analyze_lu(system.pattern, values, settings)
    from warpfront.sparse.analysis import analyze

    return analyze(
        system.pattern,
        values,
        indefinite=not system.positive,
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
    kept: tuple[Any, Any] | None
    scaling: str = ""
    stale: bool = False


def _threads(settings: Settings) -> int:
    asked = int(settings["host_nthreads"])
    return asked if asked > 0 else environment.threads()


def factor_dtype(system: System, settings: Settings) -> np.dtype[Any]:
    """Type of the factor: the matrix's, or its single-precision counterpart."""
    if not settings["downcast_factors"]:
        return system.dtype
    return np.dtype(np.complex64 if system.dtype.kind == "c" else np.float32)


def factor_options(system: System, symbolic: Any, settings: Settings, cholesky: bool, scaled: bool) -> Any:
    """Translate the settings for one factorisation."""
    from warpfront.sparse.numeric.factorize import FactorOptions

    zero = settings["zero_pivot_tol"]
    eps = float(np.finfo(factor_dtype(system, settings)).eps)
    sign = settings["pivot_sign"]
    return FactorOptions(
        cholesky=cholesky,
        threads=_threads(settings),
        pivot_threshold=settings["pivot_threshold"],
        zero_pivot=zero if scaled else min(zero, 4.5 * eps),
        pivot_epsilon=settings["pivot_epsilon"],
        perturb=settings["pivot_epsilon"] > 0
        and (settings["on_unstable"] == "perturb" or settings["pivot_type"] == "none"),
        hermitian=system.hermitian,
        search=SEARCH[settings["pivot_type"]],
        sign=np.empty(0, np.int8) if sign is None else sign[symbolic.perm],
        static_epsilon=settings["pivot_epsilon_alg"] == "static",
    )


def factor_values(
    system: System, symbolic: Any, values: NDArray[Any], settings: Settings, kept: Any
) -> Factored:
    """Factor canonical ``values``; ``kept`` are the buffers of an earlier call, or None."""
    from warpfront.sparse.analysis import equilibrate
    from warpfront.sparse.numeric.factorize import factorize

    dtype = factor_dtype(system, settings)
    threads = _threads(settings)
    if system.structure == "G":
        buffers = kept[1] if kept is not None and kept[0] == (False, threads, dtype) else None
        lu = factor_lu(symbolic, values, settings, threads, buffers)
        again = ((False, threads, dtype), lu.factor.state) if lu.symbolic is symbolic else None
        return Factored(_outcome(lu.factor, settings), "LU", again, lu.scaling.how, lu.scaling.stale)
    cholesky = system.positive
    if system.open_choice:
        cholesky = positive_diagonal(system.pattern, values)
    scaling = settings["scaling"]
    narrow = dtype != system.dtype
    scaled = scaling == "equilibrate" or (scaling == "auto" and (narrow or not cholesky))
    scale = equilibrate(system.pattern, values) if scaled else None
    options = factor_options(system, symbolic, settings, cholesky, scaled)
    buffers = kept[1] if kept is not None and kept[0] == (cholesky, threads, dtype) else None
    factor = factorize(symbolic, values, scale, options, buffers, dtype)
    cross = "H" if system.hermitian else "T"
    method = f"LL^{cross}" if cholesky else f"LDL^{cross}"
    if system.open_choice and factor.status == Status.NOT_POSITIVE_DEFINITE:
        method = f"LDL^{cross} (Cholesky stopped at column {factor.column}: not positive definite)"
        scaled = scaling != "none"
        scale = equilibrate(system.pattern, values) if scaled else None
        options = factor_options(system, symbolic, settings, False, scaled)
        factor = factorize(symbolic, values, scale, options, None, dtype)
    if narrow:
        method += f" in {dtype}"
    return Factored(
        _outcome(factor, settings), method, ((factor.options.cholesky, threads, dtype), factor.state)
    )


def _outcome(factor: Any, settings: Settings) -> Any:
    """With ``on_unstable="error"`` a factor with delayed or perturbed pivots is UNSTABLE, at its first such column."""
    if (
        settings["on_unstable"] != "error"
        or factor.status != Status.OK
        or factor.pivots.delayed + factor.pivots.perturbed == 0
    ):
        return factor
    node = factor.state.node
    left = np.flatnonzero(node[:, 4] > node[:, 5])
    column = -1
    if left.size:
        at = int(node[left[0], 1] + node[left[0], 5])
        own = factor.state.ind if factor.symbolic.general is None else factor.state.col
        column = int(factor.symbolic.perm[own[at]])
    return replace(factor, status=Status.UNSTABLE, column=column)


def not_factored(symbolic: Any, kept: Any) -> Factored:
    """What stands for a factor where the matrix holds NaN or infinity: nothing was computed."""
    from warpfront.report import Inertia, PivotStats
    from warpfront.sparse.numeric.factorize import Factor, FactorOptions

    nothing = PivotStats(0, 0, 0, 0, 0, 0)
    nowhere: Any = None
    factor = Factor(
        symbolic,
        nowhere,
        FactorOptions(cholesky=False),
        None,
        Status.NON_FINITE,
        -1,
        Inertia(0, 0, 0),
        nothing,
    )
    return Factored(factor, "none: the matrix holds NaN or infinity", kept)


def factor_record(
    system: System, factored: Factored, flops: float, seconds: float, jit_seconds: float
) -> FactorRecord:
    """Say what the factorisation did; ``flops`` are the planned ones."""
    factor = factored.factor
    stored = 0 if factor.state is None else factor.nnz_factor
    known = factored.method != "LU" and (system.dtype.kind != "c" or system.structure != "S")
    return FactorRecord(
        status=factor.status,
        column=factor.column,
        method=factored.method,
        scaling=factored.scaling or ("none" if factor.scale is None else "symmetric equilibration"),
        inertia=factor.inertia if known else None,
        inertia_certain=known
        and factor.status in (Status.OK, Status.SINGULAR)
        and factor.pivots.perturbed + factor.pivots.doubtful == 0,
        pivots=factor.pivots,
        nnz_factor=stored,
        flops=flops,
        factor_bytes=stored * factor.state.panel.itemsize if stored else 0,
        peak_bytes=0 if factor.state is None else factor.nbytes,
        threads=factor.options.threads,
        seconds=seconds,
        jit_seconds=jit_seconds,
        stale_matching=factored.stale,
    )


def check_settings(system: System, settings: Settings) -> None:
    """Check what only some structures allow.

    Raises
    ------
    InvalidValueError
        A threshold no pivot of order 2 can keep; marks of another length than the matrix.
    """
    threshold, n = settings["pivot_threshold"], system.pattern.n_cols
    if system.structure != "G" and threshold > 0.5:
        raise InvalidValueError(
            f"pivot_threshold is {threshold!r}; allowed is 0.0 to 0.5 for LDL^T (1.0 for LU)"
        )
    if system.structure == "G" and settings["downcast_factors"]:
        raise NotSupportedError("downcast_factors is for LL^T and LDL^T; LU keeps the dtype of the matrix")
    sign = settings["pivot_sign"]
    if sign is not None and sign.shape != (n,):
        raise InvalidValueError(f"pivot_sign has {sign.shape[0]} entries; the matrix has {n} rows")


def make_refiner(
    system: System, factor: Any, values: NDArray[Any], settings: Settings
) -> Callable[[str], Any]:
    """Return the function that gives the `Refiner` of ``trans``: "N", "T" or "H"."""
    from warpfront.sparse.solve.refine import Refiner, SymmetricOperator
    from warpfront.sparse.solve.triangular import Sweeper

    sweeper, fgmres = Sweeper(factor), settings["ir_mode"] == "fgmres"
    if system.structure == "G":
        from warpfront.sparse.solve.refine_general import GeneralOperator

        return cache(
            lambda trans: Refiner(sweeper, GeneralOperator(system.pattern, values, trans), fgmres, trans)
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
    """Solve column by column, so that a column's bits do not depend on its neighbours.

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
