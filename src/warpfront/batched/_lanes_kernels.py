"""Vector statements over the lanes of interleaved systems, as LLVM vector operations.

`LANES` neighbouring elements are one vector: element e of a system t lies at ``e * LANES + t``. Left to
itself the compiler would have to prove that the strips of a matrix do not overlap before it may use vector
instructions on them, and it cannot. Each intrinsic below is one loop over equidistant strips; products
and sums are separate operations (LLVM contracts nothing unless a flag allows it), so every lane has the bits
of the scalar statement. The target decides how wide its registers are; the result does not depend on it.

All positions, steps and counts are uint64, in elements; a count of 0 does nothing.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from warpfront.batched._strips import WIDTH, Strips, constant, moved, spread

__all__ = [
    "divide",
    "divide_unless",
    "gap",
    "greatest",
    "multiply",
    "powers",
    "roots",
    "search",
    "settle",
    "subtract",
]


@intrinsic
def subtract(typing, dst, at, step, fixed, where, other, above, above_step, count):
    """``dst[at + q * step] -= fixed[where] * other[above + q * above_step]`` for q < count."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, _, where, _, above, above_step, count = values
        factor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = moved(builder, at, step, loop.index)
            product = builder.fmul(factor, strips.load(5, moved(builder, above, above_step, loop.index)))
            strips.store(0, place, builder.fsub(strips.load(0, place), product))
        return context.get_dummy_value()

    return types.void(dst, at, step, fixed, where, other, above, above_step, count), code


@intrinsic
def divide(typing, dst, at, step, by, where, count):
    """``dst[at + q * step] /= by[where]`` for q < count."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, _, where, count = values
        divisor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = moved(builder, at, step, loop.index)
            strips.store(0, place, builder.fdiv(strips.load(0, place), divisor))
        return context.get_dummy_value()

    return types.void(dst, at, step, by, where, count), code


@intrinsic
def divide_unless(typing, dst, at, step, by, where, guard, count):
    """As `divide`; a lane whose ``guard`` is zero divides by 1."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, _, where, _, count = values
        guard = strips.load(5, ir.Constant(ir.IntType(64), 0))
        kind = strips.kinds[3]
        hollow = builder.fcmp_ordered("==", guard, constant(kind, 0.0))
        divisor = builder.select(hollow, constant(kind, 1.0), strips.load(3, where))
        with cgutils.for_range(builder, count) as loop:
            place = moved(builder, at, step, loop.index)
            strips.store(0, place, builder.fdiv(strips.load(0, place), divisor))
        return context.get_dummy_value()

    return types.void(dst, at, step, by, where, guard, count), code


@intrinsic
def multiply(typing, dst, at, step, by, where, count):
    """``dst[at + q * step] *= by[where]`` for q < count."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, at, step, _, where, count = values
        factor = strips.load(3, where)
        with cgutils.for_range(builder, count) as loop:
            place = moved(builder, at, step, loop.index)
            strips.store(0, place, builder.fmul(strips.load(0, place), factor))
        return context.get_dummy_value()

    return types.void(dst, at, step, by, where, count), code


@intrinsic
def greatest(typing, result, src, at, step, count):
    """``result = max(result, |src[at + q * step]|)``, and no finite number where one of them is none.

    Bits of sizes order as whole numbers as the sizes do, infinity and NaN above them.
    """

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, _, at, step, count = values
        zero = ir.Constant(ir.IntType(64), 0)
        bits = strips.bits(0)
        sizes = ir.Constant(bits, [2 ** (bits.element.width - 1) - 1] * WIDTH)
        place = cgutils.alloca_once_value(builder, builder.bitcast(strips.load(0, zero), bits))
        with cgutils.for_range(builder, count) as loop:
            size = strips.load(1, moved(builder, at, step, loop.index))
            size = builder.and_(builder.bitcast(size, bits), sizes)
            held = builder.load(place)
            builder.store(builder.select(builder.icmp_signed(">", size, held), size, held), place)
        strips.store(0, zero, builder.bitcast(builder.load(place), strips.vector(0)))
        return context.get_dummy_value()

    return types.void(result, src, at, step, count), code


@intrinsic
def powers(typing, size, status, scale, inverse):
    """Power of two near 1 / size and its inverse, as `_reference.power_scale`; of a failed lane the greatest and least."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        zero = ir.Constant(ir.IntType(64), 0)
        bits = strips.bits(0)
        mantissa, top = (52, 2046) if bits.element.width == 64 else (23, 254)

        def all_of(value):
            return ir.Constant(bits, [value] * WIDTH)

        fine = builder.icmp_signed("==", strips.load(1, zero), ir.Constant(strips.vector(1), [0] * WIDTH))
        exponent = builder.lshr(builder.bitcast(strips.load(0, zero), bits), all_of(mantissa))
        exponent = builder.select(fine, exponent, all_of(1))
        low = builder.icmp_signed("<", exponent, all_of(1))
        exponent = builder.select(low, all_of(1), exponent)
        high = builder.icmp_signed(">", exponent, all_of(top - 1))
        exponent = builder.select(high, all_of(top - 1), exponent)
        for k, power in ((2, builder.sub(all_of(top), exponent)), (3, exponent)):
            number = builder.bitcast(builder.shl(power, all_of(mantissa)), strips.vector(k))
            strips.store(k, zero, number)
        return context.get_dummy_value()

    return types.void(size, status, scale, inverse), code


@intrinsic
def gap(typing, result, src, at, step, mirror, mirror_step, count):
    """``result = max(result, |src[at + q * step] - src[mirror + q * mirror_step]|)``; NaN never wins."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        _, _, at, step, mirror, mirror_step, count = values
        zero = ir.Constant(ir.IntType(64), 0)
        place = cgutils.alloca_once_value(builder, strips.load(0, zero))
        with cgutils.for_range(builder, count) as loop:
            left = strips.load(1, moved(builder, at, step, loop.index))
            right = strips.load(1, moved(builder, mirror, mirror_step, loop.index))
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
        strips = Strips(context, builder, signature, values)
        _, _, _, at, step, first, count = values
        zero = ir.Constant(ir.IntType(64), 0)
        word = ir.IntType(32)
        kind = ir.VectorType(word, WIDTH)
        value = cgutils.alloca_once_value(builder, constant(strips.kinds[0], -1.0))
        index = cgutils.alloca_once_value(builder, ir.Constant(kind, [0] * WIDTH))
        with cgutils.for_range(builder, count) as loop:
            size = strips.magnitude(2, strips.load(2, moved(builder, at, step, loop.index)))
            row = spread(builder, word, builder.trunc(builder.add(first, loop.index), word))
            held = builder.load(value)
            wins = builder.fcmp_ordered(">", size, held)
            builder.store(builder.select(wins, size, held), value)
            builder.store(builder.select(wins, row, builder.load(index)), index)
        strips.store(0, zero, builder.load(value))
        strips.store(1, zero, builder.load(index))
        return context.get_dummy_value()

    return types.void(best, rows, src, at, step, first, count), code


@intrinsic
def settle(typing, status, best, rows, pivots, at, code_):
    """``pivots[at] = rows``; a lane that has not failed and whose ``best`` is zero fails with ``code_``."""

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        zero, word = ir.Constant(ir.IntType(64), 0), ir.IntType(32)
        strips.store(3, values[4], strips.load(2, zero))
        held, none = strips.load(0, zero), ir.Constant(strips.vector(0), [0] * WIDTH)
        hollow = builder.fcmp_ordered("==", strips.load(1, zero), constant(strips.kinds[1], 0.0))
        fails = builder.and_(hollow, builder.icmp_signed("==", held, none))
        failed = spread(builder, word, builder.trunc(values[5], word))
        strips.store(0, zero, builder.select(fails, failed, held))
        return context.get_dummy_value()

    return types.void(status, best, rows, pivots, at, code_), code


@intrinsic
def roots(typing, w, at, status, bound, code_, other):
    """``w[at]`` to its square root; 1 in a lane where it is not positive or above ``bound``.

    Such a lane fails, unless it has: with ``code_``, or with ``other`` (int32) if its number is not finite.
    """

    def code(context, builder, signature, values):
        strips = Strips(context, builder, signature, values)
        zero, word, kind = ir.Constant(ir.IntType(64), 0), ir.IntType(32), strips.kinds[0]
        value, limit = strips.load(0, values[1]), spread(builder, kind, values[3])
        finite = builder.fcmp_ordered("<=", strips.magnitude(0, value), limit)
        good = builder.and_(finite, builder.fcmp_ordered(">", value, constant(kind, 0.0)))
        held, none = strips.load(2, zero), ir.Constant(strips.vector(2), [0] * WIDTH)
        fails = builder.and_(builder.not_(good), builder.icmp_signed("==", held, none))
        failed = spread(builder, word, builder.trunc(values[4], word))
        failed = builder.select(finite, failed, spread(builder, word, values[5]))
        strips.store(2, zero, builder.select(fails, failed, held))
        safe = builder.select(good, value, constant(kind, 1.0))
        name = f"llvm.sqrt.v{WIDTH}f{strips.bits(0).element.width}"
        kinds = ir.FunctionType(safe.type, [safe.type])
        strips.store(
            0, values[1], builder.call(cgutils.get_or_insert_function(builder.module, kinds, name), [safe])
        )
        return context.get_dummy_value()

    return types.void(w, at, status, bound, code_, other), code
