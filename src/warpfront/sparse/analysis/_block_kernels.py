"""Diagonal blocks of a row-permuted matrix, and the entries of A by front when rows and columns differ.

Blocks are the strongly connected components of the graph with an edge j -> i for every entry (i, j), found by one
depth-first search (R. Tarjan, SIAM J. Comput. 1, 1972; for block triangular form I. S. Duff and J. K. Reid, ACM TOMS 4,
1978). A component is complete only after all it can reach, so its number is at least that of every row its columns have
entries in: numbered this way the matrix is block upper triangular.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["components", "general_lists"]


@njit(cache=True, nogil=True)
def components(ptr, row):
    """Number of the strongly connected component of each vertex; column j of the CSC pattern lists where j leads.

    Returns ``(component, count)``.
    """
    n = ptr.size - 1
    component = np.full(n, -1, np.int32)
    order = np.full(n, -1, np.int32)  # of first visits
    low = np.empty(n, np.int32)
    at = np.empty(n, np.int64)
    path = np.empty(n, np.int32)  # vertices on the way from the start
    open_ = np.empty(n, np.int32)  # visited, component not complete
    visited, count, waiting = 0, 0, 0
    for start in range(n):
        if order[start] >= 0:
            continue
        depth = 0
        path[0] = start
        order[start] = low[start] = visited
        visited += 1
        at[start] = ptr[start]
        open_[waiting] = start
        waiting += 1
        while depth >= 0:
            j = path[depth]
            if at[j] < ptr[j + 1]:
                i = row[at[j]]
                at[j] += 1
                if order[i] < 0:
                    order[i] = low[i] = visited
                    visited += 1
                    at[i] = ptr[i]
                    open_[waiting] = i
                    waiting += 1
                    depth += 1
                    path[depth] = i
                elif component[i] < 0:
                    low[j] = min(low[j], order[i])
                continue
            if low[j] == order[j]:
                while True:
                    waiting -= 1
                    i = open_[waiting]
                    component[i] = count
                    if i == j:
                        break
                count += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[j])
    return component, count


@njit(cache=True, nogil=True)
def general_lists(row, col, slot, perm, node_ptr, front_ptr, front_ind):
    """Which entries belong to which front, and where in it: `assembly_lists` for entries on both sides of the diagonal.

    Returns ``(a_ptr, a_slot, a_row, a_col)`` grouped by node.
    """
    n = perm.size
    count = node_ptr.size - 1
    inverse = np.empty(n, np.int64)
    for j in range(n):
        inverse[perm[j]] = j
    start = np.zeros(n + 1, np.int64)
    for e in range(slot.size):
        start[min(inverse[row[e]], inverse[col[e]]) + 1] += 1
    for j in range(n):
        start[j + 1] += start[j]
    a_slot = np.empty(slot.size, np.int64)
    a_row = np.empty(slot.size, np.int32)
    a_col = np.empty(slot.size, np.int32)
    fill = start[:n].copy()
    for e in range(slot.size):
        i, j = inverse[row[e]], inverse[col[e]]
        first = min(i, j)
        a_slot[fill[first]], a_row[fill[first]], a_col[fill[first]] = slot[e], i, j
        fill[first] += 1
    a_ptr = np.empty(count + 1, np.int64)
    place = np.empty(n, np.int64)
    for s in range(count):
        for k in range(front_ptr[s], front_ptr[s + 1]):
            place[front_ind[k]] = k - front_ptr[s]
        a_ptr[s] = start[node_ptr[s]]
        for e in range(start[node_ptr[s]], start[node_ptr[s + 1]]):
            a_row[e] = place[a_row[e]]
            a_col[e] = place[a_col[e]]
    a_ptr[count] = slot.size
    return a_ptr, a_slot, a_row, a_col
