"""Repair of cuDNN's prefill in Triton: a program looks through a share of its tiles, and computes those that are spoilt.

Under a diagonal cuDNN multiplies the value of a key that a row does not see by a weight of zero. If that value is not
finite, the row becomes NaN, and so do all rows of a step of the tensor cores, which takes 16 rows (or 16 rows and heads,
where heads of a group lie side by side). So one row of each step tells. Programs are as many as run at once: with finite
data each reads its share of those rows, several tiles at a time, and ends. A tile that holds a NaN is computed by
`prefill_tile`, whoever is to blame for it: rows that see the value become NaN again, by their own. No program depends on
another one, and each writes tiles of its own only.
"""

import triton
import triton.language as tl

from warpfront.attention._triton_number_kernels import size_of
from warpfront.attention._triton_prefill_kernels import place_of, prefill_tile

LOOKS = tl.constexpr(64)


@triton.jit
def spoilt_among(first, end, out, steps, sizes, S: tl.constexpr):
    """Whether rows of tiles from ``first`` up to ``end``, `LOOKS` of them at most, hold what is not a number."""
    per_tile: tl.constexpr = S.block_m // S.repair
    look = tl.arange(0, LOOKS)
    place = first + look // per_tile
    tile, head, batch = place_of(place, sizes, S)
    row = tile * S.block_m + look % per_tile * S.repair
    columns = tl.arange(0, S.block_d)
    inside = ((place < end) & (row < size_of(sizes[0])))[:, None] & (columns < S.head_dim)[None, :]
    places = batch.to(tl.int64) * steps[9] + row.to(tl.int64) * steps[10] + head.to(tl.int64) * steps[11]
    there = tl.load(out + places[:, None] + columns[None, :], mask=inside, other=0.0)
    return (there != there).to(tl.int32)


@triton.jit
def repair_kernel(q, k, v, k_rows, v_rows, extra, out, lse, steps, sizes, scores, S: tl.constexpr):
    """See the module; arguments as `prefill_kernel`."""
    count = size_of(sizes[7])
    share = tl.cdiv(count, tl.num_programs(0))
    first = tl.program_id(0) * share
    end = tl.minimum(first + share, count)
    at_once: tl.constexpr = LOOKS // (S.block_m // S.repair)
    tl.static_assert(
        at_once > 0, "more rows of a tile are looked at than at once: the loop would stand still"
    )
    found = tl.full([LOOKS, S.block_d], 0, tl.int32)
    for place in tl.range(first, end, at_once):
        found |= spoilt_among(place, end, out, steps, sizes, S)
    if tl.max(tl.max(found, 1), 0) > 0:
        for place in tl.range(first, end):
            found = spoilt_among(place, tl.minimum(place + 1, end), out, steps, sizes, S)
            if tl.max(tl.max(found, 1), 0) > 0:
                prefill_tile(place, q, k, v, (k_rows, v_rows), extra, out, lse, steps, sizes, scores, S)
