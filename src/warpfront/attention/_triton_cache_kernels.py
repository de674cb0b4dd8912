"""Writing tokens into pages, turning keys by RoPE, and copying pages, in Triton.

`append_kernel`: a program owns one token, keys or values of all its heads; it reads every element once, pairs of it where
keys are turned, and writes it at its slot, ``page * page_size + token``, whose element offset is 64-bit. `copy_kernel`: a
program owns a block of elements of one page. No two programs write one place: slots differ, targets of copies are fresh.
Angles and products are float32, as on the CPU's tables; the result is rounded once.

Literature: Su et al., RoFormer (2021).
"""

import triton
import triton.language as tl


@triton.jit
def turned(x, row, at, table_row, cos, sin, S: tl.constexpr):
    """Elements ``at`` of a head whose pairs are turned by the angles in ``table_row``, in float32."""
    if S.interleaved:
        pair = at // 2
        first = at % 2 == 0
        partner = at + tl.where(first, 1, -1)
    else:
        half = S.rotary_dim // 2
        first = at < half
        pair = tl.where(first, at, at - half)
        partner = tl.where(first, at + half, at - half)
    inside = at < S.rotary_dim
    own = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    other = tl.load(x + row + partner, mask=inside, other=0.0).to(tl.float32)
    co = tl.load(cos + table_row + pair, mask=inside, other=0.0)
    si = tl.load(sin + table_row + pair, mask=inside, other=0.0)
    return own * co + other * tl.where(first, -si, si)


@triton.jit
def write_heads(x, x_row, head_step, target, position, cos, sin, TURN: tl.constexpr, S: tl.constexpr):
    """Write all heads of a token to ``target``, whose heads follow one another."""
    for begin in range(0, S.width, S.block):
        place = begin + tl.arange(0, S.block)
        head = place // S.head_dim
        at = place % S.head_dim
        inside = place < S.width
        row = x_row + head.to(tl.int64) * head_step
        value = tl.load(x + row + at, mask=inside, other=0.0)
        if TURN:
            table_row = position * (S.rotary_dim // 2)
            row = tl.where(inside, row, x_row)
            moved = turned(x, row, at, table_row, cos, sin, S)
            value = tl.where(at < S.rotary_dim, moved, value.to(tl.float32)).to(value.dtype)
        tl.store(target + place, value, mask=inside)


@triton.jit
def append_kernel(k, v, slots, positions, cos, sin, k_pages, v_pages, steps, S: tl.constexpr):
    """See the module. ``steps``: strides (token, head) of k and of v."""
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    if slot >= 0:
        target = slot * S.width
        row = tl.cast(token, tl.int64)
        if tl.program_id(1) == 0:
            position = tl.full([], 0, tl.int64)
            if S.rotary_dim > 0:
                position = tl.load(positions + token)
            turn: tl.constexpr = S.rotary_dim > 0
            write_heads(k, row * steps[0], steps[1], k_pages + target, position, cos, sin, turn, S)
        else:
            write_heads(v, row * steps[2], steps[3], v_pages + target, row, cos, sin, False, S)


@triton.jit
def rotate_kernel(x, positions, cos, sin, out, steps, S: tl.constexpr):
    """Turn all heads of a token. ``out`` may be ``x``: the barrier is between a program's reads and its writes."""
    token = tl.cast(tl.program_id(0), tl.int64)
    position = tl.load(positions + token)
    place = tl.arange(0, S.block)
    head = place // S.head_dim
    at = place % S.head_dim
    inside = place < S.width
    row = tl.where(inside, token * steps[0] + head * steps[1], token * steps[0])
    value = tl.load(x + row + at, mask=inside, other=0.0)
    moved = turned(x, row, at, position * (S.rotary_dim // 2), cos, sin, S)
    value = tl.where(at < S.rotary_dim, moved, value.to(tl.float32)).to(value.dtype)
    tl.debug_barrier()
    tl.store(out + token * S.width + place, value, mask=inside)


@triton.jit
def copy_kernel(sources, targets, k_pages, v_pages, S: tl.constexpr):
    """Copy a block of one page, of keys (program 1 = 0) or values."""
    source = tl.load(sources + tl.program_id(0)) * S.width
    target = tl.load(targets + tl.program_id(0)) * S.width
    place = tl.program_id(2) * S.block + tl.arange(0, S.block)
    inside = place < S.width
    if tl.program_id(1) == 0:
        tl.store(k_pages + target + place, tl.load(k_pages + source + place, mask=inside), mask=inside)
    else:
        tl.store(v_pages + target + place, tl.load(v_pages + source + place, mask=inside), mask=inside)
