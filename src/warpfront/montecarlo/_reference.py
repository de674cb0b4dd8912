"""The room's mathematics in plain float64 NumPy and SciPy, shared by its tests; no code in common with what they test.

Words: Philox from its definition. Normals: Box-Muller with the library's functions. Prices: integrals of
densities, which share no formula with ``closed_form.py``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.montecarlo.options import AsianArithmetic, Barrier, Option

__all__ = [
    "asian_price",
    "continuous_barrier_price",
    "discounted_payoffs",
    "discrete_barrier_price",
    "european_price",
    "normals",
    "philox",
    "words",
]

Array = NDArray[np.float64]


def philox(counter: Any, key: Any) -> NDArray[np.uint64]:
    """Return Philox4x32-10 of counters (..., 4) under a key (2,), as integers below 2^32."""
    c = [np.asarray(counter, np.uint64)[..., k] for k in range(4)]
    k0, k1 = (int(word) for word in key)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> half) ^ c[1] ^ np.uint64(k0), p1 & mask, (p0 >> half) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, -1)


def words(samples: Any, step: int, stream: int, seed: int) -> NDArray[np.uint64]:
    """Return the word of each sample: number ``i mod 4`` of the counter (i div 4, step, stream)."""
    i = np.asarray(samples, np.uint64)
    block = i // np.uint64(4)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    counter = np.stack([block & mask, block >> half, np.full_like(i, step), np.full_like(i, stream)], -1)
    four = philox(counter, (seed % 2**32, seed >> 32))
    return np.take_along_axis(four, (i % np.uint64(4)).astype(np.int64)[..., None], -1)[..., 0]


def normals(samples: Any, step: int, stream: int, seed: int) -> Array:
    """Return the normal of each sample: cosine for even samples, sine for odd ones, of the pair's two words."""
    i = np.asarray(samples, np.uint64)
    even = i - i % np.uint64(2)
    radius = np.sqrt(-2.0 * np.log((words(even, step, stream, seed) + 0.5) / 2.0**32))
    angle = 2.0 * np.pi * (words(even + np.uint64(1), step, stream, seed) / 2.0**32)
    return np.asarray(radius * np.where(i % np.uint64(2) == 0, np.cos(angle), np.sin(angle)))


def discounted_payoffs(option: Option, z: Array) -> Array:
    """Return the discounted payoff of each path from its normals (steps, paths)."""
    step = option.maturity / option.n_steps
    drift = (option.rate - option.dividend_yield - option.volatility**2 / 2) * step
    logs = np.cumsum(drift + option.volatility * np.sqrt(step) * z, axis=0)
    prices = option.spot * np.exp(logs)
    sign = 1.0 if option.kind == "call" else -1.0
    on = prices.mean(axis=0) if isinstance(option, AsianArithmetic) else prices[-1]
    paid = np.maximum(sign * (on - option.strike), 0.0)
    if isinstance(option, Barrier):
        paid = paid * _in_force(option, prices, step)
    return np.asarray(np.exp(-option.rate * option.maturity) * paid)


def _in_force(option: Barrier, prices: Array, step: float) -> Array:
    """Return the probability, given the prices at the dates, that the option pays."""
    side = 1.0 if option.up else -1.0
    if option.monitoring == "discrete":
        alive = np.all(side * (option.barrier - prices) > 0, axis=0).astype(np.float64)
    else:
        path = np.vstack([np.full(prices.shape[1], option.spot), prices])
        apart = np.maximum(side * np.log(option.barrier / path), 0.0)
        variance = option.volatility**2 * step
        alive = np.prod(1.0 - np.exp(-2.0 * apart[:-1] * apart[1:] / variance), axis=0)
    return np.asarray(1.0 - alive if option.knock_in else alive)


def _expected(option: Option, logs: Array, density: Array) -> float:
    """Discounted mean of the payoff under a density of ``ln(S_T / S_0)`` on an equidistant grid (Simpson's rule)."""
    from scipy.integrate import simpson

    sign = 1.0 if option.kind == "call" else -1.0
    paid = np.maximum(sign * (option.spot * np.exp(logs) - option.strike), 0.0)
    return float(np.exp(-option.rate * option.maturity) * simpson(paid * density, x=logs))


def _grid(low: float, high: float, option: Option, count: int) -> Array:
    """Return an equidistant grid with the payoff's kink on one of its (even) points."""
    kink = np.log(option.strike / option.spot) if option.strike > 0 else low
    if not low < kink < high:
        return np.linspace(low, high, count)
    step = 2.0 * (high - low) / (count - 1)
    return np.asarray(
        kink + step / 2 * np.arange(-2 * int((kink - low) / step), 2 * int((high - kink) / step) + 1)
    )


def european_price(option: Option, count: int = 20001) -> float:
    """Return the price by integrating the payoff over the normal density of the log price."""
    from scipy.stats import norm

    deviation = option.volatility * np.sqrt(option.maturity)
    mean = (option.rate - option.dividend_yield - option.volatility**2 / 2) * option.maturity
    x = _grid(mean - 12 * deviation, mean + 12 * deviation, option, count)
    return _expected(option, x, norm.pdf(x, mean, deviation))


def continuous_barrier_price(option: Barrier, count: int = 40001) -> float:
    """Return the price by integrating over the density of paths that never touched (method of images)."""
    from scipy.stats import norm

    deviation = option.volatility * np.sqrt(option.maturity)
    drift = option.rate - option.dividend_yield - option.volatility**2 / 2
    mean, level = drift * option.maturity, np.log(option.barrier / option.spot)
    low, high = mean - 12 * deviation, mean + 12 * deviation
    low, high = (low, min(level, high)) if option.up else (max(level, low), high)
    kink = np.log(option.strike / option.spot) if option.strike > 0 else -np.inf
    out = 0.0
    for a, b in ((low, min(max(kink, low), high)), (min(max(kink, low), high), high)):
        if b > a:
            x = np.linspace(a, b, count)
            image = np.exp(2 * drift * level / option.volatility**2) * norm.pdf(
                x, mean + 2 * level, deviation
            )
            out += _expected(option, x, norm.pdf(x, mean, deviation) - image)
    return european_price(option) - out if option.knock_in else out


def discrete_barrier_price(option: Barrier, nodes: int = 400) -> float:
    """Return the price by carrying the density of the surviving log price from date to date (Gauss-Legendre nodes)."""
    from scipy.stats import norm

    step = option.maturity / option.n_steps
    deviation = option.volatility * np.sqrt(step)
    drift = (option.rate - option.dividend_yield - option.volatility**2 / 2) * step
    level = np.log(option.barrier / option.spot)
    spread = 10 * option.volatility * np.sqrt(option.maturity)
    low, high = drift * option.n_steps - spread, drift * option.n_steps + spread
    low, high = (low, min(level, high)) if option.up else (max(level, low), high)
    kink = float(np.clip(np.log(option.strike / option.spot) if option.strike > 0 else low, low, high))
    x, weight = _legendre([(low, kink), (kink, high)], nodes)
    density = norm.pdf(x, drift, deviation)
    for _ in range(option.n_steps - 1):
        density = norm.pdf(x[:, None] - x[None, :], drift, deviation) @ (weight * density)
    sign = 1.0 if option.kind == "call" else -1.0
    paid = np.maximum(sign * (option.spot * np.exp(x) - option.strike), 0.0)
    out = float(np.exp(-option.rate * option.maturity) * np.sum(weight * density * paid))
    return european_price(option) - out if option.knock_in else out


def asian_price(option: AsianArithmetic, nodes: int = 600) -> float:
    """Return the price by carrying the density of ``ln(sum of prices)`` backwards over the dates.

    With ``R_k`` the log returns, the sum of the prices is ``S_0 exp(B_1)``, where ``B_n = R_n`` and
    ``B_k = R_k + ln(1 + exp(B_{k+1}))`` (Carverhill and Clewlow, 1990).
    """
    from scipy.stats import norm

    n, step = option.n_steps, option.maturity / option.n_steps
    deviation = option.volatility * np.sqrt(step)
    drift = (option.rate - option.dividend_yield - option.volatility**2 / 2) * step
    spread = 10 * option.volatility * np.sqrt(option.maturity) + abs(drift) * n
    x, weight = _legendre([(-spread, np.log(n) + spread)], nodes)
    density = norm.pdf(x, drift, deviation)
    after = np.log1p(np.exp(x))
    for _ in range(n - 1):
        density = norm.pdf(x[:, None] - after[None, :], drift, deviation) @ (weight * density)
    sign = 1.0 if option.kind == "call" else -1.0
    kink = np.log(option.strike * n / option.spot)
    # The density is smooth, the payoff is not: integrate it on each side of its kink.
    y, fine = _legendre([(-spread, kink), (kink, np.log(n) + spread)], nodes)
    on = norm.pdf(y, drift, deviation) if n == 1 else _interpolate(x, density, y)
    paid = np.maximum(sign * (option.spot * np.exp(y) / n - option.strike), 0.0)
    return float(np.exp(-option.rate * option.maturity) * np.sum(fine * on * paid))


def _interpolate(x: Array, density: Array, y: Array) -> Array:
    from scipy.interpolate import CubicSpline

    return np.asarray(CubicSpline(x, density)(y))


@lru_cache(maxsize=32)
def _leggauss(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def _legendre(pieces: list[tuple[float, float]], nodes: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on consecutive intervals, ``nodes`` in all."""
    places, weights = [], []
    for a, b in pieces:
        if b > a:
            count = max(8, round(nodes * (b - a) / (pieces[-1][1] - pieces[0][0])))
            at, weight = _leggauss(count)
            places.append(0.5 * (b - a) * at + 0.5 * (a + b))
            weights.append(0.5 * (b - a) * weight)
    return np.concatenate(places), np.concatenate(weights)
