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
def _count(tree, s, rows, count):
    """Add up the sources of each element (row, col) of front s, at col * rows + row.

    Unsigned indices, here and below: for signed ones every access is tested for Python's negative indexing.
    """
    maps, ld = tree.maps, np.uint32(rows)
    for e in range(tree.a_ptr[s], tree.a_ptr[s + 1]):
        count[tree.a_col[e] * rows + tree.a_row[e]] += 1
    for c in range(tree.child_ptr[s], tree.child_ptr[s + 1]):
        child = tree.child_ind[c]
        begin, end = np.uint64(tree.below_ptr[child]), np.uint64(tree.below_ptr[child + 1])
        for j in range(begin, end):
            col = np.uint32(maps[j])
            for i in range(j, end):
                count[col * ld + np.uint32(maps[i])] += 1
            if tree.general:
                for i in range(j + np.uint64(1), end):
                    count[np.uint32(maps[i]) * ld + col] += 1


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
def _largest_front(tree, begin, end):
    most = 1
    for s in range(begin, end):
        if not tree.wide[s]:
            most = max(most, tree.rows[s])
    return most


@njit(cache=True, nogil=True)
def chunks(tree, begin, end, short, total):
    """Chunks of fronts ``begin..end``: of each class but LONG, ``short[s, k]``, and all; wide fronts have none.

    Class of an element: 0 to 3 for up to 1, 2, 4, 8 sources, else LONG.
    """
    count = np.zeros(_largest_front(tree, begin, end) ** 2, np.int32)
    for s in range(begin, end):
        if tree.wide[s]:
            continue
        rows = tree.rows[s]
        used = count[: rows * rows]
        used[:] = 0
        _count(tree, s, rows, used)
        over = np.zeros(LONG + 2, np.int64)
        for col in range(rows):
            for e in range(np.uint64(col * rows + (0 if tree.general else col)), np.uint64((col + 1) * rows)):
                c = used[e]
                over[0] += c > 0
                over[1] += c > 1
                over[2] += c > 2
                over[3] += c > 4
                over[4] += c > 8
        for k in range(LONG):
            short[s, k] = (((over[k] - over[k + 1]) << k) + CHUNK_WORDS - 1) // CHUNK_WORDS
            total[s] += short[s, k]
        if over[LONG] > 0:
            total[s] += _long_chunks(rows, used)


@njit(cache=True, nogil=True)
def _close(rows, ld, group, lanes, depth, chunk, start, places):
    """Give the elements of class LONG in ``group`` their slots."""
    for k in range(lanes):
        start[group[k]] = chunk * CHUNK_WORDS + k
        places[(chunk + depth) * CHUNK_WORDS - LANES + k] = group[k] // rows * ld + group[k] % rows


@njit(cache=True, nogil=True)
def _place(general, rows, count, first, short, start, places):
    """Give each element its slots: where they start, and its place in its last slot. The counts become zero again."""
    ld = (rows + 15) // 16 * 16 + 4
    base, at = np.zeros(LONG + 1, np.int64), np.zeros(LONG, np.int64)
    base[0] = first
    for k in range(LONG):
        base[k + 1] = base[k] + short[k]
    chunk, group, lane, deepest = base[LONG], np.zeros(LANES, np.int64), 0, 0
    for col in range(rows):
        for row in range(0 if general else col, rows):
            e = np.uint64(col * rows + row)
            c = np.int64(count[e])
            if c == 0:
                continue
            count[e] = 0
            if c > SLOTS:
                group[lane] = col * rows + row
                lane += 1
                deepest = max(deepest, c)
                if lane == LANES:
                    depth = (deepest + SLOTS - 1) // SLOTS
                    _close(rows, ld, group, lane, depth, chunk, start, places)
                    chunk, lane, deepest = chunk + depth, 0, 0
                continue
            k = (c > 1) + (c > 2) + (c > 4)
            nth = at[k]
            at[k] = nth + 1
            inside = nth & ((CHUNK_WORDS >> k) - 1)
            word = (
                (base[k] + (nth >> (8 - k))) * CHUNK_WORDS + ((inside // LANES * LANES) << k) + inside % LANES
            )
            start[e] = word
            places[word + ((1 << k) - 1) * LANES] = col * ld + row
    if lane > 0:
        _close(rows, ld, group, lane, (deepest + SLOTS - 1) // SLOTS, chunk, start, places)


@njit(cache=True, nogil=True)
def fill(tree, begin, end, first, short, total, base, sources, places):
    """Write the lists of fronts ``begin..end`` and each one's ``base``; returns the largest source counted from it."""
    block, maps = tree.block, tree.maps
    child_ptr, child_ind, below_ptr = tree.child_ptr, tree.child_ind, tree.below_ptr
    largest = 0
    count = np.zeros(_largest_front(tree, begin, end) ** 2, np.int32)
    start = np.zeros(count.size, np.int64)
    for s in range(begin, end):
        if tree.wide[s]:
            continue
        r = tree.rows[s]
        ld = np.uint32(r)
        sources[first[s] * CHUNK_WORDS : (first[s] + total[s]) * CHUNK_WORDS] = NOTHING
        places[first[s] * CHUNK_WORDS : (first[s] + total[s]) * CHUNK_WORDS] = NOWHERE
        _count(tree, s, r, count)
        _place(tree.general, r, count, first[s], short[s], start, places)
        for e in range(tree.a_ptr[s], tree.a_ptr[s + 1]):
            where = tree.a_col[e] * r + tree.a_row[e]
            sources[start[where]] = -2 - tree.a_slot[e]
            start[where] += LANES
        least = block[child_ind[child_ptr[s]]] if child_ptr[s + 1] > child_ptr[s] else 0
        for c in range(child_ptr[s], child_ptr[s + 1]):
            least = min(least, block[child_ind[c]])
        base[s] = least
        for c in range(child_ptr[s], child_ptr[s + 1]):
            from_, to = np.uint64(below_ptr[child_ind[c]]), np.uint64(below_ptr[child_ind[c] + 1])
            below = np.int64(to - from_)
            half = (below * (below + 1) // 2 + 3) // 4 * 4
            source = block[child_ind[c]] - least
            for j in range(from_, to):
                col = np.uint32(maps[j])
                for i in range(j, to):
                    where = col * ld + np.uint32(maps[i])
                    word = start[where]
                    sources[word] = source + np.int64(i - j)
                    start[where] = word + LANES
                if tree.general:
                    for i in range(j + np.uint64(1), to):
                        where = np.uint32(maps[i]) * ld + col
                        word = start[where]
                        sources[word] = source + half + np.int64(i - j)
                        start[where] = word + LANES
                source += np.int64(to - j)
            largest = max(largest, source + (half if tree.general else 0))
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
