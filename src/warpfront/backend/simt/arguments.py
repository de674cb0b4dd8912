"""Kernel arguments: NumPy values on the host side, packed bytes on the kernel's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError

__all__ = [
    "READ_ONLY",
    "READ_WRITE",
    "UNWRITTEN",
    "ArgumentInfo",
    "Buffer",
    "In",
    "Out",
    "Packed",
    "Struct",
    "pack",
]

READ_ONLY, READ_WRITE, UNWRITTEN = 0, 1, 2


class In:
    """An array the kernel may only read, even where its parameter is not a pointer to const.

    Parameters
    ----------
    array : ndarray
        C-contiguous.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array


class Out:
    """An array the kernel must write before it reads: it starts as poison, and the written values come back.

    Parameters
    ----------
    array : ndarray
        C-contiguous, writable.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array


class Struct:
    """A structure passed by value, laid out by C's rules from its fields in order.

    Parameters
    ----------
    *fields : ndarray, In, Out, NumPy scalar or Struct
        Arrays become pointers; plain Python numbers are refused, since their size would be a guess.
    """

    def __init__(self, *fields: Any) -> None:
        self.fields = fields


@dataclass(frozen=True)
class ArgumentInfo:
    """What the compiled kernel says of one parameter (``simt::Argument``)."""

    size: int
    kind: str
    element_kind: str
    read_only: bool
    element_size: int


@dataclass(frozen=True)
class Buffer:
    """One array given to the kernel."""

    label: str
    array: NDArray[Any]
    mode: int

    @property
    def placed(self) -> int:
        """Mode, and the array's offset from a multiple of 16 bytes: the kernel gets an address with the same."""
        return self.mode | int(self.array.ctypes.data) % 16 << 4


@dataclass(frozen=True)
class Packed:
    """Bytes of one parameter, with the places where a buffer's address goes: (offset, buffer index)."""

    data: bytes
    pointers: tuple[tuple[int, int], ...]


def pack(
    args: Sequence[Any], infos: Sequence[ArgumentInfo], kernel: str
) -> tuple[list[Packed], list[Buffer]]:
    """Check arguments against the kernel's parameters and lay them out.

    Returns
    -------
    packed : list of Packed
        One per parameter.
    buffers : list of Buffer
        The arrays, each once; the same array given twice is one buffer.

    Raises
    ------
    InvalidValueError
        Wrong number, kind, item size or layout of an argument.
    """
    if len(args) != len(infos):
        raise InvalidValueError(f"{kernel} takes {len(infos)} arguments, got {len(args)}")
    buffers: list[Buffer] = []
    packed = []
    for k, (arg, info) in enumerate(zip(args, infos, strict=True)):
        label = f"argument {k}"
        if info.kind == "p":
            index = _buffer(arg, info, label, buffers)
            packed.append(Packed(bytes(8), ((0, index),)) if index >= 0 else Packed(bytes(8), ()))
        elif info.kind == "s":
            packed.append(_struct(arg, info, label, buffers))
        else:
            packed.append(Packed(_number(arg, info, label), ()))
    return packed, buffers


def _number(arg: Any, info: ArgumentInfo, label: str) -> bytes:
    dtype = np.dtype(f"{info.kind}{info.size}")
    value = np.asarray(arg)
    if value.shape != () or value.dtype.kind not in "biuf" or (value.dtype.kind == "f") > (info.kind == "f"):
        raise InvalidValueError(f"{label} must be a number that fits {dtype}, got {arg!r}")
    return value.astype(dtype, casting="same_kind" if isinstance(arg, np.generic) else "unsafe").tobytes()


def _buffer(arg: Any, info: ArgumentInfo | None, label: str, buffers: list[Buffer]) -> int:
    """Return the index of an array argument's buffer, added if new; -1 for a null pointer."""
    if arg is None:
        return -1
    read_only = info is not None and info.read_only
    mode = (
        READ_ONLY if isinstance(arg, In) or read_only else UNWRITTEN if isinstance(arg, Out) else READ_WRITE
    )
    array = arg.array if isinstance(arg, (In, Out)) else arg
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise InvalidValueError(f"{label} must be a C-contiguous array, got {type(array).__name__}")
    if info is not None and info.element_kind != "s" and info.element_size != array.dtype.itemsize:
        raise InvalidValueError(
            f"{label} points to {info.element_size}-byte items ({info.element_kind}), "
            f"got an array of {array.dtype}"
        )
    if mode != READ_ONLY and not array.flags.writeable:
        raise InvalidValueError(f"{label} is written by the kernel, and the array is read-only")
    for k, known in enumerate(buffers):
        if known.array is array:
            if known.mode == READ_ONLY and mode != READ_ONLY:
                buffers[k] = Buffer(known.label, array, mode)
            return k
    buffers.append(Buffer(label, array, mode))
    return len(buffers) - 1


def _struct(arg: Any, info: ArgumentInfo, label: str, buffers: list[Buffer]) -> Packed:
    if isinstance(arg, Struct):
        data = bytearray()
        pointers: list[tuple[int, int]] = []
        align = _append(arg, label, buffers, data, pointers)
        data.extend(bytes(-len(data) % align))
        packed = Packed(bytes(data), tuple(pointers))
    elif isinstance(arg, np.void):
        packed = Packed(arg.tobytes(), ())
    else:
        raise InvalidValueError(
            f"{label} is a structure: give a Struct or a NumPy record, got {type(arg).__name__}"
        )
    if len(packed.data) != info.size:
        raise InvalidValueError(
            f"{label} is a structure of {info.size} bytes, the fields given make {len(packed.data)}"
        )
    return packed


def _append(
    struct: Struct, label: str, buffers: list[Buffer], data: bytearray, pointers: list[tuple[int, int]]
) -> int:
    """Lay the fields of a structure behind ``data``; return the structure's alignment."""
    largest = 1

    def put(raw: bytes, align: int) -> int:
        data.extend(bytes(-len(data) % align))
        data.extend(raw)
        return len(data) - len(raw)

    for k, value in enumerate(struct.fields):
        name = f"{label}.{k}"
        if isinstance(value, Struct):
            inner = bytearray()
            spots: list[tuple[int, int]] = []
            align = _append(value, name, buffers, inner, spots)
            inner.extend(bytes(-len(inner) % align))
            at = put(bytes(inner), align)
            pointers.extend((at + o, b) for o, b in spots)
        elif isinstance(value, np.generic):
            align = value.dtype.alignment
            put(value.tobytes(), align)
        elif value is None or isinstance(value, (np.ndarray, In, Out)):
            align = 8
            index = _buffer(value, None, name, buffers)
            at = put(bytes(8), 8)
            if index >= 0:
                pointers.append((at, index))
        else:
            raise InvalidValueError(
                f"{name} must be an array, a NumPy scalar or a Struct, got {type(value).__name__}"
            )
        largest = max(largest, align)
    return largest


def relocate(packed: Packed, address: Callable[[int], int]) -> bytes:
    """Return the parameter's bytes with the buffers' addresses filled in."""
    data = bytearray(packed.data)
    for offset, index in packed.pointers:
        data[offset : offset + 8] = address(index).to_bytes(8, "little")
    return bytes(data)
