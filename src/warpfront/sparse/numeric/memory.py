"""Buffers of a factorisation, from the memory plan. They are made once and used again by every refactorisation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.plan import FactorState

__all__ = [
    "NO_ROOM",
    "ROOT_AT",
    "Room",
    "allocate",
    "larger_room",
    "planned_bytes",
    "planned_room",
    "state_bytes",
]

PANEL_COLUMNS = 34  # L D of one LDL^T panel and its candidates
TILE_WORDS = 192 * 256
WORK_ROWS = 256
SMALL = 64  # as in _walk_kernels
SYNC_WORDS = 96
SPARE = 1 << 27


ROOT_AT = 4  # entry of FactorState.limits


class Room(NamedTuple):
    """Words beyond the plan, for fronts that delayed pivots make larger.

    Attributes
    ----------
    panel, ind, pivot : int
        Overflow areas.
    stack, root : int
        Contribution blocks: of one thread, and of the roots of subtrees.
    rows : int
        Rows by which the largest front may outgrow the plan.
    """

    panel: int
    ind: int
    pivot: int
    stack: int
    root: int
    rows: int


NO_ROOM = Room(0, 0, 0, 0, 0, 0)


def planned_room(symbolic: Symbolic) -> Room:
    """Room a factorisation with delayed pivots starts with: for the factor as much again, up to SPARE words.

    A repeat costs a whole factorisation, and one delayed column moves the panels of all fronts it passes to the room.
    What is not touched of it takes no memory: the system gives pages when they are written. LU has no pivots of order
    2 to fall back on, and delays more: moved fronts may take twice the plan, contribution blocks half as much again.
    """
    plan, n = symbolic.plan, symbolic.n
    times, share = (1, 10) if symbolic.general is None else (2, 2)
    panel, ind = int(plan.panel_ptr[-1]), int(plan.front_ptr[-1])
    panel = max(panel // 10 + 8 * n // 10 + 1024, min(times * panel, SPARE))
    ind = max(ind // 10 + n // 10 + 64, min(times * ind, SPARE // 8))
    pivot = max(n // 5 + 64, min(times * n, SPARE // 8))
    stack = symbolic.stack_words // share + 4096
    root = symbolic.root_words // share + 1024
    return Room(panel, ind, pivot, stack, root, symbolic.max_front // 4 + 32)


def larger_room(symbolic: Symbolic, state: FactorState, room: Room) -> Room:
    """Room for a repeat: each area that was too small gets twice what was asked of it; the others stay."""
    from warpfront.sparse.numeric import _team_kernels as team
    from warpfront.sparse.numeric import _walk_kernels as walk

    plan, sync, stats = symbolic.plan, state.sync, state.stats
    span = int(state.limits[3])
    overlap = int((stats[:, walk.LOW] - stats[:, walk.HIGH]).max())

    def grown(old: int, asked: int) -> int:
        return 2 * asked if asked > old else old

    panel = grown(room.panel, int(sync[team.PANEL_OVER]) - int(plan.panel_ptr[-1]))
    ind = grown(room.ind, int(sync[team.IND_OVER]) - int(plan.front_ptr[-1]))
    pivot = grown(room.pivot, int(sync[team.PIVOT_OVER]) - symbolic.n)
    if (panel, ind, pivot) != (room.panel, room.ind, room.pivot):
        # The walk stopped at the first of the three that was full; the others would be soon.
        panel, ind, pivot = max(panel, 2 * room.panel), max(ind, 2 * room.ind), max(pivot, 2 * room.pivot)
    larger = Room(
        panel,
        ind,
        pivot,
        grown(room.stack, span + overlap - symbolic.stack_words) if overlap > 0 else room.stack,
        grown(room.root, int(sync[team.ROOT_OVER]) - int(state.limits[ROOT_AT]) - symbolic.root_words),
        grown(room.rows, int(state.node[:, 3].max()) - symbolic.max_front),
    )
    if larger == room:  # a stack that was full when a thread gave up, and emptied since
        larger = room._replace(stack=2 * room.stack + symbolic.stack_words)
    return larger


def allocate(
    symbolic: Symbolic, dtype: DTypeLike, threads: int, room: Room, general: bool = False
) -> FactorState:
    """Allocate a `FactorState`.

    Parameters
    ----------
    symbolic : Symbolic
        The memory plan.
    dtype : dtype
        Of the factor.
    threads : int
        Threads that will work on it.
    room : Room
        Words beyond the plan; `NO_ROOM` when no column can be delayed.
    general : bool
        With the arrays of an LU factorisation.
    """
    shapes, limits = _layout(symbolic, threads, room, general)

    def array(name: str) -> Any:
        shape, kind = shapes[name]
        make = np.zeros if name in _CLEARED else np.empty
        return make(shape, dtype if kind is None else kind)

    return FactorState(limits=np.array(limits, np.int64), **{name: array(name) for name in shapes})


_CLEARED = ("diagonal", "kind", "node", "sync", "stats")
_Shape = int | tuple[int, int]


def _layout(
    symbolic: Symbolic, threads: int, room: Room, general: bool
) -> tuple[dict[str, tuple[_Shape, Any]], list[int]]:
    """Shape of every array of a `FactorState` with its dtype (None: the factor's), and the limits."""
    plan, n = symbolic.plan, symbolic.n
    pivoting = room != NO_ROOM
    panel_end = int(plan.panel_ptr[-1]) + room.panel
    ind_end = int(plan.front_ptr[-1]) + room.ind
    pivot_end = n + room.pivot
    span = (symbolic.stack_words + room.stack + 7) & ~7
    root = (symbolic.root_words + room.root + 7) & ~7
    rows = symbolic.max_front + room.rows
    work = SMALL * SMALL + (max(PANEL_COLUMNS * max(rows, SMALL), TILE_WORDS) if pivoting else 0)
    limits = [
        panel_end,
        ind_end,
        pivot_end,
        span,
        threads * span,
        threads * span + root,
        work,
        WORK_ROWS,
        rows,
    ]
    shapes: dict[str, tuple[_Shape, Any]] = {
        "values": (symbolic.pattern.nnz, None),
        "panel": (panel_end, None),
        "stack": (threads * span + root, None),
        "ind": (ind_end, np.int32),
        "diagonal": (2 * pivot_end, None),
        "kind": (pivot_end, np.int8),
        "node": ((symbolic.n_supernodes, 8), np.int64),
        "work": (threads * work, None),
        "work_map": (threads * rows, np.int32),
        "sync": (SYNC_WORDS, np.int64),
        "stats": ((threads, 16), np.int64),
        "upper": (panel_end if general else 0, None),
        "col": (ind_end if general else 0, np.int32),
    }
    return shapes, limits


def planned_bytes(symbolic: Symbolic, dtype: DTypeLike, threads: int, room: Room) -> dict[str, int]:
    """Bytes of each array of a `FactorState` that are used if no pivot is delayed."""
    room = room._replace(panel=0, ind=0, pivot=0)
    shapes, limits = _layout(symbolic, threads, room, symbolic.general is not None)
    sizes = {
        name: int(np.prod(shape)) * np.dtype(dtype if kind is None else kind).itemsize
        for name, (shape, kind) in shapes.items()
    }
    return {**sizes, "limits": 8 * len(limits)}


def state_bytes(state: FactorState) -> int:
    """Bytes of every buffer, without what no delayed pivot has used of the room for them."""
    from warpfront.sparse.numeric import _team_kernels as team

    def unused(words: int, counter: int, bytes_each: int) -> int:
        return max(0, words - int(state.sync[counter])) * bytes_each

    item = state.panel.itemsize
    sides = 2 if state.upper.size else 1
    return (
        sum(int(array.nbytes) for array in state)
        - unused(state.panel.size, team.PANEL_OVER, item * sides)
        - unused(state.ind.size, team.IND_OVER, 4 * sides)
        - unused(state.kind.size, team.PIVOT_OVER, 2 * item + 1)
    )
