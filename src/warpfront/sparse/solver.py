"""`DirectSolver`: the phases of a direct solution, their parameters and their records."""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import Clock
from warpfront.errors import (
    InvalidValueError,
    NonFiniteError,
    NotAnalyzedError,
    RefinementFailedError,
    Status,
)
from warpfront.report import SolverReport
from warpfront.sparse import phases, solving
from warpfront.sparse.exclusive import exclusive
from warpfront.sparse.inputs import (
    check_out,
    is_sparse,
    right_hand_side,
    shift_diagonal,
    solution_dtype,
    solve_sparse,
)
from warpfront.sparse.parameters import Settings
from warpfront.sparse.readings import Readings
from warpfront.sparse.results import raise_outcome
from warpfront.sparse.structure import read_system

__all__ = ["DirectSolver"]


class DirectSolver(Readings):
    """Solve ``A x = b`` for a sparse matrix, by phases.

    Parameters
    ----------
    A : sparse matrix, dense array or CSR triple
        float32, float64, complex64 or complex128 (bool and integers become float64), n x n; the factor and the
        solution have its type. scipy.sparse csr, csc, coo, bsr, matrix or array, int32 or int64 indices (dia, lil, dok
        are read as their ``tocsr()``, whose entry order counts); a dense 2-D array; ``(indptr, indices, data)``; the
        arrays may be anything that speaks DLPack on the CPU. Unsorted and duplicate entries are fine; duplicates are
        summed. Read at construction and at `refactorize`; editing it in place later has no effect.
    structure : {"auto", "SPD", "S", "HPD", "H", "G"}
        ``SPD``, ``HPD``: positive definite, LL^T or LL^H. ``S``: symmetric indefinite, or complex symmetric, LDL^T.
        ``H``: Hermitian indefinite, LDL^H. ``G``: anything else. Inertia is exact for ``S`` (real) and ``H``.
        ``auto`` compares the two triangles and says what it found in ``report.analysis``; with a positive
        diagonal Cholesky is tried, and LDL^T takes over where it stops.
    view : {"full", "lower", "upper"}
        Where the entries are; with "lower" or "upper" the other triangle is ignored.
    device : {"auto", "cpu", "cuda"}
        ``auto`` runs where the matrix is.
    check : {"raise", "status"}
        Whether an unsuccessful outcome raises, or is left in `status`, `info` and `report`.
    **parameters
        Anything `set` takes, e.g. ``reordering_alg="metis"``, ``ir_n_steps=0``.

    Notes
    -----
    Several Python threads may use one solver: its phases run one at a time. Solvers of their own run side by side.

    Examples
    --------
    >>> solver = DirectSolver(A)
    >>> x = solver.solve(b)  # analyses and factorises on first use
    >>> solver.refactorize(new_values)
    >>> solver.inertia
    Inertia(positive=3, negative=0, zero=0)
    """

    _target = "cpu"

    def __new__(
        cls,
        A: Any = None,
        structure: str = "auto",
        view: str = "full",
        device: str = "auto",
        *args: Any,
        **kwargs: Any,
    ) -> DirectSolver:
        """Take the device's phases where the device was asked for, or the matrix lies there."""
        if cls is DirectSolver and isinstance(device, str) and device in ("auto", "cuda"):
            there = type(A).__module__.partition(".")[0] in ("cupy", "cupyx")
            if device == "cuda" or there:
                from warpfront.sparse.on_device import CudaSolver  # not needed, and not read, on the CPU

                return super().__new__(CudaSolver)
        return super().__new__(cls)

    def __init__(
        self,
        A: Any,
        structure: str = "auto",
        view: str = "full",
        device: str = "auto",
        check: str = "raise",
        **parameters: Any,
    ) -> None:
        if not isinstance(device, str) or device not in ("auto", "cpu"):
            raise InvalidValueError(f"device is {device!r}; allowed are 'auto', 'cpu', 'cuda'")
        if not isinstance(check, str) or check not in ("raise", "status"):
            raise InvalidValueError(f"check is {check!r}; allowed are 'raise', 'status'")
        self._lock = RLock()
        self._check = check
        self._settings = Settings()
        for name, value in parameters.items():
            self._settings.set(name, value)
        self._clock = Clock()
        with self._clock:
            self._read(A, structure, view)
        self._symbolic: Any = None
        self._factor: Any = None
        self._spare_state: Any = None  # buffers of the other kind of factorisation are not kept
        self._refiner: Any = None
        self._report = SolverReport()
        self._forward = float("nan")
        self._first = True

    def _read(self, A: Any, structure: str, view: str) -> None:
        """Read the matrix. With ``check="status"`` NaN in its values is an outcome, which the factorisation reports."""
        self._nonfinite: NonFiniteError | None = None
        try:
            self._system, self._values = read_system(A, structure, view)
        except NonFiniteError as error:
            if self._check == "raise":
                raise
            self._nonfinite = error
            self._system, self._values = read_system(A, structure, view, clean=True)
        self._settings.single = self._system.dtype.name in ("float32", "complex64")
        self._settings.general = self._system.structure == "G"
        self._settings.target = self._target
        phases.check_settings(self._system, self._settings)

    @exclusive
    def analyze(self, symbolic: Any = None) -> DirectSolver:
        """Order, find the fronts and plan memory. Returns the solver.

        Parameters
        ----------
        symbolic : Symbolic, optional
            An analysis of a matrix with this pattern in this entry order, e.g. from ``Symbolic.load``; nothing is
            analysed then.

        Raises
        ------
        PatternChangedError
            ``symbolic`` is of another pattern.
        """
        from warpfront.sparse.analysis.steps import Steps

        clock, steps = Clock(), Steps()
        with clock:
            if symbolic is not None:
                phases.check_symbolic(self._system, symbolic)
                self._symbolic = symbolic
            else:
                self._symbolic = phases.analyze_system(
                    self._system, self._values, self._settings, steps=steps
                )
        self._factor = self._refiner = self._spare_state = None
        self._first = symbolic is None
        record = phases.analysis_record(
            self._system,
            self._symbolic,
            self._clock.seconds + clock.seconds,
            self._clock.jit_seconds + clock.jit_seconds,
            {"reading": self._clock.seconds + self._clock.jit_seconds, **steps.seconds},
        )
        self._report = SolverReport(analysis=record)
        return self

    @exclusive
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
            if self._nonfinite is not None:
                factored = phases.not_factored(self._symbolic, self._spare_state)
            else:
                factored = phases.factor_values(
                    self._system, self._symbolic, self._values, self._settings, self._spare_state
                )
            if self._first and phases.matching_would_help(self._system, self._settings, factored.factor):
                factored = self._matched(factored)
        self._first = False
        self._factor, self._spare_state = factored.factor, factored.kept
        record = phases.factor_record(
            self._system, factored, self._symbolic.flops, clock.seconds, clock.jit_seconds
        )
        self._report = SolverReport(analysis=self._report.analysis, factor=record)
        if self._check == "raise":
            raise_outcome(self._factor)
        return self

    @exclusive
    def refactorize(self, values: Any, diagonal_shift: Any = None) -> DirectSolver:
        """Factor new values on the analysed pattern. Bitwise equal to `factorize` with these values.

        Parameters
        ----------
        values : [nnz] or matrix
            New values in the caller's own entry order (duplicates as before), or a matrix of the analysed
            kind and pattern.
        diagonal_shift : (float, float), optional
            ``(dw, dc)``: ``dw`` is added to the positive diagonal entries, ``dc`` subtracted from the negative
            ones (inertia correction of an interior-point method). ``pivot_sign`` says which row is which; it must,
            where a stored diagonal entry is zero. Every diagonal entry must be stored.

        Raises
        ------
        NotAnalyzedError
            Before `analyze`.
        PatternChangedError
            Values that do not belong to the pattern.
        """
        if self._symbolic is None:
            raise NotAnalyzedError("refactorize before analyze(): there is no pattern to refactorize on")
        try:
            new = self._system.gather(values)
        except NonFiniteError as error:
            if self._check == "raise":
                raise
            self._nonfinite = error
            return self.factorize()
        if diagonal_shift is not None:
            new = shift_diagonal(self._system.pattern, new, diagonal_shift, self._settings["pivot_sign"])
        self._values, self._nonfinite = new, None
        return self.factorize()

    @exclusive
    def solve(self, b: Any, trans: str | None = None, out: NDArray[Any] | None = None) -> Any:
        """Solve for one or many right-hand sides; runs the phases that have not run.

        Parameters
        ----------
        b : [n] or [n, k], dense or sparse
            Any stride or order; read. Complex for a real matrix is fine: both parts are solved.
        trans : {"N", "T", "H"}, optional
            Solve with A, its transpose or its conjugate transpose; by default what ``solve_mode`` says.
        out : shape of b, type of the solution, optional
            Written and returned; may be ``b`` itself.

        Returns
        -------
        array, shape of b
            Of the matrix's type, complex where ``b`` is. For a sparse ``b`` a sparse matrix in its format.

        Raises
        ------
        RefinementFailedError
            The normwise backward error stays above ``ir_tol`` (``check="raise"``).
        SingularMatrixError, NotPositiveDefiniteError, NonFiniteError
            The factorisation failed (``check="raise"``). With ``check="status"`` a singular factor gives the
            solution whose components of zero pivots are zero, any other failed factor NaN; `status` says so.
        """
        trans = str(self._settings["solve_mode"]).upper() if trans is None else trans
        if not isinstance(trans, str) or trans not in ("N", "T", "H"):
            raise InvalidValueError(f"trans is {trans!r}; allowed are 'N', 'T', 'H'")
        n = self._system.pattern.n_cols
        if is_sparse(b):
            if out is not None:
                raise InvalidValueError("out is for a dense b; a sparse b has a sparse solution")
            return solve_sparse(b, n, lambda part: self.solve(part, trans))
        try:
            rhs = right_hand_side(b, n, self._system.dtype)
        except NonFiniteError:
            if self._check == "raise":
                raise
            rhs = None
        if out is not None:
            shape = np.shape(b) if rhs is None else rhs.shape
            check_out(out, shape, solution_dtype(self._system.dtype, np.asarray(b).dtype))
        if self._factor is None:
            self.factorize()
        if self._check == "raise":
            raise_outcome(self._factor)
        clock = Clock()
        self._forward = float("nan")
        with clock:
            x, worst = self._solve_columns(b, rhs, trans)
        self._record_solve(x.shape, worst, clock, rhs is None)
        if out is None:
            return x
        out[...] = x
        return out

    # ------------------------------------------------------------------ inside
    def _matched(self, factored: phases.Factored) -> phases.Factored:
        """Analyse anew with a matching, and keep that where it makes less fill.

        Only right after `analyze`: later factorisations keep the analysis, so the same values give the same bits.
        """
        symbolic = phases.analyze_system(self._system, self._values, self._settings, matching=True)
        again = phases.factor_values(self._system, symbolic, self._values, self._settings, None)
        if again.factor.nnz_factor >= factored.factor.nnz_factor:
            return factored
        self._symbolic, analysis = symbolic, self._report.analysis
        seconds, jit = (analysis.seconds, analysis.jit_seconds) if analysis else (0.0, 0.0)
        steps = dict(analysis.steps) if analysis else {}
        record = phases.analysis_record(self._system, symbolic, seconds, jit, steps)
        self._report = SolverReport(analysis=record)
        return again

    def _refined(self, trans: str = "N") -> Any:
        if self._refiner is None:
            self._refiner = solving.make_refiner(self._system, self._factor, self._values, self._settings)
        return self._refiner(trans)

    def _conjugated(self, trans: str) -> bool:
        """Whether ``trans`` means the conjugate of a complex matrix: A^T of a Hermitian, A^H of a symmetric one."""
        if self._system.structure == "G" or self._system.dtype.kind != "c":
            return False
        return trans == ("T" if self._system.hermitian else "H")

    def _solve_once(self, b: NDArray[Any], trans: str = "N") -> NDArray[Any]:
        """Solve without refinement; ``trans="C"`` with the conjugate of A."""
        conjugate = trans == "C" or self._conjugated(trans)
        b = np.ascontiguousarray(b.conj() if conjugate else b)
        x = np.empty_like(b)
        self._refined("N" if trans == "C" else trans).solve_unrefined(b, x)
        return x.conj() if conjugate else x

    def _solve_columns(
        self, b: Any, rhs: NDArray[Any] | None, trans: str
    ) -> tuple[NDArray[Any], tuple[int, float, float]]:
        if rhs is None or self._factor.status not in (Status.OK, Status.SINGULAR):
            given = np.asarray(b) if rhs is None else rhs
            x = np.full(given.shape, np.nan, solution_dtype(self._system.dtype, given.dtype))
            return x, (0, float("nan"), float("nan"))
        refiner, steps = self._refined(trans), int(self._settings["ir_n_steps"])
        x, worst = solving.solve_columns(refiner, rhs, steps, self._conjugated(trans))
        if self._settings["forward_error"] and self._factor.status == Status.OK:
            self._forward = self._forward_error(rhs, x, trans)
        return x, worst

    def _forward_error(self, rhs: NDArray[Any], x: NDArray[Any], trans: str) -> float:
        parts = [(rhs, x)]
        if self._system.dtype.kind != "c" and rhs.dtype.kind == "c":
            parts = [(rhs.real, x.real), (rhs.imag, x.imag)]
        if self._conjugated(trans):
            parts, trans = [(rhs.conj(), x.conj())], "N"
        solve = partial(self._solve_once, trans=trans)
        adjoint = partial(self._solve_once, trans={"N": "H", "T": "C", "H": "N"}[trans])
        return max(solving.forward_error_bound(self._refined(trans), b, y, solve, adjoint) for b, y in parts)

    def _record_solve(
        self, shape: tuple[int, ...], worst: tuple[int, float, float], clock: Clock, bad_rhs: bool
    ) -> None:
        tolerance = float(self._settings["ir_tol"])
        status = Status.NON_FINITE if bad_rhs else self._factor.status
        record = solving.solve_record(status, shape, worst, tolerance, clock, self._forward)
        self._report = SolverReport(self._report.analysis, self._report.factor, record)
        if record.backward_error > tolerance and self._check == "raise":
            raise RefinementFailedError(
                f"the backward error stays at {record.backward_error:.1e}, above ir_tol = {tolerance:.1e}",
                record.componentwise_error,
            )
