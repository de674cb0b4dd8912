"""Edges of images in one pass: gray, Gaussian blur, Sobel, threshold, with the same bits on CPU and GPU."""

from __future__ import annotations

from typing import Any

from warpfront.backend import capability, dispatch
from warpfront.errors import InvalidValueError
from warpfront.image import run
from warpfront.image.layout import contiguous_pixels
from warpfront.image.operation import operation

__all__ = ["edges", "explain_edges", "gaussian_blur", "gray", "sobel", "sobel_edges"]


def edges(
    image: Any,
    *,
    sigma: float = 0.0,
    taps: int | None = None,
    threshold: int | None = 100,
    border: str = "reflect101",
    norm: str = "l1",
    layout: str = "packed",
    order: str = "rgb",
    out: Any = None,
    device: dispatch.Device = "auto",
    path: str = "auto",
) -> Any:
    """Find edges: gray -> Gaussian blur -> Sobel -> magnitude -> threshold, without an intermediate image.

    Every stage is exact integer arithmetic with one rounding at its end, and applies the border to its own
    input, so the result is equal bit for bit on any device, for any thread count, alone or in a batch, and to the
    four stages called one after the other.

    Parameters
    ----------
    image : uint8 array, or list of them
        NumPy, CuPy, PyTorch or JAX array (or any object with ``__cuda_array_interface__``); read only. Any
        height and width from 1, rows at any pitch: a region of interest is taken as it is. Pixels that do not lie side
        by side in their row are copied first. The images of a list may differ in size.
    sigma : float
        Standard deviation of the blur in pixels; zero or less: the kernel 1/16 [1 4 6 4 1], or its relative of
        ``taps`` taps. See `warpfront.image.gaussian_weights`.
    taps : int, optional
        Taps of the blur, odd, 1 to 31. Default: from ``sigma``; 5 for ``sigma <= 0``.
    threshold : int or None
        The result is 255 where the magnitude is strictly greater, else 0. ``None``: the magnitude itself.
    border : {"clamp", "reflect", "reflect101", "wrap", "zero"}
        What lies beyond the image: ``aa|abc|cc``, ``ba|abc|cb``, ``cb|abc|ba``, ``bc|abc|ab``, ``00|abc|00``.
    norm : {"l1", "l2"}
        Magnitude: ``|gx| + |gy|``, or ``sqrt(gx^2 + gy^2)`` rounded to nearest; both saturate at 255.
    layout : {"packed", "planar", "gray"}
        ``(h, w, c)``, ``(c, h, w)`` or ``(h, w)``, each also with a batch axis in front; ``c`` is 3 or 4, and
        alpha is not read. Two axes are gray under any layout.
    order : {"rgb", "bgr"}
        Of the channels.
    out : uint8 array (or list of them), optional
        Written: ``(h, w)``, with the batch axis if there is one; last axis contiguous, rows at any pitch.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: where the data is; large images in host memory go through a GPU where that was measured to be
        faster (`explain_edges` says so).
    path : str
        ``"auto"``, ``"portable"`` (a GPU) or ``"cpu"``.

    Returns
    -------
    uint8 array, or list of them
        ``out``, or new arrays of the image's library. GPU work is queued on the library's current stream and not
        waited for.

    Raises
    ------
    InvalidValueError
        A type, shape or option that is not offered; ``out`` does not fit or overlaps an image.
    NotSupportedError
        The device or path asked for cannot run; the message names the requirement.
    """
    what = operation("edges", sigma=sigma, taps=taps, border=border, threshold=threshold, norm=norm)
    return run.apply(what, image, layout, order, out, device, path)


def gray(
    image: Any,
    *,
    layout: str = "packed",
    order: str = "rgb",
    out: Any = None,
    device: dispatch.Device = "auto",
    path: str = "auto",
) -> Any:
    """Return gray values: ``(9798 R + 19235 G + 3735 B + 16384) >> 15``.

    Parameters and errors are those of `edges`.

    Returns
    -------
    uint8 array (h, w), with the batch axis if there is one, or list of them
    """
    return run.apply(operation("gray"), image, layout, order, out, device, path)


def gaussian_blur(
    image: Any,
    *,
    sigma: float = 0.0,
    taps: int | None = None,
    border: str = "reflect101",
    layout: str = "gray",
    order: str = "rgb",
    out: Any = None,
    device: dispatch.Device = "auto",
    path: str = "auto",
) -> Any:
    """Return the Gaussian blur of a gray image, or of the gray values of a colour image.

    Weights are whole multiples of 1/256 (`warpfront.image.gaussian_weights`), both passes are exact, and
    the result is rounded once: ``(sum + 32768) >> 16``. Parameters and errors are those of `edges`.

    Returns
    -------
    uint8 array (h, w), with the batch axis if there is one, or list of them
    """
    what = operation("blur", sigma=sigma, taps=taps, border=border)
    return run.apply(what, image, layout, order, out, device, path)


def sobel(
    image: Any,
    *,
    border: str = "reflect101",
    layout: str = "gray",
    order: str = "rgb",
    out: Any = None,
    device: dispatch.Device = "auto",
    path: str = "auto",
) -> Any:
    """Return the 3 x 3 Sobel derivatives of a gray image (or of gray values), exact.

    Parameters and errors are those of `edges`; ``out`` is a pair.

    Returns
    -------
    (gx, gy) : int16 arrays (h, w), with the batch axis if there is one, or list of pairs
        Derivatives to the right and downwards, -1020 to 1020.
    """
    return run.apply(operation("sobel", border=border), image, layout, order, out, device, path)


def sobel_edges(
    image: Any,
    *,
    threshold: int | None = 100,
    border: str = "reflect101",
    norm: str = "l1",
    layout: str = "gray",
    order: str = "rgb",
    out: Any = None,
    device: dispatch.Device = "auto",
    path: str = "auto",
) -> Any:
    """Return Sobel magnitude and threshold of a gray image (or of gray values), without a blur.

    Parameters and errors are those of `edges`.

    Returns
    -------
    uint8 array (h, w), with the batch axis if there is one, or list of them
    """
    what = operation("edges", border=border, threshold=threshold, norm=norm)
    return run.apply(what, image, layout, order, out, device, path)


def explain_edges(
    height: int,
    width: int,
    *,
    batch: int = 1,
    sigma: float = 0.0,
    taps: int | None = None,
    layout: str = "packed",
    device: dispatch.Device = "auto",
    path: str = "auto",
    on_device: bool = False,
    capability_: capability.Capability | None = None,
) -> tuple[dispatch.Decision, ...]:
    """Return which path `edges` takes for contiguous images of a size, and why not the others.

    Parameters
    ----------
    height, width, batch : int
    sigma, taps, layout, device, path
        As `edges`.
    on_device : bool
        Whether the images are in device memory.
    capability_ : Capability, optional
        Ask for another device than the one here.
    """
    if min(height, width, batch) < 1:
        raise InvalidValueError(f"sizes must be positive, got {batch} x {height} x {width}")
    shape: tuple[int, ...] = {
        "packed": (batch, height, width, 3),
        "planar": (batch, 3, height, width),
        "gray": (batch, height, width),
    }.get(layout, ())
    pixels = contiguous_pixels(shape, layout)
    what = operation("edges", sigma=sigma, taps=taps)
    problem = run.ImageProblem(what, pixels, "uint8", on_device)
    have = capability_ or (capability.probe(0) if capability.missing() is None else None)
    return run.explain(problem, device, path, have)
