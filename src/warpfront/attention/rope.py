"""Rotary position embedding: tables of angles, and `apply_rope` for queries. Keys are turned as they enter a cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention._arrays import Given, c_ordered, empty, host_view, integers, read, read_only
from warpfront.attention._host import KIND
from warpfront.attention._problem import check_dtype, check_rotary_dim
from warpfront.errors import InvalidValueError

__all__ = ["RotaryEmbedding", "Rotation", "apply_rope", "rotation_for"]


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
        if isinstance(self.dim, bool) or not isinstance(self.dim, int) or self.dim < 2 or self.dim % 2:
            raise InvalidValueError(f"dim must be an even integer, at least 2, got {self.dim!r}")
        if not (isinstance(self.theta, int | float) and isfinite(self.theta) and self.theta > 0):
            raise InvalidValueError(f"theta must be a positive number, got {self.theta!r}")

    def tables(self, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return cosines and sines of the first positions: float32 (positions, dim / 2), rounded from float64."""
        return _tables(self.dim, float(self.theta), int(positions))


@lru_cache(maxsize=16)
def _tables(dim: int, theta: float, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    angles = np.arange(positions)[:, None] * theta ** (-2.0 * np.arange(dim // 2) / dim)
    tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    for table in tables:
        table.flags.writeable = False
    return tables


@dataclass(frozen=True, eq=False)
class Rotation:
    """Tables of cosines and sines, float32 (positions, pairs) and C-ordered, as kernels take them."""

    cos: Any
    sin: Any
    interleaved: bool

    @property
    def dim(self) -> int:
        """Elements of a head that are turned."""
        return 2 * int(self.cos.shape[1])


def rotation_for(rope: Any, highest: int, head_dim: int) -> Rotation:
    """Return the tables for positions up to ``highest``.

    Parameters
    ----------
    rope : RotaryEmbedding, or (cos, sin)
        Tables are float32 (positions, pairs), NumPy arrays or tensors; their pairs are ``(c, c + pairs)``.
    highest : int
        -1 where there is no token.
    head_dim : int

    Raises
    ------
    InvalidValueError
        No tables, tables that end before ``highest``, or more turned elements than a head has.
    """
    if isinstance(rope, RotaryEmbedding):
        check_rotary_dim(rope.dim, head_dim)
        # Tables for powers of two: few of them are ever made.
        cos, sin = rope.tables(1 << max(6, int(highest).bit_length()))
        return Rotation(cos, sin, rope.interleaved)
    if not (isinstance(rope, tuple | list) and len(rope) == 2):
        raise InvalidValueError(
            f"rope must be a RotaryEmbedding or tables (cos, sin), got {type(rope).__name__}"
        )
    given = read("cos", rope[0]), read("sin", rope[1])
    return _given_tables(*given, highest, head_dim)


def _given_tables(cos: Given, sin: Given, highest: int, head_dim: int) -> Rotation:
    if len(cos.shape) != 2 or cos.shape != sin.shape or {cos.dtype, sin.dtype} != {"float32"}:
        raise InvalidValueError(
            f"cos and sin must be float32 (positions, pairs), alike; got {cos.dtype} {cos.shape} and {sin.dtype} {sin.shape}"
        )
    check_rotary_dim(2 * cos.shape[1], head_dim)
    if highest >= cos.shape[0]:
        raise InvalidValueError(
            f"position {highest} is beyond the tables, which have {cos.shape[0]} positions"
        )
    return Rotation(cos.owner, sin.owner, False)


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

    if isinstance(rotation.cos, np.ndarray):
        return _on_device(_Key(rotation.cos), str(device)), _on_device(_Key(rotation.sin), str(device))
    return tuple(torch.as_tensor(x, device=device).contiguous() for x in (rotation.cos, rotation.sin))  # type: ignore[return-value]


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
        Where the result is written; it may be ``x`` itself. Default: a new array.

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
    rotation = rotation_for(rope, int(flat.max(initial=-1)), head_dim)
    if 0 in given.shape:
        return target.owner
    tokens = prod(given.shape[:-2])
    if given.on_device:
        _rotate_on_device(given, target, flat, rotation, (tokens, heads, head_dim))
    else:
        from warpfront.attention import _decode_kernels as kernels

        tables = host_tables(rotation)
        views = host_view(given).flat, host_view(target, written=True).flat
        kernels.rotate_rows(*views, flat, *tables, rotation.interleaved, KIND[given.dtype], heads, head_dim)
    return target.owner


def _rotate_on_device(
    given: Given, target: Given, positions: NDArray[np.int64], rotation: Rotation, shape: tuple[int, int, int]
) -> None:
    import torch

    from warpfront.attention import _triton_cache

    device = given.owner.device
    places = torch.from_numpy(positions).to(device)
    tables = device_tables(rotation, device)
    _triton_cache.rotate(
        given.owner.view(shape), places, *tables, rotation.interleaved, target.owner.view(shape)
    )
