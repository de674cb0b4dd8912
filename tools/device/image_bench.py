"""What image_measure.py measures: variants of the fused kernel, buffers and launches, copies, torch's chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warpfront.image import _edges_cuda as plans
from warpfront.image.layout import contiguous_pixels
from warpfront.image.operation import operation

HD = (32, 1080, 1920)
SHAPES = {"packed": (*HD, 3), "planar": (HD[0], 3, *HD[1:]), "rgba": (*HD, 4), "gray": HD}
EDGES = operation("edges", sigma=1.1, taps=5, threshold=100)
GRAY = {
    "edges": ("packed", EDGES),
    "edges 31 taps": ("packed", operation("edges", sigma=5, threshold=100)),
    "sobel+threshold": ("gray", operation("edges", threshold=100)),
    "blur": ("gray", operation("blur", sigma=1.1, taps=5)),
}
TILES = [
    (128, 32, 128, 4), (128, 30, 96, 5), (128, 36, 96, 6), (128, 60, 160, 6), (128, 64, 128, 8), (256, 36, 192, 6),
    (64, 36, 64, 6), (128, 64, 256, 4), (256, 32, 256, 4), (128, 40, 160, 4), (128, 24, 96, 4), (128, 32, 64, 8),
    (256, 64, 256, 8), (64, 64, 64, 8), (128, 48, 96, 8), (128, 48, 192, 4), (64, 32, 64, 4), (128, 72, 96, 12),
]  # fmt: skip
LEAST = ((), (("WF_LEAST_THREADS", "768"),))
DOWN = ((("WF_DOWN_RUN", "5"),), (("WF_DOWN_RUN", "6"),), (("WF_DOWN_RUN", "11"),), (("WF_DOWN_RUN", "17"),))


@dataclass(frozen=True)
class Variant:
    """One way of running a kernel."""

    what: str
    tile: tuple[int, int, int, int]
    defines: tuple[tuple[str, str], ...]

    @property
    def expression(self):
        layout, what = GRAY[self.what]
        return plans._chain(
            3 if layout == "packed" else 0, what.radius, {"edges": 0, "blur": 1}[what.stage], self.tile
        )

    @property
    def name(self):
        more = "".join(f" {name[3:].lower()}={value}" for name, value in self.defines)
        return "x".join(map(str, self.tile)) + more


def variants():
    found = [Variant("edges", tile, d) for tile in TILES for d in LEAST]
    found += [Variant("edges", tile, d) for tile in TILES[:5] for d in DOWN]
    for what in ("edges 31 taps", "blur", "sobel+threshold"):
        found += [Variant(what, tile, ()) for tile in TILES]
    return found


def described(layout, shape):
    return contiguous_pixels(shape, "packed" if layout == "rgba" else layout)


class Bench:
    """Buffers on the device, launches of ours, and a reference for each."""

    def __init__(self, layout, images=2):
        import cupy

        rng = np.random.default_rng(7)
        shape = SHAPES[layout]
        self.layout = "packed" if layout == "rgba" else layout
        self.pixels = described(layout, shape)
        # Natural-looking content costs the same as noise here: nothing depends on values.
        self.host = rng.integers(0, 256, (1, *shape[1:]), np.uint8)
        self.sources = [cupy.asarray(np.repeat(self.host, shape[0], 0)) for _ in range(images)]
        self.outs = [cupy.zeros(2 * self.pixels.size, cupy.int16) for _ in range(images)]

    def launcher(self, what, pixels=None, tile=None, defines=(), aligned=True):
        """Return ``call(stream, source address, output address)`` for contiguous images."""
        from warpfront.backend import compile as compiling
        from warpfront.backend import cuda

        pixels, item = pixels or self.pixels, 2 if what.stage == "sobel" else 1
        pitch = pixels.width * item
        made = plans.plan(
            what,
            pixels,
            src_align=16 if aligned else 4,
            dst_align=16,
            dst_pitch=pitch,
            dst_stride=pitch * pixels.height,
            tile=tile,
        )
        options = compiling.CompileOptions(defines=defines)
        kernel = cuda.load(made.source, made.expression, made.signature, 0, options)

        def call(stream, source, out):
            # gx in the first half of the memory, gy in the second
            pointers = (out, out + item * pixels.size)[: made.outputs]
            kernel.launch(stream, made.grid, made.threads, (*pointers, source, *made.tail), made.shared_bytes)

        return call

    def calls(self, what, tile=None, defines=(), aligned=True):
        launch = self.launcher(what, None, tile, defines, aligned)
        return [
            lambda stream, s=s, o=o: launch(stream, s.data.ptr, o.data.ptr)
            for s, o in zip(self.sources, self.outs, strict=True)
        ]

    def staged(self):
        """The chain as three launches with gray images in between."""
        import cupy

        between = contiguous_pixels((self.pixels.batch, self.pixels.height, self.pixels.width), "gray")
        gray = self.launcher(operation("gray"))
        blur = self.launcher(operation("blur", sigma=1.1, taps=5), between)
        sobel = self.launcher(operation("edges", threshold=100), between)
        memory = [cupy.zeros(self.pixels.size, cupy.uint8) for _ in range(2)]

        def call(stream, s, o):
            gray(stream, s.data.ptr, memory[0].data.ptr)
            blur(stream, memory[0].data.ptr, memory[1].data.ptr)
            sobel(stream, memory[1].data.ptr, o.data.ptr)

        return [
            lambda stream, s=s, o=o: call(stream, s, o) for s, o in zip(self.sources, self.outs, strict=True)
        ]

    def one_by_one(self, **options):
        """The fused kernel, a launch for each image."""
        whole = self.pixels
        one = contiguous_pixels((whole.height, whole.width, 3), "packed")
        launch = self.launcher(EDGES, one, **options)
        area = whole.height * whole.width

        def call(stream, s, o):
            for k in range(whole.batch):
                launch(stream, s.data.ptr + k * whole.batch_stride, o.data.ptr + k * area)

        return [
            lambda stream, s=s, o=o: call(stream, s, o) for s, o in zip(self.sources, self.outs, strict=True)
        ]

    def wrong(self, what, calls):
        """Run the first call on poison; compare the first and the last image."""
        import cupy

        from warpfront.image.run import apply

        self.outs[0].view(cupy.uint8).fill(0xA5)
        calls[0](cupy.cuda.get_current_stream().ptr)
        expected = apply(what, self.host[0], self.layout, "rgb", None, "cpu", "auto")
        pixels = self.pixels
        shape = (pixels.batch, pixels.height, pixels.width)
        found = self.outs[0] if what.stage == "sobel" else self.outs[0].view(cupy.uint8)
        halves = [found[: pixels.size], found[pixels.size :]]
        expected = expected if isinstance(expected, tuple) else (expected,)
        for half, want in zip(halves, expected, strict=False):
            images = half[: pixels.size].reshape(shape)
            for k in (0, -1):
                bad = int((cupy.asnumpy(images[k]) != want).sum())
                if bad:
                    return f"{bad} pixels of image {k} are wrong"
        return ""


def copy_calls(nbytes):
    """Device copies that move ``nbytes`` in all (half read, half written)."""
    import cupy

    half = nbytes // 2
    pairs = [(cupy.zeros(half, cupy.uint8), cupy.zeros(half, cupy.uint8)) for _ in range(2)]
    copy = cupy.cuda.runtime.memcpyAsync
    return [lambda s, d=d, a=a: copy(d.data.ptr, a.data.ptr, half, 3, s) for d, a in pairs]


def torch_calls(bench):
    """The chain in torch, as a user would write it: convolutions in float32."""
    import torch
    from torch.nn import functional

    gray = torch.tensor([0.299, 0.587, 0.114], device="cuda").reshape(1, 3, 1, 1)
    taps = torch.tensor(EDGES.weights, device="cuda", dtype=torch.float32) / 256
    gx = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device="cuda").reshape(1, 1, 3, 3)
    sobel = torch.cat([gx, gx.transpose(2, 3)])

    def chain(x):
        x = (x.permute(0, 3, 1, 2).float() * gray).sum(1, keepdim=True)
        x = functional.pad(x, (2, 2, 2, 2), mode="reflect")
        x = functional.conv2d(functional.conv2d(x, taps.reshape(1, 1, 1, 5)), taps.reshape(1, 1, 5, 1))
        x = functional.pad(x.round(), (1, 1, 1, 1), mode="reflect")
        return (functional.conv2d(x, sobel).abs().sum(1) > 100).to(torch.uint8) * 255

    tensor = torch.as_tensor(bench.sources[0], device="cuda")
    target = torch.as_tensor(bench.outs[0], device="cuda").view(torch.uint8)[: bench.pixels.size]

    def call(stream):
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)), torch.no_grad():
            target.copy_(chain(tensor).reshape(-1))

    return call


def events(call, repeats=7):
    """Seconds of a call between events, for work that cannot be captured."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    times = []
    for k in range(repeats + 2):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        call(stream.ptr)
        end.record(stream)
        end.synchronize()
        if k >= 2:
            times.append(1e-3 * cupy.cuda.get_elapsed_time(start, end))
    return times
