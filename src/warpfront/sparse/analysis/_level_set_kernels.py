"""Compiled nested dissection by breadth-first levels (A. George, J. W. H. Liu, SIAM J. Numer. Anal. 15).

A *part* is a run of ``vertex`` whose vertices are joined to nothing outside but separators. ``seen[v]``
is the number of the last search that met v, or past every number once v is in a separator, so a search
never leaves its part.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["level_separators"]

_CUT = np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def _search(source, number, xadj, adj, seen, queue, offset, level_ptr):
    """Breadth-first search from ``source``; return ``(end, n_levels)``.

    ``queue[offset:end]`` gets the vertices level by level, ``level_ptr[0..n_levels]`` the level boundaries.
    """
    queue[offset] = source
    seen[source] = number
    level_ptr[0] = offset
    begin = offset
    end = offset + 1
    n_levels = 0
    while begin < end:
        n_levels += 1
        level_ptr[n_levels] = end
        reached = end
        for t in range(begin, end):
            v = queue[t]
            for p in range(xadj[v], xadj[v + 1]):
                if seen[adj[p]] < number:
                    seen[adj[p]] = number
                    queue[reached] = adj[p]
                    reached += 1
        begin = end
        end = reached
    return end, n_levels


@njit(cache=True, nogil=True)
def level_separators(n, xadj, adj, leaf_size, widest, thinnest):
    """Split the graph recursively at thin breadth-first levels.

    Parameters: ``xadj`` int64[n+1], ``adj`` int32; parts of at most ``leaf_size`` vertices are not split; nor
    are those without a level that holds at most the share ``widest`` of their vertices and leaves at least
    the share ``thinnest`` on each side (which also bounds the depth of the recursion). Among such levels the
    one with the largest product of the sides divided by its own size is taken.

    Returns ``(perm, n_leaf)``: ``perm`` int32[n] holds the vertices of all leaves (``n_leaf`` of them),
    then the separators, each after those nested in it.
    """
    vertex = np.empty(n, np.int32)
    perm = np.empty(n, np.int32)
    queue = np.empty(n, np.int32)
    seen = np.zeros(n, np.int64)
    level_ptr = np.empty(n + 2, np.int64)
    part_start = np.zeros(n + 2, np.int64)
    part_end = np.full(n + 2, n, np.int64)
    for v in range(n):
        vertex[v] = v
    n_parts = 1
    number = 0
    front = 0
    back = n
    while n_parts > 0:
        n_parts -= 1
        lo = part_start[n_parts]
        hi = part_end[n_parts]
        # Components first; a second search starts from the far end of the first one.
        number += 1
        end = lo
        n_levels = 0
        if hi - lo > leaf_size:
            for t in range(lo, hi):
                if seen[vertex[t]] < number:
                    begin = end
                    end, n_levels = _search(vertex[t], number, xadj, adj, seen, queue, end, level_ptr)
                    if end - begin < hi - lo:
                        part_start[n_parts] = begin
                        part_end[n_parts] = end
                        n_parts += 1
            source = queue[end - 1]
            if begin > lo:
                for t in range(lo, hi):
                    vertex[t] = queue[t]
                continue
            number += 1
            end, n_levels = _search(source, number, xadj, adj, seen, queue, lo, level_ptr)
        cut = 0
        best = 0.0
        for level in range(1, n_levels - 1):
            width = level_ptr[level + 1] - level_ptr[level]
            below = level_ptr[level] - lo
            above = hi - level_ptr[level + 1]
            if width <= widest * (hi - lo) and min(below, above) >= thinnest * (hi - lo):
                score = below * above / np.float64(width)
                if score > best:
                    best = score
                    cut = level
        if cut == 0:
            for t in range(lo, hi):
                perm[front] = vertex[t]
                front += 1
            continue
        # Only vertices with a neighbour in the next level separate; the others of the level stay below.
        number += 1
        low = level_ptr[cut]
        high = level_ptr[cut + 1]
        for t in range(low, high):
            seen[queue[t]] = number
        for t in range(high, level_ptr[cut + 2]):
            for p in range(xadj[queue[t]], xadj[queue[t] + 1]):
                v = adj[p]
                if seen[v] == number:
                    seen[v] = _CUT
                    back -= 1
                    perm[back] = v
        free = lo
        for t in range(lo, hi):
            if t == high:
                part_start[n_parts] = lo
                part_end[n_parts] = free
                part_start[n_parts + 1] = free
            if seen[queue[t]] != _CUT:
                vertex[free] = queue[t]
                free += 1
        part_end[n_parts + 1] = free
        n_parts += 2
    return perm, front
