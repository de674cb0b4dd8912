"""Numbers of the CPU kernels: float32, and float16 and bfloat16 as their bits in uint16.

Everything here is branch-free integer and float32 arithmetic that LLVM turns into vector code; nothing depends on
the width of the vectors. ``exp_of`` and ``tanh_of`` are within 2 units in the last place of float32: argument reduction
by multiples of ln 2 in two pieces (W. J. Cody, W. Waite, Software Manual for the Elementary Functions, 1980) and
polynomials fitted to least relative error.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from warpfront.backend.jit import njit

__all__ = [
    "BFLOAT16",
    "FLOAT16",
    "FLOAT32",
    "address",
    "exp_of",
    "fma",
    "from_bfloat",
    "from_half",
    "sgemm_nn",
    "sgemm_nt",
    "tanh_of",
    "to_bfloat",
    "to_half",
]

# Kinds of storage.
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2

_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()
_I8P = _I8.as_pointer()
LOG2E = np.float32(1.4426950408889634)
# ln 2 in two pieces; multiples of the first up to 2^8 are exact.
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
ROUND = np.float32(12582912.0)
# Below, exp is smaller than any normal float32 and counts as 0.
LEAST = np.float32(-87.0)
E0, E1, E2 = np.float32(0.5), np.float32(0.16666576266288757), np.float32(0.04166637361049652)
E3, E4 = np.float32(0.00836323481053114), np.float32(0.001394121441990137)
T0, T1, T2 = (
    np.float32(-0.333333283662796),
    np.float32(0.13332794606685638),
    np.float32(-0.053854070603847504),
)
T3, T4 = np.float32(0.021010078489780426), np.float32(-0.006113188341259956)
ONE, TWO, ZERO, NEAR = np.float32(1.0), np.float32(2.0), np.float32(0.0), np.float32(0.625)


def _constant(value):
    return ir.Constant(_I32, value)


@intrinsic
def from_bfloat(typingctx, bits):
    """float32 of a bfloat16, exact."""

    def codegen(context, builder, signature, args):
        word = context.cast(builder, args[0], signature.args[0], types.uint32)
        return builder.bitcast(builder.shl(word, _constant(16)), _F32)

    return types.float32(bits), codegen


@intrinsic
def from_half(typingctx, bits):
    """float32 of a float16, exact: the exponent is moved by a multiplication, which normalises subnormals too."""

    def codegen(context, builder, signature, args):
        word = context.cast(builder, args[0], signature.args[0], types.uint32)
        size = builder.shl(builder.and_(word, _constant(0x7FFF)), _constant(13))
        moved = builder.fmul(builder.bitcast(size, _F32), ir.Constant(_F32, 2.0**112))
        special = builder.icmp_unsigned(">=", size, _constant(0x7C00 << 13))
        body = builder.select(special, builder.or_(size, _constant(0x7F800000)), builder.bitcast(moved, _I32))
        sign = builder.shl(builder.and_(word, _constant(0x8000)), _constant(16))
        return builder.bitcast(builder.or_(body, sign), _F32)

    return types.float32(bits), codegen


@intrinsic
def to_bfloat(typingctx, x):
    """Nearest bfloat16 (ties to even) as bits; NaN stays NaN."""

    def codegen(context, builder, signature, args):
        value = context.cast(builder, args[0], signature.args[0], types.float32)
        word = builder.bitcast(value, _I32)
        odd = builder.and_(builder.lshr(word, _constant(16)), _constant(1))
        rounded = builder.add(word, builder.add(odd, _constant(0x7FFF)))
        quiet = builder.or_(word, _constant(0x400000))
        chosen = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
        return builder.trunc(builder.lshr(chosen, _constant(16)), _I16)

    return types.uint16(x), codegen


@intrinsic
def to_half(typingctx, x):
    """Nearest float16 (ties to even) as bits; beyond its range infinity, NaN stays NaN."""

    def codegen(context, builder, signature, args):
        value = context.cast(builder, args[0], signature.args[0], types.float32)
        word = builder.bitcast(value, _I32)
        sign = builder.and_(builder.lshr(word, _constant(16)), _constant(0x8000))
        size = builder.and_(word, _constant(0x7FFFFFFF))
        odd = builder.and_(builder.lshr(size, _constant(13)), _constant(1))
        moved = builder.sub(size, _constant(112 << 23))
        normal = builder.lshr(builder.add(moved, builder.add(odd, _constant(0xFFF))), _constant(13))
        # Beside 0.5 the last place of a float32 is that of a subnormal float16.
        beside = builder.fadd(builder.bitcast(size, _F32), ir.Constant(_F32, 0.5))
        subnormal = builder.sub(builder.bitcast(beside, _I32), _constant(0x3F000000))
        body = builder.select(builder.icmp_unsigned("<", size, _constant(113 << 23)), subnormal, normal)
        # 65520 is the first number that rounds beyond 65504.
        body = builder.select(
            builder.icmp_unsigned(">=", size, _constant(0x477FF000)), _constant(0x7C00), body
        )
        body = builder.select(
            builder.icmp_unsigned(">", size, _constant(0x7F800000)), _constant(0x7E00), body
        )
        return builder.trunc(builder.or_(body, sign), _I16)

    return types.uint16(x), codegen


@intrinsic
def power_of_two(typingctx, shifted):
    """``2^n`` for ``shifted = ROUND + n``: the integer in its low bits, moved to the exponent."""

    def codegen(context, builder, signature, args):
        moved = builder.shl(builder.bitcast(args[0], _I32), _constant(23))
        return builder.bitcast(builder.add(moved, _constant(127 << 23)), _F32)

    return types.float32(types.float32), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """``a * b + c`` with one rounding."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@njit(cache=True, nogil=True, error_model="numpy")
def exp_of(x):
    """``exp(x)`` for ``x <= 88``; 0 below -87; NaN stays NaN."""
    shifted = fma(x, LOG2E, ROUND)
    n = shifted - ROUND
    f = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x))
    tail = fma(fma(fma(fma(E4, f, E3), f, E2), f, E1), f, E0)
    value = (fma(f * f, tail, f) + ONE) * power_of_two(shifted)
    return ZERO if x < LEAST else value


@njit(cache=True, nogil=True, error_model="numpy")
def tanh_of(x):
    """``tanh(x)``; NaN stays NaN."""
    size = abs(x)
    z = x * x
    tail = fma(fma(fma(fma(T4, z, T3), z, T2), z, T1), z, T0)
    near = fma(x * z, tail, x)
    shrunk = exp_of(-TWO * size)
    far = (ONE - shrunk) / (ONE + shrunk)
    far = -far if x < ZERO else far
    return near if size < NEAR else far


@intrinsic
def address(typingctx, array, offset):
    """Address of ``array[offset]`` of a 1-D contiguous array; the caller keeps the array alive."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(builder.gep(data, [args[1]]), ir.IntType(64))

    return types.int64(array, types.intp), codegen


def _gemm(second, beta):
    """Return the code of ``C = A op(B) + beta C`` by Fortran's sgemm; ``second`` is "N" or "T"."""

    def codegen(context, builder, signature, args):
        routine, m, n, k, a, lda, b, ldb, c, ldc = args

        def slot(kind, value):
            place = cgutils.alloca_once(builder, kind)
            builder.store(value, place)
            return builder.bitcast(place, _I8P)

        def size(value):
            return slot(_I32, builder.trunc(value, _I32))

        def pointer(value):
            return builder.inttoptr(value, _I8P)

        arguments = [
            slot(_I8, ir.Constant(_I8, ord("N"))),
            slot(_I8, ir.Constant(_I8, ord(second))),
            *(size(value) for value in (m, n, k)),
            slot(_F32, ir.Constant(_F32, 1.0)),
            pointer(a),
            size(lda),
            pointer(b),
            size(ldb),
            slot(_F32, ir.Constant(_F32, beta)),
            pointer(c),
            size(ldc),
        ]
        kind = ir.FunctionType(ir.VoidType(), [_I8P] * len(arguments))
        builder.call(builder.inttoptr(routine, kind.as_pointer()), arguments)
        return context.get_dummy_value()

    return codegen


@intrinsic
def sgemm_nn(typingctx, routine, m, n, k, a, lda, b, ldb, c, ldc):
    """``C = A B``, column-major, A (m, k), B (k, n), C (m, n); routine and matrices by address."""
    return types.none(*[types.int64] * 10), _gemm("N", 0.0)


@intrinsic
def sgemm_nt(typingctx, routine, m, n, k, a, lda, b, ldb, c, ldc):
    """``C = A B^T + C``, column-major, A (m, k), B (n, k), C (m, n); routine and matrices by address."""
    return types.none(*[types.int64] * 10), _gemm("T", 1.0)
