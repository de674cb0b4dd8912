"""Rotary position embedding: tables of angles, and `apply_rope` for queries. Keys are turned as they enter a cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, prod
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention._arrays import (
    Given,
    byte_range,
    c_ordered,
    empty,
    host_view,
    integers,
    read,
    read_only,
    same_place,
    writable,
)
from warpfront.attention._host import KIND
from warpfront.attention._options import flag
from warpfront.attention._problem import check_dtype, check_rotary_dim
from warpfront.errors import InvalidValueError

__all__ = ["RotaryEmbedding", "Rotation", "apply_rope", "rotation_for"]

# Tables of all positions are kept up to here; beyond, angles of the positions in question are computed at each call.
KEPT_POSITIONS = 1 << 16


@dataclass(frozen=True)
class RotaryEmbedding:
    """Rotary position embedding (Su et al., RoFormer, 2021): pair ``c`` turns by ``position theta^(-2 c / dim)``.

    Attributes
    ----------
    dim : int
        Elements of a head that are turned, even; those after them stay.
    theta : float
    interleaved : bool
        Pairs are neighbours ``(2 c, 2 c + 1)``, as in GPT-J; otherwise ``(c, c + dim / 2)``, as in GPT-NeoX and Llama.
    """

    dim: int
    theta: float = 10000.0
    interleaved: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, Integral) or self.dim < 2 or self.dim % 2:
            raise InvalidValueError(f"dim must be an even integer, at least 2, got {self.dim!r}")
        if not (isinstance(self.theta, Real) and isfinite(self.theta) and self.theta > 0):
            raise InvalidValueError(f"theta must be a positive number, got {self.theta!r}")
        object.__setattr__(self, "interleaved", flag("interleaved", self.interleaved))

    def tables(self, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return cosines and sines of the first positions: float32 (positions, dim / 2), rounded from float64."""
        return _tables(int(self.dim), float(self.theta), int(positions))


@lru_cache(maxsize=16)
def _tables(dim: int, theta: float, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _turns(dim, theta, np.arange(positions))


def _turns(
    dim: int, theta: float, positions: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    angles = positions[:, None] * theta ** (-2.0 * np.arange(dim // 2) / dim)
    tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    for table in tables:
        table.flags.writeable = False
    return tables


@dataclass(frozen=True, eq=False)
class Rotation:
    """Tables of cosines and sines, float32 (positions, pairs) and C-ordered, as kernels take them.

    ``rows`` int64 (tokens,) is each token's row in them; ``kept``: the tables come again, and are worth keeping on a device.
    """

    cos: Any
    sin: Any
    rows: NDArray[np.int64]
    interleaved: bool
    kept: bool

    @property
    def dim(self) -> int:
        """Elements of a head that are turned."""
        return 2 * int(self.cos.shape[1])


def rotation_for(rope: Any, positions: NDArray[np.int64], head_dim: int) -> Rotation:
    """Return tables for tokens at the given positions, and each token's row in them.

    Parameters
    ----------
    rope : RotaryEmbedding, or (cos, sin)
        Tables are float32 (positions, pairs), NumPy arrays or tensors; their pairs are ``(c, c + pairs)``.
    positions : int64 (tokens,)
    head_dim : int

    Raises
    ------
    InvalidValueError
        No tables, tables that end before a position, or more turned elements than a head has.
    """
    highest = int(positions.max(initial=-1))
    if isinstance(rope, RotaryEmbedding):
        check_rotary_dim(rope.dim, head_dim)
        if highest < KEPT_POSITIONS:
            # Tables for powers of two: few of them are ever made.
            cos, sin = rope.tables(1 << max(6, highest.bit_length()))
            return Rotation(cos, sin, positions, rope.interleaved, kept=True)
        each, rows = np.unique(positions, return_inverse=True)
        cos, sin = _turns(int(rope.dim), float(rope.theta), each)
        return Rotation(cos, sin, rows.astype(np.int64), rope.interleaved, kept=False)
    if not (isinstance(rope, tuple | list) and len(rope) == 2):
        raise InvalidValueError(
            f"rope must be a RotaryEmbedding or tables (cos, sin), got {type(rope).__name__}"
        )
    given = read("cos", rope[0]), read("sin", rope[1])
    _check_tables(*given, highest, head_dim)
    return Rotation(rope[0], rope[1], positions, interleaved=False, kept=False)


def _check_tables(cos: Given, sin: Given, highest: int, head_dim: int) -> None:
    if len(cos.shape) != 2 or cos.shape != sin.shape or {cos.dtype, sin.dtype} != {"float32"}:
        raise InvalidValueError(
            f"cos and sin must be float32 (positions, pairs), alike; got {cos.dtype} {cos.shape} and {sin.dtype} {sin.shape}"
        )
    check_rotary_dim(2 * cos.shape[1], head_dim)
    if highest >= cos.shape[0]:
        raise InvalidValueError(
            f"position {highest} is beyond the tables, which have {cos.shape[0]} positions"
        )


def host_tables(rotation: Rotation) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the tables as C-ordered arrays in host memory."""
    found = []
    for table in (rotation.cos, rotation.sin):
        x = table.cpu().numpy() if hasattr(table, "cpu") else table
        found.append(read_only(np.ascontiguousarray(x)))
    return found[0], found[1]


def device_tables(rotation: Rotation, device: Any) -> tuple[Any, Any]:
    """Return the tables as tensors on a GPU; those of a `RotaryEmbedding` are kept there."""
    import torch

    if rotation.kept:
        return _on_device(_Key(rotation.cos), str(device)), _on_device(_Key(rotation.sin), str(device))
    found = []
    for table in (rotation.cos, rotation.sin):
        x = torch.from_numpy(table.copy()) if isinstance(table, np.ndarray) else table
        found.append(x.to(device).contiguous())
    return found[0], found[1]


class _Key:
    """A table by identity."""

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.table is self.table


@lru_cache(maxsize=16)
def _on_device(key: _Key, device: str) -> Any:
    import torch

    return torch.from_numpy(key.table.copy()).to(device)


def apply_rope(x: Any, positions: Any, rope: Any, *, out: Any = None) -> Any:
    """Turn queries (or keys) by the angles of their positions.

    Parameters
    ----------
    x : array (..., heads, head_dim), C-ordered
        float16, bfloat16 or float32. NumPy array or tensor.
    positions : integers (...)
        Position of each token, at least 0: one for each of ``x``'s leading places. Host memory.
    rope : RotaryEmbedding, or (cos, sin)
        Tables are float32 (positions, pairs) for pairs ``(c, c + pairs)``.
    out : array, optional
        Where the result is written; it may be ``x`` itself, and shares no memory with ``x`` or tables otherwise.
        Default: a new array.

    Returns
    -------
    array like ``x``
        Computed in float32 or better, and rounded once.

    Raises
    ------
    InvalidValueError
        Wrong shapes or types, or a position outside the tables.
    """
    given = read("x", x)
    check_dtype(given.dtype)
    target = read("out", empty(given, given.shape) if out is None else out)
    if len(given.shape) < 2:
        raise InvalidValueError(f"x must be (..., heads, head_dim), got shape {given.shape}")
    if (target.shape, target.dtype, target.library) != (given.shape, given.dtype, given.library):
        raise InvalidValueError(
            f"out must be like x, {given.dtype} {given.shape}, got {target.dtype} {target.shape}"
        )
    for array in (given, target):
        if not c_ordered(array):
            raise InvalidValueError(f"{array.name} must be C-ordered; make a contiguous copy")
    places = np.asarray(positions.cpu() if hasattr(positions, "cpu") else positions)
    if places.shape != given.shape[:-2]:
        raise InvalidValueError(
            f"positions must have shape {given.shape[:-2]}, one for each token, got {places.shape}"
        )
    flat = integers("positions", places.reshape(-1), "integers")
    if flat.min(initial=0) < 0:
        raise InvalidValueError(f"positions must be at least 0, got {flat.min()}")
    heads, head_dim = given.shape[-2:]
    rotation = rotation_for(rope, flat, head_dim)
    if out is not None:
        same_place(given, target)
        itself = byte_range(given) == byte_range(target)
        tables = () if rotation.kept else (read("cos", rotation.cos), read("sin", rotation.sin))
        writable(target, tables if itself else (given, *tables))
    if 0 in given.shape:
        return target.owner
    tokens = prod(given.shape[:-2])
    if given.on_device:
        _rotate_on_device(given, target, rotation, (tokens, heads, head_dim))
    else:
        from warpfront.attention import _decode_kernels as kernels

        views = host_view(given).flat, host_view(target, written=True).flat
        turns = rotation.rows, *host_tables(rotation), rotation.interleaved
        kernels.rotate_rows(*views, *turns, KIND[given.dtype], heads, head_dim)
    return target.owner


def _rotate_on_device(given: Given, target: Given, rotation: Rotation, shape: tuple[int, int, int]) -> None:
    import torch

    from warpfront.attention import _triton_cache

    device = given.owner.device
    places = torch.from_numpy(rotation.rows).to(device)
    tables = device_tables(rotation, device)
    _triton_cache.rotate(
        given.owner.view(shape), places, *tables, rotation.interleaved, target.owner.view(shape)
    )
