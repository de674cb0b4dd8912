"""Numba kernels of `matching`: maximum-product bipartite matching as an assignment problem.

I. S. Duff and J. Koster, "On algorithms for permuting large entries to the diagonal of a sparse matrix"
(SIAM J. Matrix Anal. Appl. 22, 2001): costs ``c_ij = log max_k |a_kj| - log |a_ij| >= 0``, duals ``u`` (rows)
and ``v`` (columns) with ``c_ij - u_i - v_j >= 0`` and equality on matched entries, shortest augmenting paths
by Dijkstra's algorithm on the reduced costs. An explicit zero has cost infinity, so no comparison ever takes
it.

Index arrays come as uint32 (Numba then leaves out the test for negative indices).
"""

from __future__ import annotations

import math

import numpy as np

from warpfront.backend.jit import njit

INF = np.inf


@njit(cache=True, nogil=True)
def transpose(n_rows, ptr, ind, values, t_ptr, t_ind, t_values):
    """Write the transpose; ``t_ptr`` int64[n_rows + 1] is zero on entry."""
    for p in range(ind.size):
        t_ptr[ind[p] + 1] += 1
    for i in range(n_rows):
        t_ptr[i + 1] += t_ptr[i]
    for j in range(ptr.size - 1):
        for p in range(ptr[j], ptr[j + 1]):
            q = t_ptr[ind[p]]
            t_ind[q] = j
            t_values[q] = values[p]
            t_ptr[ind[p]] = q + 1
    for i in range(n_rows, 0, -1):
        t_ptr[i] = t_ptr[i - 1]
    t_ptr[0] = 0


@njit(cache=True, nogil=True)
def begin(ptr, ind, values, n_rows):
    """Costs, first duals, tight entries matched; where that matches every column of a square matrix, the last duals.

    Returns ``(bad, free, cost, log_max, u, v, row_of, col_of)``: the first entry that is no magnitude, else -1; and
    how many columns are left.
    """
    n_cols = ptr.size - 1
    cost, log_max = np.empty(values.size), np.empty(n_cols)
    u, v = np.empty(n_rows), np.empty(n_cols)
    row_of, col_of = np.full(n_cols, -1, np.int32), np.full(n_rows, -1, np.int32)
    bad = _column_costs(ptr, values, cost, log_max)
    free = n_cols
    if bad < 0:
        _start(ptr, ind, cost, u, v, row_of, col_of)
        for j in range(n_cols):
            free -= row_of[j] >= 0
        if free == 0 and n_rows == n_cols:
            _tighten_columns(ptr, ind, cost, u, v)
    return bad, free, cost, log_max, u, v, row_of, col_of


@njit(cache=True, nogil=True)
def end(ptr, ind, cost, u, v, col_of):
    """Last duals: every column tight, then every unmatched row; infinity in zero columns and rows."""
    _tighten_columns(ptr, ind, cost, u, v)
    _tighten_free_rows(ptr, ind, cost, u, v, col_of)


@njit(cache=True, nogil=True)
def _column_costs(ptr, values, cost, log_max):
    """Write the costs and each column's ``log max`` (0 if zero). Return the first bad entry, else -1."""
    for j in range(ptr.size - 1):
        top = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            value = values[p]
            if not (value >= 0.0 and value < INF):
                return p
            top = max(top, value)
        log_top = math.log(top) if top > 0.0 else 0.0
        log_max[j] = log_top
        for p in range(ptr[j], ptr[j + 1]):
            value = values[p]
            # The quotient keeps equal ratios at equal costs; below 1e-290 it would lose digits or vanish.
            if value == top and top > 0.0:
                cost[p] = 0.0
            elif value > 1e-290 * top:
                cost[p] = -math.log(value / top)
            elif value > 0.0:
                cost[p] = log_top - math.log(value)
            else:
                cost[p] = INF
    return -1


@njit(cache=True, nogil=True)
def _start(ptr, ind, cost, u, v, row_of, col_of):
    """Set the first duals and match tight entries.

    Square: ``u_i = min_j c_ij``, which makes an entry of every row tight. Otherwise ``u = 0``: a row that
    stays free must keep 0 for the matching to be optimal. Then ``v_j = min_i (c_ij - u_i)``. Tight diagonal
    entries go first (the identity for a diagonally dominant matrix), then free rows, then one-step
    augmentations. ``row_of`` int32[n_cols] and ``col_of`` int32[n_rows] are -1 on entry.
    """
    n_rows = u.size
    n_cols = v.size
    for i in range(n_rows):
        u[i] = INF if n_rows == n_cols else 0.0
    if n_rows == n_cols:
        for p in range(ind.size):
            u[ind[p]] = min(u[ind[p]], cost[p])
    for i in range(n_rows):
        if u[i] == INF:
            u[i] = 0.0
    for j in range(n_cols):
        least = INF
        diagonal = INF
        for p in range(ptr[j], ptr[j + 1]):
            slack = cost[p] - u[ind[p]]
            least = min(least, slack)
            if ind[p] == j:
                diagonal = slack
        if least < INF:
            v[j] = least
            if diagonal == least:
                row_of[j] = j
                col_of[j] = j
        else:
            v[j] = 0.0
    cursor = ptr[: n_cols + 1].copy()
    for j in range(n_cols):
        if row_of[j] >= 0:
            continue
        for step in range(2):
            for p in range(ptr[j], ptr[j + 1]):
                i = ind[p]
                if row_of[j] >= 0 or cost[p] - u[i] > v[j]:
                    continue
                if col_of[i] < 0:
                    row_of[j] = i
                    col_of[i] = j
                elif step == 1:
                    # Move row i's column k to a free row. Rows never become free again, so k's cursor only
                    # advances.
                    k = col_of[i]
                    q = cursor[k]
                    while q < ptr[k + 1] and (cost[q] - u[ind[q]] > v[k] or col_of[ind[q]] >= 0):
                        q += 1
                    cursor[k] = q
                    if q < ptr[k + 1]:
                        row_of[k] = ind[q]
                        col_of[ind[q]] = k
                        row_of[j] = i
                        col_of[i] = j


@njit(cache=True, nogil=True)
def sift_up(heap, place, key, i, k):
    """Put row ``i`` into the binary heap at position ``k`` or above."""
    while k > 0:
        parent = (k - 1) >> 1
        if key[heap[parent]] <= key[i]:
            break
        heap[k] = heap[parent]
        place[heap[k]] = k
        k = parent
    heap[k] = i
    place[i] = k


@njit(cache=True, nogil=True)
def drop_top(heap, place, key, size):
    """Remove the top of a heap of ``size`` rows."""
    last = heap[size - 1]
    k = 0
    while True:
        child = 2 * k + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        if key[heap[child]] >= key[last]:
            break
        heap[k] = heap[child]
        place[heap[k]] = k
        k = child
    heap[k] = last
    place[last] = k


@njit(cache=True, nogil=True)
def augment(ptr, ind, cost, u, v, row_of, col_of, dist, generation, work):
    """Match the remaining columns, each by a shortest augmenting path.

    ``dist`` float64[n_rows] is infinity on entry. A search without end has visited everything its column can
    reach; those rows are never left again, so they are taken out for good: ``dist`` = -infinity, and
    ``generation`` int32[n_rows] (n_cols on entry) receives the number of searches that failed before.
    ``work`` uint32[4, n_rows]: the heap with the stack of rows at the current distance growing from its other
    end (a row is in one of them at most), heap places, columns the rows were reached from, visited rows.
    """
    n_rows = u.size
    heap, place, pred, seen = work[0], work[1], work[2], work[3]
    failed = 0
    for root in range(v.size):
        if row_of[root] >= 0:
            continue
        # A literal 0 would compile the heap's functions a second time.
        size, low, n_seen = np.int64(0), n_rows, 0
        shortest, end = INF, -1
        di = 0.0
        j = root
        while True:
            base = di - v[j]
            for p in range(ptr[j], ptr[j + 1]):
                i = ind[p]
                # Never below di: a reduced cost is negative by rounding only, and a settled row must stay
                # settled.
                d = max(cost[p] - u[i] + base, di)
                if d >= shortest or d >= dist[i]:
                    continue
                if dist[i] == INF:
                    place[i] = n_rows
                    seen[n_seen] = i
                    n_seen += 1
                dist[i] = d
                pred[i] = j
                if col_of[i] < 0:
                    shortest = d
                    end = i
                    if d <= di:
                        break
                elif place[i] < n_rows:
                    sift_up(heap, place, dist, i, np.int64(place[i]))
                elif d <= di:
                    low -= 1
                    heap[low] = i
                else:
                    sift_up(heap, place, dist, i, size)
                    size += 1
            if shortest <= di:
                break
            if low < n_rows:
                i = heap[low]
                low += 1
            elif size > 0 and dist[heap[0]] < shortest:
                i = heap[0]
                drop_top(heap, place, dist, size)
                size -= 1
                di = dist[i]
            else:
                break
            j = np.int64(col_of[i])
        for k in range(n_seen):
            i = seen[k]
            if end >= 0 and dist[i] < shortest:
                # Exactly the settled rows: the loop stops when nothing nearer than `shortest` is left.
                u[i] += dist[i] - shortest
                v[col_of[i]] += shortest - dist[i]
            if end >= 0:
                dist[i] = INF
            else:
                dist[i] = -INF
                generation[i] = failed
        if end >= 0:
            v[root] += shortest
            j = -1
            i = end
            while j != root:
                j = np.int64(pred[i])
                following = row_of[j]
                row_of[j] = i
                col_of[i] = j
                i = following
        else:
            failed += 1


@njit(cache=True, nogil=True)
def separate_generations(ptr, ind, cost, u, v, row_of, generation, order, shift):
    """Restore feasibility after searches that failed, lowering ``u`` of each generation's rows by one amount.

    Later searches passed over the rows taken out before, so entries of later columns in them may have become
    negative. A column matched into generation g holds entries in rows of generations <= g only (the search
    visited everything else reachable), so the smallest sufficient shifts follow in one pass over these
    columns, latest generation first (``order``: all matched columns so sorted). `end` then raises
    their ``v`` by as much. ``shift`` float64[n_cols + 1] is zero on entry.
    """
    for k in range(order.size):
        j = order[k]
        g = generation[row_of[j]]
        for p in range(ptr[j], ptr[j + 1]):
            i = ind[p]
            if generation[i] < g:
                shift[generation[i]] = max(shift[generation[i]], u[i] + v[j] - cost[p] + shift[g])
    for i in range(u.size):
        u[i] -= shift[generation[i]]


@njit(cache=True, nogil=True)
def _tighten_columns(ptr, ind, cost, u, v):
    """Set ``v_j = min_i (c_ij - u_i)``, infinity in a zero column; so no rounding is carried along."""
    for j in range(v.size):
        least = INF
        for p in range(ptr[j], ptr[j + 1]):
            least = min(least, cost[p] - u[ind[p]])
        v[j] = least


@njit(cache=True, nogil=True)
def _tighten_free_rows(ptr, ind, cost, u, v, col_of):
    """Raise ``u`` of the unmatched rows until an entry is tight; infinity in a zero row."""
    for i in range(u.size):
        if col_of[i] < 0:
            u[i] = INF
    for j in range(v.size):
        for p in range(ptr[j], ptr[j + 1]):
            if col_of[ind[p]] < 0:
                u[ind[p]] = min(u[ind[p]], cost[p] - v[j])


@njit(cache=True, nogil=True)
def pair_cost(i, j, diagonal, ptr, ind):
    """Rate the 2x2 pivot (i, j) in [0, 2]: closeness to singular plus unlikeness of its columns' patterns.

    With the off-diagonal entry scaled to 1 the determinant is ``a_ii a_jj - 1`` up to signs.
    """
    p, q, common = ptr[i], ptr[j], 0
    while p < ptr[i + 1] and q < ptr[j + 1]:
        first, second = ind[p], ind[q]
        if first == second:
            common += 1
        p += first <= second
        q += second <= first
    union = ptr[i + 1] - ptr[i] + ptr[j + 1] - ptr[j] - common
    return diagonal[i] * diagonal[j] + 1.0 - common / union


@njit(cache=True, nogil=True)
def split_cycles(ptr, ind, values, scale, row_of, mate, cycle, weight, diagonal):
    """Turn a permutation of a symmetric matrix into pivots of order 1 and 2 (Duff and Pralet, 2005).

    ``row_of`` int32[n] is a perfect matching with all its entries scaled to 1. Cycles of length 1 and 2 are
    pivots as they are; of a longer even cycle the cheaper of its two sets of alternate edges is taken; of an
    odd one, the vertex left alone has the largest diagonal, then the cheapest pairs. ``mate`` int32[n] is -1
    on entry; the last three are work space [n].
    """
    n = mate.size
    for j in range(n):
        diagonal[j] = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            if ind[p] == j:
                diagonal[j] = values[p] * scale[j] * scale[j]
    for start_vertex in range(n):
        if mate[start_vertex] >= 0:
            continue
        length, i = 0, start_vertex
        while length == 0 or i != start_vertex:
            cycle[length] = i
            length += 1
            i = row_of[i]
        first = 0
        if length > 2:
            # total: cost of the pairs (first, first + 1), (first + 2, first + 3), ...; an odd cycle leaves
            # out the vertex before `first`. Going round by two visits both sets of an even cycle, all of an
            # odd one.
            total = 0.0
            for k in range(length):
                weight[k] = pair_cost(cycle[k], cycle[(k + 1) % length], diagonal, ptr, ind)
            for k in range(0, length - 1, 2):
                total += weight[k]
            if length % 2 == 0:
                other = 0.0
                for k in range(1, length, 2):
                    other += weight[k]
                first = 1 if other < total else 0
            else:
                best, least, alone = -1.0, INF, length - 1
                for _ in range(length):
                    d = diagonal[cycle[alone]]
                    if d > best or (d == best and total < least):
                        best, least = d, total
                        first = (alone + 1) % length
                    following = (alone + 2) % length
                    total += weight[alone] - weight[(alone + 1) % length]
                    alone = following
        for k in range(0, length - 1, 2):
            i, j = cycle[(first + k) % length], cycle[(first + k + 1) % length]
            mate[i], mate[j] = j, i
        if length % 2 == 1:
            i = cycle[(first + length - 1) % length]
            mate[i] = i
