r"""Compiled approximate minimum degree on a quotient graph.

Literature: P. R. Amestoy, T. A. Davis, I. S. Duff, "An approximate minimum degree ordering algorithm",
SIAM J. Matrix Anal. Appl. 17 (1996); quotient graph after A. George, J. W. H. Liu, SIAM Review 31 (1989);
supervariables by hashing after C. Ashcraft, SIAM J. Sci. Comput. 16 (1995).

Vertices are variables (to be eliminated) or elements (eliminated cliques). The list of a variable i holds its
elements first (``n_elem[i]`` of them), then its variables; the list of an element holds its variables.
``weight[i]`` is the number of rows a supervariable stands for: 0 once it is absorbed, negative while it
belongs to the clique now being built. ``stamp[e]`` is 0 for a dead element; otherwise ``stamp[e] - base``
is |L_e \ L_pivot| once the first scan has met e.

The steps are inlined: called, they cost half as much again (counted references to a dozen arrays per call).
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["approximate_minimum_degree"]


@njit(cache=True, nogil=True)
def _unlink(i, degree, head, after, before):
    """Take variable i out of the list of its degree."""
    if after[i] >= 0:
        before[after[i]] = before[i]
    if before[i] >= 0:
        after[before[i]] = after[i]
    else:
        head[degree[i]] = after[i]


@njit(cache=True, nogil=True)
def _collect(used, start, length, store):
    """Move all live lists to the front of ``store``; return the space used.

    The first entry of each live list is parked in ``start`` and replaced by a tag -1 - owner, so one
    sweep over the store finds the lists in storage order.
    """
    for v in range(start.size):
        if length[v] > 0:
            p = start[v]
            start[v] = store[p]
            store[p] = -1 - v
    p = np.int64(0)
    free = np.int64(0)
    while p < used:
        v = -1 - store[p]
        if v < 0:
            p += 1
        else:
            store[free] = start[v]
            start[v] = free
            for q in range(1, length[v]):
                store[free + q] = store[p + q]
            free += length[v]
            p += length[v]
    return free


@njit(cache=True, nogil=True, inline="always")
def _build_clique(pivot, used, store, start, length, n_elem, weight, stamp, degree, head, after, before):
    """Write the clique L = (A_pivot + the union of the pivot's elements) - pivot.

    Returns ``(first, stop, size)``: it lies in ``store[first:stop]``, in place where the pivot has no
    element, else behind ``used``; ``size`` is its weight. Its variables leave the degree lists and get
    negative weights; the elements die.
    """
    lists = n_elem[pivot]
    bound = np.int64(length[pivot])
    for p in range(start[pivot], start[pivot] + lists):
        bound += length[store[p]]
    if lists > 0 and used + min(bound, start.size) > store.size:
        used = _collect(used, start, length, store)
    first = used if lists > 0 else start[pivot]
    stop = first
    size = 0
    for t in range(lists + 1):
        if t < lists:
            e = store[start[pivot] + t]
            p = start[e]
            q = p + length[e]
            stamp[e] = 0
            length[e] = 0
        else:
            p = start[pivot] + lists
            q = start[pivot] + length[pivot]
        while p < q:
            i = store[p]
            p += 1
            if weight[i] > 0:
                size += weight[i]
                weight[i] = -weight[i]
                store[stop] = i
                stop += 1
                _unlink(i, degree, head, after, before)
    return first, stop, size


@njit(cache=True, nogil=True, inline="always")
def _measure_elements(first, stop, base, store, start, n_elem, weight, degree, stamp):
    """First scan: ``stamp[e] - base`` becomes the weight of L_e without L for every element e next to L."""
    for p in range(first, stop):
        i = store[p]
        for q in range(start[i], start[i] + n_elem[i]):
            e = store[q]
            if stamp[e] >= base:
                stamp[e] += weight[i]
            elif stamp[e] > 0:
                stamp[e] = base + degree[e] + weight[i]


@njit(cache=True, nogil=True, inline="always")
def _prune(i, pivot, base, store, start, length, n_elem, weight, stamp):
    """Second scan: take what is dead or inside L out of the list of variable i; absorb elements inside L.

    Returns ``(outside, code)``: the bound on i's degree outside L, and the hash of its list. The pivot
    enters the list as its last element; it is carried along, since its place is only free once a later
    entry has been read.
    """
    free = start[i]
    outside = 0
    code = np.int64(pivot)
    for q in range(start[i], start[i] + n_elem[i]):
        e = store[q]
        if stamp[e] > base:
            outside += stamp[e] - base
            code += e
            store[free] = e
            free += 1
        elif stamp[e] == base:
            stamp[e] = 0
            length[e] = 0
    carry = pivot
    end = start[i] + length[i]
    variables = start[i] + n_elem[i]
    n_elem[i] = free - start[i] + 1
    for q in range(variables, end):
        j = store[q]
        if weight[j] > 0:
            outside += weight[j]
            code += j
            store[free] = carry
            free += 1
            carry = j
    store[free] = carry
    length[i] = free + 1 - start[i]
    return outside, code


@njit(cache=True, nogil=True, inline="always")
def _merge_equal(i, tag, store, start, length, n_elem, weight, after, member, tail, mark):
    """Make one supervariable of each set of variables with equal lists, along the chain ``after`` from i.

    Returns the last tag used in ``mark``.
    """
    while i >= 0:
        prior = i
        j = after[i]
        if j >= 0:
            tag += 1
            for q in range(start[i], start[i] + length[i]):
                mark[store[q]] = tag
        while j >= 0:
            q = start[j]
            end = q + length[j]
            if length[j] != length[i] or n_elem[j] != n_elem[i]:
                end = -1
            while q < end and mark[store[q]] == tag:
                q += 1
            if q == end:
                weight[i] += weight[j]
                weight[j] = 0
                length[j] = 0
                member[tail[i]] = j
                tail[i] = tail[j]
                after[prior] = after[j]
            else:
                prior = j
            j = after[j]
        i = after[i]
    return tag


@njit(cache=True, nogil=True)
def approximate_minimum_degree(n, xadj, adj, weight, dense):
    """Return ``perm`` int32[n], a fill-reducing elimination order.

    Parameters: ``xadj`` int64[n+1], ``adj`` int32 (symmetric, no diagonal, no duplicates; read only);
    ``weight`` int32[n], rows each vertex stands for (overwritten); ``dense``: vertices with more
    neighbours are ordered last, ascending, and so are those of weight 0; neither counts in a degree.
    Deterministic: ties go to the variable whose degree changed last.
    """
    total = np.int64(0)
    for i in range(n):
        total += weight[i]
    store = np.empty(adj.size + adj.size // 4 + n + 1, np.int32)
    start = np.empty(n, np.int64)
    length = np.empty(n, np.int32)
    n_elem = np.zeros(n, np.int32)
    degree = np.zeros(n, np.int32)
    head = np.full(total + 1, -1, np.int32)
    after = np.full(n, -1, np.int32)
    before = np.full(n, -1, np.int32)
    stamp = np.ones(n, np.int64)
    bucket = np.full(n, -1, np.int32)
    key = np.empty(n, np.int32)
    # Rows absorbed by a pivot form a chain i -> member[i] -> ..., whose last row is tail[i].
    member = np.full(n, -1, np.int32)
    tail = np.empty(n, np.int32)
    perm = np.empty(n, np.int32)
    done = np.int64(0)
    n_dense = 0
    for p in range(adj.size):
        store[p] = adj[p]
    used = np.int64(adj.size)
    for i in range(n - 1, -1, -1):
        tail[i] = i
        start[i] = xadj[i]
        length[i] = xadj[i + 1] - xadj[i]
        if length[i] > dense or weight[i] == 0:
            n_dense += 1
            perm[n - n_dense] = i
            total -= weight[i]
            weight[i] = 0
            length[i] = 0
    for i in range(n - 1, -1, -1):
        if weight[i] > 0:
            for p in range(start[i], start[i] + length[i]):
                degree[i] += weight[store[p]]
            h = head[degree[i]]
            after[i] = h
            if h >= 0:
                before[h] = i
            head[degree[i]] = i
    least = 0
    n_perm = 0
    base = np.int64(2)
    tag = np.int64(0)
    mark = np.zeros(n, np.int64)
    while n_perm < n - n_dense:
        # The pivot, and its clique L = (A_pivot + the union of its elements) - pivot.
        while head[least] < 0:
            least += 1
        pivot = head[least]
        _unlink(pivot, degree, head, after, before)
        done += weight[pivot]
        weight[pivot] = 0
        lists = n_elem[pivot]
        first, stop, size = _build_clique(
            pivot, used, store, start, length, n_elem, weight, stamp, degree, head, after, before
        )
        start[pivot] = first
        n_elem[pivot] = -1
        _measure_elements(first, stop, base, store, start, n_elem, weight, degree, stamp)
        # Prune the lists, bound the degrees, hash.
        for p in range(first, stop):
            i = store[p]
            outside, code = _prune(i, pivot, base, store, start, length, n_elem, weight, stamp)
            if outside == 0:
                # Mass elimination: nothing but the pivot's clique is left around i.
                size += weight[i]
                done -= weight[i]
                weight[i] = 0
                length[i] = 0
                member[tail[pivot]] = i
                tail[pivot] = tail[i]
            else:
                degree[i] = min(degree[i], outside)
                key[i] = code % n
                after[i] = bucket[key[i]]
                bucket[key[i]] = i
        base += total + 1
        # Supervariables: rows of one bucket with equal lists are one row from now on.
        for p in range(first, stop):
            i = store[p]
            if weight[i] < 0:
                h = key[i]
                i = bucket[h]
                bucket[h] = -1
                if i >= 0 and after[i] >= 0:
                    tag = _merge_equal(
                        i, tag, store, start, length, n_elem, weight, after, member, tail, mark
                    )
        # Back into the degree lists; the clique without its absorbed rows becomes the pivot's element.
        free = first
        for p in range(first, stop):
            i = store[p]
            if weight[i] < 0:
                weight[i] = -weight[i]
                d = min(degree[i] + size, total - done) - weight[i]
                degree[i] = d
                h = head[d]
                after[i] = h
                before[i] = -1
                if h >= 0:
                    before[h] = i
                head[d] = i
                least = min(least, d)
                store[free] = i
                free += 1
        length[pivot] = free - first
        if lists > 0:
            used = np.int64(free)
        degree[pivot] = size
        stamp[pivot] = 1 if free > first else 0
        while pivot >= 0:
            perm[n_perm] = pivot
            n_perm += 1
            pivot = member[pivot]
    return perm
