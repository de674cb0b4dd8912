"""Tiles of one front of an LU factorisation; see `_tile_kernels` for how they are shared.

Tiles of one job touch different words. Fields of the job, where they differ from the symmetric ones:

SOLVE_ROWS    rows ``child`` on of U^T, pivots k0..k1; rows of the fully summed part are fetched from the panel.
TRAIL         columns child..span of the panel, rows below k1; where there are more tiles, columns k1..full of U^T's rest.
CONTRIBUTION  a square.
ADD_COLUMNS   columns k0..k1 of a child's block: what falls into the panel or into U^T.
"""

from __future__ import annotations

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit
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
    ROWS,
    SOLVE_ROWS,
    TRAIL,
)
from warpfront.sparse.numeric._lu_kernels import add_square_columns, solve_upper

__all__ = ["grid_of", "run_lu_tile"]


@njit(cache=True, nogil=True)
def grid_of(rows, columns):
    """Number of tiles of a rectangle."""
    return ((rows + TILE - 1) // TILE) * ((columns + TILE - 1) // TILE)


@njit(cache=True, nogil=True)
def _rectangle(rule, c, ldc, a, b, ld, rows, columns, depth, tile, fresh):
    """Tile of ``C -= A B^T`` (``C = -A B^T`` when fresh); A (rows, depth) and B (columns, depth) share ld."""
    down = (rows + TILE - 1) // TILE
    row, column = (tile % down) * TILE, (tile // down) * TILE
    m, n = min(TILE, rows - row), min(TILE, columns - column)
    target = view(c, row + column * ldc, (n - 1) * ldc + m)
    left = view(a, row, max(0, (depth - 1) * ld + m))
    right = view(b, column, max(0, (depth - 1) * ld + n))
    update(rule.gemm, target, ldc, left, ld, right, ld, False, m, n, depth, False, fresh)


@njit(cache=True, nogil=True)
def _trail(rule, state, job, tile):
    node, s, k0, k1 = state.node, job.node, job.k0, job.k1
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    words = ld * full
    panel, upper = view(state.panel, at, words), view(state.upper, at, words)
    first, last = job.child, job.span
    tiles = grid_of(ld - k1, last - first)
    if tile < tiles:
        c = view(panel, k1 + first * ld, words - k1 - first * ld)
        a = view(panel, k1 + k0 * ld, words - k1 - k0 * ld)
        b = view(upper, first + k0 * ld, words - first - k0 * ld)
        _rectangle(rule, c, ld, a, b, ld, ld - k1, last - first, k1 - k0, tile, False)
    else:
        c = view(upper, full + k1 * ld, words - full - k1 * ld)
        a = view(upper, full + k0 * ld, words - full - k0 * ld)
        b = view(panel, k1 + k0 * ld, words - k1 - k0 * ld)
        _rectangle(rule, c, ld, a, b, ld, ld - full, full - k1, k1 - k0, tile - tiles, False)


@njit(cache=True, nogil=True)
def _solve_tile(rule, state, job, tile):
    node, s, k0, k1 = state.node, job.node, job.k0, job.k1
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    panel, upper = view(state.panel, at, ld * full), view(state.upper, at, ld * full)
    row = job.child + tile * TILE
    rows = min(TILE, ld - row)
    for j in range(row, min(full, row + rows)):
        source = view(panel, j * ld, ld)
        for p in range(k0, k1):
            upper[j + p * ld] = source[p]
    solve_upper(rule.gemm, panel, upper, ld, row, rows, k0, k1)


@njit(cache=True, nogil=True)
def _add_columns(state, job, block, size, place, begin, end):
    """Columns begin..end of a child's block, as far as they fall into the panel or into U^T."""
    node, s = state.node, job.node
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    upper = view(state.upper, at, ld * full)
    split = 0
    while split < size and place[split] < full:
        split += 1
    middle = max(begin, min(split, end))
    add_square_columns(block, size, place, view(state.panel, at, ld * full), ld, 0, begin, middle, 0)
    for j in range(middle, end):
        source = view(block, j * size, size)
        pj = place[j]
        for i in range(split):
            upper[pj + place[i] * ld] += source[i]


@njit(cache=True, nogil=True)
def run_lu_tile(rule, state, tid, job, tile):
    """One tile of a job."""
    node, s, child = state.node, job.node, job.child
    ld, full, at = node[s, ROWS], node[s, FULL], node[s, PANEL_AT]
    if job.kind == TRAIL:
        _trail(rule, state, job, tile)
    elif job.kind == SOLVE_ROWS:
        _solve_tile(rule, state, job, tile)
    elif job.kind == CONTRIBUTION:
        size, done = node[s, BLOCK_SIZE], node[s, DONE]
        shift = size - ld + full
        c = view(state.stack, node[s, BLOCK_AT] + shift + shift * size, size * size - shift - shift * size)
        a = view(state.panel, at + full, ld * full - full)
        b = view(state.upper, at + full, ld * full - full)
        _rectangle(rule, c, size, a, b, ld, ld - full, ld - full, done, tile, True)
    elif job.kind == CLEAR:
        begin, end = tile * job.span * ld, min(full, (tile + 1) * job.span) * ld
        lower, upper = view(state.panel, at, ld * full), view(state.upper, at, ld * full)
        for i in range(begin, end):
            lower[i] = 0
            upper[i] = 0
    else:
        size = node[child, BLOCK_SIZE]
        block = view(state.stack, node[child, BLOCK_AT], size * size)
        place = view(state.work_map, job.owner * state.limits[MAP_SPAN], size)
        begin = job.k0 + tile * job.span
        end = min(job.k1, begin + job.span)
        if job.kind == ADD_COLUMNS:
            _add_columns(state, job, block, size, place, begin, end)
        else:
            mine, first = node[s, BLOCK_SIZE], job.k0
            target = view(state.stack, node[s, BLOCK_AT], mine * mine)
            add_square_columns(block, size, place, target, mine, node[s, DONE], begin, end, first)
