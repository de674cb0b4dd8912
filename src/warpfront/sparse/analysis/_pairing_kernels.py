"""Compiled kernel: greedy partners for rows with a zero or tiny diagonal."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["pair_rows"]


@njit(cache=True, nogil=True)
def pair_rows(n, ptr, ind, values, tiny, strong, stable):
    """Return ``mate`` int32[n], the partner of each row or -1.

    Parameters: lower triangle in CSC, ``ptr`` int64[n+1], ``ind`` int32, ``values`` float64 (absolute,
    scaled); ``tiny``, ``strong``, ``stable`` as in `pairing.zero_diagonal_pairs`.

    Rows in need wait in lists by their number of free choices, fewest first. A row moves when one of its
    choices is taken; in a list the row moved last comes first, at the start the smallest.
    """
    xadj = np.zeros(n + 1, np.int64)
    pivot = np.zeros(n)
    largest = np.zeros(n)
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            i = ind[p]
            if i == j:
                pivot[j] = values[p]
            elif values[p] > 0:
                xadj[i] += 1
                xadj[j] += 1
                largest[i] = max(largest[i], values[p])
                largest[j] = max(largest[j], values[p])
    total = np.int64(0)
    for j in range(n + 1):
        degree = xadj[j]
        xadj[j] = total
        total += degree
    adj = np.empty(total, np.int32)
    size = np.empty(total)
    fill = xadj.copy()
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            i = ind[p]
            if i != j and values[p] > 0:
                adj[fill[i]] = j
                size[fill[i]] = values[p]
                fill[i] += 1
                adj[fill[j]] = i
                size[fill[j]] = values[p]
                fill[j] += 1
    mate = np.full(n, -1, np.int32)
    choices = np.full(n, -1, np.int32)
    head = np.full(n + 1, -1, np.int32)
    after = np.full(n, -1, np.int32)
    before = np.full(n, -1, np.int32)
    for i in range(n - 1, -1, -1):
        reach = pivot[i]
        free = 0
        for p in range(xadj[i], xadj[i + 1]):
            j = adj[p]
            if xadj[j + 1] - xadj[j] == 1 and pivot[j] > 0 and pivot[j] >= stable * size[p]:
                reach += size[p] * size[p] / pivot[j]
            if size[p] >= strong * largest[i]:
                free += 1
        if reach <= tiny * largest[i] and free > 0:
            choices[i] = free
            after[i] = head[free]
            if head[free] >= 0:
                before[head[free]] = i
            head[free] = i
    fewest = 1
    while fewest < n:
        i = head[fewest]
        if i < 0:
            fewest += 1
            continue
        partner = -1
        best = 0.0
        for p in range(xadj[i], xadj[i + 1]):
            j = adj[p]
            if mate[j] < 0 and size[p] >= strong * largest[i]:
                score = size[p] / (xadj[j + 1] - xadj[j])
                if choices[j] >= 0:
                    score *= 0.5
                if score > best:
                    best = score
                    partner = j
        mate[i] = partner
        mate[partner] = i
        # Both are taken: they leave the lists, and every row that could have chosen one has a choice less.
        for side in range(2):
            taken = i if side == 0 else partner
            for p in range(xadj[taken] - 1, xadj[taken + 1]):
                k = taken if p < xadj[taken] else adj[p]
                if choices[k] > 0 and (k == taken or (mate[k] < 0 and size[p] >= strong * largest[k])):
                    if after[k] >= 0:
                        before[after[k]] = before[k]
                    if before[k] >= 0:
                        after[before[k]] = after[k]
                    else:
                        head[choices[k]] = after[k]
                    choices[k] = 0 if k == taken else choices[k] - 1
                    h = head[choices[k]]
                    after[k] = h
                    before[k] = -1
                    if h >= 0:
                        before[h] = k
                    head[choices[k]] = k
                    if k != taken:
                        fewest = max(1, min(fewest, choices[k]))
    return mate
