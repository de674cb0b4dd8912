"""Buffers of a factorisation, from the memory plan. They are made once and used again by every refactorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.numeric.plan import FactorState

__all__ = ["allocate", "state_bytes"]

PANEL_COLUMNS = 34  # L D of one LDL^T panel and its candidates
TILE_WORDS = 192 * 256
WORK_ROWS = 256
SMALL = 64  # as in _walk_kernels
SYNC_WORDS = 96


def allocate(symbolic: Symbolic, dtype: DTypeLike, threads: int, *, pivoting: bool, spare: float) -> FactorState:
    """Allocate a `FactorState`.

    Parameters
    ----------
    symbolic : Symbolic
        The memory plan.
    dtype : dtype
        Of the factor.
    threads : int
        Threads that will work on it.
    pivoting : bool
        Whether columns may be delayed, so that fronts may outgrow the plan.
    spare : float
        Room for that, as a share of the plan; a factorisation that needs more is repeated with more.
    """
    plan = symbolic.plan
    share = spare if pivoting else 0.0
    panel = int(plan.panel_ptr[-1])
    indices = int(plan.front_ptr[-1])
    n = symbolic.n
    extra = int(n * share) + 64 if pivoting else 0
    panel_end = panel + int(panel * share) + 64 * extra
    ind_end = indices + int(indices * share) + 8 * extra
    pivot_end = n + 2 * extra
    span = (int(symbolic.stack_words * (1 + share)) + 8 * extra + 7) & ~7
    root = (int(symbolic.root_words * (1 + share)) + 8 * extra + 7) & ~7
    rows = symbolic.max_front + min(extra, int(symbolic.max_front * share) + 32 if pivoting else 0)
    work = SMALL * SMALL + (max(PANEL_COLUMNS * max(rows, SMALL), TILE_WORDS) if pivoting else 0)
    limits = np.array(
        [panel_end, ind_end, pivot_end, span, threads * span, threads * span + root, work, WORK_ROWS, rows], np.int64
    )
    nodes = symbolic.n_supernodes
    empty = _Maker(dtype)
    return FactorState(
        values=empty.real(symbolic.pattern.nnz),
        panel=empty.real(panel_end),
        stack=empty.real(threads * span + root),
        ind=np.empty(ind_end, np.int32),
        diagonal=np.zeros(2 * pivot_end, dtype),
        kind=np.zeros(pivot_end, np.int8),
        node=np.zeros((nodes, 8), np.int64),
        work=empty.real(threads * work),
        work_map=np.empty(threads * rows, np.int32),
        sync=np.zeros(SYNC_WORDS, np.int64),
        stats=np.zeros((threads, 16), np.int64),
        limits=limits,
    )


class _Maker:
    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = dtype

    def real(self, words: int) -> Any:
        return np.empty(words, self.dtype)


def state_bytes(state: FactorState) -> int:
    """Bytes of every buffer."""
    return sum(int(array.nbytes) for array in state)
