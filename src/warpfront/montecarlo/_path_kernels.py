"""Paths, payoffs and their sums, on the CPU.

A chunk is 16,384 samples: 32 sweeps of 128 lanes with four samples each. Sample ``i`` of a series lies in
chunk ``i // 16384``; within it, lane ``t`` of sweep ``s`` owns the samples ``4 (128 s + t) + (0, 1, 2, 3)``. Each lane adds
up its samples in order, then the lanes are added in a fixed tree (that of a block of four warps, which is what
``price_paths.cu`` gives a chunk to). So the sums of a chunk depend on nothing but the chunk.

State arrays are ``(8, LANES)``: rows 0 to 3 the paths of the four words, rows 4 to 7 their antithetic twins. Prices
are kept as ``x = log2(S / S_0)``.

A sample's four values (payoff, control, delta, vega; discounted) enter the sums as ``CHANNELS`` says; payoff
and control minus a shift near their mean, so that the sum of squares does not cancel.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit
from warpfront.montecarlo._normal_kernels import (
    END,
    FOUR,
    LANES,
    ONE,
    ZERO,
    U,
    exp2,
    fma,
    inverse_normals,
    normals,
    philox,
    sobol_points,
)

__all__ = ["chunk_sums"]

SWEEPS = 32
WARPS, WARP = LANES // 32, 32
CHANNELS = 10
# Positions in the integers of an option and its run.
N, STEPS, PAYOFF, ANTITHETIC, CONTROL, GREEKS, SOBOL, KEY0, KEY1, STREAM = range(10)
# Positions in the coefficients of an option.
DRIFT, VOL, SCALE, OFFSET, SHIFT, CONTROL_SHIFT, CONTROL_SCALE, DELTA_SCALE = range(8)
ROOT_DT, VOL_DT, PER_STEP, LEVEL, SIDE, KNOCK_BASE, KNOCK_SIGN, BRIDGE = range(8, 16)
EUROPEAN, ASIAN, BARRIER, BARRIER_CONTINUOUS = U(0), U(1), U(2), U(3)


@njit(cache=True, nogil=True, error_model="numpy")
def fill(a, row, value):
    """Set a row."""
    for t in range(ZERO, END):
        a[row, t] = value


@njit(cache=True, nogil=True, error_model="numpy")
def advance(x, before, z, coef, sides, keep):
    """Move every path by one step: ``x += drift + vol z``; with ``keep``, ``before`` gets the old ``x``."""
    drift = coef[DRIFT]
    for row in range(ZERO, sides * FOUR):
        vol = coef[VOL] if row < FOUR else -coef[VOL]
        j = row & U(3)
        if keep:
            for t in range(ZERO, END):
                before[row, t] = x[row, t]
        for t in range(ZERO, END):
            x[row, t] = fma(vol, z[j, t], x[row, t] + drift)


@njit(cache=True, nogil=True, error_model="numpy")
def add_brownian(w, z, coef):
    """Add a step to the Brownian motion of the four paths (their twins have its negative)."""
    for j in range(ZERO, FOUR):
        for t in range(ZERO, END):
            w[j, t] = fma(coef[ROOT_DT], z[j, t], w[j, t])


@njit(cache=True, nogil=True, error_model="numpy")
def add_average(state, x, before, w, sides, time, greeks):
    """Add a date to the averages: of the price, of its logarithm, and of the price's derivative by volatility.

    ``state`` (3, 8, LANES); ``before`` is scratch; ``time``: volatility times the date.
    """
    for row in range(ZERO, sides * FOUR):
        sign = 1.0 if row < FOUR else -1.0
        j = row & U(3)
        for t in range(ZERO, END):
            price = exp2(x[row, t])
            state[0, row, t] += price
            state[1, row, t] += x[row, t]
            before[row, t] = price
        if greeks:
            for t in range(ZERO, END):
                state[2, row, t] = fma(before[row, t], fma(sign, w[j, t], -time), state[2, row, t])


@njit(cache=True, nogil=True, error_model="numpy")
def watch_barrier(alive, x, before, coef, sides, continuous):
    """Multiply ``alive`` by the probability that the path did not touch the barrier in this step.

    Discretely monitored: 0 or 1 by the price at the date. Continuously: by the crossing probability of a Brownian bridge.
    """
    level, side, bridge = coef[LEVEL], coef[SIDE], coef[BRIDGE]
    for row in range(ZERO, sides * FOUR):
        if continuous:
            for t in range(ZERO, END):
                u, v = (level - before[row, t]) * side, (level - x[row, t]) * side
                # Held in range: far from the barrier the exponent is as low as it likes.
                crossed = exp2(min(max(bridge * (u * v), -1020.0), 1020.0))
                alive[row, t] *= 1.0 - crossed if v > 0.0 else 0.0
        else:
            for t in range(ZERO, END):
                alive[row, t] = alive[row, t] if (level - x[row, t]) * side > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def settle_european(values, paying, x, price, w, coef, row, time, control, greeks):
    """Payoff, control (discounted price), delta and vega of the paths of one row; ``price`` is scratch."""
    scale, offset = coef[SCALE], coef[OFFSET]
    for t in range(ZERO, END):
        price[row, t] = exp2(x[row, t])
        v = fma(scale, price[row, t], offset)
        values[0, row, t] = v if v > 0.0 else 0.0
        paying[row, t] = 1.0 if v > 0.0 else 0.0
    if control:
        for t in range(ZERO, END):
            values[1, row, t] = coef[CONTROL_SCALE] * price[row, t]
    if greeks:
        j = row & U(3)
        sign = 1.0 if row < FOUR else -1.0
        for t in range(ZERO, END):
            values[2, row, t] = (coef[DELTA_SCALE] * price[row, t]) * paying[row, t]
        for t in range(ZERO, END):
            values[3, row, t] = ((scale * price[row, t]) * fma(sign, w[j, t], -time)) * paying[row, t]


@njit(cache=True, nogil=True, error_model="numpy")
def settle_asian(values, paying, state, coef, row, control, greeks):
    """Payoff on the arithmetic average, control on the geometric one, delta and vega."""
    scale, offset = coef[SCALE], coef[OFFSET]
    for t in range(ZERO, END):
        v = fma(scale, state[0, row, t], offset)
        values[0, row, t] = v if v > 0.0 else 0.0
        paying[row, t] = 1.0 if v > 0.0 else 0.0
    if control:
        for t in range(ZERO, END):
            c = fma(coef[CONTROL_SCALE], exp2(state[1, row, t] * coef[PER_STEP]), offset)
            values[1, row, t] = c if c > 0.0 else 0.0
    if greeks:
        for t in range(ZERO, END):
            values[2, row, t] = (coef[DELTA_SCALE] * state[0, row, t]) * paying[row, t]
        for t in range(ZERO, END):
            values[3, row, t] = (scale * state[2, row, t]) * paying[row, t]


@njit(cache=True, nogil=True, error_model="numpy")
def settle_barrier(values, paying, x, alive, bridged, coef, row, payoff, control):
    """Payoff times the probability of being alive (knock-out) or not (knock-in).

    Control: watched at dates, the same option watched at every moment (``bridged`` are its probabilities); watched at every
    moment, the payoff without barrier.
    """
    watched_at_dates = payoff == BARRIER
    for t in range(ZERO, END):
        v = fma(coef[SCALE], exp2(x[row, t]), coef[OFFSET])
        plain = v if v > 0.0 else 0.0
        y = plain * fma(coef[KNOCK_SIGN], alive[row, t], coef[KNOCK_BASE])
        values[0, row, t] = y
        paying[row, t] = 1.0 if y > 0.0 else 0.0
        if control:
            still = fma(coef[KNOCK_SIGN], bridged[row, t], coef[KNOCK_BASE]) if watched_at_dates else 1.0
            values[1, row, t] = plain * still


@njit(cache=True, nogil=True, error_model="numpy")
def pair_up(values, count):
    """Replace rows 0 to 3 by the mean of each path and its antithetic twin."""
    for k in range(ZERO, count):
        for j in range(ZERO, FOUR):
            for t in range(ZERO, END):
                values[k, j, t] = 0.5 * (values[k, j, t] + values[k, j + FOUR, t])


@njit(cache=True, nogil=True, error_model="numpy")
def add_moments(sums, k, values, row, shift, end):
    """Add ``values`` minus the shift, and its square, to the sums ``k`` and ``k + 1`` of the lanes below ``end``."""
    for t in range(ZERO, end):
        sums[k, t] += values[row, t] - shift
    for t in range(ZERO, end):
        d = values[row, t] - shift
        sums[k + ONE, t] = fma(d, d, sums[k + ONE, t])


@njit(cache=True, nogil=True, error_model="numpy")
def add_up(sums, values, paying, coef, j, end, sides, control, greeks):
    """Add the samples of word ``j`` of lanes below ``end`` to the lanes' sums."""
    shift, control_shift = coef[SHIFT], coef[CONTROL_SHIFT]
    add_moments(sums, ZERO, values[0], j, shift, end)
    for row in range(j, sides * FOUR, FOUR):
        for t in range(ZERO, end):
            sums[2, t] += paying[row, t]
    if control:
        add_moments(sums, U(3), values[1], j, control_shift, end)
        for t in range(ZERO, end):
            d, e = values[0, j, t] - shift, values[1, j, t] - control_shift
            sums[5, t] = fma(d, e, sums[5, t])
    if greeks:
        add_moments(sums, U(6), values[2], j, 0.0, end)
        add_moments(sums, U(8), values[3], j, 0.0, end)


@njit(cache=True, nogil=True, error_model="numpy")
def add_lanes(out, sums):
    """Add the lanes as four warps do: by distances 16 to 1 within each, then (0 + 2) + (1 + 3)."""
    for k in range(CHANNELS):
        for warp in range(WARPS):
            distance = WARP // 2
            while distance > 0:
                for t in range(distance):
                    sums[k, WARP * warp + t] += sums[k, WARP * warp + t + distance]
                distance //= 2
        out[k] = (sums[k, 0] + sums[k, 64]) + (sums[k, 32] + sums[k, 96])


@njit(cache=True, nogil=True, error_model="numpy")
def simulate_lanes(block, values, paying, scratch, words, z, coef, whole, directions, shifts):
    """Simulate and settle 512 samples (and their twins): rows of ``values`` (4, 8, LANES) and ``paying`` (8, LANES)."""
    payoff, sides = whole[PAYOFF], ONE + whole[ANTITHETIC]
    control, greeks = whole[CONTROL] != ZERO, whole[GREEKS] != ZERO
    bridged = control and payoff == BARRIER
    x, before, w, alive, state = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4:7]
    for row in range(ZERO, sides * FOUR):
        fill(x, row, 0.0)
        if greeks:
            fill(w, row, 0.0)
        if payoff == ASIAN:
            for k in range(ZERO, U(3)):
                fill(state[k], row, 0.0)
        elif payoff != EUROPEAN:
            fill(alive, row, 1.0)
            fill(state[0], row, 1.0)
    for step in range(ZERO, whole[STEPS]):
        if whole[SOBOL] != ZERO:
            sobol_points(words, block, step, directions, shifts)
            inverse_normals(words, z)
        else:
            philox(words, block, step, whole[STREAM], whole[KEY0], whole[KEY1])
            normals(words, z)
        advance(x, before, z, coef, sides, bridged or payoff == BARRIER_CONTINUOUS)
        if greeks:
            add_brownian(w, z, coef)
        if payoff == ASIAN:
            add_average(state, x, before, w, sides, coef[VOL_DT] * float(step + ONE), greeks)
        elif payoff != EUROPEAN:
            watch_barrier(alive, x, before, coef, sides, payoff == BARRIER_CONTINUOUS)
            if bridged:
                watch_barrier(state[0], x, before, coef, sides, True)
    for row in range(ZERO, sides * FOUR):
        if payoff == EUROPEAN:
            time = coef[VOL_DT] * float(whole[STEPS])
            settle_european(values, paying, x, before, w, coef, row, time, control, greeks)
        elif payoff == ASIAN:
            settle_asian(values, paying, state, coef, row, control, greeks)
        else:
            settle_barrier(values, paying, x, alive, state[0], coef, row, payoff, control)
    if sides > ONE:
        pair_up(values, FOUR if greeks else U(2))


@njit(cache=True, nogil=True, error_model="numpy")
def chunk_sums(out, first, last, coef, whole, directions, shifts):
    """Write the sums of chunks ``first`` to ``last`` of one series.

    ``out`` (last - first, CHANNELS) float64, written. ``coef`` (16,) float64, ``whole`` (10,) uint64: see the constants
    of this module. ``directions`` (dims, 32), ``shifts`` (dims,) uint64: of a Sobol series, else anything.
    """
    words = np.empty((4, LANES), np.uint64)
    z = np.empty((4, LANES))
    scratch = np.empty((7, 8, LANES))
    values, paying = np.zeros((4, 8, LANES)), np.zeros((8, LANES))
    sums = np.empty((CHANNELS, LANES))
    sides, control, greeks = ONE + whole[ANTITHETIC], whole[CONTROL] != ZERO, whole[GREEKS] != ZERO
    n = whole[N]
    for chunk in range(first, last):
        for k in range(CHANNELS):
            for t in range(LANES):
                sums[k, t] = 0.0
        for sweep in range(ZERO, U(SWEEPS)):
            block = (U(chunk) * U(SWEEPS) + sweep) * END
            if FOUR * block >= n:
                break
            simulate_lanes(block, values, paying, scratch, words, z, coef, whole, directions, shifts)
            for j in range(ZERO, FOUR):
                # Lane t holds sample 4 (block + t) + j.
                left = (n - j + U(3)) // FOUR
                end = min(END, left - block) if left > block else ZERO
                add_up(sums, values, paying, coef, j, end, sides, control, greeks)
        add_lanes(out[chunk - first], sums)
