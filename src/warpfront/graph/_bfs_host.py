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
from warpfront.graph._threads import share_out
from warpfront.graph.graph import Graph
from warpfront.graph.result import Levels

__all__ = ["Found", "Options", "search"]

# A level below this many arcs costs less than handing it to another thread.
WIDE_ARCS = 1 << 16
CHUNK = 64
# Levels that the log has room for, at first and then.
FIRST_ROWS, LOG_ROWS = 256, 4096
_NEVER = np.iinfo(np.int64).max
_CLOCK = int(getattr(time, "CLOCK_MONOTONIC", 1))
_NOTHING = np.empty(0, np.uint64)
_NO_ORDER = np.empty(0, np.int32)


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
    levels: Levels
    reached: int
    reached_arcs: int
    workers: int
    seconds: float = float("nan")
    depth: int | None = None  # where the levels do not tell


@dataclass(frozen=True, eq=False)
class _Workspace:
    """Arrays that a search needs and does not hand out; kept with the graph, and lent to one search at a time."""

    graph: tuple[Any, ...]  # ptr, ind, in_ptr, in_ind
    key: NDArray[np.uint64]
    queue: NDArray[np.uint32]
    bits: tuple[Any, ...]  # open, front, after, what open is at the start


@dataclass
class _Search:
    graph: Graph
    arrays: tuple[Any, ...]  # (ptr, ind, in_ptr, in_ind), key, queue, (open, front, after)
    state: NDArray[np.int64]
    rule: NDArray[np.float64]
    threads: int
    rows: list[NDArray[np.int64]] = field(default_factory=list)


def search(graph: Graph, sources: NDArray[np.int64], options: Options, threads: int | None = None) -> Found:
    """Search from ``sources`` (inner numbers, ascending, without repetition)."""
    from warpfront.graph import _bfs_kernels as kernels

    if graph.arcs <= WIDE_ARCS:
        count = 1
    else:
        count = settings.threads() if threads is None else threads
    n = graph.n
    pull = graph.can_pull and options.direction != "push"
    spare: list[_Workspace] = graph._kept.setdefault(("workspace", pull), [])
    work = spare.pop() if spare else _workspace(graph, pull)
    stop = n + 1 if options.max_depth is None else options.max_depth
    state = np.zeros(8, np.int64)
    state[kernels.STOP] = stop
    alpha = 0.0 if not pull else -1.0 if options.direction == "pull" else options.alpha
    rule = np.array([alpha, options.beta])
    distances, parents = np.empty(n, np.int32), np.empty(n, graph.index_dtype)
    order = _NO_ORDER if graph.order is None else graph.order
    wide = WIDE_ARCS if count > 1 else _NEVER
    log = np.empty((FIRST_ROWS, 9), np.int64)
    answer = (order, distances, parents)
    reason, rows = kernels.solo(
        work.graph, work.key, work.queue, work.bits, sources, state, rule, wide, _CLOCK, log, answer
    )
    levels = Levels(log[:rows])
    if reason != kernels.DONE:
        run = _Search(
            graph, (work.graph, work.key, work.queue, work.bits[:3]), state, rule, count, [log[:rows]]
        )
        _further_levels(run, reason, wide)
        levels = Levels(np.concatenate(run.rows))
    if reason != kernels.DONE or n > kernels.SPLIT_ALONE:
        _split(work.key, answer, count)
    spare.append(work)
    reached, arcs = int(state[kernels.END]), graph.arcs - int(state[kernels.OPEN_ARCS])
    return Found(distances, parents, levels, reached, arcs, count)


def _split(key: NDArray[np.uint64], answer: tuple[Any, ...], threads: int) -> None:
    """Write distances and parents in the caller's numbering. ``answer``: order, distances, parents."""
    from warpfront.graph import _bfs_kernels as kernels

    n = key.size
    pieces = 1 if n <= kernels.SPLIT_ALONE else 8 * threads

    def part(k: int) -> None:
        kernels.split_keys(key, *answer, n * k // pieces, n * (k + 1) // pieces)

    share_out(threads, pieces, part)


def _further_levels(run: _Search, reason: int, wide: int) -> None:
    """Go on where `solo` stopped: levels for all threads, and walks between them."""
    from warpfront.graph import _bfs_kernels as kernels

    while reason != kernels.DONE:
        if reason == kernels.WIDE_PUSH:
            _push(run)
        elif reason == kernels.WIDE_PULL:
            _pull(run)
        log = np.empty((LOG_ROWS, 9), np.int64)
        reason, rows = kernels.walk(*run.arrays, run.state, run.rule, wide, _CLOCK, log)
        run.rows.append(log[:rows])


def _push(run: _Search) -> None:
    """One wide level, pushed by all threads."""
    from warpfront.graph import _bfs_kernels as kernels

    (ptr, ind, _, _), key, queue, _ = run.arrays
    begin, end, level = (int(run.state[k]) for k in (kernels.BEGIN, kernels.END, kernels.LEVEL))
    started = time.perf_counter_ns()
    shared = np.array([0, end], np.int64)
    counts = np.zeros((run.threads, 16), np.int64)
    chunk = max(1, min(CHUNK, (end - begin) // (8 * run.threads)))

    def part(k: int) -> None:
        kernels.push_part(ptr, ind, key, queue, (begin, end), level, chunk, shared, counts[k])

    run_threads(run.threads, part)
    total = counts[:, :9].sum(axis=0)
    run.state[kernels.ARCS] = total[kernels.EXAMINED]
    arcs = kernels.frontier_arcs(ptr, queue, end, end + int(total[kernels.FOUND]))
    _advance(run, total, arcs, False, started)


def _pull(run: _Search) -> None:
    """Pulled levels, until the rule turns back to pushing; then the frontier goes into the queue."""
    from warpfront.graph import _bfs_kernels as kernels

    (ptr, _, in_ptr, in_ind), key, queue, (open_, front, after) = run.arrays
    state = run.state
    kernels.start_pull(open_, front, queue, state)
    while True:
        started = time.perf_counter_ns()
        shared = np.zeros(2, np.int64)
        counts = np.zeros((run.threads, 16), np.int64)
        level, bits = int(state[kernels.LEVEL]), (open_, front, after)

        def part(
            k: int, bits: Any = bits, level: int = level, shared: Any = shared, counts: Any = counts
        ) -> None:
            kernels.pull_part(in_ptr, in_ind, ptr, key, bits, level, shared, counts[k])

        run_threads(run.threads, part)
        total = counts[:, :9].sum(axis=0)
        _advance(run, total, int(total[kernels.OUT]), True, started)
        front, after = after, front
        more = state[kernels.BEGIN] < state[kernels.END] and state[kernels.LEVEL] < state[kernels.STOP]
        if not more or not kernels.wants_pull(state, run.graph.n, run.rule):
            if more:
                kernels.unpack(front, queue, state)
            state[kernels.PULLING] = 0
            return


def _advance(run: _Search, line: NDArray[np.int64], arcs: int, pulled: bool, started: int) -> None:
    """Move on by one level and write its line."""
    from warpfront.graph import _bfs_kernels as kernels

    state = run.state
    line[kernels.FRONTIER] = state[kernels.END] - state[kernels.BEGIN]
    line[kernels.OUT] = state[kernels.ARCS]
    line[kernels.PULLED] = pulled
    line[kernels.TIME] = time.perf_counter_ns() - started
    run.rows.append(line[None, :])
    if run.rule[0] == 0:  # arcs are counted when they are walked
        run.state[kernels.OPEN_ARCS] += arcs - int(line[kernels.OUT])
    kernels.advance(state, int(line[kernels.FOUND]), arcs, int(pulled))


def _workspace(graph: Graph, pull: bool) -> _Workspace:
    """Allocate for a search; without a pull the arrays by tail stand in for those by head."""
    from warpfront.graph import _bfs_kernels as kernels

    ptr, ind = graph.ptr.view(np.uint64), graph.ind.view(np.uint32)
    key, queue = np.empty(graph.n, np.uint64), np.zeros(graph.n + kernels.AHEAD, np.uint32)
    if not pull:
        return _Workspace((ptr, ind, ptr, ind), key, queue, (_NOTHING,) * 4)
    in_ptr, in_ind = graph.in_ptr.view(np.uint64), graph.in_ind.view(np.uint32)
    opened = np.empty(-(-graph.n // 64), np.uint64)
    kernels.open_vertices(in_ptr, opened)
    bits = (*(np.empty_like(opened) for _ in range(3)), opened)
    return _Workspace((ptr, ind, in_ptr, in_ind), key, queue, bits)
