"""Frozen result records. Every field that has a unit carries it in its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from warpfront.errors import NotAnalyzedError, Status

__all__ = [
    "AnalysisRecord",
    "FactorRecord",
    "Inertia",
    "OrderingCandidate",
    "PivotStats",
    "SolveRecord",
    "SolverReport",
]


class Inertia(NamedTuple):
    """Numbers of positive, negative and zero eigenvalues."""

    positive: int
    negative: int
    zero: int


class PivotStats(NamedTuple):
    """What the pivoting of one factorisation did.

    Attributes
    ----------
    one_by_one, two_by_two : int
        Pivots of each kind (a 2x2 pivot counts once).
    delayed : int
        Columns passed on to a parent front, counted once per front left.
    perturbed : int
        Pivots replaced by ``pivot_epsilon`` (sign kept).
    zero : int
        Pivots found zero to working precision.
    doubtful : int
        Pivots accepted although their column is so small that it may be rounding.
    """

    one_by_one: int
    two_by_two: int
    delayed: int
    perturbed: int
    zero: int
    doubtful: int


@dataclass(frozen=True)
class OrderingCandidate:
    """One fill-reducing ordering that was tried.

    ``depth`` is an estimate of the levels of fronts, ``height`` the columns on the longest path of the elimination tree:
    what a GPU waits for. It is counted for GPUs only.
    """

    method: str
    nnz_factor: int
    flops: float
    depth: int
    seconds: float
    height: int | None = None


@dataclass(frozen=True)
class AnalysisRecord:
    """What the analysis chose and predicts.

    ``matching``, ``n_blocks`` and ``structural_rank`` are LU's: how rows were matched with columns, diagonal blocks,
    entries that could be matched. ``steps``: name and seconds of each step, compilation included.
    """

    n: int
    nnz: int
    structure: str
    structure_reason: str
    ordering: str
    ordering_reason: str
    candidates: tuple[OrderingCandidate, ...]
    nnz_factor: int
    flops: float
    n_supernodes: int
    max_front: int
    tree_depth: int
    n_pairs: int
    seconds: float
    jit_seconds: float
    matching: str = ""
    n_blocks: int = 1
    structural_rank: int = -1
    steps: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class FactorRecord:
    """What one numeric factorisation did. ``column`` is in the caller's numbering, -1 when there is none.

    LU has no inertia: None. ``stale_matching``: the values were far from those the rows were matched for.
    """

    status: Status
    column: int
    method: str
    scaling: str
    inertia: Inertia | None
    inertia_certain: bool
    pivots: PivotStats
    nnz_factor: int
    flops: float
    factor_bytes: int
    peak_bytes: int
    threads: int
    seconds: float
    jit_seconds: float
    stale_matching: bool = False


@dataclass(frozen=True)
class SolveRecord:
    """What one solve did. Errors are the worst over the right-hand sides.

    ``forward_error`` estimates a bound of ``max |x - x_exact| / max |x|``; NaN unless asked for.
    """

    status: Status
    n_rhs: int
    refinement_steps: int
    backward_error: float
    componentwise_error: float
    seconds: float
    jit_seconds: float
    forward_error: float = float("nan")


@dataclass(frozen=True)
class SolverReport:
    """The three records of a solver, each ``None`` until its phase has run."""

    analysis: AnalysisRecord | None = None
    factor: FactorRecord | None = None
    solve: SolveRecord | None = None
    drawing: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        plain = asdict(replace(self, drawing=None))
        del plain["drawing"]
        return plain

    def plot(self) -> Any:
        """Draw the solver this report is of (`DirectSolver.plot`); a ``matplotlib.figure.Figure``."""
        if self.drawing is None:
            raise NotAnalyzedError("this report was not read from a solver: there is nothing to draw")
        return self.drawing()
