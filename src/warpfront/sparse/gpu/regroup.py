"""Fronts that suit a warp: small ones are merged as long as the result still has a row a lane."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warpfront.sparse.analysis.symbolic import TASK_SHARE, Symbolic
from warpfront.sparse.plan import FrontPlan

__all__ = ["WARP_ROWS", "regroup"]

WARP_ROWS = 32


def regroup(symbolic: Symbolic, most_rows: int = WARP_ROWS) -> Symbolic:
    """Merge children into parents where the merged front has at most ``most_rows`` rows.

    A level of the tree costs the device more than the zeros this stores. The elimination order changes with it: columns
    of a merged front stand together.
    """
    from warpfront.sparse.analysis import _schedule_kernels as schedule
    from warpfront.sparse.analysis import _supernode_kernels as supernodes
    from warpfront.sparse.analysis.graph import adjacency
    from warpfront.sparse.gpu import _schedule_kernels as kernels

    plan, pattern = symbolic.plan, symbolic.pattern
    count = plan.node_ptr.size - 1
    parent = np.full(count, -1, np.int64)
    parent[plan.child_ind] = np.repeat(np.arange(count), np.diff(plan.child_ptr))
    width, rows = np.diff(plan.node_ptr), np.diff(plan.front_ptr)
    into = kernels.merge_small(parent, width, rows, most_rows)
    if np.array_equal(into, np.arange(count)):
        return symbolic
    node_ptr, node_parent, node_front, order = supernodes._renumber(
        symbolic.n, plan.node_ptr, parent, into, width, rows
    )
    perm = np.ascontiguousarray(symbolic.perm[order])
    xadj, adj = adjacency(symbolic.n, pattern.ptr, pattern.ind)
    front_ptr, front_ind, asm_map = supernodes.front_structures(
        xadj, adj, perm, node_ptr, node_parent, node_front
    )
    a_ptr, a_slot, a_row, a_col = supernodes.assembly_lists(
        pattern.ptr, pattern.ind, perm, node_ptr, front_ptr, front_ind
    )
    child_ptr, child_ind = supernodes.children(node_parent)
    flops = schedule.node_flops(node_ptr, node_front)
    begin, end, weight, trunk, depth = schedule.subtree_tasks(node_parent, flops, TASK_SHARE)
    longest = np.argsort(-weight, kind="stable")
    begin, end = begin[longest], end[longest]
    panel_ptr, stack_words, root_words = schedule.memory_plan(
        node_ptr, node_front, child_ptr, child_ind, depth, begin, end, trunk
    )
    wide = np.diff(node_ptr)
    return replace(
        symbolic,
        perm=perm,
        plan=FrontPlan(
            node_ptr, front_ptr, front_ind, asm_map, child_ptr, child_ind, a_ptr, a_slot, a_row, a_col,
            panel_ptr, depth, begin, end, trunk.copy(),
        ),
        max_front=int(node_front.max(initial=0)),
        nnz_factor=int((wide * node_front - wide * (wide - 1) // 2).sum()),
        flops=float(flops.sum()),
        stack_words=int(stack_words),
        root_words=int(root_words),
    )  # fmt: skip
