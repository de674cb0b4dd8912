"""Monte Carlo pricing of options: reproducible to the bit, and told with its error."""

from warpfront.montecarlo._run import Settings
from warpfront.montecarlo.options import AsianArithmetic, Barrier, European
from warpfront.montecarlo.price import PartialSums, explain_price, merge, price, simulate
from warpfront.montecarlo.results import (
    Estimate,
    FewPayersWarning,
    Pricing,
    Progress,
    ToleranceNotReachedWarning,
)

__all__ = [
    "AsianArithmetic",
    "Barrier",
    "Estimate",
    "European",
    "FewPayersWarning",
    "PartialSums",
    "Pricing",
    "Progress",
    "Settings",
    "ToleranceNotReachedWarning",
    "explain_price",
    "merge",
    "price",
    "simulate",
]
