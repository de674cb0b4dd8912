"""What is to be simulated, as the kernels take it: coefficients, words of the counter, the partition into chunks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from math import exp, log, log2, sqrt
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.montecarlo.closed_form import (
    black_scholes,
    continuous_barrier,
    exact_price,
    geometric_asian,
)
from warpfront.montecarlo.options import LEAST_DEVIATION, AsianArithmetic, Barrier, Option, describe, integer

__all__ = ["CHANNELS", "CHUNK", "Run", "SamplingOptions", "Settings", "chunk_count"]

# Samples of a chunk, the unit of work and of the sums' tree; part of what fixes the bits.
CHUNK = 16384
CHANNELS = 10
COEFFICIENTS = 16
# A uniform has 32 bits: with more paths than this the missing tail beyond 6.7 deviations could begin to show.
MAX_PATHS = 100_000_000_000
# Words of the counter's last place: common or per-option streams below, scrambles above.
SCRAMBLE_STREAM = 1 << 31
_LOG2E = 1.0 / log(2.0)
# A path of float32 leaves its range beyond this log price.
_MAX_LOG_32 = 80.0


class SamplingOptions(TypedDict, total=False):
    """Keyword arguments of `price` and `simulate` that say how samples are drawn: the fields of `Settings`."""

    seed: int
    antithetic: bool
    control_variate: bool
    greeks: bool
    sobol: bool
    replicates: int
    streams: str
    precision: str


@dataclass(frozen=True)
class Settings:
    """How samples are drawn.

    Attributes
    ----------
    seed : int
        0 to 2^64 - 1: the key of the counter-based generator.
    antithetic : bool
        Each sample is the mean of a path and of its mirror image.
    control_variate : bool
        Regress on a payoff of known mean: the discounted price (European), the geometric average (Asian), the same
        barrier watched at every moment (discrete barrier), the payoff without barrier (continuous one).
    greeks : bool
        Pathwise delta and vega; not for barriers, whose payoff jumps.
    sobol : bool
        Sobol points, ``replicates`` independent scrambles of them, instead of pseudo-random words.
    replicates : int
        At least 16.
    streams : {"common", "independent"}
        Whether the options of a call see the same random numbers.
    precision : {"float64", "float32"}
        Of the paths; sums are float64. float32 on the GPU only.
    """

    seed: int = 0
    antithetic: bool = False
    control_variate: bool = False
    greeks: bool = False
    sobol: bool = False
    replicates: int = 32
    streams: str = "common"
    precision: str = "float64"

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", integer("seed", self.seed, 0, 2**64 - 1))
        object.__setattr__(self, "replicates", integer("replicates", self.replicates, 16, 4096))
        for name in ("antithetic", "control_variate", "greeks", "sobol"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InvalidValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.streams not in ("common", "independent"):
            raise InvalidValueError(f'streams must be "common" or "independent", got {self.streams!r}')
        if self.precision not in ("float64", "float32"):
            raise InvalidValueError(f'precision must be "float64" or "float32", got {self.precision!r}')
        if self.sobol and (self.antithetic or self.control_variate):
            raise NotSupportedError(
                "sobol points are not combined with antithetic or control variates here: drop one of the two"
            )

    @classmethod
    def of(cls, given: SamplingOptions) -> Settings:
        """Return the settings from keyword arguments; an unknown one is an error that lists the known."""
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            known = ", ".join(cls.__dataclass_fields__)
            raise InvalidValueError(f"no option {', '.join(unknown)}; there are {known}")
        return cls(**given)


@dataclass(frozen=True)
class Run:
    """Options and settings, ready to be simulated.

    Attributes
    ----------
    options : tuple of Option
    settings : Settings
    coefficients : (n_options, 16) float64
        By the constants of ``_path_kernels.py``.
    exact : tuple of float or None
        Closed forms.
    """

    options: tuple[Option, ...]
    settings: Settings
    coefficients: NDArray[np.float64] = field(compare=False)
    exact: tuple[float | None, ...] = field(compare=False)

    @classmethod
    def of(cls, options: tuple[Option, ...], settings: Settings) -> Run:
        """Check options against settings and compute the coefficients."""
        for k, option in enumerate(options):
            if settings.greeks and isinstance(option, Barrier):
                raise NotSupportedError(
                    f"options[{k}]: pathwise delta and vega of a barrier option are biased, because its payoff jumps at "
                    "the barrier; price bumped options with the same seed and subtract instead"
                )
            if settings.control_variate and isinstance(option, Barrier) and option.nearly_known:
                raise NotSupportedError(
                    f"options[{k}]: at a deviation of the log price below {LEAST_DEVIATION:g} the mean of a barrier's "
                    "control variate is not known to its error; leave control_variate out"
                )
            if settings.precision == "float32" and option.log_extent > _MAX_LOG_32:
                raise InvalidValueError(
                    f"options[{k}]: prices reach {option.log_extent:.3g} in their logarithm, float32 holds {_MAX_LOG_32:g}; "
                    'use precision="float64"'
                )
        if settings.streams == "independent" and len(options) >= SCRAMBLE_STREAM:
            raise InvalidValueError("too many options for independent streams")
        exact = tuple(exact_price(option) for option in options)
        return cls(options, settings, np.array([coefficients(option) for option in options]), exact)

    @property
    def replicates(self) -> int:
        """Series of each option."""
        return self.settings.replicates if self.settings.sobol else 1

    @property
    def n_series(self) -> int:
        """Series in all: option by option, replicate by replicate."""
        return len(self.options) * self.replicates

    @property
    def paths_per_sample(self) -> int:
        """Paths that make one sample, over all replicates."""
        return 2 if self.settings.antithetic else self.replicates

    @property
    def dims(self) -> int:
        """Coordinates of a Sobol point."""
        return max(option.n_steps for option in self.options)

    def groups(self) -> dict[int, list[int]]:
        """Return payoff code -> positions of the options that have it."""
        found: dict[int, list[int]] = {}
        for k, option in enumerate(self.options):
            found.setdefault(option.payoff_code, []).append(k)
        return found

    def stream(self, k: int) -> int:
        """Return the stream of option ``k``."""
        return k if self.settings.streams == "independent" else 0

    def whole(self, k: int, n_samples: int) -> NDArray[np.uint64]:
        """Return the integers of option ``k`` for the CPU kernel."""
        s, option = self.settings, self.options[k]
        key = (s.seed & 0xFFFFFFFF, s.seed >> 32)
        flags = (s.antithetic, s.control_variate, s.greeks, s.sobol)
        values = [n_samples, option.n_steps, option.payoff_code, *map(int, flags), *key, self.stream(k)]
        return np.array(values, np.uint64)

    def fingerprint(self, n_samples: int) -> str:
        """Return a digest of everything that fixes the result."""
        said = [[describe(option) for option in self.options], asdict(self.settings), n_samples, CHUNK]
        return sha256(json.dumps(said).encode()).hexdigest()[:16]

    def samples(self, n_paths: Any) -> int:
        """Return the samples of a series for a number of paths of each option.

        Raises
        ------
        InvalidValueError
            Not a positive integer, more than `MAX_PATHS`, odd with antithetic paths, or not ``replicates`` times a
            power of two with Sobol points.
        """
        paths = integer("n_paths", n_paths, 1, MAX_PATHS)
        if self.settings.sobol:
            points, rest = divmod(paths, self.replicates)
            if rest or points & (points - 1) or not 1 <= points <= 1 << 31:
                near = 1 << max(0, min(31, round(log2(max(paths / self.replicates, 1)))))
                raise InvalidValueError(
                    f"n_paths with sobol must be replicates times a power of two, up to 2^31: with {self.replicates} "
                    f"replicates for example {self.replicates * near}, got {paths}"
                )
            return points
        if self.settings.antithetic and paths % 2:
            raise InvalidValueError(f"n_paths must be even with antithetic paths, got {paths}")
        return paths // self.paths_per_sample


def chunk_count(n_samples: int) -> int:
    """Return the number of chunks, the last one perhaps not full."""
    return -(-n_samples // CHUNK)


def coefficients(option: Option) -> list[float]:
    """Return what the kernels need of an option: see the constants of ``_path_kernels.py`` for the order."""
    step = option.maturity / option.n_steps
    sign = 1.0 if option.kind == "call" else -1.0
    discount = exp(-option.rate * option.maturity)
    drift = (option.rate - option.dividend_yield - 0.5 * option.volatility**2) * step
    variance = option.volatility**2 * step
    asset, bond = option.spot * discount, option.strike * discount
    level, side, base, slope, bridge = 0.0, 1.0, 0.0, 1.0, -1e30
    shift, control_shift = black_scholes(option), option.spot * exp(-option.dividend_yield * option.maturity)
    scale, control_scale, delta_scale = sign * asset, asset, sign * discount
    if isinstance(option, AsianArithmetic):
        shift = control_shift = geometric_asian(option)
        scale, delta_scale, control_scale = scale / option.n_steps, delta_scale / option.n_steps, sign * asset
    elif isinstance(option, Barrier):
        shift = continuous_barrier(option)
        control_shift = shift if option.monitoring == "discrete" else black_scholes(option)
        level, side = log(option.barrier / option.spot) * _LOG2E, 1.0 if option.up else -1.0
        base, slope = (1.0, -1.0) if option.knock_in else (0.0, 1.0)
        bridge = max(-2.0 / (_LOG2E * variance), -1e30) if variance > 0 else -1e30
    return [
        drift * _LOG2E,
        option.volatility * sqrt(step) * _LOG2E,
        scale,
        -sign * bond,
        shift,
        control_shift,
        control_scale,
        delta_scale,
        sqrt(step),
        option.volatility * step,
        1.0 / option.n_steps,
        level,
        side,
        base,
        slope,
        bridge,
    ]
