"""Compile the numeric phases in a second process while the first one reads and analyses.

Numba compiles on one core. The kernels of the factorisation are as much work for the compiler as those of the
analysis and of the solve together, and need nothing of their results: on a machine where nothing is compiled yet,
`CompileAhead` starts a process that compiles them into the cache, on a matrix of order one. The first process loads
them from there. Until it is known which factorisation it will be, the second process compiles the ordering. If it
fails, the first compiles for itself, as it would have anyway.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from warpfront.sparse.analysis.symbolic import Symbolic
    from warpfront.sparse.numeric.factorize import Factor

__all__ = ["CompileAhead", "compile_factorization", "compile_solve"]


class CompileAhead:
    """The second process, where it is worth having one. A context: leaving it ends the process.

    Examples
    --------
    >>> with CompileAhead() as ahead:
    ...     solver = DirectSolver(A)
    ...     ahead.choose("ldlt")
    ...     solver.analyze()
    ...     ahead.wait()
    ...     solver.factorize()
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> CompileAhead:
        from warpfront.backend.jit import is_compiled
        from warpfront.sparse.numeric import _walk_kernels

        if sys.executable and not is_compiled(_walk_kernels.__name__):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "warpfront.sparse.ahead"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def running(self) -> bool:
        """Whether there is a second process to wait for."""
        return self._process is not None

    def choose(self, method: str) -> None:
        """Say which factorisation will be needed: ``"cholesky"``, ``"ldlt"`` or ``"lu"``."""
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.write(method + "\n")
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # it has failed: this process will compile
            self._process.stdin = None

    def wait(self) -> None:
        """Wait until the process has compiled what was asked for; meanwhile compile the solve here."""
        if self._process is not None:
            compile_solve()
            self._process.wait()


def _single() -> Symbolic:
    """Analysis of the 1 x 1 matrix, without the kernels of the analysis."""
    from warpfront.formats.canonical import Canonical
    from warpfront.sparse.analysis.ordering import Ordering
    from warpfront.sparse.analysis.symbolic import Symbolic
    from warpfront.sparse.plan import FrontPlan

    def long(*entries: int) -> NDArray[np.int64]:
        return np.array(entries, np.int64)

    zero = np.zeros(1, np.int32)
    plan = FrontPlan(
        node_ptr=long(0, 1),
        front_ptr=long(0, 1),
        front_ind=zero,
        asm_map=zero,
        child_ptr=long(0, 0),
        child_ind=long(),
        a_ptr=long(0, 1),
        a_slot=long(0),
        a_row=zero,
        a_col=zero,
        panel_ptr=long(0, 8),
        depth=long(0),
        task_begin=long(0),
        task_end=long(0),
        trunk=long(),
    )
    pattern = Canonical(1, 1, long(0, 1), zero, long(0))
    ordering = Ordering(zero, np.full(1, -1, np.int32), long(1), "natural", "", ())
    return Symbolic(
        n=1,
        pattern=pattern,
        perm=zero,
        ordering=ordering,
        pairs=0,
        plan=plan,
        max_front=1,
        nnz_factor=1,
        flops=1.0,
        stack_words=8,
        root_words=8,
    )


def compile_factorization(method: str) -> Factor:
    """Compile ``"cholesky"``, ``"ldlt"`` or ``"lu"`` for float64; returns the factor of the matrix [1]."""
    from warpfront.sparse.numeric.factorize import FactorOptions, factorize

    if method == "lu":
        return _compile_lu()
    cholesky = method == "cholesky"
    return factorize(
        _single(), np.ones(1), None if cholesky else np.ones(1), FactorOptions(cholesky=cholesky)
    )


def _compile_lu() -> Factor:
    from dataclasses import replace

    from warpfront.sparse.analysis.symbolic import Coupling, General
    from warpfront.sparse.numeric.factorize import FactorOptions
    from warpfront.sparse.numeric.factorize_lu import choose_scaling, factorize_lu

    symbolic, one = _single(), np.ones(1)
    nothing = np.zeros(0, np.int32)
    coupling = Coupling(np.zeros(2, np.int64), nothing, np.zeros(0, np.int64))
    general = General(
        rows=symbolic.perm,
        row_scale=one,
        col_scale=one,
        structural_rank=1,
        unmatched_rows=nothing,
        unmatched_columns=nothing,
        matched=np.zeros(1, np.int64),
        blocks=np.zeros((1, 2), np.int64),
        coupling=coupling,
        matching="",
    )
    symbolic = replace(symbolic, general=general)
    return factorize_lu(symbolic, one, choose_scaling(symbolic, one, "auto"), FactorOptions(cholesky=False))


def compile_solve() -> None:
    """Compile the sweeps and the refinement for float64, on a factor in which nothing is eliminated."""
    from warpfront.errors import Status
    from warpfront.report import Inertia, PivotStats
    from warpfront.sparse.numeric.factorize import Factor, FactorOptions
    from warpfront.sparse.numeric.memory import NO_ROOM, allocate
    from warpfront.sparse.solve.refine import Refiner, SymmetricOperator
    from warpfront.sparse.solve.triangular import Sweeper

    symbolic = _single()
    state = allocate(symbolic, np.float64, 1, NO_ROOM)
    nothing, ok = PivotStats(0, 0, 0, 0, 0, 0), Status.OK
    options = FactorOptions(cholesky=False)
    factor = Factor(symbolic, state, options, np.ones(1), ok, -1, Inertia(0, 0, 0), nothing)
    b, x = np.zeros(1), np.empty(1)
    Refiner(Sweeper(factor), SymmetricOperator(symbolic.pattern, np.ones(1))).solve(b, x, 1)


def compile_ordering() -> None:
    """Compile the ordering that every analysis tries, on the graph of one vertex."""
    from warpfront.sparse.analysis.amd import amd

    amd(1, np.zeros(2, np.int64), np.zeros(0, np.int32))


if __name__ == "__main__":
    compile_ordering()  # while the first process finds out what the matrix is
    asked = sys.stdin.readline().strip()
    if asked:
        compile_factorization(asked)
