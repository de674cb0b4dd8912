"""A stream of images through `edges`: decode, copy, compute, copy back and encode at the same time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability, dispatch
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.image import run as running
from warpfront.image import strips
from warpfront.image.layout import Pixels, contiguous_pixels, pixels_of
from warpfront.image.operation import Operation, operation
from warpfront.image.pipeline_record import Interval, PipelineRecord, StageTime, quantile
from warpfront.image.ring import Ring, Slot

__all__ = ["EdgePipeline", "Engine"]

Place = Callable[[tuple[int, ...]], NDArray[np.uint8]]
_STAGES = ("decode", "stage", "h2d", "kernel", "d2h", "encode")


class Engine(Protocol):
    """What the pipeline asks of the device; `CpuEngine` here, the GPU's in `_pipeline_cuda`."""

    device: str
    streams: int
    graphs_built: int
    graphs_replayed: int
    launches: int

    def warm(self, layout: str) -> None:
        """Compile or load what images of a layout need."""

    def allocate(self, slot: Slot, source_bytes: int, result_bytes: int) -> Any:
        """Return the buffers of a slot."""

    def free(self, slot: Slot, buffers: Any) -> None:
        """Free them; nothing queued uses them any more."""

    def source(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the host memory that an image is decoded into."""

    def compute(self, slot: Slot, pixels: Pixels) -> dict[str, tuple[float, float]]:
        """Compute what lies in ``source`` and wait; begin and end of each stage, in seconds of one clock."""

    def result(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the host memory that the result lies in."""


class CpuEngine:
    """Strips on the CPU; source and result are plain memory."""

    device = "cpu"

    def __init__(self, what: Operation) -> None:
        self._what = what
        self.streams = self.graphs_built = self.graphs_replayed = self.launches = 0

    def warm(self, layout: str) -> None:
        """Compute one pixel."""
        pixel = np.zeros((1, 1), np.uint8)
        pixels = contiguous_pixels((1, 1), layout, "rgb")
        strips.run(self._what, (pixel, pixels), ((pixel.copy(), pixels),))

    def allocate(self, slot: Slot, source_bytes: int, result_bytes: int) -> Any:
        """Return two arrays."""
        return np.empty(source_bytes, np.uint8), np.empty(result_bytes, np.uint8)

    def free(self, slot: Slot, buffers: Any) -> None:
        """Leave them to the garbage collector."""

    def source(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the memory an image is decoded into."""
        memory: NDArray[np.uint8] = slot.buffers[0][:nbytes]
        return memory

    def compute(self, slot: Slot, pixels: Pixels) -> dict[str, tuple[float, float]]:
        """Compute on the CPU's threads."""
        begin = perf_counter()
        target = slot.buffers[1][: pixels.size].reshape(pixels.batch, pixels.height, pixels.width)
        strips.run(
            self._what,
            (slot.buffers[0], pixels),
            ((target, pixels_of(target.shape, target.strides, "gray")),),
        )
        return {"kernel": (begin, perf_counter())}

    def result(self, slot: Slot, nbytes: int) -> NDArray[np.uint8]:
        """Return the memory the result lies in."""
        memory: NDArray[np.uint8] = slot.buffers[1][:nbytes]
        return memory


@dataclass
class _Run:
    """What one run gathers, from several threads."""

    begin: float = field(default_factory=perf_counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stages: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in _STAGES})
    latencies: list[float] = field(default_factory=list)
    timeline: list[Interval] = field(default_factory=list)
    images: int = 0
    pixels: int = 0


class EdgePipeline:
    """Find edges in a stream of images, several of them in flight.

    An image goes through decode -> ring slot (pinned memory) -> copy to the device -> kernel -> copy back -> encode.
    Each of the ``slots`` in flight has a worker thread and its own memory, and slots share out the streams, so that
    copies in both directions, kernels, decoding and encoding overlap. Same results as `warpfront.image.edges`.

    Parameters
    ----------
    sigma, taps, threshold, border, norm, layout, order
        As `warpfront.image.edges`.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: a GPU if there is one.
    slots : int
        Images in flight, 1 to 64. Three keep both copy directions and the kernel busy.
    streams : int
        CUDA streams, 1 to 64.
    byte_cap : int
        Most bytes that the slots' buffers hold together, in host and in device memory each.
    graphs : bool
        Replay a CUDA graph for a shape that comes again, one for each slot and shape; least recently used go first.
    timeline : bool
        Keep begin and end of every copy and kernel in the record.

    Raises
    ------
    InvalidValueError
        An option has a value that is not offered.
    NotSupportedError
        ``device="cuda"`` and no GPU can be used.
    """

    def __init__(
        self,
        *,
        layout: str = "packed",
        order: str = "rgb",
        device: dispatch.Device = "auto",
        slots: int = 4,
        streams: int = 2,
        byte_cap: int = 1 << 30,
        graphs: bool = True,
        timeline: bool = False,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        unknown = set(options) - {"sigma", "taps", "threshold", "border", "norm"}
        if unknown:
            raise InvalidValueError(f"EdgePipeline has no option {', '.join(sorted(unknown))}")
        for name, value in (("slots", slots), ("streams", streams)):
            if not isinstance(value, int) or not 1 <= value <= 64:
                raise InvalidValueError(f"{name} must be 1 to 64, got {value!r}")
        pixels_of((1, 1), (1, 1), layout, order)  # refuses a layout or an order that is not offered
        self.operation = operation("edges", **{"sigma": 0.0, "threshold": 100, **options})
        self._layout, self._order = layout, order
        self._timeline = timeline
        if engine is None:
            engine, self._reason = _engine(self.operation, device, streams, graphs)
        else:
            self._reason = "engine given"
        self._engine: Engine = engine
        self._ring = Ring(slots, byte_cap, engine.allocate, engine.free)
        self._record: PipelineRecord | None = None
        self._prepare_seconds: float | None = None

    @property
    def record(self) -> PipelineRecord:
        """What the last finished run did.

        Raises
        ------
        InvalidValueError
            No run has finished yet.
        """
        if self._record is None:
            raise InvalidValueError("no run has finished yet: the record is complete after the last result")
        return self._record

    def run(
        self,
        items: Iterable[Any],
        *,
        decode: Callable[[Any, Place], NDArray[np.uint8]] | None = None,
        encode: Callable[[Any, NDArray[np.uint8]], Any] | None = None,
    ) -> Iterator[Any]:
        """Yield one result for each item, in order.

        Parameters
        ----------
        items : iterable
            Images, or whatever ``decode`` takes.
        decode : callable, optional
            ``decode(item, place)`` returns the image as a uint8 array; ``place(shape)`` gives it C-ordered
            memory to write into, pinned on a GPU, which saves a copy. Runs in a worker thread. Default: the item is
            the image.
        encode : callable, optional
            ``encode(item, edges)`` in a worker thread; its return value is the result. The array is only valid
            until it returns. Default: a copy of the edges.

        Yields
        ------
        object
            What ``encode`` returned, or the uint8 edges. An exception of ``decode`` or ``encode``, or of an image that
            does not fit, is raised in its place in the order and ends the run.
        """
        if self._prepare_seconds is None:
            begin = perf_counter()
            self._engine.warm(self._layout)
            self._prepare_seconds = perf_counter() - begin
        state = _Run()
        waiting: deque[Future[Any]] = deque()
        slots = len(self._ring.slots)
        with ThreadPoolExecutor(slots, thread_name_prefix="warpfront-edges") as pool:
            try:
                for number, item in enumerate(items):
                    waiting.append(pool.submit(self._one, state, number, item, decode, encode))
                    # One more than the slots, so that a slot never waits for the consumer.
                    if len(waiting) > slots:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
        self._record = self._finished(state)

    def close(self) -> None:
        """Free all buffers. The pipeline may be used again."""
        self._ring.clear()

    def _one(self, state: _Run, number: int, item: Any, decode: Any, encode: Any) -> Any:
        begin = perf_counter()
        taken: list[Slot] = []
        try:
            image = np.asarray(item if decode is None else decode(item, lambda s: self._place(taken, s)))
            times = {"decode": (begin, perf_counter())}
            pixels = self._staged(taken, image, times)
            slot = taken[0]
            device_times = self._engine.compute(slot, pixels)
            out = self._engine.result(slot, pixels.size)
            shape = (pixels.height, pixels.width)
            edges = out.reshape((pixels.batch, *shape) if pixels.batched else shape)
            start = perf_counter()
            result = edges.copy() if encode is None else encode(item, edges)
            end = perf_counter()
            if encode is not None:
                times["encode"] = (start, end)
        except InvalidValueError as error:
            raise type(error)(f"item {number}: {error}") from None
        finally:
            for slot in taken:
                self._ring.give_back(slot)
        with state.lock:
            state.images += pixels.batch
            state.pixels += pixels.size
            state.latencies.append(end - begin)
            for name, (first, last) in (times | device_times).items():
                state.stages[name].append(last - first)
            if self._timeline:
                state.timeline += [
                    Interval(number, slot.number, name, *span) for name, span in device_times.items()
                ]
        return result

    def _place(self, taken: list[Slot], shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Lend the slot that an image is decoded into."""
        shape = tuple(shape)
        pixels = contiguous_pixels(shape, self._layout, self._order)
        nbytes = int(np.prod(shape))
        if taken:
            raise InvalidValueError("place() was called twice for one image")
        taken.append(self._ring.lend(nbytes, pixels.size))
        return self._engine.source(taken[0], nbytes).reshape(shape)

    def _staged(
        self, taken: list[Slot], image: NDArray[Any], times: dict[str, tuple[float, float]]
    ) -> Pixels:
        """Make sure that the image lies in a slot, C-ordered."""
        running.check_type(str(image.dtype))
        pixels = contiguous_pixels(image.shape, self._layout, self._order)
        if taken:
            own = self._engine.source(taken[0], image.nbytes)
            if _address(image) == _address(own) and image.flags.c_contiguous:
                return pixels
            self._ring.give_back(taken.pop())
        start = perf_counter()
        place = self._place(taken, image.shape)
        np.copyto(place, image)
        times["stage"] = (start, perf_counter())
        return pixels

    def _finished(self, state: _Run) -> PipelineRecord:
        seconds = max(perf_counter() - state.begin, 1e-9)
        stages = tuple(
            StageTime(name, sum(values), quantile(values, 0.5), quantile(values, 0.95))
            for name, values in state.stages.items()
            if values
        )
        origin = min((interval.begin_seconds for interval in state.timeline), default=0.0)
        timeline = sorted(
            (
                replace(i, begin_seconds=i.begin_seconds - origin, end_seconds=i.end_seconds - origin)
                for i in state.timeline
            ),
            key=lambda interval: interval.begin_seconds,
        )
        latency = [quantile(state.latencies, share) for share in (0.5, 0.95, 0.99)]
        return PipelineRecord(
            device=self._engine.device,
            device_reason=self._reason,
            images=state.images,
            pixels=state.pixels,
            seconds=seconds,
            prepare_seconds=self._prepare_seconds or 0.0,
            images_per_second=state.images / seconds,
            pixels_per_second=state.pixels / seconds,
            stages=stages,
            latency_p50_seconds=latency[0],
            latency_p95_seconds=latency[1],
            latency_p99_seconds=latency[2],
            slots=len(self._ring.slots),
            streams=self._engine.streams,
            peak_bytes=self._ring.peak_bytes,
            cap_bytes=self._ring.cap,
            allocations=self._ring.allocations,
            graphs_built=self._engine.graphs_built,
            graphs_replayed=self._engine.graphs_replayed,
            launches=self._engine.launches,
            timeline=tuple(timeline),
        )


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _engine(what: Operation, device: dispatch.Device, streams: int, graphs: bool) -> tuple[Engine, str]:
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidValueError(f'device must be "auto", "cpu" or "cuda", got {device!r}')
    missing = capability.missing()
    if device == "cpu" or (device == "auto" and missing is not None):
        return CpuEngine(what), "asked for" if device == "cpu" else str(missing)
    if missing is not None:
        raise NotSupportedError(missing)
    from warpfront.image._pipeline_cuda import CudaEngine

    return CudaEngine(what, streams, graphs), "asked for" if device == "cuda" else "there is a GPU"
