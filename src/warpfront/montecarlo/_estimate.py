"""From sums to estimates. Channels and their shifts: `_path_kernels.py`."""

from __future__ import annotations

from functools import lru_cache
from math import copysign, inf, isnan, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.montecarlo._run import Run
from warpfront.montecarlo.results import Estimate

__all__ = ["MIN_PAYERS", "estimate_all"]

MIN_PAYERS = 30
# Relative rounding of a sum over chunks.
_SUM_ROUNDING = 1e-14
# Differences of this size, relative to the option's scale, are rounding.
_ROUNDING = {"float64": 1e-12, "float32": 2e-6}


def estimate_all(run: Run, n_samples: int, sums: NDArray[np.float64], level: float) -> tuple[Estimate, ...]:
    """Return one estimate for each option.

    Parameters
    ----------
    run : Run
    n_samples : int
        Samples of each series.
    sums : (n_series, 10) float64
    level : float
        Of the confidence interval.
    """
    by_option = sums.reshape(len(run.options), run.replicates, -1)
    make = _from_replicates if run.settings.sobol else _from_samples
    return tuple(make(run, k, n_samples, by_option[k], level) for k in range(len(run.options)))


def _from_samples(run: Run, k: int, n: int, sums: NDArray[np.float64], level: float) -> Estimate:
    s = [float(value) for value in sums[0]]
    shift = float(run.coefficients[k, 4])
    mean, scatter = s[0] / n, _scatter(s[1], s[0], n)
    price, freedom, extra = shift + mean, n - 1, {}
    plain = scatter
    if run.settings.control_variate:
        freedom = n - 2
        control_scatter = _scatter(s[4], s[3], n)
        shared = s[5] - s[0] * s[3] / n
        beta = shared / control_scatter if control_scatter > 0.0 and freedom > 0 else 0.0
        price -= beta * (s[3] / n)
        scatter = max(scatter - beta * shared, 0.0)
        ratio = (plain / max(n - 1, 1)) / (scatter / max(freedom, 1)) if scatter > 0.0 else inf
        extra = {"control_coefficient": beta, "variance_ratio": ratio if plain > 0.0 else 1.0}
    error = sqrt(scatter / freedom / n) if freedom > 0 else nan
    if run.settings.greeks:
        for name, at in (("delta", 6), ("vega", 8)):
            spread = _scatter(s[at + 1], s[at], n)
            extra |= {name: s[at] / n, f"{name}_error": sqrt(spread / (n - 1) / n) if n > 1 else nan}
    return _estimate(run, k, price, error, (n * run.paths_per_sample, n, freedom, round(s[2])), level, extra)


def _from_replicates(run: Run, k: int, n: int, sums: NDArray[np.float64], level: float) -> Estimate:
    count = run.replicates
    price, error = _mean_and_error(sums[:, 0] / n)
    extra: dict[str, Any] = {}
    if run.settings.greeks:
        for name, at in (("delta", 6), ("vega", 8)):
            extra[name], extra[f"{name}_error"] = _mean_and_error(sums[:, at] / n)
    counts = (n * count, count, count - 1, round(float(sums[:, 2].sum())))
    return _estimate(run, k, float(run.coefficients[k, 4]) + price, error, counts, level, extra)


def _scatter(squares: float, total: float, n: int) -> float:
    """Sum of squared deviations from the mean; 0 where it is no more than the rounding of the two sums."""
    scatter = squares - total * total / n
    return scatter if scatter > _SUM_ROUNDING * squares else 0.0


def _mean_and_error(means: NDArray[np.float64]) -> tuple[float, float]:
    mean, deviation = float(means.mean()), float(means.std(ddof=1))
    return mean, deviation / sqrt(len(means)) if deviation > _SUM_ROUNDING * abs(mean) else 0.0


def _estimate(
    run: Run,
    k: int,
    price: float,
    error: float,
    counts: tuple[int, int, int, int],
    level: float,
    extra: dict[str, Any],
) -> Estimate:
    option = run.options[k]
    n_paths, n_samples, freedom, paying = counts
    rounding = _ROUNDING[run.settings.precision] * max(option.spot, option.strike)
    if option.deterministic and error <= rounding:
        error = 0.0  # the payoff is one number; what is left is rounding of the sums
    half = _quantile(level, freedom) * error if freedom > 0 else inf
    exact = run.exact[k]
    z = None
    if exact is not None:
        off = price - exact
        if error > 0.0:
            z = off / error
        elif option.deterministic or isnan(error):
            z = 0.0 if abs(off) <= rounding else (nan if isnan(error) else copysign(inf, off))
    return Estimate(
        option=option,
        price=price,
        standard_error=error,
        confidence=(price - half, price + half),
        level=level,
        n_paths=n_paths,
        n_samples=n_samples,
        degrees_of_freedom=max(freedom, 0),
        paying_paths=paying,
        few_payers=paying < MIN_PAYERS and not option.deterministic,
        exact=exact,
        z=z,
        **extra,
    )


@lru_cache(maxsize=256)
def _quantile(level: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 * (1.0 + level)))
