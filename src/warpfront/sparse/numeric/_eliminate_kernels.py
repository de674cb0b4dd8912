"""Elimination of a front's fully summed columns: in scratch when it is small, by shared tiles when it is large."""

from __future__ import annotations

from numba.extending import overload

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._dense_kernels import TILE, cholesky_columns, update
from warpfront.sparse.numeric._layout import (
    DELAYED,
    FULL,
    IND_AT,
    PANEL_AT,
    PIVOT_AT,
    ROWS,
    SOLVE_ROWS,
    TRAIL,
    WORK_SPAN,
    is_cholesky,
    is_lu,
)
from warpfront.sparse.numeric._ldlt_kernels import exchange, ldlt_panel
from warpfront.sparse.numeric._lu_eliminate_kernels import eliminate_lu
from warpfront.sparse.numeric._team_kernels import Job
from warpfront.sparse.numeric._tile_kernels import share, tiles_of

__all__ = ["eliminate", "eliminate_small"]

NARROW = 32  # columns of a Cholesky panel
DIAGONAL = 96  # width of a Cholesky block column in a large front
LARGE = 160  # rows of a front from which blocks are DIAGONAL wide
OUTER = 128  # columns of an LDL^T block: its update of the rest runs at full depth


@njit(cache=True, nogil=True)
def keep_reciprocals(panel, ld, full, d):
    """Reciprocals of L's diagonal, for the solves: at ``2k``."""
    for k in range(full):
        d[2 * k] = d.dtype.type(1) / panel[k + k * ld]


def eliminate(rule, plan, state, tid, team, s):
    """Factor the fully summed columns; returns the number eliminated, or -1 - column."""


@overload(eliminate, inline="never")
def _eliminate_overload(rule, plan, state, tid, team, s):
    if is_lu(rule):
        return lambda rule, plan, state, tid, team, s: eliminate_lu(rule, state, tid, team, s)
    return _eliminate_cholesky if is_cholesky(rule) else _eliminate_ldlt


def _eliminate_cholesky(rule, plan, state, tid, team, s):
    ld, full = state.node[s, ROWS], state.node[s, FULL]
    panel = view(state.panel, state.node[s, PANEL_AT], ld * full)
    step = DIAGONAL if ld >= LARGE else NARROW
    for k0 in range(0, full, step):
        k1 = min(full, k0 + step)
        last = k1 if ld >= LARGE else ld
        for q in range(k0, k1, NARROW):
            width = min(NARROW, k1 - q)
            start = q + q * ld
            bad = cholesky_columns(view(panel, start, ld * full - start), ld, last - q, width)
            if bad >= 0:
                return -1 - q - bad
            after = q + width
            if after < k1:
                c = view(panel, after + after * ld, ld * full - after - after * ld)
                a = view(panel, after + q * ld, ld * full - after - q * ld)
                update(rule.gemm, c, ld, a, ld, a, ld, True, last - after, k1 - after, width, True, False)
        if last < ld:
            tiles = (ld - k1 + TILE - 1) // TILE
            share(
                rule,
                state,
                tid,
                team,
                Job(SOLVE_ROWS, s, k0, k1, tiles, tid, 0, 0),
                (ld - k1) * (k1 - k0) * step,
            )
        if k1 < full:
            cost = (ld - k1) * (full - k1) * (k1 - k0)
            share(
                rule,
                state,
                tid,
                team,
                Job(TRAIL, s, k0, k1, tiles_of(ld - k1, full - k1), tid, k1, full),
                cost,
            )
    keep_reciprocals(panel, ld, full, view(state.diagonal, 2 * state.node[s, PIVOT_AT], 2 * full))
    return full


@njit(cache=True, nogil=True)
def _eliminate_block(rule, state, tid, team, s, begin, end, force):
    """Pivots among columns begin..end, which are up to date; panels inside, each followed by its update of the block.

    Returns the first column not eliminated; the rejected ones stand behind it, brought up to date.
    """
    node = state.node
    ld, full = node[s, ROWS], node[s, FULL]
    panel = view(state.panel, node[s, PANEL_AT], ld * full)
    ind = view(state.ind, node[s, IND_AT], ld)
    d = view(state.diagonal, 2 * node[s, PIVOT_AT], 2 * full)
    kind = view(state.kind, node[s, PIVOT_AT], full)
    work = view(state.work, tid * state.limits[WORK_SPAN], state.limits[WORK_SPAN])
    k, candidates = begin, end
    while k < candidates:
        k1, candidates = ldlt_panel(
            rule, panel, ld, ld, end, candidates, k, force, work, ld, ind, d, kind, state.stats[tid]
        )
        if k1 > k and k1 < end:
            cost = (ld - k1) * (end - k1) * (k1 - k)
            share(
                rule, state, tid, team, Job(TRAIL, s, k, k1, tiles_of(ld - k1, end - k1), tid, k1, end), cost
            )
        k = k1
    return k


def _eliminate_ldlt(rule, plan, state, tid, team, s):
    """Passes over the columns until a pass eliminates nothing.

    First by blocks of OUTER columns, partners sought inside the block; then over all columns left; last, where nothing
    can be delayed, whatever is left is forced. Rejected columns move to the end, to be looked at in the next pass.
    """
    node = state.node
    ld, full = node[s, ROWS], node[s, FULL]
    panel = view(state.panel, node[s, PANEL_AT], ld * full)
    ind = view(state.ind, node[s, IND_AT], ld)
    last_chance = ld == full or rule.perturb == 1
    effort = 0 if full > OUTER else 1
    k, candidates, pass_start = 0, full, 0
    while k < full:
        end = min(candidates, k + OUTER) if effort == 0 else candidates
        k1 = _eliminate_block(rule, state, tid, team, s, k, end, effort == 2)
        if k1 > k and end < full:
            cost = (ld - end) * (full - end) * (k1 - k)
            share(
                rule,
                state,
                tid,
                team,
                Job(TRAIL, s, k, k1, tiles_of(ld - end, full - end), -1, end, full),
                cost,
            )
        for j in range(k1, end):
            candidates -= 1
            if candidates > j:
                exchange(panel, ld, ld, rule.hermitian == 1, panel, 0, j, ind, j, candidates)
        k = k1
        if k >= candidates and k < full:
            if k == pass_start:
                effort += 1
                if effort > 2 or (effort == 2 and not last_chance):
                    break
            pass_start, candidates = k, full
    state.stats[tid, DELAYED] += full - k
    return k


def eliminate_small(rule, front, rows, full, root, work, ind, d, kind, stats):
    """Factor the first columns of a small front and update all the rest; returns the number eliminated, or -1 - column."""


@overload(eliminate_small, inline="never")
def _eliminate_small_overload(rule, front, rows, full, root, work, ind, d, kind, stats):
    return _eliminate_small_cholesky if is_cholesky(rule) else _eliminate_small_ldlt


def _eliminate_small_cholesky(rule, front, rows, full, root, work, ind, d, kind, stats):
    for k in range(0, full, NARROW):
        width = min(NARROW, full - k)
        start = k + k * rows
        bad = cholesky_columns(view(front, start, rows * rows - start), rows, rows - k, width)
        if bad >= 0:
            return -1 - k - bad
        after = k + width
        if after < rows:
            a = view(front, after + k * rows, rows * rows - after - k * rows)
            c = view(front, after + after * rows, rows * rows - after - after * rows)
            update(rule.gemm, c, rows, a, rows, a, rows, True, rows - after, rows - after, width, True, False)
    keep_reciprocals(front, rows, full, d)
    return full


def _eliminate_small_ldlt(rule, front, rows, full, root, work, ind, d, kind, stats):
    last_chance = rows == full or rule.perturb == 1
    force = False
    k, candidates, pass_start = 0, full, 0
    while k < full:
        k1, candidates = ldlt_panel(
            rule, front, rows, rows, full, candidates, k, force, work, rows, ind, d, kind, stats
        )
        if k1 > k and k1 < rows:
            a = view(front, k1 + k * rows, rows * rows - k1 - k * rows)
            c = view(front, k1 + k1 * rows, rows * rows - k1 - k1 * rows)
            b = view(work, k1, rows * (k1 - k) - k1)
            update(rule.gemm, c, rows, a, rows, b, rows, False, rows - k1, rows - k1, k1 - k, True, False)
        k = k1
        if k >= candidates and k < full:
            if k == pass_start:
                if not last_chance or force:
                    break
                force = True
            pass_start, candidates = k, full
    stats[DELAYED] += full - k
    return k
