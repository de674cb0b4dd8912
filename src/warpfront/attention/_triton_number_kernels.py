"""Numbers of the Triton kernels: division, powers of 2, tanh, the running softmax, sums of weighted values.

In float32 problems (``S.precise``) each is as good as the type: the device's own division and exponential err by two units
in the last place, which the room's rule of errors does not leave. In 16-bit problems they are the device's own.
Functions are inlined; they have no memory and no barriers of their own.

Literature: Milakov and Gimelshein, Online normalizer calculation for softmax (2018).
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def size_of(coded):
    """A size as `coded_sizes` hides it from Triton, which would compile anew where it is 1 or a multiple of 16."""
    return (coded - 3) >> 1


@triton.jit
def quotient(x, y, S: tl.constexpr):
    """Quotient of x and y: rounded correctly in float32 problems; else by the device, which errs by two last places."""
    if S.precise:
        result = tl.div_rn(x, y)
    else:
        result = x / y
    return result


@triton.jit
def power(x, S: tl.constexpr):
    """2 to the x. In float32 problems by a polynomial of degree 7 on [-1/2, 1/2], as good as the type; else the unit's.

    The polynomial is 1 at 0, and so is the weight of a row's largest score: a row that sees one key is its value.
    """
    if S.precise:
        tiny = x < -126.0  # 0 in the end; not -inf, which would leave no fraction
        x = tl.where(tiny, -126.0, x)
        whole = tl.floor(x + 0.5)
        f = x - whole
        p = 1.5252734e-05 * f + 1.5403530e-04
        p = p * f + 1.3333558e-03
        p = p * f + 9.6181291e-03
        p = p * f + 5.5504109e-02
        p = p * f + 2.4022651e-01
        p = p * f + 6.9314718e-01
        scale = ((whole.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)
        result = tl.where(tiny, 0.0, (p * f + 1.0) * scale)
    else:
        result = tl.exp2(x)
    return result


@triton.jit
def tanh(x, S: tl.constexpr):
    """Hyperbolic tangent of any float32: by the exponential of -2 |x|, by its series where that would cancel."""
    magnitude = tl.abs(x)
    decay = power(magnitude * (-2.0 * LOG2E), S)
    square = x * x
    if S.precise:
        far = 1.0 - 2.0 * tl.div_rn(decay, 1.0 + decay)
        near = -1382.0 / 155925.0 + square * (21844.0 / 6081075.0)
        near = -17.0 / 315.0 + square * (62.0 / 2835.0 + square * near)
        near = 1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * near))
        result = tl.where(magnitude < 0.35, magnitude * near, far)
    else:
        far = (1.0 - decay) / (1.0 + decay)
        near = 1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0)))
        result = tl.where(magnitude < 0.15, magnitude * near, far)
    return tl.where(x < 0.0, -result, result)


@triton.jit
def add_values(acc, weights, values, S: tl.constexpr):
    """Add weights times values. In float32 problems a tile's sum is made first: one chain over all keys would show.

    Triton folds a sum into the product's own chain unless ``max_num_imprecise_acc``, of no other effect in float32, is set.
    """
    if S.precise:
        acc += tl.dot(weights, values, input_precision=S.precision, max_num_imprecise_acc=1)
    else:
        acc = tl.dot(weights.to(values.dtype), values, acc, input_precision=S.precision)
    return acc


@triton.jit
def high_part(x):
    """Each element to 8 bits below its row's largest power of two; what is not finite, or nearly, stays as it is.

    What would be 0 is 2^-126 of its sign: no sum on the grid notices, and infinity times it is infinity, as it must be.
    """
    largest = tl.max(tl.abs(x), 1).to(tl.int32, bitcast=True)
    above = ((largest & 0x7F800000) + 0x00800000).to(tl.float32, bitcast=True)
    grid = above * 49152.0  # 1.5 2^23 2^-8: an addition rounds to the grid
    grid = tl.where(grid < float("inf"), grid, 0.0)[:, None]
    high = (x + grid) - grid
    least = tl.where(x > 0.0, 1.1754944e-38, tl.where(x < 0.0, -1.1754944e-38, 0.0))
    return tl.where(high == 0.0, least, high)


@triton.jit
def chains(q, k, S: tl.constexpr):
    """Products of rows of q and k in chains of 16 sums, which keep few operands in registers: then these, in their order."""
    parts: tl.constexpr = S.block_d // 16
    q_parts = tl.permute(tl.reshape(q, [S.block_m, parts, 16]), (1, 0, 2))
    k_parts = tl.permute(tl.reshape(k, [S.block_n, parts, 16]), (1, 2, 0))
    return tl.sum(tl.dot(q_parts, k_parts, input_precision=S.precision), 0)


@triton.jit
def exact_products(q, k, S: tl.constexpr):
    """Products of rows of q and k, at most 256 long, as if rounded once.

    Those of the high parts are whole numbers of a grid below 2^24: sums in any order are exact. The rest is smaller by 2^8,
    and so is its error. Ozaki et al., Error-free transformations of matrix multiplication (2012).
    """
    q_high = high_part(q)
    k_high = high_part(k)
    rest = chains(q - q_high, k, S) + chains(q_high, k - k_high, S)
    rest = tl.where(tl.abs(rest) < float("inf"), rest, 0.0)  # else the product is not finite either
    return chains(q_high, k_high, S) + rest


@triton.jit
def of_kind(values, part):
    """Finite values as they are (part 0), or 1 for each positive infinity (1), negative one (2), NaN (3); else 0."""
    wide = values.to(tl.float32)
    finite = tl.where(tl.abs(wide) < float("inf"), wide, 0.0)
    endless = tl.where(part == 1, wide == float("inf"), wide == float("-inf"))
    odd = tl.where(part == 3, wide != wide, endless)
    return tl.where(part == 0, finite, tl.where(odd, 1.0, 0.0)).to(values.dtype)


@triton.jit
def score_of_kind(product, part):
    """Scores that give a visible key the weight it has (part 0), or 1 (the others), and a hidden one 0."""
    counted = tl.where(product == float("-inf"), float("-inf"), 0.0)
    return tl.where(part == 0, product, counted)


@triton.jit
def not_finite(before, part):
    """What a result becomes by a value of a kind, parts as `of_kind`: infinities of both signs add up to NaN."""
    endless = tl.where(part == 1, float("inf"), float("-inf"))
    return tl.where((part == 3) | ((part == 2) & (before == float("inf"))), float("nan"), endless)


@triton.jit
def capped(product, scores, S: tl.constexpr):
    """Scores in base 2 of products, before a bias: ``scores`` as `score_constants` has them."""
    inner = product * scores[0] + product * scores[1]
    if S.soft_cap:
        bent = tanh(inner, S)
        inner = bent * scores[2] + bent * scores[3]
    return inner


@triton.jit
def fold(product, top, total, scores, FINITE: tl.constexpr, S: tl.constexpr):
    """One step of the running softmax: weights of a tile, the factor of what came before, new maximum and sum."""
    if S.prescale:
        higher = tl.maximum(top, tl.max(product, 1))
        against = higher
        if not FINITE:
            against = tl.where(higher == float("-inf"), 0.0, higher)
        weights = power(product - against[:, None], S)
    else:
        factor = scores[0]
        higher = tl.maximum(top, tl.max(product, 1) * factor)
        against = higher
        if not FINITE:
            against = tl.where(higher == float("-inf"), 0.0, higher)
        weights = power(product * factor - against[:, None], S)
    shrink = power(top - against, S)
    return weights, shrink, higher, total * shrink + tl.sum(weights, 1)
