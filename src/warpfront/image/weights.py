"""Gaussian weights in Q8.8: whole numbers that sum to 256, so that every blur of 8-bit pixels is exact.

The real weights are rounded from the outside in, each rounding error carried to the next weight (error
diffusion), and the centre takes what is left. OpenCV derives its 8-bit kernels the same way, so results can
be compared with it bit for bit.
"""

from __future__ import annotations

import math
from functools import lru_cache

from warpfront.errors import InvalidValueError

__all__ = ["MAX_TAPS", "gaussian_weights", "trimmed_radius"]

MAX_TAPS = 31
DEFAULT_TAPS = 5
# Halves of the kernels that stand for sigma <= 0, from the outside in, as fractions of the last number.
_SMALL: dict[int, tuple[tuple[int, ...], int]] = {
    1: ((1,), 1),
    3: ((1, 2), 4),
    5: ((1, 4, 6), 16),
    7: ((2, 7, 14, 18), 64),
    9: ((4, 13, 30, 51, 60), 256),
}


@lru_cache(maxsize=256, typed=True)
def gaussian_weights(sigma: float, taps: int | None = None) -> tuple[int, ...]:
    """Return the weights of a Gaussian of standard deviation ``sigma`` pixels as multiples of 1/256.

    Parameters
    ----------
    sigma : float
        Standard deviation in pixels. Zero or less: the small binomial-like kernels 1/4 [1 2 1],
        1/16 [1 4 6 4 1], ... up to 9 taps, and sigma = 0.15 taps + 0.35 beyond.
    taps : int, optional
        Odd, 1 to 31. Default: ``round(6 sigma + 1) | 1``; 5 for ``sigma <= 0``.

    Returns
    -------
    tuple of int
        ``taps`` weights of 0 to 256, symmetric, whose sum is 256.

    Raises
    ------
    InvalidValueError
        ``sigma`` is not finite, or ``taps`` is even or outside 1 to 31, or follows from ``sigma`` and is.
    """
    if not math.isfinite(sigma):
        raise InvalidValueError(f"sigma must be a finite number of pixels, got {sigma}")
    if taps is None:
        taps = round(6 * sigma + 1) | 1 if sigma > 0 else DEFAULT_TAPS
        if taps > MAX_TAPS:
            raise InvalidValueError(
                f"sigma {sigma:g} needs {taps} taps and at most {MAX_TAPS} are offered (sigma 5): give taps, "
                "or shrink the image first"
            )
    if isinstance(taps, bool) or not isinstance(taps, int) or not 1 <= taps <= MAX_TAPS or taps % 2 == 0:
        raise InvalidValueError(f"taps must be an odd number from 1 to {MAX_TAPS}, got {taps!r}")
    return _diffused(_half(sigma, taps))


def _half(sigma: float, taps: int) -> list[float]:
    """Real weights from the outermost to the centre; with their mirror image they sum to 1."""
    if sigma <= 0 and taps in _SMALL:
        numbers, whole = _SMALL[taps]
        return [number / whole for number in numbers]
    if sigma <= 0:
        sigma = 0.15 * taps + 0.35
    radius = taps // 2
    # (k / sigma) and not 1 / sigma^2, which a tiny sigma would overflow.
    bell = [math.exp(-0.5 * (k / sigma) * (k / sigma)) for k in range(radius, -1, -1)]
    total = 2 * sum(bell[:-1]) + bell[-1]
    return [value / total for value in bell]


def _diffused(half: list[float]) -> tuple[int, ...]:
    outer, error = [], 0.0
    for weight in half[:-1]:
        exact = 256 * weight + error
        rounded = round(exact)  # ties to even
        error = exact - rounded
        outer.append(rounded)
    return (*outer, 256 - 2 * sum(outer), *reversed(outer))


def trimmed_radius(weights: tuple[int, ...]) -> int:
    """Return the radius without the outer weights that are zero: they change nothing and cost time."""
    first = next(k for k, weight in enumerate(weights) if weight)
    return len(weights) // 2 - first
