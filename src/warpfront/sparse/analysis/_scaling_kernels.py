"""Numba kernels of `scaling`: equilibration on binary exponents.

Every value is replaced by its exponent once (``|a| = m * 2**k``, ``m`` in [0.5, 1)); all further work is on
integers. So no product can overflow, the scale is a power of two by construction, and "the row maximum lies
in [0.5, 2)" reads "the largest scaled exponent of the row is 0 or 1".

Sweeps follow D. Ruiz, "A scaling algorithm to equilibrate both rows and columns norms in matrices"
(RAL-TR-2001-034). The last pass, which makes the result exact after any number of sweeps, follows J. R.
Bunch, "Equilibration of symmetric matrices in the max-norm" (J. ACM 18, 1971): rows one after another are
raised until one entry reaches the bound.

`balanced_powers` is for scales that come as logarithms, from a matching.
"""

from __future__ import annotations

import math

import numpy as np

from warpfront.backend.jit import njit

# Below every exponent a scaled entry can have (-1074 - 2 * 1000), above every sum that involves ABSENT.
EMPTY = -16000
ABSENT = -32000
LIMIT = 1000
LOG_2 = math.log(2.0)


@njit(cache=True, nogil=True)
def binary_exponents(bits, values, out):
    """Write each value's exponent, ABSENT for zero. Return the first entry not finite or negative, else -1.

    ``bits`` int64 is ``values`` float64 reinterpreted; ``out`` int16. The exponent field is read directly:
    `frexp` is a library call and would take longer than all sweeps together.
    """
    for p in range(bits.size):
        b = bits[p]
        k = b >> 52
        if k > 0 and k < 2047:
            out[p] = k - 1022
        elif values[p] == 0.0:
            out[p] = ABSENT
        elif k == 0:
            out[p] = math.frexp(values[p])[1]
        else:
            return p
    return -1


@njit(cache=True, nogil=True)
def power_bits(exponents, bits):
    """Write the float64 bit patterns of ``2**exponents`` with the exponent confined to [-LIMIT, LIMIT]."""
    for i in range(exponents.size):
        bits[i] = (min(max(exponents[i], -LIMIT), LIMIT) + 1023) << 52


@njit(cache=True, nogil=True)
def symmetric_exponents(n, ptr, ind, col, k, iterations, e, row_top):
    """Equilibrate a lower triangle; ``e`` int32[n] (zero on entry) receives the exponents of the scale.

    Invariant after the first sweep: every scaled exponent is at most 1, because an entry is at most both its
    row maxima and each side takes away at least half of (maximum - 1). ``row_top`` int32[n] is work space. ``col`` is
    each entry's column, so that the sweeps need no loop over columns, whose ends no processor predicts.
    """
    for _ in range(iterations):
        for i in range(n):
            row_top[i] = ABSENT
        for p in range(k.size):
            i, j = ind[p], col[p]
            t = k[p] + e[i] + e[j]
            row_top[i] = max(row_top[i], t)
            row_top[j] = max(row_top[j], t)
        done = True
        for j in range(n):
            step = row_top[j] >> 1
            if step != 0 and row_top[j] > EMPTY:
                e[j] -= step
                done = False
        if done:
            return
    for i in range(n):
        row_top[i] = ABSENT
    for p in range(k.size):
        i, j = ind[p], col[p]
        if i != j:
            row_top[i] = max(row_top[i], k[p] + e[i] + e[j])
    # Raise what is still too small. When column j is reached, every i > j is final and every c < j untouched,
    # so row_top[j] is still the maximum left of the diagonal; below it the column is read afresh.
    for j in range(n - 1, -1, -1):
        top = row_top[j]
        diagonal = ABSENT
        for p in range(ptr[j], ptr[j + 1]):
            t = k[p] + e[ind[p]] + e[j]
            if ind[p] == j:
                diagonal = t
            else:
                top = max(top, t)
        step = min(-top, (1 - diagonal) >> 1)
        if step > 0 and max(top, diagonal) > EMPTY:
            e[j] += step


@njit(cache=True, nogil=True)
def equilibrate(n, ptr, ind, col, values, iterations, scale):
    """`symmetric_exponents` of ``values``, and the powers of two in ``scale``; returns what `binary_exponents` does."""
    k = np.empty(values.size, np.int16)
    bad = binary_exponents(values.view(np.int64), values, k)
    if bad >= 0:
        return bad
    exponents, row_top = np.zeros(n, np.int32), np.empty(n, np.int32)
    symmetric_exponents(n, ptr, ind, col, k, iterations, exponents, row_top)
    power_bits(exponents, scale.view(np.int64))
    return bad


@njit(cache=True, nogil=True)
def general_exponents(n_cols, ptr, ind, k, iterations, r, c, row_top):
    """Equilibrate rows and columns; ``r`` int32[m], ``c`` int32[n_cols] (zero on entry) get the exponents.

    Same invariant as `symmetric_exponents`. The last sweep raises whole columns, then whole rows, to the
    bound.
    """
    for sweep in range(iterations + 1):
        last = sweep == iterations
        done = True
        for i in range(row_top.size):
            row_top[i] = ABSENT
        for j in range(n_cols):
            top = ABSENT
            for p in range(ptr[j], ptr[j + 1]):
                t = k[p] + r[ind[p]] + c[j]
                top = max(top, t)
                row_top[ind[p]] = max(row_top[ind[p]], t)
            step = -top if last else -(top >> 1)
            if top <= EMPTY or (last and top >= 0) or step == 0:
                continue
            done = False
            c[j] += step
            if last:
                for p in range(ptr[j], ptr[j + 1]):
                    row_top[ind[p]] = max(row_top[ind[p]], k[p] + r[ind[p]] + c[j])
        for i in range(row_top.size):
            top = row_top[i]
            step = -top if last else -(top >> 1)
            if top > EMPTY and step != 0 and not (last and top >= 0):
                r[i] += step
                done = False
        if done:
            return


@njit(cache=True, nogil=True)
def balanced_powers(log_row, log_col, limit):
    """Powers of two nearest to both scales, after a common factor has moved until their geometric means agree.

    Returns ``(row_scale, col_scale, inside)``; zero rows and columns (infinite logarithms) get 1. ``inside`` tells
    whether no logarithm exceeds ``limit``.
    """
    row_sum, row_count, col_sum, col_count = 0.0, 0, 0.0, 0
    for i in range(log_row.size):
        if math.isfinite(log_row[i]):
            row_sum += log_row[i]
            row_count += 1
    for j in range(log_col.size):
        if math.isfinite(log_col[j]):
            col_sum += log_col[j]
            col_count += 1
    shift = 0.5 * (col_sum / col_count - row_sum / row_count) if row_count > 0 and col_count > 0 else 0.0
    row_scale, col_scale = np.empty(log_row.size), np.empty(log_col.size)
    first = _powers(log_row, shift, limit, row_scale)
    second = _powers(log_col, -shift, limit, col_scale)
    return row_scale, col_scale, first and second


@njit(cache=True, nogil=True)
def _powers(logarithm, shift, limit, scale):
    inside = True
    for k in range(logarithm.size):
        value = logarithm[k] + shift
        if not math.isfinite(value):
            scale[k] = 1.0
        elif abs(value) > limit:
            inside = False
        else:
            scale[k] = math.ldexp(1.0, np.int32(np.rint(value / LOG_2)))
    return inside
