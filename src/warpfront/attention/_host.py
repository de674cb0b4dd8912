"""The CPU path: arrays to the kernels' tables, threads, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention._arrays import HostView, read_only
from warpfront.attention._problem import DecodeProblem, PrefillProblem, part_count, part_keys
from warpfront.backend import cpu, settings

__all__ = ["KIND", "copy_pages", "merge", "run_decode", "run_prefill", "write_tokens"]

KIND = {"float32": 0, "float16": 1, "bfloat16": 2}
# Multiplications below which a second thread costs more than it brings.
_ALONE = 1 << 20


def run_prefill(
    problem: PrefillProblem,
    q: HostView,
    k: HostView,
    v: HostView,
    bias: HostView | None,
    cu: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    out: HostView,
    lse: NDArray[np.float32],
) -> None:
    """Compute one prefill on the CPU.

    Parameters
    ----------
    problem : PrefillProblem
    q, k, v, out : HostView
        Three or four axes, as ``problem.varlen`` says.
    bias : HostView of float32, or None
    cu : pair of int64 (batch + 1,), or None
        Cumulated lengths of queries and keys.
    lse : float32 (batch, heads, q_len) or (heads, total_q), C-ordered
        Written.
    """
    from warpfront.attention import _attention_kernels as kernels
    from warpfront.attention._tile_kernels import ROWS

    seq = _sequences(problem, (q, k, v, out), bias, cu)
    p = problem
    tiles = -(-p.q_len * p.group // ROWS)
    lse_strides = (1, p.total_q) if p.varlen else (1, p.q_len)
    bias_strides = (0, 0, 0)
    if bias is not None:
        bias_strides = (0 if bias.shape[1] == 1 else bias.strides[1], bias.strides[2], bias.strides[3])
    sizes = [0, tiles * p.batch * p.kv_heads, p.batch, p.kv_heads, p.group, p.head_dim, p.left, p.right]
    sizes += [KIND[p.dtype], int(bias is not None)]
    for array in (q, k, v, out):
        sizes += array.strides[-3:-1]
    table = np.array([*sizes, *lse_strides, *bias_strides], np.int64)
    coef = np.array([p.scale, p.soft_cap], np.float32)
    flat_bias = read_only(np.zeros(1, np.float32)) if bias is None else bias.flat
    work = p.batch * p.q_len * p.k_len * p.heads * p.head_dim
    _share(
        kernels.prefill_tasks,
        (seq, table, coef, q.flat, k.flat, v.flat, flat_bias, out.flat, lse.reshape(-1)),
        p.head_dim,
        1 if work < _ALONE else settings.threads(),
    )


def _sequences(
    p: PrefillProblem,
    arrays: tuple[HostView, HostView, HostView, HostView],
    bias: HostView | None,
    cu: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
) -> NDArray[np.int64]:
    """Return where each sequence's elements begin, (batch, 8)."""
    q, k, v, out = arrays
    each = np.arange(p.batch, dtype=np.int64)
    if cu is None:
        starts = [each * array.strides[0] for array in (q, k, v, out)]
        q_len, k_len = np.full(p.batch, p.q_len, np.int64), np.full(p.batch, p.k_len, np.int64)
        lse_at = each * (p.heads * p.q_len)
    else:
        begin_q, begin_k = cu[0][:-1], cu[1][:-1]
        starts = [
            at * array.strides[0]
            for at, array in zip((begin_q, begin_k, begin_k, begin_q), (q, k, v, out), strict=True)
        ]
        q_len, k_len, lse_at = np.diff(cu[0]), np.diff(cu[1]), begin_q
    bias_at = each * (0 if bias is None or bias.shape[0] == 1 else bias.strides[0])
    columns = (starts[0], q_len, starts[1], starts[2], k_len, starts[3], lse_at, bias_at)
    return np.ascontiguousarray(np.stack(columns, axis=1), np.int64)


def run_decode(
    problem: DecodeProblem,
    q: HostView,
    pages: tuple[NDArray[Any], NDArray[Any]],
    table: NDArray[np.int32],
    lengths: NDArray[np.int64],
    out: NDArray[Any],
    lse: NDArray[np.float32],
) -> None:
    """Compute one decode on the CPU.

    Parameters
    ----------
    problem : DecodeProblem
    q : HostView (batch, q_len, heads, head_dim)
    pages : pair of (num_pages, page_size, kv_heads, head_dim)
        Keys and values.
    table : int32 (batch, table_pages)
    lengths : int64 (batch,)
    out : (batch, q_len, heads, head_dim), C-ordered
        Written, as bits.
    lse : float32 (batch, q_len, heads), C-ordered
        Written.
    """
    from warpfront.attention import _decode_kernels as kernels

    p = problem
    spans = np.array(
        [(n, part_keys(int(n), p.splits), part_count(int(n), p.splits)) for n in lengths], np.int64
    ).reshape(-1, 3)
    most = int(spans[:, 2].max(initial=1))
    row = p.kv_heads * p.head_dim
    sizes = [
        0,
        p.batch * p.kv_heads * most,
        p.batch,
        p.kv_heads,
        p.group,
        p.head_dim,
        p.left,
        0,
        KIND[p.dtype],
        0,
    ]
    sizes += [*q.strides[1:3], row, p.head_dim, *(0,) * (kernels.Q_LEN - 14)]
    numbers = np.array([*sizes, p.q_len, p.page_size, q.strides[0], most], np.int64)
    coef = np.array([p.scale, p.soft_cap], np.float32)
    rows = p.batch * p.q_len * p.heads
    outputs, lses = np.empty(most * rows * p.head_dim, np.float32), np.empty(most * rows, np.float32)
    keys, values = (_flat(x) for x in pages)
    touched = int(lengths.sum()) * p.heads * p.head_dim * p.q_len
    _share(
        kernels.decode_tasks,
        (table, spans, numbers, coef, q.flat, keys, values, outputs, lses),
        p.head_dim,
        1 if touched < _ALONE else settings.threads(),
    )
    counts = np.repeat(spans[:, 2], p.q_len * p.heads)
    merge(outputs, lses, counts, (out.reshape(-1), lse.reshape(-1)), p.head_dim, (0, KIND[p.dtype]))


def merge(
    outputs: NDArray[Any],
    lses: NDArray[np.float32],
    counts: NDArray[np.int64],
    into: tuple[NDArray[Any], NDArray[np.float32]],
    head_dim: int,
    kinds: tuple[int, int],
) -> None:
    """Merge the parts of rows; see `warpfront.attention._decode_kernels.merge_rows` for the layout."""
    from warpfront.attention import _decode_kernels as kernels

    rows = counts.shape[0]
    threads = 1 if outputs.size < _ALONE else settings.threads()
    which = np.array(kinds, np.int64)
    parts = read_only(outputs), read_only(lses)

    def body(tid: int) -> None:
        begin, end = rows * tid // threads, rows * (tid + 1) // threads
        kernels.merge_rows(*parts, counts, *into, head_dim, which, begin, end)

    cpu.run_threads(threads, body)


def write_tokens(
    source: HostView,
    pages: NDArray[Any],
    slots: NDArray[np.int64],
    positions: NDArray[np.int64],
    tables: tuple[NDArray[np.float32], NDArray[np.float32], bool] | None,
    dtype: str,
) -> None:
    """Write tokens (..., kv_heads, head_dim) into slots of pages, turned by ``tables`` (cos, sin, interleaved)."""
    from warpfront.attention import _decode_kernels as kernels

    strides = tuple(step * source.flat.itemsize for step in source.strides)
    tokens = np.ascontiguousarray(np.lib.stride_tricks.as_strided(source.flat, source.shape, strides))
    flat = read_only(tokens.reshape(-1))
    none = read_only(np.zeros((1, 0), np.float32))
    angles = (none, none, False) if tables is None else tables
    kernels.write_tokens(flat, slots, positions, *angles, KIND[dtype], _flat(pages), *source.shape[-2:])


def copy_pages(
    storage: tuple[NDArray[Any], NDArray[Any]], sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> None:
    """Copy whole pages of keys and of values."""
    from warpfront.attention import _decode_kernels as kernels

    for pages in storage:
        kernels.copy_pages(_flat(pages), sources, targets, int(np.prod(pages.shape[1:])))


def _flat(pages: NDArray[Any]) -> NDArray[Any]:
    """Return pages as flat storage; float16 as its bits."""
    flat = pages.reshape(-1)
    return flat.view(np.uint16) if flat.dtype == np.float16 else flat


def _share(kernel: Any, arguments: tuple[Any, ...], head_dim: int, threads: int) -> None:
    """Let threads take the tasks of a kernel, each with scratch of its own, BLAS held at one thread."""
    from warpfront.attention._tile_kernels import scratch_size

    gemm = cpu.blas_address("gemm", "float32")

    def body(tid: int) -> None:
        kernel(*arguments, np.empty(scratch_size(head_dim), np.float32), gemm)

    with cpu.single_threaded_blas():
        cpu.run_threads(threads, body)
