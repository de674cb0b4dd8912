"""Closed forms of the room's payoffs: what estimates are compared with, and the means of control variates.

Literature: Black and Scholes (1973), Merton (1973), the dividend yield; Kemna and Vorst (1990), the geometric average;
Reiner and Rubinstein (1991), single barriers.
"""

from __future__ import annotations

from math import erfc, exp, inf, log, sqrt

from warpfront.errors import InvalidValueError
from warpfront.montecarlo.options import LEAST_DEVIATION, AsianArithmetic, Barrier, European, Option

__all__ = ["black_scholes", "black_scholes_greeks", "continuous_barrier", "exact_price", "geometric_asian"]


def _cdf(x: float) -> float:
    return 0.5 * erfc(-x / sqrt(2.0))


def _lognormal(kind: str, forward: float, strike: float, deviation: float, discount: float) -> float:
    """Discounted mean of the payoff of a lognormal price with this mean and deviation of its logarithm."""
    sign = 1.0 if kind == "call" else -1.0
    if deviation == 0.0 or strike == 0.0:
        return discount * max(sign * (forward - strike), 0.0)
    d1 = (log(forward / strike) + 0.5 * deviation**2) / deviation
    value = sign * (forward * _cdf(sign * d1) - strike * _cdf(sign * (d1 - deviation)))
    return discount * max(value, 0.0)


def black_scholes(option: Option) -> float:
    """Return the price of the European option with an option's kind, strike and market.

    Parameters
    ----------
    option : Option
        Its payoff's type is ignored.

    Returns
    -------
    float
        At zero time or volatility, the discounted payoff of the forward.
    """
    forward = option.spot * exp((option.rate - option.dividend_yield) * option.maturity)
    deviation = option.volatility * sqrt(option.maturity)
    return _lognormal(option.kind, forward, option.strike, deviation, exp(-option.rate * option.maturity))


def black_scholes_greeks(option: Option) -> tuple[float, float]:
    """Return delta (by spot) and vega (by volatility, for a change of 1) of the European option.

    At zero time or volatility they are the derivatives of the discounted payoff of the forward (0 at the kink).
    """
    sign = 1.0 if option.kind == "call" else -1.0
    carried = exp(-option.dividend_yield * option.maturity)
    deviation = option.volatility * sqrt(option.maturity)
    forward = option.spot * exp((option.rate - option.dividend_yield) * option.maturity)
    if option.strike == 0.0:
        return (carried if sign > 0 else 0.0), 0.0
    if deviation == 0.0:
        return (sign * carried if sign * (forward - option.strike) > 0 else 0.0), 0.0
    d1 = (log(forward / option.strike) + 0.5 * deviation**2) / deviation
    density = exp(-0.5 * d1 * d1) / sqrt(2.0 * 3.141592653589793)
    return sign * carried * _cdf(sign * d1), option.spot * carried * density * sqrt(option.maturity)


def geometric_asian(option: Option) -> float:
    """Return the price of the option on the geometric mean of the prices at ``n_steps`` equal dates."""
    m, drift = option.n_steps, option.rate - option.dividend_yield - 0.5 * option.volatility**2
    mean = log(option.spot) + drift * option.maturity * (m + 1) / (2 * m)
    variance = option.volatility**2 * option.maturity * (m + 1) * (2 * m + 1) / (6 * m * m)
    discount = exp(-option.rate * option.maturity)
    return _lognormal(option.kind, exp(mean + 0.5 * variance), option.strike, sqrt(variance), discount)


def continuous_barrier(option: Barrier) -> float:
    """Return the price of a barrier option that is watched at every moment.

    Below a deviation of 1e-6 of the log price the formula loses its digits, and the path counts as known.
    """
    plain = black_scholes(option)
    inside = min(max(_knock_in(option, plain), 0.0), plain)
    return inside if option.knock_in else plain - inside


def _knock_in(option: Barrier, plain: float) -> float:
    from scipy.special import log_ndtr

    spot, strike, barrier = option.spot, option.strike, option.barrier
    time, vol = option.maturity, option.volatility
    carry = option.rate - option.dividend_yield
    if vol * sqrt(time) < LEAST_DEVIATION:
        # The path is (all but) monotone: it touches if it ends beyond.
        end = spot * exp(carry * time)
        return plain if (end >= barrier if option.up else end <= barrier) else 0.0
    phi, eta = (1.0 if option.kind == "call" else -1.0), (-1.0 if option.up else 1.0)
    deviation = vol * sqrt(time)
    mu = (carry - 0.5 * vol * vol) / (vol * vol)
    asset, bond = spot * exp((carry - option.rate) * time), strike * exp(-option.rate * time)
    shift = (1.0 + mu) * deviation

    def direct(level: float) -> float:
        x = (log(spot / level) / deviation if level > 0 else inf) + shift
        return phi * (asset * _cdf(phi * x) - bond * _cdf(phi * (x - deviation)))

    def reflected(level: float) -> float:
        y = (log(barrier * barrier / (spot * level)) / deviation if level > 0 else inf) + shift
        # In logarithms: the power may overflow where the probability underflows.
        power = 2.0 * mu * log(barrier / spot)
        near = asset * (barrier / spot) ** 2 * exp(power + log_ndtr(eta * y))
        return phi * (near - bond * exp(power + log_ndtr(eta * (y - deviation))))

    a, b, c, d = direct(strike), direct(barrier), reflected(strike), reflected(barrier)
    beyond = strike > barrier
    if option.up:
        if option.kind == "call":
            return a if beyond else b - c + d
        return a - b + d if beyond else c
    if option.kind == "call":
        return c if beyond else a - b + d
    return b - c + d if beyond else a


def exact_price(option: Option) -> float | None:
    """Return the closed form of an option, ``None`` where there is none.

    A European option, a continuously watched barrier, an average of one date, and any option whose payoff is
    known now have one.
    """
    if isinstance(option, European):
        return black_scholes(option)
    if isinstance(option, AsianArithmetic):
        if option.n_steps == 1:
            return black_scholes(option)
        return _known_average(option) if option.deterministic else None
    if isinstance(option, Barrier):
        known = option.monitoring == "continuous" or option.deterministic
        return continuous_barrier(option) if known and not option.nearly_known else None
    raise InvalidValueError(f"no closed form is known for {type(option).__name__}")


def _known_average(option: AsianArithmetic) -> float:
    step = (option.rate - option.dividend_yield) * option.maturity / option.n_steps
    mean = option.spot * sum(exp(step * k) for k in range(1, option.n_steps + 1)) / option.n_steps
    sign = 1.0 if option.kind == "call" else -1.0
    return exp(-option.rate * option.maturity) * max(sign * (mean - option.strike), 0.0)
