"""Random words and what is made of them, on the CPU: Philox, Sobol points, normals, powers of two.

Everything works on blocks of ``LANES`` counters. Word ``j`` of the counter of lane ``t`` belongs to sample
``4 * (block + t) + j``; arrays are ``(4, LANES)``, rows by word. Each loop over lanes is free of branches and calls,
so that LLVM turns it into vector code. Integers are uint64 whose high halves are zero: their product is then
one vector instruction.

`price_paths.cu` performs the same float64 operations in the same order, with the same fused multiply-adds and
the same coefficients: the results have the same bits.

Coefficients are minimax fits (Remez exchange in 50 digits); the relative error of the fit stands beside each.

Literature: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), Philox4x32-10;
Box and Muller (1958); Wichura, "Algorithm AS 241" (Applied Statistics 37, 1988), inverse normal.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from warpfront.backend.jit import njit

__all__ = ["LANES", "exp2", "fma", "inverse_normals", "normals", "philox", "sobol_points"]

LANES = 128
U = np.uint64
# Unsigned bounds: with signed ones Numba tests every index.
ZERO, ONE, TWO, FOUR, END = U(0), U(1), U(2), U(4), U(LANES)

M0, M1 = U(0xD2511F53), U(0xCD9E8D57)
W0, W1 = U(0x9E3779B9), U(0xBB67AE85)
LOW, HALF_WORD = U(0xFFFFFFFF), U(32)

# A double in [2^52, 2^53) has an integer in its mantissa: adding this exponent converts.
MAGIC, TWO52 = U(0x4330000000000000), 4503599627370496.0
# Adding and subtracting rounds to the nearest integer, which is then in the low bits.
ROUND = 6755399441055744.0

# -2 ln m = s P(s^2), s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt 2): 1.2e-18.
LOG = (
    -4.0,
    -1.333333333333353,
    -0.7999999999859692,
    -0.5714285752288646,
    -0.44444393955842004,
    -0.3636727131230511,
    -0.3062485741276159,
    -0.29621374444152576,
)
# sin(pi t / 2) = t P(t^2), |t| <= 1/2: 3.4e-18.
SIN = (
    1.5707963267948966,
    -0.6459640975062443,
    0.07969262624603957,
    -0.004681754132282454,
    0.00016044115029189453,
    -3.5986417551299964e-06,
    5.633721075556274e-08,
)
# cos(pi t / 2) = P(t^2), |t| <= 1/2: 3.6e-20.
COS = (
    1.0,
    -1.2337005501361697,
    0.2536695079010466,
    -0.020863480763308004,
    0.0009192602741467787,
    -2.52020365582307e-05,
    4.7106035813827195e-07,
    -6.320557297734941e-09,
)
# 2^f, |f| <= 1/2: 3.1e-18.
EXP2 = (
    1.0,
    0.6931471805599453,
    0.24022650695910155,
    0.055504108664819925,
    0.009618129107588334,
    0.001333355814678982,
    0.0001540353046251647,
    1.5252733490053182e-05,
    1.3215433088590364e-06,
    1.017819799974967e-07,
    7.074105809748144e-09,
    4.435285856334136e-10,
)
MINUS_2_LN2 = -1.3862943611198906
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
TO_MIDDLE, MIDDLE = U(0x3FF0000000000000 - SQRT_HALF_BITS), U(SQRT_HALF_BITS)
MANTISSA, EXPONENT_AT = U(0x000FFFFFFFFFFFFF), U(52)
EXPONENT_BIAS = TWO52 + 1023.0 + 33.0
QUARTER_LOW, QUARTER_HALF, QUARTER_AT = U((1 << 30) - 1), U(1 << 29), U(30)
TURN_ZERO, TURN = TWO52 + 536870912.0, 9.313225746154785e-10
SIGN_AT = U(62)

# AS 241, central region |q| <= 0.425 in r = 0.180625 - q^2, tail in sqrt(-ln p) - 1.6 (which never exceeds 5 here).
CENTRE_P = (
    3.3871328727963666080,
    133.14166789178437745,
    1971.5909503065514427,
    13731.693765509461125,
    45921.953931549871457,
    67265.770927008700853,
    33430.575583588128105,
    2509.0809287301226727,
)
CENTRE_Q = (
    1.0,
    42.313330701600911252,
    687.18700749205790830,
    5394.1960214247511077,
    21213.794301586595867,
    39307.895800092710610,
    28729.085735721942674,
    5226.4952788528545610,
)
TAIL_P = (
    1.42343711074968357734,
    4.63033784615654529590,
    5.76949722146069140550,
    3.64784832476320460504,
    1.27045825245236838258,
    0.241780725177450611770,
    0.0227238449892691845833,
    7.74545014278341407640e-4,
)
TAIL_Q = (
    1.0,
    2.05319162663775882187,
    1.67638483018380384940,
    0.689767334985100004550,
    0.148103976427480074590,
    0.0151986665636164571966,
    5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)


@intrinsic
def fma(typingctx, a, b, c):
    """``a * b + c`` with one rounding."""

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@intrinsic
def bits_of(typingctx, x):
    """The bits of a double as an integer."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), codegen


@intrinsic
def double_of(typingctx, x):
    """The double with these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@intrinsic
def sqrt(typingctx, x):
    """Square root, correctly rounded, without a domain check."""

    def codegen(context, builder, signature, args):
        root = builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()])
        return builder.call(root, args)

    return types.float64(types.float64), codegen


@njit(cache=True, nogil=True, error_model="numpy")
def horner(c, x):
    """Value of the polynomial with eight coefficients ``c`` at ``x``."""
    p = fma(c[7], x, c[6])
    p = fma(p, x, c[5])
    p = fma(p, x, c[4])
    p = fma(p, x, c[3])
    p = fma(p, x, c[2])
    p = fma(p, x, c[1])
    return fma(p, x, c[0])


@njit(cache=True, nogil=True, error_model="numpy")
def philox(words, block, step, stream, key0, key1):
    """Fill ``words`` (4, LANES) uint64 with Philox4x32-10 of counters (block + t, step, stream)."""
    for t in range(ZERO, END):
        at = block + t
        c0, c1, c2, c3 = at & LOW, at >> HALF_WORD, step & LOW, stream & LOW
        k0, k1 = key0 & LOW, key1 & LOW
        for _ in range(10):
            p0, p1 = M0 * c0, M1 * c2
            c0, c1, c2, c3 = (
                (p1 >> HALF_WORD) ^ c1 ^ k0,
                p1 & LOW,
                (p0 >> HALF_WORD) ^ c3 ^ k1,
                p0 & LOW,
            )
            k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
        words[0, t], words[1, t], words[2, t], words[3, t] = c0, c1, c2, c3


@njit(cache=True, nogil=True, error_model="numpy")
def sobol_points(words, block, step, directions, shifts):
    """Fill ``words`` with coordinate ``step`` of the Sobol points ``4 (block + t) + j``, scrambled.

    ``directions`` (dims, 32) and ``shifts`` (dims,) uint64: scrambled direction numbers and digital shift.
    """
    # The four points of a lane share all Gray-code bits but the lowest two.
    for t in range(ZERO, END):
        words[0, t] = shifts[step]
    for bit in range(TWO, HALF_WORD):
        direction = directions[step, bit]
        for t in range(ZERO, END):
            gray = (block + t) ^ ((block + t) >> ONE)
            words[0, t] ^= direction & (ZERO - ((gray >> (bit - TWO)) & ONE))
    low, high = directions[step, 0], directions[step, 1]
    for t in range(ZERO, END):
        # Bit 1 of the Gray code is bit 1 of the index exclusive-or the lowest bit of the block.
        odd = ZERO - ((block + t) & ONE)
        first, second = words[0, t] ^ (high & odd), words[0, t] ^ (high & ~odd)
        words[0, t] = first
        words[1, t] = first ^ low
        words[2, t] = second ^ low
        words[3, t] = second


@njit(cache=True, nogil=True, error_model="numpy")
def minus_2_log(word):
    """-2 ln u of u = (word + 1/2) / 2^32; relative error below 4e-16."""
    v = fma(double_of(word | MAGIC) - TWO52, 2.0, 1.0)
    i = bits_of(v) + TO_MIDDLE
    e = double_of((i >> EXPONENT_AT) | MAGIC) - EXPONENT_BIAS
    m = double_of((i & MANTISSA) + MIDDLE)
    s = (m - 1.0) / (m + 1.0)
    return fma(e, MINUS_2_LN2, s * horner(LOG, s * s))


@njit(cache=True, nogil=True, error_model="numpy")
def normals(words, z):
    """Fill ``z`` (4, LANES) with standard normals: rows 0, 1 of words 0, 1 and rows 2, 3 of words 2, 3 (Box-Muller)."""
    for pair in range(ZERO, FOUR, TWO):
        for t in range(ZERO, END):
            radius = sqrt(minus_2_log(words[pair, t]))
            turn = words[pair + ONE, t] + QUARTER_HALF
            quarter = turn >> QUARTER_AT
            x = (double_of((turn & QUARTER_LOW) | MAGIC) - TURN_ZERO) * TURN
            x2 = x * x
            sine = fma(SIN[6], x2, SIN[5])
            sine = fma(sine, x2, SIN[4])
            sine = fma(sine, x2, SIN[3])
            sine = fma(sine, x2, SIN[2])
            sine = fma(sine, x2, SIN[1])
            sine = fma(sine, x2, SIN[0]) * x
            cosine = horner(COS, x2)
            odd = (quarter & ONE) != ZERO
            a, b = (sine, cosine) if odd else (cosine, sine)
            # The cosine is negative in quarters 1 and 2, the sine in 2 and 3.
            z[pair, t] = double_of(bits_of(a) ^ (((quarter + ONE) & TWO) << SIGN_AT)) * radius
            z[pair + ONE, t] = double_of(bits_of(b) ^ ((quarter & TWO) << SIGN_AT)) * radius


@njit(cache=True, nogil=True, error_model="numpy")
def inverse_normals(words, z):
    """Fill ``z`` with the normal quantiles of (words + 1/2) / 2^32; relative error below 1e-15 (AS 241)."""
    for j in range(ZERO, FOUR):
        for t in range(ZERO, END):
            word = words[j, t]
            q = ((double_of(word | MAGIC) - TWO52) - 2147483647.5) * 2.3283064365386963e-10
            r = fma(-q, q, 0.180625)
            centre = q * horner(CENTRE_P, r) / horner(CENTRE_Q, r)
            left = q < 0.0
            tail = sqrt(0.5 * minus_2_log(word if left else LOW - word)) - 1.6
            far = horner(TAIL_P, tail) / horner(TAIL_Q, tail)
            far = -far if left else far
            z[j, t] = centre if abs(q) <= 0.425 else far


@njit(cache=True, nogil=True, error_model="numpy")
def exp2(y):
    """2^y for ``|y| < 1020`` (options are checked for that), relative error below 3e-16."""
    shifted = y + ROUND
    f = y - (shifted - ROUND)
    p = fma(EXP2[11], f, EXP2[10])
    p = fma(p, f, EXP2[9])
    p = fma(p, f, EXP2[8])
    p = fma(p, f, EXP2[7])
    p = fma(p, f, EXP2[6])
    p = fma(p, f, EXP2[5])
    p = fma(p, f, EXP2[4])
    p = fma(p, f, EXP2[3])
    p = fma(p, f, EXP2[2])
    p = fma(p, f, EXP2[1])
    p = fma(p, f, EXP2[0])
    return double_of(bits_of(p) + (bits_of(shifted) << EXPONENT_AT))
