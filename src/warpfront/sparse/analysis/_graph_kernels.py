"""Compiled graph kernels: symmetrised union of a pattern, quotient pattern of groups."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["quotient", "symmetrise"]


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
def quotient(n_groups, xadj, adj, groups, weights, members):
    """CSC pattern of the quotient graph, strictly lower, unsorted, without duplicates.

    ``members`` int32[n] lists the rows group by group, ``weights`` int32[n_groups] their numbers.
    """
    ptr = np.zeros(n_groups + 1, np.int64)
    ind = np.empty(adj.size, np.int32)
    mark = np.full(n_groups, -1, np.int32)
    total = np.int64(0)
    m = 0
    for g in range(n_groups):
        for _ in range(weights[g]):
            v = members[m]
            m += 1
            for p in range(xadj[v], xadj[v + 1]):
                h = groups[adj[p]]
                if h > g and mark[h] != g:
                    mark[h] = g
                    ind[total] = h
                    total += 1
        ptr[g + 1] = total
    return ptr, ind[:total].copy()
