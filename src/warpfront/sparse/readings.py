"""What a solver lets its caller read and set: results, parameters, cuDSS names. The phases are in ``solver``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotFactorizedError,
    NotSupportedError,
    Status,
)
from warpfront.report import Inertia, PivotStats, SolverReport
from warpfront.sparse.exclusive import exclusive
from warpfront.sparse.parameters import SETTINGS, Settings
from warpfront.sparse.phases import check_settings
from warpfront.sparse.results import (
    memory_estimates,
    raise_outcome,
    read_result,
    reciprocal_condition,
    run_phases,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warpfront.sparse.analysis.symbolic import Symbolic
    from warpfront.sparse.numeric.factorize import Factor

__all__ = ["Readings"]


class Readings:
    """The half of `DirectSolver` that runs no phase of its own accord."""

    _lock: Any
    _settings: Settings
    _system: Any
    _report: SolverReport
    _symbolic: Any
    _factor: Any
    _refiner: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse ``copy``, ``deepcopy`` and ``pickle``: copies would factorise into the same buffers."""
        raise NotSupportedError(
            "a solver is not copied or pickled: its factor's buffers and its lock are its own; make another one with "
            "DirectSolver(A), and hand its analysis over with solver.symbolic.save(path) and analyze(Symbolic.load(path))"
        )

    @property
    def report(self) -> SolverReport:
        """Records of the phases that have run."""
        return replace(self._report, drawing=self.plot)

    @property
    def symbolic(self) -> Symbolic:
        """The analysis: `Symbolic.save`, `Symbolic.plot`."""
        symbolic: Symbolic | None = self._symbolic
        if symbolic is None:
            raise NotAnalyzedError("symbolic before analyze()")
        return symbolic

    def plot(self, title: str = "") -> Any:
        """Draw A, L, the fronts and the time of each phase; a ``matplotlib.figure.Figure``."""
        from warpfront.sparse.plots import plot_solver

        return plot_solver(self, title)  # type: ignore[arg-type]

    @exclusive
    def increase_quality(self) -> bool:
        """Ask for more stable pivots next time: ``pivot_threshold`` becomes its 3/4th power, up to its limit.

        For an interior-point method whose step was not accurate enough. False when there is no more to ask for.
        """
        limit = 1.0 if self._system.structure == "G" else 0.5
        now = float(self._settings["pivot_threshold"])
        better = min(limit, max(now, 1e-8) ** 0.75)
        if better <= now or self._system.positive:
            return False
        self.set("pivot_threshold", better)
        return True

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
        """Numbers of positive, negative and zero eigenvalues; NotSupportedError where a factor knows none."""
        factor = self._factored()
        if factor.symbolic.general is not None:
            raise NotSupportedError(
                "LU (structure 'G') knows no inertia; factor a symmetric matrix with structure 'S'"
            )
        if self._system.structure == "S" and self._system.dtype.kind == "c":
            raise NotSupportedError(
                "a complex symmetric matrix has no inertia: its eigenvalues are not real (structure 'H' has one)"
            )
        return factor.inertia

    @property
    def pivot_stats(self) -> PivotStats:
        """Counts of the last factorisation's pivots."""
        return self._factored().pivots

    @property
    def memory_estimates(self) -> dict[str, int]:
        """Bytes planned: factor, contribution blocks of one thread, indices, and their sum."""
        return memory_estimates(self)  # type: ignore[arg-type]

    @exclusive
    def rcond(self) -> float:
        """Reciprocal 1-norm condition estimate; 0 for a singular matrix, NaN where no factor was found."""
        return reciprocal_condition(self)  # type: ignore[arg-type]

    @exclusive
    def set(self, name: str, value: Any) -> None:
        """Set a parameter by its cuDSS name; phases that read it run again when next needed."""
        before = dict(self._settings.values)
        phase = self._settings.set(name, value)
        try:
            check_settings(self._system, self._settings)
        except (InvalidValueError, NotSupportedError):
            self._settings.values = before
            raise
        if phase == "analysis":
            self._symbolic = self._factor = self._refiner = None
        elif phase == "factorization":
            self._factor = self._refiner = None

    def get(self, name: str) -> Any:
        """Read a setting, or a result by its cuDSS name (``lu_nnz``, ``npivots``, ``inertia``, ...)."""
        if isinstance(name, str) and name in SETTINGS:
            return self._settings[name]
        return read_result(self, name)  # type: ignore[arg-type]

    @exclusive
    def execute(self, phase: str, x: NDArray[Any] | None = None, b: Any = None) -> None:
        """Run phases by their cuDSS names, joined by ``|``; ``x`` is written by the solve phases."""
        run_phases(self, phase, x, b)  # type: ignore[arg-type]

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
