"""Compiled multilevel nested dissection (B. Hendrickson, E. Rothberg 1998; G. Karypis, V. Kumar 1998).

A part of the graph is a run of ``perm``; ``place`` is the inverse. A part is separated on a graph coarsened by matching
along heavy edges, and the separator is refined on every level on the way back. Side 0, side 1 and the separator then
stand behind each other in the run, so parts never share a place: threads may take different ones.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit
from warpfront.sparse.analysis._separator_kernels import PASSES, SEPARATOR, Levels, first_separator, refine

__all__ = ["dissect", "piece"]

COARSEST = 100
SMALL, FEW_TRIES, TRIES = (
    1000,
    2,
    4,
)  # separators grown on the coarsest graph, for a part of at most SMALL vertices
TWO_HOPS = 0.6  # a matching that leaves more of the vertices also joins vertices with a neighbour in common
STALLED = 0.9  # coarsening ends when a level keeps more than this share of the vertices
HEAVIEST = 1.5  # weight of a coarse vertex, as a multiple of the mean on the coarsest level
THIN = 20  # a side that weighs less than this share of the separator separates nothing


@njit(cache=True, nogil=True)
def _match(g, v0, x0, n, most, mate):
    """Partner of each vertex along its heaviest edge, itself where there is none; returns the coarse vertices' number."""
    xadj, adj, ew, vw = g.xadj, g.adj, g.ew, g.vw
    for v in range(n):
        mate[v] = -1
    count = 0
    for v in range(n):
        if mate[v] >= 0:
            continue
        best, heavy, light = v, 0, 0
        room = most - vw[v0 + v]
        for p in range(xadj[x0 + v], xadj[x0 + v + 1]):
            u = adj[p]
            w = vw[v0 + u]
            if mate[u] < 0 and w <= room and (ew[p] > heavy or (ew[p] == heavy and w < light)):
                best, heavy, light = u, ew[p], w
        mate[v] = best
        mate[best] = v
        count += 1
    if count <= TWO_HOPS * n:
        return count
    waiting = g.table
    for v in range(n):
        waiting[v] = -1
    for v in range(n):
        if mate[v] != v or xadj[x0 + v] == xadj[x0 + v + 1]:
            continue
        u = adj[xadj[x0 + v]]
        w = waiting[u]
        if w < 0:
            waiting[u] = v
        elif vw[v0 + v] + vw[v0 + w] <= most:
            mate[v], mate[w] = w, v
            waiting[u] = -1
            count -= 1
    return count


@njit(cache=True, nogil=True)
def _coarsen(g, v0, x0, n, most):
    """Write the next level behind this one; returns its vertices' number, 0 where it would not be much smaller."""
    xadj, adj, ew, vw, coarse, table, mate = g.xadj, g.adj, g.ew, g.vw, g.coarse, g.table, g.log
    count = _match(g, v0, x0, n, most, mate)
    v1, x1, end = v0 + n, x0 + n + 1, xadj[x0 + n]
    if count > STALLED * n or v1 + count > vw.size or 2 * end - xadj[x0] > adj.size:
        return 0
    c = 0
    for v in range(n):
        if mate[v] >= v:
            coarse[v0 + v] = c
            coarse[v0 + mate[v]] = c
            table[c] = -1
            c += 1
    xadj[x1] = end
    c = 0
    for v in range(n):
        if mate[v] < v:
            continue
        begin, w, weight = end, v, vw[v0 + v]
        while True:
            for p in range(xadj[x0 + w], xadj[x0 + w + 1]):
                d = coarse[v0 + adj[p]]
                if d != c:
                    q = table[d]
                    if q >= begin:
                        ew[q] += ew[p]
                    else:
                        table[d] = end
                        adj[end] = d
                        ew[end] = ew[p]
                        end += 1
            if w == mate[v]:
                break
            w = mate[v]
            weight += vw[v0 + w]
        vw[v1 + c] = weight
        c += 1
        xadj[x1 + c] = end
    return count


@njit(cache=True, nogil=True)
def _bisect(g, n, weight):
    """Separate the graph at the front of ``g``: ``g.side[:n]``, and the weights of the three."""
    v_at, x_at, n_at = np.zeros(64, np.int64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    n_at[0] = n
    total = np.int64(0)
    for v in range(n):
        total += g.vw[v]
    most = max(np.int64(HEAVIEST * total / COARSEST), 2)
    level = 0
    while n_at[level] > COARSEST and level < 62:
        made = _coarsen(g, v_at[level], x_at[level], n_at[level], most)
        if made == 0:
            break
        v_at[level + 1] = v_at[level] + n_at[level]
        x_at[level + 1] = x_at[level] + n_at[level] + 1
        level += 1
        n_at[level] = made
    first_separator(g, v_at[level], x_at[level], n_at[level], weight, FEW_TRIES if n <= SMALL else TRIES)
    side, coarse = g.side, g.coarse
    while level > 0:
        level -= 1
        v0, v1 = v_at[level], v_at[level + 1]
        n_sep = 0
        for v in range(n_at[level]):
            s = side[v1 + coarse[v0 + v]]
            side[v0 + v] = s
            if s == SEPARATOR:
                g.sep[n_sep] = v
                n_sep += 1
        refine(g, v0, x_at[level], n_sep, weight, PASSES)


@njit(cache=True, nogil=True)
def _load(g, xadj, adj, weights, perm, place, lo, hi):
    """Graph of the vertices perm[lo:hi], numbered by their places there, to the front of ``g``."""
    end = 0
    g.xadj[0] = 0
    for t in range(lo, hi):
        v = perm[t]
        g.vw[t - lo] = weights[v]
        for p in range(xadj[v], xadj[v + 1]):
            at = place[adj[p]]
            if at >= lo and at < hi:
                g.adj[end] = at - lo
                g.ew[end] = 1
                end += 1
        g.xadj[t - lo + 1] = end


@njit(cache=True, nogil=True)
def _split(g, perm, place, lo, hi):
    """Put side 0, side 1 and the separator behind each other in perm[lo:hi]; returns where the first two end."""
    n, old = hi - lo, g.log
    counts = np.zeros(3, np.int64)
    for t in range(n):
        counts[g.side[t]] += 1
        old[t] = perm[lo + t]
    first, second = lo + counts[0], lo + counts[0] + counts[1]
    counts[2], counts[1], counts[0] = second, first, lo
    for t in range(n):
        to = counts[g.side[t]]
        counts[g.side[t]] += 1
        perm[to] = old[t]
        place[old[t]] = to
    return first, second


@njit(cache=True, nogil=True)
def dissect(xadj, adj, weights, perm, place, lo, hi, leaf, once, inside):
    """Order perm[lo:hi] by nested dissection, parts of more than ``leaf`` vertices.

    Parameters
    ----------
    xadj, adj, weights : int64[n+1], int32, int32[n]
        The whole graph.
    perm, place : int32[n]
        Written between lo and hi, and where the vertices there stand.
    once : bool
        Only the first cut.
    inside : bool[n]
        Of places: false is written for separators.

    Returns
    -------
    (first, second) : where the sides of the last cut end; ``hi`` both, if there was none
    """
    n, m = hi - lo, 0
    for t in range(lo, hi):
        m += xadj[perm[t] + 1] - xadj[perm[t]]
    v, e = 3 * n + 64, 3 * m + 64  # levels halve, or end
    g = Levels(
        np.empty(v + 64, np.int64), np.empty(e, np.int32), np.empty(e, np.int32), np.empty(v, np.int32),
        np.empty(v, np.int32), np.empty(v, np.int8), np.empty(n + 1, np.int64), np.empty(n, np.int32),
        np.full(n, -1, np.int32), np.empty(n, np.int32), np.empty(2 * n + 1, np.int32), np.empty(n, np.int32),
        np.empty(n, np.int8),
    )  # fmt: skip
    weight, stack = np.zeros(3, np.int64), np.zeros((128, 2), np.int64)
    stack[0, 0], stack[0, 1] = lo, hi
    top, first, second = 1, hi, hi
    while top > 0:
        top -= 1
        begin, end = stack[top, 0], stack[top, 1]
        if end - begin <= leaf:
            continue
        _load(g, xadj, adj, weights, perm, place, begin, end)
        _bisect(g, end - begin, weight)
        if min(weight[0], weight[1]) * THIN <= weight[2]:
            continue
        first, second = _split(g, perm, place, begin, end)
        inside[second:end] = False
        if once:
            break
        larger = first - begin > second - first  # it waits: so the stack stays low
        stack[top + (1 - larger), 0], stack[top + (1 - larger), 1] = begin, first
        stack[top + larger, 0], stack[top + larger, 1] = first, second
        top += 2
    return first, second


@njit(cache=True, nogil=True)
def piece(xadj, adj, perm, place, lo, hi):
    """Adjacency of the vertices perm[lo:hi] among themselves, numbered by their places there: int64, int32."""
    ptr = np.zeros(hi - lo + 1, np.int64)
    total = 0
    for t in range(lo, hi):
        total += xadj[perm[t] + 1] - xadj[perm[t]]
    ind = np.empty(total, np.int32)
    end = 0
    for t in range(lo, hi):
        v = perm[t]
        for p in range(xadj[v], xadj[v + 1]):
            at = place[adj[p]]
            if at >= lo and at < hi:
                ind[end] = at - lo
                end += 1
        ptr[t - lo + 1] = end
    return ptr, ind[:end].copy()
