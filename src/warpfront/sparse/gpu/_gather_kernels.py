"""Compiled part of the GPU plan: lists by which a front in shared memory is assembled (``gather.cuh``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.jit import njit

__all__ = [
    "CHUNK_WORDS",
    "NOTHING",
    "NOWHERE",
    "SLOTS",
    "Tree",
    "chunks",
    "fill",
    "row_depths",
    "row_sources",
]


class Tree(NamedTuple):
    """Where the entries of each front come from: rows of the fronts, which are wide, entries of A, children.

    ``general``: a front is a whole square, and behind a child's lower triangle lies its upper one, packed by rows.
    """

    rows: NDArray[np.int64]
    wide: NDArray[np.bool_]
    a_ptr: NDArray[np.int64]
    a_row: NDArray[np.int32]
    a_col: NDArray[np.int32]
    a_slot: NDArray[np.int64]
    child_ptr: NDArray[np.int64]
    child_ind: NDArray[np.int64]
    below_ptr: NDArray[np.int64]
    maps: NDArray[np.int32]
    block: NDArray[np.int64]
    general: bool


SLOTS, LANES = 8, 32
CHUNK_WORDS = SLOTS * LANES
NOTHING, NOWHERE = -1, 65535
LONG = 4  # class of elements with more sources than a chunk has slots


@njit(cache=True, nogil=True)
def _class_of(sources):
    """Class of an element: 0..3 for up to 1, 2, 4, 8 sources, else LONG."""
    size = 1
    for k in range(4):
        if sources <= size:
            return k
        size *= 2
    return LONG


@njit(cache=True, nogil=True)
def _count(tree, s, rows, count):
    """Sources of each element (row, col) of front s, at col * rows + row."""
    maps = tree.maps
    count[: rows * rows] = 0
    for e in range(tree.a_ptr[s], tree.a_ptr[s + 1]):
        count[tree.a_col[e] * rows + tree.a_row[e]] += 1
    for c in range(tree.child_ptr[s], tree.child_ptr[s + 1]):
        child = tree.child_ind[c]
        begin, end = tree.below_ptr[child], tree.below_ptr[child + 1]
        for j in range(begin, end):
            for i in range(j, end):
                count[maps[j] * rows + maps[i]] += 1
                if tree.general and i > j:
                    count[maps[i] * rows + maps[j]] += 1


@njit(cache=True, nogil=True)
def _long_chunks(rows, count):
    """Chunks of the elements of class LONG: 32 elements side by side, as deep as the deepest."""
    total, lane, deepest = 0, 0, 0
    for e in range(rows * rows):
        if count[e] > SLOTS:
            deepest = max(deepest, count[e])
            lane += 1
            if lane == LANES:
                total += (deepest + SLOTS - 1) // SLOTS
                lane, deepest = 0, 0
    return total + (deepest + SLOTS - 1) // SLOTS


@njit(cache=True, nogil=True)
def _largest_front(tree):
    most = 1
    for s in range(tree.rows.size):
        if not tree.wide[s]:
            most = max(most, tree.rows[s])
    return most


@njit(cache=True, nogil=True)
def chunks(tree, short, total):
    """Chunks of each front: without those of class LONG, and all; wide fronts have none."""
    rows, wide, most = tree.rows, tree.wide, _largest_front(tree)
    count = np.zeros(most * most, np.int32)
    for s in range(rows.size):
        if wide[s]:
            continue
        _count(tree, s, rows[s], count)
        of_class = np.zeros(LONG + 1, np.int64)
        for e in range(rows[s] * rows[s]):
            if count[e] > 0:
                of_class[_class_of(count[e])] += 1
        for k in range(LONG):
            short[s] += ((of_class[k] << k) + CHUNK_WORDS - 1) // CHUNK_WORDS
        total[s] = short[s] + _long_chunks(rows[s], count)


@njit(cache=True, nogil=True)
def _place(rows, ld, count, first, longs, start, places):
    """Give each element its slots: where they start, and its place in its last slot."""
    following = first
    for k in range(LONG):
        size = 1 << k
        at = 0
        for e in range(rows * rows):
            if count[e] > 0 and _class_of(count[e]) == k:
                inside = at % (CHUNK_WORDS // size)
                chunk = following + at // (CHUNK_WORDS // size)
                start[e] = chunk * CHUNK_WORDS + inside // LANES * size * LANES + inside % LANES
                places[start[e] + (size - 1) * LANES] = e // rows * ld + e % rows
                at += 1
        following += (at * size + CHUNK_WORDS - 1) // CHUNK_WORDS
    chunk, group = longs, np.zeros(LANES, np.int64)
    lane, deepest = 0, 0
    for e in range(rows * rows + 1):
        if e < rows * rows and count[e] > SLOTS:
            group[lane] = e
            lane += 1
            deepest = max(deepest, count[e])
        if lane == LANES or (e == rows * rows and lane > 0):
            depth = (deepest + SLOTS - 1) // SLOTS
            for k in range(lane):
                start[group[k]] = chunk * CHUNK_WORDS + k
                last = (chunk + depth) * CHUNK_WORDS - LANES + k
                places[last] = group[k] // rows * ld + group[k] % rows
            chunk += depth
            lane, deepest = 0, 0


@njit(cache=True, nogil=True)
def fill(tree, first, longs, base, sources, places):
    """Write the lists and each front's ``base``; returns the largest source counted from it.

    ``sources`` and ``places`` come filled with NOTHING and NOWHERE.
    """
    rows, wide, block, maps, most = tree.rows, tree.wide, tree.block, tree.maps, _largest_front(tree)
    child_ptr, child_ind, below_ptr = tree.child_ptr, tree.child_ind, tree.below_ptr
    largest = 0
    count = np.zeros(most * most, np.int32)
    start = np.zeros(most * most, np.int64)
    for s in range(rows.size):
        if wide[s]:
            continue
        r = rows[s]
        _count(tree, s, r, count)
        _place(r, (r + 15) // 16 * 16 + 4, count, first[s], longs[s], start, places)
        for e in range(tree.a_ptr[s], tree.a_ptr[s + 1]):
            where = tree.a_col[e] * r + tree.a_row[e]
            sources[start[where]] = -2 - tree.a_slot[e]
            start[where] += LANES
        least = block[child_ind[child_ptr[s]]] if child_ptr[s + 1] > child_ptr[s] else 0
        for c in range(child_ptr[s], child_ptr[s + 1]):
            least = min(least, block[child_ind[c]])
        base[s] = least
        for c in range(child_ptr[s], child_ptr[s + 1]):
            begin, end = below_ptr[child_ind[c]], below_ptr[child_ind[c] + 1]
            below = end - begin
            half = (below * (below + 1) // 2 + 3) // 4 * 4
            source = block[child_ind[c]] - least
            for j in range(begin, end):
                for i in range(j, end):
                    where = maps[j] * r + maps[i]
                    sources[start[where]] = source
                    start[where] += LANES
                    if tree.general and i > j:
                        where = maps[i] * r + maps[j]
                        sources[start[where]] = source + half
                        start[where] += LANES
                    source += 1
            largest = max(largest, source + half)
    return largest


@njit(cache=True, nogil=True)
def row_depths(rows, child_ptr, child_ind, below_ptr, maps, depth):
    """Most contributions that a row of each front gets from its children."""
    count = np.zeros(rows.max(), np.int32)
    for s in range(rows.size):
        count[: rows[s]] = 0
        for c in range(child_ptr[s], child_ptr[s + 1]):
            for i in range(below_ptr[child_ind[c]], below_ptr[child_ind[c] + 1]):
                count[maps[i]] += 1
                depth[s] = max(depth[s], count[maps[i]])


@njit(cache=True, nogil=True)
def row_sources(rows, child_ptr, child_ind, below_ptr, maps, at, depth, sources):
    """Write where each row's contributions lie, in child order; ``sources`` comes filled with NOTHING."""
    count = np.zeros(rows.max(), np.int32)
    for s in range(rows.size):
        if depth[s] == 0:
            continue
        count[: rows[s]] = 0
        lanes = (rows[s] + LANES - 1) // LANES * LANES
        for c in range(child_ptr[s], child_ptr[s + 1]):
            for i in range(below_ptr[child_ind[c]], below_ptr[child_ind[c] + 1]):
                row = maps[i]
                sources[at[s] + count[row] * lanes + row] = i
                count[row] += 1
