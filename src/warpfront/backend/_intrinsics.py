"""Numba intrinsics shared by the CPU kernels: unowned array views, scalars of any dtype, atomics, BLAS by address.

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
    "conjugate_if",
    "gemm_nt",
    "load_acquire",
    "magnitude",
    "real_part",
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
def conjugate_if(typingctx, flag, x):
    """Conjugate of ``x`` where ``flag`` is not zero; ``x`` itself, at no cost, for a real type."""

    def codegen(context, builder, signature, args):
        kind = signature.args[1]
        if not isinstance(kind, types.Complex):
            return args[1]
        number = context.make_complex(builder, kind, value=args[1])
        asked = context.cast(builder, args[0], signature.args[0], types.boolean)
        number.imag = builder.select(asked, builder.fneg(number.imag), number.imag)
        return number._getvalue()

    return x(flag, x), codegen


@intrinsic
def magnitude(typingctx, x):
    """``|x|``; of a complex number ``|re| + |im|``, within a factor sqrt(2) of the modulus and never overflowing first."""
    result = x.underlying_float if isinstance(x, types.Complex) else x

    def codegen(context, builder, signature, args):
        kind = context.get_data_type(result)
        size = builder.module.declare_intrinsic("llvm.fabs", [kind])
        if not isinstance(signature.args[0], types.Complex):
            return builder.call(size, [args[0]])
        number = context.make_complex(builder, signature.args[0], value=args[0])
        return builder.fadd(builder.call(size, [number.real]), builder.call(size, [number.imag]))

    return result(x), codegen


@intrinsic
def real_part(typingctx, x):
    """Real part in the precision of ``x``."""
    result = x.underlying_float if isinstance(x, types.Complex) else x

    def codegen(context, builder, signature, args):
        if not isinstance(signature.args[0], types.Complex):
            return args[0]
        return context.make_complex(builder, signature.args[0], value=args[0]).real

    return result(x), codegen


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


def _transposed(builder, dtype, conjugate):
    """Slot with "T", or "C" where ``conjugate`` (a boolean value) holds and the type is complex."""
    if not isinstance(dtype, types.Complex):
        return _char(builder, "T")
    slot = cgutils.alloca_once(builder, ir.IntType(8))
    letters = [ir.Constant(ir.IntType(8), ord(letter)) for letter in "CT"]
    builder.store(builder.select(conjugate, *letters), slot)
    return slot


def _scalar(context, builder, dtype, value):
    slot = cgutils.alloca_once(builder, context.get_data_type(dtype))
    builder.store(context.cast(builder, value, types.float64, dtype), slot)
    return slot


@intrinsic
def gemm_nt(typingctx, address, m, n, k, a, lda, b, ldb, conjugate, beta, c, ldc):
    """``C = beta C - A B^T`` (``A B^H`` where ``conjugate``): A (m, k), B (n, k), C (m, n), column-major 1-D views."""
    signature = types.none(
        types.int64,
        types.intp,
        types.intp,
        types.intp,
        a,
        types.intp,
        b,
        types.intp,
        types.boolean,
        types.float64,
        c,
        types.intp,
    )

    def codegen(context, builder, signature, args):
        address, m, n, k, a_, lda, b_, ldb, conjugate, beta, c_, ldc = args
        minus_one = context.get_constant(types.float64, -1.0)
        _blas(
            context,
            builder,
            address,
            [
                _char(builder, "N"),
                _transposed(builder, a.dtype, conjugate),
                _int(builder, m),
                _int(builder, n),
                _int(builder, k),
                _scalar(context, builder, a.dtype, minus_one),
                _data(context, builder, signature.args[4], a_),
                _int(builder, lda),
                _data(context, builder, signature.args[6], b_),
                _int(builder, ldb),
                _scalar(context, builder, a.dtype, beta),
                _data(context, builder, signature.args[10], c_),
                _int(builder, ldc),
            ],
        )
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def trsm_rltn(typingctx, address, m, n, triangle, ld, b, ldb):
    """``B = B L^-H`` (``L^-T`` for real types): L (n, n) lower, non-unit; B (m, n). Column-major 1-D views."""
    signature = types.none(types.int64, types.intp, types.intp, triangle, types.intp, b, types.intp)

    def codegen(context, builder, signature, args):
        address, m, n, t_, ld, b_, ldb = args
        one = context.get_constant(types.float64, 1.0)
        _blas(
            context,
            builder,
            address,
            [
                *(
                    _char(builder, letter)
                    for letter in ("RLCN" if isinstance(triangle.dtype, types.Complex) else "RLTN")
                ),
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
