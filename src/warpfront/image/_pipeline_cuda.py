"""The pipeline's GPU half: pinned and device buffers, copies and kernel on a slot's stream, graphs, events.

For one image, on the slot's stream: event 0, copy to the device, event 1, kernel, event 2, copy back, event 3.
The first image of a shape on a slot is queued call by call; from the second on the whole is one graph, whose event nodes
are recorded at every replay. A last event, outside the graph, is what the worker waits for. Streams are
non-blocking: nothing waits for the legacy default stream, and slots on different streams for one another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.image import _edges_cuda as plans
from warpfront.image.layout import Pixels, contiguous_pixels
from warpfront.image.operation import Operation
from warpfront.image.ring import Slot
from warpfront.image.transfer import pinned_array

__all__ = ["CudaEngine"]

_GRAPHS_PER_SLOT = 16
_TO_DEVICE, _TO_HOST = 1, 2
_BLOCKING_SYNC = True
_EXTERNAL = 1  # CU_EVENT_RECORD_EXTERNAL: an event node that host code can read


@dataclass(frozen=True)
class _Buffers:
    source: Any  # pinned memory, and arrays on it
    result: Any
    source_array: NDArray[np.uint8]
    result_array: NDArray[np.uint8]
    device_source: Any
    device_result: Any
    events: tuple[Any, ...]
    done: Any


class CudaEngine:
    """One GPU.

    Parameters
    ----------
    what : Operation
    streams : int
    graphs : bool
    device : int
    """

    device = "cuda"

    def __init__(self, what: Operation, streams: int, graphs: bool, device: int = 0) -> None:
        import cupy

        self._what = what
        self._graphs = graphs
        self._ordinal = device
        self._lock = threading.Lock()
        self.streams = streams
        self.graphs_built = self.graphs_replayed = self.launches = 0
        with cupy.cuda.Device(device):
            self.stream_objects = [cupy.cuda.Stream(non_blocking=True) for _ in range(streams)]
            self._origin = cupy.cuda.Event()
            self._origin.record(self.stream_objects[0])

    def warm(self, layout: str) -> None:
        """Compile or load the kernels of gray images and of colour images in a layout."""
        shapes: list[tuple[int, ...]] = [(2, 2)]
        shapes += {"packed": [(2, 2, 3), (2, 2, 4)], "planar": [(3, 2, 2)]}.get(layout, [])
        for shape in shapes:
            plans.load(self._what, contiguous_pixels(shape, layout), self._ordinal)

    def allocate(self, slot: Slot, source_bytes: int, result_bytes: int) -> _Buffers:
        """Allocate past CuPy's pools, which would keep what is freed."""
        import cupy

        with cupy.cuda.Device(self._ordinal):
            source, result = cupy.cuda.PinnedMemory(source_bytes), cupy.cuda.PinnedMemory(result_bytes)
            return _Buffers(
                source,
                result,
                pinned_array(source, source_bytes),
                pinned_array(result, result_bytes),
                cupy.cuda.Memory(source_bytes),
                cupy.cuda.Memory(result_bytes),
                tuple(cupy.cuda.Event() for _ in range(4)),
                cupy.cuda.Event(block=_BLOCKING_SYNC, disable_timing=True),
            )

    def free(self, slot: Slot, buffers: _Buffers) -> None:
        """Nothing to do: the memory goes with its last reference."""

    def source(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the pinned memory an image is decoded into."""
        memory: NDArray[np.uint8] = slot.buffers.source_array[:nbytes]
        return memory

    def result(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the pinned memory the result lies in."""
        memory: NDArray[np.uint8] = slot.buffers.result_array[:nbytes]
        return memory

    def compute(self, slot: Slot, pixels: Pixels) -> dict[str, tuple[float, float]]:
        """Copy, compute, copy back, and wait for it."""
        import cupy

        stream = self.stream_objects[slot.number % self.streams]
        buffers: _Buffers = slot.buffers
        with cupy.cuda.Device(self._ordinal):
            # One thread at a time: a capture must not see another thread's allocation or launch set-up.
            with self._lock:
                graph = self._graph(slot, pixels, stream)
                if graph is None:
                    self._queue(buffers, pixels, stream, captured=False)
                    self.launches += 1
                else:
                    graph.launch(stream)
                    self.graphs_replayed += 1
                buffers.done.record(stream)
            buffers.done.synchronize()
            at = [1e-3 * cupy.cuda.get_elapsed_time(self._origin, event) for event in buffers.events]
        return {"h2d": (at[0], at[1]), "kernel": (at[1], at[2]), "d2h": (at[2], at[3])}

    def _graph(self, slot: Slot, pixels: Pixels, stream: Any) -> Any:
        """Return the graph of a shape, captured at its second image on this slot; ``None`` for the first."""
        if not self._graphs:
            return None
        kept: OrderedDict[Pixels, Any] = slot.state.setdefault("graphs", OrderedDict())
        seen: set[Pixels] = slot.state.setdefault("seen", set())
        if pixels in kept:
            kept.move_to_end(pixels)
            return kept[pixels]
        if pixels not in seen:
            if len(seen) >= 4 * _GRAPHS_PER_SLOT:
                seen.clear()
            seen.add(pixels)
            return None
        with stream:
            stream.begin_capture()
            try:
                self._queue(slot.buffers, pixels, stream, captured=True)
            finally:
                graph = stream.end_capture()
        self.graphs_built += 1
        kept[pixels] = graph
        if len(kept) > _GRAPHS_PER_SLOT:
            kept.popitem(last=False)
        return graph

    def _queue(self, buffers: _Buffers, pixels: Pixels, stream: Any, *, captured: bool) -> None:
        from cupy.cuda import runtime

        nbytes = pixels.high - pixels.low
        self._mark(buffers.events[0], stream, captured)
        runtime.memcpyAsync(buffers.device_source.ptr, buffers.source.ptr, nbytes, _TO_DEVICE, stream.ptr)
        self._mark(buffers.events[1], stream, captured)
        plans.queue(
            self._what,
            pixels,
            buffers.device_source.ptr,
            (buffers.device_result.ptr,),
            (pixels.width, pixels.width * pixels.height),
            self._ordinal,
            stream.ptr,
        )
        self._mark(buffers.events[2], stream, captured)
        runtime.memcpyAsync(buffers.result.ptr, buffers.device_result.ptr, pixels.size, _TO_HOST, stream.ptr)
        self._mark(buffers.events[3], stream, captured)

    @staticmethod
    def _mark(event: Any, stream: Any, captured: bool) -> None:
        if not captured:
            event.record(stream)
            return
        from cuda.bindings import driver

        (code,) = driver.cuEventRecordWithFlags(event.ptr, stream.ptr, _EXTERNAL)
        if int(code) != 0:
            raise RuntimeError(f"an event could not be captured: {code.name}")
