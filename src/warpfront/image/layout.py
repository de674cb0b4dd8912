"""Where the pixels of an image lie in memory: any packed or planar layout, pitch in bytes, regions of interest.

`pixels_of` is a pure function of shape and strides; the CPU and the GPU start from what it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warpfront.errors import InvalidValueError

__all__ = ["LAYOUTS", "ORDERS", "Pixels", "contiguous_pixels", "pixels_of"]

LAYOUTS = ("packed", "planar", "gray")
ORDERS = ("rgb", "bgr")
# Keeps the kernels' column and row numbers, and their grids, within what they hold.
MAX_SIDE = 1 << 20


@dataclass(frozen=True)
class Pixels:
    """A batch of images of one size. All distances are in bytes, and any of them but ``step`` may be negative.

    Attributes
    ----------
    batch, height, width : int
    step : int
        From a pixel to the one on its right: 1 (planar, gray), 3 or 4 (packed).
    pitch, batch_stride : int
        From a row to the next, from an image to the next.
    offsets : tuple of int
        Of red, green and blue of the first pixel, from the array's first element; one offset for gray.
    batched : bool
        Whether the caller's array has an axis for the batch.
    """

    batch: int
    height: int
    width: int
    step: int
    pitch: int
    batch_stride: int
    offsets: tuple[int, ...]
    batched: bool

    @property
    def size(self) -> int:
        """Pixels of all images together."""
        return self.batch * self.height * self.width

    @property
    def gray(self) -> bool:
        """Whether a pixel is one byte."""
        return len(self.offsets) == 1

    @property
    def planar(self) -> bool:
        """Whether red, green and blue are three planes."""
        return len(self.offsets) == 3 and self.step == 1

    @property
    def low(self) -> int:
        """Lowest byte of any pixel, from the array's first element."""
        rows = min(0, (self.height - 1) * self.pitch)
        return min(self.offsets) + rows + min(0, (self.batch - 1) * self.batch_stride)

    @property
    def high(self) -> int:
        """One past the highest byte of any pixel, from the array's first element."""
        rows = max(0, (self.height - 1) * self.pitch)
        images = max(0, (self.batch - 1) * self.batch_stride)
        return max(self.offsets) + rows + images + (self.width - 1) * self.step + 1


def pixels_of(
    shape: tuple[int, ...], strides: tuple[int, ...], layout: str, order: str = "rgb"
) -> Pixels | None:
    """Return where an image's pixels lie.

    Parameters
    ----------
    shape, strides : tuple of int
        Of a uint8 array; strides in bytes. ``(h, w)`` is gray under any layout. ``"packed"``: ``(h, w, c)`` or
        ``(n, h, w, c)``; ``"planar"``: ``(c, h, w)`` or ``(n, c, h, w)``; ``"gray"``: also ``(n, h, w)``. ``c``
        is 3 or 4; the fourth channel (alpha) is not read.
    layout, order : str
        Of `LAYOUTS` and `ORDERS`.

    Returns
    -------
    Pixels or None
        ``None``: the pixels of a row do not lie side by side, and the caller has to copy them first.

    Raises
    ------
    InvalidValueError
        The shape does not fit the layout, or an axis is empty.
    """
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise InvalidValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if not isinstance(order, str) or order not in ORDERS:
        raise InvalidValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    return _pixels(shape, strides, layout, order)


@lru_cache(maxsize=1024)
def _pixels(shape: tuple[int, ...], strides: tuple[int, ...], layout: str, order: str) -> Pixels | None:
    h, w, c, n = _axes(shape, layout)
    if 0 in shape:
        raise InvalidValueError(f"an image must have at least one pixel, got shape {shape}")
    if max(shape[h], shape[w]) > MAX_SIDE:
        raise InvalidValueError(f"a side of an image is at most {MAX_SIDE} pixels, got shape {shape}")
    offsets: tuple[int, ...] = (0,)
    if c is not None:
        if shape[c] not in (3, 4):
            other = " (is it planar?)" if layout == "packed" else " (is it packed?)"
            raise InvalidValueError(
                f"a {layout} image has 3 or 4 channels on axis {c}, got shape {shape}{other}"
            )
        red, blue = (0, 2) if order == "rgb" else (2, 0)
        offsets = (red * strides[c], strides[c], blue * strides[c])
    step = strides[w] if shape[w] > 1 else _step_of_one(offsets, strides[w])
    if not _side_by_side(offsets, step):
        return None
    return Pixels(
        batch=shape[n] if n is not None else 1,
        height=shape[h],
        width=shape[w],
        step=step,
        pitch=strides[h] if shape[h] > 1 else step * shape[w],
        batch_stride=strides[n] if n is not None and shape[n] > 1 else 0,
        offsets=offsets,
        batched=n is not None,
    )


@lru_cache(maxsize=1024)
def contiguous_pixels(shape: tuple[int, ...], layout: str, order: str = "rgb") -> Pixels:
    """Return where the pixels of a C-ordered array of a shape lie; arguments and errors are those of `pixels_of`."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    pixels = pixels_of(shape, tuple(reversed(strides)), layout, order)
    assert pixels is not None  # the pixels of a C-ordered row lie side by side
    return pixels


def _axes(shape: tuple[int, ...], layout: str) -> tuple[int, int, int | None, int | None]:
    """Return the axes of height, width, channel and batch."""
    axes = len(shape)
    if axes == 2:
        return 0, 1, None, None
    if layout == "gray" and axes == 3:
        return 1, 2, None, 0
    if layout == "packed" and axes in (3, 4):
        return axes - 3, axes - 2, axes - 1, 0 if axes == 4 else None
    if layout == "planar" and axes in (3, 4):
        return axes - 2, axes - 1, axes - 3, 0 if axes == 4 else None
    wanted = {
        "packed": "(h, w, c) or (n, h, w, c)",
        "planar": "(c, h, w) or (n, c, h, w)",
        "gray": "(h, w) or (n, h, w)",
    }[layout]
    raise InvalidValueError(f"a {layout} image has shape {wanted}, got {shape}")


def _step_of_one(offsets: tuple[int, ...], stride: int) -> int:
    """Return the step of rows of one pixel, whose stride may be anything."""
    if len(offsets) == 1:
        return 1
    packed = max(offsets) - min(offsets) == 2
    return (stride if stride == 4 else 3) if packed else 1


def _side_by_side(offsets: tuple[int, ...], step: int) -> bool:
    """Whether a row is read without gaps: planes of single bytes, or pixels of 3 or 4 bytes."""
    if len(offsets) == 1:
        return step == 1
    packed = max(offsets) - min(offsets) == 2 and offsets[1] - min(offsets) == 1
    return step in (3, 4) if packed else step == 1
