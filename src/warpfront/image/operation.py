"""What is computed: the stage, its weights, border, threshold and norm, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from warpfront.errors import InvalidValueError
from warpfront.image.weights import MAX_TAPS, gaussian_weights, trimmed_radius

__all__ = ["BORDERS", "NORMS", "Operation", "operation"]

# In the order of the kernels' codes.
BORDERS = ("clamp", "reflect", "reflect101", "wrap", "zero")
NORMS = ("l1", "l2")
NO_BLUR = object()
IDENTITY: tuple[int, ...] = (256,)


@dataclass(frozen=True)
class Operation:
    """One computation, whatever the images.

    Attributes
    ----------
    stage : {"gray", "blur", "sobel", "edges"}
        ``"edges"`` is the whole chain; without a blur (``weights == (256,)``) it is Sobel and threshold.
    weights : tuple of int
        In 1/256, zeros at the ends left out.
    border, norm : str
        Of `BORDERS` and `NORMS`.
    threshold : int
        0 to 255, or -1: the magnitude itself.
    """

    stage: str
    weights: tuple[int, ...] = IDENTITY
    border: str = "reflect101"
    threshold: int = -1
    norm: str = "l1"

    @property
    def radius(self) -> int:
        """Pixels to each side that a blurred pixel depends on."""
        return len(self.weights) // 2

    @property
    def border_code(self) -> int:
        """The border as kernels take it."""
        return BORDERS.index(self.border)


def operation(
    stage: str,
    *,
    sigma: Any = NO_BLUR,
    taps: Any = None,
    border: str = "reflect101",
    threshold: Any = None,
    norm: str = "l1",
) -> Operation:
    """Check the options of a stage.

    Parameters
    ----------
    stage : str
    sigma : float, optional
        Left out: no blur.
    taps, border, threshold, norm
        As `warpfront.image.edges`.

    Raises
    ------
    InvalidValueError
        An option has a value that is not offered; the message lists those that are.
    """
    if not isinstance(border, str) or border not in BORDERS:
        raise InvalidValueError(
            f"border must be one of {', '.join(BORDERS)}, got {border!r} "
            "(numpy's and torch's reflect is reflect101, numpy's symmetric is reflect)"
        )
    if not isinstance(norm, str) or norm not in NORMS:
        raise InvalidValueError(f"norm must be l1 or l2, got {norm!r}")
    try:
        width = None if sigma is NO_BLUR else float(sigma)
    except (TypeError, ValueError):
        raise InvalidValueError(f"sigma must be a finite number of pixels, got {sigma!r}") from None
    if taps is not None and (isinstance(taps, bool) or not hasattr(taps, "__index__")):
        raise InvalidValueError(f"taps must be an odd number from 1 to {MAX_TAPS}, got {taps!r}")
    count = None if taps is None else int(taps)
    return _operation(stage, width, count, border, _level(threshold), norm)


@lru_cache(maxsize=256)
def _operation(
    stage: str, sigma: float | None, taps: int | None, border: str, level: int, norm: str
) -> Operation:
    weights = IDENTITY
    if sigma is not None:
        weights = gaussian_weights(sigma, taps)
        radius, middle = trimmed_radius(weights), len(weights) // 2
        weights = weights[middle - radius : middle + radius + 1]
    return Operation(stage, weights, border, level, norm)


def _level(threshold: Any) -> int:
    if threshold is None:
        return -1
    if isinstance(threshold, bool) or not hasattr(threshold, "__index__") or not 0 <= int(threshold) <= 255:
        raise InvalidValueError(
            f"threshold must be a whole number from 0 to 255, or None for the magnitude, got {threshold!r}"
        )
    return int(threshold)
