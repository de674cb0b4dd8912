"""One numeric factorisation: scaled values in, a `Factor` out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import blas_address
from warpfront.errors import Status
from warpfront.report import Inertia, PivotStats
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.numeric.memory import NO_ROOM, planned_room, state_bytes
from warpfront.sparse.numeric.run import run_walk
from warpfront.sparse.plan import CholeskyRule, FactorState, LdltRule

__all__ = ["Factor", "FactorOptions", "factorize"]

CANCELLED, SINGLE_CANCELLED = 1e-8, 3e-4  # determinants below this share of their terms are rounding
SINGLE_DOUBT = 1e-3
DOUBT = 1e-11  # pivots whose column is smaller, relative to the scaled matrix, make the inertia uncertain
TINY_THRESHOLD = 1e-30  # stands for u = 0: any pivot that is not zero


@dataclass(frozen=True)
class FactorOptions:
    """Choices of a factorisation.

    Attributes
    ----------
    cholesky : bool
        LL^T instead of LDL^T.
    threads : int
        CPU threads; bits do not depend on it.
    pivot_threshold : float
        u: entries of L stay below 1/u (LDL^T).
    zero_pivot : float
        Columns with no entry above this share of the largest scaled entry are zero pivots (LDL^T).
    pivot_epsilon : float
        Size of a perturbed pivot, relative to the largest scaled entry (LDL^T, ``perturb`` only).
    perturb : bool
        Perturb what fails the threshold in its front instead of delaying it (LDL^T).
    hermitian : bool
        L D L^H instead of L D L^T; of no effect on real types.
    search : int
        Pivots that are looked for, as in ``_ldlt_kernels``: 0 1x1 and 2x2, 1 only 1x1, 2 none.
    diagonal_share : float
        LU: share of the largest entry of its column from which the diagonal is taken without an exchange of rows.
    sign : int8[n] or empty
        Sign a perturbed pivot takes, 1 or -1, in the elimination's numbering; 0: its own.
    static_epsilon : bool
        ``pivot_epsilon`` is absolute, for the scaled matrix.
    """

    cholesky: bool
    threads: int = 1
    pivot_threshold: float = 0.01
    zero_pivot: float = 1e-13
    pivot_epsilon: float = 1e-8
    perturb: bool = False
    hermitian: bool = False
    search: int = 0
    diagonal_share: float = 0.5
    sign: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    static_epsilon: bool = False


@dataclass(frozen=True, eq=False)
class Factor:
    """A finished factorisation of ``P^T S A S P``.

    Attributes
    ----------
    symbolic : Symbolic
    state : FactorState
        The buffers; a refactorisation reuses them, which ends this object's life. None where nothing was computed.
    options : FactorOptions
    scale : float64[n] or None
        S, in the caller's numbering.
    status : Status
    column : int
        First failing column in the caller's numbering, or -1.
    inertia : Inertia
    pivots : PivotStats
    col_scale : float64[n] or None
        LU: scaling of the columns; `scale` is that of the rows.
    """

    symbolic: Symbolic
    state: FactorState
    options: FactorOptions
    scale: NDArray[np.float64] | None
    status: Status
    column: int
    inertia: Inertia
    pivots: PivotStats
    col_scale: NDArray[np.float64] | None = None

    @cached_property
    def nnz_factor(self) -> int:
        """Entries of L (LU: of L, U and the coupling), delayed pivots' fill included."""
        if self.status == Status.OK and not self.pivots.delayed and self.symbolic.general is None:
            return self.symbolic.nnz_factor
        rows, done = self.state.node[:, 3], self.state.node[:, 5]
        stored = int((rows * done - done * (done - 1) // 2).sum())
        general = self.symbolic.general
        return stored if general is None else 2 * stored - self.symbolic.n + general.coupling.slot.size

    @property
    def nbytes(self) -> int:
        """Bytes of every buffer of the factorisation."""
        return state_bytes(self.state)


def factorize(
    symbolic: Symbolic,
    values: NDArray[Any],
    scale: NDArray[np.float64] | None,
    options: FactorOptions,
    state: FactorState | None = None,
    dtype: np.dtype[Any] | None = None,
) -> Factor:
    """Factor a symmetric or Hermitian matrix.

    Parameters
    ----------
    symbolic : Symbolic
    values : float[nnz]
        Unscaled values in canonical order; read.
    scale : float64[n] or None
        Symmetric scaling, applied on the way in.
    options : FactorOptions
    state : FactorState, optional
        Buffers of an earlier factorisation with the same symbolic, dtype and threads.
    dtype : dtype, optional
        Of the factor; by default that of the values.

    Returns
    -------
    Factor
        Its status says whether it can be solved with.
    """
    from warpfront.sparse.numeric._scale_kernels import scale_values

    dtype = values.dtype if dtype is None else dtype
    pattern, given = symbolic.pattern, np.ones(0) if scale is None else scale
    place = np.empty(0, np.int32)
    if options.hermitian:
        place = np.empty(symbolic.n, np.int32)
        place[symbolic.perm] = np.arange(symbolic.n, dtype=np.int32)

    def enter(state: FactorState) -> float:
        return float(scale_values(pattern.ptr, pattern.ind, values, given, place, state.values))

    def rule(largest: float) -> CholeskyRule | LdltRule:
        return _rule(options, dtype.name, largest)

    room = NO_ROOM if options.cholesky else planned_room(symbolic)
    state, word = run_walk(symbolic, dtype, options.threads, room, enter, rule, state)
    return _verdict(symbolic, state, options, scale, word)


def _rule(options: FactorOptions, dtype: str, largest: float) -> CholeskyRule | LdltRule:
    """Rule with the tolerances made absolute: they are relative to the largest scaled entry."""
    gemm = blas_address("gemm", dtype)
    if options.cholesky:
        return CholeskyRule(gemm, blas_address("trsm", dtype), 1, 1)
    single = np.finfo(dtype).bits == 32
    return LdltRule(
        gemm,
        0,
        int(options.hermitian),
        options.search,
        options.sign,
        max(options.pivot_threshold, TINY_THRESHOLD),
        options.zero_pivot * largest,
        (SINGLE_DOUBT if single else DOUBT) * largest,
        SINGLE_CANCELLED if single else CANCELLED,
        options.pivot_epsilon * (1.0 if options.static_epsilon else largest),
        int(options.perturb),
    )


def _verdict(
    symbolic: Symbolic,
    state: FactorState,
    options: FactorOptions,
    scale: NDArray[np.float64] | None,
    word: int,
) -> Factor:
    from warpfront.sparse.numeric import _walk_kernels as walk

    n = symbolic.n
    if word != walk.OK_WORD:
        column = int(symbolic.perm[word >> 8])
        status = Status.NOT_POSITIVE_DEFINITE
        return Factor(
            symbolic, state, options, scale, status, column, Inertia(0, 0, 0), PivotStats(0, 0, 0, 0, 0, 0)
        )
    if options.cholesky:
        stats = PivotStats(n, 0, 0, 0, 0, 0)
        return Factor(symbolic, state, options, scale, Status.OK, -1, Inertia(n, 0, 0), stats)
    ones, twos, perturbed, zero, positive, negative, doubtful, _, delayed = (
        state.stats[:, :9].sum(axis=0).tolist()
    )
    status, column = Status.OK, -1
    if zero:
        status = Status.SINGULAR
        column = int(symbolic.perm[walk.first_zero_pivot(state.node, state.kind, state.ind)])
    elif not np.isfinite(state.diagonal).all():
        status = Status.NON_FINITE
    return Factor(
        symbolic,
        state,
        options,
        scale,
        status,
        column,
        Inertia(positive, negative, zero),
        PivotStats(ones, twos, delayed, perturbed, zero, doubtful),
    )
