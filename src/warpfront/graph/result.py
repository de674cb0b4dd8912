"""What a search returns: `BfsResult`, with the `BfsRecord` of how it went and a `BfsLevel` for each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["BfsLevel", "BfsRecord", "BfsResult", "Levels"]


@dataclass(frozen=True)
class BfsLevel:
    """One level: from the vertices at distance ``level`` to those one further.

    Attributes
    ----------
    level : int
    direction : {"push", "pull"}
        Push walks the arcs out of the frontier; pull lets unreached vertices look for a parent in it.
    frontier, frontier_arcs : int
        Vertices at this distance, and the arcs out of them (-1 where the search did not need to count them).
    found : int
        Vertices reached in this level.
    examined : int
        Arcs looked at. -1 where not counted (see ``trace`` of `bfs`).
    duplicates : int
        Examined arcs that led to a vertex of the next level that another arc had already found.
    atomics_tried, atomics_won : int
        Atomic claims made, and those that found a vertex. 0 where the path needs none; -1 where not counted.
    seconds : float
        Time of the level; NaN where not taken.
    """

    level: int
    direction: str
    frontier: int
    frontier_arcs: int
    found: int
    examined: int
    duplicates: int
    atomics_tried: int
    atomics_won: int
    seconds: float


_COUNTS = (
    "frontier",
    "frontier_arcs",
    "found",
    "examined",
    "duplicates",
    "atomics_tried",
    "atomics_won",
)


class Levels(Sequence[BfsLevel]):
    """The levels of a search, kept as one table: a road map has thousands of them.

    Parameters
    ----------
    table : int64[levels, 9]
        Pulled or not, then the fields of `BfsLevel` from ``frontier`` on, the time in nanoseconds (-1: not taken).
    """

    def __init__(self, table: NDArray[np.int64]) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.shape[0])

    @overload
    def __getitem__(self, index: int) -> BfsLevel: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[BfsLevel, ...]: ...

    def __getitem__(self, index: int | slice) -> BfsLevel | tuple[BfsLevel, ...]:
        if isinstance(index, slice):
            return tuple(self[k] for k in range(*index.indices(len(self))))
        level = range(len(self))[index]
        row = [int(x) for x in self.table[level]]
        named = dict(zip(_COUNTS, row[1:8], strict=True))
        seconds = row[8] * 1e-9 if row[8] >= 0 else float("nan")
        return BfsLevel(level=level, direction="pull" if row[0] else "push", seconds=seconds, **named)

    def __repr__(self) -> str:
        return f"<{len(self)} levels>"

    @property
    def pulled(self) -> bool:
        """Whether any level was pulled."""
        return bool(self.table[:, 0].any())

    @property
    def depth(self) -> int:
        """Largest distance: a level that found something leads one further."""
        found = np.flatnonzero(self.table[:, 3])
        return int(found[-1]) + 1 if found.size else 0


@dataclass(frozen=True)
class BfsRecord:
    """How a search went.

    Attributes
    ----------
    n, arcs : int
    directed : bool
    sources : tuple of int
        The caller's numbers; at most 16 of them are kept.
    n_sources : int
    device, path, variant : str
        Where it ran, by which path of `explain_bfs`, and the step of the ladder.
    reason : str
        Why this path.
    direction : str
        What was asked for: ``"auto"``, ``"push"`` or ``"pull"``.
    pull : str
        ``"used"``, ``"not needed"``, or why it was off.
    alpha, beta : float
    max_depth : int or None
    order : {"natural", "degree"}
        Numbering inside; of possible parents the first in it is taken.
    reached, depth : int
        Vertices reached, sources included; largest distance.
    edges : int
        Edges with a reached end, each undirected edge counted once: what TEPS divides by the time.
    threads : int
        CPU threads, or blocks of the GPU grid.
    levels : sequence of BfsLevel
    seconds, jit_seconds : float
        The search; compilation inside it, apart.
    """

    n: int
    arcs: int
    directed: bool
    sources: tuple[int, ...]
    n_sources: int
    device: str
    path: str
    variant: str
    reason: str
    direction: str
    pull: str
    alpha: float
    beta: float
    max_depth: int | None
    order: str
    reached: int
    depth: int
    edges: int
    threads: int
    levels: Levels
    seconds: float
    jit_seconds: float

    @property
    def teps(self) -> float:
        """Traversed edges per second, Graph500's figure: ``edges / seconds``."""
        return self.edges / self.seconds if self.seconds > 0 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**found, "levels": [asdict(level) for level in self.levels], "teps": self.teps}


class BfsResult:
    """Distances, parents, and how they came about.

    Parameters
    ----------
    distances, parents : arrays
    make_record : callable
        Returns the record; called when it is first asked for, which spares small searches half their time.

    Attributes
    ----------
    distances : int32[n]
        Arcs from the nearest source; -1 where unreached. NumPy, or CuPy for a graph in device memory.
    parents : int[n]
        A vertex one level nearer with an arc to this one: the smallest-numbered such (first in the graph's
        order). A source is its own parent; -1 where unreached. Of the graph's ``index_dtype``.
    """

    def __init__(self, distances: Any, parents: Any, make_record: Callable[[], BfsRecord]) -> None:
        self.distances = distances
        self.parents = parents
        self._make_record = make_record

    @cached_property
    def record(self) -> BfsRecord:
        """How the search went."""
        return self._make_record()

    def __repr__(self) -> str:
        r = self.record
        return f"BfsResult({r.reached} of {r.n} vertices reached, depth {r.depth}, {r.seconds:.3g} s by {r.path})"
