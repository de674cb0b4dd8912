"""Image stages and the fused chain on every backend: the CPU, the kernel source on the host, and a GPU."""

import numpy as np
import pytest
from images_for_tests import BORDERS, Cpu, Cuda, Simt, SmallTileSimt, check, random_image

from warpfront.image import edges, gaussian_blur, gaussian_weights, gray, sobel, sobel_edges

TINY = [(1, 1), (1, 9), (9, 1), (2, 2)]


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(Simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def backend(request):
    return request.param()


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(SmallTileSimt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def tiled(request):
    """As `backend`, the SIMT runner with small tiles, so that images have inner tiles and edges of every kind."""
    return request.param()


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("size", TINY, ids=str)
def test_images_smaller_than_the_kernel(backend, size, border):
    image = random_image(*size)
    check(backend, image, border=border, sigma=0, threshold=40)
    check(backend, image, border=border, sigma=0, threshold=None)
    check(backend, image, border=border, sigma=5.0, threshold=None)  # 31 taps


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("size", [(33, 47), (19, 70), (40, 80)], ids=str)
def test_tiles_and_borders(tiled, size, border):
    """Odd widths, several tiles; radius 2 and more, where reflect and clamp no longer agree.

    The last size has tiles that lie inside the image with their halo, whose rows begin at multiples of 16.
    """
    check(tiled, random_image(*size), border=border, sigma=1.1, taps=5, threshold=60)
    check(tiled, random_image(*size, seed=1), border=border, sigma=1.5, threshold=None)


@pytest.mark.parametrize("border", ["clamp", "reflect101"])
@pytest.mark.parametrize("layout", ["packed", "planar", "gray"])
def test_layouts_pitches_and_regions(backend, layout, border):
    """Every format, order and alignment; the memory between rows and around a region stays as it was."""
    options = {"border": border, "sigma": 0, "threshold": 50}
    for channels, order, gap, corner in [
        (3, "rgb", 0, (0, 0)),
        (3, "bgr", 5, (2, 3)),
        (4, "rgb", 0, (1, 0)),
        (4, "bgr", 7, (0, 5)),
        (3, "rgb", 16, (0, 16)),
    ]:
        image = random_image(21, 48, layout, channels, gap=gap, corner=corner)
        check(backend, image, layout, order, gap=gap, corner=corner, **options)
    wide = random_image(6, 160, layout, 3)  # 16-byte loads: every row starts at a multiple of 16
    check(backend, wide, layout, gap=32, **options)


@pytest.mark.parametrize("layout", ["packed", "planar", "gray"])
def test_batches(backend, layout):
    batch = random_image(17, 40, layout, batch=3, gap=3)
    check(backend, batch, layout, sigma=0, threshold=70, border="clamp", gap=1)
    check(backend, batch, layout, stage="blur", sigma=0.8, border="zero")


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("threshold", [None, 0, 100, 254, 255])
def test_norms_and_thresholds(backend, norm, threshold):
    image = random_image(12, 31)
    check(backend, image, sigma=0, norm=norm, threshold=threshold)
    check(backend, image[..., 0], stage="edges", norm=norm, threshold=threshold)


@pytest.mark.parametrize("border", BORDERS)
def test_stages(tiled, border):
    """Each stage alone, from gray and from colour; blur up to 31 taps."""
    flat, colour = random_image(23, 37, "gray", gap=2), random_image(18, 33)
    for sigma, taps in ((0, 3), (0, 7), (5, 31), (0.1, 5)):
        check(tiled, flat, stage="blur", sigma=sigma, taps=taps, border=border)
    check(tiled, colour, stage="blur", sigma=0.9, border=border)
    check(tiled, flat, stage="sobel", border=border, gap=3)
    check(tiled, colour, stage="edges", border=border, threshold=90)  # without a blur
    check(tiled, colour, stage="sobel", border=border)
    inner = random_image(40, 80, "gray")
    check(tiled, inner, stage="blur", sigma=0, border=border)
    check(tiled, inner, stage="edges", threshold=90, border=border)


@pytest.mark.parametrize("layout", ["packed", "planar"])
def test_gray(backend, layout):
    for channels, order, gap, width in [(3, "rgb", 0, 37), (4, "bgr", 3, 50), (3, "bgr", 16, 64)]:
        check(
            backend, random_image(9, width, layout, channels, gap=gap), layout, order, stage="gray", gap=gap
        )


def test_every_radius(backend):
    """The runner takes one of each kind of window; 1, 2, 5 and 15 are in its other tests."""
    radii = (3, 4, 7, 8, 14) if backend.name == "simt" else range(1, 16)
    for radius in radii:
        image = random_image(11, 29, seed=radius)
        check(backend, image, sigma=0.33 * radius, taps=2 * radius + 1, border="wrap", threshold=None)


def test_extremes(backend):
    """Black, white and the steepest edges there are: no sum leaves its type."""
    for value in (0, 255):
        check(backend, np.full((9, 20, 3), value, np.uint8), sigma=2, border="reflect", threshold=None)
    stripes = np.zeros((24, 40, 3), np.uint8)
    stripes[:, 20:] = 255
    check(backend, stripes, stage="edges", threshold=None, norm="l2")
    check(backend, stripes[..., 0], stage="sobel")
    check(backend, np.ascontiguousarray(stripes.transpose(1, 0, 2)), sigma=0, threshold=254)


def test_a_tiny_sigma_changes_nothing(backend):
    image = random_image(5, 5, "gray")
    what = {"stage": "blur", "sigma": 0.1, "taps": 5}
    check(backend, image, "gray", **what)
    if backend.name == "cpu":
        assert np.array_equal(gaussian_blur(image, sigma=0.1, taps=5), image)


# The public functions, on the CPU.


def test_fused_equals_the_stages_one_by_one():
    image = random_image(40, 53)
    for border in BORDERS:
        step = gaussian_blur(gray(image), sigma=1.3, border=border)
        fused = edges(image, sigma=1.3, border=border, threshold=80)
        assert np.array_equal(fused, sobel_edges(step, threshold=80, border=border))
        gx, gy = sobel(step, border=border)
        assert gx.dtype == np.int16
        size = np.abs(gx.astype(int)) + np.abs(gy.astype(int))
        assert np.array_equal(fused, np.where(np.minimum(size, 255) > 80, 255, 0))


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_threads_strips_and_blocks(monkeypatch, threads):
    """Several strips and several blocks of columns give the bits of one."""
    monkeypatch.setenv("WARPFRONT_THREADS", threads)
    for size in ((301, 211), (40, 9001)):
        for border in ("clamp", "wrap", "zero"):
            check(Cpu(), random_image(*size), border=border, sigma=1.2, threshold=None)


def test_a_view_and_its_copy():
    canvas = random_image(60, 80)
    view = canvas[7:50, 11:70]
    assert np.array_equal(edges(view), edges(view.copy()))
    for other in (
        canvas[::-1],
        canvas[:, ::-1],
        canvas[:, ::2],
        canvas[..., ::-1],
        canvas.transpose(1, 0, 2),
    ):
        assert np.array_equal(edges(other), edges(other.copy()))
    bgr = canvas[..., ::-1]
    assert np.array_equal(edges(bgr, order="bgr"), edges(canvas))
    rgba = random_image(20, 30, channels=4)
    assert np.array_equal(edges(rgba), edges(rgba[..., :3].copy()))
    assert np.array_equal(edges(rgba[..., 1:]), edges(rgba[..., 1:].copy()))
    planar = np.moveaxis(canvas, -1, 0)
    assert np.array_equal(edges(planar, layout="planar"), edges(canvas))


def test_a_region_next_to_its_result():
    canvas = np.zeros((30, 80), np.uint8)
    canvas[:, :40] = random_image(30, 40, "gray")
    expected = edges(canvas[:, :40].copy(), threshold=50)
    edges(canvas[:, :40], threshold=50, out=canvas[:, 40:])
    assert np.array_equal(canvas[:, 40:], expected)


def test_lists_of_any_sizes():
    images = [random_image(h, w, seed=h) for h, w in ((5, 7), (64, 33), (1, 1), (20, 300))]
    found = edges(images, sigma=1, threshold=60)
    assert [np.array_equal(f, edges(i, sigma=1, threshold=60)) for f, i in zip(found, images, strict=True)]
    outs = [np.empty(i.shape[:2], np.uint8) for i in images]
    assert all(a is b for a, b in zip(edges(images, sigma=1, threshold=60, out=outs), outs, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(found, outs, strict=True))


def test_weights_are_whole_and_symmetric():
    assert gaussian_weights(0, 3) == (64, 128, 64)
    assert gaussian_weights(0, 5) == (16, 64, 96, 64, 16)
    assert gaussian_weights(1.1, 5) == (18, 63, 94, 63, 18)
    assert gaussian_weights(1.0, 5) == (14, 62, 104, 62, 14)
    assert gaussian_weights(1.5, 7)[:4] == (9, 29, 55, 70)
    assert gaussian_weights(2.0, 9)[:5] == (7, 17, 32, 46, 52)
    assert gaussian_weights(0.1, 5) == (0, 0, 256, 0, 0)
    assert gaussian_weights(1e-200, 5) == (0, 0, 256, 0, 0)
    for taps in range(1, 32, 2):
        for sigma in (-1, 0, 0.3, 1, 2.5, 5, 40, 1e300):
            weights = gaussian_weights(sigma, taps)
            assert len(weights) == taps
            assert sum(weights) == 256
            assert min(weights) >= 0
            assert weights == weights[::-1]
