"""Fronts that suit a warp: small ones are merged as long as the result still has a row a lane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.symbolic import TASK_SHARE, Symbolic
from warpfront.sparse.plan import FrontPlan

__all__ = ["DEFINITE", "INDEFINITE", "NO_MERGING", "WARP_ROWS", "regroup"]

Rule = tuple[float, float, float]

WARP_ROWS = 32
BLOCK_ROWS = 160
# Shares of added zeros up to which fronts of at most 32 and 64 columns, and those of more than BLOCK_ROWS rows, are merged.
# Which of a kind is best depends on the tree: the cheapest by launches and operations is taken.
NO_MERGING = (0.0, 0.0, 0.0)
DEFINITE = (NO_MERGING, (0.3, 0.0, 0.1), (0.5, 0.2, 0.05))
INDEFINITE = (NO_MERGING, (0.0, 0.0, 0.05), (0.0, 0.0, 0.1))
LAUNCH_SECONDS, FLOPS_A_SECOND = 1e-5, 2e13
FOREST_ROWS, CHUNK = 96, 512


def regroup(
    symbolic: Symbolic,
    most_rows: int = WARP_ROWS,
    most_width: int = 0,
    rules: tuple[Rule, ...] = (NO_MERGING,),
) -> Symbolic:
    """Fit the fronts to the device: small ones merged, and those that one block holds cut to what one warp searches.

    Parameters
    ----------
    symbolic : Symbolic
    most_rows : int
        Children are merged into parents where the merged front has at most this many rows: a level of the tree costs the
        device more than the zeros this stores. The order changes with it: columns of a merged front stand together.
    most_width : int
        Fronts of at most 160 rows with more columns than this become chains of fronts; 0: they stay whole.
    rules : tuple
        Shares of zeros that merging may add besides, one set after the other; the cheapest result is taken.
    """
    from warpfront.sparse.analysis import _supernode_kernels as supernodes
    from warpfront.sparse.gpu import _schedule_kernels as kernels

    plan = symbolic.plan
    count = plan.node_ptr.size - 1
    parent = np.full(count, -1, np.int64)
    parent[plan.child_ind] = np.repeat(np.arange(count), np.diff(plan.child_ptr))
    width, rows = np.diff(plan.node_ptr), np.diff(plan.front_ptr)
    found: list[tuple[Any, ...]] = []
    for rule in rules:
        w, r = width.copy(), rows.copy()
        merged = kernels.merge_small(parent, w, r, most_rows, np.array(rule), BLOCK_ROWS)
        launches, flops = kernels.merged_cost(parent, merged, w, r, FOREST_ROWS, BLOCK_ROWS, CHUNK)
        found.append((LAUNCH_SECONDS * launches + flops / FLOPS_A_SECOND, len(found), merged, w, r))
    _, _, into, width, rows = min(found, key=lambda made: made[:2])
    cut = most_width > 0 and bool(((width > most_width) & (rows <= BLOCK_ROWS)).any())
    if not cut and np.array_equal(into, np.arange(count)):
        return symbolic
    node_ptr, node_parent, node_front, order = supernodes._renumber(
        symbolic.n, plan.node_ptr, parent, into, width, rows
    )
    if cut:
        node_ptr, node_parent = kernels.cut_fronts(node_ptr, node_parent, node_front, BLOCK_ROWS, most_width)
    return _rebuilt(symbolic, order, node_ptr, node_parent, None if cut else node_front)


def _rebuilt(
    symbolic: Symbolic, order: NDArray[Any], node_ptr: NDArray[Any], node_parent: NDArray[Any],
    node_front: NDArray[Any] | None,
) -> Symbolic:  # fmt: skip
    """The analysis of another partition into fronts; their sizes are counted where they are not known."""
    from warpfront.sparse.analysis import _schedule_kernels as schedule
    from warpfront.sparse.analysis import _supernode_kernels as supernodes
    from warpfront.sparse.analysis.graph import adjacency
    from warpfront.sparse.gpu import _schedule_kernels as kernels

    pattern, perm = symbolic.pattern, np.ascontiguousarray(symbolic.perm[order])
    general = symbolic.general
    row = pattern.ind if general is None else _row_places(symbolic)
    xadj, adj = adjacency(symbolic.n, pattern.ptr, row)
    if node_front is None:
        node_front = kernels.front_sizes(xadj, adj, perm, node_ptr, node_parent)
    front_ptr, front_ind, asm_map = supernodes.front_structures(
        xadj, adj, perm, node_ptr, node_parent, node_front
    )
    if general is None:
        a_ptr, a_slot, a_row, a_col = supernodes.assembly_lists(
            pattern.ptr, pattern.ind, perm, node_ptr, front_ptr, front_ind
        )
    else:
        from warpfront.sparse.analysis._block_kernels import general_lists

        col = np.repeat(np.arange(symbolic.n, dtype=np.int32), np.diff(pattern.ptr))
        slot = np.arange(pattern.nnz, dtype=np.int64)
        a_ptr, a_slot, a_row, a_col = general_lists(row, col, slot, perm, node_ptr, front_ptr, front_ind)
        blocks = np.array([[0, node_ptr.size - 2]], np.int64)
        general = replace(general, rows=np.ascontiguousarray(general.rows[order]), blocks=blocks)
    child_ptr, child_ind = supernodes.children(node_parent)
    flops = schedule.node_flops(node_ptr, node_front)
    begin, end, weight, trunk, depth = schedule.subtree_tasks(node_parent, flops, TASK_SHARE)
    longest = np.argsort(-weight, kind="stable")
    begin, end = begin[longest], end[longest]
    panel_ptr, stack_words, root_words = schedule.memory_plan(
        node_ptr, node_front, child_ptr, child_ind, depth, begin, end, trunk
    )
    wide = np.diff(node_ptr)
    stored = int((wide * node_front - wide * (wide - 1) // 2).sum())
    return replace(
        symbolic,
        perm=perm,
        plan=FrontPlan(
            node_ptr, front_ptr, front_ind, asm_map, child_ptr, child_ind, a_ptr, a_slot, a_row, a_col,
            panel_ptr, depth, begin, end, trunk.copy(),
        ),
        max_front=int(node_front.max(initial=0)),
        nnz_factor=stored if general is None else 2 * stored - symbolic.n,
        flops=float(flops.sum()) * (1 if general is None else 2),
        stack_words=int(stack_words),
        root_words=int(root_words),
        general=general,
    )  # fmt: skip


def _row_places(symbolic: Symbolic) -> NDArray[np.int32]:
    """Row of each entry of a general matrix's pattern when its rows stand where their matched columns are."""
    general = symbolic.general
    assert general is not None
    place = np.empty(symbolic.n, np.int32)
    place[general.rows] = symbolic.perm
    return np.ascontiguousarray(place[symbolic.pattern.ind])
