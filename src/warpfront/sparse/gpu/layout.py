"""What the plans of L D L^T and LU have in common: fronts and their places in memory, levels, maps, assembly lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu.gather import gather_lists
from warpfront.sparse.gpu.records import CHILD, ENTRY, FRONT
from warpfront.sparse.gpu.tree import TreePlan, plan_tree, row_lists
from warpfront.sparse.plan import FrontPlan

__all__ = ["PANEL", "Kind", "Layout", "lay_out"]

PACKED_ROWS = 46340  # rows of a packed block whose places still fit 32 bits
PANEL = 32
SUBTREE_SHARE, SUBTREE_FLOPS = 2e-5, 4000.0


@dataclass(frozen=True)
class Kind:
    """What a factorisation stores of a front.

    Attributes
    ----------
    halves : {1, 2}
        Triangles of a panel and of a contribution block: one of a symmetric front, two of a general one.
    published : int
        Words that a wide front publishes for each diagonal block.
    flags : int
        Flags of a panel of a wide front.
    """

    halves: int
    published: int
    flags: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Fronts of an analysis on a device; what is not explained here is as in `GpuPlan`.

    Attributes
    ----------
    weight : float64[fronts]
        Operations of the subtree under a warp's root.
    words : tuple of int
        Lengths: panels, blocks, published blocks, flags, rows of statistics.
    below_ptr : int64[fronts + 1]
        Where each front's rows below begin in ``maps``.
    """

    plan: FrontPlan
    parent: NDArray[np.int64]
    level: NDArray[np.int64]
    root: NDArray[np.int64]
    first: NDArray[np.int64]
    weight: NDArray[np.float64]
    flops: NDArray[np.float64]
    wide: NDArray[np.bool_]
    fronts: NDArray[Any]
    words: tuple[int, int, int, int, int]
    below_ptr: NDArray[np.int64]
    maps: NDArray[np.int32]
    below_ind: NDArray[np.int32]
    children: NDArray[Any]
    entries: NDArray[Any]
    gathers: NDArray[Any]
    sources: NDArray[np.int32]
    places: NDArray[np.uint16]

    def forest(self, most_rows: int) -> NDArray[np.bool_]:
        """Fronts of at most ``most_rows`` rows that have only such fronts under them."""
        from warpfront.sparse.gpu import _schedule_kernels as kernels

        member: NDArray[np.bool_] = kernels.forest(self.parent, np.diff(self.plan.front_ptr), most_rows)
        return member

    def tickets(self, member: NDArray[np.bool_]) -> TreePlan:
        """The fronts of a forest as tickets of one launch."""
        return plan_tree(
            self.plan, self.fronts, self.below_ptr, self.maps, self.parent, self.level, self.root, self.first, member
        )  # fmt: skip

    def row_lists(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Where each row of a front finds its children's contributions in a sweep."""
        return row_lists(self.plan, self.fronts["rows"], self.below_ptr, self.maps)


def lay_out(symbolic: Symbolic, kind: Kind, limit: int, share: float, most_subtree_rows: int) -> Layout:
    """Place the fronts of an analysis.

    Parameters
    ----------
    symbolic : Symbolic
    kind : Kind
    limit : int
        Rows of the largest front that one block holds.
    share, most_subtree_rows : float, int
        As of `make_plan`.

    Raises
    ------
    NotSupportedError
        A contribution block of more than 46340 rows, or more wide-front panels than 32 bits number.
    """
    from warpfront.sparse.analysis._schedule_kernels import node_flops
    from warpfront.sparse.gpu import _schedule_kernels as kernels

    plan = symbolic.plan
    width, rows = np.diff(plan.node_ptr), np.diff(plan.front_ptr)
    below, count = rows - width, width.size
    if int(below.max(initial=0)) > PACKED_ROWS:
        raise NotSupportedError(
            f"a contribution block has {int(below.max())} rows; the GPU path packs blocks of at most {PACKED_ROWS}"
        )
    parent = np.full(count, -1, np.int64)
    parent[plan.child_ind] = np.repeat(np.arange(count), np.diff(plan.child_ptr))
    flops = node_flops(plan.node_ptr, rows)
    cap = max(share * float(flops.sum()), SUBTREE_FLOPS)  # of one warp's subtree
    root, first, weight = kernels.subtrees(parent, rows, flops, most_subtree_rows, cap)
    wide = rows > limit
    fronts, words = _fronts(plan, wide, kind)
    if max(*words[3:], symbolic.n) >= 2**31 - 4:
        raise NotSupportedError("the matrix has more panels than 32 bits number")
    below_ptr = np.concatenate([[0], np.cumsum(below)]).astype(np.int64)
    bins = np.where(parent >= 0, -(-rows[np.maximum(parent, 0)] // 32) + 1, 0) if count else below
    range_at, range_words = _places(bins)
    maps = np.zeros(int(below_ptr[-1]) + range_words, np.int32)
    below_ind = np.zeros(max(int(below_ptr[-1]), 1), np.int32)
    kernels.gather_below(plan.front_ptr, width, plan.asm_map, below_ptr, maps)
    kernels.gather_below(plan.front_ptr, width, plan.front_ind, below_ptr, below_ind)
    kernels.ranges(parent, rows, below_ptr, maps, range_at + below_ptr[-1], maps)
    kids = plan.child_ind
    children = np.zeros(kids.size, CHILD)
    fronts["map"] = below_ptr[:-1]
    children["block"], children["map"] = fronts["block"][kids], below_ptr[kids]
    children["range"] = range_at[kids] + below_ptr[-1]
    children["below"], children["front"] = below[kids], kids
    gathered = gather_lists(plan, rows, wide, below_ptr, maps, fronts["block"], general=kind.halves == 2)
    return Layout(
        plan, parent, kernels.levels(parent, root), root, first, weight, flops, wide, fronts, words, below_ptr, maps,
        below_ind, children, _entries(plan, kind), *gathered,
    )  # fmt: skip


def _entries(plan: FrontPlan, kind: Kind) -> NDArray[Any]:
    """Entries of A in fronts. Of an upper half, the slot's complement with row and column exchanged."""
    entries = np.zeros(plan.a_slot.size, ENTRY)
    entries["slot"], entries["row"], entries["col"] = plan.a_slot, plan.a_row, plan.a_col
    if kind.halves == 2:
        entries["slot"] = np.where(plan.a_row >= plan.a_col, plan.a_slot, ~plan.a_slot)
        entries["row"], entries["col"] = (
            np.maximum(plan.a_row, plan.a_col),
            np.minimum(plan.a_row, plan.a_col),
        )
    return entries


def _fronts(
    plan: FrontPlan, wide: NDArray[np.bool_], kind: Kind
) -> tuple[NDArray[Any], tuple[int, int, int, int, int]]:
    """Records of the fronts; words of panels, blocks, published blocks and flags, and rows of statistics."""
    width, rows = np.diff(plan.node_ptr), np.diff(plan.front_ptr)
    below = rows - width
    panels = np.where(wide, -(-width // PANEL), 1)
    fronts = np.zeros(width.size, FRONT)
    fronts["rows"], fronts["width"], fronts["ld"] = rows, width, (rows + 3) // 4 * 4
    fronts["first"] = plan.node_ptr[:-1]
    fronts["entry0"], fronts["entry1"] = plan.a_ptr[:-1], plan.a_ptr[1:]
    fronts["child0"], fronts["child1"] = plan.child_ptr[:-1], plan.child_ptr[1:]
    fronts["panel"], panel_words = _places(kind.halves * fronts["ld"].astype(np.int64) * width)
    fronts["block"], block_words = _places(kind.halves * ((below * (below + 1) // 2 + 3) // 4 * 4))
    fronts["work"], work_words = _places(np.where(wide, panels * kind.published, 0))
    flag, flag_words = _places(np.where(wide, kind.flags * panels, 0))
    stat, stat_rows = _places(panels)
    fronts["flag"], fronts["stat"] = flag.clip(max=2**31 - 8) + 4, stat.clip(max=2**31 - 8)
    return fronts, (panel_words, block_words, work_words, flag_words + 4, stat_rows)


def _places(sizes: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Where each of consecutive pieces begins, and their sum."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return ends - sizes, int(ends[-1]) if ends.size else 0
