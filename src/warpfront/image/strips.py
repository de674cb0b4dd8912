"""Run an operation on the CPU: strips of rows, dealt out to threads. The bits do not depend on how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import cpu, settings
from warpfront.image.layout import Pixels
from warpfront.image.operation import Operation

__all__ = ["Memory", "run"]

# Below this many pixels a thread costs more than it saves.
_THREAD_PIXELS = 1 << 15
_LARGE_PIXELS = 1 << 21
# Rows of a block of columns and of the kernel's ring fit the second-level cache.
_BLOCK_COLUMNS = 4096
_STRIP_ROWS = (32, 256)


class Memory:
    """The bytes of an array's pixels as one flat array, whatever its strides."""

    def __init__(self, owner: Any, address: int, nbytes: int, writable: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, not writable),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    @classmethod
    def of(cls, array: NDArray[np.uint8], pixels: Pixels, writable: bool = False) -> NDArray[np.uint8]:
        """Return the flat array: from the lowest byte of any pixel to the highest."""
        address = int(array.__array_interface__["data"][0]) + pixels.low
        return np.asarray(cls(array, address, pixels.high - pixels.low, writable))


def run(
    operation: Operation,
    image: tuple[NDArray[np.uint8], Pixels],
    outputs: tuple[tuple[NDArray[Any], Pixels | None], ...],
) -> None:
    """Compute a batch.

    Parameters
    ----------
    operation : Operation
    image : (uint8 array, Pixels)
        Read.
    outputs : tuple of (array, Pixels)
        Written: one uint8 output, or for ``"sobel"`` two int16 arrays ``(n, h, w)`` without `Pixels`.
    """
    pixels = image[1]
    most = settings.threads()
    tasks = list(_tasks(operation, image, outputs, most))
    threads = min(most, len(tasks), max(1, pixels.size // _THREAD_PIXELS))
    counter = count()

    def body(_: int) -> None:
        while (k := next(counter)) < len(tasks):
            kernel, arguments = tasks[k]
            kernel(*arguments)

    cpu.run_threads(threads, body)


def _tasks(
    operation: Operation,
    image: tuple[NDArray[np.uint8], Pixels],
    outputs: tuple[tuple[NDArray[Any], Pixels | None], ...],
    threads: int,
) -> Iterator[tuple[Callable[..., None], tuple[Any, ...]]]:
    from warpfront.image import _edges_cpu as kernels

    array, pixels = image
    flat = Memory.of(array, pixels)
    target, out_pixels = outputs[0]
    out = Memory.of(target, out_pixels, writable=True) if out_pixels is not None else None
    weights = _weights(operation)
    # Several strips a thread, so that one that is held up does not hold up the rest; few for small images, because a
    # strip computes the rows around it again.
    each = 4 if pixels.size >= _LARGE_PIXELS else 2
    share = pixels.size // (each * threads * pixels.width)
    rows = min(max(share, _STRIP_ROWS[0]), _STRIP_ROWS[1])
    for k in range(pixels.batch):
        geometry = _geometry(operation, pixels, out_pixels, k)
        for y in range(0, pixels.height, rows):
            span = (y, min(y + rows, pixels.height))
            if operation.stage == "gray":
                yield kernels.gray_strip, (flat, out, geometry, *span)
            elif operation.stage == "sobel":
                yield kernels.sobel_strip, (flat, outputs[0][0][k], outputs[1][0][k], geometry, *span)
            else:
                kernel = kernels.edges_strip if operation.stage == "edges" else kernels.blur_strip
                for x in range(0, pixels.width, _BLOCK_COLUMNS):
                    columns = (x, min(x + _BLOCK_COLUMNS, pixels.width))
                    yield kernel, (flat, out, geometry, weights, *span, *columns)


@lru_cache(maxsize=256)
def _weights(operation: Operation) -> NDArray[np.uint32]:
    return np.array(operation.weights[: operation.radius + 1], np.uint32)


def _geometry(operation: Operation, pixels: Pixels, out: Pixels | None, k: int) -> NDArray[np.int64]:
    at = k * pixels.batch_stride - pixels.low
    offsets = [offset + at for offset in pixels.offsets]
    place = (k * out.batch_stride - out.low, out.pitch) if out is not None else (0, 0)
    return np.array(
        [
            pixels.height,
            pixels.width,
            pixels.step,
            pixels.pitch,
            *(offsets * 3)[:3],
            *place,
            operation.radius,
            operation.border_code,
            operation.threshold,
            1 if operation.norm == "l1" else 2,
            pixels.gray,
        ],
        np.int64,
    )
