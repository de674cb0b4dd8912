"""Linear-time kernels behind `Graph`: counting sorts of edges into sorted adjacency, checks, renumbering.

Offsets are int64, vertices int32. Sorting by head and then stably by tail is the double transposition of
Gustavson (ACM TOMS 4(3), 1978): every adjacency list comes out ascending.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = [
    "check_rows",
    "compress_rows",
    "count_arcs",
    "mirrored",
    "renumber",
    "rows_by_head",
    "rows_by_tail",
    "transpose_rows",
]

OK, BAD_POINTER, OUT_OF_RANGE = 0, 1, 2


@njit(cache=True, nogil=True)
def count_arcs(tail, head, both, start):  # type: ignore[no-untyped-def]
    """Count arcs by head into ``start[head + 1]``; with ``both`` the reverse of every edge, too. Loops are left out."""
    for k in range(tail.shape[0]):
        u, v = tail[k], head[k]
        if u != v:
            start[v + 1] += 1
            if both:
                start[u + 1] += 1


@njit(cache=True, nogil=True)
def rows_by_head(tail, head, both, start, out):  # type: ignore[no-untyped-def]
    """Scatter each arc's tail to its head's list; ``start`` (from running sums) is advanced."""
    for k in range(tail.shape[0]):
        u, v = tail[k], head[k]
        if u != v:
            out[start[v]] = u
            start[v] += 1
            if both:
                out[start[u]] = v
                start[u] += 1


@njit(cache=True, nogil=True)
def rows_by_tail(head_ptr, tails, start, out):  # type: ignore[no-untyped-def]
    """Second half of the sort: walk heads in order, append each to its tail's list."""
    for v in range(head_ptr.shape[0] - 1):
        for k in range(head_ptr[v], head_ptr[v + 1]):
            u = tails[k]
            out[start[u]] = v
            start[u] += 1


@njit(cache=True, nogil=True)
def compress_rows(ptr, ind, new_ptr):  # type: ignore[no-untyped-def]
    """Drop repeated entries of sorted rows in place; write the new offsets; return the arcs left."""
    at = 0
    begin = ptr[0]
    new_ptr[0] = 0
    for u in range(ptr.shape[0] - 1):
        end = ptr[u + 1]
        last = -1
        for k in range(begin, end):
            v = ind[k]
            if v != last:
                ind[at] = v
                at += 1
                last = v
        begin = end
        new_ptr[u + 1] = at
    return at


@njit(cache=True, nogil=True)
def check_rows(ptr, ind, n, found):  # type: ignore[no-untyped-def]
    """Check offsets and heads; ``found`` (int64[3]) receives a code, a place, and whether all rows ascend strictly."""
    found[0], found[1], found[2] = OK, 0, 1
    for u in range(ptr.shape[0] - 1):
        if ptr[u + 1] < ptr[u] or ptr[u] < 0 or ptr[u + 1] > ind.shape[0]:
            found[0], found[1] = BAD_POINTER, u
            return
        last = np.int64(-1)
        for k in range(ptr[u], ptr[u + 1]):
            v = np.int64(ind[k])
            if v < 0 or v >= n:
                found[0], found[1] = OUT_OF_RANGE, k
                return
            if v <= last:
                found[2] = 0
            last = v


@njit(cache=True, nogil=True)
def mirrored(ptr, ind):  # type: ignore[no-untyped-def]
    """Return whether every arc of sorted rows has its reverse: one cursor for each row, one pass."""
    n = ptr.shape[0] - 1
    cursor = ptr[:n].copy()
    for u in range(n):
        for k in range(ptr[u], ptr[u + 1]):
            v = ind[k]
            at = cursor[v]
            if at >= ptr[v + 1] or ind[at] != u:
                return False
            cursor[v] = at + 1
    return True


@njit(cache=True, nogil=True)
def transpose_rows(ptr, ind, start, out):  # type: ignore[no-untyped-def]
    """Write the rows of the transpose; ``start``: its offsets without the last, advanced."""
    for u in range(ptr.shape[0] - 1):
        for k in range(ptr[u], ptr[u + 1]):
            v = ind[k]
            out[start[v]] = u
            start[v] += 1


@njit(cache=True, nogil=True)
def renumber(ptr, ind, order, rank, new_ptr, out):  # type: ignore[no-untyped-def]
    """Write row ``order[k]`` as row k with heads renumbered by ``rank``; rows come out unsorted."""
    at = 0
    new_ptr[0] = 0
    for k in range(order.shape[0]):
        u = order[k]
        for e in range(ptr[u], ptr[u + 1]):
            out[at] = rank[ind[e]]
            at += 1
        new_ptr[k + 1] = at
