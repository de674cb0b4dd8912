"""Graphs in GPU memory: upload, building from edges, transpose, renumbering, generators. All by CuPy's sorts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warpfront.backend import arrays, cuda
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.graph.graph import MAX_VERTICES, Graph

__all__ = ["by_degree", "from_csr", "from_edges", "generate", "grid_keep", "transpose", "upload"]

_THREADS = 256
_SOURCE = Path(__file__).parent / "generate.cu"


def upload(graph: Graph) -> Graph:
    """Copy a graph's arrays to the current device."""
    import cupy

    ptr, ind = cupy.asarray(graph.ptr), cupy.asarray(graph.ind)
    into: tuple[Any, Any] = (ptr, ind)
    if graph.directed:
        into = (None, None)
        if graph.can_pull:
            into = (cupy.asarray(graph.in_ptr), cupy.asarray(graph.in_ind))
    order = None if graph.order is None else cupy.asarray(graph.order)
    return replace(graph, ptr=ptr, ind=ind, in_ptr=into[0], in_ind=into[1], order=order, _kept={})


def from_edges(tail: Any, head: Any, n: int | None, directed: bool) -> Graph:
    """`Graph.from_edges` for arrays in device memory."""
    import cupy

    tail, head = arrays.as_device_array(tail), arrays.as_device_array(head)
    if (
        tail.ndim != 1
        or tail.shape != head.shape
        or tail.dtype.kind not in "iu"
        or head.dtype.kind not in "iu"
    ):
        raise InvalidValueError("tail and head must be vectors of integers of one length")
    wide = max(tail.dtype.itemsize, head.dtype.itemsize) == 8
    if n is None:
        n = 1 + max((int(a.max()) for a in (tail, head) if a.size), default=-1)
    if n > MAX_VERTICES:
        raise NotSupportedError(f"vertices are numbered in 32 bits inside: at most {MAX_VERTICES}, got {n}")
    for name, a in (("tail", tail), ("head", head)):
        outside = cupy.flatnonzero((a < 0) | (a >= n))[:1] if a.size else a
        if outside.size:
            k = int(outside[0])
            raise InvalidValueError(f"{name}[{k}] is vertex {int(a[k])}, and there are 0 … {n - 1}")
    count = int(tail.size)
    keys = _keys(tail, head)
    keys = keys[tail != head]
    loops = count - int(keys.size)
    if not directed:
        keys = cupy.concatenate([keys, keys << np.uint64(32) | keys >> np.uint64(32)])
    before = int(keys.size)
    ptr, ind = _rows(keys, n)
    repeated = (before - int(ind.size)) // (1 if directed else 2)
    into = (None, None) if directed else (ptr, ind)
    index = np.dtype(np.int64 if wide else np.int32)
    made = Graph(ptr, ind, directed, into[0], into[1], index_dtype=index)
    return replace(made, input_edges=count, loops=loops, repeated=repeated, _kept={})


def from_csr(ptr: Any, ind: Any, directed: bool | None) -> Graph:
    """`Graph.from_csr` for arrays in device memory; rows are always sorted anew."""
    import cupy

    ptr, ind = arrays.as_device_array(ptr), arrays.as_device_array(ind)
    n = int(ptr.size) - 1
    if n < 0 or ptr.dtype.kind not in "iu" or ind.dtype.kind not in "iu":
        raise InvalidValueError("ptr and ind must be vectors of integers, ptr with n + 1 entries")
    counts = ptr[1:].astype(np.int64) - ptr[:-1].astype(np.int64)
    if int(ptr[0]) != 0 or int(ptr[-1]) != int(ind.size) or (n and int(counts.min()) < 0):
        raise InvalidValueError(f"ptr must rise from 0 to the number of arcs, {int(ind.size)}")
    outside = cupy.flatnonzero((ind < 0) | (ind >= n))[:1]
    if outside.size:
        k = int(outside[0])
        raise InvalidValueError(f"ind[{k}] is vertex {int(ind[k])}, and there are 0 … {n - 1}")
    tail = cupy.searchsorted(ptr, cupy.arange(ind.size, dtype=ptr.dtype), side="right") - 1
    keys = _keys(tail, ind)
    rows = _rows(keys, n)
    if directed is not True:
        back = _rows(keys << np.uint64(32) | keys >> np.uint64(32), n)
        symmetric = rows[1].size == back[1].size and all(
            bool((a == b).all()) for a, b in zip(rows, back, strict=True)
        )
        if directed is False and not symmetric:
            raise InvalidValueError("directed=False, and there is an arc without its reverse; see from_edges")
        directed = not symmetric
    into = (None, None) if directed else rows
    kind = np.dtype(np.int64 if ind.dtype.itemsize == 8 else np.int32)
    repeated = int(ind.size) - int(rows[1].size)
    counts = {"input_edges": int(ind.size), "repeated": repeated}
    return Graph(rows[0], rows[1], directed, into[0], into[1], index_dtype=kind, **counts)


def transpose(ptr: Any, ind: Any) -> tuple[Any, Any]:
    """Return offsets and heads of the reversed arcs."""
    keys = _keys(ind, _tails(ptr, ind))
    return _rows(keys, int(ptr.size) - 1)


def by_degree(graph: Graph) -> Graph:
    """`Graph.by_degree` in device memory."""
    import cupy

    degree = graph.ptr[1:] - graph.ptr[:-1]
    # One key for degree (descending) and number (ascending): no stable sort is asked for.
    key = (np.int64(MAX_VERTICES) - degree) << np.int64(32) | cupy.arange(graph.n, dtype=np.int64)
    order = (cupy.sort(key) & np.int64(0xFFFFFFFF)).astype(np.int32)
    rank = cupy.empty(graph.n, np.int32)
    rank[order] = cupy.arange(graph.n, dtype=np.int32)

    def renumbered(ptr: Any, ind: Any) -> tuple[Any, Any]:
        return _rows(_keys(rank[_tails(ptr, ind)], rank[ind]), graph.n)

    ptr, ind = renumbered(graph.ptr, graph.ind)
    into: tuple[Any, Any] = (ptr, ind)
    if graph.directed:
        into = renumbered(graph.in_ptr, graph.in_ind) if graph.can_pull else (None, None)
    return replace(graph, ptr=ptr, ind=ind, in_ptr=into[0], in_ind=into[1], order=order, _kept={})


def generate(kind: str, count: int, parameter: int, seed: int) -> tuple[Any, Any]:
    """Run a generator of generate.cu: tails and heads of its edges."""
    import cupy

    tail, head = cupy.empty(count, np.int32), cupy.empty(count, np.int32)
    if count:
        _launch(kind, "ppqqq", count, (tail.data.ptr, head.data.ptr, count, parameter, seed))
    return tail, head


def grid_keep(count: int, threshold: int, seed: int) -> Any:
    """Return which edges of a grid stay, bool[count]."""
    import cupy

    kept = cupy.empty(count, np.bool_)
    if count:
        _launch("grid_keep", "pqqq", count, (kept.data.ptr, count, threshold, seed))
    return kept


def _launch(name: str, signature: str, count: int, args: tuple[Any, ...]) -> None:
    import cupy

    device = int(cupy.cuda.runtime.getDevice())
    signed = [a if a < 2**63 else a - 2**64 for a in args]
    kernel = cuda.load(_SOURCE, f"{name}<{_THREADS}>", signature, device)
    kernel.launch(cupy.cuda.get_current_stream().ptr, -(-count // _THREADS), _THREADS, signed)


def _tails(ptr: Any, ind: Any) -> Any:
    import cupy

    return cupy.searchsorted(ptr, cupy.arange(ind.size, dtype=np.int64), side="right") - 1


def _keys(tail: Any, head: Any) -> Any:
    return tail.astype(np.uint64) << np.uint64(32) | head.astype(np.uint64)


def _rows(keys: Any, n: int) -> tuple[Any, Any]:
    """Return offsets and heads of arcs given as (tail, head) keys: sorted, each once."""
    import cupy

    keys = cupy.sort(keys)
    if keys.size:
        first = cupy.ones(keys.size, np.bool_)
        first[1:] = keys[1:] != keys[:-1]
        keys = keys[first]
    starts = cupy.arange(n + 1, dtype=np.uint64) << np.uint64(32)
    ptr = cupy.searchsorted(keys, starts).astype(np.int64)
    return ptr, (keys & np.uint64(0xFFFFFFFF)).astype(np.int32)
