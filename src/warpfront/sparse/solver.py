"""`DirectSolver`: the phases of a direct solution, their parameters and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings as environment
from warpfront.backend.cpu import Clock
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotFactorizedError,
    NotSupportedError,
    RefinementFailedError,
    Status,
)
from warpfront.report import AnalysisRecord, FactorRecord, Inertia, PivotStats, SolveRecord, SolverReport
from warpfront.sparse.inputs import check_out, right_hand_side, shift_diagonal
from warpfront.sparse.parameters import Settings
from warpfront.sparse.results import (
    memory_estimates,
    raise_outcome,
    read_result,
    reciprocal_condition,
    run_phases,
)
from warpfront.sparse.structure import positive_diagonal, read_system

if TYPE_CHECKING:
    from warpfront.sparse.numeric.factorize import Factor

__all__ = ["DirectSolver"]


class DirectSolver:
    """Solve ``A x = b`` for a real symmetric sparse matrix, by phases.

    Parameters
    ----------
    A : sparse matrix, dense array or CSR triple
        float64 (other real dtypes are converted), n x n. scipy.sparse csr, csc, coo, bsr, matrix or array; a
        dense 2-D array; ``(indptr, indices, data)``. Unsorted and duplicate entries are fine; duplicates are
        summed. Read at construction and at `refactorize`; editing it in place later has no effect.
    structure : {"auto", "SPD", "S"}
        ``SPD``: positive definite, LL^T. ``S``: symmetric indefinite, LDL^T with exact inertia. ``auto``
        finds out and says what it found in ``report.analysis``: with a positive diagonal Cholesky is tried,
        and LDL^T takes over where it stops.
    view : {"full", "lower", "upper"}
        Where the entries are; with "lower" or "upper" the other triangle is ignored.
    device : {"auto", "cpu"}
        ``auto`` is the CPU in this build.
    check : {"raise", "status"}
        Whether an unsuccessful outcome raises, or is left in `status`, `info` and `report`.
    **parameters
        Anything `set` takes, e.g. ``reordering_alg="metis"``, ``ir_n_steps=0``.

    Examples
    --------
    >>> solver = DirectSolver(A)
    >>> x = solver.solve(b)  # analyses and factorises on first use
    >>> solver.refactorize(new_values)
    >>> solver.inertia
    Inertia(positive=3, negative=0, zero=0)
    """

    def __init__(
        self,
        A: Any,
        structure: str = "auto",
        view: str = "full",
        device: str = "auto",
        check: str = "raise",
        **parameters: Any,
    ) -> None:
        if isinstance(device, str) and device == "cuda":
            raise NotSupportedError(
                "device='cuda': the sparse solver has no GPU path in this build; use device='cpu'"
            )
        if not isinstance(device, str) or device not in ("auto", "cpu"):
            raise InvalidValueError(f"device is {device!r}; allowed are 'auto', 'cpu'")
        if not isinstance(check, str) or check not in ("raise", "status"):
            raise InvalidValueError(f"check is {check!r}; allowed are 'raise', 'status'")
        self._check = check
        self._settings = Settings()
        for name, value in parameters.items():
            self._settings.set(name, value)
        self._clock = Clock()
        with self._clock:
            self._system = read_system(A, structure, view)
            self._values: NDArray[np.float64] = self._system.gather(self._system.operand.data)
        self._symbolic: Any = None
        self._factor: Any = None
        self._spare_state: Any = None  # buffers of the other kind of factorisation are not kept
        self._refiner: Any = None
        self._report = SolverReport()

    def analyze(self) -> DirectSolver:
        """Order, find the fronts and plan memory. Returns the solver."""
        from warpfront.sparse.analysis import analyze

        clock = Clock()
        system = self._system
        with clock:
            self._symbolic = analyze(
                system.pattern,
                self._values,
                indefinite=system.structure == "S",
                ordering=self._settings["reordering_alg"],
                user_perm=self._settings["user_perm"],
            )
        symbolic = self._symbolic
        self._factor = self._refiner = self._spare_state = None
        record = AnalysisRecord(
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
            seconds=self._clock.seconds + clock.seconds,
            jit_seconds=self._clock.jit_seconds + clock.jit_seconds,
        )
        self._report = SolverReport(analysis=record)
        return self

    def factorize(self) -> DirectSolver:
        """Factor the values the solver holds; analyses first if that has not been done. Returns the solver.

        Raises
        ------
        NotPositiveDefiniteError, SingularMatrixError
            With the column in the caller's numbering (``check="raise"``).
        """
        if self._symbolic is None:
            self.analyze()
        clock = Clock()
        self._factor = self._refiner = None  # the buffers are about to be overwritten, whatever happens
        with clock:
            factor, method = self._factor_values()
        self._factor = factor
        self._report = SolverReport(
            analysis=self._report.analysis,
            factor=FactorRecord(
                status=factor.status,
                column=factor.column,
                method=method,
                scaling="none" if factor.scale is None else "symmetric equilibration",
                inertia=factor.inertia,
                inertia_certain=factor.status in (Status.OK, Status.SINGULAR)
                and factor.pivots.perturbed + factor.pivots.doubtful == 0,
                pivots=factor.pivots,
                nnz_factor=factor.nnz_factor,
                flops=self._symbolic.flops,
                factor_bytes=factor.nnz_factor * self._values.itemsize,
                peak_bytes=factor.nbytes,
                threads=factor.options.threads,
                seconds=clock.seconds,
                jit_seconds=clock.jit_seconds,
            ),
        )
        if self._check == "raise":
            raise_outcome(factor)
        return self

    def refactorize(self, values: Any, diagonal_shift: tuple[float, float] | None = None) -> DirectSolver:
        """Factor new values on the analysed pattern. Bitwise equal to `factorize` with these values.

        Parameters
        ----------
        values : float[nnz] or matrix
            New values in the caller's own entry order (duplicates as before), or a matrix of the analysed
            kind and pattern.
        diagonal_shift : (float, float), optional
            ``(dw, dc)``: ``dw`` is added to the diagonal entries that are positive or zero, ``dc`` subtracted
            from the negative ones (inertia correction of an interior-point method). Every diagonal entry must
            be stored.

        Raises
        ------
        NotAnalyzedError
            Before `analyze`.
        PatternChangedError
            Values that do not belong to the pattern.
        """
        if self._symbolic is None:
            raise NotAnalyzedError("refactorize before analyze(): there is no pattern to refactorize on")
        new = self._system.gather(values)
        if diagonal_shift is not None:
            new = shift_diagonal(self._system.pattern, new, diagonal_shift)
        self._values = new
        return self.factorize()

    def solve(self, b: Any, trans: str = "N", out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Solve for one or many right-hand sides; runs the phases that have not run.

        Parameters
        ----------
        b : float[n] or float[n, k]
            Any stride or order; read. Real.
        trans : {"N", "T", "H"}
            The same thing for a real symmetric matrix.
        out : float64, shape of b, optional
            Written and returned; may be ``b`` itself.

        Returns
        -------
        float64, shape of b

        Raises
        ------
        RefinementFailedError
            The normwise backward error stays above ``ir_tol`` (``check="raise"``).
        SingularMatrixError, NotPositiveDefiniteError, NonFiniteError
            The factorisation failed (``check="raise"``). With ``check="status"`` a singular factor gives the
            solution whose components of zero pivots are zero, any other failed factor NaN; `status` says so.
        """
        if not isinstance(trans, str) or trans not in ("N", "T", "H"):
            raise InvalidValueError(f"trans is {trans!r}; allowed are 'N', 'T', 'H'")
        rhs = right_hand_side(b, self._system.pattern.n_cols)
        if out is not None:
            check_out(out, rhs.shape)
        if self._factor is None:
            self.factorize()
        if self._check == "raise":
            raise_outcome(self._factor)
        clock = Clock()
        with clock:
            x, worst = self._solve_columns(rhs)
        self._record_solve(rhs, worst, clock)
        if out is None:
            return x
        out[...] = x
        return out

    # ------------------------------------------------------------------ values to read
    @property
    def report(self) -> SolverReport:
        """Records of the phases that have run."""
        return self._report

    @property
    def status(self) -> Status:
        """Outcome of the last phase that has one."""
        if self._report.solve is not None and self._report.solve.status != Status.OK:
            return self._report.solve.status
        return self._factored().status

    @property
    def info(self) -> int:
        """0, or the first failing column + 1 in the caller's numbering."""
        return int(self._factored().column) + 1

    @property
    def inertia(self) -> Inertia:
        """Numbers of positive, negative and zero eigenvalues."""
        return self._factored().inertia

    @property
    def pivot_stats(self) -> PivotStats:
        """Counts of the last factorisation's pivots."""
        return self._factored().pivots

    @property
    def memory_estimates(self) -> dict[str, int]:
        """Bytes planned: factor, contribution blocks of one thread, indices, and their sum."""
        return memory_estimates(self)

    def rcond(self) -> float:
        """Reciprocal 1-norm condition estimate; 0 for a singular matrix, NaN where no factor was found."""
        return reciprocal_condition(self)

    def set(self, name: str, value: Any) -> None:
        """Set a parameter by its cuDSS name; phases that read it run again when next needed."""
        phase = self._settings.set(name, value)
        if phase == "analysis":
            self._symbolic = self._factor = self._refiner = None
        elif phase == "factorization":
            self._factor = self._refiner = None

    def get(self, name: str) -> Any:
        """Read a setting, or a result by its cuDSS name (``lu_nnz``, ``npivots``, ``inertia``, ...)."""
        if isinstance(name, str) and name in self._settings.values:
            return self._settings[name]
        return read_result(self, name)

    def execute(self, phase: str, x: NDArray[np.float64] | None = None, b: Any = None) -> None:
        """Run phases by their cuDSS names, joined by ``|``; ``x`` is written by the solve phases."""
        run_phases(self, phase, x, b)

    # ------------------------------------------------------------------ inside
    def _factored(self) -> Factor:
        factor: Factor | None = self._factor
        if factor is None:
            raise NotFactorizedError("asked for before factorize() or refactorize()")
        return factor

    def _usable(self) -> Factor:
        """Return the factor if it is complete; a singular one is."""
        factor = self._factored()
        if factor.status != Status.SINGULAR:
            raise_outcome(factor)
        return factor

    def _threads(self) -> int:
        asked = int(self._settings["host_nthreads"])
        return asked if asked > 0 else environment.threads()

    def _factor_values(self) -> tuple[Any, str]:
        from warpfront.sparse.analysis import equilibrate
        from warpfront.sparse.numeric.factorize import FactorOptions, factorize

        system, settings, values = self._system, self._settings, self._values
        symbolic, threads = self._symbolic, self._threads()
        cholesky = system.structure == "SPD"
        if system.open_choice:
            cholesky = positive_diagonal(system.pattern, values)
        kept = self._spare_state
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
            options = FactorOptions(**{**options.__dict__, "cholesky": False})
            factor = factorize(symbolic, values, scale, options)
        self._spare_state = ((factor.options.cholesky, threads), factor.state)
        return factor, method

    def _refined(self) -> Any:
        if self._refiner is None:
            from warpfront.sparse.solve.refine import Refiner
            from warpfront.sparse.solve.triangular import Sweeper

            self._refiner = Refiner(Sweeper(self._factor), self._system.pattern, self._values)
        return self._refiner

    def _solve_once(self, b: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.empty_like(b)
        self._refined().solve_unrefined(np.ascontiguousarray(b), x)
        return x

    def _solve_columns(
        self, rhs: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], tuple[int, float, float]]:
        """Solve column by column, so that a column's bits do not depend on its neighbours."""
        if self._factor.status not in (Status.OK, Status.SINGULAR):
            return np.full(rhs.shape, np.nan), (0, float("nan"), float("nan"))
        refiner, steps = self._refined(), int(self._settings["ir_n_steps"])
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

    def _record_solve(self, rhs: NDArray[np.float64], worst: tuple[int, float, float], clock: Clock) -> None:
        taken, component, whole = worst
        tolerance = float(self._settings["ir_tol"])
        failed = whole > tolerance
        status = self._factor.status
        record = SolveRecord(
            status=Status.REFINEMENT_FAILED if failed and status == Status.OK else status,
            n_rhs=1 if rhs.ndim == 1 else rhs.shape[1],
            refinement_steps=taken,
            backward_error=whole,
            componentwise_error=component,
            seconds=clock.seconds,
            jit_seconds=clock.jit_seconds,
        )
        self._report = SolverReport(self._report.analysis, self._report.factor, record)
        if failed and self._check == "raise":
            raise RefinementFailedError(
                f"the backward error stays at {whole:.1e}, above ir_tol = {tolerance:.1e}", component
            )
