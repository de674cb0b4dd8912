"""Fronts of an LU factorisation: index lists, entries of A, elimination in scratch or by shared tiles."""

from __future__ import annotations

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._dense_kernels import TILE, update
from warpfront.sparse.numeric._layout import (
    BLOCK_AT,
    BLOCK_SIZE,
    DELAYED,
    DONE,
    FULL,
    IND_AT,
    PANEL_AT,
    PIVOT_AT,
    ROWS,
    SOLVE_ROWS,
    TRAIL,
    WORK_SPAN,
)
from warpfront.sparse.numeric._lu_kernels import exchange_columns, lu_panel, solve_upper
from warpfront.sparse.numeric._lu_tile_kernels import grid_of
from warpfront.sparse.numeric._team_kernels import Job
from warpfront.sparse.numeric._tile_kernels import share

__all__ = ["eliminate_lu", "eliminate_small_lu", "enter_lu", "keep_delayed_lu", "open_columns_lu"]

OUTER = 128  # columns of a block: its update of the rest runs at full depth


@njit(cache=True, nogil=True)
def open_columns_lu(plan, state, s):
    """Column indices of a front: own, delayed ones of the children, below."""
    node = state.node
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    at, begin = node[s, IND_AT], plan.front_ptr[s]
    for i in range(own):
        state.col[at + i] = plan.front_ind[begin + i]
    at += own
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        for i in range(node[child, DONE], node[child, FULL]):
            state.col[at] = state.col[node[child, IND_AT] + i]
            at += 1
    for i in range(own, plan.front_ptr[s + 1] - begin):
        state.col[at - own + i] = plan.front_ind[begin + i]


@njit(cache=True, nogil=True)
def enter_lu(plan, values, s, panel, upper, rows, delayed, square):
    """Put A's entries into zeroed arrays: all into the panel when it is ``square``, else rows of U into ``upper``."""
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    for e in range(plan.a_ptr[s], plan.a_ptr[s + 1]):
        i, j = plan.a_row[e], plan.a_col[e]
        if i >= own:
            i += delayed
        if j >= own:
            j += delayed
        if square or j < own:
            panel[i + j * rows] += values[plan.a_slot[e]]
        else:
            upper[j + i * rows] += values[plan.a_slot[e]]


@njit(cache=True, nogil=True)
def keep_delayed_lu(state, s):
    """Copy the delayed columns and rows from the front to the head of its contribution block."""
    node = state.node
    ld, full, done, at = node[s, ROWS], node[s, FULL], node[s, DONE], node[s, PANEL_AT]
    size = node[s, BLOCK_SIZE]
    block = view(state.stack, node[s, BLOCK_AT], size * size)
    for j in range(done, full):
        for i in range(done, ld):
            block[i - done + (j - done) * size] = state.panel[at + i + j * ld]
        for i in range(full, ld):
            block[j - done + (i - done) * size] = state.upper[at + i + j * ld]


@njit(cache=True, nogil=True)
def _eliminate_block(rule, state, tid, team, s, begin, end, force):
    """Pivots among columns begin..end, which are up to date; panels inside, each followed by its update of the block.

    Returns the first column not eliminated; the rejected ones stand behind it, brought up to date.
    """
    node = state.node
    ld, full, pivot = node[s, ROWS], node[s, FULL], node[s, PIVOT_AT]
    words = ld * full
    panel, upper = view(state.panel, node[s, PANEL_AT], words), view(state.upper, node[s, PANEL_AT], words)
    x = view(state.work, tid * state.limits[WORK_SPAN], ld)
    lists = (
        view(state.ind, node[s, IND_AT], ld),
        view(state.col, node[s, IND_AT], ld),
        view(state.diagonal, 2 * pivot, 2 * full),
        view(state.kind, pivot, full),
        state.stats[tid],
    )
    k, candidates = begin, end
    while k < candidates:
        k1, candidates = lu_panel(rule, panel, upper, ld, full, full, candidates, k, force, x, lists)
        if k1 > k and k1 < end:
            for j in range(k1, end):
                source = view(panel, j * ld, ld)
                for p in range(k, k1):
                    upper[j + p * ld] = source[p]
            solve_upper(rule.gemm, panel, upper, ld, k1, end - k1, k, k1)
            cost = (ld - k1) * (end - k1) * (k1 - k)
            job = Job(TRAIL, s, k, k1, grid_of(ld - k1, end - k1), 0, k1, end)
            share(rule, state, tid, team, job, cost)
        k = k1
    return k


@njit(cache=True, nogil=True)
def eliminate_lu(rule, state, tid, team, s):
    """Passes over the columns until a pass eliminates nothing; then, where nothing can be delayed, one that takes all."""
    node = state.node
    ld, full = node[s, ROWS], node[s, FULL]
    panel = view(state.panel, node[s, PANEL_AT], ld * full)
    upper = view(state.upper, node[s, PANEL_AT], ld * full)
    col = view(state.col, node[s, IND_AT], ld)
    last_chance = ld == full or rule.perturb == 1
    force = False
    k, candidates, pass_start = 0, full, 0
    while k < full:
        end = min(candidates, k + OUTER)
        k1 = _eliminate_block(rule, state, tid, team, s, k, end, force)
        if k1 > k and end < ld:
            tiles = (ld - end + TILE - 1) // TILE
            cost = (ld - end) * (k1 - k) * (k1 - k) // 2
            share(rule, state, tid, team, Job(SOLVE_ROWS, s, k, k1, tiles, 0, end, 0), cost)
            if k1 < full:
                tiles = grid_of(ld - k1, full - end) + grid_of(ld - full, full - k1)
                cost = ((ld - k1) * (full - end) + (ld - full) * (full - k1)) * (k1 - k)
                share(rule, state, tid, team, Job(TRAIL, s, k, k1, tiles, 1, end, full), cost)
        for j in range(k1, end):
            candidates -= 1
            if candidates > j:
                exchange_columns(panel, upper, ld, k1, col, j, candidates)
        k = k1
        if k >= candidates and k < full:
            if k == pass_start:
                if not last_chance or force:
                    break
                force = True
            pass_start, candidates = k, full
    state.stats[tid, DELAYED] += full - k
    return k


@njit(cache=True, nogil=True)
def eliminate_small_lu(rule, state, tid, s, front, x):
    """The same for a front held whole in ``front``; all of it is brought up to date. Returns the number eliminated."""
    node = state.node
    rows, full, pivot = node[s, ROWS], node[s, FULL], node[s, PIVOT_AT]
    upper = view(state.upper, node[s, PANEL_AT], rows * full)
    lists = (
        view(state.ind, node[s, IND_AT], rows),
        view(state.col, node[s, IND_AT], rows),
        view(state.diagonal, 2 * pivot, 2 * full),
        view(state.kind, pivot, full),
        state.stats[tid],
    )
    last_chance = rows == full or rule.perturb == 1
    force = False
    k, candidates, pass_start = 0, full, 0
    while k < full:
        k1, candidates = lu_panel(rule, front, upper, rows, rows, full, candidates, k, force, x, lists)
        if k1 > k and k1 < rows:
            for j in range(k1, rows):
                source = view(front, j * rows, rows)
                for p in range(k, k1):
                    upper[j + p * rows] = source[p]
            solve_upper(rule.gemm, front, upper, rows, k1, rows - k1, k, k1)
            c = view(front, k1 + k1 * rows, rows * rows - k1 - k1 * rows)
            a = view(front, k1 + k * rows, rows * rows - k1 - k * rows)
            b = view(upper, k1 + k * rows, rows * full - k1 - k * rows)
            update(rule.gemm, c, rows, a, rows, b, rows, False, rows - k1, rows - k1, k1 - k, False, False)
        k = k1
        if k >= candidates and k < full:
            if k == pass_start:
                if not last_chance or force:
                    break
                force = True
            pass_start, candidates = k, full
    state.stats[tid, DELAYED] += full - k
    return k
