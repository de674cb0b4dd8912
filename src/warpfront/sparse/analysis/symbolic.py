"""`Symbolic`: everything the analysis found, frozen; and the two steps from an ordering to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.analysis.ordering import Ordering
from warpfront.sparse.plan import FrontPlan

__all__ = ["Symbolic", "build_symbolic"]

# A child is merged into its parent when the merged node has at most ALWAYS columns, or at most WIDTH[t] columns with a
# share of stored zeros below ZEROS[t].
ALWAYS = 8
WIDTH = np.array([32, 64, 1 << 40], np.int64)
ZEROS = np.array([0.5, 0.2, 0.05])
TASK_SHARE = 1.0 / 12.0


@dataclass(frozen=True, eq=False)
class Symbolic:
    """The analysed structure of a symmetric factorisation.

    Attributes
    ----------
    n : int
        Order of the matrix.
    pattern : Canonical
        Lower triangle, compressed columns, with the map from the caller's entries.
    perm : int32[n]
        ``perm[k]`` is the caller's index of the k-th column in the elimination order.
    ordering : Ordering
        The fill-reducing ordering this came from.
    pairs : int
        Zero-diagonal pairs kept together.
    plan : FrontPlan
        Fronts, maps, panels and tasks.
    max_front : int
        Rows of the largest front.
    nnz_factor : int
        Entries of L that are stored, relaxed zeros included.
    flops : float
        Sum of squared column lengths of the stored L.
    stack_words, root_words : int
        Words of contribution blocks: a thread's stacks, and the roots of subtrees.
    """

    n: int
    pattern: Canonical
    perm: NDArray[np.int32]
    ordering: Ordering
    pairs: int
    plan: FrontPlan
    max_front: int
    nnz_factor: int
    flops: float
    stack_words: int
    root_words: int

    @property
    def n_supernodes(self) -> int:
        """Number of fronts."""
        return int(self.plan.node_ptr.size - 1)

    @property
    def tree_depth(self) -> int:
        """Levels of the supernodal tree."""
        return int(self.plan.depth.max(initial=-1)) + 1


def build_symbolic(
    pattern: Canonical, xadj: NDArray[np.int64], adj: NDArray[np.int32], ordering: Ordering, pairs: int
) -> Symbolic:
    """Turn an ordering into fronts: supernodes, row structures, assembly maps, tasks, memory plan."""
    from warpfront.sparse.analysis import _schedule_kernels as schedule
    from warpfront.sparse.analysis import _supernode_kernels as kernels

    n = pattern.n_cols
    node_ptr, node_parent, node_front, order = kernels.amalgamate(
        ordering.parent, ordering.counts, ALWAYS, WIDTH, ZEROS
    )
    perm = np.ascontiguousarray(ordering.perm[order])
    front_ptr, front_ind, asm_map = kernels.front_structures(
        xadj, adj, perm, node_ptr, node_parent, node_front
    )
    a_ptr, a_slot, a_row, a_col = kernels.assembly_lists(
        pattern.ptr, pattern.ind, perm, node_ptr, front_ptr, front_ind
    )
    child_ptr, child_ind = kernels.children(node_parent)
    flops = schedule.node_flops(node_ptr, node_front)
    begin, end, weight, trunk, depth = schedule.subtree_tasks(node_parent, flops, TASK_SHARE)
    longest_first = np.argsort(-weight, kind="stable")
    begin, end = begin[longest_first], end[longest_first]
    panel_ptr, stack_words, root_words = schedule.memory_plan(
        node_ptr, node_front, child_ptr, child_ind, depth, begin, end, trunk
    )
    width = np.diff(node_ptr)
    plan = FrontPlan(
        node_ptr, front_ptr, front_ind, asm_map, child_ptr, child_ind, a_ptr, a_slot, a_row, a_col, panel_ptr, depth,
        begin, end, trunk.copy(),
    )  # fmt: skip
    return Symbolic(
        n=n,
        pattern=pattern,
        perm=perm,
        ordering=ordering,
        pairs=pairs,
        plan=plan,
        max_front=int(node_front.max(initial=0)),
        nnz_factor=int((width * node_front - width * (width - 1) // 2).sum()),
        flops=float(flops.sum()),
        stack_words=int(stack_words),
        root_words=int(root_words),
    )
