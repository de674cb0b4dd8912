"""From a caller's arrays to a kernel: checks, outputs, where it runs. Shared by all public functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from warpfront.backend import arrays, capability, dispatch
from warpfront.errors import InvalidValueError
from warpfront.image import _edges_cuda as plans
from warpfront.image import strips, transfer
from warpfront.image.layout import Pixels, contiguous_pixels, pixels_of
from warpfront.image.operation import Operation

__all__ = ["CROSSOVER_PIXELS", "PATHS", "ImageProblem", "apply", "check_type", "choice", "explain"]

# Images in host memory of at least this many pixels are faster through a GPU, both copies counted: on an H200 beside 16 CPU
# threads, and the more so beside two (section "Measured" of docs/image.md).
CROSSOVER_PIXELS = 1 << 16


@dataclass(frozen=True)
class ImageProblem:
    """One batch of images of one size, as dispatch sees it.

    Attributes
    ----------
    operation : Operation
    pixels : Pixels
    dtype : str
    on_device : bool
        Whether the images are in device memory.
    """

    operation: Operation
    pixels: Pixels
    dtype: str
    on_device: bool

    @property
    def worth_moving(self) -> bool:
        """Whether ``"auto"`` moves these images from host memory to a GPU."""
        return self.pixels.size >= CROSSOVER_PIXELS


@dispatch.requires(
    cc_min=(7, 5), shared_bytes=lambda p: plans.shared_bytes(p.operation, p.pixels), dtypes=("uint8",)
)
def _cuda(problem: ImageProblem, source: Any, targets: tuple[Any, ...]) -> None:
    plans.launch(problem.operation, problem.pixels, source, targets)


@dispatch.requires(device="cpu", dtypes=("uint8",))
def _cpu(problem: ImageProblem, source: Any, targets: tuple[Any, ...]) -> None:
    outputs = tuple((target, None if target.dtype == np.int16 else _out_pixels(target)) for target in targets)
    strips.run(problem.operation, (source, problem.pixels), outputs)


# In order of preference.
PATHS = (
    dispatch.Path("portable", _cuda, "tiles in shared memory, 16-byte loads, no intermediate image"),
    dispatch.Path("cpu", _cpu, "fused Numba kernel on strips of rows, threads over strips"),
)


@lru_cache(maxsize=1024)
def choice(
    problem: ImageProblem, device: dispatch.Device, path: str, have: capability.Capability | None
) -> dispatch.Choice:
    """Return the path that runs; ``"auto"`` moves large images from host memory to a GPU, if there is one."""
    absent = None if have else capability.missing()
    return dispatch.choose(PATHS, problem, _policy(problem, device, path, have), have, absent)


def explain(
    problem: ImageProblem, device: dispatch.Device, path: str, have: capability.Capability | None
) -> tuple[dispatch.Decision, ...]:
    """Return the decision about every path."""
    absent = None if have else capability.missing()
    policy = _policy(problem, device, path, have)
    decisions = dispatch.explain(PATHS, problem, policy, have, absent)
    if policy.device == device:
        return decisions
    why = f"from {CROSSOVER_PIXELS} pixels on a GPU is faster for data in host memory, both copies counted"
    return tuple(replace(d, reason=f"{d.reason}; {why}" if d.taken else why) for d in decisions)


def _policy(
    problem: ImageProblem, device: dispatch.Device, path: str, have: capability.Capability | None
) -> dispatch.Policy:
    if device == "auto" and path == "auto" and not problem.on_device and have and problem.worth_moving:
        moved = dispatch.Policy(device="cuda", path=path)
        if PATHS[0].requirement.unmet(problem, moved, have, None) is None:
            return moved
    return dispatch.Policy(device=device, path=path)


def apply(
    operation: Operation,
    images: Any,
    layout: str,
    order: str,
    out: Any,
    device: dispatch.Device,
    path: str,
) -> Any:
    """Compute one array of images, or each of a list or tuple of them.

    Returns
    -------
    array, tuple of two arrays (stage ``"sobel"``), or list
    """
    if not isinstance(images, (list, tuple)):
        return _one(operation, images, layout, order, out, device, path)
    if not images:
        raise InvalidValueError("there is no image: the list is empty")
    if out is not None and (not isinstance(out, (list, tuple)) or len(out) != len(images)):
        raise InvalidValueError(f"out must be a list of {len(images)} arrays, one for each image")
    result = []
    for k, image in enumerate(images):
        try:
            target = None if out is None else out[k]
            result.append(_one(operation, image, layout, order, target, device, path))
        except InvalidValueError as error:
            raise InvalidValueError(f"image {k}: {error}") from None
    return result


def _one(
    operation: Operation, image: Any, layout: str, order: str, out: Any, device: dispatch.Device, path: str
) -> Any:
    if arrays.is_device_array(image):
        return _on_device(operation, image, layout, order, out, device, path)
    if any(arrays.is_device_array(target) for target in _several(out)):
        raise InvalidValueError("the image is in host memory and out in device memory: give both in one")
    host = np.asarray(image)
    if host.dtype != np.uint8:  # the common case costs nothing
        check_type(str(host.dtype))
    pixels = pixels_of(host.shape, host.strides, layout, order)
    if pixels is None:
        host = np.ascontiguousarray(host)
        pixels = contiguous_pixels(host.shape, layout, order)
    _check_gray(operation, pixels)
    problem = ImageProblem(operation, pixels, "uint8", on_device=False)
    have = capability.probe(0) if capability.missing() is None else None
    chosen = choice(problem, device, path, have).path
    targets = _host_targets(operation, pixels, out)
    for target in targets if out is not None else ():
        if _overlap(_extent_of(host), _extent_of(target)):
            raise InvalidValueError(
                "out overlaps the image; every pixel is read several times, so give new memory"
            )
    if chosen.requirement.device == "cuda":
        _through_device(operation, host, layout, order, targets, path)
    else:
        chosen.run(problem, host, _batched(targets, pixels))
    return _result(targets)


def _on_device(
    operation: Operation, image: Any, layout: str, order: str, out: Any, device: dispatch.Device, path: str
) -> Any:
    source = arrays.view(image)
    check_type(source.dtype)
    pixels = pixels_of(source.shape, source.strides, layout, order)
    if pixels is None or not plans.takes(pixels):
        owner = source.owner
        source = arrays.view(owner.contiguous() if source.library == "torch" else owner.copy(order="C"))
        pixels = contiguous_pixels(source.shape, layout, order)
    _check_gray(operation, pixels)
    problem = ImageProblem(operation, pixels, "uint8", on_device=True)
    chosen = choice(problem, device, path, capability.probe(source.device)).path
    shape = _out_shape(pixels)
    if out is None:
        results = tuple(_device_empty(source, shape, kind) for kind in _kinds(operation))
    else:
        results = tuple(_several(out))
        if source.library == "jax" or any(arrays.library_of(r) != arrays.library_of(image) for r in results):
            raise InvalidValueError(
                "out must be of the image's library (and not of JAX, whose arrays are immutable)"
            )
    views = tuple(arrays.view(result) for result in results)
    _check_outs(operation, [(v.shape, v.strides, v.dtype) for v in views], shape)
    for v in views:
        if v.device != source.device:
            raise InvalidValueError(f"out is on GPU {v.device} and the image on GPU {source.device}")
        if _overlap(_device_extent(source), _device_extent(v)):
            raise InvalidValueError(
                "out overlaps the image; every pixel is read several times, so give new memory"
            )
    chosen.run(problem, source, views)
    if out is not None:
        return out
    return _result(tuple(arrays.to_library(result, source.library) for result in results))


def _through_device(
    operation: Operation, host: Any, layout: str, order: str, targets: tuple[Any, ...], path: str
) -> None:
    """NumPy in and out, the work on the GPU."""
    import cupy

    if host.nbytes < transfer.SMALL_BYTES:
        found = _several(_on_device(operation, cupy.asarray(host), layout, order, None, "cuda", path))
        for target, array in zip(targets, found, strict=True):
            target[...] = cupy.asnumpy(array)
        return
    host = np.ascontiguousarray(host)
    source, stream = cupy.empty(host.shape, cupy.uint8), cupy.cuda.get_current_stream()
    stream.synchronize()  # what the pool hands out may still be in use by work queued before
    transfer.to_device(host.reshape(-1), source.data.ptr, 0)
    found = _several(_on_device(operation, source, layout, order, None, "cuda", path))
    stream.synchronize()
    for target, array in zip(targets, found, strict=True):
        whole = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        transfer.to_host(array.data.ptr, whole.reshape(-1).view(np.uint8), 0)
        if whole is not target:
            target[...] = whole


def _host_targets(operation: Operation, pixels: Pixels, out: Any) -> tuple[Any, ...]:
    shape, kinds = _out_shape(pixels), _kinds(operation)
    if out is None:
        return tuple(np.empty(shape, kind) for kind in kinds)
    targets = tuple(_several(out))
    for target in targets:
        if not isinstance(target, np.ndarray) or not target.flags.writeable:
            raise InvalidValueError(f"out must be a writable NumPy array of shape {shape}")
    _check_outs(operation, [(t.shape, t.strides, str(t.dtype)) for t in targets], shape)
    return targets


def _check_outs(
    operation: Operation, found: list[tuple[tuple[int, ...], tuple[int, ...], str]], shape: tuple[int, ...]
) -> None:
    kinds = _kinds(operation)
    if len(found) != len(kinds):
        raise InvalidValueError(f"out must be {len(kinds)} arrays, got {len(found)}")
    for (have, strides, dtype), kind in zip(found, kinds, strict=True):
        if have != shape or dtype != kind:
            raise InvalidValueError(f"out must have shape {shape} and type {kind}, got {have}, {dtype}")
        if have[-1] > 1 and strides[-1] != np.dtype(kind).itemsize:
            raise InvalidValueError("out must have a contiguous last axis (its rows may lie at any pitch)")


def _kinds(operation: Operation) -> tuple[str, ...]:
    return ("int16", "int16") if operation.stage == "sobel" else ("uint8",)


def _out_shape(pixels: Pixels) -> tuple[int, ...]:
    size = (pixels.height, pixels.width)
    return (pixels.batch, *size) if pixels.batched else size


def _out_pixels(target: Any) -> Pixels:
    pixels = pixels_of(target.shape, target.strides, "gray")
    assert pixels is not None  # _check_outs has refused anything else
    return pixels


def _batched(targets: tuple[Any, ...], pixels: Pixels) -> tuple[Any, ...]:
    """Give int16 outputs the batch axis that the kernels index."""
    return tuple(target if target.dtype == np.uint8 or pixels.batched else target[None] for target in targets)


def _several(out: Any) -> tuple[Any, ...]:
    return () if out is None else tuple(out) if isinstance(out, (list, tuple)) else (out,)


def _result(targets: tuple[Any, ...]) -> Any:
    return targets if len(targets) > 1 else targets[0]


def check_type(dtype: str) -> None:
    """Refuse pixels that are not uint8, and say what to do."""
    if dtype != "uint8":
        raise InvalidValueError(
            f"pixels must be uint8, got {dtype}; scale to 0..255 and convert first, e.g. "
            "(255 * image).round().astype(numpy.uint8) for floats in 0..1"
        )


def _check_gray(operation: Operation, pixels: Pixels) -> None:
    if operation.stage == "gray" and pixels.gray:
        raise InvalidValueError("the image is gray already; gray() takes 3 or 4 channels")


@lru_cache(maxsize=4096)
def _strided(address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    low = address + sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = address + sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + 2
    return low, high


class _Extent:
    """Shape and strides at an address, as NumPy's overlap test takes it; the memory is never touched."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.bounds = _strided(address, shape, strides)
        self.__array_interface__ = {
            "data": (address, True),
            "shape": shape,
            "strides": strides,
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }


def _extent_of(a: Any) -> _Extent:
    return _Extent(int(a.__array_interface__["data"][0]), a.shape, a.strides, str(a.dtype))


def _device_extent(v: arrays.DeviceView) -> _Extent:
    return _Extent(v.pointer, v.shape, v.strides, v.dtype)


def _overlap(a: _Extent, b: _Extent) -> bool:
    if a.bounds[0] >= b.bounds[1] or b.bounds[0] >= a.bounds[1]:
        return False
    try:
        work: Any = 1 << 16  # of the exact test; NumPy's type hints know only its two special values
        return bool(np.shares_memory(np.asarray(a), np.asarray(b), max_work=work))
    except np.exceptions.TooHardError:
        return True


def _device_empty(source: arrays.DeviceView, shape: tuple[int, ...], kind: str) -> Any:
    if source.library == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, kind), device=source.owner.device)
    import cupy

    with cupy.cuda.Device(source.device):
        return cupy.empty(shape, kind)
