"""Prefill on a GPU, host side: which tiles, which loads, which grid. Pure functions of sizes, strides and capability.

Needs torch and triton, which only the kernel's module imports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from warpfront.attention._problem import PrefillProblem

__all__ = ["PrefillSpec", "Tile", "launch_arguments", "prefill_spec", "run_prefill"]

_WIDE = 2**31
# Programs that look for spoilt rows: about as many as a large device runs at once.
REPAIRERS = 256


@dataclass(frozen=True)
class Tile:
    """What tuning chooses: queries and keys of a tile, warps, buffers in flight, how tiles are loaded, one loop or two."""

    block_m: int
    block_n: int
    warps: int
    stages: int
    descriptors: bool = False
    single: bool = False


@dataclass(frozen=True)
class PrefillSpec:
    """All compile-time constants of one instantiation of the prefill kernel."""

    block_m: int
    block_n: int
    block_d: int
    head_dim: int
    stages: int
    descriptors: bool
    single: bool
    wide: bool
    has_left: bool
    has_right: bool
    soft_cap: bool
    prescale: bool
    bias: int
    varlen: bool
    lse: bool
    ragged: bool
    contain: bool
    precision: str
    precise: bool
    repair: int


def power_of_two(value: int) -> int:
    """Return the least power of two that is not below ``value``."""
    return 1 << max(0, value - 1).bit_length()


def prefill_spec(
    problem: PrefillProblem, tile: Tile, strides: tuple[tuple[int, ...], ...], *, repair: bool = False
) -> PrefillSpec:
    """Return the instantiation for a problem.

    Parameters
    ----------
    problem : PrefillProblem
    tile : Tile
    strides : tuple of tuples of int
        (sequence, row, head) of q, k, v, out and (sequence, head, row, column) of bias in elements.
    repair : bool
        See `run_prefill`.
    """
    ragged = problem.right >= 0 or problem.varlen or problem.k_len % tile.block_n != 0
    precise = problem.dtype == "float32"
    # Scores that are more than products must be made of every tile; in float32 the largest has exponent 0 then, not nearly.
    made = precise or problem.soft_cap > 0.0 or problem.bias_shape is not None or problem.scale <= 0.0
    return PrefillSpec(
        block_m=tile.block_m,
        block_n=tile.block_n,
        block_d=max(16, power_of_two(problem.head_dim)),
        head_dim=problem.head_dim,
        stages=tile.stages,
        descriptors=tile.descriptors,
        single=tile.single and ragged and not made,
        wide=max(strides[1][1], strides[2][1]) * tile.block_n >= _WIDE,
        has_left=problem.left >= 0,
        has_right=problem.right >= 0,
        soft_cap=problem.soft_cap > 0.0,
        prescale=made,
        bias=0 if problem.bias_shape is None else 2 if strides[4][2] % 16 == 0 else 1,
        varlen=problem.varlen,
        lse=problem.return_lse,
        ragged=ragged,
        contain=ragged or problem.left >= 0 or problem.bias_shape is not None,
        precision="ieee",
        precise=precise,
        repair=repair_step(problem.group) if repair else 0,
    )


def repair_step(group: int) -> int:
    """Return how many rows apart a look for spoilt ones must be: a step of the tensor cores has 16 rows and heads."""
    return 16 // group if group in (1, 2, 4, 8) else 1


def score_constants(scale: float, soft_cap: float) -> tuple[float, float, float, float]:
    """Return the factor of products, the soft cap in base 2 (0: none), each in float32 and followed by what that lost.

    With a cap the factor is ``scale / soft_cap``; without one ``scale log2 e``.
    """
    inner = scale / soft_cap if soft_cap > 0.0 else scale / log(2.0)
    outer = soft_cap / log(2.0)
    near, cap = float(np.float32(inner)), float(np.float32(outer))
    return near, inner - near, cap, outer - cap


def coded_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return sizes as odd numbers above 1, which `size_of` in the kernel undoes.

    Triton compiles a kernel for seconds and anew for each set of integers that are 1 or multiples of 16: prompts of
    other lengths must not cost that. Strides stay as they are, since what they are multiples of makes loads wide; but for
    those of a bias whose rows are not aligned (``PrefillSpec.bias`` 1).
    """
    return tuple(2 * size + 3 for size in sizes)


def why_no_descriptors(
    problem: PrefillProblem, strides: tuple[tuple[int, ...], ...], k: Any, v: Any
) -> str | None:
    """Return why the tensor memory accelerator cannot load keys and values, or ``None``."""
    if problem.head_dim & (problem.head_dim - 1):
        return f"a head of {problem.head_dim} elements is no power of two, and its neighbour would be loaded with it"
    if problem.total_k == 0 or problem.k_len == 0:
        return "there are no keys"
    for name, tensor, (sequence, row, head) in (("k", k, strides[1]), ("v", v, strides[2])):
        itemsize = tensor.element_size()
        if tensor.data_ptr() % 16 or row * itemsize % 16 or row < problem.head_dim:
            return f"rows of {name} do not start at multiples of 16 bytes"
        if problem.batch > 1 and not problem.varlen and sequence % row:
            return f"sequences of {name} are not a whole number of rows apart"
        if problem.kv_heads > 1 and head % row and problem.kv_heads * head > row:
            return f"heads of {name} lie neither within a row nor a whole number of rows apart"
    return None


def launch_arguments(
    problem: PrefillProblem,
    spec: PrefillSpec,
    strides: tuple[tuple[int, ...], ...],
    tensors: tuple[Any, ...],
) -> tuple[tuple[int], tuple[Any, ...]]:
    """Return the grid and the arguments of the kernel for tensors (q, k, v, bias, out, lse, cu_q, cu_k)."""
    q, k, v, bias, out, lse, cu_q, cu_k = tensors
    tiles = -(-problem.q_len // spec.block_m)
    rows = (None, None)
    if spec.descriptors:
        rows = (_descriptor(problem, spec, k, strides[1]), _descriptor(problem, spec, v, strides[2]))
    sizes = (
        problem.q_len,
        problem.k_len,
        problem.heads,
        problem.group,
        min(max(0, problem.left), problem.q_len + problem.k_len),
        min(max(0, problem.right), problem.q_len + problem.k_len),
        problem.total_q,
        tiles * problem.heads * problem.batch,
    )
    arguments = (
        q,
        k,
        v,
        *rows,
        (bias, cu_q, cu_k),
        out,
        lse if spec.lse else None,
        (
            *sum(strides[:4], ()),
            *(coded_sizes(strides[4][:3]) if spec.bias == 1 else strides[4][:3]),
            strides[4][3],
        ),
        coded_sizes(sizes),
        score_constants(problem.scale, problem.soft_cap),
        spec,
    )
    return (tiles * problem.heads * problem.batch,), arguments


def _descriptor(problem: PrefillProblem, spec: PrefillSpec, tensor: Any, strides: tuple[int, ...]) -> Any:
    """Memory of keys or values as one matrix of rows: what `where` in the kernel counts in."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    sequence, row, head = strides
    last = (problem.kv_heads - 1) * head + spec.head_dim
    rows = problem.total_k if problem.varlen else problem.k_len
    if not problem.varlen:
        last += (problem.batch - 1) * sequence
    # Where the last row of the last head of the last sequence ends; a row is as wide as the step to the next one.
    columns = min(row, last) if problem.kv_heads > 1 and head < row else spec.head_dim
    count = rows + (last - columns) // row
    return TensorDescriptor(tensor, [count, columns], [row, 1], [spec.block_n, spec.block_d])


def tensor_strides(
    problem: PrefillProblem, q: Any, k: Any, v: Any, out: Any, bias: Any
) -> tuple[tuple[int, ...], ...]:
    """Return (sequence, row, head) of q, k, v, out and (sequence, head, row, column) of bias, 0 where it repeats."""
    found: list[tuple[int, ...]] = []
    for tensor in (q, k, v, out):
        step = tensor.stride()
        found.append((0, step[0], step[1]) if problem.varlen else (step[0], step[1], step[2]))
    if bias is None:
        found.append((0, 0, 0, 0))
    else:
        found.append(tuple(0 if size == 1 else s for size, s in zip(bias.shape, bias.stride(), strict=True)))
    return tuple(found)


def run_prefill(
    problem: PrefillProblem,
    q: Any,
    k: Any,
    v: Any,
    bias: Any,
    cu_q: Any,
    cu_k: Any,
    out: Any,
    lse: Any,
    *,
    tile: Tile | None = None,
    repair: bool = False,
) -> None:
    """Queue the kernel on torch's current stream.

    Parameters
    ----------
    problem : PrefillProblem
    q, out : Tensor (batch, q_len, heads, head_dim), or (total_q, heads, head_dim) with ``varlen``
    k, v : Tensor (batch, k_len, kv_heads, head_dim), or (total_k, kv_heads, head_dim)
        On one CUDA device; any strides but the last, which is 1.
    bias : Tensor of ``problem.bias_shape`` or None
    cu_q, cu_k : Tensor (batch + 1,) int32 or None
        Cumulated lengths, in device memory.
    out : Tensor
        Written.
    lse : Tensor float32 (batch, heads, q_len) or (heads, total_q), or None
        Written with ``problem.return_lse``.
    tile : Tile or None
        ``None`` takes the measured table's.
    repair : bool
        ``out`` holds another kernel's results; only tiles in which that left what is not a number are computed anew.
    """
    if problem.total_q == 0 or problem.batch == 0 or problem.q_len == 0:
        return
    from warpfront.attention import _triton_prefill_kernels

    strides = tensor_strides(problem, q, k, v, out, bias)
    chosen = tile or default_tile(problem)
    if chosen.descriptors and why_no_descriptors(problem, strides, k, v):
        chosen = replace(chosen, descriptors=False)
    spec = prefill_spec(problem, chosen, strides, repair=repair)
    grid, arguments = launch_arguments(problem, spec, strides, (q, k, v, bias, out, lse, cu_q, cu_k))
    options = {"num_warps": chosen.warps, "num_stages": chosen.stages}
    if repair:
        from warpfront.attention._triton_repair_kernels import repair_kernel

        programs = (min(grid[0], REPAIRERS),)
        repair_kernel[programs](*arguments, **options)
        return
    _triton_prefill_kernels.prefill_kernel[grid](*arguments, **options)


def default_tile(problem: PrefillProblem, shared_bytes: int = 99 << 10, *, narrow: bool = False) -> Tile:
    """Return the tile for a problem where no table has one, within a block's shared memory.

    ``narrow`` keeps rows below 64: on compute capability 10 wider tiles go to tensor memory, where Triton 3.7 fails to
    compile the masked walk.
    """
    if problem.dtype == "float32":  # a tile's keys are one chain of sums: short ones err less
        return Tile(32 if problem.head_dim <= 128 else 16, 16, 4, 1)
    if narrow:
        return Tile(32, 32 if problem.head_dim > 128 else 64, 4, 2)
    if problem.head_dim > 128:
        return Tile(64, 32, 4, 2)
    return Tile(64, 64, 4, 3 if shared_bytes >= 120 << 10 else 2)
