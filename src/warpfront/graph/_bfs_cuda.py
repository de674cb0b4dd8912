"""Breadth-first search on the GPU: what the host decides.

Sizes, parameters and kernels of every variant: pure functions of the graph and the options. `_bfs_run` launches them.

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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.graph._bfs_host import Options

__all__ = [
    "PUSH_ONLY",
    "VARIANTS",
    "Kernel",
    "State",
    "block_bytes",
    "capacity",
    "closed_bits",
    "control_words",
    "instantiations",
    "kernel",
    "pack_graph",
    "packed_bytes",
    "piece_of",
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


def block_bytes(n: int, arcs: int) -> int:
    """Return the shared memory of the ``block`` variant for a graph."""
    return packed_bytes(n, arcs) + _round16(4 * n) + _round16(2 * n)


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
    packed = xp.zeros(packed_bytes(n, arcs), xp.uint8)
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


def packed_bytes(n: int, arcs: int) -> int:
    """Return the size of `pack_graph`'s array."""
    return _round16(4 * (n + 1) + 2 * arcs)


def _round16(count: int) -> int:
    return -(-count // 16) * 16
