"""Compiled kernel: elimination tree, postorder and column counts in one pass over a permuted pattern."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["tree_and_sizes", "tree_height"]


@njit(cache=True, nogil=True)
def tree_and_counts(n, xadj, adj, perm):
    """Elimination tree of ``A[perm][:, perm]``, postordered, with the column counts of its factor.

    Parameters: ``xadj`` int64[n+1], ``adj`` int32 (symmetric, no diagonal), ``perm`` int32[n].

    Returns ``(order, parent, counts)``: ``order`` int32[n], the permutation composed with the postorder;
    ``parent`` int32[n] and ``counts`` int64[n] in the numbering of ``order``.

    The tree is Liu's algorithm with path compression (J. W. H. Liu, SIAM J. Matrix Anal. Appl. 11, 1990);
    the counts are those of Gilbert, Ng and Peyton (SIAM J. Matrix Anal. Appl. 15, 1994). Children are
    visited in ascending order, so a column that directly precedes its parent still does so afterwards:
    pairs stay together.
    """
    number = np.empty(n, np.int32)
    for k in range(n):
        number[perm[k]] = k
    raw_parent = np.full(n, -1, np.int32)
    ancestor = np.full(n, -1, np.int32)
    for k in range(n):
        i = perm[k]
        for p in range(xadj[i], xadj[i + 1]):
            j = number[adj[p]]
            while j < k:
                up = ancestor[j]
                ancestor[j] = k
                if up < 0:
                    raw_parent[j] = k
                    break
                j = up
    # Postorder: position of a subtree = where its parent's begins plus its elder siblings' sizes.
    # Descending k meets every parent before its children; `start` is the next free slot at the end of the
    # parent's children.
    size = np.ones(n, np.int32)
    for k in range(n):
        if raw_parent[k] >= 0:
            size[raw_parent[k]] += size[k]
    last = np.empty(n, np.int32)
    free = n
    for k in range(n - 1, -1, -1):
        q = raw_parent[k]
        if q < 0:
            end = free
            free -= size[k]
        else:
            end = last[q]
            last[q] -= size[k]
        last[k] = end - 1
        ancestor[k] = end - 1
    # From here `ancestor[k]` is the final number of column k.
    order = np.empty(n, np.int32)
    parent = np.empty(n, np.int32)
    first = np.empty(n, np.int32)
    for k in range(n):
        j = ancestor[k]
        order[j] = perm[k]
        number[perm[k]] = j
        first[j] = j - size[k] + 1
        parent[j] = -1 if raw_parent[k] < 0 else ancestor[raw_parent[k]]
    # Weights whose subtree sums are the counts; `root` is the union-find forest that yields least common
    # ancestors.
    counts = np.empty(n, np.int64)
    root = np.empty(n, np.int32)
    seen = np.full(n, -1, np.int32)
    leaf = np.full(n, -1, np.int32)
    for j in range(n):
        root[j] = j
        counts[j] = 1 if first[j] == j else 0
    for j in range(n):
        if parent[j] >= 0:
            counts[parent[j]] -= 1
        i = order[j]
        for p in range(xadj[i], xadj[i + 1]):
            u = number[adj[p]]
            if u > j:
                if first[j] > seen[u]:
                    counts[j] += 1
                    q = leaf[u]
                    if q >= 0:
                        while root[q] != q:
                            root[q] = root[root[q]]
                            q = root[q]
                        counts[q] -= 1
                    leaf[u] = j
                seen[u] = j
        if parent[j] >= 0:
            root[j] = parent[j]
    for j in range(n):
        if parent[j] >= 0:
            counts[parent[j]] += counts[j]
    return order, parent, counts


@njit(cache=True, nogil=True)
def schedule_depth(n, parent, counts, subtree, slack):
    """Levels of fronts on the longest path of the tree, a first estimate of the supernodal schedule's depth.

    ``parent`` int32[n], ``counts`` int64[n], postordered. Column j + 1 joins the front of j when it is the
    parent of j and the front then stores at most the share ``slack`` of zeros; a subtree of at most
    ``subtree`` columns counts as one level, since relaxed amalgamation makes it one or two fronts.
    """
    size = np.ones(n, np.int32)
    level = np.ones(n, np.int32)
    depth = 0
    width = 1
    zeros = np.int64(0)
    for j in range(n):
        if size[j] <= subtree:
            level[j] = 1
        depth = max(depth, level[j])
        q = parent[j]
        joins = False
        if q >= 0:
            size[q] += size[j]
            if q == j + 1:
                more = zeros + width * (counts[q] + 1 - counts[j])
                joins = more <= slack * (width + 1) * (counts[q] + width)
                zeros = more
            level[q] = max(level[q], level[j] + (0 if joins else 1))
        width = width + 1 if joins else 1
        zeros = zeros if joins else 0
    return depth


@njit(cache=True, nogil=True)
def tree_and_sizes(n, xadj, adj, perm, subtree, slack):
    """What `tree_and_counts` returns, and `schedule_depth`."""
    order, parent, counts = tree_and_counts(n, xadj, adj, perm)
    return order, parent, counts, schedule_depth(n, parent, counts, subtree, slack)


@njit(cache=True, nogil=True)
def tree_height(parent):
    """Columns on the longest path of a postordered elimination tree; ``parent`` int32[n]."""
    above = np.ones(parent.size, np.int32)  # columns on the longest path up to here
    height = 0
    for j in range(parent.size):
        height = max(height, above[j])
        if parent[j] >= 0:
            above[parent[j]] = max(above[parent[j]], above[j] + 1)
    return height
