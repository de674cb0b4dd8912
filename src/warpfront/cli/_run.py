"""One direct solve from files, phase by phase; what happened is an `Outcome`, a refusal included."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpfront.cli._files import InputFile, describe_file, read_rhs
from warpfront.cli._progress import Phases
from warpfront.errors import InvalidValueError, NonFiniteError, RefinementFailedError, WarpfrontError

if TYPE_CHECKING:
    from warpfront.sparse.ahead import CompileAhead

__all__ = ["Outcome", "Request", "analyze_file", "solve_files", "status_name"]


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    matrix: Path
    rhs: Path | None = None
    structure: str = "auto"
    ordering: str = "auto"
    view: str = "full"
    threads: int | None = None
    refine: int | None = None

    def parameters(self) -> dict[str, Any]:
        """Parameters of the solver that were asked for."""
        if self.ordering == "user":
            raise InvalidValueError(
                "--ordering user: a permutation can be given from Python only (user_perm=)"
            )
        found: dict[str, Any] = {"reordering_alg": self.ordering}
        if self.threads is not None:
            found["host_nthreads"] = self.threads
        if self.refine is not None:
            found["ir_n_steps"] = self.refine
        return found


@dataclass
class Outcome:
    """What one run did, filled in as its phases end.

    Attributes
    ----------
    request : Request
    error : WarpfrontError or None
        Why it stopped.
    files : dict of str to InputFile
        ``matrix``, ``rhs``.
    solver : DirectSolver or None
        With the records of the phases that have run.
    x : float64[n] or float64[n, k], or None
    backward_error, componentwise_error : float or None
        Worst over the right-hand sides.
    forward_error : float or None
        ``max |x - 1|``, where the right-hand side was made from a solution of ones.
    condition : float or None
        Estimate in the 1-norm.
    seconds : dict of str to float
        Wall time by phase, compilation included.
    wall_seconds : float
        From the start of the command.
    """

    request: Request
    error: WarpfrontError | None = None
    files: dict[str, InputFile] = field(default_factory=dict)
    solver: Any = None
    x: Any = None
    backward_error: float | None = None
    componentwise_error: float | None = None
    forward_error: float | None = None
    condition: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    wall_seconds: float = 0.0


def status_name(error: WarpfrontError | None) -> str:
    """Return ``ok`` or the refusal in snake case, e.g. ``singular`` or ``not_positive_definite``."""
    if error is None:
        return "ok"
    from warpfront import errors

    names = {
        errors.SingularMatrixError: "singular",
        errors.NotPositiveDefiniteError: "not_positive_definite",
        errors.NonFiniteError: "non_finite",
        errors.RefinementFailedError: "refinement_failed",
        errors.NotSupportedError: "not_supported",
    }
    return next((name for kind, name in names.items() if isinstance(error, kind)), "invalid_input")


def solve_files(request: Request) -> Outcome:
    """Read, analyse, factor and solve. A refusal is in the outcome; any other exception is a defect."""
    from warpfront.sparse.ahead import CompileAhead

    with CompileAhead() as ahead:
        return _recorded(request, partial(_solve, ahead))


def analyze_file(request: Request) -> Outcome:
    """Read and analyse only."""
    return _recorded(request, _analyze)


def _recorded(request: Request, body: Any) -> Outcome:
    outcome = Outcome(request)
    begin = time.perf_counter()
    with Phases() as phases:
        try:
            body(outcome, phases)
        except WarpfrontError as error:
            outcome.error = error
    outcome.seconds = phases.seconds
    outcome.wall_seconds = time.perf_counter() - begin
    return outcome


def _analyze(outcome: Outcome, phases: Phases, ahead: CompileAhead | None = None) -> Any:
    """Read the matrix and analyse it; returns it as it was read."""
    request = outcome.request
    with phases.phase("loading", "libraries"):
        import scipy.sparse  # noqa: F401 - the reader needs it; its import is not part of the time to read

        from warpfront.formats import read_matrix
    parameters = request.parameters()
    with phases.phase("reading", request.matrix.name):
        matrix = read_matrix(request.matrix)
        outcome.files["matrix"] = describe_file(request.matrix)
    if ahead is not None:
        ahead.choose(_likely_method(matrix, request.structure))
    with phases.phase("loading", "libraries"):
        from warpfront.sparse.solver import DirectSolver

        phases.watch_compiler()
    size = " x ".join(f"{s:,}" for s in matrix.shape)
    with phases.phase("analysing", size):
        try:
            outcome.solver = DirectSolver(matrix, request.structure, request.view, **parameters)
        except WarpfrontError as error:
            raise _placed(error, request.matrix) from None
    phases.announce()
    with phases.phase("analysing", size):
        outcome.solver.analyze()
    return matrix


def _likely_method(matrix: Any, structure: str) -> str:
    """Tell which factorisation to compile ahead; a wrong guess costs nothing but the help."""
    if structure == "G":
        return "lu"
    if max(matrix.shape) > matrix.size:  # empty rows, or a size that only the file's header believes in
        return "ldlt"
    square = matrix.shape[0] == matrix.shape[1] > 0
    if structure == "auto" and square and abs(matrix - matrix.T).max() > 0:
        return "lu"
    return "cholesky" if _maybe_definite(matrix, structure) else "ldlt"


def _maybe_definite(matrix: Any, structure: str) -> bool:
    """Tell whether Cholesky will be tried."""
    return structure == "SPD" or (structure == "auto" and bool((matrix.diagonal() > 0).all()))


def _placed(error: WarpfrontError, path: Path) -> WarpfrontError:
    """Return the error with the file's name before its message."""
    message = f"{path}: {error}"
    return NonFiniteError(message, error.entry) if isinstance(error, NonFiniteError) else type(error)(message)


def _solve(ahead: CompileAhead, outcome: Outcome, phases: Phases) -> None:
    matrix = _analyze(outcome, phases, ahead)
    request, solver = outcome.request, outcome.solver
    n = solver.report.analysis.n
    full = _whole(matrix, request.view)
    if request.rhs is None:
        import numpy as np

        b = full @ np.ones(n)
    else:
        with phases.phase("reading", request.rhs.name):
            b = read_rhs(request.rhs, n)
            outcome.files["rhs"] = describe_file(request.rhs)
    if ahead.running:
        with phases.phase("compiling"):
            ahead.wait()
    with phases.phase("factorising", f"(predicted: {solver.report.analysis.flops:.3g} flops)"):
        solver.factorize()
    with phases.phase("solving"):
        try:
            x = solver.solve(b)
        finally:
            _copy_errors(outcome)
    if solver.get("ir_n_steps") == 0:
        _measure(outcome, full, x, b)
    outcome.x = x
    if request.rhs is None:
        outcome.forward_error = float(abs(x - 1.0).max(initial=0.0))
    with phases.phase("estimating", "the condition number"):
        reciprocal = solver.rcond()
        outcome.condition = 1.0 / reciprocal if reciprocal > 0 else float("inf")


def _copy_errors(outcome: Outcome) -> None:
    record = outcome.solver.report.solve
    if record is not None:
        outcome.backward_error = record.backward_error
        outcome.componentwise_error = record.componentwise_error


def _whole(matrix: Any, view: str) -> Any:
    """Return the symmetric matrix that a view of one triangle stands for."""
    if view == "full":
        return matrix
    from scipy import sparse

    if view == "lower":
        return sparse.tril(matrix) + sparse.tril(matrix, -1).T
    return sparse.triu(matrix) + sparse.triu(matrix, 1).T


def _measure(outcome: Outcome, full: Any, x: Any, b: Any) -> None:
    """Measure a solution that was not refined: the solver has not, and none is handed out unmeasured."""
    import numpy as np

    x, b = np.reshape(x, (len(x), -1)), np.reshape(b, (len(x), -1)).astype(np.float64)
    size = abs(full)
    residual = np.abs(b - full @ x)
    norm = float((size @ np.ones(len(x))).max(initial=0.0))
    below = norm * np.abs(x).max(axis=0, initial=0.0) + np.abs(b).max(axis=0, initial=0.0)
    whole = residual.max(axis=0, initial=0.0) / np.where(below > 0, below, 1.0)
    beside = size @ np.abs(x) + np.abs(b)
    outcome.backward_error = float(whole.max(initial=0.0))
    outcome.componentwise_error = float((residual / np.where(beside > 0, beside, 1.0)).max(initial=0.0))
    tolerance = float(outcome.solver.get("ir_tol"))
    if not outcome.backward_error <= tolerance:
        raise RefinementFailedError(
            f"without refinement the backward error is {outcome.backward_error:.1e}, above {tolerance:.1e}",
            outcome.componentwise_error,
        )
