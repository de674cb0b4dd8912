"""Images in awkward memory, and the three backends that compute the same operation on them."""

import numpy as np

from warpfront.image import _edges_cuda as plans
from warpfront.image import _reference, run
from warpfront.image.layout import pixels_of
from warpfront.image.operation import operation
from warpfront.image.strips import Memory

BORDERS = ("clamp", "reflect", "reflect101", "wrap", "zero")
POISON = 0xA5


def random_image(height, width, layout="packed", channels=3, *, batch=None, gap=0, corner=(0, 0), seed=0):
    """A view of random memory: rows ``gap`` bytes further apart than needed, and the view's own corner in it."""
    rng = np.random.default_rng([seed, height, width, channels, gap])
    top, left = corner
    lead = () if batch is None else (batch,)
    if layout == "packed":
        whole = rng.integers(0, 256, (*lead, height + top, (width + left) * channels + gap), np.uint8)
        row = whole[..., top:, : (width + left) * channels]
        view = row.reshape(*row.shape[:-1], width + left, channels)  # splits the last axis, copies nothing
        assert np.shares_memory(view, whole)
        return view[..., left:, :]
    if layout == "planar":
        whole = rng.integers(0, 256, (*lead, channels, height + top, width + left + gap), np.uint8)
        return whole[..., top:, left : left + width]
    whole = rng.integers(0, 256, (*lead, height + top, width + left + gap), np.uint8)
    return whole[..., top:, left : left + width]


def colours(image, layout, order="rgb"):
    """The image as the reference takes it: (h, w, 3) in RGB, or (h, w)."""
    if image.ndim == 2:
        return image
    pixels = np.moveaxis(image, -3, -1) if layout == "planar" else image
    return pixels[..., :3] if order == "rgb" else pixels[..., 2::-1]


def reference(what, image, layout, order="rgb"):
    """What an operation gives for one image, by the room's plain statement of it."""
    flat = colours(image, layout, order)
    single = flat if flat.ndim == 2 else _reference.gray(flat)
    if what.stage == "gray":
        return (single,)
    if what.stage == "blur":
        return (_reference.blur(single, what.weights, what.border),)
    if what.stage == "sobel":
        return _reference.sobel(single, what.border)
    level = None if what.threshold < 0 else what.threshold
    return (_reference.edges(single, what.weights, level, what.border, what.norm),)


class Cpu:
    """The public machinery on NumPy arrays."""

    name = "cpu"

    def run(self, what, image, layout, order, outs):
        given = outs if len(outs) > 1 else outs[0]
        run.apply(what, image, layout, order, given, "cpu", "auto")


class Cuda:
    """The same on CuPy arrays that repeat the host arrays' memory, gaps included."""

    name = "cuda"

    def run(self, what, image, layout, order, outs):
        import cupy

        _, source = self._moved(image)
        moved = [self._moved(out) for out in outs]
        given = tuple(view for _, view in moved)
        run.apply(what, source, layout, order, given if len(outs) > 1 else given[0], "cuda", "auto")
        for out, (memory, _) in zip(outs, moved, strict=True):
            _root(out)[...] = cupy.asnumpy(memory)

    @staticmethod
    def _moved(a):
        """A copy of a host view's whole memory on the device, and the same view of it."""
        import cupy

        root = _root(a)
        memory = cupy.asarray(root)
        return memory, cupy.ndarray(a.shape, a.dtype, memory.data + (_address(a) - _address(root)), a.strides)


class Simt:
    """The kernel source under the SIMT runner, launched as planned; nothing outside the views is there."""

    name = "simt"
    schedules = 2
    tile = None

    def run(self, what, image, layout, order, outs):
        from warpfront.backend.simt import Simt as Runner

        pixels = pixels_of(image.shape, image.strides, layout, order)
        if pixels is None:  # the public function copies such an image first
            image = np.ascontiguousarray(image)
            pixels = pixels_of(image.shape, image.strides, layout, order)
        assert plans.takes(pixels)
        flat = _bytes(image, pixels.low, pixels.high)
        out_pitch, out_stride = outs[0].strides[-2], outs[0].strides[0] if pixels.batched else 0
        planes = pixels.offsets[1] - pixels.offsets[0] if pixels.planar else 0
        made = plans.plan(
            what,
            pixels,
            src_align=plans.alignment(
                _address(image) + pixels.low, pixels.pitch, pixels.batch_stride, planes
            ),
            dst_align=plans.alignment(*(_address(out) for out in outs), out_pitch, out_stride),
            dst_pitch=out_pitch,
            dst_stride=out_stride,
            tile=self.tile,
        )
        targets = [_bytes(out, 0, _extent(out)) for out in outs]
        pointers = (targets * 2)[: made.outputs]
        if made.outputs == 2 and len(outs) == 1:
            pointers[1] = np.zeros(16, np.uint8)
        report = Runner.build(made.source, [made.expression]).launch(
            made.expression,
            made.grid,
            made.threads,
            [*pointers, flat, *made.tail],
            shared_bytes=made.shared_bytes,
            schedules=self.schedules,
        )
        assert not report.findings, report


class SmallTileSimt(Simt):
    """Tiles so small that a modest image has several each way."""

    name = "simt-small"
    tile = (16, 8, 32, 4)


def _address(a):
    return a.__array_interface__["data"][0]


def _root(a):
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


def _extent(a):
    return sum((n - 1) * s for n, s in zip(a.shape, a.strides, strict=True)) + a.itemsize


def _bytes(a, low, high):
    """The memory from ``low`` to ``high`` bytes after a view's first element, without a copy."""

    return np.asarray(Memory(a, _address(a) + low, high - low, a.flags.writeable))


def poisoned(height, width, gap=0, batch=None, dtype=np.uint8, corner=(0, 0)):
    """Memory full of poison, and the view of it that an operation is to write."""
    lead = () if batch is None else (batch,)
    shape = (*lead, height + corner[0], width + corner[1] + gap)
    whole = np.frombuffer(bytes([POISON]) * (int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype)
    whole = whole.copy().reshape(shape)
    return whole, whole[..., corner[0] :, corner[1] : corner[1] + width]


def check(backend, image, layout="packed", order="rgb", *, stage="edges", gap=0, corner=(0, 0), **options):
    """Run an operation on poisoned memory and compare every byte: the result, and that nothing else changed."""
    what = operation(stage, **options)
    batch = image.shape[0] if image.ndim == (3 if layout == "gray" else 4) else None
    height, width = image.shape[-3:-1] if layout == "packed" and image.ndim > 2 else image.shape[-2:]
    kinds = [np.int16] * 2 if stage == "sobel" else [np.uint8]
    made = [poisoned(height, width, gap, batch, kind, corner) for kind in kinds]
    expected = [whole.copy() for whole, _ in made]
    singles = image[None] if batch is None else image
    results = [reference(what, one, layout, order) for one in singles]
    for k, whole in enumerate(expected):
        inner = whole[..., corner[0] :, corner[1] : corner[1] + width]
        inner[...] = results[0][k] if batch is None else np.stack([r[k] for r in results])
    backend.run(what, image, layout, order, tuple(view for _, view in made))
    for (whole, _), wanted in zip(made, expected, strict=True):
        wrong = int((whole != wanted).sum())
        assert wrong == 0, (stage, image.shape, layout, order, options, f"{wrong} bytes differ")
