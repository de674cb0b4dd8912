"""Sums of the triangular sweeps in an order that is written down, so that one right-hand side and many give the same bits.

`muladd` is a product and a sum in one rounding where the processor has that. `dot4` sums down four columns of a panel
in four lanes; `dots` does the same for `LANES` right-hand sides that lie next to each other, each by `dot4`'s order;
`updates` is, for them, the update of the rows below by four columns: ``u - (a0 t0 + (a1 t1 + (a2 t2 + a3 t3)))``.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from warpfront.backend.jit import njit

__all__ = [
    "LANES",
    "add_row",
    "copy_row",
    "divide_row",
    "dot4",
    "dots",
    "four_dots",
    "muladd",
    "scale_row",
    "subtract_row",
    "take_row",
    "updates",
]

LANES = 16
_HALF = 8  # lanes that the registers hold sums of
_SUM = 4  # lanes of a sum


def _data(context, builder, signature, args, k):
    return context.make_array(signature.args[k])(context, builder, args[k]).data


def _fused(builder, a, b, c):
    kind = c.type
    name = (
        f"llvm.fmuladd.{kind.intrinsic_name}"
        if not isinstance(kind, ir.VectorType)
        else (f"llvm.fmuladd.v{kind.count}{kind.element.intrinsic_name}")
    )
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [a, b, c])


def _vector(builder, data, at, width):
    pointer = builder.gep(data, [at])
    kind = ir.VectorType(pointer.type.pointee, width)
    return builder.bitcast(pointer, kind.as_pointer()), kind


def _load(builder, data, at, width):
    pointer, _ = _vector(builder, data, at, width)
    return builder.load(pointer, align=4)


def _everywhere(builder, value, width):
    """A scalar in every lane."""
    kind = ir.VectorType(value.type, width)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), mask)


def _folded(builder, lanes):
    """Sum of the lanes, neighbours first."""
    while len(lanes) > 1:
        lanes = [builder.fadd(lanes[k], lanes[k + 1]) for k in range(0, len(lanes), 2)]
    return lanes[0]


def _steps(builder, start, stop, step):
    return cgutils.for_range_slice(builder, start, stop, ir.Constant(start.type, step), start.type)


@intrinsic
def _fmuladd(typingctx, a, b, c):
    return c(c, c, c), lambda context, builder, signature, args: _fused(builder, *args)


def muladd(a, b, c):
    """``a * b + c``."""


@overload(muladd, inline="never")
def _muladd_overload(a, b, c):
    if isinstance(c, types.Complex):
        return lambda a, b, c: a * b + c
    return lambda a, b, c: _fmuladd(a, b, c)  # noqa: PLW0108


@intrinsic
def _dot4(typingctx, a, at, ld, x, xat, count):
    position = types.intp

    def codegen(context, builder, signature, args):
        panel, vector = (
            _data(context, builder, signature, args, 0),
            _data(context, builder, signature, args, 3),
        )
        _, at, ld, _, xat, count = args
        scalar = panel.type.pointee
        wide = ir.VectorType(scalar, _SUM)
        starts = [builder.add(at, builder.mul(ld, ir.Constant(ld.type, k))) for k in range(4)]
        sums = [cgutils.alloca_once_value(builder, ir.Constant(wide, [0.0] * _SUM)) for _ in range(4)]
        whole = builder.and_(count, ir.Constant(count.type, -_SUM))
        with _steps(builder, ir.Constant(count.type, 0), whole, _SUM) as (i, _):
            value = _load(builder, vector, builder.add(xat, i), _SUM)
            for start, total in zip(starts, sums, strict=True):
                entry = _load(builder, panel, builder.add(start, i), _SUM)
                builder.store(_fused(builder, entry, value, builder.load(total)), total)
        results = []
        for total in sums:
            lane = [
                builder.extract_element(builder.load(total), ir.Constant(ir.IntType(32), k))
                for k in range(_SUM)
            ]
            results.append(cgutils.alloca_once_value(builder, _folded(builder, lane)))
        with _steps(builder, whole, count, 1) as (i, _):
            value = builder.load(builder.gep(vector, [builder.add(xat, i)]))
            for start, result in zip(starts, results, strict=True):
                entry = builder.load(builder.gep(panel, [builder.add(start, i)]))
                builder.store(_fused(builder, entry, value, builder.load(result)), result)
        return context.make_tuple(
            builder, signature.return_type, [builder.load(result) for result in results]
        )

    return types.UniTuple(a.dtype, 4)(a, position, position, x, position, position), codegen


@njit(cache=True, nogil=True)
def _dot4_complex(a, at, ld, x, xat, count):
    s0, s1, s2, s3 = x.dtype.type(0), x.dtype.type(0), x.dtype.type(0), x.dtype.type(0)
    for i in range(count):
        v = x[xat + i]
        s0 += a[at + i] * v
        s1 += a[at + ld + i] * v
        s2 += a[at + 2 * ld + i] * v
        s3 += a[at + 3 * ld + i] * v
    return s0, s1, s2, s3


def dot4(a, at, ld, x, xat, count):
    """Sums of ``a[at + k ld + i] * x[xat + i]`` over i for k = 0..3."""


@overload(dot4, inline="never")
def _dot4_overload(a, at, ld, x, xat, count):
    if isinstance(a.dtype, types.Complex):
        return lambda a, at, ld, x, xat, count: _dot4_complex(a, at, ld, x, xat, count)  # noqa: PLW0108
    return lambda a, at, ld, x, xat, count: _dot4(a, at, ld, x, xat, count)  # noqa: PLW0108


@intrinsic
def dots(typingctx, a, at, x, xat, stride, count, out):
    """``out[0:LANES] = sum of a[at + i] * x[xat + i stride + lane]`` over i in the order of `dot4`; real types."""
    position = types.intp

    def codegen(context, builder, signature, args):
        panel, vector = (
            _data(context, builder, signature, args, 0),
            _data(context, builder, signature, args, 2),
        )
        target = _data(context, builder, signature, args, 6)
        _, at, _, xat, stride, count, _ = args
        wide = ir.VectorType(panel.type.pointee, _HALF)
        whole = builder.and_(count, ir.Constant(count.type, -_SUM))
        for half in range(0, LANES, _HALF):
            sums = [cgutils.alloca_once(builder, wide) for _ in range(_SUM)]
            for total in sums:
                builder.store(ir.Constant(wide, [0.0] * _HALF), total)
            origin = builder.add(xat, ir.Constant(xat.type, half))

            def add(i, total, origin=origin):
                entry = _everywhere(builder, builder.load(builder.gep(panel, [builder.add(at, i)])), _HALF)
                value = _load(builder, vector, builder.add(origin, builder.mul(i, stride)), _HALF)
                builder.store(_fused(builder, entry, value, builder.load(total)), total)

            with _steps(builder, ir.Constant(count.type, 0), whole, _SUM) as (i, _):
                for k, total in enumerate(sums):
                    add(builder.add(i, ir.Constant(i.type, k)), total)
            builder.store(_folded(builder, [builder.load(total) for total in sums]), sums[0])
            with _steps(builder, whole, count, 1) as (i, _):
                add(i, sums[0])
            place, _ = _vector(builder, target, ir.Constant(count.type, half), _HALF)
            builder.store(builder.load(sums[0]), place, align=4)
        return context.get_dummy_value()

    return types.none(a, position, x, position, position, position, out), codegen


@intrinsic
def four_dots(typingctx, a, at, ld1, ld2, ld3, x, xat, stride, count, out):
    """``out[k LANES + lane] = sum of a[at + ldk + i] * x[xat + i stride + lane]``, one i after the other; real types.

    k = 0..3, with ld0 = 0.
    """
    position = types.intp

    def codegen(context, builder, signature, args):
        panel, vector = (
            _data(context, builder, signature, args, 0),
            _data(context, builder, signature, args, 5),
        )
        target = _data(context, builder, signature, args, 9)
        at, xat, stride, count = args[1], args[6], args[7], args[8]
        starts = [at, *(builder.add(at, args[k]) for k in (2, 3, 4))]
        wide = ir.VectorType(panel.type.pointee, _HALF)
        zero = ir.Constant(wide, [0.0] * _HALF)
        for half in range(0, LANES, _HALF):
            sums = [cgutils.alloca_once(builder, wide) for _ in starts]
            for total in sums:
                builder.store(zero, total)
            origin = builder.add(xat, ir.Constant(xat.type, half))
            with _steps(builder, ir.Constant(count.type, 0), count, 1) as (i, _):
                value = _load(builder, vector, builder.add(origin, builder.mul(i, stride)), _HALF)
                for start, total in zip(starts, sums, strict=True):
                    entry = _everywhere(
                        builder, builder.load(builder.gep(panel, [builder.add(start, i)])), _HALF
                    )
                    builder.store(_fused(builder, entry, value, builder.load(total)), total)
            for k, total in enumerate(sums):
                place, _ = _vector(builder, target, ir.Constant(count.type, k * LANES + half), _HALF)
                builder.store(builder.load(total), place, align=4)
        return context.get_dummy_value()

    return types.none(
        a, position, position, position, position, x, position, position, position, out
    ), codegen


@intrinsic
def updates(typingctx, a, at, ld1, ld2, ld3, v, v0, v1, v2, v3, out, begin, stride, count):
    """``out[begin + i stride + lane] -= a0 t0 + (a1 t1 + (a2 t2 + a3 t3))`` for i < count; real types.

    ``ak = a[at + ldk + i]`` with ld0 = 0, ``tk = v[vk + lane]``.
    """
    position = types.intp

    def codegen(context, builder, signature, args):
        panel, vector = (
            _data(context, builder, signature, args, 0),
            _data(context, builder, signature, args, 5),
        )
        target = _data(context, builder, signature, args, 10)
        at, begin, stride, count = args[1], args[11], args[12], args[13]
        starts = [at, *(builder.add(at, args[k]) for k in (2, 3, 4))]
        for half in range(0, LANES, _HALF):
            shift = ir.Constant(at.type, half)
            t = [_load(builder, vector, builder.add(args[k], shift), _HALF) for k in (6, 7, 8, 9)]
            origin = builder.add(begin, shift)
            with _steps(builder, ir.Constant(count.type, 0), count, 1) as (i, _):
                entry = [
                    _everywhere(builder, builder.load(builder.gep(panel, [builder.add(start, i)])), _HALF)
                    for start in starts
                ]
                total = builder.fmul(entry[3], t[3])
                for k in (2, 1, 0):
                    total = _fused(builder, entry[k], t[k], total)
                place, _ = _vector(builder, target, builder.add(origin, builder.mul(i, stride)), _HALF)
                builder.store(builder.fsub(builder.load(place, align=4), total), place, align=4)
        return context.get_dummy_value()

    arguments = (a, position, position, position, position, v, position, position, position, position, out)
    return types.none(*arguments, position, position, position), codegen


def _row_operation(name, makes, takes_factor):
    """Intrinsic on rows of `LANES` entries: ``(source, at, target, to[, factor])`` writes ``target[to:to + LANES]``."""

    def typed(typingctx, source, at, target, to, factor=None):
        position = types.intp
        arguments = (source, position, target, position)
        if takes_factor:
            arguments += (source.dtype,)

        def codegen(context, builder, signature, args):
            origin, goal = (
                _data(context, builder, signature, args, 0),
                _data(context, builder, signature, args, 2),
            )
            place, _ = _vector(builder, goal, args[3], LANES)
            value = _load(builder, origin, args[1], LANES)
            old = builder.load(place, align=4)
            factor = _everywhere(builder, args[4], LANES) if takes_factor else None
            builder.store(makes(builder, value, old, factor), place, align=4)
            return context.get_dummy_value()

        return types.none(*arguments), codegen

    if takes_factor:

        def with_factor(typingctx, source, at, target, to, factor):
            return typed(typingctx, source, at, target, to, factor)

        function = with_factor
    else:

        def plain(typingctx, source, at, target, to):
            return typed(typingctx, source, at, target, to)

        function = plain
    function.__name__ = function.__qualname__ = name
    return intrinsic(function)


copy_row = _row_operation("copy_row", lambda builder, value, old, factor: value, False)
add_row = _row_operation("add_row", lambda builder, value, old, factor: builder.fadd(old, value), False)
subtract_row = _row_operation(
    "subtract_row", lambda builder, value, old, factor: builder.fsub(old, value), False
)
take_row = _row_operation(
    "take_row", lambda builder, value, old, factor: _fused(builder, builder.fneg(factor), value, old), True
)
scale_row = _row_operation("scale_row", lambda builder, value, old, factor: builder.fmul(value, factor), True)
divide_row = _row_operation(
    "divide_row", lambda builder, value, old, factor: builder.fdiv(value, factor), True
)
