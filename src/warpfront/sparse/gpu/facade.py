"""`DirectSolver(device="cuda")`: the phases on the device, behind the interface of the CPU's.

Queued work is waited for only where the host needs its outcome: a NumPy right-hand side gives a NumPy solution,
``check="raise"`` needs the verdict, reading `status`, `inertia` or `report` reads the device. With ``check="status"``
and CuPy arrays nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from warpfront.backend.arrays import as_device_array, is_device_array
from warpfront.backend.cpu import Clock
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotSupportedError,
    PatternChangedError,
    RefinementFailedError,
    Status,
)
from warpfront.report import FactorRecord, SolveRecord, SolverReport
from warpfront.sparse.gpu.engine import GpuFactor, Planned, require_gpu
from warpfront.sparse.gpu.lu_phases import LU_TAKEN, lu_estimates, lu_factor_for, lu_record, take_whole
from warpfront.sparse.gpu.regroup import DEFINITE, INDEFINITE, NO_MERGING, WARP_ROWS, regroup
from warpfront.sparse.gpu.steps import Tolerances
from warpfront.sparse.parameters import SETTINGS

__all__ = ["CPU_ONLY", "CudaPhases"]

# pivot_threshold unless set: what is refused here is not delayed but taken or perturbed in the end, at a larger growth
THRESHOLD = 1e-4
# refinement steps while the error is above 1e-12, where ir_n_steps is not set: perturbed pivots may need more than two
MOST_STEPS = 10
# ratio of diagonal entries from which on a positive definite matrix is equilibrated, where scaling is not set
UNEVEN = 1e6
# settings the device does not read
CPU_ONLY = frozenset(
    (
        "downcast_factors",
        "forward_error",
        "ir_mode",
        "pivot_epsilon_alg",
        "pivot_sign",
        "pivot_type",
        "solve_mode",
    )
)


class CudaPhases:
    """The methods of `DirectSolver` that differ on the device; comes before it among the bases."""

    _system: Any
    _symbolic: Any
    _settings: Any
    _values: Any
    _check: str
    _report: SolverReport
    _factor: Any
    _refiner: Any
    _uneven: bool

    def __init__(
        self, A: Any, structure: str = "auto", view: str = "full", device: str = "cuda", check: str = "raise",
        **parameters: Any,
    ) -> None:  # fmt: skip
        self._device = require_gpu()
        if parameters.get("on_unstable") == "delay":
            raise NotSupportedError(_NO_DELAY)
        super().__init__(_host_matrix(A), structure, view, "cpu", check, **parameters)  # type: ignore[call-arg]
        if self._system.structure == "G":
            take_whole(self._settings)
        if self._values.dtype not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise NotSupportedError(
                f"device='cuda' takes float64 and float32, the matrix is {self._values.dtype}"
            )
        for name in CPU_ONLY & set(self._settings.values):
            self.set(name, self._settings[name])
        self._settings.set("on_unstable", "perturb")
        self._engines: dict[tuple[Any, ...], GpuFactor] = {}
        # what is read only when somebody asks: of the last factorisation, and of the last solve behind it
        self._late: Callable[[SolverReport], SolverReport] | None = None
        self._late_solve: Callable[[SolverReport], SolverReport] | None = None
        self._shifted: Any = None

    # ------------------------------------------------------------------ phases
    def analyze(self, symbolic: Any = None) -> Any:
        """Order, find the fronts and plan memory, on the host. Returns the solver."""
        super().analyze(symbolic)  # type: ignore[misc]
        structure = self._system.structure
        rules = {"SPD": DEFINITE, "S": INDEFINITE}.get(structure, (NO_MERGING,))
        self._uneven = _uneven_diagonal(self._system.pattern, self._values)
        grouped = self._symbolic = regroup(
            self._symbolic, most_width=WARP_ROWS if structure == "S" else 0, rules=rules
        )
        made = self._report.analysis
        if made is not None:
            made = replace(
                made, nnz_factor=grouped.nnz_factor, flops=grouped.flops, n_supernodes=grouped.n_supernodes,
                max_front=grouped.max_front, tree_depth=grouped.tree_depth,
            )  # fmt: skip
            self._report = SolverReport(analysis=made)
        self._engines = {}
        self._late = self._late_solve = None
        return self

    def factorize(self) -> Any:
        """Factor the values the solver holds; see `DirectSolver.factorize`."""
        if self._symbolic is None:
            self.analyze()
        bad = getattr(self, "_nonfinite", None) is not None  # its values were cleaned when they were read
        return self._factor_device(np.full_like(self._values, np.nan) if bad else self._values, True)

    def refactorize(self, values: Any, diagonal_shift: tuple[float, float] | None = None) -> Any:
        """Factor new values on the analysed pattern; a device array in the caller's entry order stays on the device."""
        if not is_device_array(values):
            return super().refactorize(values, diagonal_shift)  # type: ignore[misc]
        if self._symbolic is None:
            raise NotAnalyzedError("refactorize before analyze(): there is no pattern to refactorize on")
        if diagonal_shift is not None:
            raise NotSupportedError(
                "diagonal_shift with values on the device: shift them there, or pass host values"
            )
        values = as_device_array(values)
        expected = self._symbolic.pattern.value_map.size
        if values.size != expected:
            raise PatternChangedError(f"values has {values.size} entries; the analysed matrix has {expected}")
        if values.dtype.kind not in "fiub":
            raise InvalidValueError(f"values is {values.dtype}; allowed are real numbers")
        return self._factor_device(values, False)

    def _factor_device(self, values: Any, canonical: bool) -> Any:
        clock = Clock()
        system = self._system
        self._factor = self._refiner = None
        with clock:
            pivoting, general = system.structure != "SPD", system.structure == "G"
            if system.open_choice and canonical:
                from warpfront.sparse.structure import positive_diagonal

                pivoting = not positive_diagonal(system.pattern, values)
            factor, method = self._engine(pivoting), "LDL^T" if pivoting else "LL^T"
            factor.refactorize(values, canonical=canonical)
            if system.open_choice and not pivoting and factor.status == Status.NOT_POSITIVE_DEFINITE:
                method = f"LDL^T (Cholesky stopped at column {factor.column}: not positive definite)"
                factor = self._engine(True)
                factor.refactorize(values, canonical=canonical)
        self._factor = factor
        analysis, symbolic = self._report.analysis, self._symbolic

        def record(report: SolverReport) -> SolverReport:
            made = (lu_record if general else partial(_factor_record, method=method))(
                factor, symbolic, clock=clock
            )
            return SolverReport(analysis, made, report.solve)

        self._report, self._late, self._late_solve = SolverReport(analysis), record, None
        if self._check == "raise":
            from warpfront.sparse.results import raise_outcome

            raise_outcome(self._factor)
        return self

    def solve(self, b: Any, trans: str | None = None, out: Any = None) -> Any:
        """Solve on the device; the solution is of ``b``'s kind. See `DirectSolver.solve`."""
        from warpfront.sparse.inputs import check_out, right_hand_side

        trans = "N" if trans is None else trans
        if not isinstance(trans, str) or trans not in ("N", "T", "H"):
            raise InvalidValueError(f"trans is {trans!r}; allowed are 'N', 'T', 'H'")
        n = self._system.pattern.n_cols
        on_device = is_device_array(b)
        rhs = _device_rhs(b, n) if on_device else right_hand_side(b, n, self._system.dtype)
        if rhs.dtype.kind == "c":
            raise NotSupportedError(
                "device='cuda' takes real right-hand sides; solve both parts, or use device='cpu'"
            )
        if out is not None and not on_device:
            check_out(out, rhs.shape, rhs.dtype)
        if out is not None and on_device and (not is_device_array(out) or out.shape != rhs.shape):
            raise InvalidValueError(f"out must be a device array of shape {rhs.shape}")
        if self._factor is None:
            self.factorize()
        factor: GpuFactor = self._factor
        if self._check == "raise":
            from warpfront.sparse.results import raise_outcome

            raise_outcome(self._factor)
        clock = Clock()
        with clock:
            x = self._solve_device(rhs, on_device, out, self._side(trans))
        self._record_late(factor, rhs.shape, clock)
        if out is None or on_device:
            return x
        out[...] = x
        return out

    def _side(self, trans: str) -> str:
        """Which factor goes first: the transpose of a symmetric matrix is the matrix; all are real."""
        return "T" if trans != "N" and self._system.structure == "G" else "N"

    def _solve_device(self, rhs: Any, on_device: bool, out: Any, side: str) -> Any:
        import cupy

        steps = int(self._settings["ir_n_steps"])
        adaptive = self._factor.pivoting and "ir_n_steps" not in self._settings.values
        self._factor.most_steps = MOST_STEPS if adaptive else 0
        if on_device:
            return self._factor.solve(rhs, steps, None if out is None else as_device_array(out), side)
        return self._factor.solve(cupy.asarray(rhs), steps, trans=side).get()

    def _solve_once(self, b: Any, trans: str = "N") -> Any:
        """Unrefined solve for the condition estimate."""
        import cupy

        self._factor.most_steps = 0
        return self._factor.solve(cupy.asarray(b), 0, trans=self._side(trans)).get()

    def _record_late(self, factor: GpuFactor, shape: tuple[int, ...], clock: Clock) -> None:
        tolerance = float(self._settings["ir_tol"])
        states = factor.last_states()

        def record(report: SolverReport) -> SolverReport:
            reached = factor.refined(states)
            failed = reached.normwise > tolerance and factor.status == Status.OK
            made = SolveRecord(
                status=Status.REFINEMENT_FAILED if failed else factor.status,
                n_rhs=1 if len(shape) == 1 else shape[1],
                refinement_steps=reached.steps,
                backward_error=reached.normwise,
                componentwise_error=reached.componentwise,
                seconds=clock.seconds,
                jit_seconds=clock.jit_seconds,
            )
            return SolverReport(report.analysis, report.factor, made)

        self._late_solve = record
        if self._check == "raise":
            worst = self.report.solve
            if worst is not None and worst.backward_error > tolerance:
                raise RefinementFailedError(
                    f"the backward error stays at {worst.backward_error:.1e}, above ir_tol = {tolerance:.1e}",
                    worst.componentwise_error,
                )

    # ------------------------------------------------------------------ readings
    @property
    def report(self) -> SolverReport:
        """Records of the phases that have run; waits for them."""
        if self._late is not None:
            self._report, self._late = self._late(self._report), None
        if self._late_solve is not None:
            self._report, self._late_solve = self._late_solve(self._report), None
        return self._report

    @property
    def status(self) -> Status:
        """Outcome of the last phase that has one; waits for it."""
        solved = self.report.solve
        if solved is not None and solved.status != Status.OK:
            return solved.status
        factor: GpuFactor = self._factored()  # type: ignore[attr-defined]
        return factor.status

    @property
    def memory_estimates(self) -> dict[str, int]:
        """Device bytes by purpose and their sum, with vectors for 8 right-hand sides; `memory_slots` has cuDSS's order."""
        return self._estimates()[0]

    @property
    def memory_slots(self) -> tuple[int, ...]:
        """The 16 slots of cuDSS, counted from zero (`gpu.memory.estimates`)."""
        return self._estimates()[1]

    def _estimates(self) -> tuple[dict[str, int], tuple[int, ...]]:
        if self._symbolic is None:
            raise NotAnalyzedError("memory_estimates before analyze()")
        if self._factor is not None:
            return self._factor.memory, self._factor.memory_slots
        if self._system.structure == "G":
            return lu_estimates(self)
        pivoting = self._system.structure != "SPD"
        return Planned.of(self._symbolic, pivoting, self._values.dtype, self._device).estimates()

    def set(self, name: str, value: Any) -> None:
        """Set a parameter; see `DirectSolver.set`."""
        if name == "on_unstable" and value == "delay":
            raise NotSupportedError(_NO_DELAY)
        if name in CPU_ONLY and not (isinstance(value, str) and value == SETTINGS[name].default):
            raise NotSupportedError(f"{name} is for device='cpu'; device='cuda' does not read it")
        super().set(name, value)  # type: ignore[misc]

    def execute(self, phase: str, x: Any = None, b: Any = None) -> None:
        """Run phases by cuDSS names; the parts of a solve do not run apart here."""
        if isinstance(phase, str):
            for name in phase.split("|"):
                if name.strip().startswith("solve_"):
                    raise NotSupportedError(
                        f"device='cuda' runs a solve as a whole; 'solve' instead of {name.strip()!r}"
                    )
        super().execute(phase, x, b)  # type: ignore[misc]

    def _engine(self, pivoting: bool) -> GpuFactor:
        """Buffers for a rule; made once and kept while pattern and rule stay."""
        s = self._settings
        _refuse_what_is_not_taken(s, self._system.structure == "G")
        if self._system.structure == "G":
            return lu_factor_for(self)
        scaled = s["scaling"] == "equilibrate" or (s["scaling"] == "auto" and (pivoting or self._uneven))
        threshold = float(s["pivot_threshold"]) if "pivot_threshold" in s.values else THRESHOLD
        tolerances = Tolerances(
            threshold=max(threshold, 1e-30),
            zero=float(s["zero_pivot_tol"]) if scaled else min(float(s["zero_pivot_tol"]), 1e-15),
            epsilon=float(s["pivot_epsilon"]),
        )
        key = (pivoting, scaled, tolerances)
        if key not in self._engines:
            self._engines[key] = GpuFactor(
                self._symbolic, pivoting=pivoting, scaled=scaled, dtype=self._values.dtype, tolerances=tolerances,
                device=self._device,
            )  # fmt: skip
        return self._engines[key]


_TAKEN = frozenset(
    ("reordering_alg", "user_perm", "scaling", "pivot_threshold", "pivot_epsilon", "zero_pivot_tol", "on_unstable",
     "host_nthreads", "deterministic_mode", "ir_n_steps", "ir_tol")
)  # fmt: skip


def _refuse_what_is_not_taken(settings: Any, general: bool) -> None:
    """Settings that only the CPU has are refused by name, never ignored."""
    taken = _TAKEN | LU_TAKEN if general else _TAKEN
    for name, setting in SETTINGS.items():
        value = settings[name]
        if name not in taken and value is not setting.default and value != setting.default:
            raise NotSupportedError(
                f"device='cuda' does not take {name}={value!r}; leave it at {setting.default!r}, or use device='cpu'"
            )


_NO_DELAY = (
    "device='cuda' perturbs columns without a stable pivot (on_unstable='perturb') and counts them; "
    "delayed pivots are on the CPU only: use device='cpu'"
)


def _factor_record(factor: GpuFactor, symbolic: Any, method: str, clock: Clock) -> FactorRecord:
    pivots, status = factor.pivots, factor.status
    return FactorRecord(
        status=status,
        column=factor.column,
        method=method,
        scaling="symmetric equilibration" if factor.scaled else "none",
        inertia=factor.inertia,
        inertia_certain=status in (Status.OK, Status.SINGULAR) and pivots.perturbed + pivots.doubtful == 0,
        pivots=pivots,
        nnz_factor=factor.nnz_factor,
        flops=symbolic.flops,
        factor_bytes=factor.memory["factor"],
        peak_bytes=factor.nbytes,
        threads=0,
        seconds=clock.seconds,
        jit_seconds=clock.jit_seconds,
    )


def _uneven_diagonal(pattern: Any, values: Any) -> bool:
    """Whether sizes on the diagonal differ so much that inverses of unit triangles lose what Cholesky would keep."""
    column = np.repeat(np.arange(pattern.n_cols, dtype=pattern.ind.dtype), np.diff(pattern.ptr))
    sizes = np.abs(values[pattern.ind == column])
    sizes = sizes[(sizes > 0) & np.isfinite(sizes)]
    return bool(sizes.size and sizes.max() > UNEVEN * sizes.min())


def _host_matrix(A: Any) -> Any:
    """A CuPy sparse or dense matrix on the host, where the analysis works; anything else as it is."""
    root = type(A).__module__.partition(".")[0]
    if root in ("cupy", "cupyx") and hasattr(A, "get"):
        return A.get()
    if isinstance(A, tuple) and any(is_device_array(part) for part in A):
        return tuple(as_device_array(part).get() if is_device_array(part) else part for part in A)
    return A


def _device_rhs(b: Any, n: int) -> Any:
    rhs = as_device_array(b)
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise InvalidValueError(f"b has shape {rhs.shape}; it must be ({n},) or ({n}, k)")
    if rhs.dtype.kind not in "fiub":
        raise InvalidValueError(f"b is {rhs.dtype}; allowed are real numbers, integers and booleans")
    return rhs
