"""Arrays in device memory, whichever library owns them: where they lie, and that library's stream.

CuPy, PyTorch and JAX arrays, and any object with ``__cuda_array_interface__``. Importing this module imports
none of these libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from warpfront.errors import InvalidValueError

__all__ = [
    "DeviceView",
    "as_device_array",
    "empty_like",
    "is_device_array",
    "library_of",
    "to_library",
    "view",
]


@dataclass(frozen=True)
class DeviceView:
    """Where an array lies in device memory, and the stream its library would use now.

    Attributes
    ----------
    pointer : int
        Address of the first element.
    shape : tuple of int
    strides : tuple of int
        In bytes.
    dtype : str
        Element type by name, without the library's prefix.
    itemsize : int
        Bytes of an element.
    device : int
        CUDA ordinal.
    stream : int
        Handle of the current stream; 0 is the legacy default stream.
    library : {"cupy", "torch", "jax"}
    owner : object
        Keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    itemsize: int
    device: int
    stream: int
    library: str
    owner: Any


def library_of(x: Any) -> str | None:
    """Return which library a device array is of, ``None`` for anything in host memory.

    ``"cupy"``, ``"torch"``, ``"jax"``; ``"interface"`` is any other object with ``__cuda_array_interface__``.
    """
    root = type(x).__module__.partition(".")[0]
    if root == "cupy":
        return "cupy" if hasattr(x, "data") and hasattr(x, "strides") else None
    if root == "torch":
        return "torch" if getattr(x, "is_cuda", False) else None
    if root in ("jax", "jaxlib"):
        return "jax" if any(device.platform in ("gpu", "cuda") for device in x.devices()) else None
    return "interface" if hasattr(x, "__cuda_array_interface__") else None


def is_device_array(x: Any) -> bool:
    """Return whether an object holds its data in CUDA device memory."""
    return library_of(x) is not None


@cache
def dtype_name(dtype: Any) -> str:
    """Return the name of a NumPy element type; kept, because NumPy builds it anew at each call."""
    return str(dtype)


def view(x: Any) -> DeviceView:
    """Return where a device array lies.

    Raises
    ------
    InvalidValueError
        ``x`` is no device array, or a PyTorch tensor that records gradients.
    """
    library = library_of(x)
    if library == "torch":
        return _torch_view(x)
    if library is None:
        raise InvalidValueError(f"not an array in device memory: {type(x).__name__}")
    array = x if library == "cupy" else as_device_array(x)
    import cupy

    return DeviceView(
        pointer=int(array.data.ptr),
        shape=array.shape,
        strides=array.strides,
        dtype=dtype_name(array.dtype),
        itemsize=array.itemsize,
        device=array.data.device_id,
        stream=int(cupy.cuda.get_current_stream().ptr),
        library="jax" if library == "jax" else "cupy",
        owner=array,
    )


def _torch_view(x: Any) -> DeviceView:
    import torch

    if x.requires_grad:
        raise InvalidValueError("the tensor records gradients; pass tensor.detach()")
    x = x.resolve_conj().resolve_neg()
    size = x.element_size()
    return DeviceView(
        pointer=x.data_ptr(),
        shape=tuple(x.shape),
        strides=tuple(size * step for step in x.stride()),
        dtype=str(x.dtype).removeprefix("torch."),
        itemsize=size,
        device=x.get_device(),
        stream=int(torch.cuda.current_stream(x.device).cuda_stream),
        library="torch",
        owner=x,
    )


def as_device_array(x: Any) -> Any:
    """Return a CuPy array on the memory of a device array of any library, without a copy.

    A CuPy array is returned as it is; PyTorch and JAX arrays come through DLPack (the producer makes its
    stream and CuPy's current stream wait for one another), other objects through
    ``__cuda_array_interface__``.
    """
    library = library_of(x)
    if library is None:
        raise InvalidValueError(f"not an array in device memory: {type(x).__name__}")
    if library == "cupy":
        return x
    import cupy

    return cupy.from_dlpack(x) if library in ("torch", "jax") else cupy.asarray(x)


def empty_like(like: DeviceView, shape: tuple[int, ...]) -> Any:
    """Return a new C-ordered array of ``like``'s library, type and device.

    For JAX it is a CuPy array, which `to_library` hands over.
    """
    if like.library == "torch":
        import torch

        return torch.empty(shape, dtype=like.owner.dtype, device=like.owner.device)
    import cupy

    with cupy.cuda.Device(like.device):
        return cupy.empty(shape, dtype=like.owner.dtype)


def to_library(array: Any, library: str) -> Any:
    """Hand a CuPy array to ``library``; only JAX needs a conversion, which waits until the array is ready.

    JAX keeps its own streams and does not wait for CuPy's.
    """
    if library != "jax":
        return array
    import cupy
    import jax

    cupy.cuda.get_current_stream().synchronize()
    return jax.dlpack.from_dlpack(array)
