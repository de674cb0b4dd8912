"""Breadth-first search on the CPU: which kernel takes which level, and the threads.

A frontier with few arcs stays in one compiled loop on one thread, level after level (`walk`): on a road map
thousands of levels then cost no call. A level with more arcs, and every pulled level, is shared out to
threads, chunk by chunk from a common counter. Bits do not depend on the number of threads: claims take the
smallest candidate, whoever comes first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings
from warpfront.backend.cpu import run_threads
from warpfront.graph.graph import Graph
from warpfront.graph.result import BfsLevel

__all__ = ["Found", "Options", "search"]

# A level below this many arcs costs less than handing it to another thread.
WIDE_ARCS = 1 << 16
CHUNK = 64
LOG_ROWS = 4096
_NEVER = np.iinfo(np.int64).max
_CLOCK = int(getattr(time, "CLOCK_MONOTONIC", 1))


@dataclass(frozen=True)
class Options:
    """What a search was asked for, checked: see `warpfront.graph.bfs.bfs`."""

    direction: str
    alpha: float
    beta: float
    max_depth: int | None
    trace: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """What a path hands back, in the caller's numbering: arrays, levels, and counts for the record."""

    distances: Any
    parents: Any
    levels: tuple[BfsLevel, ...]
    reached: int
    reached_arcs: int
    pulled: bool
    workers: int
    seconds: float = float("nan")


@dataclass
class _Search:
    graph: Graph
    arrays: tuple[Any, ...]  # ptr, ind, dist, parent, queue, open
    state: NDArray[np.int64]
    rule: NDArray[np.float64]
    threads: int
    levels: list[BfsLevel] = field(default_factory=list)


def search(graph: Graph, sources: NDArray[np.int64], options: Options, threads: int | None = None) -> Found:
    """Search from ``sources`` (inner numbers, ascending, without repetition)."""
    from warpfront.graph import _bfs_kernels as kernels

    count = settings.threads() if threads is None else threads
    n = graph.n
    ptr, ind = graph.ptr.view(np.uint64), graph.ind.view(np.uint32)
    dist, parent = np.full(n, -1, np.int32), np.full(n, -1, np.int32).view(np.uint32)
    queue = np.empty(n, np.uint32)
    pull = graph.can_pull and options.direction != "push"
    open_ = _open(graph).copy() if pull else np.empty(0, np.uint64)
    queue[: sources.size] = sources
    dist[sources], parent[sources] = 0, sources
    _close(open_, sources)
    arcs = kernels.frontier_arcs(ptr, queue, 0, sources.size)
    stop = n + 1 if options.max_depth is None else options.max_depth
    state = np.array([0, 0, sources.size, arcs, graph.arcs - arcs, 0, stop], np.int64)
    alpha = 0.0 if not pull else -1.0 if options.direction == "pull" else options.alpha
    rule = np.array([alpha, options.beta])
    run = _Search(graph, (ptr, ind, dist, parent, queue, open_), state, rule, count)
    _levels(run)
    distances, parents = dist, parent.view(np.int32)
    if graph.order is not None:
        distances, parents = np.empty_like(distances), np.empty_like(parents)
        kernels.restore(graph.order, dist, parent, distances, parents)
    return Found(
        distances,
        parents.astype(graph.index_dtype, copy=False),
        tuple(run.levels),
        int(state[kernels.END]),
        graph.arcs - int(state[kernels.OPEN_ARCS]),
        any(level.direction == "pull" for level in run.levels),
        count,
    )


def _levels(run: _Search) -> None:
    from warpfront.graph import _bfs_kernels as kernels

    wide = WIDE_ARCS if run.threads > 1 else _NEVER
    log = np.empty((LOG_ROWS, 6), np.int64)
    while True:
        first = int(run.state[kernels.LEVEL])
        reason, rows = kernels.walk(*run.arrays, run.state, run.rule, wide, _CLOCK, log)
        for k in range(rows):
            frontier, arcs, found, examined, duplicates, nanoseconds = (int(x) for x in log[k])
            run.levels.append(
                BfsLevel(
                    first + k, "push", frontier, arcs, found, examined, duplicates, 0, 0, nanoseconds * 1e-9
                )
            )
        if reason == kernels.DONE:
            return
        if reason == kernels.WIDE_PUSH:
            _push(run)
        elif reason == kernels.WIDE_PULL:
            _pull(run)


def _push(run: _Search) -> None:
    """One wide level, pushed by all threads."""
    from warpfront.graph import _bfs_kernels as kernels

    begin, end, level = (int(run.state[k]) for k in (kernels.BEGIN, kernels.END, kernels.LEVEL))
    started = time.perf_counter()
    shared = np.array([0, end], np.int64)
    counts = np.zeros((run.threads, 8), np.int64)
    chunk = max(1, min(CHUNK, (end - begin) // (8 * run.threads)))

    def part(k: int) -> None:
        kernels.push_part(*run.arrays, (begin, end), level, chunk, shared, counts[k])

    run_threads(run.threads, part)
    _advance(run, "push", counts.sum(axis=0), started)


def _pull(run: _Search) -> None:
    """Pulled levels, until the rule turns back to pushing; then the frontier goes into the queue."""
    from warpfront.graph import _bfs_kernels as kernels

    ptr, _, dist, parent, queue, open_ = run.arrays
    state = run.state
    in_ptr, in_ind = run.graph.in_ptr.view(np.uint64), run.graph.in_ind.view(np.uint32)
    front, after = np.zeros(open_.size, np.uint64), np.empty(open_.size, np.uint64)
    kernels.set_bits(front, queue, state[kernels.BEGIN], state[kernels.END])
    while True:
        started = time.perf_counter()
        shared = np.zeros(2, np.int64)
        counts = np.zeros((run.threads, 8), np.int64)
        level = int(state[kernels.LEVEL])
        bits = (open_, front, after)

        def part(k: int, bits: Any = bits, level: int = level, shared: Any = shared, counts: Any = counts) -> None:
            kernels.pull_part(in_ptr, in_ind, ptr, dist, parent, bits, level, shared, counts[k])

        run_threads(run.threads if open_.size > 256 else 1, part)
        _advance(run, "pull", counts.sum(axis=0), started)
        front, after = after, front
        empty = state[kernels.BEGIN] == state[kernels.END] or state[kernels.LEVEL] >= state[kernels.STOP]
        if empty or not kernels.wants_pull(state, run.graph.n, run.rule):
            if not empty:
                kernels.unpack(front, queue, state[kernels.BEGIN])
            return


def _advance(run: _Search, direction: str, counts: NDArray[np.int64], started: float) -> None:
    """Move on by one level and write its line."""
    from warpfront.graph import _bfs_kernels as kernels

    state = run.state
    found, arcs, examined, duplicates, tried, won = (int(x) for x in counts[:6])
    seconds = time.perf_counter() - started
    frontier, out = int(state[kernels.END] - state[kernels.BEGIN]), int(state[kernels.ARCS])
    run.levels.append(
        BfsLevel(
            int(state[kernels.LEVEL]), direction, frontier, out, found, examined, duplicates, tried, won, seconds
        )
    )
    state[kernels.LEVEL] += 1
    state[kernels.BEGIN] = state[kernels.END]
    state[kernels.END] += found
    state[kernels.ARCS] = arcs
    state[kernels.OPEN_ARCS] -= arcs
    state[kernels.PULLING] = direction == "pull"


def _open(graph: Graph) -> NDArray[np.uint64]:
    """Return the bitmap of vertices with an arc into them; kept with the graph."""
    from warpfront.graph import _bfs_kernels as kernels

    if "open" not in graph._kept:
        bits = np.empty(-(-graph.n // 64), np.uint64)
        kernels.open_vertices(graph.in_ptr.view(np.uint64), bits)
        graph._kept["open"] = bits
    found: NDArray[np.uint64] = graph._kept["open"]
    return found


def _close(open_: NDArray[np.uint64], sources: NDArray[np.int64]) -> None:
    if open_.size:
        np.bitwise_and.at(open_, sources >> 6, ~(np.uint64(1) << (sources & 63).astype(np.uint64)))
