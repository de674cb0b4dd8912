"""Paged cache on a GPU, host side: tokens written into pages, pages copied, heads turned by RoPE.

Everything is queued on torch's current stream and nothing waits. Triton is imported at the first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpfront.attention._device_storage import DeviceStorage
from warpfront.attention._problem import AppendProblem
from warpfront.attention._triton_prefill import power_of_two

__all__ = ["CacheSpec", "DeviceStorage", "append_pages", "append_spec", "copy_pages", "rotate"]

# Elements a program moves at a time: 16 bytes a lane and several requests in flight.
BLOCK = 2048


@dataclass(frozen=True)
class CacheSpec:
    """Compile-time constants: elements of a token (or page), of a head, those turned, how they pair, of a step."""

    width: int
    head_dim: int
    rotary_dim: int
    interleaved: bool
    block: int


def append_spec(problem: AppendProblem) -> CacheSpec:
    """Return the instantiation of the append kernel for a problem."""
    width = problem.kv_heads * problem.head_dim
    block = min(BLOCK, power_of_two(width))
    return CacheSpec(width, problem.head_dim, problem.rotary_dim, problem.interleaved, block)


def append_pages(
    problem: AppendProblem,
    k: Any,
    v: Any,
    slots: Any,
    positions: Any,
    cos: Any,
    sin: Any,
    k_pages: Any,
    v_pages: Any,
) -> None:
    """Write tokens into their slots.

    Parameters
    ----------
    problem : AppendProblem
    k, v : Tensor (tokens, kv_heads, head_dim)
        Any strides but the last, which is 1.
    slots : Tensor int64 (tokens,)
        ``page * page_size + token``, all different; -1 is not written.
    positions : Tensor int64 (tokens,)
        Rows of the tables; read where keys are turned.
    cos, sin : Tensor float32 (positions, rotary_dim / 2), or None without RoPE
    k_pages, v_pages : Tensor (num_pages, page_size, kv_heads, head_dim), C-contiguous
        Written.
    """
    if problem.tokens == 0:
        return
    from warpfront.attention._triton_cache_kernels import append_kernel

    steps = (*k.stride()[:2], *v.stride()[:2])
    arguments = (k, v, slots, positions, cos, sin, k_pages, v_pages, steps, append_spec(problem))
    append_kernel[(problem.tokens, 2)](*arguments, num_warps=4)


def copy_pages(sources: Any, targets: Any, k_pages: Any, v_pages: Any) -> None:
    """Copy whole pages of keys and values, ``sources[i]`` to ``targets[i]`` (int64 Tensors); no target is a source."""
    count = sources.shape[0]
    if count == 0:
        return
    from warpfront.attention._triton_cache_kernels import copy_kernel

    width = k_pages.shape[1] * k_pages.shape[2] * k_pages.shape[3]
    spec = CacheSpec(width, k_pages.shape[3], 0, False, min(BLOCK, power_of_two(width)))
    grid = (count, 2, -(-width // spec.block))
    copy_kernel[grid](sources, targets, k_pages, v_pages, spec, num_warps=4)


def rotate(x: Any, positions: Any, cos: Any, sin: Any, interleaved: bool, out: Any) -> None:
    """Turn heads by RoPE.

    Parameters
    ----------
    x, out : Tensor (tokens, heads, head_dim)
        Any strides of ``x`` but the last, which is 1; ``out``, written, is C-contiguous and may be ``x``.
    positions : Tensor int64 (tokens,)
    cos, sin : Tensor float32 (positions, rotary_dim / 2)
    interleaved : bool
    """
    tokens, heads, head_dim = x.shape
    if tokens == 0:
        return
    from warpfront.attention._triton_cache_kernels import rotate_kernel

    width = heads * head_dim
    spec = CacheSpec(width, head_dim, 2 * cos.shape[1], interleaved, power_of_two(width))
    rotate_kernel[(tokens,)](x, positions, cos, sin, out, x.stride()[:2], spec, num_warps=8)
