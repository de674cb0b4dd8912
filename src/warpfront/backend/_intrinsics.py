"""Numba intrinsics shared by the CPU kernels: unowned array views, atomics, BLAS calls by address.

BLAS routines are called through SciPy's ``cython_blas`` pointers, passed as plain integers so that compiled
code can be cached on disk (an address baked into the code could not). Matrices are column-major.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "atomic_add",
    "atomic_cas",
    "gemm_nt",
    "load_acquire",
    "relax",
    "store_release",
    "trsm_rltn",
    "view",
]

_I8P = ir.IntType(8).as_pointer()


def _data(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


@intrinsic
def view(typingctx, array, offset, length):
    """``array[offset : offset + length]`` of a 1-D contiguous array, unchecked and without a reference count.

    A slice would touch the owner's reference count, one atomic word shared by every thread. The caller keeps
    the owner alive.
    """
    result = types.Array(array.dtype, 1, "C")

    def codegen(context, builder, signature, args):
        make = context.make_array(result)
        out = make(context, builder)
        itemsize = context.get_abi_sizeof(context.get_data_type(array.dtype))
        size = context.get_constant(types.intp, itemsize)
        context.populate_array(
            out,
            data=builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]], inbounds=True),
            shape=cgutils.pack_array(builder, [args[2]]),
            strides=cgutils.pack_array(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return out._getvalue()

    return result(array, types.intp, types.intp), codegen


@intrinsic
def atomic_add(typingctx, array, index, value):
    """Add to one int64 word, return the old value (acquire-release)."""

    def codegen(context, builder, signature, args):
        word = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        return builder.atomic_rmw("add", word, args[2], "acq_rel")

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def atomic_cas(typingctx, array, index, expected, value):
    """Compare-and-swap one int64 word; true when it held ``expected`` and was replaced."""

    def codegen(context, builder, signature, args):
        word = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        pair = builder.cmpxchg(word, args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), codegen


@intrinsic
def load_acquire(typingctx, array, index):
    """Read one int64 word with acquire ordering."""

    def codegen(context, builder, signature, args):
        word = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        return builder.load_atomic(word, "acquire", 8)

    return types.int64(array, types.intp), codegen


@intrinsic
def store_release(typingctx, array, index, value):
    """Write one int64 word with release ordering."""

    def codegen(context, builder, signature, args):
        word = builder.gep(_data(context, builder, signature.args[0], args[0]), [args[1]])
        builder.store_atomic(args[2], word, "release", 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.int64), codegen


@intrinsic
def relax(typingctx):
    """Give the processor away while waiting (``sched_yield``), so that a waiting thread never starves a working one."""

    def codegen(context, builder, signature, args):
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
        )
        builder.call(function, [])
        return context.get_dummy_value()

    return types.none(), codegen


def _blas(context, builder, address, arguments):
    """Call the routine at ``address`` with Fortran conventions: every argument by reference."""
    kind = ir.FunctionType(ir.VoidType(), [_I8P] * len(arguments))
    function = builder.inttoptr(address, kind.as_pointer())
    builder.call(function, [builder.bitcast(a, _I8P) for a in arguments])


def _int(builder, value):
    slot = cgutils.alloca_once(builder, ir.IntType(32))
    builder.store(builder.trunc(value, ir.IntType(32)), slot)
    return slot


def _char(builder, letter):
    return cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(8), ord(letter)))


def _scalar(context, builder, dtype, value):
    slot = cgutils.alloca_once(builder, context.get_data_type(dtype))
    builder.store(context.cast(builder, value, types.float64, dtype), slot)
    return slot


@intrinsic
def gemm_nt(typingctx, address, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """``C = beta C - A B^T``: A (m, k), B (n, k), C (m, n), column-major 1-D views with leading dimensions."""
    signature = types.none(
        types.int64,
        types.intp,
        types.intp,
        types.intp,
        a,
        types.intp,
        b,
        types.intp,
        types.float64,
        c,
        types.intp,
    )

    def codegen(context, builder, signature, args):
        address, m, n, k, a_, lda, b_, ldb, beta, c_, ldc = args
        minus_one = context.get_constant(types.float64, -1.0)
        _blas(
            context,
            builder,
            address,
            [
                _char(builder, "N"),
                _char(builder, "T"),
                _int(builder, m),
                _int(builder, n),
                _int(builder, k),
                _scalar(context, builder, a.dtype, minus_one),
                _data(context, builder, signature.args[4], a_),
                _int(builder, lda),
                _data(context, builder, signature.args[6], b_),
                _int(builder, ldb),
                _scalar(context, builder, a.dtype, beta),
                _data(context, builder, signature.args[9], c_),
                _int(builder, ldc),
            ],
        )
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def trsm_rltn(typingctx, address, m, n, triangle, ld, b, ldb):
    """``B = B L^-T``: L (n, n) lower, non-unit; B (m, n). Column-major 1-D views."""
    signature = types.none(types.int64, types.intp, types.intp, triangle, types.intp, b, types.intp)

    def codegen(context, builder, signature, args):
        address, m, n, t_, ld, b_, ldb = args
        one = context.get_constant(types.float64, 1.0)
        _blas(
            context,
            builder,
            address,
            [
                *(_char(builder, letter) for letter in "RLTN"),
                _int(builder, m),
                _int(builder, n),
                _scalar(context, builder, triangle.dtype, one),
                _data(context, builder, signature.args[3], t_),
                _int(builder, ld),
                _data(context, builder, signature.args[5], b_),
                _int(builder, ldb),
            ],
        )
        return context.get_dummy_value()

    return signature, codegen
