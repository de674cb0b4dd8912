"""Steps of a front that differ between a symmetric factorisation and LU, chosen when a walk is compiled for its rule."""

from __future__ import annotations

from numba.extending import overload

from warpfront.backend._intrinsics import view
from warpfront.sparse.numeric._assembly_kernels import add_block_columns, enter_a
from warpfront.sparse.numeric._eliminate_kernels import eliminate_small
from warpfront.sparse.numeric._layout import (
    BLOCK_AT,
    BLOCK_SIZE,
    DONE,
    FULL,
    IND_AT,
    PANEL_AT,
    PIVOT_AT,
    ROWS,
    SMALL,
    WORK_SPAN,
    is_lu,
)
from warpfront.sparse.numeric._lu_eliminate_kernels import (
    eliminate_small_lu,
    enter_lu,
    keep_delayed_lu,
    open_columns_lu,
)
from warpfront.sparse.numeric._lu_kernels import add_square_columns

__all__ = [
    "add_small",
    "eliminate_scratch",
    "enter",
    "enter_small",
    "first_row",
    "keep_delayed",
    "open_columns",
    "part_of_block",
]


def open_columns(rule, plan, state, s):
    """Column indices of a front where they are not its row indices (LU)."""


@overload(open_columns, inline="never")
def _open_columns_overload(rule, plan, state, s):
    if is_lu(rule):
        return lambda rule, plan, state, s: open_columns_lu(plan, state, s)
    return lambda rule, plan, state, s: None


def part_of_block(rule, split, size, to_panel):
    """Columns of a child's block that a job adds; a column of LU's can have entries for U in any."""


@overload(part_of_block, inline="never")
def _part_of_block_overload(rule, split, size, to_panel):
    if is_lu(rule):
        return lambda rule, split, size, to_panel: (0, size) if to_panel else (split, size)
    return lambda rule, split, size, to_panel: (0, split) if to_panel else (split, size)


def enter_small(rule, plan, state, s, front):
    """Entries of A into a front held whole."""


@overload(enter_small, inline="never")
def _enter_small_overload(rule, plan, state, s, front):
    if is_lu(rule):

        def lu(rule, plan, state, s, front):
            own = plan.node_ptr[s + 1] - plan.node_ptr[s]
            rows, delayed = state.node[s, ROWS], state.node[s, FULL] - own
            enter_lu(plan, state.values, s, front, front, rows, delayed, True)

        return lu

    def symmetric(rule, plan, state, s, front):
        own = plan.node_ptr[s + 1] - plan.node_ptr[s]
        enter_a(plan, state.values, s, front, state.node[s, ROWS], state.node[s, FULL] - own)

    return symmetric


def add_small(rule, block, size, place, delayed, front, rows):
    """Add a child's whole block to a front held whole."""


@overload(add_small, inline="never")
def _add_small_overload(rule, block, size, place, delayed, front, rows):
    if is_lu(rule):
        return lambda rule, block, size, place, delayed, front, rows: add_square_columns(
            block, size, place, front, rows, 0, 0, size, 0
        )
    return lambda rule, block, size, place, delayed, front, rows: add_block_columns(
        block, size, place, delayed, rule.hermitian == 1, front, rows, 0, 0, size
    )


def eliminate_scratch(rule, state, tid, s, front, root):
    """Eliminate in a front held whole; returns the number eliminated, or -1 - column."""


@overload(eliminate_scratch, inline="never")
def _eliminate_scratch_overload(rule, state, tid, s, front, root):
    lu = is_lu(rule)

    def general(rule, state, tid, s, front, root):
        at = tid * state.limits[WORK_SPAN] + SMALL * SMALL
        return eliminate_small_lu(rule, state, tid, s, front, view(state.work, at, state.node[s, ROWS]))

    def symmetric(rule, state, tid, s, front, root):
        node, limits = state.node, state.limits
        rows, full, at = node[s, ROWS], node[s, FULL], node[s, PIVOT_AT]
        work = view(state.work, tid * limits[WORK_SPAN] + SMALL * SMALL, limits[WORK_SPAN] - SMALL * SMALL)
        ind = view(state.ind, node[s, IND_AT], rows)
        d = view(state.diagonal, 2 * at, 2 * full)
        kind = view(state.kind, at, full)
        return eliminate_small(rule, front, rows, full, root, work, ind, d, kind, state.stats[tid])

    return general if lu else symmetric


def first_row(rule, j):
    """First row of a contribution block's column j that is kept: j, of LU's 0."""


@overload(first_row, inline="always")
def _first_row_overload(rule, j):
    return (lambda rule, j: 0) if is_lu(rule) else (lambda rule, j: j)


def enter(rule, plan, state, s):
    """Entries of A into a front's zeroed arrays."""


@overload(enter, inline="never")
def _enter_overload(rule, plan, state, s):
    if is_lu(rule):

        def lu(rule, plan, state, s):
            ld, full, at = state.node[s, ROWS], state.node[s, FULL], state.node[s, PANEL_AT]
            panel, upper = view(state.panel, at, ld * full), view(state.upper, at, ld * full)
            own = plan.node_ptr[s + 1] - plan.node_ptr[s]
            enter_lu(plan, state.values, s, panel, upper, ld, full - own, False)

        return lu

    def symmetric(rule, plan, state, s):
        ld, full = state.node[s, ROWS], state.node[s, FULL]
        panel = view(state.panel, state.node[s, PANEL_AT], ld * full)
        enter_a(plan, state.values, s, panel, ld, full - plan.node_ptr[s + 1] + plan.node_ptr[s])

    return symmetric


def keep_delayed(rule, state, s):
    """Copy delayed columns (LU: and rows) from the front to the head of its contribution block."""


@overload(keep_delayed, inline="never")
def _keep_delayed_overload(rule, state, s):
    if is_lu(rule):
        return lambda rule, state, s: keep_delayed_lu(state, s)

    def symmetric(rule, state, s):
        node = state.node
        ld, full, done, size = node[s, ROWS], node[s, FULL], node[s, DONE], node[s, BLOCK_SIZE]
        block = node[s, BLOCK_AT]
        for j in range(done, full):
            for i in range(j, ld):
                state.stack[block + i - done + (j - done) * size] = state.panel[
                    node[s, PANEL_AT] + i + j * ld
                ]

    return symmetric
