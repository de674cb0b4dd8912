"""Intrinsics of the room's CPU kernels: atomic minimum, reads beside writers, bit scan, prefetch, clock."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["atomic_umin", "nanoseconds", "peek", "prefetch", "trailing_zeros"]


def _word(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def atomic_umin(typingctx, array, index, value):
    """Lower one uint64 word to ``value`` if that is smaller; return the old word."""

    def codegen(context, builder, signature, args):
        word = _word(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("umin", word, args[2], "monotonic")

    return types.uint64(array, types.uint64, types.uint64), codegen


@intrinsic
def peek(typingctx, array, index):
    """Read one uint64 word that another thread may be writing: the old or the new value, never a mixture."""

    def codegen(context, builder, signature, args):
        word = _word(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(word, "monotonic", 8)

    return types.uint64(array, types.uint64), codegen


@intrinsic
def prefetch(typingctx, array, index):
    """Ask for the cache line of one item; reads nothing, so the index may be out of range."""

    def codegen(context, builder, signature, args):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        word = builder.bitcast(_word(context, builder, signature.args[0], args[0], args[1]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [word, *(ir.Constant(number, k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.none(array, types.uint64), codegen


@intrinsic
def trailing_zeros(typingctx, word):
    """Return the index of the lowest set bit of a uint64 that is not 0, as uint64."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)])
        count = cgutils.get_or_insert_function(builder.module, kind, "llvm.cttz.i64")
        return builder.call(count, [args[0], ir.Constant(ir.IntType(1), 1)])

    return types.uint64(types.uint64), codegen


@intrinsic
def nanoseconds(typingctx, clock):
    """Return the reading of one of the system's clocks (``time.CLOCK_MONOTONIC``) in nanoseconds."""

    def codegen(context, builder, signature, args):
        word = ir.IntType(64)
        slot = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), slot.type])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(function, [builder.trunc(args[0], ir.IntType(32)), slot])
        seconds = builder.extract_value(builder.load(slot), 0)
        rest = builder.extract_value(builder.load(slot), 1)
        return builder.add(builder.mul(seconds, ir.Constant(word, 10**9)), rest)

    return types.int64(types.int64), codegen
