"""Tiles of one front: the parallel pieces that `_walk_kernels` shares among threads.

Tiles are the same whether one thread or many run them, so bits do not depend on the number of threads.
"""

from __future__ import annotations

from numba.extending import overload

from warpfront.backend._intrinsics import relax, trsm_rltn, view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._assembly_kernels import add_block_columns
from warpfront.sparse.numeric._dense_kernels import TILE, update
from warpfront.sparse.numeric._layout import (
    ADD_COLUMNS,
    BLOCK_AT,
    BLOCK_SIZE,
    CLEAR,
    CONTRIBUTION,
    DONE,
    FULL,
    MAP_SPAN,
    PANEL_AT,
    PIVOT_AT,
    ROWS,
    SOLVE_ROWS,
    TRAIL,
    WORK_ROWS,
    WORK_SPAN,
    is_cholesky,
    is_lu,
)
from warpfront.sparse.numeric._ldlt_kernels import scale_by_d
from warpfront.sparse.numeric._lu_tile_kernels import grid_of, run_lu_tile
from warpfront.sparse.numeric._team_kernels import (
    open_job,
    read_job,
    take_tile,
    tile_done,
    wait_job,
)

SHARE_WORK = 200_000  # multiply-adds below which a job is not worth sharing


@njit(cache=True, nogil=True)
def _corner(tile, across, down):
    """Tile number -> (row tile, column tile) of a trapezoid ``across`` tiles wide and ``down`` tiles high."""
    column = 0
    while column < across and tile >= down - column:
        tile -= down - column
        column += 1
    return column + tile, column


@njit(cache=True, nogil=True)
def tiles_of(rows, columns):
    """Number of tiles of a lower trapezoid."""
    down = (rows + TILE - 1) // TILE
    across = (columns + TILE - 1) // TILE
    return across * down - across * (across - 1) // 2


def _right_operand(rule, state, tid, s, row, count, k0, k1, owner):
    """Return the right operand of an update as (array, leading dimension); see the overload."""


@overload(_right_operand, inline="never")
def _right_operand_overload(rule, state, tid, s, row, count, k0, k1, owner):
    if is_cholesky(rule):

        def cholesky(rule, state, tid, s, row, count, k0, k1, owner):
            node = state.node
            ld = node[s, ROWS]
            return view(state.panel, node[s, PANEL_AT] + row + k0 * ld, (k1 - k0 - 1) * ld + count), ld

        return cholesky

    def ldlt(rule, state, tid, s, row, count, k0, k1, owner):
        node = state.node
        ld = node[s, ROWS]
        if owner >= 0:  # the panel just factored: L D is at hand
            w = view(state.work, owner * state.limits[WORK_SPAN] + row, state.limits[WORK_SPAN] - row)
            return w, ld
        w = view(state.work, tid * state.limits[WORK_SPAN], state.limits[WORK_SPAN])
        panel = view(state.panel, node[s, PANEL_AT], ld * node[s, FULL])
        d = view(state.diagonal, 2 * node[s, PIVOT_AT], 2 * node[s, FULL])
        kind = view(state.kind, node[s, PIVOT_AT], node[s, FULL])
        scale_by_d(w, count, panel, ld, row, count, k0, k1, rule.hermitian == 1, d, kind)
        return w, count

    return ldlt


@njit(cache=True, nogil=True)
def _update_tile(rule, state, tid, job, tile):
    """TRAIL: columns job.child..job.span of the panel. CONTRIBUTION: a tile of the contribution block. Pivots k0..k1."""
    node, s, k0, k1 = state.node, job.node, job.k0, job.k1
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    first = job.child if job.kind == TRAIL else full
    columns = (job.span if job.kind == TRAIL else ld) - first
    size = ld - first
    ti, tj = _corner(tile, (columns + TILE - 1) // TILE, (size + TILE - 1) // TILE)
    row, column = ti * TILE, tj * TILE
    m, n = min(TILE, size - row), min(TILE, columns - column)
    if job.kind == TRAIL:
        ldc = ld
        c = view(state.panel, at + first + row + (first + column) * ld, (n - 1) * ld + m)
    else:
        ldc = node[s, BLOCK_SIZE]
        shift = ldc - size
        c = view(state.stack, node[s, BLOCK_AT] + shift + row + (shift + column) * ldc, (n - 1) * ldc + m)
    fresh = job.kind == CONTRIBUTION
    chunk = k1 - k0 if job.owner >= 0 else state.limits[WORK_ROWS]
    begin = k0
    while begin < k1 or fresh:
        end = min(k1, begin + chunk)
        left = view(state.panel, at + first + row + begin * ld, max(0, (end - begin - 1) * ld + m))
        right, ldr = _right_operand(rule, state, tid, s, first + column, n, begin, end, job.owner)
        update(rule.gemm, c, ldc, left, ld, right, ldr, rule.conj == 1, m, n, end - begin, ti == tj, fresh)
        fresh = False
        begin = end


def contribution_tiles(rule, size):
    """Number of tiles of a contribution block's update: of a triangle, or (LU) of a square."""


@overload(contribution_tiles, inline="never")
def _contribution_tiles_overload(rule, size):
    if is_lu(rule):
        return lambda rule, size: grid_of(size, size)
    return lambda rule, size: tiles_of(size, size)


def _run_tile(rule, state, tid, job, tile):
    """One tile of a job; tiles of a job touch different words."""


@overload(_run_tile, inline="never")
def _run_tile_overload(rule, state, tid, job, tile):
    if is_lu(rule):
        return lambda rule, state, tid, job, tile: run_lu_tile(rule, state, tid, job, tile)  # noqa: PLW0108
    return lambda rule, state, tid, job, tile: _run_symmetric_tile(rule, state, tid, job, tile)  # noqa: PLW0108


@njit(cache=True, nogil=True)
def _run_symmetric_tile(rule, state, tid, job, tile):
    node, s, k0, k1, child, span = state.node, job.node, job.k0, job.k1, job.child, job.span
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    if job.kind in (TRAIL, CONTRIBUTION):
        _update_tile(rule, state, tid, job, tile)
    elif job.kind == CLEAR:
        end = min(full, (tile + 1) * span)
        column = view(state.panel, at + tile * span * ld, (end - tile * span) * ld)
        for i in range((end - tile * span) * ld):
            column[i] = 0
    elif job.kind == SOLVE_ROWS:
        row = k1 + tile * TILE
        count = min(TILE, ld - row)
        triangle = view(state.panel, at + k0 + k0 * ld, (k1 - k0) * ld)
        below = view(state.panel, at + row + k0 * ld, (k1 - k0 - 1) * ld + count)
        _solve_rows(rule, count, k1 - k0, triangle, ld, below)
    else:
        size = node[child, BLOCK_SIZE]
        delayed = node[child, FULL] - node[child, DONE]
        block = view(state.stack, node[child, BLOCK_AT], size * size)
        place = view(state.work_map, job.owner * state.limits[MAP_SPAN], size)
        begin = k0 + tile * span
        end = min(k1, begin + span)
        conj = rule.hermitian == 1
        if job.kind == ADD_COLUMNS:
            panel = view(state.panel, at, ld * full)
            add_block_columns(block, size, place, delayed, conj, panel, ld, 0, begin, end)
        else:
            mine = node[s, BLOCK_SIZE]
            target = view(state.stack, node[s, BLOCK_AT], mine * mine)
            add_block_columns(block, size, place, delayed, conj, target, mine, node[s, DONE], begin, end)


def _solve_rows(rule, count, width, triangle, ld, below):
    """Rows of L below a factored diagonal block (Cholesky only)."""


@overload(_solve_rows, inline="never")
def _solve_rows_overload(rule, count, width, triangle, ld, below):
    if is_cholesky(rule):
        return lambda rule, count, width, triangle, ld, below: trsm_rltn(
            rule.trsm, count, width, triangle, ld, below, ld
        )
    return lambda rule, count, width, triangle, ld, below: None


@njit(cache=True, nogil=True)
def share(rule, state, tid, team, job, cost):
    """Run the tiles of a job, with the other threads where its ``cost`` (multiply-adds) pays for the hand-over."""
    if not team or job.tiles < 2 or cost < SHARE_WORK:
        for tile in range(job.tiles):
            _run_tile(rule, state, tid, job, tile)
        return
    open_job(state.sync, job)
    tile = take_tile(state.sync)
    while tile >= 0:
        _run_tile(rule, state, tid, job, tile)
        tile_done(state.sync)
        tile = take_tile(state.sync)
    wait_job(state.sync, job.tiles)


@njit(cache=True, nogil=True)
def help_out(rule, state, tid):
    """A thread other than 0 in the trunk: take tiles until the team is closed."""
    sync = state.sync
    while True:
        tile = take_tile(sync)
        if tile == -2:
            return
        if tile >= 0:
            _run_tile(rule, state, tid, read_job(sync), tile)
            tile_done(sync)
        else:
            relax()
