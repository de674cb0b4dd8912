"""NumPy arrays to a GPU and back, through pinned memory, by several threads.

The driver copies pageable memory through one small buffer of its own, a tenth as fast as the link. Here each of a few
lanes has a stream and two pinned chunks: while one chunk travels, a thread fills (or empties) the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import cpu, settings

__all__ = ["SMALL_BYTES", "to_device", "to_host"]

# Below this a plain copy is as fast.
SMALL_BYTES = 1 << 20
_CHUNK = 2 << 20
_LANES = 4
_TO_DEVICE, _TO_HOST = 1, 2
_LOCK = threading.Lock()


class _Lane:
    def __init__(self) -> None:
        import cupy

        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.chunks = [cupy.cuda.PinnedMemory(_CHUNK) for _ in range(2)]
        self.arrays = [pinned_array(chunk, _CHUNK) for chunk in self.chunks]
        self.events = [cupy.cuda.Event(block=True, disable_timing=True) for _ in range(2)]


def pinned_array(memory: Any, nbytes: int) -> NDArray[np.uint8]:
    """Return the first bytes of a piece of pinned memory as an array; the caller keeps the memory."""
    import ctypes

    block = (ctypes.c_uint8 * nbytes).from_address(memory.ptr)
    array: NDArray[np.uint8] = np.ctypeslib.as_array(block)
    return array


@cache
def _lanes(device: int) -> list[_Lane]:
    import cupy

    with cupy.cuda.Device(device):
        return [_Lane() for _ in range(_LANES)]


def to_device(host: NDArray[np.uint8], pointer: int, device: int) -> None:
    """Copy a flat host array to device memory that nothing queued uses; returns when it is there."""
    from cupy.cuda import runtime

    def step(lane: _Lane, turn: int, at: int, size: int) -> None:
        lane.events[turn].synchronize()  # the chunk's last journey
        np.copyto(lane.arrays[turn][:size], host[at : at + size])
        runtime.memcpyAsync(pointer + at, lane.chunks[turn].ptr, size, _TO_DEVICE, lane.stream.ptr)
        lane.events[turn].record(lane.stream)

    _share_out(host.nbytes, device, step)


def to_host(pointer: int, host: NDArray[np.uint8], device: int) -> None:
    """Copy device memory, whose contents are complete, to a flat host array."""
    from cupy.cuda import runtime

    def step(lane: _Lane, turn: int, at: int, size: int) -> None:
        runtime.memcpyAsync(lane.chunks[turn].ptr, pointer + at, size, _TO_HOST, lane.stream.ptr)
        lane.events[turn].record(lane.stream)
        lane.events[turn].synchronize()
        np.copyto(host[at : at + size], lane.arrays[turn][:size])

    _share_out(host.nbytes, device, step)


def _share_out(nbytes: int, device: int, step: Callable[[_Lane, int, int, int], None]) -> None:
    """Call ``step(lane, turn, offset, size)`` for every chunk, lanes in threads of their own; then wait."""
    import cupy

    chunks = -(-nbytes // _CHUNK)
    with _LOCK:
        lanes, counter = _lanes(device), count()

        def body(number: int) -> None:
            lane, turn = lanes[number], 0
            with cupy.cuda.Device(device):
                while (k := next(counter)) < chunks:
                    step(lane, turn, k * _CHUNK, min(_CHUNK, nbytes - k * _CHUNK))
                    turn = 1 - turn
                lane.stream.synchronize()

        cpu.run_threads(min(_LANES, settings.threads(), chunks), body)
