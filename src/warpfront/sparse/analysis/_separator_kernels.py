"""Compiled refinement of vertex separators (C. M. Fiduccia, R. M. Mattheyses 1982; C. Ashcraft, J. W. H. Liu 1998).

A vertex is on side 0, on side 1 or in the separator. A move takes a vertex out of the separator to one side and its
neighbours on the other side into it; the gain is the weight the separator loses. Moves go on through losses, and the
lightest separator met is kept. Everything is decided by weights and numbers of vertices, so bits repeat.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.jit import njit

__all__ = ["PASSES", "SEPARATOR", "Levels", "first_separator", "refine"]

SEPARATOR = 2
PASSES, ROUGH_PASSES = 4, 2  # of refinement; of a separator that is one of several
WIDEST = 0.66  # share of all weight that one side may have
UNEVEN = 0.2  # a separator between unequal sides counts as that much heavier at most
PATIENCE, PATIENCE_SHARE = (
    100,
    4,
)  # moves without a lighter separator after which a pass ends: by number, by vertices of it


class Levels(NamedTuple):
    """Graphs of all levels one behind the other, and scratch. Numbers in ``adj`` are those of its own level.

    ``xadj``, ``adj``, ``ew``, ``vw``: graphs with weights; ``coarse``: vertex of the next level; ``side``: 0, 1 or
    SEPARATOR; ``sep``: vertices of the separator; ``heap``, ``at``, ``key``: vertices by gain, ``at`` is -1 outside;
    ``log``, ``table``, ``best``: scratch.
    """

    xadj: NDArray[np.int64]
    adj: NDArray[np.int32]
    ew: NDArray[np.int32]
    vw: NDArray[np.int32]
    coarse: NDArray[np.int32]
    side: NDArray[np.int8]
    table: NDArray[np.int64]
    heap: NDArray[np.int32]
    at: NDArray[np.int32]
    key: NDArray[np.int32]
    log: NDArray[np.int32]
    sep: NDArray[np.int32]
    best: NDArray[np.int8]


@njit(cache=True, nogil=True)
def _up(heap, at, key, i):
    """Move the vertex at ``i`` to its place; of equal gains the smaller number comes first."""
    v = heap[i]
    gain = key[v]
    while i > 0:
        j = (i - 1) >> 1
        u = heap[j]
        if key[u] > gain or (key[u] == gain and u < v):
            break
        heap[i] = u
        at[u] = i
        i = j
    heap[i] = v
    at[v] = i


@njit(cache=True, nogil=True)
def _pop(heap, at, key, size):
    """Take the first of ``size`` vertices."""
    first = heap[0]
    at[first] = -1
    size -= 1
    if size > 0:
        v = heap[size]
        gain = key[v]
        i = 0
        while 2 * i + 1 < size:
            j = 2 * i + 1
            if j + 1 < size:
                a, b = heap[j], heap[j + 1]
                if key[b] > key[a] or (key[b] == key[a] and b < a):
                    j += 1
            u = heap[j]
            if gain > key[u] or (gain == key[u] and v < u):
                break
            heap[i] = u
            at[u] = i
            i = j
        heap[i] = v
        at[v] = i
    return first


@njit(cache=True, nogil=True)
def _push(heap, at, key, size, v, gain):
    key[v] = gain
    heap[size] = v
    at[v] = size
    _up(heap, at, key, size)


@njit(cache=True, nogil=True)
def _gain(xadj, adj, vw, side, x0, v, other):
    gain = vw[v]
    for p in range(xadj[x0 + v], xadj[x0 + v + 1]):
        if side[adj[p]] == other:
            gain -= vw[adj[p]]
    return gain


@njit(cache=True, nogil=True)
def _undo(g, v0, logged, kept, n_sep, other):
    """Take back the moves after the first ``kept`` entries of the log; list the separator anew, return its number."""
    side, log, sep = g.side[v0:], g.log, g.sep
    while logged > kept:
        logged -= 1
        v = log[logged]
        if v >= 0:
            side[v] = SEPARATOR
        else:
            side[-1 - v] = other
    fresh = 0
    for t in range(n_sep):
        if side[sep[t]] == SEPARATOR:
            sep[fresh] = sep[t]
            fresh += 1
    for t in range(kept):
        v = -1 - log[t]
        if v >= 0 and side[v] == SEPARATOR:
            sep[fresh] = v
            fresh += 1
    return fresh


@njit(cache=True, nogil=True)
def refine(g, v0, x0, n_sep, weight, passes):
    """Make the separator of a level lighter: passes of moves to one side, then to the other.

    Parameters
    ----------
    g : Levels
    v0, x0 : int
        First vertex of the level, first entry of its ``xadj``.
    n_sep : int
        Vertices of the separator, in ``g.sep``.
    weight : int64[3]
        Of the sides and the separator; updated.
    passes : int
        At most.

    Returns
    -------
    int : vertices of the separator

    Notes
    -----
    A move is written out here: as a function it would take all of ``g``'s arrays, one word after the other.
    """
    vw, side = g.vw[v0:], g.side[v0:]
    heap, at, key, log, xadj, adj = g.heap, g.at, g.key, g.log, g.xadj, g.adj
    widest = np.int64(WIDEST * (weight[0] + weight[1] + weight[2]))
    to = 0 if weight[0] < weight[1] else 1
    idle = 0
    for _ in range(passes):
        other = 1 - to
        size, logged, kept, since = 0, 0, 0, 0
        for t in range(n_sep):
            v = g.sep[t]
            _push(heap, at, key, size, v, _gain(g.xadj, g.adj, vw, side, x0, v, other))
            size += 1
        here, there, cut = weight[to], weight[other], weight[2]
        lightest, apart = cut, abs(here - there)
        better = False
        while size > 0 and since <= PATIENCE + PATIENCE_SHARE * n_sep:
            v = _pop(heap, at, key, size)
            size -= 1
            if here + vw[v] > widest:
                continue
            gain = key[v]
            side[v] = to
            log[logged] = v
            logged += 1
            for p in range(xadj[x0 + v], xadj[x0 + v + 1]):
                u = adj[p]
                if side[u] != other:
                    continue
                side[u] = SEPARATOR
                log[logged] = -1 - u
                logged += 1
                pulled = vw[u]
                for q in range(xadj[x0 + u], xadj[x0 + u + 1]):
                    w = adj[q]
                    if side[w] == other:
                        pulled -= vw[w]
                    elif at[w] >= 0:
                        key[w] += vw[u]
                        _up(heap, at, key, at[w])
                _push(heap, at, key, size, u, pulled)
                size += 1
            here += vw[v]
            there += gain - vw[v]
            cut -= gain
            since += 1
            if cut < lightest or (cut == lightest and abs(here - there) < apart):
                lightest, apart, kept, since, better = cut, abs(here - there), logged, 0, True
                weight[to], weight[other], weight[2] = here, there, cut
        for i in range(size):
            at[heap[i]] = -1
        n_sep = _undo(g, v0, logged, kept, n_sep, other)
        idle = 0 if better else idle + 1
        if idle == 2:
            break
        to = other
    return n_sep


@njit(cache=True, nogil=True)
def _grow(g, v0, x0, n, source, weight, total):
    """Half of the weight, breadth first from ``source``, is side 0, the separator its neighbours.

    Returns the number of these, and the vertex met last.
    """
    xadj, adj, vw, side, queue = g.xadj, g.adj, g.vw[v0:], g.side[v0:], g.table
    for v in range(n):
        side[v] = 1
    reached, head, grown = 0, 0, np.int64(0)
    while 2 * grown < total:
        if head == reached:  # the first vertex, or the next component
            while side[source] == 0:
                source = (source + 1) % n
            queue[reached] = source
            reached += 1
            side[source] = 0
            grown += vw[source]
        v = queue[head]
        head += 1
        for p in range(xadj[x0 + v], xadj[x0 + v + 1]):
            u = adj[p]
            if side[u] == 1 and 2 * grown < total:
                side[u] = 0
                grown += vw[u]
                queue[reached] = u
                reached += 1
    n_sep = 0
    weight[0], weight[1], weight[2] = grown, total - grown, 0
    for v in range(n):
        for p in range(xadj[x0 + v], xadj[x0 + v + 1]):
            if side[v] == 1 and side[adj[p]] == 0:
                side[v] = SEPARATOR
                g.sep[n_sep] = v
                n_sep += 1
                weight[1] -= vw[v]
                weight[2] += vw[v]
    return n_sep, queue[max(reached - 1, 0)]


@njit(cache=True, nogil=True)
def first_separator(g, v0, x0, n, weight, tries):
    """Separator of the coarsest graph: the best of ``tries`` that are grown from different vertices and refined."""
    side, best = g.side[v0:], g.best
    total = np.int64(0)
    for v in range(n):
        total += g.vw[v0 + v]
    found, seed, source = -1.0, 1, np.int64(0)
    trial = np.zeros(3, np.int64)
    for attempt in range(tries):
        n_sep, far = _grow(g, v0, x0, n, source, trial, total)
        refine(g, v0, x0, n_sep, trial, ROUGH_PASSES)
        more, less = max(trial[0], trial[1]), min(trial[0], trial[1])
        score = (trial[2] + 1.0) * (1.0 + UNEVEN * (more - less) / (more + 1.0))
        if found < 0 or score < found:
            found = score
            weight[:] = trial
            for v in range(n):
                best[v] = side[v]
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        source = far if attempt == 0 else np.int64((seed >> 8) % n)
    for v in range(n):
        side[v] = best[v]
