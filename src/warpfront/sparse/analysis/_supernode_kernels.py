"""Compiled steps of the supernodal analysis. Tree arrays are parents with -1 at a root, children before parents."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["amalgamate", "assembly_lists", "children", "front_structures"]


@njit(cache=True, nogil=True)
def _entries(width, front):
    return width * front - width * (width - 1) // 2


@njit(cache=True, nogil=True)
def amalgamate(parent, counts, always, width_limit, zero_limit):
    """Fundamental supernodes, then relaxed merging of any child into its parent.

    A child is merged when the merged width is at most ``always``, or at most ``width_limit[t]`` with a share of
    stored zeros below ``zero_limit[t]`` for some t.

    Returns ``(node_ptr, node_parent, node_front, order)``: columns of a node are ``order[node_ptr[s]:node_ptr[s+1]]``,
    nodes are postordered, ``node_front`` is the front's size (own columns and rows below).
    """
    n = parent.size
    first = np.empty(n + 1, np.int64)
    of_column = np.empty(n, np.int64)
    count = 0
    for j in range(n):
        if j == 0 or parent[j - 1] != j or counts[j - 1] != counts[j] + 1:
            first[count] = j
            count += 1
        of_column[j] = count - 1
    first[count] = n
    width = np.empty(count, np.int64)
    front = np.empty(count, np.int64)
    zeros = np.zeros(count, np.int64)
    up = np.empty(count, np.int64)
    into = np.empty(count, np.int64)  # representative after merging
    head = np.full(count, -1, np.int64)
    link = np.full(count, -1, np.int64)
    for s in range(count):
        last = first[s + 1] - 1
        width[s] = first[s + 1] - first[s]
        front[s] = counts[first[s]]
        up[s] = of_column[parent[last]] if parent[last] >= 0 else -1
        into[s] = s
    for s in range(count):  # children lists, last child first
        if up[s] >= 0:
            link[s] = head[up[s]]
            head[up[s]] = s
    for p in range(count):
        child = head[p]
        head[p] = -1
        while child >= 0:
            following = link[child]
            w = width[child] + width[p]
            f = width[child] + front[p]
            size = _entries(w, f)
            z = (
                zeros[p]
                + zeros[child]
                + size
                - _entries(width[p], front[p])
                - _entries(width[child], front[child])
            )
            merge = w <= always
            for t in range(width_limit.size):
                merge = merge or (w <= width_limit[t] and z < zero_limit[t] * size)
            if merge:
                width[p], front[p], zeros[p] = w, f, z
                into[child] = p
                grandchild = head[child]
                while grandchild >= 0:  # the child's children hang on the merged node, not considered again
                    after = link[grandchild]
                    link[grandchild] = head[p]
                    head[p] = grandchild
                    grandchild = after
            else:
                link[child] = head[p]
                head[p] = child
            child = following
    for s in range(count - 1, -1, -1):  # parents have larger numbers: one pass resolves the chain
        into[s] = into[into[s]]
    return _renumber(n, first, up, into, width, front)


@njit(cache=True, nogil=True)
def _renumber(n, first, up, into, width, front):
    """Postorder the merged tree (small children first, so that the deepest stack is entered last) and number the columns."""
    count = up.size
    head = np.full(count + 1, -1, np.int64)
    link = np.full(count, -1, np.int64)
    above = np.full(count, -1, np.int64)
    for s in range(count):  # descending insertion keeps ascending order in the list
        t = count - 1 - s
        if into[t] == t:
            # the parent of a merged node is the parent of its topmost member, which is the representative itself
            p = into[up[t]] if up[t] >= 0 else count
            above[t] = p if p < count else -1
            link[t] = head[p]
            head[p] = t
    stack = np.empty(count + 1, np.int64)
    new = np.full(count, -1, np.int64)
    kept = 0
    top = 0
    stack[0] = count
    while top >= 0:
        s = stack[top]
        child = head[s]
        if child >= 0:
            head[s] = link[child]
            top += 1
            stack[top] = child
        else:
            if s < count:
                new[s] = kept
                kept += 1
            top -= 1
    node_ptr = np.zeros(kept + 1, np.int64)
    node_parent = np.full(kept, -1, np.int64)
    node_front = np.empty(kept, np.int64)
    for s in range(count):
        if new[s] >= 0:
            node_ptr[new[s] + 1] = width[s]
            node_front[new[s]] = front[s]
            if above[s] >= 0:
                node_parent[new[s]] = new[above[s]]
    for s in range(kept):
        node_ptr[s + 1] += node_ptr[s]
    fill = node_ptr.copy()
    order = np.empty(n, np.int64)
    for s in range(count):
        t = new[into[s]]
        for j in range(first[s], first[s + 1]):
            order[fill[t]] = j
            fill[t] += 1
    return node_ptr, node_parent, node_front, order


@njit(cache=True, nogil=True)
def children(parent):
    """Children of each node, ascending: ``(child_ptr, child_ind)``."""
    count = parent.size
    child_ptr = np.zeros(count + 1, np.int64)
    for s in range(count):
        if parent[s] >= 0:
            child_ptr[parent[s] + 1] += 1
    for s in range(count):
        child_ptr[s + 1] += child_ptr[s]
    child_ind = np.empty(child_ptr[count], np.int64)
    fill = child_ptr[:count].copy()
    for s in range(count):
        if parent[s] >= 0:
            child_ind[fill[parent[s]]] = s
            fill[parent[s]] += 1
    return child_ptr, child_ind


@njit(cache=True, nogil=True)
def front_structures(xadj, adj, perm, node_ptr, node_parent, node_front):
    """Indices of each front (own columns, then the sorted rows below) and their places in the parent's front.

    Row subtrees are walked for ascending rows, so every list comes out sorted. Returns
    ``(front_ptr, front_ind, asm_map)``; entries of ``asm_map`` for own columns are -1.
    """
    n = perm.size
    count = node_parent.size
    inverse = np.empty(n, np.int64)
    node_of = np.empty(n, np.int64)
    front_ptr = np.zeros(count + 1, np.int64)
    for s in range(count):
        front_ptr[s + 1] = front_ptr[s] + node_front[s]
    front_ind = np.empty(front_ptr[count], np.int32)
    asm_map = np.full(front_ptr[count], -1, np.int32)
    fill = front_ptr[:count].copy()
    for s in range(count):
        for j in range(node_ptr[s], node_ptr[s + 1]):
            node_of[j] = s
            inverse[perm[j]] = j
            front_ind[fill[s]] = j
            fill[s] += 1
    mark = np.full(count, -1, np.int64)
    for i in range(n):
        mark[node_of[i]] = i
        for k in range(xadj[perm[i]], xadj[perm[i] + 1]):
            j = inverse[adj[k]]
            if j < i:
                s = node_of[j]
                while mark[s] != i:
                    mark[s] = i
                    front_ind[fill[s]] = i
                    fill[s] += 1
                    s = node_parent[s]
    for s in range(count):  # both lists are sorted: one merge a child
        p = node_parent[s]
        if p < 0:
            continue
        at = front_ptr[p]
        for k in range(front_ptr[s] + node_ptr[s + 1] - node_ptr[s], front_ptr[s + 1]):
            while front_ind[at] != front_ind[k]:
                at += 1
            asm_map[k] = at - front_ptr[p]
    return front_ptr, front_ind, asm_map


@njit(cache=True, nogil=True)
def assembly_lists(ptr, ind, perm, node_ptr, front_ptr, front_ind):
    """Which entries of the lower CSC matrix belong to which front, and where in it.

    Returns ``(a_ptr, a_slot, a_row, a_col)`` grouped by node, by column inside a node.
    """
    n = perm.size
    count = node_ptr.size - 1
    inverse = np.empty(n, np.int64)
    for j in range(n):
        inverse[perm[j]] = j
    start = np.zeros(n + 1, np.int64)
    for j in range(n):
        for k in range(ptr[j], ptr[j + 1]):
            start[min(inverse[j], inverse[ind[k]]) + 1] += 1
    for j in range(n):
        start[j + 1] += start[j]
    a_slot = np.empty(ind.size, np.int64)
    a_row = np.empty(ind.size, np.int32)
    a_col = np.empty(ind.size, np.int32)
    fill = start[:n].copy()
    for j in range(n):
        for k in range(ptr[j], ptr[j + 1]):
            column = min(inverse[j], inverse[ind[k]])
            at = fill[column]
            a_slot[at] = k
            a_row[at] = max(inverse[j], inverse[ind[k]])
            fill[column] = at + 1
    a_ptr = np.empty(count + 1, np.int64)
    place = np.empty(n, np.int64)
    for s in range(count):
        for k in range(front_ptr[s], front_ptr[s + 1]):
            place[front_ind[k]] = k - front_ptr[s]
        a_ptr[s] = start[node_ptr[s]]
        for j in range(node_ptr[s], node_ptr[s + 1]):
            for k in range(start[j], start[j + 1]):
                a_row[k] = place[a_row[k]]
                a_col[k] = j - node_ptr[s]
    a_ptr[count] = ind.size
    return a_ptr, a_slot, a_row, a_col
