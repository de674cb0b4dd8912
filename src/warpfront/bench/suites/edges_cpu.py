"""Image edges on the CPU, beside OpenCV's chain of the same stages; every output equal to the reference, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, installed, suite

__all__ = ["run"]

_OPENCV = "opencv-python-headless"
_THRESHOLD = 100


def _opencv(sigma: float, taps: int) -> Any:
    """Return the chain as OpenCV's own functions, on as many threads as we use."""
    import cv2  # type: ignore[import-not-found, unused-ignore]

    from warpfront.backend import settings

    cv2.setNumThreads(settings.threads())

    def chain(state: tuple[Any, Any]) -> Any:
        flat = cv2.GaussianBlur(cv2.cvtColor(state[0], cv2.COLOR_RGB2GRAY), (taps, taps), sigma)
        gx, gy = cv2.Sobel(flat, cv2.CV_16S, 1, 0), cv2.Sobel(flat, cv2.CV_16S, 0, 1)
        size = cv2.add(cv2.convertScaleAbs(gx), cv2.convertScaleAbs(gy))
        return cv2.threshold(size, _THRESHOLD, 255, cv2.THRESH_BINARY, dst=state[1])[1]

    return chain


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    from warpfront.image import _reference, edges, gaussian_weights

    height, width, sigma, taps = entry["height"], entry["width"], float(entry["sigma"]), entry["taps"]
    made: list[Any] = []

    def make() -> tuple[Any, Any]:
        if not made:
            # Smooth shapes under noise: a picture has both, and edges in part of it.
            y, x = np.mgrid[0:height, 0:width]
            waves = 90 + 60 * np.sin(x / 37) + 50 * np.cos(y / 23)
            noise = np.random.default_rng(0).normal(0, 12, (height, width, 3))
            image = np.clip(waves[..., None] + noise, 0, 255).astype(np.uint8)
            expected = _reference.edges(image, gaussian_weights(sigma, taps), _THRESHOLD, "reflect101")
            made.extend((image, expected))
        return made[0], np.empty((height, width), np.uint8)

    def verify(state: tuple[Any, Any], output: Any) -> Verdict:
        wrong = int((output != made[1]).sum())
        return Verdict(
            not wrong, error=float(wrong), limit=0.0, detail=f"{wrong} pixels differ" if wrong else ""
        )

    moved = 4.0 * height * width
    cases = {
        "warpfront": Case(
            make,
            lambda s: edges(s[0], sigma=sigma, taps=taps, threshold=_THRESHOLD, out=s[1], device="cpu"),
            verify,
            bytes=moved,
            algorithm="fused, device cpu",
        )
    }
    if installed(_OPENCV):
        cases["opencv"] = Case(make, _opencv(sigma, taps), verify, bytes=moved, algorithm="seven calls")
    shapes = {"height": height, "width": width, "taps": taps}
    packages = {"opencv": _OPENCV}
    return [Comparison("edges", shapes, "uint8", "waves and noise", ["warpfront"], cases, 0, packages)]


run = suite("edges_cpu", "edges_cpu", _compare)
