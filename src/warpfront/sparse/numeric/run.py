"""Run a tree walk on threads, again with more memory where delayed pivots outgrew the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import DTypeLike

from warpfront.backend.cpu import run_threads, single_threaded_blas
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.numeric.memory import ROOT_AT, Room, allocate, larger_room
from warpfront.sparse.plan import FactorState

__all__ = ["run_walk", "walk_threads"]

SMALL_FLOPS, SMALL_FLOPS_LU = 2e6, 6e6  # below this a second thread costs more than it brings


def walk_threads(symbolic: Symbolic, threads: int) -> int:
    """Threads that a factorisation takes of those it may."""
    small = SMALL_FLOPS if symbolic.general is None else SMALL_FLOPS_LU
    return max(1, threads) if symbolic.flops > small else 1


def run_walk(
    symbolic: Symbolic,
    dtype: DTypeLike,
    threads: int,
    room: Room,
    enter: Callable[[FactorState], float],
    make_rule: Callable[[float], Any],
    state: FactorState | None,
) -> tuple[FactorState, int]:
    """Factor; returns the buffers and the status word of ``_walk_kernels``.

    Parameters
    ----------
    symbolic : Symbolic
    dtype : dtype
        Of the factor.
    threads : int
        At most this many; one for small work.
    room : Room
        Memory beyond the plan to begin with.
    enter : callable
        Writes the scaled values to ``state.values`` and returns the largest size.
    make_rule : callable
        The rule for a largest size; its type chooses the factorisation.
    state : FactorState or None
        Buffers of an earlier run with the same symbolic, dtype and threads.
    """
    from warpfront.sparse.numeric import _team_kernels as team
    from warpfront.sparse.numeric import _walk_kernels as walk

    threads = walk_threads(symbolic, threads)
    while True:
        if state is None:
            state = allocate(symbolic, dtype, threads, room, general=symbolic.general is not None)
        _reset(symbolic, state)
        rule = make_rule(enter(state))
        buffers = state

        def body(tid: int, rule: Any = rule, buffers: FactorState = buffers) -> None:
            walk.walk(rule, symbolic.plan, buffers, tid, threads)

        if symbolic.max_front + room.rows < walk.SMALL:  # no BLAS call
            run_threads(threads, body)
        else:
            with single_threaded_blas():
                run_threads(threads, body)
        word = int(state.sync[team.STATUS])
        if word == walk.OK_WORD or (word & 255) != walk.NEED_MEMORY:
            return state, word
        room = larger_room(symbolic, state, room)
        state = None


def _reset(symbolic: Symbolic, state: FactorState) -> None:
    from warpfront.sparse.numeric import _team_kernels as team
    from warpfront.sparse.numeric import _walk_kernels as walk

    sync = state.sync
    sync[:] = 0
    sync[team.STATUS] = walk.OK_WORD
    sync[team.PANEL_OVER] = symbolic.plan.panel_ptr[-1]
    sync[team.IND_OVER] = symbolic.plan.front_ptr[-1]
    sync[team.PIVOT_OVER] = symbolic.n
    sync[team.ROOT_OVER] = state.limits[ROOT_AT]
    state.stats[:] = 0
