"""The whole solve of a tree of small fronts as tickets of one launch (``tree_solve.cu``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.gpu.records import ITEM, ROW_LIST
from warpfront.sparse.plan import FrontPlan

__all__ = ["TreePlan", "plan_tree", "row_lists"]

WARP_ROWS, WARPS = 32, 4
FIRST_CELL = 8  # cells before those of the items: kCells


@dataclass(frozen=True, eq=False)
class TreePlan:
    """Tickets of a solve.

    Attributes
    ----------
    tickets : record array
        ``front``: first item, ``last``: items, one a warp; 0: one item for the whole block. Forward, then backward ones.
    items : record array
        What ``tree_sweeps.cuh`` says of an item.
    lists, sources : record array, int32
        Where each row of a front finds its children's contributions.
    up, down : int
        Tickets of either sweep.
    cells : int
        Words that signal.
    most_rows : int
        Of a front that takes part.
    member : bool[fronts]
        Fronts that take part.
    """

    tickets: NDArray[Any]
    items: NDArray[Any]
    lists: NDArray[Any]
    sources: NDArray[np.int32]
    up: int
    down: int
    cells: int
    most_rows: int
    member: NDArray[np.bool_]


def plan_tree(
    plan: FrontPlan, fronts: NDArray[Any], below_ptr: NDArray[Any], maps: NDArray[Any], parent: NDArray[Any],
    level: NDArray[Any], root: NDArray[Any], first: NDArray[Any], member: NDArray[Any],
) -> TreePlan:  # fmt: skip
    """Make the tickets: level by level upwards, then downwards.

    Parameters
    ----------
    plan : FrontPlan
    fronts : record array
    below_ptr, maps : int64[fronts + 1], int32
        Places of each front's rows below in its parent.
    parent, level, root, first : int64[fronts]
        As in `GpuPlan`.
    member : bool[fronts]
        Fronts that take part, with all that is under them.
    """
    rows = fronts["rows"]
    takes_part = member & ((root < 0) | (root == np.arange(root.size)))
    order = np.lexsort((rows <= WARP_ROWS, level))
    order = order[takes_part[order]]
    count = order.size
    item_of = np.full(root.size, -1, np.int64)
    item_of[order] = np.arange(count)
    above = np.full(count, -1, np.int64)
    inside = (parent[order] >= 0) & member[np.maximum(parent[order], 0)]
    above[inside] = item_of[
        np.where(root[parent[order[inside]]] >= 0, root[parent[order[inside]]], parent[order[inside]])
    ]
    up, down = FIRST_CELL + np.arange(count), FIRST_CELL + count + np.arange(count)
    roots = np.flatnonzero(above < 0)
    end, before = np.where(above >= 0, up[above], 0), np.where(above >= 0, down[above], 0)
    end[roots] = before[roots] = FIRST_CELL + 2 * count + np.arange(roots.size)
    items = np.zeros(count, ITEM)
    items["front"] = np.where(root[order] >= 0, first[order], order)
    items["last"], items["row"] = order, np.bincount(above[above >= 0], minlength=count)
    items["col"], items["end"], items["e0"], items["e1"], items["index"] = up, end, before, down, above < 0
    forward: list[tuple[int, int]] = []
    backward: list[tuple[int, int]] = []
    for here in range(int(level[order].max()) + 1):
        at = np.flatnonzero(level[order] == here)
        teams, warps = at[rows[order[at]] > WARP_ROWS], at[rows[order[at]] <= WARP_ROWS]
        made = [(int(k), 0) for k in teams]
        made += [(int(warps[k]), min(WARPS, warps.size - k)) for k in range(0, warps.size, WARPS)]
        forward += made
        backward = made + backward
    tickets = np.zeros(len(forward) + len(backward), ITEM)
    tickets["front"], tickets["last"] = np.array(forward + backward, np.int32).T
    lists, sources = row_lists(plan, rows, below_ptr, maps)
    cells = FIRST_CELL + 2 * count + roots.size
    most_rows = int(rows[member].max())
    return TreePlan(tickets, items, lists, sources, len(forward), len(backward), cells, most_rows, member)


def row_lists(
    plan: FrontPlan, rows: NDArray[Any], below_ptr: NDArray[Any], maps: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Where each row of a front finds its children's contributions in a sweep: lists, and the sources of all."""
    from warpfront.sparse.gpu import _gather_kernels as kernels

    rows = np.ascontiguousarray(rows, np.int64)
    depth = np.zeros(rows.size, np.int64)
    kernels.row_depths(rows, plan.child_ptr, plan.child_ind, below_ptr, maps, depth)
    words = depth * (-(-rows // 32) * 32)
    ends = np.cumsum(words)
    at = ends - words
    sources = np.full(max(int(ends[-1]), 1), kernels.NOTHING, np.int32)
    kernels.row_sources(rows, plan.child_ptr, plan.child_ind, below_ptr, maps, at, depth, sources)
    lists = np.zeros(rows.size, ROW_LIST)
    lists["at"], lists["depth"] = at, depth
    return lists, sources
