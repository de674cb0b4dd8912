"""What a pricing returns: estimates with their errors, and the sums of a part of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from warpfront.backend.dispatch import Decision
from warpfront.montecarlo.options import Option, describe

__all__ = ["Estimate", "FewPayersWarning", "Pricing", "Progress", "ToleranceNotReachedWarning"]


class FewPayersWarning(UserWarning):
    """Fewer than 30 paths pay: the confidence interval means little."""


class ToleranceNotReachedWarning(UserWarning):
    """The largest allowed number of paths came before the tolerance."""


@dataclass(frozen=True)
class Estimate:
    """The price of one option, and how well it is known.

    Attributes
    ----------
    option : Option
    price : float
        Discounted mean.
    standard_error : float
        Of the independent samples: pair means with antithetic paths, residuals with a control variate, replicate means with
        Sobol points.
    confidence : (float, float)
        Interval that holds the true price with probability ``level`` (Student's t).
    level : float
    n_paths : int
        Paths simulated.
    n_samples : int
        Independent samples the standard error comes from.
    degrees_of_freedom : int
        Of the t distribution; 0: the error is not known.
    paying_paths : int
        Paths with a positive payoff.
    few_payers : bool
        Fewer than 30 of them, and the payoff is not known beforehand: the interval means little.
    exact : float or None
        Closed form, where there is one.
    z : float or None
        ``(price - exact) / standard_error``; 0 where both errors are at rounding; None without a closed form, or
        where no two samples differ.
    delta, delta_error, vega, vega_error : float or None
        Pathwise derivatives by spot and by volatility (for a change of 1) with their standard errors.
    control_coefficient : float or None
        Regression coefficient on the control variate.
    variance_ratio : float or None
        Variance of the plain samples over that of the controlled ones.
    """

    option: Option
    price: float
    standard_error: float
    confidence: tuple[float, float]
    level: float
    n_paths: int
    n_samples: int
    degrees_of_freedom: int
    paying_paths: int
    few_payers: bool
    exact: float | None
    z: float | None
    delta: float | None = None
    delta_error: float | None = None
    vega: float | None = None
    vega_error: float | None = None
    control_coefficient: float | None = None
    variance_ratio: float | None = None

    @property
    def half_width(self) -> float:
        """Half of the confidence interval."""
        return 0.5 * (self.confidence[1] - self.confidence[0])


@dataclass(frozen=True)
class Progress:
    """How far a pricing is, for the callback.

    Attributes
    ----------
    paths_done, paths_total : int
        Paths of each option; the total may grow while a tolerance is sought.
    estimates : tuple of Estimate
        From the paths done.
    """

    paths_done: int
    paths_total: int
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True)
class Pricing:
    """Result of `price`: a sequence of estimates, one for each option, and what was done.

    Attributes
    ----------
    estimates : tuple of Estimate
    single : bool
        Whether a single option was given; the arrays below are then floats.
    n_paths : int
        Paths of each option.
    converged : bool or None
        Whether every interval met the tolerance; None when none was given.
    tolerance : float or None
    device, path, precision : str
        Where it ran, and the precision of the paths.
    decisions : tuple of Decision
        Why that path, and why not the others.
    settings : dict
        Seed and method.
    seconds, jit_seconds : float
        Wall time of the simulation, and of loading or compiling its kernels.
    """

    estimates: tuple[Estimate, ...]
    single: bool
    n_paths: int
    converged: bool | None
    tolerance: float | None
    device: str
    path: str
    precision: str
    decisions: tuple[Decision, ...] = field(repr=False)
    settings: dict[str, Any]
    seconds: float
    jit_seconds: float

    def __len__(self) -> int:
        return len(self.estimates)

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.estimates)

    def __getitem__(self, k: int) -> Estimate:
        return self.estimates[k]

    def _column(self, name: str) -> Any:
        values = [getattr(estimate, name) for estimate in self.estimates]
        if self.single:
            return values[0]
        return np.array([np.nan if value is None else value for value in values], np.float64)

    @property
    def price(self) -> Any:
        """Prices."""
        return self._column("price")

    @property
    def standard_error(self) -> Any:
        """Standard errors."""
        return self._column("standard_error")

    @property
    def confidence(self) -> Any:
        """Confidence interval (low, high), or an array (n_options, 2)."""
        pairs = [estimate.confidence for estimate in self.estimates]
        return pairs[0] if self.single else np.array(pairs)

    @property
    def z(self) -> Any:
        """Standard scores against the closed form (NaN in an array, None alone, where there is none)."""
        return self._column("z")

    @property
    def delta(self) -> Any:
        """Deltas."""
        return self._column("delta")

    @property
    def vega(self) -> Any:
        """Vegas."""
        return self._column("vega")

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        rows = []
        for estimate in self.estimates:
            row = {name: getattr(estimate, name) for name in Estimate.__dataclass_fields__}
            rows.append({**row, "option": describe(estimate.option), "confidence": list(estimate.confidence)})
        rest = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("estimates", "decisions")
        }
        return {
            "schema": "warpfront.price/1",
            **rest,
            "estimates": rows,
            "decisions": [asdict(decision) for decision in self.decisions],
        }
