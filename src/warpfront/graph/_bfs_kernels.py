"""CPU kernels of the breadth-first search: one level by one thread or by several, and many small levels in a row.

State shared by all of them: ``dist`` int32[n] and ``parent`` uint32[n], both all ones (-1) where unreached;
``queue`` uint32[n], all reached vertices in order of discovery, a frontier being a window of it; ``open_``,
a bitmap of the vertices that a pull may still find (unreached, with an arc into them); ``front`` and
``after``, bitmaps of the frontier and of what comes after it. All ones is the largest uint32, so that taking the
minimum of candidates for a parent needs no special case for the first: results do not depend on who comes
first. Literature: S. Beamer, K. Asanović, D. Patterson, Direction-optimizing breadth-first search (SC 2012).

Indices are unsigned: Numba tests a signed index for being negative at every access.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import atomic_add
from warpfront.backend.jit import njit
from warpfront.graph._bits_kernels import atomic_and, atomic_umin, nanoseconds, peek, trailing_zeros

__all__ = [
    "clear_bits",
    "frontier_arcs",
    "open_vertices",
    "pull_part",
    "push_part",
    "restore",
    "set_bits",
    "unpack",
    "walk",
    "wants_pull",
]

ONE = np.uint64(1)
ZERO = np.uint64(0)
SIX = np.uint64(6)
LOW6 = np.uint64(63)
NONE = np.uint32(0xFFFFFFFF)
# Words of `state`.
LEVEL, BEGIN, END, ARCS, OPEN_ARCS, PULLING, STOP = range(7)
# Why `walk` came back.
DONE, WIDE_PUSH, WIDE_PULL, LOG_FULL = range(4)
WORDS_PER_CHUNK = np.uint64(256)
BUFFER = 1024


@njit(cache=True, nogil=True)
def open_vertices(in_ptr, open_):  # type: ignore[no-untyped-def]
    """Set the bit of every vertex that has an arc into it."""
    n = np.uint64(in_ptr.shape[0] - 1)
    for w in range(ZERO, np.uint64(open_.shape[0])):
        word = ZERO
        base = w << SIX
        for b in range(ZERO, min(np.uint64(64), n - base)):
            if in_ptr[base + b + ONE] != in_ptr[base + b]:
                word |= ONE << b
        open_[w] = word


@njit(cache=True, nogil=True)
def clear_bits(bits):  # type: ignore[no-untyped-def]
    """Set all words to 0."""
    for w in range(ZERO, np.uint64(bits.shape[0])):
        bits[w] = ZERO


@njit(cache=True, nogil=True)
def set_bits(bits, queue, begin, end):  # type: ignore[no-untyped-def]
    """Set the bits of a window of the queue."""
    for q in range(np.uint64(begin), np.uint64(end)):
        v = np.uint64(queue[q])
        bits[v >> SIX] |= ONE << (v & LOW6)


@njit(cache=True, nogil=True)
def unpack(bits, queue, end):  # type: ignore[no-untyped-def]
    """Append the vertices of a bitmap to the queue, ascending; return its new end."""
    at = np.uint64(end)
    for w in range(ZERO, np.uint64(bits.shape[0])):
        word = bits[w]
        while word != ZERO:
            queue[at] = np.uint32((w << SIX) | trailing_zeros(word))
            at += ONE
            word &= word - ONE
    return np.int64(at)


@njit(cache=True, nogil=True)
def frontier_arcs(ptr, queue, begin, end):  # type: ignore[no-untyped-def]
    """Return the number of arcs out of a window of the queue."""
    arcs = ZERO
    for q in range(np.uint64(begin), np.uint64(end)):
        u = np.uint64(queue[q])
        arcs += ptr[u + ONE] - ptr[u]
    return np.int64(arcs)


@njit(cache=True, nogil=True)
def restore(order, dist, parent, dist_out, parent_out):  # type: ignore[no-untyped-def]
    """Go back from the inner numbering to the caller's."""
    for k in range(ZERO, np.uint64(order.shape[0])):
        v = np.uint64(order[k])
        dist_out[v] = dist[k]
        p = parent[k]
        parent_out[v] = np.int64(-1) if p == NONE else np.int64(order[np.uint64(p)])


@njit(cache=True, nogil=True)
def push_serial(ptr, ind, dist, parent, queue, open_, begin, end, level):  # type: ignore[no-untyped-def]
    """Push one level; return the queue's new end, the arcs out of what was found, and the duplicates."""
    tail = np.uint64(end)
    arcs = ZERO
    duplicates = 0
    following = np.int32(level + 1)
    track = open_.shape[0] > 0
    for q in range(np.uint64(begin), np.uint64(end)):
        u = queue[q]
        for k in range(ptr[u], ptr[np.uint64(u) + ONE]):
            v = ind[k]
            d = dist[v]
            if d == -1:
                dist[v] = following
                parent[v] = u
                queue[tail] = v
                tail += ONE
                arcs += ptr[np.uint64(v) + ONE] - ptr[v]
                if track:
                    open_[np.uint64(v) >> SIX] &= ~(ONE << (np.uint64(v) & LOW6))
            elif d == following:
                duplicates += 1
                if u < parent[v]:
                    parent[v] = u
    return np.int64(tail), np.int64(arcs), duplicates


@njit(cache=True, nogil=True)
def push_part(ptr, ind, dist, parent, queue, open_, window, level, chunk, shared, counts):  # type: ignore[no-untyped-def]
    """Push one level beside other threads, chunks of the frontier taken from a common counter.

    ``window``: begin and end of the frontier. ``shared``: int64[2], the next chunk and the queue's end.
    ``counts``: int64[6] of this thread: found, arcs out of them, examined, duplicates, atomics tried, won.
    """
    found = np.empty(BUFFER, np.uint32)
    held = 0
    begin, end = np.uint64(window[0]), np.uint64(window[1])
    following = np.int32(level + 1)
    track = open_.shape[0] > 0
    while True:
        low = begin + np.uint64(atomic_add(shared, 0, chunk))
        if low >= end:
            break
        for q in range(low, min(end, low + np.uint64(chunk))):
            u = queue[q]
            first, last = ptr[u], ptr[np.uint64(u) + ONE]
            counts[2] += np.int64(last - first)
            for k in range(first, last):
                v = np.uint64(ind[k])
                p = peek(parent, v)
                if p <= u:
                    if peek(dist, v) == following:
                        counts[3] += 1
                    continue
                if p != NONE:
                    d = peek(dist, v)
                    if d != -1 and d != following:
                        continue
                counts[4] += 1
                if atomic_umin(parent, v, u) != NONE:
                    counts[3] += 1
                    continue
                counts[5] += 1
                dist[v] = following
                counts[1] += np.int64(ptr[v + ONE] - ptr[v])
                if track:
                    atomic_and(open_, v >> SIX, ~(ONE << (v & LOW6)))
                found[held] = np.uint32(v)
                held += 1
                if held == BUFFER:
                    at = np.uint64(atomic_add(shared, 1, held))
                    for i in range(held):
                        queue[at + np.uint64(i)] = found[i]
                    held = 0
    at = np.uint64(atomic_add(shared, 1, held))
    for i in range(held):
        queue[at + np.uint64(i)] = found[i]
    counts[0] = counts[5]


@njit(cache=True, nogil=True)
def pull_words(in_ptr, in_ind, ptr, dist, parent, bits, window, level, counts):  # type: ignore[no-untyped-def]
    """Pull for the words ``window`` of the bitmaps ``bits`` = (open, front, after); add to ``counts`` (as `push_part`)."""
    open_, front, after = bits
    following = np.int32(level + 1)
    examined, found, arcs = ZERO, ZERO, ZERO
    for w in range(window[0], window[1]):
        rest = open_[w]
        hit = ZERO
        while rest != ZERO:
            bit = rest & (ZERO - rest)
            v = (w << SIX) | trailing_zeros(rest)
            rest ^= bit
            first, last = in_ptr[v], in_ptr[v + ONE]
            k = first
            while k < last:
                u = np.uint64(in_ind[k])
                if (front[u >> SIX] >> (u & LOW6)) & ONE:
                    dist[v] = following
                    parent[v] = np.uint32(u)
                    hit |= bit
                    found += ONE
                    arcs += ptr[v + ONE] - ptr[v]
                    k += ONE
                    break
                k += ONE
            examined += k - first
        after[w] = hit
        open_[w] &= ~hit
    counts[0] += np.int64(found)
    counts[1] += np.int64(arcs)
    counts[2] += np.int64(examined)


@njit(cache=True, nogil=True)
def pull_part(in_ptr, in_ind, ptr, dist, parent, bits, level, shared, counts):  # type: ignore[no-untyped-def]
    """Pull one level beside other threads, chunks of words taken from a common counter (``shared[0]``)."""
    words = np.uint64(bits[0].shape[0])
    while True:
        low = np.uint64(atomic_add(shared, 0, np.int64(WORDS_PER_CHUNK)))
        if low >= words:
            break
        pull_words(in_ptr, in_ind, ptr, dist, parent, bits, (low, min(words, low + WORDS_PER_CHUNK)), level, counts)


@njit(cache=True, nogil=True)
def wants_pull(state, n, rule):  # type: ignore[no-untyped-def]
    """Decide the direction of the next level. ``rule``: float64[2], alpha and beta (0: never pull, < 0: always)."""
    if rule[0] == 0:
        return False
    if rule[0] < 0:
        return True
    if state[PULLING]:
        return (state[END] - state[BEGIN]) * rule[1] >= n
    return state[ARCS] * rule[0] > state[OPEN_ARCS] and state[ARCS] * rule[1] > n


@njit(cache=True, nogil=True)
def walk(ptr, ind, dist, parent, queue, open_, state, rule, wide, clock, log):  # type: ignore[no-untyped-def]
    """Push level after level until the frontier is empty, the depth limit is reached, a level should be
    pulled, or it has more than ``wide`` arcs.

    ``state``: level, begin and end of the frontier's window, its arcs, arcs out of unreached vertices, whether
    the last level was pulled, level to stop at. ``clock``: the system's number of its steady clock.
    ``log``: int64[rows, 6], by level: frontier, its arcs, found, examined, duplicates, nanoseconds. Returns
    the reason and the rows written.
    """
    n = dist.shape[0]
    row = 0
    before = nanoseconds(clock)
    while state[BEGIN] < state[END] and state[LEVEL] < state[STOP]:
        if wants_pull(state, n, rule):
            return WIDE_PULL, row
        if state[ARCS] > wide:
            return WIDE_PUSH, row
        if row == log.shape[0]:
            return LOG_FULL, row
        begin, end = state[BEGIN], state[END]
        new_end, arcs, duplicates = push_serial(
            ptr, ind, dist, parent, queue, open_, begin, end, state[LEVEL]
        )
        log[row, 0] = end - begin
        log[row, 1] = state[ARCS]
        log[row, 2] = new_end - end
        log[row, 3] = state[ARCS]
        log[row, 4] = duplicates
        now = nanoseconds(clock)
        log[row, 5] = now - before
        before = now
        row += 1
        state[LEVEL] += 1
        state[BEGIN], state[END] = end, new_end
        state[ARCS] = arcs
        state[OPEN_ARCS] -= arcs
        state[PULLING] = 0
    return DONE, row
