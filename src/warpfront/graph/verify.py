"""`verify`: whether a search's result is right, by Graph500's five rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warpfront.graph import _reference
from warpfront.graph.graph import Graph, as_graph
from warpfront.graph.result import BfsResult

__all__ = ["Verification", "verify"]


@dataclass(frozen=True)
class Verification:
    """Outcome of the five rules.

    Attributes
    ----------
    rules : tuple of str
        What each rule says.
    findings : tuple of str
        For each rule: empty where it holds, else the first vertex or arc against it.
    """

    rules: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether all five hold."""
        return not any(self.findings)

    def __str__(self) -> str:
        return "\n".join(
            f"{'holds ' if not found else 'BROKEN'} {rule}{': ' + found if found else ''}"
            for rule, found in zip(self.rules, self.findings, strict=True)
        )


def verify(
    graph: Any, source: Any, result: BfsResult | tuple[Any, Any], *, max_depth: int | None = None
) -> Verification:
    """Check distances and parents by the five rules of the Graph500 benchmark, with code that shares none with `bfs`.

    Parameters
    ----------
    graph : Graph, scipy.sparse matrix, networkx graph, or path
    source : int or sequence of int
    result : BfsResult, or (distances, parents)
        From `bfs` or from anywhere else; any valid tree is accepted.
    max_depth : int, optional
        What the search was told.

    Returns
    -------
    Verification
    """
    given = as_graph(graph)
    found = (result.distances, result.parents) if isinstance(result, BfsResult) else result
    ptr, ind = _host(given.ptr), _host(given.ind)
    distances, parents = (np.asarray(_host(a)) for a in found)
    starts = np.atleast_1d(np.asarray(source, np.int64))
    if given.order is not None:
        distances, parents, starts = _renumber(given, distances, parents, starts)
    findings = _reference.five_rules(
        ptr, ind, starts, distances, parents, directed=given.directed, max_depth=max_depth
    )
    return Verification(_reference.RULES, findings)


def _host(a: Any) -> Any:
    return a.get() if hasattr(a, "get") and hasattr(a, "device") and not isinstance(a, np.ndarray) else a


def _renumber(graph: Graph, distances: Any, parents: Any, starts: Any) -> tuple[Any, Any, Any]:
    order = _host(graph.order)
    rank = np.empty(graph.n, np.int64)
    rank[order] = np.arange(graph.n)
    inner = parents[order]
    inside = (inner >= 0) & (inner < graph.n)
    return distances[order], np.where(inside, rank[np.where(inside, inner, 0)], inner), rank[starts]
