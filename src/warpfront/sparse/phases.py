"""What each phase of a solver does with the matrix: one function a phase, records included.

`DirectSolver` keeps the state; nothing here remembers anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings as environment
from warpfront.errors import InvalidValueError, NotSupportedError, PatternChangedError, Status
from warpfront.report import AnalysisRecord, FactorRecord
from warpfront.sparse.general import analyze_lu, factor_lu
from warpfront.sparse.parameters import Settings
from warpfront.sparse.structure import System, positive_diagonal

__all__ = [
    "Factored",
    "analysis_record",
    "analyze_system",
    "check_settings",
    "check_symbolic",
    "factor_record",
    "factor_values",
    "matching_would_help",
    "not_factored",
]

FILL_OF_DELAYS = 1.5  # fill beyond the plan, as a multiple of it, from which a matching is tried
RANGE = (
    16.0  # largest scaled entry of a row outside [1/RANGE, RANGE]: the scaling of the matching no longer fits
)
_NOTHING = np.empty(0)
SEARCH = {"auto": 0, "bunch_kaufman": 0, "diagonal": 1, "none": 2}  # as in numeric/_ldlt_kernels


def analyze_system(
    system: System, values: NDArray[Any], settings: Settings, matching: bool = False, steps: Any = None
) -> Any:
    """Order, find the fronts and plan memory; returns a `Symbolic`.

    ``matching``: also where ``auto`` does without. ``steps``: a stop watch, `analysis.steps.Steps`.
    """
    if system.structure == "G":
        return analyze_lu(system.pattern, values, settings, steps=steps)
    from warpfront.sparse.analysis import analyze

    return analyze(
        system.pattern,
        values,
        indefinite=not system.positive,
        ordering=settings["reordering_alg"],
        user_perm=settings["user_perm"],
        matching=matching or settings["matching_alg"] == "max_diag_product",
        target=settings.target,
        steps=steps,
    )


def matching_would_help(system: System, settings: Settings, factor: Any) -> bool:
    """Whether delayed pivots made so much fill that ``auto`` tries pairs and scaling by a matching."""
    if settings["matching_alg"] != "auto" or settings["reordering_alg"] == "user" or system.structure == "G":
        return False
    symbolic = factor.symbolic
    return bool(
        factor.status in (Status.OK, Status.SINGULAR)
        and not factor.options.cholesky
        and symbolic.scale is None
        and factor.pivots.delayed > 0
        and factor.nnz_factor > FILL_OF_DELAYS * symbolic.nnz_factor
    )


def _symmetric_scale(
    system: System, symbolic: Any, values: NDArray[Any], wanted: str
) -> tuple[NDArray[np.float64], str, bool]:
    """Scaling for one set of values: the matching's while it fits, else equilibration; in words; whether it is stale."""
    from warpfront.sparse.analysis import equilibrate

    scale = symbolic.scale
    if scale is None or wanted == "equilibrate":
        return equilibrate(system.pattern, values), "symmetric equilibration", False
    pattern = system.pattern
    col = pattern.col
    size = np.abs(values) * scale[pattern.ind] * scale[col]
    top = np.zeros(pattern.n_cols)
    np.maximum.at(top, pattern.ind, size)
    np.maximum.at(top, col, size)
    top = top[top > 0]
    if top.min(initial=1.0) >= 1 / RANGE and top.max(initial=1.0) <= RANGE:
        return scale, "by the symmetrised matching", False
    how = "symmetric equilibration: the scaling of the matching does not fit these values (analyze() matches anew)"
    return equilibrate(pattern, values), how, True


def check_symbolic(system: System, symbolic: Any) -> None:
    """Refuse an analysis of another pattern or for another kind of factorisation."""
    from warpfront.sparse.analysis.symbolic import Symbolic

    if not isinstance(symbolic, Symbolic):
        raise InvalidValueError(f"symbolic is a {type(symbolic).__name__}; it must be a Symbolic")
    mine, theirs = system.pattern, symbolic.pattern
    if (symbolic.general is None) != (system.structure != "G"):
        raise PatternChangedError("the analysis is for LU and the matrix is not, or the other way round")
    for name in ("ptr", "ind", "value_map"):
        if not np.array_equal(getattr(mine, name), getattr(theirs, name)):
            raise PatternChangedError(f"the analysis is of another pattern or entry order (array {name!r})")


def analysis_record(
    system: System, symbolic: Any, seconds: float, jit_seconds: float, steps: dict[str, float]
) -> AnalysisRecord:
    """Say what the analysis chose, and how long its steps took."""
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
        steps=tuple(steps.items()),
        **_matching_facts(symbolic),
    )


def _matching_facts(symbolic: Any) -> dict[str, Any]:
    general = symbolic.general
    if general is None:
        return (
            {}
            if symbolic.scale is None
            else {"matching": "symmetrised maximum product: scaling and 2x2 pivots"}
        )
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


def host_threads(settings: Settings) -> int:
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
        threads=host_threads(settings),
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
    from warpfront.sparse.numeric.factorize import factorize

    dtype = factor_dtype(system, settings)
    threads = host_threads(settings)
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
    scale, how, stale = _symmetric_scale(system, symbolic, values, scaling) if scaled else (None, "", False)
    options = factor_options(system, symbolic, settings, cholesky, scaled)
    buffers = kept[1] if kept is not None and kept[0] == (cholesky, threads, dtype) else None
    factor = factorize(symbolic, values, scale, options, buffers, dtype)
    cross = "H" if system.hermitian else "T"
    method = f"LL^{cross}" if cholesky else f"LDL^{cross}"
    reason = ""
    if factor.status == Status.NOT_POSITIVE_DEFINITE:
        reason = f"Cholesky stopped at column {factor.column}: not positive definite"
    elif cholesky:
        column, count = _rounding_pivots(system, factor, values)
        if count:
            reason = f"Cholesky's pivot of column {column} is no more than rounding"
            factor = replace(factor, pivots=factor.pivots._replace(doubtful=count))
    if system.open_choice and reason:
        method = f"LDL^{cross} ({reason})"
        scaled = scaling != "none"
        scale, how, stale = (
            _symmetric_scale(system, symbolic, values, scaling) if scaled else (None, "", False)
        )
        options = factor_options(system, symbolic, settings, False, scaled)
        factor = factorize(symbolic, values, scale, options, None, dtype)
    if narrow:
        method += f" in {dtype}"
    kept = ((factor.options.cholesky, threads, dtype), factor.state)
    return Factored(_outcome(factor, settings), method, kept, how, stale)


def _rounding_pivots(system: System, factor: Any, values: NDArray[Any]) -> tuple[int, int]:
    """Column of the smallest pivot of LL^T relative to its diagonal entry, and how many are below 100 roundings.

    A singular matrix passes Cholesky when rounding leaves a positive last pivot.
    """
    from warpfront.sparse.numeric._doubt_kernels import rounding_pivots

    state, ptr = factor.state, system.pattern.ptr
    scale = _NOTHING if factor.scale is None else factor.scale
    limit = 100 * float(np.finfo(state.panel.dtype).eps)
    column, count = rounding_pivots(state.node, state.panel, factor.symbolic.perm, ptr, values, scale, limit)
    return int(column), int(count)


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
        scaling=factored.scaling or "none",
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
    NotSupportedError
        What only a symmetric factorisation has, for LU.
    """
    threshold, n = settings["pivot_threshold"], system.pattern.n_cols
    if system.structure != "G" and threshold > 0.5:
        raise InvalidValueError(
            f"pivot_threshold is {threshold!r}; allowed is 0.0 to 0.5 for LDL^T (1.0 for LU)"
        )
    if system.structure == "G" and settings["downcast_factors"]:
        raise NotSupportedError("downcast_factors is for LL^T and LDL^T; LU keeps the dtype of the matrix")
    for name, kept in (("pivot_type", "auto"), ("pivot_epsilon_alg", "scaled")):
        if system.structure == "G" and settings[name] != kept:
            raise NotSupportedError(
                f"{name} = {settings[name]!r} is for LDL^T; LU pivots by rows in its fronts, leave {kept!r}"
            )
    sign = settings["pivot_sign"]
    if sign is not None and sign.shape != (n,):
        raise InvalidValueError(f"pivot_sign has {sign.shape[0]} entries; the matrix has {n} rows")
