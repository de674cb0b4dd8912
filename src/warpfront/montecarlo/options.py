"""Payoff objects: what is priced, checked when it is made.

The asset follows geometric Brownian motion under the pricing measure,
``dS = (rate - dividend_yield) S dt + volatility S dW``; rates are continuously compounded, times in years.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, isfinite, log
from numbers import Integral, Real
from typing import Any, ClassVar

from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["KNOCKS", "AsianArithmetic", "Barrier", "European", "Option", "as_options"]

KNOCKS = ("up-and-out", "up-and-in", "down-and-out", "down-and-in")
MAX_STEPS = 1_000_000
# Squares of payoffs, summed over 1e11 paths, stay in the range of float64 up to this logarithm.
_MAX_LOG = 330.0
# Deviation of the log price below which the closed form of a barrier loses its digits.
LEAST_DEVIATION = 1e-6


def number(name: str, value: Any, *, least: float | None = None, above: float | None = None) -> float:
    """Return a finite real number as float.

    Raises
    ------
    InvalidValueError
        Not a real number, not finite, below ``least``, or not above ``above``.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValueError(f"{name} must be a real number, got {value!r} ({type(value).__name__})")
    try:
        result = float(value)
    except OverflowError:
        result = inf
    if not isfinite(result):
        raise InvalidValueError(f"{name} must be finite, got {result}")
    if above is not None and not result > above:
        raise InvalidValueError(f"{name} must be greater than {above:g}, got {result:g}")
    if least is not None and result < least:
        raise InvalidValueError(f"{name} must be at least {least:g}, got {result:g}")
    return result


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an integer within bounds; a float of integral value (``1e6``) counts as one.

    Raises
    ------
    InvalidValueError
        Not an integer, or out of bounds.
    """
    whole = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    if isinstance(value, bool) or not whole:
        raise InvalidValueError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    result = int(value)
    if result < least or (most is not None and result > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidValueError(f"{name} must be {bound}, got {result}")
    return result


@dataclass(frozen=True, kw_only=True)
class Option:
    """What every payoff has; use `European`, `AsianArithmetic` or `Barrier`.

    Attributes
    ----------
    kind : {"call", "put"}
    spot : float
        Price of the asset now, > 0.
    strike : float
        >= 0.
    rate, dividend_yield : float
        A year, continuously compounded; may be negative.
    volatility : float
        A year, >= 0.
    maturity : float
        Years, >= 0.
    n_steps : int
        Time steps of a path, of equal length; the last ends at maturity.
    """

    kind: str = "call"
    spot: float
    strike: float
    rate: float
    volatility: float
    maturity: float
    dividend_yield: float = 0.0
    n_steps: int = 1

    payoff_code: ClassVar[int] = -1

    def __post_init__(self) -> None:
        if self.kind not in ("call", "put"):
            raise InvalidValueError(f'kind must be "call" or "put", got {self.kind!r}')
        checked: dict[str, Any] = {
            "spot": number("spot", self.spot, above=0.0),
            "strike": number("strike", self.strike, least=0.0),
            "rate": number("rate", self.rate),
            "volatility": number("volatility", self.volatility, least=0.0),
            "maturity": number("maturity", self.maturity, least=0.0),
            "dividend_yield": number("dividend_yield", self.dividend_yield),
            "n_steps": integer("n_steps", self.n_steps, 1, MAX_STEPS),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not self.log_extent <= _MAX_LOG:  # not a number: an overflow times no time
            raise InvalidValueError(
                "prices, or the squares of their sums, would leave the range of float64: the logarithm of spot or strike, "
                f"the drift, 10 volatility sqrt(maturity) and |rate| maturity add up to {self.log_extent:.4g}, at most "
                f"{_MAX_LOG:g} is allowed"
            )

    @property
    def log_reach(self) -> float:
        """Largest ``|ln(S_t / S_0)|`` to expect: drift and ten standard deviations."""
        drift = abs(self.rate - self.dividend_yield - 0.5 * self.volatility * self.volatility) * self.maturity
        return float(drift + 10.0 * self.volatility * self.maturity**0.5)

    @property
    def log_extent(self) -> float:
        """Bound of ``|ln|`` of every price and payoff, discounted or not."""
        sizes = [abs(log(size)) for size in (self.spot, self.strike) if size > 0.0]
        return max(sizes) + self.log_reach + abs(self.rate) * self.maturity

    @property
    def nearly_known(self) -> bool:
        """Whether the log price hardly deviates, and yet does: closed forms of barriers lose their digits there."""
        return bool(0.0 < self.volatility * self.maturity**0.5 < LEAST_DEVIATION)

    @property
    def deterministic(self) -> bool:
        """Whether the payoff is known now: no time or no volatility."""
        return self.volatility == 0.0 or self.maturity == 0.0


@dataclass(frozen=True, kw_only=True)
class European(Option):
    """Pays ``max(S_T - strike, 0)`` (call) or ``max(strike - S_T, 0)`` (put) at maturity.

    With ``n_steps > 1`` the path is simulated in that many exact steps; the price does not depend on it.
    """

    payoff_code: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class AsianArithmetic(Option):
    """Pays on the mean of the prices at the ends of the ``n_steps`` steps (the price now is not among them)."""

    payoff_code: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Barrier(Option):
    """A European payoff that a touch of the barrier ends (knock-out) or makes valid (knock-in). No rebate.

    Attributes
    ----------
    barrier : float
        > spot for ``"up-…"``, < spot for ``"down-…"``, > 0.
    knock : {"up-and-out", "up-and-in", "down-and-out", "down-and-in"}
    monitoring : {"discrete", "continuous"}
        At the ends of the ``n_steps`` steps, or at every moment. Continuous monitoring weights each path by
        the crossing probability of the Brownian bridge between its dates, which is exact for any number
        of steps.
    """

    barrier: float
    knock: str
    monitoring: str = "discrete"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.knock not in KNOCKS:
            raise InvalidValueError(f"knock must be one of {', '.join(KNOCKS)}, got {self.knock!r}")
        if self.monitoring not in ("discrete", "continuous"):
            raise InvalidValueError(f'monitoring must be "discrete" or "continuous", got {self.monitoring!r}')
        object.__setattr__(self, "barrier", number("barrier", self.barrier, above=0.0))
        beyond = self.spot >= self.barrier if self.up else self.spot <= self.barrier
        if beyond:
            raise InvalidValueError(
                f"{self.knock}: the barrier must lie {'above' if self.up else 'below'} the spot, got barrier "
                f"{self.barrier:g} and spot {self.spot:g}; once touched, a knock-out is worth 0 and a knock-in is a "
                "European option"
            )

    @property
    def up(self) -> bool:
        """Whether the barrier lies above the spot."""
        return self.knock.startswith("up")

    @property
    def knock_in(self) -> bool:
        """Whether a touch makes the option valid."""
        return self.knock.endswith("in")

    @property
    def payoff_code(self) -> int:  # type: ignore[override]
        """Which loop of the kernels."""
        return 3 if self.monitoring == "continuous" else 2


def as_options(options: Any) -> tuple[tuple[Option, ...], bool]:
    """Return the options as a tuple, and whether a single one was given.

    Raises
    ------
    InvalidValueError
        Not an option, or a sequence without one.
    """
    if isinstance(options, Option):
        chosen, single = (options,), True
    else:
        try:
            chosen, single = tuple(options), False
        except TypeError as error:
            raise InvalidValueError(
                f"options must be a payoff object or a sequence of them, got {type(options).__name__}"
            ) from error
    if not chosen:
        raise InvalidValueError("options is empty: give at least one payoff object")
    for k, option in enumerate(chosen):
        if not isinstance(option, Option) or type(option) is Option:
            raise InvalidValueError(
                f"options[{k}] must be European, AsianArithmetic or Barrier, got {type(option).__name__}"
            )
        if type(option) not in (European, AsianArithmetic, Barrier):
            raise NotSupportedError(f"options[{k}]: no kernel for payoff {type(option).__name__}")
    return chosen, single


def describe(option: Option) -> dict[str, Any]:
    """Return an option as plain data, with the name of its payoff."""
    return {
        "payoff": type(option).__name__,
        **{field.name: getattr(option, field.name) for field in fields(option)},
    }
