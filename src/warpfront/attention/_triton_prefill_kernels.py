"""Prefill in Triton: one program owns a tile of queries of one head and walks over the keys that any of them sees.

The walk has up to three stretches: tiles that the window's left edge cuts, tiles that every query of the program sees
whole (no mask is computed there), and tiles that the diagonal or the end of the keys cuts. Scores live in registers in
base 2 (`scale` times log2 e is folded into the exponent), with a running maximum and sum a row; queries, keys and values
pass through shared memory, in ``stages`` buffers, loaded by the tensor memory accelerator where ``descriptors`` is set
and by asynchronous copies elsewhere. No program depends on another one.

A key that is masked for one row of a tile is visible to another, so its value is multiplied by a weight of zero there. If
that value is not finite, the product is not zero: rows that it reached are recognised at the end by a result that is
not a number, and the program then repeats its work with `_careful`, which keeps such values out of the product and
accounts for them separately. Finite data never take that way, and pay one reduction a program for the question.

Literature: Dao, FlashAttention-2 (2023); Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
"""

import triton
import triton.language as tl

from warpfront.attention._triton_number_kernels import (
    LN2,
    LOG2E,
    add_values,
    capped,
    fold,
    not_finite,
    of_kind,
    quotient,
    size_of,
)


@triton.jit
def key_tile(pointer, descriptor, where, start, length, strides, WHOLE: tl.constexpr, S: tl.constexpr):
    """Load keys or values ``start`` and on: (block_n, block_d). Past the end: zeros, or, by descriptor, anything.

    ``WHOLE`` promises that there are as many.
    """
    if S.descriptors:
        tile = descriptor.load([where[0] + start, where[1]])
    else:
        rows = tl.arange(0, S.block_n)
        columns = tl.arange(0, S.block_d)
        if S.wide:
            rows = rows.to(tl.int64)
        base = pointer + tl.cast(start, tl.int64) * strides[1]
        places = base + (rows[:, None] * strides[1] + columns[None, :])
        if WHOLE and S.block_d == S.head_dim:
            tile = tl.load(places)
        else:
            inside = (start + tl.arange(0, S.block_n) < length)[:, None]
            if S.block_d != S.head_dim:
                inside = inside & (columns < S.head_dim)[None, :]
            tile = tl.load(places, mask=inside, other=0.0)
    return tile


@triton.jit
def products(q_tile, arrays, where, rows, start, lens, strides, WHOLE: tl.constexpr, S: tl.constexpr):
    """Products of the program's queries and keys ``start`` and on.

    In float32 problems in sums of 16, as plain code's library has short chains too; queries are read again for each.
    """
    if S.precise:
        keys = start + tl.arange(0, S.block_n)
        product = tl.full([S.block_m, S.block_n], 0.0, tl.float32)
        for first in tl.range(0, S.head_dim, 16):
            columns = first + tl.arange(0, 16)
            some = (columns < S.head_dim)[None, :]
            q_places = arrays[5] + rows.to(tl.int64)[:, None] * strides[0][1] + columns[None, :]
            k_places = arrays[0] + keys.to(tl.int64)[:, None] * strides[1][1] + columns[None, :]
            q_part = tl.load(q_places, mask=(rows < lens[0])[:, None] & some, other=0.0)
            k_part = tl.load(k_places, mask=(keys < lens[1])[:, None] & some, other=0.0)
            product += tl.dot(q_part, k_part.T, input_precision=S.precision, max_num_imprecise_acc=1)
    else:
        keys = key_tile(arrays[0], arrays[3], where[0], start, lens[1], strides[1], WHOLE, S)
        product = tl.dot(q_tile, keys.T, input_precision=S.precision)
    return product


@triton.jit
def score_tile(product, bias, rows, start, at, lens, strides, scores, MASKED: tl.constexpr, S: tl.constexpr):
    """Turn products q k into scores in base 2 (or products, where the exponent scales them), hidden keys -inf.

    ``at`` is the first row's diagonal key, ``lens`` (queries, keys, left, right) of the sequence.
    """
    columns = start + tl.arange(0, S.block_n)
    if S.prescale:
        product = capped(product, scores, S)
    if MASKED:
        seen = (columns < lens[1])[None, :]
        if S.has_right:
            seen = seen & (columns[None, :] <= (rows + at)[:, None] + lens[3])
        if S.has_left:
            seen = seen & (columns[None, :] >= (rows + at)[:, None] - lens[2])
    if S.bias:
        inside = (rows < lens[0])[:, None] & (columns < lens[1])[None, :]
        places = bias + rows.to(tl.int64)[:, None] * strides[2] + columns.to(tl.int64)[None, :] * strides[3]
        added = tl.load(places, mask=inside, other=0.0).to(tl.float32)
        hidden = added == float("-inf")
        product = tl.where(hidden, float("-inf"), product + added * LOG2E)
    if MASKED:
        product = tl.where(seen, product, float("-inf"))
    return product


@triton.jit
def walk(
    state, q_tile, arrays, where, rows, bounds, lens, strides, scores, MASKED: tl.constexpr, S: tl.constexpr
):
    """Fold the key tiles from bounds[0] up to bounds[1] into (accumulator, maximum, sum).

    MASKED is 0 where every row sees all keys, 1 where not, and 2 where the tiles up to bounds[2] are of the first kind:
    one loop then keeps its loads in flight across the border.
    """
    acc, top, total = state
    for start in tl.range(bounds[0], bounds[1], S.block_n, num_stages=S.stages):
        product = products(q_tile, arrays, where, rows, start, lens, strides, MASKED == 0, S)
        if MASKED == 2:
            if start >= bounds[2]:
                product = score_tile(
                    product, arrays[2], rows, start, where[2], lens, strides[4], scores, True, S
                )
        else:
            product = score_tile(
                product, arrays[2], rows, start, where[2], lens, strides[4], scores, MASKED, S
            )
        weights, shrink, top, total = fold(product, top, total, scores, MASKED == 0 and not S.bias, S)
        values = key_tile(arrays[1], arrays[4], where[1], start, lens[1], strides[2], MASKED == 0, S)
        acc = add_values(acc * shrink[:, None], weights, values, S)
    return acc, top, total


@triton.jit
def walks(q_tile, arrays, where, rows, bounds, lens, strides, scores, S: tl.constexpr):
    """All stretches of keys, ``bounds`` as `stretches` returns them."""
    begin, whole_from, whole_to, end = bounds
    top = tl.full([S.block_m], float("-inf"), tl.float32)
    total = tl.full([S.block_m], 0.0, tl.float32)
    state = (tl.full([S.block_m, S.block_d], 0.0, tl.float32), top, total)
    if S.has_left:
        state = walk(state, q_tile, arrays, where, rows, (begin, whole_from), lens, strides, scores, 1, S)
    if S.single:
        state = walk(
            state, q_tile, arrays, where, rows, (whole_from, end, whole_to), lens, strides, scores, 2, S
        )
    else:
        state = walk(state, q_tile, arrays, where, rows, (whole_from, whole_to), lens, strides, scores, 0, S)
        if S.ragged:
            state = walk(state, q_tile, arrays, where, rows, (whole_to, end), lens, strides, scores, 1, S)
    return state


@triton.jit
def careful(
    q_tile, arrays, where, rows, bounds, lens, strides, scores, part, FINITE: tl.constexpr, S: tl.constexpr
):
    """As `walk` over all tiles, for values that are not finite and reach only the rows that see their key.

    FINITE (``part`` 0) is without such values, by the operations of `walk` in their order, so that the other elements keep
    their bits (where `walk` ran, maximum and sum are its own: values do not touch them, and another compilation may sum in
    another order); ``part`` 1, 2 and 3 count the visible values of a kind, as `of_kind` has them. One at a time, because
    four accumulators would not fit into registers; which one the compiler does not know, because each loop costs it time.
    """
    top = tl.full([S.block_m], float("-inf"), tl.float32)
    total = tl.full([S.block_m], 0.0, tl.float32)
    acc = tl.full([S.block_m, S.block_d], 0.0, tl.float32)
    for start in tl.range(bounds[0], bounds[1], S.block_n, num_stages=1):
        product = products(q_tile, arrays, where, rows, start, lens, strides, False, S)
        product = score_tile(product, arrays[2], rows, start, where[2], lens, strides[4], scores, True, S)
        values = key_tile(arrays[1], arrays[4], where[1], start, lens[1], strides[2], False, S)
        if FINITE:
            weights, shrink, top, total = fold(product, top, total, scores, False, S)
            acc *= shrink[:, None]
        else:
            weights = tl.where(product == float("-inf"), 0.0, 1.0)
        acc = add_values(acc, weights, of_kind(values, part), S)
    return acc, total


@triton.jit
def query_tile(pointer, rows, length, strides, S: tl.constexpr):
    """Load the program's queries, zeros beyond the last one."""
    columns = tl.arange(0, S.block_d)
    inside = (rows < length)[:, None]
    if S.block_d != S.head_dim:
        inside = inside & (columns < S.head_dim)[None, :]
    return tl.load(
        pointer + rows.to(tl.int64)[:, None] * strides[1] + columns[None, :], mask=inside, other=0.0
    )


@triton.jit
def stretches(first, last, at, lens, S: tl.constexpr):
    """Bounds of the three stretches of keys of queries ``first`` to ``last``: begin, whole from, whole to, end."""
    begin = 0
    whole_from = 0
    end = lens[1]
    whole_to = lens[1]
    if S.has_left:
        begin = tl.maximum(0, first + at - lens[2]) // S.block_n * S.block_n
        whole_from = tl.cdiv(tl.maximum(0, last + at - lens[2]), S.block_n) * S.block_n
    if S.has_right:
        end = tl.minimum(end, last + at + lens[3] + 1)
        whole_to = tl.minimum(whole_to, first + at + lens[3] + 1)
    whole_to = tl.maximum(whole_to, 0) // S.block_n * S.block_n
    whole_from = tl.minimum(whole_from, tl.maximum(end, 0))
    return begin, whole_from, tl.maximum(whole_to, whole_from), end


@triton.jit
def divided(acc, total, S: tl.constexpr):
    """Results of the sums; 0 for a row that sees nothing: one that sees a key has a sum of at least one."""
    empty = (total == 0.0)[:, None]
    return tl.where(empty, 0.0, quotient(acc, tl.where(empty, 1.0, total[:, None]), S))


@triton.jit
def tile_of(out, rows, length, strides, S: tl.constexpr):
    """Places of the program's rows of the output, and which of them there are."""
    columns = tl.arange(0, S.block_d)
    inside = (rows < length)[:, None]
    if S.block_d != S.head_dim:
        inside = inside & (columns < S.head_dim)[None, :]
    return out + rows.to(tl.int64)[:, None] * strides[1] + columns[None, :], inside


@triton.jit
def contained(q_tile, arrays, where, rows, bounds, lens, strides, scores, total, out, S: tl.constexpr):
    """Compute a tile that values which are not finite have spoilt, and write it: results, then what is not finite."""
    places, inside = tile_of(out, rows, lens[0], strides[3], S)
    tl.debug_barrier()
    acc, sums = careful(q_tile, arrays, where, rows, bounds, lens, strides, scores, 0, True, S)
    if not S.repair:
        sums = total
    tl.store(places, divided(acc, sums, S).to(out.dtype.element_ty), mask=inside)
    for part in tl.range(1, 4):
        tl.debug_barrier()  # what was written so far need not be by the same lanes
        acc, _ = careful(q_tile, arrays, where, rows, bounds, lens, strides, scores, part, False, S)
        some = inside & (acc != 0.0)
        before = tl.load(places, mask=some, other=0.0)
        tl.store(places, not_finite(before.to(tl.float32), part).to(out.dtype.element_ty), mask=some)


@triton.jit
def prefill_kernel(q, k, v, k_rows, v_rows, extra, out, lse, steps, sizes, scores, S: tl.constexpr):
    """See the module; arguments as `prefill_tile`."""
    if S.varlen:  # tiles beyond a sequence's own queries
        tile, _, batch = place_of(tl.program_id(0), sizes, S)
        if tile * S.block_m >= tl.load(extra[1] + batch + 1) - tl.load(extra[1] + batch):
            return
    prefill_tile(tl.program_id(0), q, k, v, (k_rows, v_rows), extra, out, lse, steps, sizes, scores, S)


@triton.jit
def place_of(place, sizes, S: tl.constexpr):
    """Return tile of queries, head and sequence of a program: under a diagonal the longest rows come first."""
    tiles = tl.cdiv(size_of(sizes[0]), S.block_m)
    heads = size_of(sizes[2])
    tile = place % tiles
    if S.has_right:
        tile = tiles - 1 - tile  # so that the last programs are short ones
    return tile, place // tiles % heads, place // tiles // heads


@triton.jit
def prefill_tile(place, q, k, v, by_rows, extra, out, lse, steps, sizes, scores, S: tl.constexpr):
    """Compute one tile of queries of one head, the ``place``-th.

    ``by_rows`` are descriptors of k and v or None, ``extra`` is (bias, cumulated lengths of queries, of keys),
    ``steps`` the strides (sequence, row, head) of q, k, v, out and (sequence, head, row, column) of bias, ``sizes``
    (queries, keys, heads, group, left, right, rows of LSE, tiles) by `coded_sizes`, ``scores`` what `score_constants`
    returns.
    """
    by_bias = steps[12:16]
    if S.bias == 1:
        by_bias = (size_of(steps[12]), size_of(steps[13]), size_of(steps[14]), steps[15])
    strides = (steps[0:3], steps[3:6], steps[6:9], steps[9:12], by_bias)
    q_len = size_of(sizes[0])
    k_len = size_of(sizes[1])
    heads = size_of(sizes[2])
    tile, head, batch = place_of(place, sizes, S)
    sequence = batch.to(tl.int64)
    q_first = tl.full([], 0, tl.int64)
    k_first = tl.full([], 0, tl.int64)
    q_sequence = sequence * strides[0][0]
    k_sequence = sequence * strides[1][0]
    v_sequence = sequence * strides[2][0]
    o_sequence = sequence * strides[3][0]
    lse_row = (sequence * heads + head) * q_len
    if S.varlen:
        q_first = tl.load(extra[1] + batch).to(tl.int64)
        k_first = tl.load(extra[2] + batch).to(tl.int64)
        q_len = (tl.load(extra[1] + batch + 1) - q_first).to(tl.int32)
        k_len = (tl.load(extra[2] + batch + 1) - k_first).to(tl.int32)
        q_sequence = q_first * strides[0][1]
        k_sequence = k_first * strides[1][1]
        v_sequence = k_first * strides[2][1]
        o_sequence = q_first * strides[3][1]
        lse_row = head.to(tl.int64) * size_of(sizes[6]) + q_first
    kv_head = (head // size_of(sizes[3])).to(tl.int64)
    first = tile * S.block_m
    rows = first + tl.arange(0, S.block_m)
    last = tl.minimum(first + S.block_m, q_len) - 1
    at = k_len - q_len
    lens = (q_len, k_len, size_of(sizes[4]), size_of(sizes[5]))
    q += q_sequence + head.to(tl.int64) * strides[0][2]
    k_place = k_sequence + kv_head * strides[1][2]
    v_place = v_sequence + kv_head * strides[2][2]
    k_where = (0, 0)
    v_where = (0, 0)
    if S.descriptors:  # memory as one matrix of rows: where this head's first row and column lie in it
        k_where = ((k_place // strides[1][1]).to(tl.int32), (k_place % strides[1][1]).to(tl.int32))
        v_where = ((v_place // strides[2][1]).to(tl.int32), (v_place % strides[2][1]).to(tl.int32))
    bias = q  # stands for what is not there
    if S.bias:
        bias = extra[0] + sequence * strides[4][0] + head.to(tl.int64) * strides[4][1]
    arrays = (k + k_place, v + v_place, bias, by_rows[0], by_rows[1], q)
    where = (k_where, v_where, at)
    begin, whole_from, whole_to, end = stretches(first, last, at, lens, S)
    out += o_sequence + head.to(tl.int64) * strides[3][2]

    q_tile = query_tile(q, rows, q_len, strides[0], S)
    total = tl.full([S.block_m], 0.0, tl.float32)
    again = S.repair > 0
    if not S.repair:
        acc, top, total = walks(
            q_tile, arrays, where, rows, (begin, whole_from, whole_to, end), lens, strides, scores, S
        )
        places, inside = tile_of(out, rows, q_len, strides[3], S)
        tl.store(places, divided(acc, total, S).to(out.dtype.element_ty), mask=inside)
        if S.lse:
            empty = total == 0.0
            value = tl.where(empty, float("-inf"), (top + tl.log2(tl.where(empty, 1.0, total))) * LN2)
            tl.store(lse + lse_row + rows, value, mask=rows < q_len)
        if S.contain:
            again = tl.max(tl.max(((acc != acc) & (rows < q_len)[:, None]).to(tl.int32), 1), 0) > 0
    if S.contain:  # noqa: SIM102 - the one is known to the compiler, the other is not
        if again:
            q_tile = query_tile(q, rows, q_len, strides[0], S)
            contained(q_tile, arrays, where, rows, (begin, end), lens, strides, scores, total, out, S)
