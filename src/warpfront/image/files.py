"""Image files in and out of a pipeline: which files, how they are decoded, where results go. Needs Pillow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import FormatError, InvalidValueError

__all__ = ["SUFFIXES", "ImageFile", "decode", "encode", "find"]

SUFFIXES = (".png", ".jpg", ".jpeg")
# Modes of Pillow that hold more than 8 bits a sample: reducing them silently would change the picture.
_DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")

Place = Callable[[tuple[int, ...]], NDArray[np.uint8]]


@dataclass(frozen=True)
class ImageFile:
    """One file to read, and the one to write."""

    source: Path
    target: Path


def find(inputs: Sequence[Path], folder: Path) -> list[ImageFile]:
    """Return the image files of the inputs, in order, each with its place in ``folder``.

    Parameters
    ----------
    inputs : sequence of Path
        Files, and folders (searched with all below them, in alphabetical order). A folder's files keep their
        place in it.
    folder : Path
        Results go to ``folder/name.png``; where two inputs would meet there, to ``folder/name.suffix.png``.

    Raises
    ------
    InvalidValueError
        No image, a file that is no PNG or JPEG by its name, or a result that would replace an input.
    FileNotFoundError
        An input does not exist.
    """
    found: list[tuple[Path, Path]] = []
    for path in inputs:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if path.resolve() in folder.resolve().parents:
                # What an earlier run wrote below the input folder is no input.
                inside = [p for p in inside if folder.resolve() not in p.resolve().parents]
            found += [(p, p.relative_to(path)) for p in inside]
        elif not path.exists():
            raise FileNotFoundError(2, "no such file or folder", str(path))
        elif path.suffix.lower() in SUFFIXES:
            found.append((path, Path(path.name)))
        else:
            raise InvalidValueError(f"{path}: not a {', '.join(SUFFIXES)} file")
    if not found:
        raise InvalidValueError(
            f"no {', '.join(SUFFIXES)} file in {', '.join(str(p) for p in inputs) or 'nothing'}"
        )
    targets = _distinct([place for _, place in found])
    inputs_there = {source.resolve() for source, _ in found}
    result = [ImageFile(source, folder / target) for (source, _), target in zip(found, targets, strict=True)]
    for file in result:
        if file.target.resolve() in inputs_there:
            raise InvalidValueError(f"{file.target} would replace an input: choose another output folder")
    return result


def _distinct(places: list[Path]) -> list[Path]:
    """Return a name for each result, no two the same."""
    plain = Counter(place.with_suffix(".png") for place in places)
    names = [
        place.with_suffix(".png") if plain[place.with_suffix(".png")] == 1 else Path(f"{place}.png")
        for place in places
    ]
    taken: set[Path] = set()
    for k, name in enumerate(names):
        number = 1
        while names[k] in taken:
            number += 1
            names[k] = name.with_name(f"{name.stem}-{number}.png")
        taken.add(names[k])
    return names


def decode(path: Path, layout: str, place: Place) -> NDArray[np.uint8]:
    """Read an image file into memory that ``place`` gives: gray as (h, w), else RGB or RGBA in ``layout``.

    The camera's orientation mark is obeyed. Palettes become RGB.

    Raises
    ------
    FormatError
        Not an image, a damaged one, or one of more than 8 bits a sample.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            picture = ImageOps.exif_transpose(opened)
            if picture.mode in _DEEP:
                raise FormatError(
                    f"{path}: {picture.mode} has more than 8 bits a sample; convert it to 8 first"
                )
            if picture.mode not in ("L", "RGB", "RGBA"):
                picture = picture.convert("L" if picture.mode == "1" else "RGB")
            pixels = np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, FormatError):
            raise
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise FormatError(f"{path}: {' '.join(str(error).split())}") from None
    if pixels.ndim == 3 and layout == "planar":
        pixels = np.moveaxis(pixels, -1, 0)
    elif pixels.ndim == 3 and layout == "gray":
        raise FormatError(f"{path}: a colour image, and layout gray was asked for")
    memory = place(pixels.shape)
    np.copyto(memory, pixels)
    return memory


def encode(path: Path, edges: NDArray[np.uint8]) -> Any:
    """Write edges as an 8-bit gray PNG; folders are made. Returns the Pillow image that was written."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(edges)
    # Edges are mostly runs of one value: a fast setting is within a few percent of the best one.
    picture.save(path, compress_level=2)
    return picture
