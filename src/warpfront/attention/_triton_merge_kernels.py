"""Merging partial results in Triton: one program owns one row, and adds its parts up in their order.

Parts are taken `CHUNK` at a time: the sum within a chunk has a shape that is compiled in, the chunks follow one another,
so that the bits depend on a row's own number of parts and not on how many the launch has room for. A part whose LSE is
-inf is left out, whatever its memory holds. Rows do not depend on one another.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from warpfront.attention._triton_decode_kernels import part_span
from warpfront.attention._triton_number_kernels import LN2, LOG2E, power, quotient, size_of


@triton.jit
def merge_kernel(parts, part_lse, lengths, out, lse, steps, sizes, S: tl.constexpr):
    """See the module.

    ``steps``: strides (part, sequence, token, head) of parts and of part_lse, (sequence, token, head) of out and of lse;
    ``sizes``: tokens, heads, parts. Sizes and strides of an LSE are by `coded_sizes`. With ``S.by_length`` a sequence has
    as many parts as its length asks for. With ``S.pairs`` part_lse holds maximum (base 2) and sum of a part, and parts
    are not divided by the sum.
    """
    by_lse = (size_of(steps[4]), size_of(steps[5]), size_of(steps[6]), size_of(steps[7]))
    strides = (steps[0:4], by_lse, steps[8:11], (size_of(steps[11]), size_of(steps[12]), size_of(steps[13])))
    tokens = size_of(sizes[0])
    heads = size_of(sizes[1])
    head = (tl.program_id(0) % heads).to(tl.int64)
    token = (tl.program_id(0) // heads % tokens).to(tl.int64)
    batch = tl.program_id(0) // heads // tokens
    sequence = batch.to(tl.int64)
    count = tl.cast(size_of(sizes[2]), tl.int32)
    if S.by_length:
        length = tl.load(lengths + batch)
        count = tl.maximum(1, tl.cdiv(length, part_span(length, S)))
    if S.dependent:  # lengths are older than the parts, which are complete from here on
        gdc_wait()
    lse_row = part_lse + sequence * strides[1][1] + token * strides[1][2] + head * strides[1][3]
    row = parts + sequence * strides[0][1] + token * strides[0][2] + head * strides[0][3]
    every = tl.arange(0, S.all_parts).to(tl.int64)
    top = tl.max(tl.load(lse_row + every * strides[1][0], mask=every < count, other=float("-inf")), 0)
    against = tl.where(top == float("-inf"), 0.0, top)

    elements = tl.arange(0, S.block_d)
    few = tl.arange(0, S.chunk)
    acc = tl.full([S.block_d], 0.0, tl.float32)
    total = tl.full([], 0.0, tl.float32)
    for first in tl.range(0, count, S.chunk):
        index = first + few
        place = index.to(tl.int64)
        exponent = tl.load(lse_row + place * strides[1][0], mask=index < count, other=float("-inf"))
        filled = (exponent != float("-inf"))[:, None]
        there = (index < count)[:, None]  # not filled: the load would wait for the one before
        if S.pairs:
            weight = power(exponent - against, S)
            share = tl.load(lse_row + place * strides[1][0] + 1, mask=index < count, other=0.0) * weight
        else:
            weight = power((exponent - against) * LOG2E, S)
            share = weight
        if S.block_d != S.head_dim:
            there = there & (elements < S.head_dim)[None, :]
        partial = tl.load(row + place[:, None] * strides[0][0] + elements[None, :], mask=there, other=0.0)
        partial = tl.where(filled, partial.to(tl.float32), 0.0)
        acc += tl.sum(partial * weight[:, None], 0)
        total += tl.sum(share, 0)
    empty = total == 0.0
    under = tl.where(empty, 1.0, total)
    places = out + sequence * strides[2][0] + token * strides[2][1] + head * strides[2][2] + elements
    result = tl.where(empty, 0.0, quotient(acc, under, S))
    tl.store(places, result.to(out.dtype.element_ty), mask=elements < S.head_dim)
    if S.lse:
        value = against * LN2 + tl.log2(under) * LN2 if S.pairs else against + tl.log2(under) * LN2
        value = tl.where(empty, float("-inf"), value)
        tl.store(lse + sequence * strides[3][0] + token * strides[3][1] + head * strides[3][2], value)
