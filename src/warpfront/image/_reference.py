"""The image chain in plain NumPy integers, one stage after the other, each with the border on its own input.

Readable and slow; every test compares with it. Pixels are uint8, everything in between int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blur", "edges", "extended", "gray", "magnitude", "sobel", "threshold"]

# numpy.pad's names for the borders. NumPy's "reflect" is reflect101; its "symmetric" is reflect.
_PAD = {"clamp": "edge", "reflect": "symmetric", "reflect101": "reflect", "wrap": "wrap"}


def extended(a: NDArray[Any], radius: int, border: str) -> NDArray[np.int64]:
    """Return ``a`` with ``radius`` more pixels on each side, as the border says; of any size, 1 x 1 too."""
    wide = a.astype(np.int64)
    if border == "zero":
        return np.pad(wide, radius)
    return np.pad(wide, radius, mode=_PAD[border])  # type: ignore[call-overload, no-any-return]


def gray(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the gray values of RGB pixels on the last axis: 15-bit fixed point, rounded to nearest."""
    r, g, b = (pixels[..., k].astype(np.int64) for k in range(3))
    return ((9798 * r + 19235 * g + 3735 * b + 16384) >> 15).astype(np.uint8)


def blur(a: NDArray[np.uint8], weights: tuple[int, ...], border: str) -> NDArray[np.uint8]:
    """Return the Gaussian blur of a gray image: both passes exact, one rounding at the end."""
    height, width = a.shape
    wide = extended(a, len(weights) // 2, border)
    rows = np.zeros((wide.shape[0], width), np.int64)
    for k, weight in enumerate(weights):
        rows += weight * wide[:, k : k + width]
    total = np.zeros((height, width), np.int64)
    for k, weight in enumerate(weights):
        total += weight * rows[k : k + height]
    return ((total + 32768) >> 16).astype(np.uint8)


def sobel(a: NDArray[np.uint8], border: str) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return the 3 x 3 Sobel derivatives along x and y, exact."""
    height, width = a.shape
    wide = extended(a, 1, border)

    def at(dy: int, dx: int) -> NDArray[np.int64]:
        return wide[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    gx = at(-1, 1) - at(-1, -1) + 2 * (at(0, 1) - at(0, -1)) + at(1, 1) - at(1, -1)
    gy = at(1, -1) - at(-1, -1) + 2 * (at(1, 0) - at(-1, 0)) + at(1, 1) - at(-1, 1)
    return gx.astype(np.int16), gy.astype(np.int16)


def magnitude(gx: NDArray[np.int16], gy: NDArray[np.int16], norm: str = "l1") -> NDArray[np.uint8]:
    """Return ``|gx| + |gy|`` or the rounded Euclidean length, saturated at 255."""
    x, y = gx.astype(np.int64), gy.astype(np.int64)
    if norm == "l1":
        size = np.abs(x) + np.abs(y)
    else:
        size = np.rint(np.sqrt((x * x + y * y).astype(np.float64))).astype(np.int64)
    saturated: NDArray[np.uint8] = np.minimum(size, 255).astype(np.uint8)
    return saturated


def threshold(a: NDArray[np.uint8], level: int) -> NDArray[np.uint8]:
    """Return 255 where a pixel is strictly greater than ``level``, else 0."""
    return np.where(a > level, 255, 0).astype(np.uint8)


def edges(
    image: NDArray[np.uint8],
    weights: tuple[int, ...],
    level: int | None,
    border: str,
    norm: str = "l1",
) -> NDArray[np.uint8]:
    """Return the whole chain of one RGB image ``(h, w, 3)`` or gray image ``(h, w)``."""
    flat = image if image.ndim == 2 else gray(image)
    size = magnitude(*sobel(blur(flat, weights, border), border), norm)
    return size if level is None else threshold(size, level)
