"""Compiled part of the GPU plan: subtrees, levels, assembly maps as ranges, entries sorted for tiles."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = [
    "cut_fronts",
    "entries_of_slots",
    "forest",
    "front_sizes",
    "gather_below",
    "levels",
    "merge_small",
    "merged_cost",
    "ranges",
    "rows_of_triangle",
    "subtrees",
]


@njit(cache=True, nogil=True)
def entries_of_slots(value_map, nnz):
    """The caller's entries that make up each slot, in the caller's order: pointers and entries, int64."""
    ptr = np.zeros(nnz + 2, np.int64)
    for slot in value_map:
        if slot >= 0:
            ptr[slot + 2] += 1
    for slot in range(nnz + 1):
        ptr[slot + 1] += ptr[slot]
    entries = np.empty(ptr[nnz + 1], np.int64)
    for e in range(value_map.size):
        slot = value_map[e]
        if slot >= 0:
            entries[ptr[slot + 1]] = e
            ptr[slot + 1] += 1
    return ptr[: nnz + 1].copy(), entries


@njit(cache=True, nogil=True)
def rows_of_triangle(ptr, ind):
    """Both triangles by rows, columns ascending: pointers int64, columns int32, slots int64.

    In order of columns a row gets its entries left of the diagonal before those of its own column.
    """
    n = ptr.size - 1
    start = np.zeros(n + 2, np.int64)
    for j in range(n):
        for k in range(ptr[j], ptr[j + 1]):
            start[ind[k] + 2] += 1
            if ind[k] != j:
                start[j + 2] += 1
    for j in range(n + 1):
        start[j + 1] += start[j]
    col, slot = np.empty(start[n + 1], np.int32), np.empty(start[n + 1], np.int64)
    for j in range(n):
        for k in range(ptr[j], ptr[j + 1]):
            i = ind[k]
            at = start[i + 1]
            start[i + 1] = at + 1
            col[at], slot[at] = j, k
            if i != j:
                at = start[j + 1]
                start[j + 1] = at + 1
                col[at], slot[at] = i, k
    return start[: n + 1].copy(), col, slot


@njit(cache=True, nogil=True)
def subtrees(parent, rows, flops, most_rows, cap):
    """Roots of subtrees that one warp takes: all fronts of at most ``most_rows`` rows, at most ``cap`` flops.

    Returns ``(root, first, weight)``: for each node the root of the subtree it lies in (-1: none), the first node
    of its own subtree, and that subtree's flops.
    """
    count = parent.size
    below = flops.copy()
    largest = rows.copy()
    first = np.arange(count)
    for s in range(count):
        p = parent[s]
        if p >= 0:
            below[p] += below[s]
            largest[p] = max(largest[p], largest[s])
            first[p] = min(first[p], first[s])
    root = np.full(count, -1, np.int64)
    for t in range(count):
        s = count - 1 - t
        p = parent[s]
        if p >= 0 and root[p] >= 0:
            root[s] = root[p]
        elif largest[s] <= most_rows and below[s] <= cap:
            root[s] = s
    return root, first, below


@njit(cache=True, nogil=True)
def forest(parent, rows, most_rows):
    """Which fronts have at most ``most_rows`` rows, and so has every front under them."""
    member = rows <= most_rows
    for s in range(parent.size):
        if parent[s] >= 0 and not member[s]:
            member[parent[s]] = False
    return member


@njit(cache=True, nogil=True)
def levels(parent, root):
    """Level of each node: 0 for subtrees and leaves, else one more than the highest child."""
    level = np.zeros(parent.size, np.int64)
    for s in range(parent.size):
        p = parent[s]
        if p >= 0 and root[p] < 0:
            level[p] = max(level[p], level[s] + 1)
    return level


@njit(cache=True, nogil=True)
def gather_below(front_ptr, width, source, below_ptr, out):
    """Copy the part of ``source`` (laid out as the fronts' indices) that belongs to the rows below."""
    for s in range(width.size):
        begin = front_ptr[s] + width[s]
        for i in range(below_ptr[s + 1] - below_ptr[s]):
            out[below_ptr[s] + i] = source[begin + i]


@njit(cache=True, nogil=True)
def ranges(parent, rows, below_ptr, maps, range_ptr, out):
    """For each node, the first of its rows below that lies at or behind row 32 b of the parent, for every b."""
    for s in range(parent.size):
        p = parent[s]
        if p < 0:
            continue
        count = below_ptr[s + 1] - below_ptr[s]
        at = 0
        bins = (rows[p] + 31) // 32
        for b in range(bins + 1):
            while at < count and maps[below_ptr[s] + at] < 32 * b:
                at += 1
            out[range_ptr[s] + b] = at


@njit(cache=True, nogil=True)
def _entries(width, rows):
    return width * rows - width * (width - 1) // 2


@njit(cache=True, nogil=True)
def merge_small(parent, width, rows, most, limits, wide_rows):
    """Merge children into their parent; ``width``, ``rows`` change.

    A child is merged where the merged front has at most ``most`` rows, or where the zeros this adds are less than a share of
    it: ``limits[0]`` of a front of at most 32 columns, ``limits[1]`` of one of at most 64, ``limits[2]`` of one of more than
    ``wide_rows`` rows. Returns the representative of each node.
    """
    count = parent.size
    head = np.full(count, -1, np.int64)
    link = np.full(count, -1, np.int64)
    zeros = np.zeros(count, np.int64)
    into = np.arange(count)
    for s in range(count):
        if parent[s] >= 0:
            link[s] = head[parent[s]]
            head[parent[s]] = s
    for p in range(count):
        child = head[p]
        head[p] = -1
        while child >= 0:
            following = link[child]
            w, f = width[child] + width[p], width[child] + rows[p]
            size = _entries(w, f)
            added = size - _entries(width[p], rows[p]) - _entries(width[child], rows[child])
            added += zeros[p] + zeros[child]
            merge = (
                f <= most or (w <= 32 and added < limits[0] * size) or (w <= 64 and added < limits[1] * size)
            )
            if merge or (f > wide_rows and added < limits[2] * size):
                width[p], rows[p], zeros[p] = w, f, added
                into[child] = p
                grandchild = head[child]
                while grandchild >= 0:
                    after = link[grandchild]
                    link[grandchild] = head[p]
                    head[p] = grandchild
                    grandchild = after
            else:
                link[child] = head[p]
                head[p] = child
            child = following
    for s in range(count - 1, -1, -1):
        into[s] = into[into[s]]
    return into


@njit(cache=True, nogil=True)
def merged_cost(parent, into, width, rows, forest_rows, block_rows, chunk):
    """Launches above the forest and floating-point operations of a merged tree, roughly."""
    count = parent.size
    level = np.zeros(count, np.int64)
    inside = rows <= forest_rows
    launches, flops, deepest = 1, 0.0, 0
    for s in range(count):
        if into[s] != s:
            continue
        p = into[parent[s]] if parent[s] >= 0 else -1
        w, f = float(width[s]), float(rows[s])
        flops += w * (f * f - f * w + w * w / 3)
        deepest = max(deepest, level[s])
        if p >= 0:
            level[p] = max(level[p], level[s] + 1)
            inside[p] = inside[p] and inside[s]
    small, widest = np.zeros(deepest + 1, np.int64), np.zeros(deepest + 1, np.int64)
    for s in range(count):
        if into[s] == s and not inside[s]:
            if rows[s] > block_rows:
                widest[level[s]] = max(widest[level[s]], width[s])
            else:
                small[level[s]] = 1
    for k in range(deepest + 1):
        launches += small[k]
        if widest[k] > 0:
            launches += 3 + 2 * ((widest[k] - 1) // chunk)
    return launches, flops


@njit(cache=True, nogil=True)
def cut_fronts(node_ptr, parent, front, most_rows, most_width):
    """Cut fronts of at most ``most_rows`` rows and more than ``most_width`` columns into chains of about equal widths.

    Returns ``(node_ptr, parent)`` of the new tree; the children of a cut front hang on its first piece.
    """
    count = parent.size
    pieces = np.ones(count, np.int64)
    for s in range(count):
        width = node_ptr[s + 1] - node_ptr[s]
        if front[s] <= most_rows and width > most_width:
            pieces[s] = (width + most_width - 1) // most_width
    base = np.zeros(count + 1, np.int64)
    for s in range(count):
        base[s + 1] = base[s] + pieces[s]
    new_ptr = np.zeros(base[count] + 1, np.int64)
    new_parent = np.full(base[count], -1, np.int64)
    for s in range(count):
        width = node_ptr[s + 1] - node_ptr[s]
        for k in range(pieces[s]):
            begin = width * k // pieces[s]
            new_ptr[base[s] + k] = node_ptr[s] + begin
            if k + 1 < pieces[s]:
                new_parent[base[s] + k] = base[s] + k + 1
            elif parent[s] >= 0:
                new_parent[base[s] + k] = base[parent[s]]
    new_ptr[base[count]] = node_ptr[count]
    return new_ptr, new_parent


@njit(cache=True, nogil=True)
def front_sizes(xadj, adj, perm, node_ptr, parent):
    """Rows of each front: own columns, and the rows below that entries of A bring to it or to a front under it."""
    count = parent.size
    inverse, node_of = np.empty(perm.size, np.int64), np.empty(perm.size, np.int64)
    size = np.empty(count, np.int64)
    for s in range(count):
        size[s] = node_ptr[s + 1] - node_ptr[s]
        for j in range(node_ptr[s], node_ptr[s + 1]):
            node_of[j] = s
            inverse[perm[j]] = j
    mark = np.full(count, -1, np.int64)
    for i in range(perm.size):
        mark[node_of[i]] = i
        for k in range(xadj[perm[i]], xadj[perm[i] + 1]):
            s = node_of[inverse[adj[k]]]
            while inverse[adj[k]] < i and mark[s] != i:
                mark[s] = i
                size[s] += 1
                s = parent[s]
    return size
