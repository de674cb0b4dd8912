"""`teps`: Graph500's figure of a graph, searches from many sources and the harmonic mean of their rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError
from warpfront.graph.bfs import bfs
from warpfront.graph.graph import as_graph
from warpfront.graph.verify import verify as check

__all__ = ["TepsRecord", "draw_sources", "teps"]


@dataclass(frozen=True)
class TepsRecord:
    """Rates of many searches.

    Attributes
    ----------
    sources : tuple of int
        Where each began.
    seconds : tuple of float
        Time of each.
    edges : tuple of int
        Edges counted for each.
    depth : tuple of int
        Largest distance of each.
    harmonic_mean : float
        Of ``edges / seconds``, in edges a second: the mean that Graph500 reports.
    minimum, median, maximum : float
        Of the same rates.
    verified : bool or None
        Whether every tree passed the five rules; ``None`` when none was checked.
    """

    sources: tuple[int, ...]
    seconds: tuple[float, ...]
    edges: tuple[int, ...]
    depth: tuple[int, ...]
    harmonic_mean: float
    minimum: float
    median: float
    maximum: float
    verified: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        return asdict(self)


def draw_sources(graph: Any, count: int = 64, *, seed: int = 1) -> tuple[int, ...]:
    """Draw distinct sources among the vertices that have at least one arc; fewer where there are not as many."""
    if not isinstance(count, (int, np.integer)) or count < 1:
        raise InvalidValueError(f"count must be an integer >= 1, got {count!r}")
    given = as_graph(graph)
    degrees = given.degrees()
    degrees = degrees.get() if given.on_device else degrees
    candidates = np.flatnonzero(degrees)
    if not candidates.size:
        raise InvalidValueError("the graph has no edge, so no source of degree 1 or more")
    drawn = np.random.default_rng(seed).choice(candidates, min(count, candidates.size), replace=False)
    if given.order is not None:
        order = given.order.get() if given.on_device else given.order
        drawn = order[drawn]
    return tuple(int(v) for v in drawn)


def teps(
    graph: Any,
    *,
    sources: Any = None,
    count: int = 64,
    seed: int = 1,
    verify: bool = False,
    progress: Callable[[int, int], None] = lambda done, all_: None,
    **options: Any,
) -> TepsRecord:
    """Search from many sources, one after another, and report Graph500's rate.

    Parameters
    ----------
    graph : Graph, scipy.sparse matrix, networkx graph, or path
    sources : sequence of int, optional
        Default: ``count`` vertices of degree 1 or more, drawn by ``seed``.
    count, seed : int
    verify : bool
        Check every tree by the five rules (slow).
    progress : callable
        Told how many searches are done, and of how many.
    **options
        Those of `bfs`. One search before the first that counts compiles and warms up.

    Returns
    -------
    TepsRecord
    """
    given = as_graph(graph)
    starts = (
        draw_sources(given, count, seed=seed)
        if sources is None
        else tuple(int(s) for s in np.atleast_1d(sources))
    )
    if not starts:
        raise InvalidValueError("no source was given")
    bfs(given, starts[0], **options)
    seconds, edges, depths, right = [], [], [], []
    for k, source in enumerate(starts):
        found = bfs(given, source, **options)
        seconds.append(found.record.seconds)
        edges.append(found.record.edges)
        depths.append(found.record.depth)
        if verify:
            right.append(check(given, source, found, max_depth=options.get("max_depth")).ok)
        progress(k + 1, len(starts))
    rates = np.array(edges, np.float64) / np.array(seconds)
    counted = rates[rates > 0]
    return TepsRecord(
        sources=starts,
        seconds=tuple(seconds),
        edges=tuple(edges),
        depth=tuple(depths),
        harmonic_mean=float(counted.size / np.sum(1.0 / counted)) if counted.size else 0.0,
        minimum=float(rates.min()),
        median=float(np.median(rates)),
        maximum=float(rates.max()),
        verified=all(right) if verify else None,
    )
