"""Compiled graph kernels: symmetrised union of a pattern, quotient pattern of groups."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["expand_groups", "quotient", "symmetrise"]


@njit(cache=True, nogil=True)
def symmetrise(n, ptr, ind):
    """Adjacency ``(xadj int64[n+1], adj int32)`` of A + A^T without the diagonal, sorted, no duplicates.

    ``ptr`` int64[n+1], ``ind`` int32. Scattering both (i, j) and (j, i) leaves a sorted triangle sorted,
    so the common case ends after one scatter; otherwise the list is transposed once more, which sorts it
    (the pattern is symmetric) and brings duplicates together.
    """
    xadj = np.zeros(n + 1, np.int64)
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            if ind[p] != j:
                xadj[ind[p]] += 1
                xadj[j] += 1
    total = np.int64(0)
    for j in range(n + 1):
        d = xadj[j]
        xadj[j] = total
        total += d
    fill = xadj.copy()
    adj = np.empty(total, np.int32)
    ordered = True
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            i = ind[p]
            if i != j:
                a = fill[i]
                b = fill[j]
                ordered &= (a == xadj[i] or adj[a - 1] < j) and (b == xadj[j] or adj[b - 1] < i)
                adj[a] = j
                adj[b] = i
                fill[i] = a + 1
                fill[j] = b + 1
    if ordered:
        return xadj, adj
    out = np.empty(total, np.int32)
    for j in range(n):
        fill[j] = xadj[j]
    for j in range(n):
        for p in range(xadj[j], xadj[j + 1]):
            i = adj[p]
            a = fill[i]
            if a == xadj[i] or out[a - 1] != j:
                out[a] = j
                fill[i] = a + 1
    total = 0
    for j in range(n):
        start = xadj[j]
        xadj[j] = total
        for p in range(start, fill[j]):
            adj[total] = out[p]
            total += 1
    xadj[n] = total
    return xadj, adj[:total].copy()


@njit(cache=True, nogil=True)
def quotient(n_groups, xadj, adj, groups):
    """CSC pattern of the quotient graph, strictly lower, unsorted, without duplicates.

    Returns ``(ptr, ind, weights, loose)``: ``weights`` int32[n_groups] are the numbers of rows; ``loose`` is the first
    row that is no neighbour of the next row of its group, or -1.
    """
    n = groups.size
    start = np.zeros(n_groups + 1, np.int32)
    for v in range(n):
        start[groups[v] + 1] += 1
    weights = start[1:].copy()
    for g in range(n_groups):
        start[g + 1] += start[g]
    fill = start.copy()
    members = np.empty(n, np.int32)
    for v in range(n):
        members[fill[groups[v]]] = v
        fill[groups[v]] += 1
    ptr = np.zeros(n_groups + 1, np.int64)
    ind = np.empty(adj.size, np.int32)
    mark = np.full(n_groups, -1, np.int32)
    total = np.int64(0)
    loose = -1
    for g in range(n_groups):
        for m in range(start[g], start[g + 1]):
            v = members[m]
            following = members[m + 1] if m + 1 < start[g + 1] else v
            joined = following == v
            for p in range(xadj[v], xadj[v + 1]):
                h = groups[adj[p]]
                joined = joined or adj[p] == following
                if h > g and mark[h] != g:
                    mark[h] = g
                    ind[total] = h
                    total += 1
            if not joined and loose < 0:
                loose = v
        ptr[g + 1] = total
    return ptr, ind[:total].copy(), weights, loose


@njit(cache=True, nogil=True)
def expand_groups(perm, groups):
    """Rows in the order of a permutation of their groups, those of one group ascending; int32."""
    start = np.zeros(perm.size + 1, np.int32)
    for v in range(groups.size):
        start[groups[v]] += 1
    total = 0
    for k in range(perm.size):
        g = perm[k]
        total, start[g] = total + start[g], total
    rows = np.empty(groups.size, np.int32)
    for v in range(groups.size):
        g = groups[v]
        rows[start[g]] = v
        start[g] += 1
    return rows
