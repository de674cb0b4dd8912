"""Vector statements over the lanes of interleaved systems, as LLVM vector operations.

`LANES` neighbouring elements are one vector: element e of a system t lies at ``e * LANES + t``. Left to
itself the compiler would have to prove that the strips of a matrix do not overlap before it may use vector
instructions on them, and it cannot. Each intrinsic below is one loop over equidistant strips; products
and sums are separate operations (LLVM contracts nothing unless a flag allows it), so every lane has the bits
of the scalar statement. The target decides how wide its registers are; the result does not depend on it.

All positions, steps and counts are uint64, in elements; a count of 0 does nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LANES", "divide", "exchange", "gap", "greatest", "multiply", "search", "subtract", "turn"]

LANES = np.uint64(16)
_WIDTH = 16


class _Strips:
    """Vector loads and stores of the arrays of one intrinsic call."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.builder = builder
        self.data = {}
        self.kinds = {}
        for k, kind in enumerate(signature.args):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, values[k])
                self.data[k] = array.data
                self.kinds[k] = context.get_data_type(kind.dtype)

    def _place(self, k: int, at: Any) -> Any:
        pointer = self.builder.gep(self.data[k], [at])
        return self.builder.bitcast(pointer, ir.VectorType(self.kinds[k], _WIDTH).as_pointer())

    def load(self, k: int, at: Any) -> Any:
        return self.builder.load(self._place(k, at), align=4)

    def store(self, k: int, at: Any, value: Any) -> None:
        self.builder.store(value, self._place(k, at), align=4)

    def magnitude(self, k: int, value: Any) -> Any:
        kind = ir.VectorType(self.kinds[k], _WIDTH)
        name = f"llvm.fabs.v{_WIDTH}f{64 if isinstance(self.kinds[k], ir.DoubleType) else 32}"
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(kind, [kind]), name)
        return self.builder.call(function, [value])

    def greater(self, a: Any, b: Any) -> Any:
        """``a if a > b else b``."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)


def _moved(builder: Any, at: Any, step: Any, index: Any) -> Any:
    return builder.add(at, builder.mul(step, index))


def _constant(kind: Any, value: float) -> Any:
    return ir.Constant(ir.VectorType(kind, _WIDTH), [ir.Constant(kind, value)] * _WIDTH)


@intrinsic
def subtract(typing, dst, at, step, fixed, where, other, above, above_step, count):
    """``dst[at + q * step] -= fixed[where] * other[above + q * above_step]`` for q < count."""

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, at, step, _, where, _, above, above_step, count = values
        factor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = _moved(builder, at, step, loop.index)
            product = builder.fmul(factor, strips.load(5, _moved(builder, above, above_step, loop.index)))
            strips.store(0, place, builder.fsub(strips.load(0, place), product))
        return context.get_dummy_value()

    return types.void(dst, at, step, fixed, where, other, above, above_step, count), code


@intrinsic
def divide(typing, dst, at, step, by, where, count):
    """``dst[at + q * step] /= by[where]`` for q < count."""

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, at, step, _, where, count = values
        divisor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = _moved(builder, at, step, loop.index)
            strips.store(0, place, builder.fdiv(strips.load(0, place), divisor))
        return context.get_dummy_value()

    return types.void(dst, at, step, by, where, count), code


@intrinsic
def multiply(typing, dst, at, step, by, where, count):
    """``dst[at + q * step] *= by[where]`` for q < count."""

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, at, step, _, where, count = values
        factor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = _moved(builder, at, step, loop.index)
            strips.store(0, place, builder.fmul(strips.load(0, place), factor))
        return context.get_dummy_value()

    return types.void(dst, at, step, by, where, count), code


@intrinsic
def greatest(typing, result, src, at, step, count, bound):
    """``result = max(result, |src[at + q * step]|)``; infinite where one of them is above ``bound`` or no number.

    ``bound``: the type's largest finite number, a scalar.
    """

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, _, at, step, count, bound = values
        zero = ir.Constant(ir.IntType(64), 0)
        kind = strips.kinds[0]
        empty = ir.Constant(ir.VectorType(kind, _WIDTH), ir.Undefined)
        one = builder.insert_element(empty, bound, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), _WIDTH), [0] * _WIDTH)
        limit = builder.shuffle_vector(one, empty, mask)
        place = cgutils.alloca_once_value(builder, strips.load(0, zero))
        with cgutils.for_range(builder, count) as loop:
            size = strips.magnitude(1, strips.load(1, _moved(builder, at, step, loop.index)))
            fine = builder.fcmp_ordered("<=", size, limit)
            size = builder.select(fine, size, _constant(kind, float("inf")))
            builder.store(strips.greater(size, builder.load(place)), place)
        strips.store(0, zero, builder.load(place))
        return context.get_dummy_value()

    return types.void(result, src, at, step, count, bound), code


@intrinsic
def gap(typing, result, src, at, step, mirror, mirror_step, count):
    """``result = max(result, |src[at + q * step] - src[mirror + q * mirror_step]|)``; NaN never wins."""

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, _, at, step, mirror, mirror_step, count = values
        zero = ir.Constant(ir.IntType(64), 0)
        place = cgutils.alloca_once_value(builder, strips.load(0, zero))
        with cgutils.for_range(builder, count) as loop:
            left = strips.load(1, _moved(builder, at, step, loop.index))
            right = strips.load(1, _moved(builder, mirror, mirror_step, loop.index))
            size = strips.magnitude(1, builder.fsub(left, right))
            builder.store(strips.greater(size, builder.load(place)), place)
        strips.store(0, zero, builder.load(place))
        return context.get_dummy_value()

    return types.void(result, src, at, step, mirror, mirror_step, count), code


@intrinsic
def search(typing, best, rows, src, at, step, first, count):
    """Greatest ``|src[at + q * step]|`` into ``best``, and the first row ``first + q`` that has it into ``rows``.

    Starts from -1, so a lane of numbers always finds a row; ``rows`` is int32.
    """

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, _, _, at, step, first, count = values
        zero = ir.Constant(ir.IntType(64), 0)
        word = ir.IntType(32)
        kind = ir.VectorType(word, _WIDTH)
        mask = ir.Constant(kind, [0] * _WIDTH)
        value = cgutils.alloca_once_value(builder, _constant(strips.kinds[0], -1.0))
        index = cgutils.alloca_once_value(builder, ir.Constant(kind, [0] * _WIDTH))
        with cgutils.for_range(builder, count) as loop:
            size = strips.magnitude(2, strips.load(2, _moved(builder, at, step, loop.index)))
            row = builder.trunc(builder.add(first, loop.index), word)
            empty = ir.Constant(kind, ir.Undefined)
            row = builder.shuffle_vector(
                builder.insert_element(empty, row, ir.Constant(word, 0)), empty, mask
            )
            held = builder.load(value)
            wins = builder.fcmp_ordered(">", size, held)
            builder.store(builder.select(wins, size, held), value)
            builder.store(builder.select(wins, row, builder.load(index)), index)
        strips.store(0, zero, builder.load(value))
        strips.store(1, zero, builder.load(index))
        return context.get_dummy_value()

    return types.void(best, rows, src, at, step, first, count), code


@intrinsic
def exchange(typing, dst, top, low, step, count, rows, wanted):
    """Exchange ``dst[top + q * step]`` and ``dst[low + q * step]``, q < count, in the lanes whose ``rows`` is ``wanted``.

    ``rows`` is int32; nothing is touched where no lane wants it.
    """

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, top, low, step, count, _, wanted = values
        word = ir.IntType(32)
        empty = ir.Constant(ir.VectorType(word, _WIDTH), ir.Undefined)
        spread = ir.Constant(ir.VectorType(word, _WIDTH), [0] * _WIDTH)
        row = builder.insert_element(empty, builder.trunc(wanted, word), ir.Constant(word, 0))
        row = builder.shuffle_vector(row, empty, spread)
        mask = builder.icmp_unsigned("==", strips.load(5, ir.Constant(ir.IntType(64), 0)), row)
        some = builder.icmp_unsigned(
            "!=", builder.bitcast(mask, ir.IntType(_WIDTH)), ir.Constant(ir.IntType(_WIDTH), 0)
        )
        # Bit by bit: a selection would have its one-bit mask widened again for every strip.
        kind = ir.VectorType(strips.kinds[0], _WIDTH)
        bits = ir.VectorType(ir.IntType(64 if isinstance(strips.kinds[0], ir.DoubleType) else 32), _WIDTH)
        wide = builder.sext(mask, bits)
        with builder.if_then(some), cgutils.for_range(builder, count) as loop:
            above, below = (_moved(builder, at, step, loop.index) for at in (top, low))
            first = builder.bitcast(strips.load(0, above), bits)
            second = builder.bitcast(strips.load(0, below), bits)
            change = builder.and_(builder.xor(first, second), wide)
            strips.store(0, above, builder.bitcast(builder.xor(first, change), kind))
            strips.store(0, below, builder.bitcast(builder.xor(second, change), kind))
        return context.get_dummy_value()

    return types.void(dst, top, low, step, count, rows, wanted), code


def _exchange_masks(distance: int) -> tuple[Any, Any]:
    """Shuffles of one stage of a transpose: of two rows ``distance`` apart, which of 32 elements each becomes."""
    low = [c if not c & distance else _WIDTH + c - distance for c in range(_WIDTH)]
    high = [c + distance if not c & distance else _WIDTH + c for c in range(_WIDTH)]
    kind = ir.VectorType(ir.IntType(32), _WIDTH)
    return ir.Constant(kind, low), ir.Constant(kind, high)


@intrinsic
def turn(typing, dst, at, step, src, begin, src_step):
    """``dst[at + q * step + p] = src[begin + p * src_step + q]`` for p, q < LANES: a square block, transposed.

    log2(LANES) stages of pairwise shuffles, in registers.
    """

    def code(context, builder, signature, values):
        strips = _Strips(context, builder, signature, values)
        _, at, step, _, begin, src_step = values
        index = [ir.Constant(ir.IntType(64), k) for k in range(_WIDTH)]
        rows = [strips.load(3, _moved(builder, begin, src_step, k)) for k in index]
        for distance in (8, 4, 2, 1):
            low, high = _exchange_masks(distance)
            for k in range(_WIDTH):
                if not k & distance:
                    first, second = rows[k], rows[k + distance]
                    rows[k] = builder.shuffle_vector(first, second, low)
                    rows[k + distance] = builder.shuffle_vector(first, second, high)
        for k, row in zip(index, rows, strict=True):
            strips.store(0, _moved(builder, at, step, k), row)
        return context.get_dummy_value()

    return types.void(dst, at, step, src, begin, src_step), code
