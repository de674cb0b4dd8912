"""What the public functions refuse and say; what only a GPU can answer."""

from dataclasses import replace

import numpy as np
import pytest
from images_for_tests import BORDERS, random_image

from warpfront.backend.capability import Capability
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.image import edges, explain_edges, gaussian_blur, gaussian_weights, gray, sobel

RGB = np.zeros((4, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.zeros((4, 5, 3)), {}, r"uint8, got float64; scale to 0..255"),
        (np.zeros((4, 5, 3), np.uint16), {}, "uint8, got uint16"),
        (np.zeros((4, 5, 3), bool), {}, "uint8, got bool"),
        (np.zeros(5, np.uint8), {}, r"packed image has shape \(h, w, c\) or \(n, h, w, c\), got \(5,\)"),
        (np.zeros((3, 4, 5), np.uint8), {}, r"3 or 4 channels on axis 2, got shape .*is it planar"),
        (np.zeros((7, 5, 3), np.uint8), {"layout": "planar"}, "3 or 4 channels on axis 0, .*is it packed"),
        (np.zeros((0, 5, 3), np.uint8), {}, "at least one pixel"),
        (np.zeros((0, 4, 5, 3), np.uint8), {}, "at least one pixel"),
        (RGB, {"layout": "chw"}, "layout must be one of packed, planar, gray"),
        (RGB, {"order": "rbg"}, "order must be one of rgb, bgr"),
        (RGB, {"border": "mirror"}, "border must be one of clamp, reflect, .*numpy's"),
        (RGB, {"norm": "max"}, "norm must be l1 or l2"),
        (RGB, {"threshold": 256}, "threshold must be a whole number from 0 to 255"),
        (RGB, {"threshold": -1}, "threshold must be"),
        (RGB, {"threshold": 10.5}, "threshold must be"),
        (RGB, {"threshold": True}, "threshold must be"),
        (RGB, {"sigma": float("nan")}, "sigma must be a finite number"),
        (RGB, {"sigma": 5.2}, "sigma 5.2 needs 33 taps and at most 31"),
        (RGB, {"taps": 4}, "taps must be an odd number from 1 to 31, got 4"),
        (RGB, {"taps": 33}, "taps must be"),
        (RGB, {"taps": 5.0}, "taps must be an odd number"),
        (RGB, {"taps": [5]}, "taps must be an odd number"),
        (RGB, {"sigma": "wide"}, "sigma must be a finite number"),
        (RGB, {"sigma": None, "taps": 5}, "sigma must be a finite number"),
        (RGB, {"border": ["wrap"]}, "border must be one of"),
        (RGB, {"layout": None}, "layout must be one of"),
        (RGB, {"threshold": [3]}, "threshold must be"),
        (RGB, {"out": np.zeros((4, 5), np.int16)}, r"type uint8, got \(4, 5\), int16"),
        (RGB, {"out": np.zeros((5, 4), np.uint8)}, r"shape \(4, 5\)"),
        (RGB, {"out": np.zeros((4, 10), np.uint8)[:, ::2]}, "contiguous last axis"),
        (RGB, {"out": [[0] * 5] * 4}, "writable NumPy array"),
        ([RGB, RGB], {"out": [np.zeros((4, 5), np.uint8)]}, "list of 2 arrays"),
        ([RGB, RGB[..., :2]], {}, "image 1: .*3 or 4 channels"),
        ([], {}, "no image"),
        (RGB, {"device": "gpu"}, "device must be"),
        (RGB, {"path": "fast"}, "path must be"),
    ],
)
def test_refusals(image, options, message):
    with pytest.raises(InvalidValueError, match=message):
        edges(image, **options)


def test_more_refusals():
    memory = np.zeros((6, 8), np.uint8)
    with pytest.raises(InvalidValueError, match="out overlaps the image"):
        gaussian_blur(memory, out=memory)
    with pytest.raises(InvalidValueError, match="out overlaps the image"):
        gaussian_blur(memory[1:], out=memory[:-1])
    with pytest.raises(InvalidValueError, match="gray already"):
        gray(memory)
    with pytest.raises(InvalidValueError, match="out must be 2 arrays"):
        sobel(memory, out=np.zeros((6, 8), np.int16))
    with pytest.raises(InvalidValueError, match="sizes must be positive"):
        explain_edges(0, 5)
    read_only = np.zeros((4, 5), np.uint8)
    read_only.flags.writeable = False
    with pytest.raises(InvalidValueError, match="writable"):
        edges(RGB, out=read_only)
    assert gaussian_weights(1.0, 1) == (256,)
    with pytest.raises(InvalidValueError, match="odd number"):
        gaussian_weights(1.0, True)


def test_a_gpu_asked_for_and_absent():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    for options in ({"device": "cuda"}, {"path": "portable"}):
        with pytest.raises(NotSupportedError, match="install"):
            edges(RGB, **options)
    decisions = explain_edges(1080, 1920)
    assert [d.path for d in decisions if d.taken] == ["cpu"]
    assert len(decisions) == 2


def h200():
    """A device that is not here, for decisions only."""
    return Capability(
        device=0, cc_major=9, cc_minor=0, sm_count=132, shared_bytes=49152, shared_bytes_optin=232448,
        shared_bytes_per_sm=233472, registers_per_sm=65536, threads_per_sm=2048, l2_bytes=50 << 20,
        cooperative_launch=True, clusters=True, memory_pools=True, managed=True, concurrent_managed=True, vmm=True,
        graphs=True, mig=False, driver_version=(13, 0), runtime_version=(13, 0), nvrtc_version=(13, 0),
        total_bytes=140 << 30, free_bytes=139 << 30,
    )  # fmt: skip


def test_large_images_in_host_memory_go_through_a_gpu_and_explain_says_why():
    def taken(height, width, **options):
        (one,) = [d for d in explain_edges(height, width, capability_=h200(), **options) if d.taken]
        return one

    assert taken(255, 256).path == "cpu"
    moved = taken(256, 256)
    assert moved.path == "portable"
    assert "from 65536 pixels on a GPU is faster" in moved.reason
    assert taken(2160, 3840, device="cpu").path == "cpu"
    assert taken(16, 16, device="cuda").path == "portable"
    assert taken(16, 16, on_device=True).reason == "first that can run"
    assert taken(64, 64, batch=20).path == "portable"
    old = replace(h200(), cc_major=7, cc_minor=0)
    (one,) = [d for d in explain_edges(2160, 3840, capability_=old) if d.taken]
    assert one.path == "cpu"


def test_the_image_is_only_read():
    image = random_image(20, 30)
    before = image.tobytes()
    image.flags.writeable = False
    edges(image, sigma=2)
    assert image.tobytes() == before


@pytest.mark.cuda
class TestOnAGpu:
    @pytest.mark.parametrize("border", BORDERS)
    def test_large_equals_the_cpu(self, border):
        import cupy

        for shape, layout in [
            ((1080, 1920, 3), "packed"),
            ((3, 1079, 1917), "planar"),
            ((777, 1001, 4), "packed"),
        ]:
            image = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
            for sigma in (0, 3.0):
                expected = edges(image, sigma=sigma, border=border, layout=layout, device="cpu")
                out = cupy.full(expected.shape, 0xA5, cupy.uint8)
                assert edges(cupy.asarray(image), sigma=sigma, border=border, layout=layout, out=out) is out
                assert np.array_equal(cupy.asnumpy(out), expected)

    def test_thousands_of_small_images_in_one_launch(self):
        import cupy

        batch = np.random.default_rng(2).integers(0, 256, (70000, 8, 9, 3), np.uint8)
        found = cupy.asnumpy(edges(cupy.asarray(batch), sigma=1))
        assert np.array_equal(found, edges(batch, sigma=1, device="cpu"))

    def test_lists_of_sizes_and_numpy_through_the_gpu(self):
        import cupy

        images = [random_image(h, w, seed=h) for h, w in ((5, 7), (64, 333), (1, 1), (200, 300))]
        expected = edges(images, sigma=1, device="cpu")
        on_device = edges([cupy.asarray(i) for i in images], sigma=1)
        through = edges(images, sigma=1, device="cuda")
        for want, a, b in zip(expected, on_device, through, strict=True):
            assert np.array_equal(cupy.asnumpy(a), want)
            assert isinstance(b, np.ndarray)
            assert np.array_equal(b, want)
        gx, gy = sobel(images[1][..., 0], device="cuda")
        assert np.array_equal(np.stack([gx, gy]), np.stack(sobel(images[1][..., 0], device="cpu")))

    def test_views_and_copies(self):
        import cupy

        canvas = cupy.asarray(random_image(60, 80))
        for view in (canvas[7:50, 11:70], canvas[::-1], canvas[:, ::-1], canvas[:, ::2], canvas[..., ::-1]):
            cupy.testing.assert_array_equal(edges(view), edges(view.copy()))

    def test_torch(self):
        torch = pytest.importorskip("torch")
        image = random_image(100, 140, "planar")
        tensor = torch.from_numpy(image).cuda()
        found = edges(tensor, layout="planar", sigma=1)
        assert isinstance(found, torch.Tensor)
        assert np.array_equal(found.cpu().numpy(), edges(image, layout="planar", sigma=1, device="cpu"))
        permuted = torch.from_numpy(random_image(50, 60)).cuda().permute(2, 0, 1)
        assert torch.equal(edges(permuted, layout="planar"), edges(permuted.contiguous(), layout="planar"))

    def test_overlap_is_refused(self):
        import cupy

        memory = cupy.zeros((40, 64), cupy.uint8)
        with pytest.raises(InvalidValueError, match="overlaps"):
            gaussian_blur(memory, out=memory)
        gaussian_blur(memory[:, :32], out=memory[:, 32:])

    def test_graph_replay_and_twenty_runs(self):
        import cupy

        from warpfront.backend import cuda

        image = cupy.asarray(random_image(500, 640))
        out = cupy.empty((500, 640), cupy.uint8)
        edges(image, sigma=1, out=out)
        graph = cuda.capture(lambda: edges(image, sigma=1, out=out))
        image[...] = cupy.asarray(random_image(500, 640, seed=9))
        cupy.cuda.get_current_stream().synchronize()
        graph.replay()
        graph.stream.synchronize()
        first = cupy.asnumpy(out).tobytes()
        assert first == cupy.asnumpy(edges(image, sigma=1)).tobytes()
        assert all(cupy.asnumpy(edges(image, sigma=1)).tobytes() == first for _ in range(20))
