"""What the pipeline queues on a GPU, seen by a stand-in for CuPy that writes everything down."""

import ctypes
import sys
import types

import numpy as np
import pytest

from warpfront.image import _edges_cuda as plans
from warpfront.image import _pipeline_cuda, transfer
from warpfront.image.layout import contiguous_pixels
from warpfront.image.operation import operation
from warpfront.image.ring import Ring


class Log(list):
    """Calls in the order made; a capture takes them aside."""

    captured = None

    def add(self, *call):
        (self if self.captured is None else self.captured).append(call)


class Recorded:
    """Base of the stand-ins: they write to the log of the test that runs."""

    calls = Log()


class Memory(Recorded):
    def __init__(self, size):
        self.block = (ctypes.c_uint8 * size)()
        self.ptr = ctypes.addressof(self.block)
        self.calls.add("allocate", type(self).__name__, size)


class PinnedMemory(Memory):
    pass


class Event(Recorded):
    def __init__(self, block=False, disable_timing=False):
        self.timed, self.ptr = not disable_timing, id(self)

    def record(self, stream):
        self.calls.add("event", stream.number)

    def synchronize(self):
        self.calls.add("wait")


class Stream(Recorded):
    count = 0

    def __init__(self, non_blocking=False):
        assert non_blocking  # the legacy default stream would hold it up
        self.number, self.ptr = Stream.count, 1000 + Stream.count
        Stream.count += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def synchronize(self):
        self.calls.add("wait")

    def begin_capture(self):
        self.calls.captured = []

    def end_capture(self):
        inside, self.calls.captured = tuple(self.calls.captured), None
        return types.SimpleNamespace(launch=lambda stream: self.calls.add("graph", stream.number, inside))


class Device:
    def __init__(self, ordinal):
        assert ordinal == 0

    __enter__ = __exit__ = lambda self, *error: None


@pytest.fixture
def log(monkeypatch):
    calls = Log()
    monkeypatch.setattr(Recorded, "calls", calls)
    monkeypatch.setattr(Stream, "count", 0)

    def copied(to, source, nbytes, kind, stream):
        ctypes.memmove(to, source, nbytes)
        calls.add("copy", kind, nbytes, stream)

    runtime = types.SimpleNamespace(memcpyAsync=copied)
    fake, module = types.ModuleType("cupy"), types.ModuleType("cupy.cuda")
    fake.cuda = types.SimpleNamespace(
        Memory=Memory, PinnedMemory=PinnedMemory, Event=Event, Stream=Stream, Device=Device, runtime=runtime,
        get_elapsed_time=lambda start, end: 1.0,
    )  # fmt: skip
    module.runtime = runtime
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", module)
    monkeypatch.setattr(plans, "queue", lambda *args: calls.add("kernel", args[-1]))
    mark = staticmethod(lambda event, stream, captured: calls.add("mark", stream.number, captured))
    monkeypatch.setattr(_pipeline_cuda.CudaEngine, "_mark", mark)
    return calls


def compute(engine, ring, pixels):
    slot = ring.lend(pixels.high, pixels.size)
    times = engine.compute(slot, pixels)
    ring.give_back(slot)
    return times


def test_first_eager_then_a_graph_for_each_shape(log):
    engine = _pipeline_cuda.CudaEngine(operation("edges", sigma=0, threshold=9), streams=2, graphs=True)
    ring = Ring(1, 1 << 24, engine.allocate, engine.free)
    wide, tall = (contiguous_pixels(shape, "packed") for shape in ((20, 30, 3), (31, 21, 3)))
    del log[:]
    times = compute(engine, ring, wide)
    assert times == {"h2d": (1e-3, 1e-3), "kernel": (1e-3, 1e-3), "d2h": (1e-3, 1e-3)}
    assert [call[1] for call in log if call[0] == "allocate"] == ["PinnedMemory"] * 2 + ["Memory"] * 2
    queued = [call for call in log if call[0] != "allocate"]
    assert queued == [
        ("mark", 0, False), ("copy", 1, 1800, 1000), ("mark", 0, False), ("kernel", 1000), ("mark", 0, False),
        ("copy", 2, 600, 1000), ("mark", 0, False), ("event", 0), ("wait",),
    ]  # fmt: skip
    del log[:]
    compute(engine, ring, wide)
    kind, stream, inside = log[0]
    assert (kind, stream) == ("graph", 0)
    assert [call[0] for call in inside] == ["mark", "copy", "mark", "kernel", "mark", "copy", "mark"]
    assert all(call[2] for call in inside if call[0] == "mark")
    assert log[1:] == [("event", 0), ("wait",)]
    compute(engine, ring, tall)
    for pixels in (tall, wide, tall):
        compute(engine, ring, pixels)
    assert (engine.launches, engine.graphs_built, engine.graphs_replayed) == (2, 2, 4)


def test_graphs_go_with_their_buffers_and_are_few(log):
    engine = _pipeline_cuda.CudaEngine(operation("edges"), streams=1, graphs=True)
    ring = Ring(1, 1 << 24, engine.allocate, engine.free)
    small = contiguous_pixels((9, 9, 3), "packed")
    for _ in range(3):
        compute(engine, ring, small)
    compute(engine, ring, contiguous_pixels((900, 900, 3), "packed"))  # new buffers: old addresses are void
    assert ring.slots[0].state.get("graphs", {}) == {}
    for k in range(60):
        pixels = contiguous_pixels((10 + k, 10, 3), "packed")
        compute(engine, ring, pixels)
        compute(engine, ring, pixels)
    assert len(ring.slots[0].state["graphs"]) == 16
    assert len(ring.slots[0].state["seen"]) <= 64


def test_without_graphs_and_slots_share_out_the_streams(log):
    engine = _pipeline_cuda.CudaEngine(operation("edges"), streams=2, graphs=False)
    ring = Ring(4, 1 << 24, engine.allocate, engine.free)
    pixels = contiguous_pixels((8, 8), "packed")
    slots = [ring.lend(64, 64) for _ in range(4)]
    del log[:]
    for slot in slots * 2:
        engine.compute(slot, pixels)
    used = [call[1] for call in log if call[0] == "event"]
    assert used == [engine.stream_objects[k % 2].number for k in range(4)] * 2
    assert engine.graphs_built == 0


def test_pinned_memory_is_what_is_decoded_into(log):
    engine = _pipeline_cuda.CudaEngine(operation("edges"), streams=1, graphs=True)
    ring = Ring(1, 1 << 24, engine.allocate, engine.free)
    slot = ring.lend(100, 50)
    engine.source(slot, 100)[:] = 7
    assert np.frombuffer(slot.buffers.source.block, np.uint8)[:100].tolist() == [7] * 100
    assert engine.result(slot, 50).shape == (50,)


@pytest.mark.parametrize("nbytes", [1, 2 << 20, (9 << 20) + 12345])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_chunks_there_and_back(log, monkeypatch, nbytes, threads):
    """Every byte arrives, whatever the number of lanes; a chunk is not filled again before it has left."""
    monkeypatch.setenv("WARPFRONT_THREADS", threads)
    transfer._lanes.cache_clear()
    host = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    memory, back = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    transfer.to_device(host, memory.ctypes.data, 0)
    assert np.array_equal(memory, host)
    transfer.to_host(memory.ctypes.data, back, 0)
    assert np.array_equal(back, host)
    sizes = [call[2] for call in log if call[0] == "copy"]
    assert sum(sizes) == 2 * nbytes
    assert max(sizes) <= 2 << 20
    transfer._lanes.cache_clear()
