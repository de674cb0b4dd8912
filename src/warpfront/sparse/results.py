"""Results by cuDSS data names, and phases by cuDSS phase names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import (
    InvalidValueError,
    NonFiniteError,
    NotAnalyzedError,
    NotFactorizedError,
    NotPositiveDefiniteError,
    NotSupportedError,
    SingularMatrixError,
    Status,
    UnstablePivotError,
)
from warpfront.sparse.general import raise_singular
from warpfront.sparse.parameters import REFUSED, SETTINGS
from warpfront.sparse.phases import factor_dtype, host_threads
from warpfront.sparse.solving import one_norm

if TYPE_CHECKING:
    from warpfront.sparse.numeric.factorize import Factor
    from warpfront.sparse.solver import DirectSolver

__all__ = ["memory_estimates", "raise_outcome", "read_result", "reciprocal_condition", "run_phases"]


def _diagonal(solver: DirectSolver) -> NDArray[np.float64]:
    """D (LDL^T), squared diagonal of L (LL^T) or diagonal of U (LU) of the scaled matrix, caller's columns."""
    from warpfront.sparse.numeric.readout import pivots
    from warpfront.sparse.numeric.readout_lu import lu_orders, lu_pivots

    factor = solver._usable()
    if factor.symbolic.general is None:
        return pivots(factor)[0]
    by_pivot = lu_pivots(factor)
    by_column = np.empty_like(by_pivot)
    by_column[lu_orders(factor)[1]] = by_pivot
    return by_column


def _entries(solver: DirectSolver) -> int:
    """Entries of L; as planned, where there is no complete factor."""
    record = solver.report.factor
    complete = record is not None and record.status in (Status.OK, Status.SINGULAR)
    return int(record.nnz_factor if record is not None and complete else solver._symbolic.nnz_factor)


def _scale(solver: DirectSolver) -> NDArray[np.float64]:
    scale = solver._factored().scale
    return np.ones(solver._symbolic.n) if scale is None else scale.copy()


def _scale_columns(solver: DirectSolver) -> NDArray[np.float64]:
    factor = solver._factored()
    scale = factor.scale if factor.symbolic.general is None else factor.col_scale
    return np.ones(solver._symbolic.n) if scale is None else scale.copy()


def _lu_only(solver: DirectSolver, name: str) -> Any:
    general = solver._symbolic.general
    if general is None:
        raise NotSupportedError(
            f"{name!r} belongs to LU (structure 'G'); this is structure {solver._system.structure!r}"
        )
    return general


def _pivot_order(solver: DirectSolver, name: str, side: int) -> NDArray[np.int64]:
    from warpfront.sparse.numeric.readout_lu import lu_orders

    _lu_only(solver, name)
    return lu_orders(solver._usable())[side]


def _rows(solver: DirectSolver) -> NDArray[np.int32]:
    general = solver._symbolic.general
    order: NDArray[np.int32] = (solver._symbolic.perm if general is None else general.rows).copy()
    return order


def _matching(solver: DirectSolver) -> NDArray[np.int32]:
    rows = _lu_only(solver, "perm_matching").rows
    row_of: NDArray[np.int32] = np.empty_like(rows)
    row_of[solver._symbolic.perm] = rows
    return row_of


_AFTER_ANALYSIS: dict[str, Callable[[DirectSolver], Any]] = {
    "lu_nnz": _entries,
    "flops": lambda s: s._symbolic.flops,
    "nsuperpanels": lambda s: s._symbolic.n_supernodes,
    "perm_reorder_row": _rows,
    "perm_reorder_col": lambda s: s._symbolic.perm.copy(),
    "perm_matching": _matching,
    "memory_estimates": lambda s: s.memory_estimates,
}
_AFTER_FACTOR: dict[str, Callable[[DirectSolver], Any]] = {
    "info": lambda s: s.info,
    "inertia": lambda s: s.inertia,
    "npivots": lambda s: s.pivot_stats.perturbed,
    "diag": _diagonal,
    "scale_row": _scale,
    "scale_col": _scale_columns,
    "perm_row": lambda s: _pivot_order(s, "perm_row", 0),
    "perm_col": lambda s: _pivot_order(s, "perm_col", 1),
}


def read_result(solver: DirectSolver, name: str) -> Any:
    """Read one result; raises when its phase has not run, when it is refused, or unknown."""
    allowed = sorted({*_AFTER_ANALYSIS, *_AFTER_FACTOR, *SETTINGS})
    if not isinstance(name, str):
        raise InvalidValueError(f"a name is a string, not {name!r}; allowed are {', '.join(allowed)}")
    if name in _AFTER_ANALYSIS:
        if solver._symbolic is None:
            raise NotAnalyzedError(f"{name!r} before analyze()")
        return _AFTER_ANALYSIS[name](solver)
    if name in _AFTER_FACTOR:
        return _AFTER_FACTOR[name](solver)
    if name in REFUSED:
        raise NotSupportedError(f"parameter {name!r} is not supported: {REFUSED[name]}")
    raise InvalidValueError(f"unknown parameter {name!r}; allowed are {', '.join(allowed)}")


def memory_estimates(solver: DirectSolver) -> dict[str, int]:
    """Bytes planned: factor, contribution blocks of all threads, indices, what else is worked in, their sum.

    All but the indices is what ``report.factor.peak_bytes`` will be, unless delayed pivots outgrow the plan. Small
    indefinite systems get as much room for delayed pivots as for the factor.
    """
    if solver._symbolic is None:
        raise NotAnalyzedError("memory_estimates before analyze()")
    from warpfront.sparse.numeric.memory import NO_ROOM, planned_bytes, planned_room
    from warpfront.sparse.numeric.run import walk_threads

    symbolic, system = solver._symbolic, solver._system
    general = symbolic.general is not None
    cholesky = not general and system.positive
    room = NO_ROOM if cholesky else planned_room(symbolic)
    threads = walk_threads(symbolic, host_threads(solver._settings))
    sizes = planned_bytes(symbolic, factor_dtype(system, solver._settings), threads, room)
    factor, stack, peak = sizes["panel"] + sizes["upper"], sizes["stack"], sum(sizes.values())
    index = sum(int(array.nbytes) for array in symbolic.plan)
    return {
        "factor": factor,
        "contribution_blocks": stack,
        "indices": index,
        "work": peak - factor - stack,
        "total": peak + index,
    }


def reciprocal_condition(solver: DirectSolver) -> float:
    """Reciprocal 1-norm condition estimate; 0 for a singular matrix, NaN where no factor was found."""
    from warpfront.sparse.solve.condition import inverse_norm_estimate

    factor = solver._factored()
    n = factor.symbolic.n
    if factor.status != Status.OK:
        return 0.0 if factor.status == Status.SINGULAR else float("nan")
    if n == 0:
        return 1.0
    norm = one_norm(solver._system, solver._values)
    adjoint = partial(solver._solve_once, trans="H")
    product = norm * inverse_norm_estimate(n, solver._solve_once, adjoint, solver._values.dtype)
    return 1.0 / product if np.isfinite(product) and product > 0 else 0.0


def raise_outcome(factor: Factor) -> None:
    """Raise the exception that belongs to a factor's status; nothing for OK."""
    column = factor.column
    if factor.status == Status.SINGULAR and factor.symbolic.general is not None:
        raise_singular(factor)
    if factor.status == Status.NOT_POSITIVE_DEFINITE:
        raise NotPositiveDefiniteError(
            f"the matrix is not positive definite: the pivot of column {column} is not positive", column
        )
    if factor.status == Status.SINGULAR:
        raise SingularMatrixError(
            f"the matrix is singular to working precision: column {column} has no pivot; "
            f"inertia {tuple(factor.inertia)}",
            column,
        )
    if factor.status == Status.UNSTABLE:
        raise UnstablePivotError(f"column {column} has no stable pivot in its front", column)
    if factor.status == Status.NON_FINITE:
        raise NonFiniteError("the matrix holds NaN or infinity, or its factorisation overflowed")


_PHASES = (
    "reordering",
    "symbolic_factorization",
    "analysis",
    "factorization",
    "refactorization",
    "solve_fwd_perm",
    "solve_fwd",
    "solve_diag",
    "solve_bwd",
    "solve_bwd_perm",
    "solve_refinement",
    "solve",
)
_PARTS = {"solve_fwd": 1, "solve_diag": 2, "solve_bwd": 4}


def run_phases(solver: DirectSolver, phases: str, x: NDArray[Any] | None, b: Any) -> None:
    """Run phases in the order given. A part of a solve reads the part before it, the first one ``b``."""
    if not isinstance(phases, str):
        raise InvalidValueError(f"the phase is {phases!r}; allowed are {', '.join(_PHASES)}, joined by '|'")
    names = [name.strip() for name in phases.split("|")]
    for name in names:
        if name in ("solve_fwd_schur", "solve_bwd_schur"):
            raise NotSupportedError(f"phase {name!r} is not supported: {REFUSED['schur_mode']}")
        if name not in _PHASES:
            raise InvalidValueError(
                f"unknown phase {name!r}; allowed are {', '.join(_PHASES)}, joined by '|'"
            )
    current: NDArray[Any] | None = None
    for name in names:
        if not name.startswith("solve"):
            _run_before_solve(solver, name)
        else:
            current = _solve_part(solver, name, _written(solver, x), b, current)
            x[...] = current  # type: ignore[index]


def _run_before_solve(solver: DirectSolver, name: str) -> None:
    if name in ("reordering", "analysis"):
        solver.analyze()
    elif solver._symbolic is None:
        raise NotAnalyzedError(f"phase {name!r} before 'analysis'")
    elif name == "factorization":
        solver.factorize()
    elif name == "refactorization":
        solver._factored()
        solver.factorize()


def _written(solver: DirectSolver, x: Any) -> NDArray[np.float64]:
    n = solver._system.pattern.n_cols
    dtype = solver._system.dtype
    if not isinstance(x, np.ndarray) or x.dtype != dtype or x.ndim not in (1, 2) or x.shape[0] != n:
        raise InvalidValueError(
            f"the solve phases write x: it must be a {dtype} array of shape ({n},) or ({n}, k)"
        )
    return x


def _solve_part(
    solver: DirectSolver, name: str, x: NDArray[np.float64], b: Any, current: NDArray[Any] | None
) -> NDArray[np.float64]:
    if solver._factor is None:
        raise NotFactorizedError(f"phase {name!r} before 'factorization'")
    from warpfront.sparse.inputs import right_hand_side

    n = solver._system.pattern.n_cols
    source = current
    if source is None or name == "solve_refinement":
        source = right_hand_side(b, n, solver._system.dtype)
    if source.shape != x.shape:
        raise InvalidValueError(f"b has shape {source.shape} and x {x.shape}; they must be equal")
    if name == "solve":
        solution: NDArray[Any] = solver.solve(source)
        return solution
    factor = solver._usable()
    if solver._check == "raise":
        raise_outcome(factor)
    columns = np.atleast_2d(source.T).copy()
    out = np.empty_like(columns)
    trans = str(solver.get("solve_mode")).upper()
    if solver._conjugated(trans) or (trans == "H" and solver._values.dtype.kind == "c"):
        raise NotSupportedError(
            f"phase {name!r} with solve_mode = {trans.lower()!r}, which conjugates the matrix: conjugate b and x instead"
        )
    refiner = solver._refined(trans)
    start = np.atleast_2d((x if current is None else current).T).copy()
    for k in range(columns.shape[0]):
        if name == "solve_fwd_perm":
            refiner.sweeper.permute_in(columns[k], out[k], trans)
        elif name == "solve_bwd_perm":
            refiner.sweeper.permute_out(columns[k], out[k], trans)
        elif name == "solve_refinement":
            out[k] = start[k]
            refiner.improve(columns[k], out[k], int(solver.get("ir_n_steps")))
        else:
            out[k] = columns[k]
            refiner.sweeper.apply(_PARTS[name], columns[k], out[k], trans)
    return np.ascontiguousarray(out.T).reshape(source.shape)
