"""The caller's arrays: which library and device they are of, and flat views of those in host memory.

NumPy arrays (with ``ml_dtypes`` also bfloat16) and PyTorch's tensors on the CPU are read where they lie; no library is
imported that the caller does not use. Tensors on a GPU are handed on as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.arrays import library_of
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = [
    "Given",
    "HostView",
    "byte_range",
    "c_ordered",
    "empty",
    "host_view",
    "integers",
    "read",
    "read_only",
    "same_place",
    "writable",
]

BITS = {"float16": np.uint16, "bfloat16": np.uint16, "float32": np.float32}


@dataclass(frozen=True)
class Given:
    """One array as the caller gave it.

    Attributes
    ----------
    name : str
        Of the argument, for messages.
    owner : array or tensor
    library : {"numpy", "torch"}
    on_device : bool
    dtype : str
        Without the library's prefix.
    shape : tuple of int
    strides : tuple of int
        In elements.
    """

    name: str
    owner: Any
    library: str
    on_device: bool
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class HostView:
    """An array in host memory: one-dimensional storage from its first element on, and strides in elements."""

    flat: NDArray[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(name: str, x: Any) -> Given:
    """Say what an array is.

    Raises
    ------
    InvalidValueError
        No array, a tensor that records gradients, or one that is not stored as it reads (conjugated, sparse).
    NotSupportedError
        A device array of another library than PyTorch.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidValueError(
            f"{name} is a masked array, whose mask would be ignored; pass its data and a bias of -inf"
        )
    if isinstance(x, np.ndarray):
        size = x.itemsize
        if any(step % size for step in x.strides):
            raise InvalidValueError(
                f"{name}'s strides, {x.strides} bytes, are no multiples of its {size}-byte elements; make a contiguous copy"
            )
        return Given(
            name, x, "numpy", False, str(x.dtype), x.shape, tuple(step // size for step in x.strides)
        )
    if type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "stride"):
        if x.requires_grad:
            raise InvalidValueError(
                f"{name} records gradients, and there is no backward pass; pass {name}.detach()"
            )
        if str(x.layout) != "torch.strided":
            raise InvalidValueError(f"{name} is a tensor of layout {x.layout}; attention takes dense ones")
        if x.is_neg() or x.is_conj():
            bit, remedy = ("negative", "neg") if x.is_neg() else ("conjugate", "conj")
            raise InvalidValueError(
                f"{name} has its {bit} bit set: its memory does not hold the values it shows; pass {name}.resolve_{remedy}()"
            )
        if x.device.type not in ("cpu", "cuda"):
            raise NotSupportedError(f"{name} is on {x.device}; attention runs on the CPU and on CUDA devices")
        kind = str(x.dtype).removeprefix("torch.")
        return Given(name, x, "torch", x.is_cuda, kind, tuple(x.shape), tuple(x.stride()))
    if library_of(x) is not None:
        raise NotSupportedError(
            f"{name} is a device array of {type(x).__module__.partition('.')[0]}; on a GPU attention takes PyTorch's "
            "tensors: torch.from_dlpack(x) shares the memory"
        )
    raise InvalidValueError(f"{name} must be a NumPy array or a PyTorch tensor, got {type(x).__name__}")


def same_place(first: Given, *others: Given) -> None:
    """Raise `InvalidValueError` unless all arrays are of one library, device and element type."""
    for other in others:
        for what in ("library", "dtype"):
            have, want = getattr(other, what), getattr(first, what)
            if have != want:
                raise InvalidValueError(
                    f"{other.name} is {have} and {first.name} is {want}; they must be the same"
                )
        mine = first.owner.device if first.library == "torch" else None
        theirs = other.owner.device if other.library == "torch" else None
        if mine != theirs:
            raise InvalidValueError(
                f"{other.name} is on {theirs} and {first.name} on {mine}; they must be on one device"
            )


def writable(target: Given, inputs: tuple[Given, ...]) -> None:
    """Raise `InvalidValueError` unless each element of an array has memory of its own and none is an input's.

    What is compared are the ranges of addresses from an array's first to its last byte, so gaps count as taken.
    """
    if target.library == "numpy" and not target.owner.flags.writeable:
        raise InvalidValueError(f"{target.name} is read-only")
    span = 1
    for step, n in sorted(zip(target.strides, target.shape, strict=True)):
        if n > 1 and step < span and 0 not in target.shape:
            raise InvalidValueError(
                f"elements of {target.name} share memory or lie backwards (strides {target.strides} for shape "
                f"{target.shape}); give an array with a place for each"
            )
        span += (n - 1) * step
    begin, end = byte_range(target)
    for x in inputs:
        first, last = byte_range(x)
        if max(begin, first) < min(end, last):
            raise InvalidValueError(
                f"{target.name} shares memory with {x.name}; give an array that lies apart from every input"
            )


def byte_range(given: Given) -> tuple[int, int]:
    """Return the addresses an array lies in: of its first byte, and behind its last."""
    x = given.owner
    if 0 in given.shape:
        return 0, 0
    size = x.itemsize if given.library == "numpy" else x.element_size()
    begin = x.__array_interface__["data"][0] if given.library == "numpy" else x.data_ptr()
    reach = [(n - 1) * step * size for n, step in zip(given.shape, given.strides, strict=True)]
    return begin + sum(min(0, step) for step in reach), begin + size + sum(max(0, step) for step in reach)


def host_view(given: Given, *, written: bool = False) -> HostView:
    """Return flat storage of an array in host memory, without a copy unless a stride is negative.

    16-bit types come as their bits. What is not to be written is read-only, whatever the caller's array is: kernels are
    compiled for one of the two.

    Raises
    ------
    InvalidValueError
        The last axis is not contiguous, or an element type that no kernel has.
    """
    kind = BITS.get(given.dtype)
    if kind is None:
        raise InvalidValueError(f"{given.name} must be {', '.join(BITS)}, got {given.dtype}")
    contiguous_rows(given)
    x = given.owner
    if given.library == "torch":
        import torch

        x = (x if given.dtype == "float32" else x.view(torch.int16)).numpy()
    x = x.view(kind)
    if min(x.strides, default=0) < 0:
        x = np.ascontiguousarray(x)
    strides = tuple(step // x.itemsize for step in x.strides)
    if x.size == 0:
        nothing = np.empty(1, kind)
        return HostView(nothing if written else read_only(nothing), x.shape, strides)
    span = 1 + sum((n - 1) * step for n, step in zip(x.shape, strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))
    return HostView(flat if written else read_only(flat), x.shape, strides)


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written."""
    found = x.view()
    found.flags.writeable = False
    return found


def contiguous_rows(given: Given) -> None:
    """Raise `InvalidValueError` where the last axis has gaps."""
    if given.strides and given.strides[-1] != 1 and given.shape[-1] > 1 and 0 not in given.shape:
        raise InvalidValueError(
            f"{given.name}'s last axis must be contiguous (stride 1), got stride {given.strides[-1]}; make a contiguous copy"
        )


def c_ordered(given: Given) -> bool:
    """Tell whether an array is C-ordered without gaps."""
    if 0 in given.shape:
        return True
    expected = [prod(given.shape[axis + 1 :]) for axis in range(len(given.shape))]
    return all(
        step == want for n, step, want in zip(given.shape, given.strides, expected, strict=True) if n > 1
    )


def empty(like: Given, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """Return a new C-ordered array of ``like``'s library and device, of its type or of ``dtype``."""
    if like.library == "torch":
        import torch

        kind = like.owner.dtype if dtype is None else getattr(torch, dtype)
        return torch.empty(shape, dtype=kind, device=like.owner.device)
    return np.empty(shape, like.owner.dtype if dtype is None else dtype)


def integers(name: str, x: Any, what: str) -> NDArray[np.int64]:
    """Return host integers as int64.

    Raises
    ------
    InvalidValueError
        Not one-dimensional, or not of an integer type.
    """
    if type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "numpy"):
        x = x.numpy()
    array = np.asarray(x)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidValueError(f"{name} must be {what}, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64)
