"""`DirectSolver`: the phases of a direct solution, their parameters and their records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import Clock
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    RefinementFailedError,
    Status,
)
from warpfront.report import SolverReport
from warpfront.sparse import phases
from warpfront.sparse.gpu.facade import CudaPhases
from warpfront.sparse.inputs import check_out, right_hand_side, shift_diagonal
from warpfront.sparse.parameters import Settings
from warpfront.sparse.readings import Readings
from warpfront.sparse.results import raise_outcome
from warpfront.sparse.structure import read_system

__all__ = ["DirectSolver"]


class DirectSolver(Readings):
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
    device : {"auto", "cpu", "cuda"}
        ``auto`` runs where the matrix is.
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
                return super().__new__(_CudaSolver)
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
        self._check = check
        self._settings = Settings()
        for name, value in parameters.items():
            self._settings.set(name, value)
        self._clock = Clock()
        with self._clock:
            self._system = read_system(A, structure, view)
            phases.fit_settings(self._system, self._settings)
            self._values: NDArray[np.float64] = self._system.gather(self._system.operand.data)
        self._symbolic: Any = None
        self._factor: Any = None
        self._spare_state: Any = None  # buffers of the other kind of factorisation are not kept
        self._refiner: Any = None
        self._report = SolverReport()

    def analyze(self) -> DirectSolver:
        """Order, find the fronts and plan memory. Returns the solver."""
        clock = Clock()
        with clock:
            self._symbolic = phases.analyze_system(self._system, self._values, self._settings)
        self._factor = self._refiner = self._spare_state = None
        record = phases.analysis_record(
            self._system,
            self._symbolic,
            self._clock.seconds + clock.seconds,
            self._clock.jit_seconds + clock.jit_seconds,
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
            factored = phases.factor_values(
                self._system, self._symbolic, self._values, self._settings, self._spare_state
            )
        self._factor, self._spare_state = factored.factor, factored.kept
        record = phases.factor_record(
            self._symbolic, factored, self._values.itemsize, clock.seconds, clock.jit_seconds
        )
        self._report = SolverReport(analysis=self._report.analysis, factor=record)
        if self._check == "raise":
            raise_outcome(self._factor)
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
            general = self._system.structure == "G"
            new = shift_diagonal(self._system.pattern, new, diagonal_shift, general)
        self._values = new
        return self.factorize()

    def solve(self, b: Any, trans: str = "N", out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Solve for one or many right-hand sides; runs the phases that have not run.

        Parameters
        ----------
        b : float[n] or float[n, k]
            Any stride or order; read. Real.
        trans : {"N", "T", "H"}
            The system is ``A x = b``, ``A^T x = b`` or ``A^H x = b``: the same for a real symmetric matrix.
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
            x, worst = self._solve_columns(rhs, trans)
        self._record_solve(rhs.shape, worst, clock)
        if out is None:
            return x
        out[...] = x
        return out

    # ------------------------------------------------------------------ inside
    def _refined(self, trans: str = "N") -> Any:
        if self._refiner is None:
            self._refiner = phases.refiner(self._system, self._factor, self._values)
        return self._refiner(trans)

    def _solve_once(self, b: NDArray[Any], trans: str = "N") -> NDArray[Any]:
        x = np.empty_like(b)
        self._refined(trans).solve_unrefined(np.ascontiguousarray(b), x)
        return x

    def _solve_columns(self, rhs: NDArray[Any], trans: str) -> tuple[NDArray[Any], tuple[int, float, float]]:
        if self._factor.status not in (Status.OK, Status.SINGULAR):
            return np.full(rhs.shape, np.nan), (0, float("nan"), float("nan"))
        return phases.solve_columns(self._refined(trans), rhs, int(self._settings["ir_n_steps"]))

    def _record_solve(self, shape: tuple[int, ...], worst: tuple[int, float, float], clock: Clock) -> None:
        tolerance = float(self._settings["ir_tol"])
        record = phases.solve_record(
            self._factor.status, shape, worst, tolerance, clock.seconds, clock.jit_seconds
        )
        self._report = SolverReport(self._report.analysis, self._report.factor, record)
        if record.backward_error > tolerance and self._check == "raise":
            raise RefinementFailedError(
                f"the backward error stays at {record.backward_error:.1e}, above ir_tol = {tolerance:.1e}",
                record.componentwise_error,
            )


class _CudaSolver(CudaPhases, DirectSolver):
    """`DirectSolver` with its numeric phases on the GPU."""
