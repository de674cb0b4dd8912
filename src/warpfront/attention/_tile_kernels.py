"""Online softmax on the CPU: one tile of rows against one tile of keys, in float32.

A *row* is one query of one head; the heads of a group share their keys, so rows ``r`` of a (sequence, key head) are
position ``r // group`` and head ``r % group`` of the group. A thread owns ROWS rows at a time and walks over the keys:

    S = K Q^T scaled, capped, biased, hidden where a row does not see a key        (keys, ROWS), rows contiguous
    m' = max(m, max_j S);  P = exp(S - m');  l = l e^(m - m') + sum_j P;  O = O e^(m - m') + P^T V

Rows lie side by side in S, so that every elementwise loop is over rows and needs no reduction across vector lanes: the
bits depend neither on the width of the vectors nor on the number of threads. The two products are BLAS calls, at one
thread each. O is (ROWS, head_dim) by rows.

A thread's scratch is one float32 array that `pieces` cuts into Q (head_dim, ROWS; by rows where there are few), K and V
(KEYS, head_dim), S (KEYS, ROWS), O (ROWS, head_dim) and, for each row, m, l, base (m where it is finite, else 0),
shrink (e^(m - m')) and a partial sum. ``lo`` and ``hi`` are the keys that each row sees, from ``lo`` up to before ``hi``.

What is hidden never takes part: hidden scores are set to -inf after they are computed, whatever they were, and where a
tile has hidden scores, values that are not finite are taken out of the product and added apart, to rows whose weight of
them is not 0. So hidden keys and values change no bit. A score of -inf counts as hidden.

Literature: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax (2018); T. Dao et al., FlashAttention
(2022); T. Dao, FlashAttention-2 (2023).
"""

from __future__ import annotations

import numpy as np

from warpfront.attention._float_kernels import (
    FLOAT16,
    FLOAT32,
    address,
    exp_of,
    fma,
    from_bfloat,
    from_half,
    sgemm_nn,
    sgemm_nt,
    tanh_of,
    to_bfloat,
    to_half,
)
from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit

__all__ = [
    "CAP",
    "KEYS",
    "ROWS",
    "SCALE",
    "accumulate",
    "fetch",
    "finish",
    "hide",
    "pieces",
    "put",
    "score",
    "scratch_size",
    "start",
]

ROWS = 192
KEYS = 256
LANES = 8
# Up to so many rows, plain loops are faster than BLAS, and Q is kept by rows.
FEW = 8
# Weights are summed in blocks of this many, and the blocks then: a long plain sum would lose digits.
SUMMED = 16
# Keys whose weighted values are summed in one chain, and below which head dim they are fewer: plain code's library has
# shorter chains for a narrow head.
CHAIN = 64
NARROW = 16
ZERO, ONE = np.float32(0.0), np.float32(1.0)
HIDDEN = np.float32(-np.inf)
# Positions in `coef`.
SCALE, CAP = range(2)


def scratch_size(head_dim: int) -> int:
    """Return the float32 words of a thread's scratch."""
    return ROWS * (2 * head_dim + KEYS + 5) + 2 * KEYS * head_dim


@njit(cache=True, nogil=True)
def pieces(work, d):
    """Cut a thread's scratch into q, k, v, s, o, m, l, base, shrink, some."""
    k = ROWS * d
    v = k + KEYS * d
    s = v + KEYS * d
    o = s + KEYS * ROWS
    m = o + ROWS * d
    return (
        view(work, 0, k),
        view(work, k, KEYS * d),
        view(work, v, KEYS * d),
        view(work, s, KEYS * ROWS),
        view(work, o, ROWS * d),
        view(work, m, ROWS),
        view(work, m + ROWS, ROWS),
        view(work, m + 2 * ROWS, ROWS),
        view(work, m + 3 * ROWS, ROWS),
        view(work, m + 4 * ROWS, ROWS),
    )


@njit(cache=True, nogil=True)
def fetch(target, source, kind):
    """Convert neighbouring elements of storage to float32; ``target`` says how many."""
    count = target.shape[0]
    if kind == FLOAT32:
        for c in range(count):
            target[c] = source[c]
    elif kind == FLOAT16:
        for c in range(count):
            target[c] = from_half(np.uint16(source[c]))
    else:
        for c in range(count):
            target[c] = from_bfloat(np.uint16(source[c]))


@njit(cache=True, nogil=True)
def put(target, source, factor, kind):
    """Store neighbouring elements times ``factor``, rounded once more to the storage's type."""
    count = source.shape[0]
    if kind == FLOAT32:
        for c in range(count):
            target[c] = source[c] * factor
    elif kind == FLOAT16:
        for c in range(count):
            target[c] = to_half(source[c] * factor)
    else:
        for c in range(count):
            target[c] = to_bfloat(source[c] * factor)


@njit(cache=True, nogil=True)
def start(parts):
    """Set O = 0, m = -inf, l = 0."""
    o, m, l = parts[4], parts[5], parts[6]
    for c in range(o.shape[0]):
        o[c] = ZERO
    for i in range(ROWS):
        m[i] = HIDDEN
        l[i] = ZERO


@njit(cache=True, nogil=True, error_model="numpy")
def scale_scores(s, keys, wide, coef):
    """Scale and cap."""
    scale, cap = coef[SCALE], coef[CAP]
    inverse = scale / cap if cap > ZERO else ZERO
    for j in range(keys):
        row = view(s, j * ROWS, wide)
        if cap > ZERO:
            for i in range(wide):
                row[i] = cap * tanh_of(row[i] * inverse)
        else:
            for i in range(wide):
                row[i] *= scale


@njit(cache=True, nogil=True)
def hide(s, first, keys, rows, lo, hi):
    """Set what a row does not see to -inf. Keys are numbered from ``first``; return whether there was any."""
    any_hidden = False
    for i in range(rows):
        begin, end = max(0, min(keys, lo[i] - first)), max(0, min(keys, hi[i] - first))
        any_hidden |= begin > 0 or end < keys
        for j in range(begin):
            s[j * ROWS + i] = HIDDEN
        for j in range(end, keys):
            s[j * ROWS + i] = HIDDEN
    return any_hidden


@njit(cache=True, nogil=True, error_model="numpy")
def weigh(s, m, l, base, shrink, some, keys, wide):
    """Turn scores into weights and update m and l; return whether any m moved."""
    for i in range(wide):
        base[i] = m[i]
    for j in range(keys):
        row = view(s, j * ROWS, wide)
        for i in range(wide):
            base[i] = row[i] if row[i] > base[i] else base[i]
    moved = False
    for i in range(wide):
        before, after = m[i], base[i]
        moved |= before != after
        m[i] = after
        # Nothing seen so far: a finite base keeps exp(-inf - base) at 0, where -inf would make it NaN.
        base[i] = after if after > HIDDEN else ZERO
        shrink[i] = exp_of(before - base[i])
        l[i] *= shrink[i]
    for first in range(0, keys, SUMMED):
        for i in range(wide):
            some[i] = ZERO
        for j in range(first, min(first + SUMMED, keys)):
            row = view(s, j * ROWS, wide)
            for i in range(wide):
                p = exp_of(row[i] - base[i])
                row[i] = p
                some[i] += p
        for i in range(wide):
            l[i] += some[i]
    return moved


@njit(cache=True, nogil=True)
def all_finite(x, count):
    """Tell whether the first ``count`` words hold neither NaN nor infinity."""
    bad = 0
    for c in range(count):
        bad |= x[c] - x[c] != ZERO
    return bad == 0


@njit(cache=True, nogil=True)
def set_aside(v, s, o, keys, rows, d):
    """Take what is not finite out of V, and add it to the rows whose weight of it is not 0."""
    for j in range(keys):
        value = view(v, j * d, d)
        for c in range(d):
            if value[c] - value[c] != ZERO:
                for i in range(rows):
                    p = s[j * ROWS + i]
                    if p != ZERO:
                        o[i * d + c] += p * value[c]
                value[c] = ZERO


@njit(cache=True, nogil=True)
def add_few(o, s, v, keys, rows, d):
    """``O += P^T V`` by plain loops, four keys at a time: an element of O is then loaded and stored a quarter as often."""
    whole = keys // 4 * 4
    for i in range(rows):
        mine = view(o, i * d, d)
        for j in range(0, whole, 4):
            a, b = s[j * ROWS + i], s[(j + 1) * ROWS + i]
            c, e = s[(j + 2) * ROWS + i], s[(j + 3) * ROWS + i]
            first, second = view(v, j * d, d), view(v, (j + 1) * d, d)
            third, fourth = view(v, (j + 2) * d, d), view(v, (j + 3) * d, d)
            for x in range(d):
                mine[x] += fma(a, first[x], b * second[x]) + fma(c, third[x], e * fourth[x])
        for j in range(whole, keys):
            a, value = s[j * ROWS + i], view(v, j * d, d)
            for x in range(d):
                mine[x] = fma(a, value[x], mine[x])


@njit(cache=True, nogil=True)
def shrink_output(o, shrink, rows, d):
    """``O = O e^(m - m')``."""
    for i in range(rows):
        mine, factor = view(o, i * d, d), shrink[i]
        for c in range(d):
            mine[c] *= factor


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def dot(x, y):
    """Inner product in the order that suits the vectors: the one place where the compiler chooses, once for all calls."""
    total = ZERO
    for c in range(x.shape[0]):
        total += x[c] * y[c]
    return total


@njit(cache=True, nogil=True)
def score(parts, keys, rows, d, coef, gemm):
    """``S = K Q^T``, scaled and capped. K is in the scratch."""
    q, k, s = parts[0], parts[1], parts[3]
    if rows <= FEW:
        for j in range(keys):
            key = view(k, j * d, d)
            for i in range(rows):
                s[j * ROWS + i] = dot(view(q, i * d, d), key)
    else:
        sgemm_nn(gemm, rows, keys, d, address(q, 0), ROWS, address(k, 0), d, address(s, 0), ROWS)
    scale_scores(s, keys, -(-rows // LANES) * LANES, coef)


@njit(cache=True, nogil=True)
def accumulate(parts, keys, rows, d, some_hidden, gemm):
    """Weigh the scores and add the weighted values, which are in the scratch, to O."""
    v, s, o, shrink = parts[2], parts[3], parts[4], parts[8]
    if weigh(s, parts[5], parts[6], parts[7], shrink, parts[9], keys, -(-rows // LANES) * LANES):
        shrink_output(o, shrink, rows, d)
    if some_hidden and not all_finite(v, keys * d):
        set_aside(v, s, o, keys, rows, d)
    if rows <= FEW:
        add_few(o, s, v, keys, rows, d)
    else:
        # BLAS adds up the keys of a call one after another: long chains would lose digits, as sums of weights would.
        block = CHAIN if d >= NARROW else SUMMED
        for first in range(0, keys, block):
            count = min(block, keys - first)
            weights = address(s, first * ROWS)
            sgemm_nt(gemm, d, rows, count, address(v, first * d), d, weights, ROWS, address(o, 0), d)


@njit(cache=True, nogil=True, error_model="numpy")
def finish(parts, rows):
    """Leave in each row's shrink the factor that O still needs, and the LSE in m. Nothing seen: 0 and -inf."""
    m, l, shrink = parts[5], parts[6], parts[8]
    for i in range(rows):
        total = np.float64(l[i])
        if total == 0.0:
            shrink[i] = ZERO
            m[i] = HIDDEN
        else:
            shrink[i] = np.float32(1.0 / total)
            m[i] = np.float32(np.float64(m[i]) + np.log(total))
