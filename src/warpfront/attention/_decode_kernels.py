"""Decoding on the CPU: threads take (sequence, key head, part of its keys), then rows are merged; and what writes pages.

A part's keys are looked up page by page: token ``j`` of sequence ``b`` lies in page ``table[b, j // page_size]``. Element
offsets are int64. A part leaves its output divided by its sum, and its LSE, in float32; `merge_rows` adds parts in the
order of the keys with weights e^(LSE - max LSE), in float64. A part of which a row sees nothing has LSE -inf, and is
not read.
"""

from __future__ import annotations

import numpy as np

from warpfront.attention._attention_kernels import (
    GROUP,
    HEAD_DIM,
    K_H,
    K_J,
    KIND,
    KV_HEADS,
    LEFT,
    NEXT,
    Q_H,
    TASKS,
    load_rows,
)
from warpfront.attention._float_kernels import BFLOAT16, FLOAT16, from_bfloat, from_half, to_bfloat, to_half
from warpfront.attention._tile_kernels import (
    KEYS,
    ROWS,
    accumulate,
    fetch,
    finish,
    hide,
    pieces,
    score,
    start,
)
from warpfront.backend._intrinsics import atomic_add, view
from warpfront.backend.jit import njit

__all__ = [
    "DECODE_SIZES",
    "copy_pages",
    "decode_tasks",
    "merge_rows",
    "page_offset",
    "rotate_rows",
    "write_tokens",
]

# Positions in `sizes` beyond those of prefill.
Q_LEN, PAGE_SIZE, Q_B, MAX_PARTS = range(23, 27)
DECODE_SIZES = 27


@njit(cache=True, nogil=True)
def page_offset(page, token, row_stride, page_size):
    """First element of a token's row in storage, in int64."""
    return (np.int64(page) * np.int64(page_size) + np.int64(token)) * np.int64(row_stride)


@njit(cache=True, nogil=True)
def gather(parts, table, b, k, v, first, keys, head_at, sizes):
    """Load keys ``first`` and on of a sequence from its pages."""
    d, kind, page_size = sizes[HEAD_DIM], sizes[KIND], sizes[PAGE_SIZE]
    for j in range(keys):
        token = first + j
        at = page_offset(table[b, token // page_size], token % page_size, sizes[K_J], page_size) + head_at
        fetch(view(parts[1], j * d, d), view(k, at, d), kind)
        fetch(view(parts[2], j * d, d), view(v, at, d), kind)


@njit(cache=True, nogil=True)
def see(lo, hi, first, rows, length, begin, end, sizes):
    """Fill in which keys of a part each row sees; return the range that at least one sees."""
    low, high = end, begin
    for i in range(rows):
        place = length - sizes[Q_LEN] + (first + i) // sizes[GROUP]
        lo[i] = begin if sizes[LEFT] < 0 else max(begin, place - sizes[LEFT])
        hi[i] = min(end, place + 1)
        if lo[i] < hi[i]:
            low, high = min(low, lo[i]), max(high, hi[i])
    return low, high


@njit(cache=True, nogil=True)
def decode_tasks(table, spans, sizes, coef, q, k, v, outputs, lses, work, gemm):
    """Take tasks until there are none left.

    ``table`` int32 (batch, pages); ``spans`` int64 (batch, 3): length, keys of a part, parts. ``k`` and ``v`` are the
    pages, ``outputs`` float32 (max_parts, batch, q_len, heads, head_dim), ``lses`` without the last axis; all flat.
    """
    parts = pieces(work, sizes[HEAD_DIM])
    lo, hi = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
    d, kv_heads, group = sizes[HEAD_DIM], sizes[KV_HEADS], sizes[GROUP]
    all_rows, rows_of_batch = sizes[Q_LEN] * group, sizes[Q_LEN] * group * kv_heads
    while True:
        task = atomic_add(sizes, NEXT, 1)
        if task >= sizes[TASKS]:
            return
        part, rest = task % sizes[MAX_PARTS], task // sizes[MAX_PARTS]
        b, h = rest // kv_heads, rest % kv_heads
        length, keys_each = spans[b, 0], spans[b, 1]
        if part >= spans[b, 2]:
            continue
        for first_row in range(0, all_rows, ROWS):
            rows = min(ROWS, all_rows - first_row)
            load_rows(parts, q, b * sizes[Q_B] + h * group * sizes[Q_H], first_row, rows, sizes)
            start(parts)
            last = min(length, (part + 1) * keys_each)
            begin, end = see(lo, hi, first_row, rows, length, part * keys_each, last, sizes)
            for first in range(begin, end, KEYS):
                keys = min(KEYS, end - first)
                gather(parts, table, b, k, v, first, keys, h * sizes[K_H], sizes)
                score(parts, keys, rows, d, coef, gemm)
                some_hidden = hide(parts[3], first, keys, rows, lo, hi)
                accumulate(parts, keys, rows, d, some_hidden, gemm)
            finish(parts, rows)
            leave(
                parts, outputs, lses, (part * (spans.shape[0]) + b) * rows_of_batch, h, first_row, rows, sizes
            )


@njit(cache=True, nogil=True)
def leave(parts, outputs, lses, base, h, first, rows, sizes):
    """Write a part's rows into the workspace."""
    o, m, factor = parts[4], parts[5], parts[8]
    group, d = sizes[GROUP], sizes[HEAD_DIM]
    for i in range(rows):
        position, head = (first + i) // group, (first + i) % group
        at = base + position * group * sizes[KV_HEADS] + h * group + head
        target, source = view(outputs, at * d, d), view(o, i * d, d)
        for c in range(d):
            target[c] = source[c] * factor[i]
        lses[at] = m[i]


@njit(cache=True, nogil=True)
def load(x, at, kind):
    """One element of storage as float64."""
    if kind == FLOAT16:
        return np.float64(from_half(np.uint16(x[at])))
    if kind == BFLOAT16:
        return np.float64(from_bfloat(np.uint16(x[at])))
    return np.float64(x[at])


@njit(cache=True, nogil=True)
def save(x, at, value, kind):
    """Round to an element of storage."""
    if kind == FLOAT16:
        x[at] = to_half(np.float32(value))
    elif kind == BFLOAT16:
        x[at] = to_bfloat(np.float32(value))
    else:
        x[at] = value


@njit(cache=True, nogil=True, error_model="numpy")
def merge_rows(outputs, lses, counts, out, lse, d, kinds, begin, end):
    """Merge rows ``begin`` to ``end``: row ``r`` from its first ``counts[r]`` parts, in their order.

    ``outputs`` (parts, rows, d) storage of kind ``kinds[0]``, ``lses`` (parts, rows) float32, ``out`` (rows, d) storage of
    kind ``kinds[1]``, ``lse`` (rows) float32; all flat.
    """
    rows = counts.shape[0]
    total = np.empty(d, np.float64)
    for r in range(begin, end):
        most = -np.inf
        for p in range(counts[r]):
            value = np.float64(lses[p * rows + r])
            # A NaN stays, and makes the row NaN.
            most = value if value > most or np.isnan(value) else most
        weight_sum = 0.0
        for c in range(d):
            total[c] = 0.0
        if most != -np.inf:
            for p in range(counts[r]):
                weight = np.exp(np.float64(lses[p * rows + r]) - most)
                if weight == 0.0:
                    continue
                weight_sum += weight
                for c in range(d):
                    total[c] += weight * load(outputs, (p * rows + r) * d + c, kinds[0])
        if weight_sum == 0.0:
            weight_sum = 1.0
        lse[r] = most + np.log(weight_sum)
        for c in range(d):
            save(out, r * d + c, total[c] / weight_sum, kinds[1])


@njit(cache=True, nogil=True)
def rotate_row(source, target, position, cos, sin, interleaved, kind):
    """Turn pairs of one head's elements by the angles of a position; copy the rest. ``cos``, ``sin`` (positions, pairs)."""
    pairs = cos.shape[1]
    for c in range(pairs):
        i, j = (2 * c, 2 * c + 1) if interleaved else (c, c + pairs)
        x, y = load(source, i, kind), load(source, j, kind)
        co, si = np.float64(cos[position, c]), np.float64(sin[position, c])
        save(target, i, x * co - y * si, kind)
        save(target, j, x * si + y * co, kind)
    for c in range(2 * pairs, source.shape[0]):
        target[c] = source[c]


@njit(cache=True, nogil=True)
def rotate_rows(x, out, positions, cos, sin, interleaved, kind, heads, d):
    """Turn rows (tokens, heads, d), flat; ``out`` may be ``x``'s memory only where ``kind`` rows do not overlap."""
    for t in range(positions.shape[0]):
        for h in range(heads):
            at = (t * heads + h) * d
            rotate_row(view(x, at, d), view(out, at, d), positions[t], cos, sin, interleaved, kind)


@njit(cache=True, nogil=True)
def write_tokens(source, slots, positions, cos, sin, interleaved, kind, pages, heads, d):
    """Write tokens (tokens, heads, d), flat, to their slots; turned where ``cos`` has columns. Slot -1: not written."""
    for t in range(slots.shape[0]):
        if slots[t] < 0:
            continue
        for h in range(heads):
            from_, to = (t * heads + h) * d, slots[t] * np.int64(heads * d) + h * d
            rotate_row(view(source, from_, d), view(pages, to, d), positions[t], cos, sin, interleaved, kind)


@njit(cache=True, nogil=True)
def copy_pages(pages, sources, targets, words):
    """Copy whole pages of ``words`` elements inside the storage."""
    for p in range(sources.shape[0]):
        source, target = view(pages, sources[p] * words, words), view(pages, targets[p] * words, words)
        for c in range(words):
            target[c] = source[c]
