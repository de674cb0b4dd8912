"""What is to be computed, as kernels on any device take it: sizes and options, checked once, frozen.

This is the seam between the public functions and the kernels. Arrays are not held here; a kernel gets them beside
its problem. Lengths that lie in device memory (of the sequences of a varlen batch, of a paged cache) are no part of
a problem either, so that making one never waits for a device.

`part_keys` and `part_count` say how `decode` cuts a sequence's keys into parts. They look at that sequence alone:
this is what makes the bits of a sequence independent of the batch it is in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = [
    "DTYPES",
    "GPU_HEAD_DIMS",
    "KEY_TILE",
    "MAX_HEAD_DIM",
    "MAX_PARTS",
    "MIN_PART",
    "PAGE_SIZES",
    "SHORT",
    "SHORT_PART",
    "AppendProblem",
    "DecodeProblem",
    "PrefillProblem",
    "part_count",
    "part_keys",
]

DTYPES = ("float16", "bfloat16", "float32")
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4}
# Names somebody may ask for, and what there is instead.
_PLANNED_DTYPES = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
MAX_HEAD_DIM = 256
GPU_HEAD_DIMS = (64, 80, 96, 128, 256)
PAGE_SIZES = (8, 16, 32, 64, 128)
# Keys are taken in tiles of this many, counted from a part's first key; a part is a whole number of tiles.
KEY_TILE = 64
# With splits="auto" a part has MIN_PART keys, or more where the sequence would have more than MAX_PARTS of them; in a
# sequence of up to SHORT keys, which few programs would share else, SHORT_PART.
MIN_PART = 256
MAX_PARTS = 64
SHORT = 1024
SHORT_PART = 128
# The most parts a caller may ask for.
SPLITS_LIMIT = 1024


def part_keys(length: int, splits: int = 0) -> int:
    """Return how many keys each part of a sequence has (its last part may have fewer).

    Parameters
    ----------
    length : int
        Keys of the sequence.
    splits : int
        Parts asked for; 0 is ``"auto"``.

    Returns
    -------
    int
        A multiple of `KEY_TILE`, at least one tile. For ``"auto"`` it is `SHORT_PART`, or `MIN_PART` times a power of two.
    """
    if splits > 0:
        return max(1, -(-length // (splits * KEY_TILE))) * KEY_TILE
    keys = SHORT_PART if length <= SHORT else MIN_PART
    while keys * MAX_PARTS < length:
        keys *= 2
    return keys


def part_count(length: int, splits: int = 0) -> int:
    """Return how many parts a sequence is cut into: at least one, at most ``splits`` (`MAX_PARTS` for ``"auto"``)."""
    return max(1, -(-length // part_keys(length, splits)))


@dataclass(frozen=True)
class PrefillProblem:
    """One call of `warpfront.attention.prefill`.

    Query ``i`` and key ``j`` of a sequence with ``q_len`` queries and ``k_len`` keys are ``j - i - (k_len - q_len)``
    apart: 0 on the diagonal, which ends in the bottom right corner.

    Attributes
    ----------
    batch : int
        Sequences.
    q_len, k_len : int
        Queries and keys of each sequence; with ``varlen`` upper bounds of them.
    total_q, total_k : int
        Rows of the arrays of a varlen batch; ``batch`` times the lengths otherwise.
    heads, kv_heads, head_dim : int
        Query head ``h`` reads key head ``h // (heads // kv_heads)``.
    dtype : {"float16", "bfloat16", "float32"}
        Of q, k, v and the output.
    on_device : bool
        Whether the arrays lie in device memory.
    varlen : bool
        q is (total_q, heads, head_dim), and so on, with cumulated lengths beside them.
    left, right : int
        A key is visible only where it is at most ``left`` before and at most ``right`` after the diagonal; -1 is no
        limit. ``causal`` is ``right = 0``.
    soft_cap : float
        Scores ``s`` become ``soft_cap tanh(s / soft_cap)``; 0 is none.
    scale : float
        Of the products q k, before the soft cap.
    bias_shape : tuple of int or None
        (batch or 1, heads or 1, q_len, k_len) of what is added after the soft cap; -inf hides a key.
    bias_dtype : str or None
        ``dtype`` or ``"float32"``.
    return_lse : bool
    """

    batch: int
    q_len: int
    k_len: int
    total_q: int
    total_k: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    on_device: bool = False
    varlen: bool = False
    left: int = -1
    right: int = -1
    soft_cap: float = 0.0
    scale: float = 1.0
    bias_shape: tuple[int, int, int, int] | None = None
    bias_dtype: str | None = None
    return_lse: bool = False

    def __post_init__(self) -> None:
        _check_heads(self.heads, self.kv_heads, self.head_dim)
        check_dtype(self.dtype)
        _check_scores(self.scale, self.soft_cap)
        if min(self.batch, self.q_len, self.k_len, self.total_q, self.total_k) < 0:
            raise InvalidValueError("sizes must not be negative")
        if min(self.left, self.right) < -1:
            raise InvalidValueError("a window's sides must be at least 0, or None for no limit")
        if self.bias_shape is not None:
            _check_bias(self.bias_shape, (self.batch, self.heads, self.q_len, self.k_len))
            if self.bias_dtype not in (self.dtype, "float32"):
                allowed = " or ".join(dict.fromkeys((self.dtype, "float32")))
                raise InvalidValueError(f"bias must be {allowed}, got {self.bias_dtype}")

    @property
    def causal(self) -> bool:
        """Whether no key after the diagonal is visible."""
        return self.right == 0

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def flops(self) -> float:
        """Floating-point operations of the two products over visible keys, window and diagonal counted exactly."""
        return 4.0 * self.heads * self.head_dim * self.batch * visible_pairs(self)


def visible_pairs(problem: PrefillProblem) -> int:
    """Return how many (query, key) pairs of one sequence of the longest lengths the window leaves."""
    q_len, k_len = problem.q_len, problem.k_len
    if problem.left < 0 and problem.right < 0:
        return q_len * k_len
    total = 0
    for i in range(q_len):
        at = i + k_len - q_len
        first = 0 if problem.left < 0 else max(0, at - problem.left)
        end = k_len if problem.right < 0 else min(k_len, at + problem.right + 1)
        total += max(0, end - first)
    return total


@dataclass(frozen=True)
class DecodeProblem:
    """One call of `warpfront.attention.decode`: the newest tokens of each sequence against its pages.

    Attributes
    ----------
    batch : int
        Rows, padded ones (length 0) included.
    q_len : int
        Newest tokens of each sequence, which are in the cache already; token ``t`` sees the keys up to its own
        place, ``length - q_len + t``.
    heads, kv_heads, head_dim, dtype
        As `PrefillProblem`.
    page_size : int
        Tokens of a page, a power of two.
    table_pages : int
        Columns of the block table, int32 (batch, table_pages); entries beyond a sequence's pages are -1.
    num_pages : int
        Pages the storage has place for. Element offsets pass 2^31: they are int64.
    max_length : int
        Upper bound of the lengths of this call (a graph's capacity): what the grid is made for.
    splits : int
        0 is ``"auto"``; see `part_keys`.
    left : int
        As `PrefillProblem`; there is no right side.
    soft_cap, scale, return_lse, on_device
        As `PrefillProblem`.
    """

    batch: int
    q_len: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    page_size: int
    table_pages: int
    num_pages: int
    max_length: int
    splits: int = 0
    left: int = -1
    soft_cap: float = 0.0
    scale: float = 1.0
    return_lse: bool = False
    on_device: bool = False

    def __post_init__(self) -> None:
        _check_heads(self.heads, self.kv_heads, self.head_dim)
        check_dtype(self.dtype)
        _check_scores(self.scale, self.soft_cap)
        check_page_size(self.page_size)
        if self.q_len < 1:
            raise InvalidValueError(f"decode needs at least one query a sequence, got {self.q_len}")
        if min(self.batch, self.table_pages, self.num_pages, self.max_length) < 0:
            raise InvalidValueError("sizes must not be negative")
        if not 0 <= self.splits <= SPLITS_LIMIT:
            raise InvalidValueError(f'splits must be "auto" or 1 to {SPLITS_LIMIT}, got {self.splits}')
        if self.left < -1:
            raise InvalidValueError("a window's left side must be at least 0, or None for no limit")

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def max_parts(self) -> int:
        """Most parts any sequence of this call may have; the workspace has room for as many."""
        if self.splits:
            return min(self.splits, max(1, -(-self.max_length // KEY_TILE)))
        # Of all lengths up to the bound, the longest short one has the most, or one that fills MAX_PARTS parts.
        short = -(-min(self.max_length, SHORT) // SHORT_PART)
        return max(1, short, min(MAX_PARTS, -(-self.max_length // MIN_PART)))

    @property
    def workspace_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of float32 partial sums, (parts, batch, q_len, heads, head_dim), and of their (maximum, total)."""
        rows = (self.max_parts, self.batch, self.q_len, self.heads)
        return (*rows, self.head_dim), (*rows, 2)


@dataclass(frozen=True)
class AppendProblem:
    """Tokens that are written into pages, their keys turned by RoPE where ``rotary_dim`` is not 0.

    Attributes
    ----------
    tokens : int
        Rows of k and v, (tokens, kv_heads, head_dim).
    kv_heads, head_dim, dtype, page_size, num_pages
        As `DecodeProblem`.
    rotary_dim : int
        Even; the first so many elements of a key are turned, the others are copied. 0: nothing is turned.
    interleaved : bool
        Pairs are neighbours (2 i, 2 i + 1) instead of (i, i + rotary_dim / 2).
    on_device : bool
    """

    tokens: int
    kv_heads: int
    head_dim: int
    dtype: str
    page_size: int
    num_pages: int
    rotary_dim: int = 0
    interleaved: bool = False
    on_device: bool = False

    def __post_init__(self) -> None:
        _check_heads(self.kv_heads, self.kv_heads, self.head_dim)
        check_dtype(self.dtype)
        check_page_size(self.page_size)
        check_rotary_dim(self.rotary_dim, self.head_dim)


def check_rotary_dim(rotary_dim: int, head_dim: int) -> None:
    """Raise `InvalidValueError` unless so many elements of a head can be turned in pairs."""
    if rotary_dim % 2 or not 0 <= rotary_dim <= head_dim:
        raise InvalidValueError(
            f"RoPE turns an even number of elements, at most head_dim = {head_dim}, got {rotary_dim}"
        )


def check_page_size(page_size: int) -> None:
    """Raise `InvalidValueError` for a page size that no kernel has."""
    if page_size not in PAGE_SIZES:
        raise InvalidValueError(
            f"page_size must be one of {', '.join(map(str, PAGE_SIZES))}, got {page_size!r}"
        )


def _check_heads(heads: int, kv_heads: int, head_dim: int) -> None:
    if kv_heads < 1 or heads < 1:
        raise InvalidValueError(
            f"there must be at least one head, got {heads} query heads and {kv_heads} key heads"
        )
    if heads % kv_heads:
        raise InvalidValueError(
            f"{heads} query heads cannot share {kv_heads} key heads evenly; the first must be a multiple of the second"
        )
    if not 1 <= head_dim <= MAX_HEAD_DIM:
        raise InvalidValueError(f"head_dim must be 1 to {MAX_HEAD_DIM}, got {head_dim}")


def check_dtype(dtype: str) -> None:
    if dtype in DTYPES:
        return
    if dtype in _PLANNED_DTYPES:
        raise NotSupportedError(
            f"quantised keys and values ({dtype}) have no kernel yet; use {', '.join(DTYPES)}"
        )
    hint = "; convert to float32" if dtype == "float64" else ""
    raise InvalidValueError(f"the element type must be {', '.join(DTYPES)}, got {dtype}{hint}")


def _check_scores(scale: Any, soft_cap: Any) -> None:
    if not math.isfinite(scale):
        raise InvalidValueError(f"scale must be finite, got {scale}")
    if not (math.isfinite(soft_cap) and soft_cap >= 0.0):
        raise InvalidValueError(f"soft_cap must be positive and finite, or None, got {soft_cap}")


def _check_bias(shape: tuple[int, ...], full: tuple[int, ...]) -> None:
    fits = len(shape) == 4 and all(
        have == want or (axis < 2 and have == 1)
        for axis, (have, want) in enumerate(zip(shape, full, strict=True))
    )
    if not fits:
        batch, heads, q_len, k_len = full
        raise InvalidValueError(
            f"bias must have shape ({batch} or 1, {heads} or 1, {q_len}, {k_len}), got {tuple(shape)}"
        )
