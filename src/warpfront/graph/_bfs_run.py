"""Breadth-first search on the GPU: the host's part of every variant.

It is written against a `Machine` that launches kernels and reads counters: a GPU (`_bfs_device`), or the SIMT
runner in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfront.graph._bfs_cuda import (
    BARRIER,
    CYCLES,
    DEPTH,
    KLOG_ROWS,
    LEVELS,
    LOG,
    LOG_COLUMNS,
    REACHED,
    REACHED_ARCS,
    SLOT_WORDS,
    SLOTS,
    THREADS,
    Kernel,
    State,
    block_bytes,
    kernel,
    packed_bytes,
)
from warpfront.graph._bfs_host import Options

__all__ = ["Machine", "Outcome", "one_launch", "run"]

# Levels that are fetched with the counters; a longer search costs a second copy.
SHORT_LOG = 64


class Machine(Protocol):
    """What runs kernels."""

    def launch(
        self,
        kernel: Kernel,
        blocks: int,
        threads: int,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:
        """Queue a launch; ``args`` are arrays (or ``None``) for pointers, and numbers."""

    def prepare(
        self,
        kernel: Kernel,
        blocks: int,
        threads: int,
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        cooperative: bool = False,
    ) -> Callable[[], None]:
        """Return what queues that launch, everything looked up."""

    def clear(self, words: Any, first: int, last: int) -> None:
        """Queue setting part of an array to 0."""

    def read(self, words: Any, first: int, last: int) -> NDArray[np.uint64]:
        """Wait for everything queued, and return part of an array."""

    def mark(self) -> None:
        """Take the time when everything queued so far is done."""

    def resident(self, kernel: Kernel, threads: int) -> int:
        """Return how many blocks the machine holds at once."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """Counts of a search, and its levels as `Levels` takes them; times in cycles or, by level, not at all."""

    table: NDArray[np.int64]
    reached: int
    reached_arcs: int
    depth: int
    blocks: int
    cycles: int


def run(
    machine: Machine,
    state: State,
    variant: str,
    options: Options,
    sources: NDArray[np.int64],
    sources_there: Any = None,
    *,
    threads: int | None = None,
) -> Outcome:
    """Search, whatever the variant.

    Parameters
    ----------
    machine : Machine
    state : State
        Made for the variant: `piece_of`, `control_words`.
    variant : str
        One of `VARIANTS`.
    options : Options
    sources : int64[k]
        Ascending, each once.
    sources_there : array, optional
        The same in the machine's memory; needed when there are several.
    threads : int, optional
        Threads of a block. Default: the tuned ones.
    """
    start = (sources_there, int(sources[0]), int(sources.size))
    if variant not in ("persistent", "block"):
        return _by_levels(machine, state, variant, options, start, threads or THREADS["levels"])
    launch, blocks = one_launch(machine, state, variant, options, start, threads or THREADS[variant])
    machine.mark()
    launch()
    machine.mark()
    size = int(state.control.shape[0])
    head = machine.read(state.control, 0, min(size, LOG + SHORT_LOG * LOG_COLUMNS))
    rows = min(int(head[LEVELS]), int(head[KLOG_ROWS]))
    if rows > SHORT_LOG:
        head = machine.read(state.control, 0, LOG + rows * LOG_COLUMNS)
    table = head[LOG : LOG + rows * LOG_COLUMNS].reshape(rows, LOG_COLUMNS).astype(np.int64)
    if not options.trace:
        table[:, 5:8] = -1
        table[table[:, 0] == 1, 4] = -1
    return Outcome(
        table, int(head[REACHED]), int(head[REACHED_ARCS]), int(head[DEPTH]), blocks, int(head[CYCLES])
    )


def one_launch(
    machine: Machine, state: State, variant: str, options: Options, start: Any, threads: int
) -> tuple[Callable[[], None], int]:
    """Return what queues the whole search of a variant of one launch, and its blocks.

    ``start``: the sources in the machine's memory, the first of them, and how many.
    """
    if variant == "block":
        return _one_block(machine, state, options, start, threads), 1
    chosen = kernel("bfs_persistent", threads, options.trace)
    # A grid barrier costs by the block: no more of them than there is work for.
    blocks = max(1, min(machine.resident(chosen, threads), -(-(state.n + state.arcs) // (8 * threads))))
    queue = machine.prepare(chosen, blocks, threads, (*state.arguments, *start), cooperative=True)

    def launch() -> None:
        machine.clear(state.control, BARRIER, LOG)
        queue()

    return launch, blocks


def _one_block(
    machine: Machine, state: State, options: Options, start: Any, threads: int
) -> Callable[[], None]:
    stop = state.n + 1 if options.max_depth is None else min(options.max_depth, state.n + 1)
    args = (
        state.packed,
        state.dist,
        state.parent,
        state.control,
        *start,
        state.n,
        packed_bytes(state.n, state.arcs),
    )
    shared = block_bytes(state.n, state.arcs)
    chosen = kernel("bfs_block", threads)
    return machine.prepare(chosen, 1, threads, (*args, stop), shared_bytes=shared)


def _by_levels(
    machine: Machine, state: State, variant: str, options: Options, start: Any, threads: int
) -> Outcome:
    everywhere = -(-state.n // threads)
    machine.mark()
    machine.clear(state.control, BARRIER, LOG)
    machine.launch(kernel("bfs_reset", threads), everywhere, threads, state.arguments)
    machine.launch(
        kernel("bfs_sources", threads), min(64, -(-start[2] // threads)), threads, (*state.arguments, *start)
    )
    stop = state.n + 1 if options.max_depth is None else options.max_depth
    rows: list[list[int]] = []
    level, pulled, open_arcs, reached, reached_arcs, depth = 0, False, state.arcs, 0, 0, 0
    while True:
        machine.mark()
        slots = (
            machine.read(state.control, SLOTS, SLOTS + 3 * SLOT_WORDS).astype(np.int64).reshape(3, SLOT_WORDS)
        )
        items, found, out = (int(x) for x in slots[level % 3, :3])
        if rows:
            _complete(rows[-1], slots[level % 3], options.trace)
        reached, reached_arcs, open_arcs = reached + found, reached_arcs + out, open_arcs - out
        depth = level if found else depth
        if found == 0 or level >= stop:
            break
        at = SLOTS + (level + 2) % 3 * SLOT_WORDS
        machine.clear(state.control, at, at + SLOT_WORDS)
        pull = variant == "direction" and _wants_pull(options, state, pulled, found, out, open_arcs)
        rows.append([int(pull), found, out])
        if pull:
            _pull_level(machine, state, level, items if not pulled else -1, (threads, options.trace))
        else:
            if pulled:
                machine.launch(kernel("bfs_compact", threads), everywhere, threads, (*state.arguments, level))
                row = machine.read(state.control, SLOTS, SLOTS + 3 * SLOT_WORDS)
                items = int(row[level % 3 * SLOT_WORDS])
            _push_level(machine, state, variant, level, items, (threads, options.trace))
        level, pulled = level + 1, pull
    table = np.array([[*row, -1] for row in rows], np.int64).reshape(len(rows), LOG_COLUMNS)
    return Outcome(table, reached, reached_arcs, depth, everywhere, 0)


def _complete(row: list[int], slot: NDArray[np.int64], trace: bool) -> None:
    """Add found, examined, duplicates, tried and won to a level's line."""
    examined = int(slot[4]) if trace and row[0] else -1 if row[0] else row[2]
    row += [int(slot[1]), examined, *((int(x) for x in slot[5:8]) if trace else (-1, -1, -1))]


def _wants_pull(options: Options, state: State, pulled: bool, found: int, out: int, open_arcs: int) -> bool:
    """Decide the direction of the next level, as the CPU and the persistent kernel do."""
    if options.direction != "auto" or state.bits.size <= 4:
        return options.direction == "pull"
    if pulled:
        return found * options.beta >= state.n
    return out * options.alpha > open_arcs and out * options.beta > state.n


def _push_level(
    machine: Machine, state: State, variant: str, level: int, items: int, how: tuple[int, bool]
) -> None:
    threads, trace = how
    if variant == "naive":
        blocks = -(-state.n // threads)
        machine.launch(kernel("bfs_naive", threads, trace), blocks, threads, (*state.arguments, level))
        return
    if items == 0:
        return
    if variant in ("queue", "classes", "split"):
        chosen = kernel("bfs_push", threads, variant != "queue", trace)
    else:
        chosen = kernel("bfs_push_batched", threads, trace)
    machine.launch(chosen, -(-items // threads), threads, (*state.arguments, level, items))


def _pull_level(machine: Machine, state: State, level: int, items: int, how: tuple[int, bool]) -> None:
    """Pull; ``items`` of a queue become bits first (-1: the frontier is bits already)."""
    threads, trace = how
    words = -(-state.n // 32)
    if items >= 0:
        front = 1 + level % 2
        machine.clear(state.bits, front * words, (front + 1) * words)
        if items:
            blocks = -(-items // threads)
            machine.launch(kernel("bfs_front", threads), blocks, threads, (*state.arguments, level, items))
    blocks = -(-words // threads)
    machine.launch(kernel("bfs_pull", threads, trace), blocks, threads, (*state.arguments, level))
