"""Decoding from a paged cache in Triton: one program owns one part of the keys of one key head of one sequence.

The query heads that share the key head, and the newest tokens where there are several, are the rows of its tile: every
key and value is read from memory once. A tile of keys is gathered page by page, rows of ``head_dim`` elements each,
``stages`` tiles ahead by asynchronous copies; page numbers times page size are 64-bit. Where the cut depends on the
sequence's own length alone (`_problem.part_keys`), so do the bits of every partial result; `_triton_merge_kernels` adds
them up in their order. No program depends on another one; the merge is a second launch, which orders it behind all of them.

Keys outside the window, beyond the length, and the pages that hold nothing else are not loaded. Newest tokens see
different keys of one tile; a value that is not finite and that some of them see is treated as in `_triton_prefill_kernels`.

Literature: Dao et al., Flash-Decoding (2023); Kwon et al., PagedAttention (2023).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from warpfront.attention._triton_number_kernels import (
    LN2,
    add_values,
    capped,
    exact_products,
    fold,
    not_finite,
    of_kind,
    quotient,
    score_of_kind,
    size_of,
)


@triton.jit
def part_span(length, S: tl.constexpr):
    """Return the keys of a part: `_problem.part_keys` for a length in device memory."""
    if S.splits > 0:
        keys = tl.maximum(1, tl.cdiv(length, S.splits * S.key_tile)) * S.key_tile
    else:
        keys = tl.where(length <= S.cut[0], S.cut[1], S.cut[2])
        while keys * S.cut[3] < length:
            keys *= 2
    return keys


@triton.jit
def pages_of(table, start, bounds, S: tl.constexpr):
    """Load the numbers of the pages that keys ``start`` and on lie in, 0 outside bounds."""
    columns = start + tl.arange(0, S.block_n)
    inside = (columns >= bounds[0]) & (columns < bounds[1])
    return tl.load(table + columns // S.page_size, mask=inside, other=0)


@triton.jit
def gather(pointer, pages, start, bounds, strides, S: tl.constexpr):
    """Load keys or values ``start`` and on from their pages, zeros outside bounds."""
    columns = start + tl.arange(0, S.block_n)
    elements = tl.arange(0, S.block_d)
    inside = (columns >= bounds[0]) & (columns < bounds[1])
    places = (
        pointer
        + (pages.to(tl.int64) * strides[0] + (columns % S.page_size) * strides[1])[:, None]
        + elements[None, :]
    )
    inside = inside[:, None]
    if S.block_d != S.head_dim:
        inside = inside & (elements < S.head_dim)[None, :]
    return tl.load(places, mask=inside, other=0.0, eviction_policy=S.policy)


@triton.jit
def scores_of(q_tile, keys, start, bounds, at, window, scores, S: tl.constexpr):
    """Scores of a tile in base 2 (or products, where the exponent scales them), hidden keys -inf."""
    columns = start + tl.arange(0, S.block_n)
    if S.precise:
        product = exact_products(q_tile, keys, S)
    else:
        product = tl.dot(q_tile, keys.T, input_precision=S.precision)
    if S.prescale:
        product = capped(product, scores, S)
    seen = ((columns >= bounds[0]) & (columns < bounds[1]))[None, :]
    if S.q_len > 1:
        seen = seen & (columns[None, :] <= at[:, None])
        if S.has_left:
            seen = seen & (columns[None, :] >= at[:, None] - window)
    return tl.where(seen, product, float("-inf"))


@triton.jit
def walk_pages(
    q_tile, arrays, bounds, at, window, strides, scores, part, CAREFUL: tl.constexpr, S: tl.constexpr
):
    """Fold the keys from bounds[0] up to bounds[1]; with CAREFUL by the ``part`` of values that `of_kind` names."""
    top = tl.full([S.block_m], float("-inf"), tl.float32)
    total = tl.full([S.block_m], 0.0, tl.float32)
    acc = tl.full([S.block_m, S.block_d], 0.0, tl.float32)
    first = bounds[0] // S.key_tile * S.key_tile
    ahead = pages_of(arrays[2], first, bounds, S)
    for start in tl.range(first, bounds[1], S.block_n, num_stages=1 if CAREFUL else S.stages):
        pages = ahead
        if (
            S.ahead
        ):  # the next tile's: its keys and values need not wait for the table, nor have a stage for that
            ahead = pages_of(arrays[2], start + S.block_n, bounds, S)
        else:
            pages = pages_of(arrays[2], start, bounds, S)
        keys = gather(arrays[0], pages, start, bounds, strides[0], S)
        product = scores_of(q_tile, keys, start, bounds, at, window, scores, S)
        values = gather(arrays[1], pages, start, bounds, strides[1], S)
        if CAREFUL:
            product = score_of_kind(product, part)
            values = of_kind(values, part)
        weights, shrink, top, total = fold(product, top, total, scores, False, S)
        acc *= shrink[:, None]
        acc = add_values(acc, weights, values, S)
    return acc, top, total


@triton.jit
def decode_kernel(q, k, v, table, lengths, out, lse, steps, sizes, scores, S: tl.constexpr):
    """See the module.

    ``steps``: strides (page, token, head) of k and of v, (sequence, token, head) of q, (part, sequence, token, head) of
    out and of lse, and the block table's row. With ``S.partial`` out is not divided by the sum, and lse is pairs of
    maximum (base 2) and sum. ``sizes``: key heads, parts of the grid, left side of the window. Programs run over key heads
    first, then row tiles, parts and sequences. Sizes, and strides of lse and the table, are by `coded_sizes`.
    """
    by_lse = (size_of(steps[13]), size_of(steps[14]), size_of(steps[15]), size_of(steps[16]))
    strides = (steps[0:3], steps[3:6], steps[6:9], steps[9:13], by_lse, size_of(steps[17]))
    if S.dependent:  # the merge may be put in place; it waits for this whole grid before it reads
        gdc_launch_dependents()
    kv_heads = size_of(sizes[0])
    parts = size_of(sizes[1])
    window = size_of(sizes[2])
    place = tl.program_id(0)
    kv_head = (place % kv_heads).to(tl.int64)
    place = place // kv_heads
    row_tile = place % S.row_tiles
    part = place // S.row_tiles % parts
    batch = place // S.row_tiles // parts
    length = tl.load(lengths + batch)
    span = part_span(length, S)
    if (part > 0) & (part * span >= length):
        return
    rows = row_tile * S.block_m + tl.arange(0, S.block_m)
    live = rows < S.q_len * S.group
    token = rows // S.group
    head = kv_head * S.group + rows % S.group
    at = length - S.q_len + token
    begin = part * span
    end = tl.minimum(begin + span, length)
    if S.has_left:
        begin = tl.maximum(begin, length - S.q_len - window)
    elements = tl.arange(0, S.block_d)
    inside = live[:, None]
    if S.block_d != S.head_dim:
        inside = inside & (elements < S.head_dim)[None, :]
    sequence = batch.to(tl.int64)
    q_rows = sequence * strides[2][0] + token.to(tl.int64) * strides[2][1] + head * strides[2][2]
    q_places = q + q_rows[:, None] + elements[None, :]
    q_tile = tl.load(q_places, mask=inside, other=0.0)
    arrays = (
        k + kv_head * strides[0][2],
        v + kv_head * strides[1][2],
        table + sequence * strides[5],
    )
    bounds = (begin, end)
    acc, top, total = walk_pages(q_tile, arrays, bounds, at, window, strides, scores, 0, False, S)

    empty = total == 0.0
    under = tl.where(empty, 1.0, total)
    rows_out = part.to(tl.int64) * strides[3][0] + sequence * strides[3][1]
    rows_out = rows_out + token.to(tl.int64) * strides[3][2] + head * strides[3][3]
    places = out + rows_out[:, None] + elements[None, :]
    if S.partial:  # sums as they are, with what they are relative to: an LSE in float32 would lose digits
        under = tl.full([S.block_m], 1.0, tl.float32)
    result = tl.where(empty[:, None], 0.0, quotient(acc, under[:, None], S))
    tl.store(places, result.to(out.dtype.element_ty), mask=inside)
    if S.lse:
        rows_lse = part.to(tl.int64) * strides[4][0] + sequence * strides[4][1]
        rows_lse = rows_lse + token.to(tl.int64) * strides[4][2] + head * strides[4][3]
        if S.partial:
            tl.store(lse + rows_lse, top, mask=live)
            tl.store(lse + rows_lse + 1, total, mask=live)
        else:
            value = tl.where(empty, float("-inf"), (top + tl.log2(under)) * LN2)
            tl.store(lse + rows_lse, value, mask=live)
    if S.q_len > 1:  # noqa: SIM102 - the one is known to the compiler, the other is not
        if tl.max(tl.max(((acc != acc) & inside).to(tl.int32), 1), 0) > 0:
            for kind in tl.range(0, 4):
                tl.debug_barrier()  # what was written so far need not be by the same lanes
                acc, _, _ = walk_pages(q_tile, arrays, bounds, at, window, strides, scores, kind, True, S)
                if kind == 0:
                    result = tl.where(empty[:, None], 0.0, quotient(acc, under[:, None], S))
                    tl.store(places, result.to(out.dtype.element_ty), mask=inside)
                else:
                    some = inside & (acc != 0.0)
                    before = tl.load(places, mask=some, other=0.0)
                    value = not_finite(before.to(tl.float32), kind)
                    tl.store(places, value.to(out.dtype.element_ty), mask=some)
