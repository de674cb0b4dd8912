"""Decoding on a GPU, host side: tiles, grid and arguments of the two kernels, parts and merge.

Needs torch and triton, which only the kernels' modules import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpfront.attention import _problem as problems
from warpfront.attention._problem import KEY_TILE, DecodeProblem
from warpfront.attention._triton_prefill import coded_sizes, power_of_two, score_constants

__all__ = [
    "DecodeSpec",
    "DecodeTile",
    "MergeSpec",
    "decode_launches",
    "default_tile",
    "run_decode",
    "run_merge",
]

# Parts that the merge adds up at a time: part of the bits of every split result, so not tuned.
CHUNK = 64


@dataclass(frozen=True)
class DecodeTile:
    """What tuning chooses.

    Attributes
    ----------
    block_n, warps, stages : int
        Keys of a tile, warps, tiles in flight.
    policy : {"", "evict_first", "evict_last"}
        What L2 is told about keys and values.
    dependent : bool
        The merge is launched before the parts are done and waits on the device (compute capability 9.0 or newer).
    ahead : bool
        Page numbers are read a tile before its keys and values.
    """

    block_n: int
    warps: int
    stages: int
    policy: str = ""
    dependent: bool = False
    ahead: bool = False


@dataclass(frozen=True)
class DecodeSpec:
    """All compile-time constants of one instantiation of the decode kernel."""

    block_m: int
    block_n: int
    block_d: int
    head_dim: int
    row_tiles: int
    group: int
    q_len: int
    page_size: int
    stages: int
    splits: int
    cut: tuple[int, int, int, int]
    key_tile: int
    has_left: bool
    soft_cap: bool
    prescale: bool
    lse: bool
    precision: str
    policy: str
    dependent: bool
    ahead: bool
    partial: bool
    precise: bool


@dataclass(frozen=True)
class MergeSpec:
    """All compile-time constants of one instantiation of the merge kernel."""

    block_d: int
    head_dim: int
    all_parts: int
    chunk: int
    by_length: bool
    splits: int
    cut: tuple[int, int, int, int]
    key_tile: int
    lse: bool
    dependent: bool
    pairs: bool
    precise: bool


@dataclass(frozen=True)
class Launch:
    """A kernel's name (see `kernel_of`), grid, arguments and launch options."""

    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, int]


def kernel_of(name: str) -> Any:
    """Return a kernel by name; imports torch's and triton's part of the package."""
    if name == "decode":
        from warpfront.attention._triton_decode_kernels import decode_kernel

        return decode_kernel
    from warpfront.attention._triton_merge_kernels import merge_kernel

    return merge_kernel


def cut_of() -> tuple[int, int, int, int]:
    """Return what `part_keys` of `_problem` goes by, for the kernels."""
    return problems.SHORT, problems.SHORT_PART, problems.MIN_PART, problems.MAX_PARTS


def decode_spec(problem: DecodeProblem, tile: DecodeTile) -> DecodeSpec:
    """Return the instantiation for a problem. The query rows of a key head share a tile of 16 to 64 rows."""
    rows = problem.q_len * problem.group
    # Of float32 no more than a tile's least: its products have three parts, and larger ones took 10 s to compile.
    block_m = 16 if problem.dtype == "float32" else min(64, max(16, power_of_two(rows)))
    return DecodeSpec(
        block_m=block_m,
        block_n=tile.block_n,
        block_d=max(16, power_of_two(problem.head_dim)),
        head_dim=problem.head_dim,
        row_tiles=-(-rows // block_m),
        group=problem.group,
        q_len=problem.q_len,
        page_size=problem.page_size,
        stages=tile.stages,
        splits=problem.splits,
        cut=cut_of(),
        key_tile=KEY_TILE,
        has_left=problem.left >= 0,
        soft_cap=problem.soft_cap > 0.0,
        prescale=problem.dtype == "float32" or problem.soft_cap > 0.0 or problem.scale <= 0.0,
        lse=problem.return_lse or problem.max_parts > 1,
        precision="ieee",
        policy=tile.policy,
        dependent=tile.dependent and problem.max_parts > 1,
        ahead=tile.ahead,
        partial=problem.max_parts > 1,
        precise=problem.dtype == "float32",
    )


def decode_launches(
    problem: DecodeProblem, tensors: tuple[Any, ...], tile: DecodeTile | None = None
) -> tuple[Launch, ...]:
    """Return the launches of one step for tensors (q, k_pages, v_pages, table, lengths, out, lse, workspace)."""
    q, k, v, table, lengths, out, lse, workspace = tensors
    chosen = tile or default_tile(problem)
    spec = decode_spec(problem, chosen)
    parts = problem.max_parts
    split = parts > 1
    direct = (0, *out.stride()[:3])
    direct_lse = (0, *lse.stride()) if lse is not None else (0, 0, 0, 0)
    target, target_lse = workspace if split else (out, lse)
    strides = (
        *k.stride()[:3],
        *v.stride()[:3],
        *q.stride()[:3],
        *(target.stride()[:4] if split else direct),
        *coded_sizes((*(target_lse.stride()[:4] if split else direct_lse), table.stride()[0])),
    )
    sizes = coded_sizes((problem.kv_heads, parts, min(max(0, problem.left), problem.max_length)))
    scores = score_constants(problem.scale, problem.soft_cap)
    arguments = (q, k, v, table, lengths, target, target_lse, strides, sizes, scores, spec)
    grid = (problem.kv_heads * spec.row_tiles * parts * problem.batch,)
    first = Launch("decode", grid, arguments, {"num_warps": chosen.warps, "num_stages": chosen.stages})
    if not split:
        return (first,)
    merge_spec = MergeSpec(
        block_d=spec.block_d,
        head_dim=problem.head_dim,
        all_parts=power_of_two(parts),
        chunk=CHUNK,
        by_length=True,
        splits=problem.splits,
        cut=cut_of(),
        key_tile=KEY_TILE,
        lse=problem.return_lse,
        dependent=spec.dependent,
        pairs=True,
        precise=spec.precise,
    )
    by_lse, by_out = (
        coded_sizes((*target_lse.stride()[:4], *direct_lse[1:])),
        (*target.stride()[:4], *direct[1:]),
    )
    merge_strides = (*by_out[:4], *by_lse[:4], *by_out[4:], *by_lse[4:])
    merge_sizes = coded_sizes((problem.q_len, problem.heads, parts))
    merge_arguments = (target, target_lse, lengths, out, lse, merge_strides, merge_sizes, merge_spec)
    rows = problem.batch * problem.q_len * problem.heads
    options = {"num_warps": 4, "num_stages": 1}
    if spec.dependent:
        options["launch_pdl"] = True
    return (first, Launch("merge", (rows,), merge_arguments, options))


def run_decode(
    problem: DecodeProblem,
    q: Any,
    k_pages: Any,
    v_pages: Any,
    block_table: Any,
    lengths: Any,
    out: Any,
    lse: Any,
    workspace: tuple[Any, ...] | None,
    *,
    tile: DecodeTile | None = None,
) -> None:
    """Queue one decode step on torch's current stream; nothing waits, and with a workspace nothing is allocated.

    Parameters
    ----------
    problem : DecodeProblem
    q, out : Tensor (batch, q_len, heads, head_dim)
        Any strides but the last, which is 1; ``out`` is written.
    k_pages, v_pages : Tensor (num_pages, page_size, kv_heads, head_dim)
    block_table : Tensor int32 (batch, table_pages)
    lengths : Tensor int32 (batch,)
        0 gives zeros and -inf.
    lse : Tensor float32 (batch, q_len, heads), or None
        Written with ``problem.return_lse``.
    workspace : pair of float32 Tensors of ``problem.workspace_shapes``, or None
        Overwritten where ``problem.max_parts`` > 1; ``None`` allocates it there.
    tile : DecodeTile or None
        ``None`` takes the measured table's.
    """
    if problem.batch == 0:
        return
    if workspace is None and problem.max_parts > 1:
        import torch

        workspace = tuple(
            torch.empty(shape, dtype=torch.float32, device=q.device) for shape in problem.workspace_shapes
        )
    if tile is None:
        from warpfront.attention._dispatch import decode_tile, device_cc

        tile = decode_tile(problem, device_cc(q))
    tensors = (q, k_pages, v_pages, block_table, lengths, out, lse, workspace)
    for launch in decode_launches(problem, tensors, tile):
        kernel_of(launch.kernel)[launch.grid](*launch.arguments, **launch.options)


def run_merge(parts: Any, part_lse: Any, out: Any, lse: Any) -> None:
    """Queue the merge of partial results on torch's current stream.

    Parameters
    ----------
    parts : Tensor (parts, rows, head_dim)
    part_lse : Tensor float32 (parts, rows)
        Natural logarithms; a part with -inf is empty and its memory is not read.
    out : Tensor (rows, head_dim)
        Written.
    lse : Tensor float32 (rows,), or None
        Written.
    """
    count, rows, head_dim = parts.shape
    spec = MergeSpec(
        block_d=max(16, power_of_two(head_dim)),
        head_dim=head_dim,
        all_parts=power_of_two(count),
        chunk=CHUNK,
        by_length=False,
        splits=0,
        cut=cut_of(),
        key_tile=KEY_TILE,
        lse=lse is not None,
        dependent=False,
        pairs=False,
        precise=True,
    )
    part, row = parts.stride()[:2]
    by_lse = coded_sizes((part_lse.stride()[0], 0, 0, part_lse.stride()[1]))
    last = coded_sizes((0, 0, 0 if lse is None else lse.stride()[0]))
    steps = (part, 0, 0, row, *by_lse, 0, 0, out.stride()[0], *last)
    arguments = (parts, part_lse, None, out, lse, steps, coded_sizes((1, rows, count)), spec)
    if rows:
        kernel_of("merge")[(rows,)](*arguments, num_warps=4, num_stages=1)


def default_tile(problem: DecodeProblem) -> DecodeTile:
    """Return the tile for a problem where no table has one."""
    if problem.dtype == "float32":  # a tile's keys are one chain of sums: short ones err less
        return DecodeTile(16, 4, 2)
    return DecodeTile(64, 4, 3)
