"""Plain statements of the room's mathematics, shared by its tests; no code in common with the kernels.

`serial_bfs` is the textbook search over Python containers. `five_rules` are the conditions by which the
Graph500 benchmark accepts a search tree (graph500.org, specification, "Validation"), in NumPy.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RULES", "five_rules", "serial_bfs"]

RULES = (
    "the parents form a tree rooted in the sources, without a cycle",
    "a tree edge joins vertices whose levels differ by one",
    "an edge of the graph joins levels at most one apart, or vertices that are both unreached",
    "the tree spans what can be reached from the sources, and nothing else",
    "the edge from a vertex's parent is in the graph",
)


def serial_bfs(
    ptr: Any, ind: Any, sources: Any, max_depth: int | None = None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return distances and smallest-numbered parents by the textbook queue.

    Parameters
    ----------
    ptr : int[n + 1]
        Where each vertex's arcs start.
    ind : int[arcs]
        Heads of the arcs.
    sources : sequence of int
    max_depth : int, optional
        Vertices further away stay unreached.

    Returns
    -------
    distances : int32[n]
        -1 where unreached.
    parents : int64[n]
        Smallest u with an arc (u, v) and ``distances[u] == distances[v] - 1``; a source is its own parent; -1
        where unreached.
    """
    heads = [[int(v) for v in ind[ptr[u] : ptr[u + 1]]] for u in range(len(ptr) - 1)]
    distances = [-1] * len(heads)
    parents = [-1] * len(heads)
    waiting: deque[int] = deque()
    for s in sources:
        if distances[s] < 0:
            distances[s], parents[s] = 0, int(s)
            waiting.append(int(s))
    while waiting:
        u = waiting.popleft()
        if max_depth is not None and distances[u] >= max_depth:
            continue
        for v in heads[u]:
            if distances[v] < 0:
                distances[v], parents[v] = distances[u] + 1, u
                waiting.append(v)
            elif distances[v] == distances[u] + 1:
                parents[v] = min(parents[v], u)
    return np.array(distances, np.int32), np.array(parents, np.int64)


def five_rules(
    ptr: Any,
    ind: Any,
    sources: Any,
    distances: Any,
    parents: Any,
    *,
    directed: bool = False,
    max_depth: int | None = None,
) -> tuple[str, ...]:
    """Check a search tree; return one line for each rule: empty where it holds, else the first offender.

    Parameters
    ----------
    ptr, ind : int[n + 1], int[arcs]
        The graph; an undirected one has both arcs of each edge.
    sources : sequence of int
    distances, parents : int[n]
    directed : bool
        Rule 3 then asks of an arc (u, v) with u reached that v is reached, at most one level further.
    max_depth : int, optional
        What the search was told; arcs that leave the last level are then free.
    """
    tail = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    head = np.asarray(ind, dtype=np.int64)
    level, parent = np.asarray(distances, np.int64), np.asarray(parents, np.int64)
    roots = np.zeros(level.size, bool)
    roots[np.asarray(sources, np.int64)] = True
    reached, below = level >= 0, (level >= 0) & ~roots
    if level.size != len(ptr) - 1 or parent.size != level.size or np.any(parent >= level.size):
        return tuple("distances or parents do not fit the graph" for _ in RULES)
    return (
        _tree(roots, reached, level, parent),
        _first("tree edge to", below & (level != level[np.maximum(parent, 0)] + 1)),
        _arcs(tail, head, level, directed, max_depth),
        _span(tail, head, roots, reached, level, max_depth),
        _first("no arc from the parent of", below & ~_has_parent_arc(tail, head, parent)),
    )


def _first(what: str, offends: NDArray[np.bool_]) -> str:
    found = np.flatnonzero(offends)
    return f"{what} vertex {found[0]}" if found.size else ""


def _tree(
    roots: NDArray[np.bool_], reached: NDArray[np.bool_], level: NDArray[Any], parent: NDArray[Any]
) -> str:
    n = level.size
    own = np.arange(n)
    for what, offends in (
        ("not its own parent at level 0: source", roots & ((parent != own) | (level != 0))),
        ("reached without a parent:", reached & (parent < 0)),
        ("unreached with a parent:", ~reached & (parent != -1)),
        ("level below -1:", level < -1),
    ):
        if offends.any():
            return _first(what, offends)
    # Pointer doubling: after ceil(log2 n) squarings every walk towards the root has arrived, or goes round.
    up = np.where(reached, parent, own)
    for _ in range(max(1, int(n).bit_length())):
        up = up[up]
    return _first("the walk to the root goes round from", reached & ~roots[up])


def _arcs(
    tail: NDArray[Any], head: NDArray[Any], level: NDArray[Any], directed: bool, max_depth: int | None
) -> str:
    a, b = level[tail], level[head]
    counted = a >= 0 if max_depth is None else (a >= 0) & (a < max_depth)
    wrong = counted & ((b < 0) | (b > a + 1))
    if not directed:
        wrong |= (a >= 0) & (b >= 0) & (np.abs(a - b) > 1)
    found = np.flatnonzero(wrong)
    if not found.size:
        return ""
    k = found[0]
    return f"arc {tail[k]} -> {head[k]} joins levels {a[k]} and {b[k]}"


def _span(
    tail: NDArray[Any],
    head: NDArray[Any],
    roots: NDArray[np.bool_],
    reached: NDArray[np.bool_],
    level: NDArray[Any],
    max_depth: int | None,
) -> str:
    """Compare what the tree holds with what can be reached, found by relaxing all arcs again and again."""
    seen = roots.copy()
    rounds = 0
    while max_depth is None or rounds < max_depth:
        fresh = head[seen[tail]]
        fresh = fresh[~seen[fresh]]
        if not fresh.size:
            break
        seen[fresh] = True
        rounds += 1
    return _first("reached and not in the tree, or the reverse:", seen != reached)


def _has_parent_arc(tail: NDArray[Any], head: NDArray[Any], parent: NDArray[Any]) -> NDArray[np.bool_]:
    found = np.zeros(parent.size, bool)
    found[head[parent[head] == tail]] = True
    return found
