"""The streaming pipeline: its host logic with an engine that only pretends, the CPU's engine, and a GPU's."""

import threading
import time

import numpy as np
import pytest
from images_for_tests import random_image

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.image import EdgePipeline, edges
from warpfront.image.layout import contiguous_pixels, pixels_of
from warpfront.image.operation import operation
from warpfront.image.pipeline import CpuEngine
from warpfront.image.pipeline_record import quantile
from warpfront.image.ring import Ring, capacity

MEBIBYTE = 1 << 20


class Watched(CpuEngine):
    """The CPU's engine with a clock of its own, that counts what is alive and who runs at the same time."""

    def __init__(self, delay=0.0, **options):
        super().__init__(operation("edges", **{"sigma": 0, "threshold": 100, **options}))
        self.delay = delay
        self.alive = self.most_alive = self.running = self.most_running = 0
        self.lock = threading.Lock()

    def allocate(self, slot, source_bytes, result_bytes):
        with self.lock:
            self.alive += source_bytes + result_bytes
            self.most_alive = max(self.most_alive, self.alive)
        source, result = super().allocate(slot, source_bytes, result_bytes)
        source[:], result[:] = 0xA5, 0xA5
        return source, result

    def free(self, slot, buffers):
        with self.lock:
            self.alive -= sum(buffer.nbytes for buffer in buffers)

    def compute(self, slot, pixels):
        with self.lock:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
        time.sleep(self.delay)
        times = super().compute(slot, pixels)
        with self.lock:
            self.running -= 1
        return times


def random_sizes(count, largest, seed=0):
    rng = np.random.default_rng(seed)
    return [tuple(int(s) for s in rng.integers(1, largest, 2)) for _ in range(count)]


def test_results_come_in_order_and_equal_edges():
    images = [random_image(h, w, seed=k) for k, (h, w) in enumerate(random_sizes(40, 60))]
    engine = Watched(delay=0.002, sigma=1, threshold=60)
    pipeline = EdgePipeline(engine=engine, slots=3, timeline=True)
    found = list(pipeline.run(images))
    for image, result in zip(images, found, strict=True):
        assert np.array_equal(result, edges(image, sigma=1, threshold=60))
    assert 2 <= engine.most_running <= 3
    record = pipeline.record
    assert record.images == 40
    assert record.pixels == sum(i.shape[0] * i.shape[1] for i in images)
    assert record.latency_p50_seconds <= record.latency_p95_seconds <= record.latency_p99_seconds
    assert [s.stage for s in record.stages] == ["decode", "stage", "kernel"]
    assert len(record.timeline) == 40
    assert record.timeline[0].begin_seconds == 0
    assert {i.slot for i in record.timeline} == {0, 1, 2}
    assert record.to_dict()["images"] == 40


def test_memory_reaches_a_plateau_below_the_cap():
    """A thousand random sizes: the buffers stay below the cap, and are hardly ever made anew after the first."""
    cap = 4 * (capacity(200 * 200 * 3) + capacity(200 * 200))
    engine = Watched()
    pipeline = EdgePipeline(engine=engine, slots=4, byte_cap=cap)
    shapes = random_sizes(1000, 200)
    held = []
    blank = np.zeros((200, 200, 3), np.uint8)
    for height, width in shapes:
        for _ in pipeline.run([blank[:height, :width]]):
            held.append(engine.alive)
    assert engine.most_alive <= cap
    assert max(held[500:]) == max(held)
    assert pipeline.record.allocations < 40
    pipeline.close()
    assert engine.alive == 0


def test_a_small_cap_makes_slots_wait_not_fail():
    """Room for one large image at a time: small ones run beside it when they can, and everything comes out."""
    cap = capacity(3 * 400 * 400) + capacity(400 * 400)
    engine = Watched(delay=0.001)
    images = [random_image(400, 400, seed=k) if k % 3 else random_image(20, 30, seed=k) for k in range(20)]
    pipeline = EdgePipeline(engine=engine, slots=4, byte_cap=cap)
    for image, result in zip(images, pipeline.run(images), strict=True):
        assert np.array_equal(result, edges(image))
    assert engine.most_alive <= cap
    assert pipeline.record.peak_bytes <= cap
    with pytest.raises(
        InvalidValueError, match=r"item 0: an image needs \d+ bytes .* raise byte_cap to at least"
    ):
        list(pipeline.run([random_image(500, 500)]))
    assert len(list(pipeline.run(images[:3]))) == 3


def test_the_ring_frees_idle_slots_before_it_waits():
    made, freed = [], []
    ring = Ring(
        3, 10 * MEBIBYTE, lambda s, a, b: made.append((s.number, a)) or a, lambda s, b: freed.append(s.number)
    )
    small = [ring.lend(3 * MEBIBYTE, 1) for _ in range(3)]
    for slot in small:
        ring.give_back(slot)
    assert ring.held_bytes <= 10 * MEBIBYTE
    small[1].state["graph"] = 1
    big = ring.lend(9 * MEBIBYTE, 1)
    assert ring.held_bytes <= 10 * MEBIBYTE
    assert sorted(freed) == [0, 1, 2]
    assert small[1].state == {}
    assert big.source_bytes >= 9 * MEBIBYTE
    ring.give_back(big)
    assert ring.lend(9 * MEBIBYTE, 1) is big
    assert ring.allocations == 4


def test_a_slot_whose_buffers_cannot_be_made_is_lent_again():
    room = [False, True]

    def allocate(slot, source, result):
        if not room.pop(0):
            raise MemoryError
        return source

    ring = Ring(1, MEBIBYTE, allocate, lambda s, b: None)
    with pytest.raises(MemoryError):
        ring.lend(100, 1)
    assert ring.lend(100, 1) is ring.slots[0]


@pytest.mark.parametrize("nbytes", [1, 65536, 65537, 10**6, 123456789])
def test_capacity_is_little_more_than_asked(nbytes):
    assert nbytes <= capacity(nbytes) <= max(65536, nbytes * 1.126)


def test_decode_into_place_saves_the_copy_and_encode_is_last():
    images = {f"name{k}": random_image(9 + k, 31, seed=k) for k in range(7)}
    caught = []

    def decode(name, place):
        memory = place(images[name].shape)
        memory[...] = images[name]
        return memory

    def encode(name, result):
        caught.append(name)
        return name, int(result.sum())

    pipeline = EdgePipeline(device="cpu", slots=2)
    found = list(pipeline.run(images, decode=decode, encode=encode))
    assert found == [(name, int(edges(image).astype(int).sum())) for name, image in images.items()]
    assert sorted(caught) == sorted(images)
    assert [s.stage for s in pipeline.record.stages] == ["decode", "kernel", "encode"]
    # A decoder that took a place and then returns something else is staged all the same.
    other = list(pipeline.run(images, decode=lambda name, place: (place((3, 3, 3)), images[name])[1]))
    assert all(np.array_equal(o, edges(i)) for o, i in zip(other, images.values(), strict=True))


def test_a_failure_comes_in_its_place_and_the_pipeline_goes_on():
    pipeline = EdgePipeline(device="cpu", slots=3)
    good = random_image(8, 9)
    found = []
    with pytest.raises(InvalidValueError, match="item 2: pixels must be uint8, got float64"):
        found.extend(pipeline.run([good, good, np.zeros((4, 4, 3)), good, good, good, good]))
    assert len(found) == 2
    with pytest.raises(ZeroDivisionError):
        list(pipeline.run([1, 0], decode=lambda k, place: np.full((2, 2), 1 // k, np.uint8)))
    assert len(list(pipeline.run([good] * 10))) == 10
    stream = pipeline.run([good] * 100)
    next(stream)
    stream.close()  # a consumer that stops early leaves no slot behind
    assert not any(slot.busy for slot in pipeline._ring.slots)


def test_batches_and_layouts():
    batch = random_image(12, 20, "planar", batch=4)
    pipeline = EdgePipeline(device="cpu", layout="planar", order="bgr")
    (found,) = pipeline.run([batch])
    assert np.array_equal(found, edges(batch, layout="planar", order="bgr"))
    assert pipeline.record.images == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots must be 1 to 64, got 0"),
        ({"slots": "3"}, "slots must be 1 to 64, got '3'"),
        ({"streams": 100}, "streams must be"),
        ({"device": "gpu"}, "device must be"),
        ({"layout": "hwc"}, "layout must be one of packed, planar, gray"),
        ({"order": "gbr"}, "order must be"),
        ({"border": "mirror"}, "border must be one of"),
        ({"threshold": 300}, "threshold must be"),
        ({"blur": 3}, "no option blur"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InvalidValueError, match=message):
        EdgePipeline(**options)


def test_no_record_before_the_end():
    pipeline = EdgePipeline(device="cpu")
    with pytest.raises(InvalidValueError, match="no run has finished"):
        _ = pipeline.record
    assert list(pipeline.run([])) == []
    assert pipeline.record.images == 0


def test_a_gpu_asked_for_and_absent():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotSupportedError, match="install"):
        EdgePipeline(device="cuda")
    assert list(EdgePipeline(device="auto").run([random_image(3, 3)]))


def test_quantile():
    assert quantile([], 0.5) == 0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2
    assert quantile(list(range(101)), 0.99) == 99


@pytest.mark.cuda
class TestOnAGpu:
    def test_streams_graphs_and_results(self):
        images = [
            random_image(h, w, seed=k) for k, (h, w) in enumerate([(100, 130), (64, 64), (33, 250)] * 12)
        ]
        for graphs in (False, True):
            pipeline = EdgePipeline(device="cuda", slots=4, streams=2, graphs=graphs, sigma=1, threshold=60)
            found = list(pipeline.run(images))
            for image, result in zip(images, found, strict=True):
                assert np.array_equal(result, edges(image, sigma=1, threshold=60, device="cpu"))
            record = pipeline.record
            assert record.device == "cuda"
            assert record.graphs_replayed + record.launches == len(images)
            assert (record.graphs_replayed > 0) == graphs
            assert [s.stage for s in record.stages] == ["decode", "stage", "h2d", "kernel", "d2h"]
            assert all(s.total_seconds > 0 for s in record.stages)

    def test_device_memory_reaches_a_plateau(self):
        import cupy

        cap = 4 * (capacity(700 * 700 * 3) + capacity(700 * 700))
        pipeline = EdgePipeline(device="cuda", slots=4, byte_cap=cap)
        blank = random_image(700, 700)
        images = [blank[:h, :w] for h, w in random_sizes(1000, 700)]
        pool, held = cupy.get_default_memory_pool(), []
        for k, result in enumerate(pipeline.run(images)):
            assert result.shape == images[k].shape[:2]
            if k % 100 == 99:
                held.append(pipeline._ring.held_bytes + pool.total_bytes())
                assert np.array_equal(result, edges(images[k], device="cpu"))
        assert pipeline.record.peak_bytes <= cap
        assert pipeline.record.allocations < 60
        assert max(held[5:]) - min(held[5:]) <= cap // 4

    def test_work_waits_for_what_is_queued_before_it(self):
        """A delay on the pipeline's own streams, and on a caller's stream."""
        import cupy

        delay = cupy.RawKernel(
            'extern "C" __global__ void delay(long long n) { long long t = clock64(); while (clock64() - t < n); }',
            "delay",
        )
        image = random_image(200, 300)
        expected = edges(image, device="cpu")
        pipeline = EdgePipeline(device="cuda", slots=3, streams=2)
        for stream in pipeline._engine.stream_objects:
            with stream:
                delay((1,), (1,), (20_000_000,))
        assert all(np.array_equal(found, expected) for found in pipeline.run([image] * 9))
        side = cupy.cuda.Stream(non_blocking=True)
        with side:
            source = cupy.zeros(image.shape, cupy.uint8)
            fresh = cupy.asarray(image)
            delay((1,), (1,), (50_000_000,))
            source[...] = fresh
            found = edges(source)
        side.synchronize()
        assert np.array_equal(cupy.asnumpy(found), expected)


def test_pixels_of_a_place():
    """What the engine is told about contiguous memory is what the public functions derive from strides."""
    for layout, shape in (("packed", (4, 5, 3)), ("planar", (2, 3, 4, 5)), ("gray", (1, 1))):
        array = np.zeros(shape, np.uint8)
        pixels = contiguous_pixels(array.shape, layout)
        assert pixels == pixels_of(array.shape, array.strides, layout)
        assert pixels.low == 0
        assert pixels.high == array.nbytes
