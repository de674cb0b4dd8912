"""CPU kernels of the breadth-first search: one level by one thread or by several, and many levels in a row.

A vertex's state is one word, its *key*: level in the high half, parent in the low one, all ones where
unreached. A smaller key is a better answer (nearer, or as near with a smaller parent), so one comparison
decides about an arc and the minimum is right whoever comes first. ``queue`` holds all vertices that were
reached by pushing, in order of discovery; a frontier is a window of it. ``open_`` is the bitmap of vertices
that a pull may still find (unreached, with an arc into them); ``front`` and ``after`` are those of a pulled
frontier and of what comes after it. Literature: S. Beamer, K. Asanović, D. Patterson, Direction-optimizing
breadth-first search (SC 2012).

Indices are unsigned: Numba tests a signed index for being negative at every access.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import atomic_add
from warpfront.backend.jit import njit
from warpfront.graph._bits_kernels import atomic_umin, nanoseconds, peek, prefetch, trailing_zeros

__all__ = [
    "frontier_arcs",
    "open_vertices",
    "pull_part",
    "push_part",
    "solo",
    "split_keys",
    "start_pull",
    "unpack",
    "walk",
]

ONE = np.uint64(1)
ZERO = np.uint64(0)
SIX = np.uint64(6)
LOW6 = np.uint64(63)
HALF = np.uint64(32)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
# Words of `state`.
LEVEL, BEGIN, END, ARCS, OPEN_ARCS, PULLING, STOP, CLOSED = range(8)
# Why `walk` came back.
DONE, WIDE_PUSH, WIDE_PULL, LOG_FULL = range(4)
# Columns of `log`: what BfsLevel says, nanoseconds last.
PULLED, FRONTIER, OUT, FOUND, EXAMINED, DUPLICATES, TRIED, WON, TIME = range(9)
WORDS_PER_CHUNK = np.uint64(256)
BUFFER = 1024
# The queue is this much longer than there are vertices: the frontier is read ahead.
AHEAD = 32
# Keys are split into distances and parents by one thread up to this many vertices.
SPLIT_ALONE = 1 << 18
FAR, NEAR, CLOSE = np.uint64(16), np.uint64(8), np.uint64(3)
FOUR = np.uint64(4)


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
def start_pull(open_, front, queue, state):  # type: ignore[no-untyped-def]
    """Close what was pushed since the last pull, and set the frontier's bits."""
    for q in range(np.uint64(state[CLOSED]), np.uint64(state[END])):
        v = np.uint64(queue[q])
        open_[v >> SIX] &= ~(ONE << (v & LOW6))
    for w in range(ZERO, np.uint64(front.shape[0])):
        front[w] = ZERO
    for q in range(np.uint64(state[BEGIN]), np.uint64(state[END])):
        v = np.uint64(queue[q])
        front[v >> SIX] |= ONE << (v & LOW6)


@njit(cache=True, nogil=True)
def unpack(bits, queue, state):  # type: ignore[no-untyped-def]
    """Write the vertices of a pulled frontier to its window of the queue, ascending."""
    at = np.uint64(state[BEGIN])
    for w in range(ZERO, np.uint64(bits.shape[0])):
        word = bits[w]
        while word != ZERO:
            queue[at] = np.uint32((w << SIX) | trailing_zeros(word))
            at += ONE
            word &= word - ONE
    state[CLOSED] = state[END]


@njit(cache=True, nogil=True)
def frontier_arcs(ptr, queue, begin, end):  # type: ignore[no-untyped-def]
    """Return the number of arcs out of a window of the queue."""
    arcs = ZERO
    for q in range(np.uint64(begin), np.uint64(end)):
        prefetch(ptr, np.uint64(queue[q + FAR]))
        u = np.uint64(queue[q])
        arcs += ptr[u + ONE] - ptr[u]
    return np.int64(arcs)


@njit(cache=True, nogil=True)
def split_keys(key, order, dist, parent, first, last):  # type: ignore[no-untyped-def]
    """Write distances and parents of keys ``first`` to ``last``; ``order``: the caller's numbers, empty if the same."""
    mapped = order.shape[0] > 0
    for k in range(np.uint64(first), np.uint64(last)):
        word = key[k]
        v = np.uint64(order[k]) if mapped else k
        p = np.int64(np.int32(word & np.uint64(0xFFFFFFFF)))
        dist[v] = np.int32(np.int64(word) >> 32)
        parent[v] = np.int64(order[np.uint64(p)]) if mapped and p >= 0 else p


@njit(cache=True, nogil=True)
def push_serial(ptr, ind, key, queue, state, thin):  # type: ignore[no-untyped-def]
    """Push one level; return the queue's new end, and the arcs out of the frontier.

    ``thin``: the graph has few arcs a vertex. Whether an arc finds something is then anybody's guess, and
    doing without the branch is faster; with many arcs most find nothing, and the branch is guessed right.
    """
    tail = np.uint64(state[END])
    arcs = ZERO
    following = np.uint64(state[LEVEL] + 1) << HALF
    for q in range(np.uint64(state[BEGIN]), np.uint64(state[END])):
        prefetch(ptr, np.uint64(queue[q + FAR]))
        prefetch(ind, ptr[np.uint64(queue[q + NEAR])])
        u = np.uint64(queue[q])
        mine = following | u
        first, last = ptr[u], ptr[u + ONE]
        arcs += last - first
        if thin:
            # A few vertices ahead the heads are here: ask for their keys. Rows of fewer arcs ask for a neighbour's.
            ahead = ptr[np.uint64(queue[q + CLOSE])]
            if ahead + FOUR <= np.uint64(ind.shape[0]):
                for k in range(ahead, ahead + FOUR):
                    prefetch(key, np.uint64(ind[k]))
            for k in range(first, last):
                v = np.uint64(ind[k])
                old = key[v]
                key[v] = min(old, mine)
                queue[tail] = np.uint32(v)
                tail += np.uint64(old == ALL)
        else:
            for k in range(first, last):
                v = np.uint64(ind[k])
                old = key[v]
                if old > mine:
                    key[v] = mine
                    queue[tail] = np.uint32(v)
                    tail += np.uint64(old == ALL)
    return np.int64(tail), np.int64(arcs)


@njit(cache=True, nogil=True)
def push_part(ptr, ind, key, queue, window, level, chunk, shared, counts):  # type: ignore[no-untyped-def]
    """Push one level beside other threads, chunks of the frontier taken from a common counter.

    ``window``: begin and end of the frontier. ``shared``: int64[2], the next chunk and the queue's end.
    ``counts``: this thread's line of the log.
    """
    found = np.empty(BUFFER, np.uint32)
    held = 0
    begin, end = np.uint64(window[0]), np.uint64(window[1])
    following = np.uint64(level + 1) << HALF
    while True:
        low = begin + np.uint64(atomic_add(shared, 0, chunk))
        if low >= end:
            break
        for q in range(low, min(end, low + np.uint64(chunk))):
            prefetch(ptr, np.uint64(queue[q + FAR]))
            u = np.uint64(queue[q])
            mine = following | u
            first, last = ptr[u], ptr[u + ONE]
            counts[EXAMINED] += np.int64(last - first)
            for k in range(first, last):
                v = np.uint64(ind[k])
                old = peek(key, v)
                if old <= mine:
                    counts[DUPLICATES] += np.int64(old >= following)
                    continue
                counts[TRIED] += 1
                if atomic_umin(key, v, mine) != ALL:
                    counts[DUPLICATES] += 1
                    continue
                counts[WON] += 1
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
    counts[FOUND] = counts[WON]


@njit(cache=True, nogil=True)
def pull_words(in_ptr, in_ind, ptr, key, bits, first_word, last_word, level, counts):  # type: ignore[no-untyped-def]
    """Pull for some words of the bitmaps ``bits`` = (open, front, after); add to ``counts``, a line of the log.

    ``counts[OUT]`` receives the arcs out of what was found.
    """
    open_, front, after = bits
    following = np.uint64(level + 1) << HALF
    examined, found, arcs = ZERO, ZERO, ZERO
    for w in range(first_word, last_word):
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
                k += ONE
                if (front[u >> SIX] >> (u & LOW6)) & ONE:
                    key[v] = following | u
                    hit |= bit
                    found += ONE
                    arcs += ptr[v + ONE] - ptr[v]
                    break
            examined += k - first
        after[w] = hit
        open_[w] &= ~hit
    counts[FOUND] += np.int64(found)
    counts[OUT] += np.int64(arcs)
    counts[EXAMINED] += np.int64(examined)


@njit(cache=True, nogil=True)
def pull_part(in_ptr, in_ind, ptr, key, bits, level, shared, counts):  # type: ignore[no-untyped-def]
    """Pull one level beside other threads, chunks of words taken from a common counter (``shared[0]``)."""
    words = np.uint64(bits[0].shape[0])
    while True:
        low = np.uint64(atomic_add(shared, 0, np.int64(WORDS_PER_CHUNK)))
        if low >= words:
            break
        high = min(words, low + WORDS_PER_CHUNK)
        pull_words(in_ptr, in_ind, ptr, key, bits, low, high, level, counts)


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
def advance(state, found, arcs, pulled):  # type: ignore[no-untyped-def]
    """Move the state on by one level, to a frontier of ``found`` vertices and ``arcs`` arcs."""
    state[LEVEL] += 1
    state[BEGIN] = state[END]
    state[END] += found
    state[ARCS] = arcs
    state[OPEN_ARCS] -= arcs
    state[PULLING] = pulled


@njit(cache=True, nogil=True)
def advance_pushing(state, found, out, mean):  # type: ignore[no-untyped-def]
    """The same where no level is ever pulled: arcs are counted when they are walked, and guessed before."""
    state[LEVEL] += 1
    state[BEGIN] = state[END]
    state[END] += found
    state[ARCS] = found * mean
    state[OPEN_ARCS] -= out


@njit(cache=True, nogil=True)
def walk(graph, key, queue, bits, state, rule, wide, clock, log):  # type: ignore[no-untyped-def]
    """Take level after level until the frontier is empty, the depth limit is reached, or there is work for threads.

    ``graph``: ptr, ind, in_ptr, in_ind, of uint64 and uint32. ``bits``: open, front, after; empty if pulling is off.
    ``state``: see above. ``wide``: a level of more arcs, or a pull of a graph of more, is left to the caller.
    ``clock``: the system's number of its steady clock. Returns the reason and the rows written.
    """
    ptr, ind, in_ptr, in_ind = graph
    open_, front, after = bits
    n = key.shape[0]
    thin = ind.shape[0] < 6 * n  # as THIN of bfs.py
    mean = ind.shape[0] // max(n, 1) + 1
    row = 0
    before = nanoseconds(clock)
    while state[BEGIN] < state[END] and state[LEVEL] < state[STOP]:
        pulls = wants_pull(state, n, rule)
        if pulls and ind.shape[0] > wide:
            if state[PULLING]:
                unpack(front, queue, state)
            return WIDE_PULL, row
        if state[PULLING] and not pulls:
            unpack(front, queue, state)
            state[PULLING] = 0
        if not pulls and state[ARCS] > wide:
            return WIDE_PUSH, row
        if row == log.shape[0]:
            if state[PULLING]:
                unpack(front, queue, state)
                state[PULLING] = 0
            return LOG_FULL, row
        line = log[row]
        for c in range(TIME):
            line[c] = 0
        line[FRONTIER] = state[END] - state[BEGIN]
        out = state[ARCS]
        if pulls:
            if not state[PULLING]:
                start_pull(open_, front, queue, state)
            pull_words(
                in_ptr,
                in_ind,
                ptr,
                key,
                (open_, front, after),
                ZERO,
                np.uint64(open_.shape[0]),
                state[LEVEL],
                line,
            )
            front, after = after, front
            advance(state, line[FOUND], line[OUT], 1)
        else:
            new_end, out = push_serial(ptr, ind, key, queue, state, thin)
            line[FOUND] = new_end - state[END]
            line[EXAMINED] = out
            line[DUPLICATES], line[TRIED], line[WON] = -1, 0, 0
            if rule[0] == 0:
                advance_pushing(state, line[FOUND], out, mean)
            else:
                advance(state, line[FOUND], frontier_arcs(ptr, queue, state[END], new_end), 0)
        line[PULLED] = pulls
        line[OUT] = out
        now = nanoseconds(clock)
        line[TIME] = now - before
        before = now
        row += 1
    if rule[0] == 0:
        # What was reached last has not been walked.
        state[OPEN_ARCS] -= frontier_arcs(ptr, queue, state[BEGIN], state[END])
    return DONE, row


@njit(cache=True, nogil=True)
def solo(graph, key, queue, bits, sources, state, rule, wide, clock, log, answer):  # type: ignore[no-untyped-def]
    """Begin a search and walk as far as one thread goes; arguments as `walk`.

    ``bits`` has a fourth part: what `open_` is at the start. ``sources``: int64. Of ``state`` only the level to stop
    at is set. ``answer``: order, dist, parent (`split_keys`), written when the search is done.
    """
    opened = bits[3]
    for v in range(ZERO, np.uint64(key.shape[0])):
        key[v] = ALL
    for w in range(ZERO, np.uint64(opened.shape[0])):
        bits[0][w] = opened[w]
    for k in range(sources.shape[0]):
        s = np.uint64(sources[k])
        key[s] = s
        queue[k] = np.uint32(s)
    state[END] = sources.shape[0]
    state[ARCS] = frontier_arcs(graph[0], queue, 0, state[END])
    state[OPEN_ARCS] = graph[1].shape[0] - (state[ARCS] if rule[0] != 0 else 0)
    state[LEVEL], state[BEGIN], state[PULLING], state[CLOSED] = 0, 0, 0, 0
    reason, rows = walk(graph, key, queue, (bits[0], bits[1], bits[2]), state, rule, wide, clock, log)
    if reason == DONE and key.shape[0] <= SPLIT_ALONE:
        split_keys(key, answer[0], answer[1], answer[2], 0, key.shape[0])
    return reason, rows
