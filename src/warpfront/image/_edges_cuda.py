"""The image chain on the GPU: what the host decides.

`plan` is a pure function of the operation, the pixels and the alignments, testable without a GPU.

| stage | kernel |
|---|---|
| ``gray`` | ``image_gray`` of ``edges.cu``: a thread owns 16 pixels |
| ``blur``, ``edges``, ``sobel`` | ``image_chain`` of ``edges.cu``: a block owns a tile, in three phases |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from warpfront.backend import cuda
from warpfront.backend.arrays import DeviceView
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.image.layout import Pixels
from warpfront.image.operation import Operation

__all__ = ["TILE", "Plan", "instantiations", "launch", "plan", "shared_bytes", "subset", "takes"]

SOURCE = FilePath(__file__).parent / "edges.cu"
# (tile columns, tile rows, threads, rows a thread finishes), from the H200's record. Without a blur there is one array less
# in shared memory, and with a long one the halo weighs more: both like higher tiles.
TILE, HIGH_TILE = (128, 32, 128, 4), (128, 64, 128, 8)
LONG_RADIUS = 8
GRAY_THREADS = 256
MAX_GRID = 2**31 - 1  # across; down, a side of 2^20 has fewer than the 65535 that a launch may have

FORMATS = (0, 1, 3, 4)  # gray, planar, packed
RADII = range(16)
_EDGES, _BLUR, _DERIVATIVES = range(3)
_CHAIN_SIGNATURE = "ppp" + "q" * 9
_GRAY_SIGNATURE = "pp" + "q" * 8


@dataclass(frozen=True)
class Plan:
    """One launch.

    Attributes
    ----------
    source : pathlib.Path
    expression, signature : str
    grid : tuple of int
        Blocks in two directions.
    threads, shared_bytes : int
    outputs : int
        Pointers to outputs that come first; the pointer to the lowest byte of the images follows.
    tail : tuple of int
        The arguments after the pointers.
    """

    source: FilePath
    expression: str
    signature: str
    grid: tuple[int, int]
    threads: int
    shared_bytes: int
    outputs: int
    tail: tuple[int, ...]


def takes(pixels: Pixels) -> bool:
    """Return whether the kernels read these pixels as they lie; others are copied first."""
    return pixels.pitch >= 0 and pixels.batch_stride >= 0


def format_of(pixels: Pixels) -> int:
    """Return the kernels' code of a format."""
    return 0 if pixels.gray else 1 if pixels.planar else pixels.step


def tile_of(radius: int) -> tuple[int, int, int, int]:
    """Return the tile for a blur of a radius."""
    return HIGH_TILE if radius == 0 or radius >= LONG_RADIUS else TILE


def shared_bytes(operation: Operation, pixels: Pixels, tile: tuple[int, int, int, int] | None = None) -> int:
    """Return the shared memory of one block."""
    if operation.stage == "gray" or (operation.stage == "blur" and operation.radius == 0):
        return 0
    radius = operation.radius
    columns, rows, _, _ = tile or tile_of(radius)
    halo = radius + 1
    side = 4 if halo <= 4 else 8 if halo <= 8 else 16
    words = (rows + 2 * halo) * (columns + 2 * max(side, 8)) // 2
    return 4 * (words + ((rows + 2) * (columns + 2 * side) // 2 if radius else 0))


def plan(
    operation: Operation,
    pixels: Pixels,
    *,
    src_align: int,
    dst_align: int,
    dst_pitch: int,
    dst_stride: int,
    tile: tuple[int, int, int, int] | None = None,
) -> Plan:
    """Return the launch that computes a batch.

    Parameters
    ----------
    operation : Operation
    pixels : Pixels
        Such that `takes`.
    src_align, dst_align : int
        Largest power of two up to 16 that divides the address of every row of the images (and planes), of the outputs.
    dst_pitch, dst_stride : int
        Bytes from a row of the output to the next, and from an image to the next.
    tile : tuple of int, optional
        Tile columns and rows, threads, rows that a thread finishes. Default: `tile_of`.

    Raises
    ------
    NotSupportedError
        More blocks than a launch can have.
    """
    options = _options(operation, pixels, src_align, dst_align)
    size = pixels.height | pixels.width << 32
    plane = abs(pixels.offsets[1] - pixels.offsets[0]) if pixels.planar else 0
    layout = (size, options, pixels.pitch, pixels.batch_stride, plane, dst_pitch, dst_stride)
    code = format_of(pixels)
    if operation.stage == "gray" or (operation.stage == "blur" and operation.radius == 0):
        count = pixels.batch * pixels.height * -(-pixels.width // 16)
        result = Plan(
            SOURCE,
            f"image_gray<{code}, {GRAY_THREADS}>",
            _GRAY_SIGNATURE,
            (-(-count // GRAY_THREADS), 1),
            GRAY_THREADS,
            0,
            1,
            (*layout, count),
        )
    else:
        tile = tile or tile_of(operation.radius)
        columns, rows, threads, _ = tile
        kind = {"edges": _EDGES, "blur": _BLUR, "sobel": _DERIVATIVES}[operation.stage]
        result = Plan(
            SOURCE,
            _chain(code, operation.radius, kind, tile),
            _CHAIN_SIGNATURE,
            (pixels.batch * -(-pixels.width // columns), -(-pixels.height // rows)),
            threads,
            shared_bytes(operation, pixels, tile),
            2,
            (*layout, *_packed(operation.weights)),
        )
    if result.grid[0] > MAX_GRID:
        raise NotSupportedError(
            f"the batch needs {result.grid[0]} blocks, a launch has at most {MAX_GRID}: give fewer images a call"
        )
    return result


def _options(operation: Operation, pixels: Pixels, src_align: int, dst_align: int) -> int:
    """Return the bits of `Options` in ``source.cuh``."""
    return (
        operation.border_code
        | (src_align >= 16) << 3
        | (pixels.offsets[0] > pixels.offsets[-1]) << 4
        | (operation.norm == "l2") << 5
        | (dst_align.bit_length() - 1) << 6
        | (operation.threshold >= 0) << 9
        | max(operation.threshold, 0) << 16
        | _half_level(operation.threshold) << 32
    )


def _chain(code: int, radius: int, kind: int, tile: tuple[int, int, int, int]) -> str:
    return f"image_chain<{code}, {radius}, {kind}, {', '.join(map(str, tile))}>"


def _half_level(threshold: int) -> int:
    """Return the bits of the half-precision number that magnitudes are compared with."""
    # They are not saturated before the comparison, so 255 becomes a number that none exceeds.
    return int(np.float16(threshold if 0 <= threshold < 255 else 2048).view(np.uint16))


def _packed(weights: tuple[int, ...]) -> tuple[int, int]:
    """Return the weights up to the centre as bytes of two words; the identity has no weights to pass."""
    half = weights[: len(weights) // 2 + 1] if len(weights) > 1 else ()
    data = bytes(half).ljust(16, b"\0")
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def instantiations() -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return all that `plan` can ask for with the tuned tile: (file, expressions, least architecture)."""
    names = [f"image_gray<{code}, {GRAY_THREADS}>" for code in FORMATS]
    for code in FORMATS:
        names += [_chain(code, radius, _EDGES, tile_of(radius)) for radius in RADII]
        names += [_chain(code, radius, _BLUR, tile_of(radius)) for radius in RADII if radius]
        names.append(_chain(code, 0, _DERIVATIVES, tile_of(0)))
    return [(SOURCE, tuple(names), 75)]


def subset() -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return a covering part: every format, every kind of result, least, usual, odd and largest radius."""
    names = [f"image_gray<{code}, {GRAY_THREADS}>" for code in FORMATS]
    names += [
        _chain(code, radius, _EDGES, tile_of(radius))
        for code, radius in zip(FORMATS, (0, 2, 2, 5), strict=True)
    ]
    names += [_chain(3, 15, _EDGES, HIGH_TILE), _chain(0, 2, _BLUR, TILE), _chain(1, 15, _BLUR, HIGH_TILE)]
    names.append(_chain(0, 0, _DERIVATIVES, HIGH_TILE))
    return [(SOURCE, tuple(names), 75)]


def alignment(*values: int) -> int:
    """Return the largest power of two up to 16 that divides every value."""
    bits = 16
    for value in values:
        bits |= abs(value)
    return bits & -bits


@lru_cache(maxsize=1024)
def _prepared(
    operation: Operation, pixels: Pixels, aligns: tuple[int, int], steps: tuple[int, int], device: int
) -> tuple[cuda.Kernel, Plan]:
    """Kernel and plan; kept, so that a repeated call goes straight to the launch."""
    made = plan(
        operation, pixels, src_align=aligns[0], dst_align=aligns[1], dst_pitch=steps[0], dst_stride=steps[1]
    )
    return cuda.load(made.source, made.expression, made.signature, device), made


def load(operation: Operation, pixels: Pixels, device: int) -> cuda.Kernel:
    """Compile or load the kernel of an operation and a format; nothing is launched."""
    made = plan(operation, pixels, src_align=1, dst_align=1, dst_pitch=1, dst_stride=1)
    return cuda.load(made.source, made.expression, made.signature, device)


def launch(operation: Operation, pixels: Pixels, source: DeviceView, targets: tuple[DeviceView, ...]) -> None:
    """Queue one batch on the image's current stream."""
    batched = pixels.batched
    pitches = {t.strides[-2] for t in targets}
    strides = {t.strides[0] if batched else 0 for t in targets}
    if len(pitches) > 1 or len(strides) > 1:
        raise InvalidValueError("the two outputs must have the same strides")
    queue(
        operation,
        pixels,
        source.pointer + pixels.low,
        tuple(t.pointer for t in targets),
        (pitches.pop(), strides.pop()),
        source.device,
        source.stream,
    )


def queue(
    operation: Operation,
    pixels: Pixels,
    src: int,
    dst: tuple[int, ...],
    steps: tuple[int, int],
    device: int,
    stream: int,
) -> None:
    """Queue one batch: addresses of the images' lowest byte and of the outputs, pitch and stride of the outputs."""
    planes = pixels.offsets[1] - pixels.offsets[0] if pixels.planar else 0
    aligns = (
        alignment(src, pixels.pitch, pixels.batch_stride, planes),
        alignment(*dst, *steps),
    )
    kernel, made = _prepared(operation, pixels, aligns, steps, device)
    pointers: tuple[Any, ...] = (dst * 2)[: made.outputs]
    kernel.launch(stream, made.grid, made.threads, (*pointers, src, *made.tail), made.shared_bytes)
