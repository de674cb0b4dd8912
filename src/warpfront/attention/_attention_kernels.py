"""Prefill on the CPU: threads take (row tile, sequence, key head), the tiles with the most keys first.

A task loads its rows of Q once, transposed, and walks over the keys that at least one of them sees. All arrays are flat
views of the caller's memory; ``seq`` holds for each sequence where its elements begin, so dense and varlen batches are
one case. Which thread computes a task changes nothing in it.
"""

from __future__ import annotations

import numpy as np

from warpfront.attention._tile_kernels import (
    FEW,
    HIDDEN,
    KEYS,
    ROWS,
    accumulate,
    fetch,
    finish,
    hide,
    pieces,
    put,
    score,
    start,
)
from warpfront.backend._intrinsics import atomic_add, view
from warpfront.backend.jit import njit

__all__ = ["SEQ_COLUMNS", "SIZES", "load_rows", "prefill_tasks", "store_rows"]

# Columns of `seq`: first elements and lengths of a sequence.
Q_AT, Q_LEN, K_AT, V_AT, K_LEN, OUT_AT, LSE_AT, BIAS_AT = range(8)
SEQ_COLUMNS = 8
# Positions in `sizes`; the strides are in elements.
NEXT, TASKS, BATCH, KV_HEADS, GROUP, HEAD_DIM, LEFT, RIGHT, KIND, BIASED = range(10)
Q_I, Q_H, K_J, K_H, V_J, V_H, OUT_I, OUT_H, LSE_I, LSE_H, BIAS_H, BIAS_I, BIAS_J = range(10, 23)
SIZES = 23


@njit(cache=True, nogil=True)
def load_rows(parts, q, at, first, rows, sizes):
    """Load rows of Q into the scratch, transposed unless there are few.

    Row ``r`` is position ``r // group``, head ``r % group``.
    """
    turned, spare = parts[0], parts[4]
    group, d = sizes[GROUP], sizes[HEAD_DIM]
    line = view(spare, 0, d)
    for i in range(rows):
        r = first + i
        fetch(line, view(q, at + (r // group) * sizes[Q_I] + (r % group) * sizes[Q_H], d), sizes[KIND])
        for c in range(d):
            turned[i * d + c if rows <= FEW else c * ROWS + i] = line[c]


@njit(cache=True, nogil=True)
def store_rows(parts, out, lse, at, lse_at, first, rows, sizes):
    """Write rows of O, divided by their sums, and their LSEs."""
    o, m, factor = parts[4], parts[5], parts[8]
    group, d = sizes[GROUP], sizes[HEAD_DIM]
    for i in range(rows):
        position, head = (first + i) // group, (first + i) % group
        target = view(out, at + position * sizes[OUT_I] + head * sizes[OUT_H], d)
        put(target, view(o, i * d, d), factor[i], sizes[KIND])
        lse[lse_at + position * sizes[LSE_I] + head * sizes[LSE_H]] = m[i]


@njit(cache=True, nogil=True)
def see(lo, hi, first, rows, q_len, k_len, sizes):
    """Fill in which keys each row sees; return the range of keys that at least one of them sees."""
    begin, end = k_len, 0
    for i in range(rows):
        diagonal = (first + i) // sizes[GROUP] + k_len - q_len
        lo[i] = 0 if sizes[LEFT] < 0 else max(0, diagonal - sizes[LEFT])
        hi[i] = k_len if sizes[RIGHT] < 0 else min(k_len, diagonal + sizes[RIGHT] + 1)
        if lo[i] < hi[i]:
            begin, end = min(begin, lo[i]), max(end, hi[i])
    return begin, end


@njit(cache=True, nogil=True)
def add_bias(s, bias, at, first, first_row, rows, keys, sizes):
    """Add the bias of each row and key."""
    group = sizes[GROUP]
    for i in range(rows):
        position, head = (first_row + i) // group, (first_row + i) % group
        base = at + head * sizes[BIAS_H] + position * sizes[BIAS_I] + first * sizes[BIAS_J]
        for j in range(keys):
            extra = bias[base + j * sizes[BIAS_J]]
            # A hidden score may be NaN, which -inf would not cover by addition.
            s[j * ROWS + i] = extra if extra == HIDDEN else s[j * ROWS + i] + extra


@njit(cache=True, nogil=True)
def prefill_tasks(seq, sizes, coef, q, k, v, bias, out, lse, work, gemm):
    """Take tasks until there are none left.

    ``seq`` (batch, 8) and ``sizes`` (23) int64, ``coef`` float32 [scale, cap]; q, k, v, out flat storage, ``bias`` and
    ``lse`` flat float32; ``work`` this thread's scratch; ``gemm`` the address of sgemm.
    """
    parts = pieces(work, sizes[HEAD_DIM])
    lo, hi = np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
    d, kv_heads, group, kind = sizes[HEAD_DIM], sizes[KV_HEADS], sizes[GROUP], sizes[KIND]
    across = sizes[BATCH] * kv_heads
    tiles = sizes[TASKS] // across
    while True:
        task = atomic_add(sizes, NEXT, 1)
        if task >= sizes[TASKS]:
            return
        first_row = (tiles - 1 - task // across) * ROWS
        b, h = (task % across) // kv_heads, task % kv_heads
        q_len, k_len = seq[b, Q_LEN], seq[b, K_LEN]
        rows = min(ROWS, q_len * group - first_row)
        if rows <= 0:
            continue
        load_rows(parts, q, seq[b, Q_AT] + h * group * sizes[Q_H], first_row, rows, sizes)
        start(parts)
        begin, end = see(lo, hi, first_row, rows, q_len, k_len, sizes)
        k_at, v_at = seq[b, K_AT] + h * sizes[K_H], seq[b, V_AT] + h * sizes[V_H]
        bias_at = seq[b, BIAS_AT] + h * group * sizes[BIAS_H]
        for first in range(begin, end, KEYS):
            keys = min(KEYS, end - first)
            for j in range(keys):
                fetch(view(parts[1], j * d, d), view(k, k_at + (first + j) * sizes[K_J], d), kind)
                fetch(view(parts[2], j * d, d), view(v, v_at + (first + j) * sizes[V_J], d), kind)
            score(parts, keys, rows, d, coef, gemm)
            if sizes[BIASED]:
                add_bias(parts[3], bias, bias_at, first, first_row, rows, keys, sizes)
            some_hidden = hide(parts[3], first, keys, rows, lo, hi)
            accumulate(parts, keys, rows, d, some_hidden or sizes[BIASED] != 0, gemm)
        finish(parts, rows)
        out_at = seq[b, OUT_AT] + h * group * sizes[OUT_H]
        store_rows(parts, out, lse, out_at, seq[b, LSE_AT] + h * group * sizes[LSE_H], first_row, rows, sizes)
