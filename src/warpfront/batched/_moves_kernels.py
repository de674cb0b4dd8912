"""Vector statements that move what lies in lanes: exchanges of rows, transposes into lanes and back, fetches.

As `_lanes_kernels`: all positions, steps and counts are uint64, in elements; a count of 0 does nothing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from warpfront.batched._strips import WIDTH, Strips, moved, spread

__all__ = ["exchange", "fetch", "fetch_to_write", "turn", "wanted"]


@intrinsic
def wanted(typing, rows, row):
    """1 where a lane's ``rows`` (int32) is ``row``, else 0."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        word = ir.IntType(32)
        row = spread(builder, word, builder.trunc(values[1], word))
        same = builder.icmp_unsigned("==", strips.load(0, ir.Constant(ir.IntType(64), 0)), row)
        bits = builder.bitcast(same, ir.IntType(WIDTH))
        some = builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))
        return builder.zext(some, ir.IntType(64))

    return types.uint64(rows, row), code


@intrinsic
def exchange(typing, dst, at, row_step, top, count, hits, found, rows):
    """Exchange row ``top`` with each row i that is among the first ``found`` of ``hits``, where ``rows`` is i.

    ``rows`` (int32) says for each lane with which. ``count`` strips of a row are exchanged; row r's are from
    ``at + r * row_step`` on. Eight AVX2 registers of row ``top`` stay while all rows pass.
    """

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, row_step, top, count, _, found, _ = values
        word, index = ir.IntType(32), ir.IntType(64)
        # Bit by bit: a selection would have its one-bit mask widened again for every strip.
        kind, bits = strips.vector(0), strips.bits(0)
        rows = strips.load(7, ir.Constant(index, 0))
        lanes = ir.Constant(index, WIDTH)

        def some_strips(first, width):
            begin = moved(builder, at, lanes, first)
            places = [builder.add(begin, ir.Constant(index, q * WIDTH)) for q in range(width)]
            above = [moved(builder, place, row_step, top) for place in places]
            values = [builder.bitcast(strips.load(0, place), bits) for place in above]
            held = [cgutils.alloca_once_value(builder, value) for value in values]
            with cgutils.for_range(builder, found) as loop:
                i = builder.load(builder.gep(strips.data[5], [loop.index]))
                same = builder.icmp_unsigned("==", rows, spread(builder, word, builder.trunc(i, word)))
                wide = builder.sext(same, bits)
                for strip, place in zip(held, places, strict=True):
                    low = moved(builder, place, row_step, i)
                    upper, lower = builder.load(strip), builder.bitcast(strips.load(0, low), bits)
                    change = builder.and_(builder.xor(upper, lower), wide)
                    strips.store(0, low, builder.bitcast(builder.xor(lower, change), kind))
                    builder.store(builder.xor(upper, change), strip)
            for strip, place in zip(held, above, strict=True):
                strips.store(0, place, builder.bitcast(builder.load(strip), kind))

        size = 2 if bits.element.width == 64 else 4
        group = ir.Constant(index, size)
        whole = builder.udiv(count, group)
        with cgutils.for_range(builder, whole) as loop:
            some_strips(builder.mul(loop.index, group), size)
        done = builder.mul(whole, group)
        with cgutils.for_range(builder, builder.sub(count, done)) as loop:
            some_strips(builder.add(done, loop.index), 1)
        return context.get_dummy_value()

    return types.void(dst, at, row_step, top, count, hits, found, rows), code


def _pick(*parts: int) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(parts)), list(parts))


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose eight vectors of eight elements, or four of four, by shuffles that stay in halves until the last."""
    shuffle, count = builder.shuffle_vector, len(rows)
    if count == 8:
        low, high = _pick(0, 8, 1, 9, 4, 12, 5, 13), _pick(2, 10, 3, 11, 6, 14, 7, 15)
        pairs = [[shuffle(rows[k], rows[k + 1], m) for m in (low, high)] for k in (0, 2, 4, 6)]
        low, high = _pick(0, 1, 8, 9, 4, 5, 12, 13), _pick(2, 3, 10, 11, 6, 7, 14, 15)
        halves = [
            [shuffle(pairs[k][part], pairs[k + 1][part], m) for part in (0, 1) for m in (low, high)]
            for k in (0, 2)
        ]
        low, high = _pick(0, 1, 2, 3, 8, 9, 10, 11), _pick(4, 5, 6, 7, 12, 13, 14, 15)
    else:
        low, high = _pick(0, 4, 2, 6), _pick(1, 5, 3, 7)
        halves = [[shuffle(rows[k], rows[k + 1], m) for m in (low, high)] for k in (0, 2)]
        low, high = _pick(0, 1, 4, 5), _pick(2, 3, 6, 7)
    return [shuffle(a, b, m) for m in (low, high) for a, b in zip(*halves, strict=True)]


@intrinsic
def turn(typing, dst, at, step, src, begin, src_step):
    """``dst[at + q * step + p] = src[begin + p * src_step + q]`` for p, q < LANES: a square block, transposed.

    By smaller blocks whose rows fit the registers of AVX2: of eight elements of four bytes, or four of eight.
    """

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, _, begin, src_step = values
        word = ir.IntType(64)
        side = 4 if strips.bits(0).element.width == 64 else 8
        blocks, edge = ir.Constant(word, WIDTH // side), ir.Constant(word, side)
        with cgutils.for_range(builder, blocks) as down, cgutils.for_range(builder, blocks) as along:
            p, q = builder.mul(down.index, edge), builder.mul(along.index, edge)
            source = builder.add(moved(builder, begin, src_step, p), q)
            target = builder.add(moved(builder, at, step, q), p)
            index = [ir.Constant(word, k) for k in range(side)]
            rows = [strips.load(3, moved(builder, source, src_step, k), side) for k in index]
            for k, row in zip(index, _turned(builder, rows), strict=True):
                strips.store(0, moved(builder, target, step, k), row, side)
        return context.get_dummy_value()

    return types.void(dst, at, step, src, begin, src_step), code


def _fetching(write: int) -> Any:
    """Code of the two fetches: into the second-level cache, to be read, or to be written."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, count = values
        word, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        options = [ir.Constant(word, k) for k in (write, 2, 1)]
        with cgutils.for_range(builder, count) as loop:
            place = builder.gep(strips.data[0], [moved(builder, at, step, loop.index)])
            builder.call(function, [builder.bitcast(place, byte), *options])
        return context.get_dummy_value()

    return code


@intrinsic
def fetch(typing, array, at, step, count):
    """Bring the memory around ``array[at + q * step]``, q < count, near; it may lie beyond the array."""
    return types.void(array, at, step, count), _fetching(0)


@intrinsic
def fetch_to_write(typing, array, at, step, count):
    """As `fetch`, for memory that will be written."""
    return types.void(array, at, step, count), _fetching(1)
