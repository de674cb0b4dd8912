"""Inline SVG of where a matrix has entries. Colours are the page's own, so that it follows light and dark."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["spy"]

# A cell's shade by its share of nonzero entries; a single entry of a large matrix must stay visible.
SHADES = ((0.5, 1.0), (0.1, 0.8), (0.02, 0.6), (0.0, 0.42))


def spy(name: str, title: str, share: NDArray[np.float64]) -> str:
    """Draw a picture of `warpfront.sparse.plots.Portrait` as an ``<svg>`` with a title for screen readers."""
    m = share.shape[0]
    level = np.zeros(share.shape, np.int8)
    for k, (above, _) in enumerate(reversed(SHADES), start=1):
        level[share > above] = k
    drawn = ((opacity, _runs(level == k)) for k, (_, opacity) in enumerate(reversed(SHADES), start=1))
    paths = "".join(f'<path fill-opacity="{opacity}" d="{d}"/>' for opacity, d in drawn if d)
    label = f"{name}-title"
    return (
        f'<svg class="spy" fill="currentColor" role="img" aria-labelledby="{label}" viewBox="0 0 {m} {m}">'
        f'<title id="{label}">{escape(title)}</title>{paths}</svg>'
    )


def _runs(mask: Any) -> str:
    """Cells of a mask as one path, a rectangle for each horizontal run."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    row, begin = np.nonzero(edges == 1)
    end = np.nonzero(edges == -1)[1]
    return "".join(
        f"M{x} {y}h{width}v1h-{width}z"
        for x, y, width in zip(begin.tolist(), row.tolist(), (end - begin).tolist(), strict=True)
    )
