"""Diagonal blocks of a row-permuted matrix, the entries above them, and those of each front when rows and columns differ.

Blocks are the strongly connected components of the graph with an edge j -> i for every entry (i, j), found by one
depth-first search (R. Tarjan, SIAM J. Comput. 1, 1972; for block triangular form I. S. Duff and J. K. Reid, ACM TOMS 4,
1978). A component is complete only after all it can reach, so its number is at least that of every row its columns have
entries in: numbered this way the matrix is block upper triangular.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["general_lists", "lay_out_blocks", "permute_and_split"]


@njit(cache=True, nogil=True)
def _components(ptr, row):
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
def _transpose(ptr, row, t_ptr, t_col):
    """Pattern of the transpose, every list ascending."""
    n = ptr.size - 1
    for i in range(n + 1):
        t_ptr[i] = 0
    for k in range(row.size):
        t_ptr[np.uint32(row[k])] += 1
    total = 0
    for i in range(n):  # each list's end for now; filled from behind
        total += t_ptr[i]
        t_ptr[i] = total
    t_ptr[n] = total
    for back in range(n):
        j = n - 1 - back
        for k in range(ptr[j], ptr[j + 1]):
            i = np.uint32(row[k])
            t_ptr[i] -= 1
            t_col[t_ptr[i]] = j


@njit(cache=True, nogil=True)
def _union_with_transpose(ptr, row):
    """Adjacency ``(xadj, adj)`` of a pattern and its transpose, as `graph.adjacency` gives it, by merging sorted lists."""
    n, nnz = ptr.size - 1, row.size
    t_ptr, t_col = np.empty(n + 1, np.int64), np.empty(nnz, np.int32)
    _transpose(ptr, row, t_ptr, t_col)
    ascending = True
    for j in range(n):
        for k in range(ptr[j] + 1, ptr[j + 1]):
            ascending &= row[k - 1] < row[k]
    if not ascending:
        s_ptr, s_row = np.empty(n + 1, np.int64), np.empty(nnz, np.int32)
        _transpose(t_ptr, t_col, s_ptr, s_row)
        row = s_row
    xadj, adj = np.empty(n + 1, np.int64), np.empty(2 * nnz, np.int32)
    total = 0
    for j in range(n):
        xadj[j] = total
        p, p_end, q, q_end = ptr[j], ptr[j + 1], t_ptr[j], t_ptr[j + 1]
        while p < p_end and q < q_end:
            a, b = row[p], t_col[q]
            least = min(a, b)
            adj[total] = least
            total += least != j
            p += a <= b
            q += b <= a
        while p < p_end:
            adj[total] = row[p]
            total += row[p] != j
            p += 1
        while q < q_end:
            adj[total] = t_col[q]
            total += t_col[q] != j
            q += 1
    xadj[n] = total
    return xadj, adj[:total].copy()


@njit(cache=True, nogil=True)
def permute_and_split(ptr, ind, row_of, block_triangular):
    """Row-permute a CSC pattern so that row ``row_of[j]`` comes to the place j; split it into diagonal blocks.

    Returns
    -------
    component, count : int32[n], int
        Block of each column; all in one unless ``block_triangular``.
    inside : (row int32, col int32, slot int64)
        Entries of the blocks by columns, the rows permuted; ``slot`` is their place in the pattern.
    xadj, adj : int64[n+1], int32
        Adjacency of the pattern of these entries and their transposes: no diagonal, every list ascending.
    above : (row int32, col int32, slot int64)
        The others.
    matched : int64[n]
        Slot of the diagonal entry of each column, -1 where there is none.
    """
    n, nnz = ptr.size - 1, ind.size
    place = np.empty(n, np.int32)
    for j in range(n):
        place[row_of[j]] = j
    row = np.empty(nnz, np.int32)
    for k in range(nnz):
        row[k] = place[np.uint32(ind[k])]
    if block_triangular:
        component, count = _components(ptr, row)
    else:
        component, count = np.zeros(n, np.int32), min(n, 1)
    kept = 0
    for j in range(n):
        for k in range(ptr[j], ptr[j + 1]):
            kept += component[np.uint32(row[k])] == component[j]
    in_ptr, matched = np.empty(n + 1, np.int64), np.full(n, -1, np.int64)
    in_row, in_col, in_slot = np.empty(kept, np.int32), np.empty(kept, np.int32), np.empty(kept, np.int64)
    rest = nnz - kept
    up_row, up_col, up_slot = np.empty(rest, np.int32), np.empty(rest, np.int32), np.empty(rest, np.int64)
    at, up = 0, 0
    for j in range(n):
        in_ptr[j] = at
        for k in range(ptr[j], ptr[j + 1]):
            i = row[k]
            if component[np.uint32(i)] == component[j]:
                in_row[at], in_col[at], in_slot[at] = i, j, k
                at += 1
                if i == j:
                    matched[j] = k
            else:
                up_row[up], up_col[up], up_slot[up] = i, j, k
                up += 1
    in_ptr[n] = at
    xadj, adj = _union_with_transpose(in_ptr, in_row)
    return component, count, (in_row, in_col, in_slot), xadj, adj, (up_row, up_col, up_slot), matched


@njit(cache=True, nogil=True)
def lay_out_blocks(perm, row_of, node_ptr, component, count, above):
    """Rows in elimination order, fronts of each block, and the entries above the blocks by permuted rows.

    Returns
    -------
    rows : int32[n]
        ``row_of[perm]``.
    blocks : int64[count, 2]
        First and last front; those of a block are neighbours, because the tree is postordered.
    ptr, col, slot : int64[n+1], int32, int64
        ``above``, as `permute_and_split` returns it, by permuted row, permuted columns ascending.
    """
    n = perm.size
    rows, inverse = np.empty(n, np.int32), np.empty(n, np.int32)
    for k in range(n):
        rows[k] = row_of[perm[k]]
        inverse[perm[k]] = k
    blocks = np.empty((count, 2), np.int64)
    before = -1
    for s in range(node_ptr.size - 1):
        c = component[perm[node_ptr[s]]]
        if c != before:
            blocks[c, 0] = s
        blocks[c, 1] = s
        before = c
    up_row, up_col, up_slot = above
    # by columns first, then by rows: each pass keeps the order of the one before
    ptr, fill = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for e in range(up_row.size):
        fill[inverse[up_col[e]] + 1] += 1
        ptr[inverse[up_row[e]] + 1] += 1
    for k in range(n):
        fill[k + 1] += fill[k]
        ptr[k + 1] += ptr[k]
    by_col = np.empty(up_row.size, np.int64)
    for e in range(up_row.size):
        j = inverse[up_col[e]]
        by_col[fill[j]] = e
        fill[j] += 1
    for k in range(n):
        fill[k] = ptr[k]
    col, slot = np.empty(up_row.size, np.int32), np.empty(up_row.size, np.int64)
    for q in range(up_row.size):
        e = by_col[q]
        i = inverse[up_row[e]]
        col[fill[i]] = inverse[up_col[e]]
        slot[fill[i]] = up_slot[e]
        fill[i] += 1
    return rows, blocks, ptr, col, slot


@njit(cache=True, nogil=True)
def general_lists(row, col, slot, perm, node_ptr, front_ptr, front_ind):
    """Which entries belong to which front, and where in it: `assembly_lists` for entries on both sides of the diagonal.

    Returns ``(a_ptr, a_slot, a_row, a_col)`` grouped by node.
    """
    n = perm.size
    count = node_ptr.size - 1
    inverse = np.empty(n, np.int32)
    for j in range(n):
        inverse[np.uint32(perm[j])] = j
    start = np.zeros(n + 1, np.int64)
    for e in range(slot.size):
        first = min(inverse[np.uint32(row[e])], inverse[np.uint32(col[e])])
        start[np.uint32(first) + 1] += 1
    for j in range(n):
        start[j + 1] += start[j]
    a_slot = np.empty(slot.size, np.int64)
    a_row = np.empty(slot.size, np.int32)
    a_col = np.empty(slot.size, np.int32)
    fill = start[:n].copy()
    for e in range(slot.size):
        i, j = inverse[np.uint32(row[e])], inverse[np.uint32(col[e])]
        first = np.uint32(min(i, j))
        at = np.uint64(fill[first])
        a_slot[at], a_row[at], a_col[at] = slot[e], i, j
        fill[first] += 1
    a_ptr = np.empty(count + 1, np.int64)
    place = np.empty(n, np.int32)
    for s in range(count):
        for k in range(front_ptr[s], front_ptr[s + 1]):
            place[np.uint32(front_ind[k])] = k - front_ptr[s]
        a_ptr[s] = start[node_ptr[s]]
        for e in range(start[node_ptr[s]], start[node_ptr[s + 1]]):
            a_row[e] = place[np.uint32(a_row[e])]
            a_col[e] = place[np.uint32(a_col[e])]
    a_ptr[count] = slot.size
    return a_ptr, a_slot, a_row, a_col
