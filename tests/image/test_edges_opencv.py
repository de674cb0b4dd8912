"""Bit for bit with OpenCV's own functions, on the borders they support (extra ``[bench]``)."""

import numpy as np
import pytest
from images_for_tests import random_image

from warpfront.image import edges, gaussian_blur, gray, sobel

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: pip install 'warpfront[bench]'")

# OpenCV's derivatives refuse wrap, and its blur takes it although its page says otherwise.
BORDERS = {
    "clamp": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "reflect101": cv2.BORDER_REFLECT_101,
    "zero": cv2.BORDER_CONSTANT,
    "wrap": cv2.BORDER_WRAP,
}
SIZES = [(1, 1), (1, 9), (9, 1), (2, 2), (5, 5), (33, 47), (64, 100), (101, 31)]


def test_gray_of_every_colour():
    level = np.arange(256, dtype=np.uint8)
    for red in range(256):
        image = np.empty((256, 256, 3), np.uint8)
        image[..., 0], image[..., 1], image[..., 2] = red, level[:, None], level[None, :]
        assert np.array_equal(gray(image), cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))


def test_gray_of_every_order():
    for channels, codes in ((3, ("RGB", "BGR")), (4, ("RGBA", "BGRA"))):
        image = random_image(40, 51, channels=channels)
        for code, order in zip(codes, ("rgb", "bgr"), strict=True):
            expected = cv2.cvtColor(image, getattr(cv2, f"COLOR_{code}2GRAY"))
            assert np.array_equal(gray(image, order=order), expected)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("taps", range(1, 32, 2))
def test_blur(taps, border):
    for size in SIZES:
        image = random_image(*size, "gray", seed=taps)
        for sigma in (0, 0.1, 0.6, 1.1, 0.15 * taps + 0.35, 5.0):
            expected = cv2.GaussianBlur(image, (taps, taps), sigma, borderType=BORDERS[border])
            assert np.array_equal(gaussian_blur(image, sigma=sigma, taps=taps, border=border), expected)


@pytest.mark.parametrize("sigma", [0.2, 0.5, 0.77, 1.0, 1.1, 2.0, 3.3, 4.9])
def test_taps_from_sigma(sigma):
    image = random_image(50, 60, "gray")
    expected = cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101)
    assert np.array_equal(gaussian_blur(image, sigma=sigma), expected)


@pytest.mark.parametrize("border", [b for b in BORDERS if b != "wrap"])
def test_derivatives_and_the_whole_chain(border):
    mode = BORDERS[border]
    for size in SIZES:
        image = random_image(*size)
        flat = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (5, 5), 1.1, borderType=mode)
        gx, gy = (cv2.Sobel(flat, cv2.CV_16S, *d, borderType=mode) for d in ((1, 0), (0, 1)))
        own = sobel(flat, border=border)
        assert np.array_equal(own[0], gx)
        assert np.array_equal(own[1], gy)
        size_l1 = cv2.add(cv2.convertScaleAbs(gx), cv2.convertScaleAbs(gy))
        options = {"sigma": 1.1, "taps": 5, "border": border}
        assert np.array_equal(edges(image, threshold=None, **options), size_l1)
        expected = cv2.threshold(size_l1, 100, 255, cv2.THRESH_BINARY)[1]
        assert np.array_equal(edges(image, threshold=100, **options), expected)
