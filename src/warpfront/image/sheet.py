"""A contact sheet: what went in and what came out, side by side, with the names. Needs Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST", "Pair", "chosen", "contact_sheet", "pair_of"]

MOST = 24
_CELL, _GAP, _LINE = (240, 180), 10, 16
_PAPER, _INK, _FRAME = (250, 250, 248), (30, 30, 30), (205, 205, 200)


@dataclass(frozen=True)
class Pair:
    """Thumbnails of an image and of its edges."""

    name: str
    before: Any
    after: Any


def chosen(count: int, most: int = MOST) -> set[int]:
    """Return which of ``count`` images are shown: all, or ``most`` spread evenly, first and last among them."""
    if count <= most:
        return set(range(count))
    return {round(k * (count - 1) / (most - 1)) for k in range(most)}


def pair_of(name: str, image: NDArray[np.uint8], edges: NDArray[np.uint8], layout: str) -> Pair:
    """Return the thumbnails of one image."""
    from PIL import Image

    pixels = np.moveaxis(image, 0, -1) if image.ndim == 3 and layout == "planar" else image
    pictures = (
        Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB"),
        Image.fromarray(edges).convert("RGB"),
    )
    for picture in pictures:
        # Averages, not samples: a line of one pixel must not vanish.
        picture.thumbnail(_CELL, Image.Resampling.BOX)
    return Pair(name, *pictures)


def contact_sheet(pairs: Sequence[Pair], title: str, path: Path) -> None:
    """Write the sheet as a PNG: pairs in columns, the image above its edges.

    Parameters
    ----------
    pairs : sequence of Pair
        In the order shown, at least one.
    title : str
        A line above them.
    path : Path
        Folders are made.
    """
    from PIL import Image, ImageDraw, ImageFont

    columns = min(len(pairs), max(2, round((2 * len(pairs)) ** 0.5)))
    rows = -(-len(pairs) // columns)
    cell_height = 2 * _CELL[1] + _LINE + 2 * _GAP
    width = _GAP + columns * (_CELL[0] + _GAP)
    sheet = Image.new("RGB", (max(width, 420), 3 * _GAP + _LINE + rows * cell_height), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    draw.text((_GAP, _GAP), _fitted(draw, title, font, sheet.width - 2 * _GAP), fill=_INK, font=font)
    for k, pair in enumerate(pairs):
        x = _GAP + k % columns * (_CELL[0] + _GAP)
        y = 2 * _GAP + _LINE + k // columns * cell_height
        for n, picture in enumerate((pair.before, pair.after)):
            left = x + (_CELL[0] - picture.width) // 2
            top = y + n * (_CELL[1] + _GAP // 2) + (_CELL[1] - picture.height) // 2
            sheet.paste(picture, (left, top))
            draw.rectangle((left - 1, top - 1, left + picture.width, top + picture.height), outline=_FRAME)
        name = _fitted(draw, pair.name, font, _CELL[0])
        draw.text((x, y + 2 * _CELL[1] + _GAP // 2 + 2), name, fill=_INK, font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def _fitted(draw: Any, text: str, font: Any, width: int) -> str:
    """Return the text, shortened in the middle until it fits; what the font cannot show becomes a question mark."""
    text = text.encode("latin-1", "replace").decode("latin-1")
    short, keep = text, len(text)
    while keep > 8 and draw.textlength(short, font=font) > width:
        keep -= 1
        short = text[: keep // 2] + ".." + text[len(text) - keep // 2 :]
    return short
