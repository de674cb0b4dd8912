"""What is computed: the stage, its weights, border, threshold and norm, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpfront.errors import InvalidValueError
from warpfront.image.weights import gaussian_weights, trimmed_radius

__all__ = ["BORDERS", "NORMS", "Operation", "operation"]

# In the order of the kernels' codes.
BORDERS = ("clamp", "reflect", "reflect101", "wrap", "zero")
NORMS = ("l1", "l2")
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
    sigma: float | None = None,
    taps: int | None = None,
    border: str = "reflect101",
    threshold: Any = None,
    norm: str = "l1",
) -> Operation:
    """Check the options of a stage.

    Parameters
    ----------
    stage : str
    sigma : float, optional
        ``None``: no blur.
    taps, border, threshold, norm
        As `warpfront.image.edges`.

    Raises
    ------
    InvalidValueError
        An option has a value that is not offered; the message lists those that are.
    """
    if border not in BORDERS:
        raise InvalidValueError(
            f"border must be one of {', '.join(BORDERS)}, got {border!r} "
            "(numpy's and torch's reflect is reflect101, numpy's symmetric is reflect)"
        )
    if norm not in NORMS:
        raise InvalidValueError(f"norm must be l1 or l2, got {norm!r}")
    weights = IDENTITY
    if sigma is not None:
        weights = gaussian_weights(float(sigma), taps)
        radius = trimmed_radius(weights)
        middle = len(weights) // 2
        weights = weights[middle - radius : middle + radius + 1]
    return Operation(stage, weights, border, _level(threshold), norm)


def _level(threshold: Any) -> int:
    if threshold is None:
        return -1
    if isinstance(threshold, bool) or not hasattr(threshold, "__index__") or not 0 <= int(threshold) <= 255:
        raise InvalidValueError(
            f"threshold must be a whole number from 0 to 255, or None for the magnitude, got {threshold!r}"
        )
    return int(threshold)
