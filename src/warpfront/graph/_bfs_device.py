"""The GPU as the `Machine` of `_bfs_run.run`: arrays by CuPy, launches by `warpfront.backend.cuda`, times by events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability, cuda
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Found, Options
from warpfront.graph._bfs_run import run
from warpfront.graph.graph import Graph
from warpfront.graph.result import Levels

__all__ = ["Gpu", "new_state", "search"]


class Gpu:
    """CuPy's current device and stream.

    Parameters
    ----------
    blocks_per_sm : int, optional
        Blocks of a cooperative launch on one multiprocessor, at most as many as fit.
    """

    def __init__(self, blocks_per_sm: int | None = None) -> None:
        import cupy

        self._cupy = cupy
        self.device = int(cupy.cuda.runtime.getDevice())
        self.stream = cupy.cuda.get_current_stream()
        self._blocks_per_sm = blocks_per_sm
        self._events: list[Any] = []

    def launch(
        self,
        kernel: plans.Kernel,
        blocks: int,
        threads: int,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:
        """Queue a launch."""
        self.prepare(kernel, blocks, threads, args, shared_bytes=shared_bytes, cooperative=cooperative)()

    def prepare(
        self,
        kernel: plans.Kernel,
        blocks: int,
        threads: int,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> Callable[[], None]:
        """Return what queues a launch on the stream that is current then."""
        loaded = cuda.load(kernel.source, kernel.expression, kernel.signature, self.device)
        numbers = [a if isinstance(a, int) else 0 if a is None else a.data.ptr for a in args]

        def queue() -> None:
            loaded.launch(self.stream.ptr, blocks, threads, numbers, shared_bytes, cooperative=cooperative)

        return queue

    def clear(self, words: Any, first: int, last: int) -> None:
        """Queue setting part of an array to 0."""
        size = words.dtype.itemsize
        self._cupy.cuda.runtime.memsetAsync(
            words.data.ptr + first * size, 0, (last - first) * size, self.stream.ptr
        )

    def read(self, words: Any, first: int, last: int) -> NDArray[np.uint64]:
        """Wait, and return part of an array."""
        found: NDArray[np.uint64] = self._cupy.asnumpy(words[first:last])
        return found

    def mark(self) -> None:
        """Take the time."""
        event = self._cupy.cuda.Event()
        event.record(self.stream)
        self._events.append(event)

    def resident(self, kernel: plans.Kernel, threads: int) -> int:
        """Return how many blocks the device holds at once."""
        loaded = cuda.load(kernel.source, kernel.expression, kernel.signature, self.device)
        fit = loaded.blocks_per_sm(threads)
        return max(1, min(fit, self._blocks_per_sm or fit) * capability.probe(self.device).sm_count)

    def seconds(self) -> NDArray[np.float64]:
        """Return the times between marks, and forget them."""
        events, self._events = self._events, []
        events[-1].synchronize()
        pairs = pairwise(events)
        return np.array([self._cupy.cuda.get_elapsed_time(a, b) * 1e-3 for a, b in pairs])


def search(
    graph: Graph, sources: NDArray[np.int64], options: Options, variant: str, machine: Gpu | None = None
) -> Found:
    """Search a graph in device memory; results stay there. ``sources``: inner numbers, ascending, each once."""
    with graph.ptr.device:
        spare: list[tuple[Options, plans.State]] = graph._kept.setdefault(("state", variant), [])
        before, state = spare.pop() if spare else (options, new_state(graph, options, variant))
        if before != options:
            head = slice(0, plans.BARRIER)  # the parameters
            state.control[head].set(_parameters(graph, options, variant)[head])
        found = _search(machine or Gpu(), graph, state, (sources, options, variant))
        spare.append((options, state))
        return found


def _search(gpu: Gpu, graph: Graph, lent: plans.State, asked: tuple[Any, ...]) -> Found:
    import cupy

    sources, options, variant = asked
    there = None if sources.size == 1 else cupy.asarray(sources)
    state, dist, parent = lent, lent.dist, lent.parent
    if graph.order is None:
        dist, parent = cupy.empty(graph.n, np.int32), cupy.empty(graph.n, np.int32)
        state = replace(state, dist=dist, parent=parent)
    outcome = run(gpu, state, variant, options, sources, there)
    if graph.order is not None:
        outer = cupy.empty_like(dist), cupy.empty_like(parent)
        threads = plans.THREADS["levels"]
        args = (graph.order, dist, parent, *outer, graph.n)
        gpu.launch(plans.kernel("bfs_restore", threads), -(-graph.n // threads), threads, args)
        dist, parent = outer
        gpu.mark()
    times = gpu.seconds()
    table = outcome.table
    if variant == "persistent" and outcome.cycles:
        table[:, 8] = table[:, 8] * (times[0] * 1e9 / outcome.cycles)
    elif variant != "block" and len(table):
        table[:, 8] = times[1 : 1 + len(table)] * 1e9
    return Found(
        dist,
        parent if graph.index_dtype.itemsize == 4 else parent.astype(np.int64),
        Levels(table),
        outcome.reached,
        outcome.reached_arcs,
        outcome.blocks,
        float(times.sum()),
        outcome.depth,
    )


def new_state(graph: Graph, options: Options, variant: str) -> plans.State:
    """Allocate the arrays of a variant's searches, with their parameters; lent to one search at a time."""
    import cupy

    n, arcs = graph.n, graph.arcs
    room = plans.capacity(n, arcs, plans.piece_of(variant))
    words = -(-n // 32)
    pull = graph.can_pull and variant not in plans.PUSH_ONLY
    bits = cupy.zeros(4 * words if pull else 4, np.uint32)
    into = (graph.in_ptr, graph.in_ind) if pull else (graph.ptr, graph.ind)
    if pull:
        bits[3 * words :] = plans.closed_bits(graph.in_ptr, cupy)
    inner = (cupy.empty(n, np.int32), cupy.empty(n, np.int32)) if graph.order is not None else (None, None)
    small = variant == "block"
    # Every variant but `block` puts its sources there, `naive` too.
    queue = cupy.empty(4 if small else 8 * room, np.uint32)
    packed = plans.pack_graph(graph.ptr, graph.ind, cupy) if small else None
    control = cupy.asarray(_parameters(graph, options, variant))
    arrays = {"in_ptr": into[0], "in_ind": into[1], "dist": inner[0], "parent": inner[1], "control": control}
    return plans.State(graph.ptr, graph.ind, queue=queue, bits=bits, n=n, arcs=arcs, packed=packed, **arrays)


def _parameters(graph: Graph, options: Options, variant: str) -> NDArray[np.uint64]:
    return plans.control_words(
        options,
        graph.n,
        graph.arcs,
        can_pull=graph.can_pull and variant not in plans.PUSH_ONLY,
        symmetric=not graph.directed,
        piece=plans.piece_of(variant),
    )
