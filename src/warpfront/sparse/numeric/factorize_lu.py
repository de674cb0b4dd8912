"""One LU factorisation: scaled values in, a `Factor` out; and how well a matching still fits new values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import blas_address
from warpfront.errors import Status
from warpfront.report import Inertia, PivotStats
from warpfront.sparse.analysis.general import equilibrate_matched
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.numeric.factorize import DOUBT, TINY_THRESHOLD, Factor, FactorOptions
from warpfront.sparse.numeric.memory import planned_room
from warpfront.sparse.numeric.run import run_walk
from warpfront.sparse.plan import FactorState, LuRule

__all__ = ["Scaling", "choose_scaling", "factorize_lu", "zero_pivots"]

Floats = NDArray[np.float64]
WEAK = 1e-3  # a matched entry below this share of its column's largest no longer serves its purpose
RANGE = 16.0  # largest scaled entry of a row or column outside [1/RANGE, RANGE]: the scaling no longer fits


class Scaling(NamedTuple):
    """Scales of rows and columns for one set of values.

    Attributes
    ----------
    rows, cols : float64[n] or empty
        Empty: none.
    weak : int
        Matched entries below `WEAK` of the largest of their column, scaled.
    stale : bool
        The analysis's scaling does not fit these values; rows and columns are equilibrated anew.
    how : str
        In words.
    """

    rows: Floats
    cols: Floats
    weak: int
    stale: bool
    how: str


def choose_scaling(symbolic: Symbolic, values: NDArray[Any], wanted: str) -> Scaling:
    """Scale new values: by the analysis's scales while they fit, else equilibrated anew; the matching stays.

    Depends on the analysis and these values only, never on factorisations in between.

    Parameters
    ----------
    symbolic : Symbolic
        Of `analyze_general`.
    values : [nnz]
        Canonical values.
    wanted : {"auto", "none", "equilibrate"}
    """
    general, pattern = symbolic.general, symbolic.pattern
    assert general is not None
    empty = np.ones(0)
    if wanted == "none":
        return Scaling(empty, empty, 0, False, "none")
    if wanted == "equilibrate":
        rows, cols = equilibrate_matched(pattern, values)
        weak = _quality(symbolic, values, rows, cols)[0]
        return Scaling(rows, cols, weak, False, "rows and columns equilibrated")
    rows, cols = general.row_scale, general.col_scale
    weak, low, high = _quality(symbolic, values, rows, cols)
    if weak == 0 and low >= 1 / RANGE and high <= RANGE:
        return Scaling(rows, cols, 0, False, "by the matching")
    rows, cols = equilibrate_matched(pattern, values)
    weak_anew = _quality(symbolic, values, rows, cols)[0]
    how = (
        f"equilibrated anew: the scaling of the matching does not fit these values; {weak_anew} of {symbolic.n} "
        f"matched entries are below {WEAK} of the largest in their column (analyze() matches anew)"
    )
    return Scaling(rows, cols, weak_anew, True, how)


def _quality(
    symbolic: Symbolic, values: NDArray[Any], rows: Floats, cols: Floats
) -> tuple[int, float, float]:
    """Weak matched entries; smallest and largest of the columns' largest scaled entries."""
    from warpfront.sparse.numeric._scale_kernels import matching_quality

    pattern, general = symbolic.pattern, symbolic.general
    assert general is not None
    weak, low, high = matching_quality(pattern.ptr, pattern.ind, values, rows, cols, general.matched, WEAK)
    return int(weak), float(low), float(high)


def factorize_lu(
    symbolic: Symbolic,
    values: NDArray[Any],
    scaling: Scaling,
    options: FactorOptions,
    state: FactorState | None = None,
) -> Factor:
    """Factor a square matrix, P R A C Q = L U.

    Parameters
    ----------
    symbolic : Symbolic
        Of `analyze_general`.
    values : [nnz]
        Unscaled canonical values; read.
    scaling : Scaling
        See `choose_scaling`.
    options : FactorOptions
        ``cholesky`` is False; ``pivot_threshold`` bounds the entries of L by 1/u.
    state : FactorState, optional
        Buffers of an earlier factorisation with the same symbolic, dtype and threads.

    Returns
    -------
    Factor
        SINGULAR with the first column that has no pivot, caller's numbering; its inertia means nothing.
    """
    from warpfront.sparse.numeric._scale_kernels import scale_general

    pattern = symbolic.pattern
    rows, cols = scaling.rows, scaling.cols

    def enter(state: FactorState) -> float:
        return float(scale_general(pattern.ptr, pattern.ind, values, rows, cols, state.values))

    def rule(largest: float) -> LuRule:
        threshold = max(options.pivot_threshold, TINY_THRESHOLD)
        return LuRule(
            blas_address("gemm", values.dtype),
            threshold,
            max(options.diagonal_share, threshold),
            options.zero_pivot * largest,
            DOUBT * largest,
            options.pivot_epsilon * largest,
            int(options.perturb),
        )

    state, _ = run_walk(symbolic, values.dtype, options.threads, planned_room(symbolic), enter, rule, state)
    ones, _, perturbed, zero, _, _, doubtful, _, delayed = state.stats[:, :9].sum(axis=0).tolist()
    status = Status.OK
    if zero:
        status = Status.SINGULAR
    elif not _finite_pivots(state):
        status = Status.NON_FINITE
    factor = Factor(
        symbolic, state, options, rows if rows.size else None, status, -1, Inertia(0, 0, 0),
        PivotStats(ones, 0, delayed, perturbed, zero, doubtful), cols if cols.size else None,
    )  # fmt: skip
    if zero:
        from dataclasses import replace

        return replace(factor, column=int(zero_pivots(factor)[1][0]))
    return factor


def _finite_pivots(state: FactorState) -> bool:
    """Whether every pivot is finite. Places that no front has may hold an earlier factorisation's."""
    if np.isfinite(state.diagonal).all():
        return True
    return all(
        np.isfinite(state.diagonal[2 * at : 2 * (at + done)]).all()
        for _, _, at, _, _, done, _, _ in state.node.tolist()
    )


def zero_pivots(factor: Factor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns left without a pivot, caller's numbering, in elimination order."""
    state, symbolic = factor.state, factor.symbolic
    assert symbolic.general is not None
    rows, cols = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for _, ind_at, pivot_at, _, _, done, _, _ in state.node.tolist():
        zero = ind_at + np.flatnonzero(state.kind[pivot_at : pivot_at + done] == 0)
        if zero.size:
            rows.append(symbolic.general.rows[state.ind[zero]])
            cols.append(symbolic.perm[state.col[zero]])
    return np.concatenate(rows).astype(np.int64), np.concatenate(cols).astype(np.int64)
