"""Image edges on the CPU, fused and stage by stage, beside OpenCV; every output equal to the reference, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, installed, suite

__all__ = ["run"]

_OPENCV = "opencv-python-headless"
_THRESHOLD = 100
_State = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def _picture(height: int, width: int) -> NDArray[np.uint8]:
    """Smooth shapes under noise: a picture has both, and edges in part of it."""
    y, x = np.mgrid[0:height, 0:width]
    waves = 90 + 60 * np.sin(x / 37) + 50 * np.cos(y / 23)
    noise = np.random.default_rng(0).normal(0, 12, (height, width, 3))
    picture: NDArray[np.uint8] = np.clip(waves[..., None] + noise, 0, 255).astype(np.uint8)
    return picture


def _ours(stage: str, sigma: float, taps: int, layout: str) -> Callable[[_State], Any]:
    from warpfront.image import edges, gaussian_blur, gray

    blur: dict[str, Any] = {"sigma": sigma, "taps": taps, "device": "cpu"}
    if stage == "gray":
        return lambda s: gray(s[0], layout=layout, out=s[1], device="cpu")
    if stage == "blur":
        return lambda s: gaussian_blur(s[0], out=s[1], **blur)
    return lambda s: edges(s[0], layout=layout, threshold=_THRESHOLD, out=s[1], **blur)


def _opencv(stage: str, sigma: float, taps: int) -> Callable[[_State], Any]:
    """Return the stage or the chain as OpenCV's own functions, on as many threads as we use."""
    import cv2  # type: ignore[import-not-found, unused-ignore]

    from warpfront.backend import settings

    cv2.setNumThreads(settings.threads())
    size = (taps, taps)
    if stage == "gray":
        return lambda s: cv2.cvtColor(s[0], cv2.COLOR_RGB2GRAY, dst=s[1])
    if stage == "blur":
        return lambda s: cv2.GaussianBlur(s[0], size, sigma, dst=s[1])

    def chain(s: _State) -> Any:
        flat = cv2.GaussianBlur(cv2.cvtColor(s[0], cv2.COLOR_RGB2GRAY), size, sigma)
        gx, gy = cv2.Sobel(flat, cv2.CV_16S, 1, 0), cv2.Sobel(flat, cv2.CV_16S, 0, 1)
        magnitude = cv2.add(cv2.convertScaleAbs(gx), cv2.convertScaleAbs(gy))
        return cv2.threshold(magnitude, _THRESHOLD, 255, cv2.THRESH_BINARY, dst=s[1])[1]

    return chain


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    from warpfront.image import _reference, gaussian_weights

    height, width, sigma, taps = entry["height"], entry["width"], float(entry["sigma"]), entry["taps"]
    stage, layout = entry.get("stage", "edges"), entry.get("layout", "packed")
    made: list[Any] = []

    def make() -> _State:
        if not made:
            image, weights = _picture(height, width), gaussian_weights(sigma, taps)
            if stage == "edges":
                expected = _reference.edges(image, weights, _THRESHOLD, "reflect101")
            else:
                expected = _reference.gray(image)
            if stage == "blur":
                image, expected = expected, _reference.blur(expected, weights, "reflect101")
            made.extend(
                (np.ascontiguousarray(np.moveaxis(image, -1, 0)) if layout == "planar" else image, expected)
            )
        return made[0], np.empty((height, width), np.uint8)

    def verify(state: _State, output: Any) -> Verdict:
        wrong = int((output != made[1]).sum())
        return Verdict(
            not wrong, error=float(wrong), limit=0.0, detail=f"{wrong} pixels differ" if wrong else ""
        )

    moved = (2.0 if stage == "blur" else 4.0) * height * width
    ours = _ours(stage, sigma, taps, layout)
    cases = {
        "warpfront": Case(make, ours, verify, bytes=moved, algorithm="fused" if stage == "edges" else stage)
    }
    packages = {}
    if layout == "packed":  # OpenCV has no planar images
        packages["opencv"] = _OPENCV
        if installed(_OPENCV):
            cases["opencv"] = Case(
                make, _opencv(stage, sigma, taps), verify, bytes=moved, algorithm="its own calls"
            )
    shapes = {"height": height, "width": width, "taps": taps}
    return [Comparison(stage, shapes, "uint8", "waves and noise", ["warpfront"], cases, 0, packages)]


run = suite("edges_cpu", "edges_cpu", _compare)
