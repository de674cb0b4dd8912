"""A medium matrix in one compiled call: copy by columns, check, LAPACK's factorisation, and what is asked of it.

Below a few hundred rows the calls around the factorisation, each from Python, take as long as it does. The numbers are
those of the calls one by one (`warpfront.dense._lu_blocked`): the same routines on the same blocks. The caller holds BLAS
at one thread. Routines come as addresses, as in `warpfront.backend._intrinsics`; matrices are 1-D and column-major.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from warpfront.backend._intrinsics import _blas, _char, _data, _int, _scalar
from warpfront.backend.jit import njit
from warpfront.dense._load_kernels import load_columns, look, row_order
from warpfront.dense._pivot_kernels import scaled_product

__all__ = ["determinant_whole", "invert_whole", "solve_whole"]


@intrinsic
def _getrf(typingctx, address, n, a, pivots):
    """Factor ``a`` (n, n) in place, ``pivots`` int32[n]."""

    def codegen(context, builder, signature, args):
        size, info = _int(builder, args[1]), cgutils.alloca_once(builder, ir.IntType(32))
        matrix = _data(context, builder, signature.args[2], args[2])
        rows = _data(context, builder, signature.args[3], args[3])
        _blas(context, builder, args[0], [size, size, matrix, size, rows, info])
        return context.get_dummy_value()

    return types.none(types.int64, types.intp, a, pivots), codegen


@intrinsic
def _getrs(typingctx, address, n, count, a, pivots, b):
    """Solve in place for ``b`` (n, count) with what `_getrf` left."""

    def codegen(context, builder, signature, args):
        size, columns = _int(builder, args[1]), _int(builder, args[2])
        info = cgutils.alloca_once(builder, ir.IntType(32))
        matrix, rows, right = (_data(context, builder, signature.args[k], args[k]) for k in (3, 4, 5))
        given = [_char(builder, "N"), size, columns, matrix, size, rows, right, size, info]
        _blas(context, builder, args[0], given)
        return context.get_dummy_value()

    return types.none(types.int64, types.intp, types.intp, a, pivots, b), codegen


@intrinsic
def _trsm(typingctx, address, upper, n, count, a, b):
    """``B = T^-1 B`` with the upper triangle of ``a`` (n, n) where ``upper``, else with its unit lower one; B (n, count)."""

    def codegen(context, builder, signature, args):
        size, columns = _int(builder, args[2]), _int(builder, args[3])
        one = _scalar(context, builder, a.dtype, context.get_constant(types.float64, 1.0))
        matrix, right = (_data(context, builder, signature.args[k], args[k]) for k in (4, 5))
        letters = [cgutils.alloca_once(builder, ir.IntType(8)) for _ in range(2)]
        for slot, pair in zip(letters, ("UL", "NU"), strict=True):
            values = [ir.Constant(ir.IntType(8), ord(letter)) for letter in pair]
            builder.store(builder.select(args[1], *values), slot)
        given = [
            _char(builder, "L"),
            letters[0],
            _char(builder, "N"),
            letters[1],
            size,
            columns,
            one,
            matrix,
            size,
        ]
        _blas(context, builder, args[0], [*given, right, size])
        return context.get_dummy_value()

    return types.none(types.int64, types.boolean, types.intp, types.intp, a, b), codegen


@njit(cache=True, nogil=True)
def _finite(x, largest):
    bad = 0
    for i in range(x.size):
        bad += 0 if (abs(x[i].real) <= largest) & (abs(x[i].imag) <= largest) else 1
    return bad == 0


@njit(cache=True, nogil=True)
def _factor(a, n, tile, largest, getrf, suspicion):
    """Factors and pivots of row-major ``a``, and whether nothing needs a closer look."""
    lu, pivots = np.empty(n * n, a.dtype), np.empty(n, np.int32)
    sums = np.zeros(n, lu.real.dtype)
    order = np.uint64(n)
    load_columns(
        a, lu, sums, (order, tile, np.uint64(0)), np.uint64(0), (order + tile - np.uint64(1)) // tile
    )
    if not _finite(sums, largest):
        return lu, pivots, False
    _getrf(getrf, n, lu, pivots)
    zero, finite, least, most = look(lu, n)
    return lu, pivots, zero < 0 and finite and least >= suspicion * most


@njit(cache=True, nogil=True)
def invert_whole(a, n, tile, largest, suspicion, getrf, trsm, out):
    """Write the inverse of row-major ``a`` into ``out``, zeros, column-major; False where a closer look is needed."""
    lu, pivots, plain = _factor(a, n, tile, largest, getrf, suspicion)
    if not plain:
        return False
    order = row_order(pivots)
    for i in range(n):
        out[i + order[i] * n] = 1
    _trsm(trsm, False, n, n, lu, out)
    _trsm(trsm, True, n, n, lu, out)
    return _finite(out, largest)


@njit(cache=True, nogil=True)
def solve_whole(a, n, tile, largest, suspicion, getrf, getrs, b, count):
    """Solve for column-major right-hand sides in place; False where a closer look is needed."""
    if not _finite(b, largest):
        return False
    lu, pivots, plain = _factor(a, n, tile, largest, getrf, suspicion)
    if not plain:
        return False
    _getrs(getrs, n, count, lu, pivots, b)
    return _finite(b, largest)


@njit(cache=True, nogil=True)
def determinant_whole(a, n, tile, largest, getrf):
    """`scaled_product` of a real matrix's pivots, with True; False where a closer look is needed."""
    lu, pivots, plain = _factor(a, n, tile, largest, getrf, 0.0)
    if not plain:
        return False, 0.0, 0.0, 0
    diagonal = np.empty(n, lu.dtype)
    for k in range(n):
        diagonal[k] = lu[k * (n + 1)]
    sign, product, power = scaled_product(diagonal, pivots)
    return True, sign, product, power
