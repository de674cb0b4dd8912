"""Breadth-first search on the GPU: what the host decides.

`run` is the host's part of every variant, written against a `Machine` that launches kernels and reads
counters: a GPU (`_bfs_device`), or the SIMT runner in the tests. Sizes and parameters are pure functions.

| variant | adds | launches |
|---|---|---|
| ``naive`` | a thread to every vertex | one a level |
| ``queue`` | a queue of the frontier, an atomic for each entry | one a level |
| ``classes`` | thread, warp or block by the number of arcs | one a level |
| ``split`` | vertices with many arcs are several queue entries | one a level |
| ``batched`` | arcs dealt out within a warp; one reservation for many entries | one a level |
| ``direction`` | pulled levels | one or two a level |
| ``persistent`` | all levels in one launch, work taken dynamically, narrow levels by one block | one |
| ``block`` | small graphs in the shared memory of one block | one |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfront.graph._bfs_cpu import Options

__all__ = [
    "PUSH_ONLY",
    "VARIANTS",
    "Kernel",
    "Machine",
    "Outcome",
    "State",
    "block_bytes",
    "capacity",
    "closed_bits",
    "control_words",
    "instantiations",
    "pack_graph",
    "run",
    "subset",
    "why_not_block",
]

VARIANTS = ("naive", "queue", "classes", "split", "batched", "direction", "persistent", "block")
PUSH_ONLY = ("naive", "queue", "classes", "split", "batched", "block")
FOLDER = Path(__file__).parent
NO_PIECE = 0xFFFFFFFF
# Arcs of one queue item at most: a warp walks them in 32 steps.
PIECE = 1024
THREADS = {"levels": 256, "persistent": 512, "block": 1024}
LOG_ROWS = 1 << 16
# Words of `control`: enum control_word of bfs.cuh.
N, CAPACITY, STOP, ALPHA, BETA, BASE, ARCS, FLAGS, KPIECE, KLOG_ROWS = range(10)
BARRIER, LEVEL, OPEN, LEVELS, REACHED, REACHED_ARCS, DEPTH, SPILL, SLOTS = range(16, 25)
CYCLES, LOG, SLOT_WORDS, LOG_COLUMNS = 48, 64, 8, 9
CAN_PULL, ALWAYS_PULL, SYMMETRIC = 1, 2, 4
_NOT_COUNTED = np.uint64(2**64 - 1)

_SEARCH = "ppppppppp"
_SIGNATURES = {
    "bfs_reset": _SEARCH,
    "bfs_sources": _SEARCH + "pqq",
    "bfs_naive": _SEARCH + "i",
    "bfs_push": _SEARCH + "iq",
    "bfs_push_batched": _SEARCH + "iq",
    "bfs_front": _SEARCH + "iq",
    "bfs_pull": _SEARCH + "i",
    "bfs_compact": _SEARCH + "i",
    "bfs_restore": "pppppq",
    "bfs_persistent": _SEARCH + "pqq",
    "bfs_block": "pppppqqiii",
}


@dataclass(frozen=True)
class Kernel:
    """One kernel to launch: its file, expression and argument letters (`warpfront.backend.cuda`)."""

    source: Path
    expression: str
    signature: str


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

    def clear(self, words: Any, first: int, last: int) -> None:
        """Queue setting part of an array to 0."""

    def read(self, words: Any, first: int, last: int) -> NDArray[np.uint64]:
        """Wait for everything queued, and return part of an array."""

    def mark(self) -> None:
        """Take the time when everything queued so far is done."""

    def resident(self, kernel: Kernel, threads: int) -> int:
        """Return how many blocks the machine holds at once."""


@dataclass(frozen=True, eq=False)
class State:
    """The arrays of a search: see bfs.cuh. All in the memory of the machine.

    Attributes
    ----------
    ptr, in_ptr : int64[n + 1]
    ind, in_ind : int32[arcs]
    dist, parent : int32[n]
    queue : uint32[2, capacity, 4]
    bits : uint32[4, words]
    control : uint64[64 + 9 * rows]
    n, arcs : int
    packed : uint8 or None
        For the variant ``block``: `pack_graph`.
    """

    ptr: Any
    ind: Any
    in_ptr: Any
    in_ind: Any
    dist: Any
    parent: Any
    queue: Any
    bits: Any
    control: Any
    n: int
    arcs: int
    packed: Any = None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What every kernel of the room but ``bfs_block`` takes first."""
        return (
            *(self.ptr, self.ind, self.in_ptr, self.in_ind, self.dist),
            *(self.parent, self.queue, self.bits, self.control),
        )


@dataclass(frozen=True, eq=False)
class Outcome:
    """Counts of a search, and its levels as `Levels` takes them; times in cycles or, by level, not at all."""

    table: NDArray[np.int64]
    reached: int
    reached_arcs: int
    depth: int
    blocks: int
    cycles: int


def block_bytes(n: int, arcs: int) -> int:
    """Return the shared memory of the ``block`` variant for a graph."""
    return _packed_bytes(n, arcs) + _round16(4 * n) + _round16(2 * n)


def why_not_block(n: int, arcs: int, direction: str, trace: bool) -> str | None:
    """Return why the ``block`` variant does not fit a problem, or ``None``."""
    if n > 0xFFFE:
        return f"numbers vertices in 16 bits, and the graph has {n}"
    if direction == "pull":
        return 'only pushes, and direction="pull" was asked for'
    if trace:
        return "counts nothing by level, and trace=True was asked for"
    if arcs > 16 * max(n, 1):
        return f"is for thin graphs: on {arcs} arcs of {n} vertices one block is slower than many"
    return None


def capacity(n: int, arcs: int, piece: int) -> int:
    """Return the largest number of items a level's queue can hold: every vertex, and one more for each whole piece."""
    return max(n + arcs // piece, 1)


def control_words(
    options: Options,
    n: int,
    arcs: int,
    *,
    can_pull: bool,
    symmetric: bool,
    piece: int = PIECE,
    rows: int = LOG_ROWS,
    base: int = 0,
) -> NDArray[np.uint64]:
    """Return the initial ``control`` array: parameters set, all else 0."""
    rows = max(1, min(rows, n + 1))
    words = np.zeros(LOG + rows * LOG_COLUMNS, np.uint64)
    pull = can_pull and options.direction != "push"
    stop = n + 1 if options.max_depth is None else options.max_depth
    numbers = {N: n, CAPACITY: capacity(n, arcs, piece), STOP: stop, BASE: base, ARCS: arcs, KPIECE: piece}
    for at, value in numbers.items():
        words[at] = value
    words[[ALPHA, BETA]] = np.array([options.alpha, options.beta]).view(np.uint64)
    always = pull and options.direction == "pull"
    words[FLAGS] = CAN_PULL * pull | ALWAYS_PULL * always | SYMMETRIC * symmetric
    words[KLOG_ROWS] = rows
    return words


def closed_bits(in_ptr: Any, xp: Any = np) -> Any:
    """Return the bitmap, uint32[words], of vertices that no arc leads to; the bits beyond the last vertex are set."""
    n = int(in_ptr.shape[0]) - 1
    flags = xp.ones(-(-n // 32) * 32, xp.bool_)
    flags[:n] = in_ptr[1:] == in_ptr[:-1]
    return xp.packbits(flags, bitorder="little").view(xp.uint32)


def pack_graph(ptr: Any, ind: Any, xp: Any = np) -> Any:
    """Return the graph as the ``block`` variant reads it: n + 1 offsets of 4 bytes, heads of 2, filled up to 16."""
    n, arcs = int(ptr.shape[0]) - 1, int(ind.shape[0])
    packed = xp.zeros(_packed_bytes(n, arcs), xp.uint8)
    packed[: 4 * (n + 1)] = ptr.astype(xp.uint32).view(xp.uint8)
    packed[4 * (n + 1) : 4 * (n + 1) + 2 * arcs] = ind.astype(xp.uint16).view(xp.uint8)
    return packed


def piece_of(variant: str) -> int:
    """Return how many arcs a queue item of a variant has at most."""
    return NO_PIECE if variant in ("naive", "queue", "classes") else PIECE


def kernel(name: str, threads: int, *parameters: bool) -> Kernel:
    """Return a kernel by name and template parameters."""
    file = {"bfs_persistent": "bfs_persistent.cu", "bfs_block": "bfs_block.cu"}.get(name, "bfs_levels.cu")
    words = [str(threads), *("true" if p else "false" for p in parameters)]
    return Kernel(FOLDER / file, f"{name}<{', '.join(words)}>", _SIGNATURES[name])


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
    machine.mark()
    if variant == "persistent":
        blocks = _one_launch(machine, state, options, start, threads or THREADS["persistent"])
    elif variant == "block":
        blocks = _one_block(machine, state, options, start, threads or THREADS["block"])
    else:
        return _by_levels(machine, state, variant, options, start, threads or THREADS["levels"])
    machine.mark()
    head = machine.read(state.control, 0, LOG)
    rows = min(int(head[LEVELS]), int(head[KLOG_ROWS]))
    table = (
        machine.read(state.control, LOG, LOG + rows * LOG_COLUMNS).reshape(rows, LOG_COLUMNS).astype(np.int64)
    )
    if not options.trace:
        table[:, 5:8] = -1
        table[table[:, 0] == 1, 4] = -1
    return Outcome(
        table, int(head[REACHED]), int(head[REACHED_ARCS]), int(head[DEPTH]), blocks, int(head[CYCLES])
    )


def _one_launch(machine: Machine, state: State, options: Options, start: Any, threads: int) -> int:
    chosen = kernel("bfs_persistent", threads, options.trace)
    # A grid barrier costs by the block: no more of them than there is work for.
    blocks = max(1, min(machine.resident(chosen, threads), -(-(state.n + state.arcs) // (8 * threads))))
    machine.clear(state.control, BARRIER, LOG)
    machine.launch(chosen, blocks, threads, (*state.arguments, *start), cooperative=True)
    return blocks


def _one_block(machine: Machine, state: State, options: Options, start: Any, threads: int) -> int:
    stop = state.n + 1 if options.max_depth is None else min(options.max_depth, state.n + 1)
    args = (
        state.packed,
        state.dist,
        state.parent,
        state.control,
        *start,
        state.n,
        _packed_bytes(state.n, state.arcs),
    )
    shared = block_bytes(state.n, state.arcs)
    machine.launch(kernel("bfs_block", threads), 1, threads, (*args, stop), shared_bytes=shared)
    return 1


def _by_levels(
    machine: Machine, state: State, variant: str, options: Options, start: Any, threads: int
) -> Outcome:
    everywhere = -(-state.n // threads)
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
    table = np.array([row + [-1] for row in rows], np.int64).reshape(len(rows), LOG_COLUMNS)
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


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that `run` can ask for: (file, expressions, least architecture)."""
    few, one, all_ = THREADS["levels"], THREADS["persistent"], THREADS["block"]
    flags = (False, True)
    levels = [
        kernel(name, few) for name in ("bfs_reset", "bfs_sources", "bfs_front", "bfs_compact", "bfs_restore")
    ]
    levels += [
        kernel(name, few, trace) for name in ("bfs_naive", "bfs_push_batched", "bfs_pull") for trace in flags
    ]
    levels += [kernel("bfs_push", few, classes, trace) for classes in flags for trace in flags]
    groups = [
        levels,
        [kernel("bfs_persistent", one, trace) for trace in flags],
        [kernel("bfs_block", all_)],
    ]
    found = [(group[0].source, tuple(k.expression for k in group), 75) for group in groups]
    names = tuple(f"{name}<{few}>" for name in ("kronecker_edges", "uniform_edges", "grid_keep"))
    return [*found, (FOLDER / "generate.cu", names, 75)]


def subset() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return a covering part of `instantiations`: each kernel once, counting where it can."""
    result = []
    for file, names, least in instantiations():
        kept = {name.partition("<")[0]: name for name in names}
        result.append((file, tuple(kept.values()), least))
    return result


def _packed_bytes(n: int, arcs: int) -> int:
    return _round16(4 * (n + 1) + 2 * arcs)


def _round16(count: int) -> int:
    return -(-count // 16) * 16
