"""The GPU plan: a pure function of the analysis. Records, maps, memory, and the launches with what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu.layout import PANEL, SUBTREE_SHARE, Kind, lay_out
from warpfront.sparse.gpu.records import ITEM, Device, Launch
from warpfront.sparse.gpu.tree import TreePlan

__all__ = ["ITEM", "PANEL", "Device", "GpuPlan", "Launch", "make_plan"]

SYMMETRIC = Kind(halves=1, published=32 * 32 + 3 * 32, flags=2)
STATS = 9
TILE, CHUNK = 64, 512
# rows of a front up to which a class goes, and its threads: without and with pivoting (one thread a row)
CLASSES = ((32, 32, 32), (64, 128, 128), (96, 256, 128), (160, 256, 256))
# rows of fronts that one launch eliminates all: a thread a row; of which two blocks fit a multiprocessor where more follows
FOREST_ROWS = (128, 96)
OWN_BYTES = 20480  # of shared memory that the kernels of small fronts use besides the front


@dataclass(frozen=True, eq=False)
class GpuPlan:
    """Everything the device needs but values. Lengths of device buffers are in words of the factor's type.

    Attributes
    ----------
    fronts, children, entries, items : record arrays
        As in ``front.cuh``.
    gathers : record array
        As in ``gather.cuh``; with ``sources`` (int32) and ``places`` (uint16) the lists by which small fronts are assembled.
    maps : int32
        For each front its rows' places in the parent, then for each its ranges.
    below_ind : int32
        Permuted indices of the rows below, laid out as ``maps``.
    launches : tuple of Launch
        In an order in which they may run one after another.
    panel_words, block_words, work_words, flag_words, stat_rows : int
        Lengths of the buffers.
    tree : TreePlan or None
        Where no front is wide: the whole solve as one launch.
    forest : TreePlan or None
        Subtrees of fronts with at most FOREST_ROWS rows: either sweep of a solve is one launch.
        So is their factorisation, the first launch, with pivoting or where nothing follows; otherwise launches of a level
        overlap with those of others, which is worth more.
    level : int64[fronts]
    root : int64[fronts]
        Root of the warp's subtree a front lies in, or -1.
    wide : bool[fronts]
    """

    n: int
    pivoting: bool
    fronts: NDArray[Any]
    children: NDArray[Any]
    entries: NDArray[Any]
    gathers: NDArray[Any]
    sources: NDArray[np.int32]
    places: NDArray[np.uint16]
    items: NDArray[Any]
    maps: NDArray[np.int32]
    below_ind: NDArray[np.int32]
    launches: tuple[Launch, ...]
    panel_words: int
    block_words: int
    work_words: int
    flag_words: int
    stat_rows: int
    parent: NDArray[np.int64]
    level: NDArray[np.int64]
    root: NDArray[np.int64]
    first: NDArray[np.int64]
    wide: NDArray[np.bool_]
    flops: NDArray[np.float64]
    tree: TreePlan | None
    forest: TreePlan | None = None


def make_plan(
    symbolic: Symbolic, *, pivoting: bool, itemsize: int = 8, device: Device | None = None, small_rows: int = 160,
    chunk: int = CHUNK, subtree_share: float = SUBTREE_SHARE, most_subtree_rows: int = 32, one_launch: bool = True,
) -> GpuPlan:  # fmt: skip
    """Plan a factorisation.

    Parameters
    ----------
    symbolic : Symbolic
    pivoting : bool
        LDL^T with interchanges; otherwise positive definite.
    itemsize : int
        Bytes of a value.
    device : Device, optional
    small_rows, chunk, subtree_share, most_subtree_rows : optional
        Rows up to which one block holds a front; columns of a wide front eliminated at once (a multiple of 64);
        share of the flops one warp's subtree may have; rows of a front in it (tests make them small).
    one_launch : bool
        A solve of a tree of small fronts is one launch; otherwise one a level, as where there are wide fronts.

    Raises
    ------
    NotSupportedError
        A contribution block of more than 46340 rows, or more wide-front panels than 32 bits number.
    """
    device = device or Device()
    limit = _largest_small(device, itemsize, small_rows)
    made = lay_out(symbolic, SYMMETRIC, limit, subtree_share, most_subtree_rows)
    any_wide, count = bool(made.wide.any()), made.fronts.size
    member = made.forest(min(FOREST_ROWS[int(any_wide)], limit) if one_launch else 0)
    inside = member & (pivoting or not any_wide)
    launches = _Launches(
        made.fronts,
        symbolic.plan.a_col,
        made.level,
        made.wide,
        inside,
        pivoting,
        itemsize,
        limit,
        chunk,
        device.sms,
    )
    launches.build(made.parent, made.root, made.first, made.weight, made.flops)
    tree = forest = None
    if count and one_launch and not any_wide:
        tree = made.tickets(np.ones(count, np.bool_))
    if member.any():
        forest = tree if tree is not None and member.all() else made.tickets(member)
    return GpuPlan(
        symbolic.n, pivoting, made.fronts, made.children, made.entries, made.gathers, made.sources, made.places,
        launches.all_items(), made.maps, made.below_ind, tuple(launches.launches), *made.words, made.parent, made.level,
        made.root, made.first, made.wide, made.flops, tree, forest,
    )  # fmt: skip


def front_bytes(rows: int, itemsize: int) -> int:
    """Dynamic shared memory of a front that one block holds."""
    padded = (rows + 15) // 16 * 16
    return padded * (padded + 4) * itemsize


def strip_bytes(columns: int, itemsize: int) -> int:
    """Dynamic shared memory of a strip with this many columns."""
    return (5 + -(-columns // PANEL)) * PANEL * 36 * itemsize


def _largest_small(device: Device, itemsize: int, most: int) -> int:
    """Rows of the largest front that one block's shared memory takes."""
    fitting = [
        rows
        for rows, *_ in CLASSES
        if rows <= most and front_bytes(rows, itemsize) + OWN_BYTES <= device.shared_bytes
    ]
    return fitting[-1] if fitting else min(32, most)


Rows = list[tuple[int, ...]]


class _Launches:
    """Builds the items and launches, level by level."""

    def __init__(
        self, fronts: NDArray[Any], a_col: NDArray[Any], level: NDArray[Any], wide: NDArray[Any], member: NDArray[Any],
        pivoting: bool, itemsize: int, limit: int, chunk: int, sms: int,
    ) -> None:  # fmt: skip
        self.member = member
        self.fronts, self.a_col, self.level, self.wide = fronts, a_col, level, wide
        self.pivoting, self.itemsize, self.limit, self.chunk = pivoting, itemsize, limit, chunk
        self.sms = sms
        self.launches: list[Launch] = []
        self.items: list[NDArray[Any]] = []
        self.count = 0

    def all_items(self) -> NDArray[Any]:
        return np.concatenate(self.items) if self.items else np.zeros(1, ITEM)

    def add(
        self, kernel: str, threads: int, shared: int, rows: Rows | NDArray[Any], after: set[int], level: int
    ) -> int:
        """Append a launch with one item a block; returns its number."""
        self.items.append(np.array(rows, np.int32).reshape(-1, 8).view(ITEM).reshape(-1))
        self.launches.append(
            Launch(kernel, threads, len(rows), shared, self.count, tuple(sorted(after)), level)
        )
        self.count += len(rows)
        return len(self.launches) - 1

    def build(
        self, parent: NDArray[Any], root: NDArray[Any], first: NDArray[Any], weight: NDArray[Any], flops: NDArray[Any]
    ) -> None:  # fmt: skip
        """Launch by level: classes of small fronts, then the wide ones."""
        takes_part = (root < 0) | (root == np.arange(root.size))
        work = np.where(root >= 0, weight, flops)
        rows = np.append(self.fronts["rows"], 0)  # a span may end with the last front
        done = np.full(parent.size, -1, np.int64)  # the launch that finishes a front
        waits: list[set[int]] = [set() for _ in range(parent.size)]
        order = np.lexsort((-work, self.level))
        order = order[takes_part[order] & ~self.member[order]]
        if self.member.any():
            self.launches.append(Launch("factor_tree", 128, 0, 0, -1, (), 0))
            for s in np.flatnonzero(self.member & (parent >= 0)).tolist():
                waits[parent[s]].add(0)
        for level in range(int(self.level.max(initial=-1)) + 1):
            here = order[self.level[order] == level]
            for group, plain, pivoted in self.classes(here):
                after = set().union(*(waits[s] for s in group.tolist() if root[s] < 0))
                items = np.zeros((group.size, 8), np.int32)
                items[:, 0], items[:, 1] = np.where(root[group] >= 0, first[group], group), group
                spans = np.stack([items[:, 0], items[:, 1] + 1], axis=1).ravel()
                shared = front_bytes(int(np.maximum.reduceat(rows, spans)[::2].max()), self.itemsize)
                done[group] = self.add(
                    "fronts", pivoted if self.pivoting else plain, shared, items, after, level
                )
            group = here[self.wide[here]]
            if group.size:
                done[group] = self.wide_fronts(
                    group.tolist(), set().union(*(waits[s] for s in group.tolist())), level
                )
            for s in here.tolist():
                if parent[s] >= 0:
                    waits[parent[s]].add(int(done[s]))

    def classes(self, here: NDArray[Any]) -> list[tuple[NDArray[Any], int, int]]:
        """Small fronts of a level by class, with the class's threads; what a warp holds stays apart.

        A class joins the next larger one where the device runs both at once: one launch fewer to wait for.
        """
        rows, least = self.fronts["rows"][here], 0
        found: list[tuple[NDArray[Any], int, int]] = []
        for most, plain, pivoted in CLASSES:
            group = here[(rows > least) & (rows <= most) & ~self.wide[here]]
            least = most
            if group.size:
                if found and found[-1][1] > 32 and found[-1][0].size + group.size <= self.sms:
                    group = np.concatenate([group, found.pop()[0]])
                found.append((group, plain, pivoted))
        return found

    def wide_fronts(self, group: list[int], after: set[int], level: int) -> int:
        """Assembly (by the strips where one chunk does), chunk by chunk strips and the update behind them, blocks."""
        widest, before = int(self.fronts["width"][group].max()), set(after)
        items: Rows = []
        if widest > self.chunk:
            items = [item for s in group for item in self.assembly_items(s)]
            before = {self.add("assemble", 128, 0, items, after, level)}
        tile_bytes = 2 * 2 * 32 * 68 * self.itemsize
        # One chunk where it does; beyond that, narrower ones leave more of the work to tiles.
        chunk = self.chunk if widest <= self.chunk else max(TILE, self.chunk // 2)
        for begin in range(0, widest, chunk):
            live = [s for s in group if self.fronts["width"][s] > begin]
            columns = min(chunk, widest - begin)
            items = self.strip_items(live, begin, chunk)
            last = self.add("strips", 256, strip_bytes(columns, self.itemsize), items, before, level)
            before = {last}
            end = begin + chunk
            items = [
                item
                for s in live
                for item in self.tile_items(s, end, int(self.fronts["width"][s]), begin, end)
            ]
            if items:
                last = self.add("update", 128, tile_bytes, items, before, level)
                before = {last}
        items = []
        for s in group:
            f = self.fronts[s]
            items += self.tile_items(s, int(f["width"]) // TILE * TILE, int(f["rows"]), 0, int(f["width"]))
        final = last
        if items and any(self.fronts["rows"][s] > self.fronts["width"][s] for s in group):
            items = [i for i in items if self.fronts["rows"][i[0]] > self.fronts["width"][i[0]]]
            final = self.add("contribution", 128, tile_bytes, items, {last}, level)
        if self.pivoting:
            moved: Rows = [
                (s, 0, row, 0, row, 0, 0, 0)
                for s in group
                for row in range(PANEL, int(self.fronts["width"][s]), PANEL)
            ]
            if moved:
                self.add("order", 256, 0, moved, {last}, level)
        return final

    def assembly_items(self, s: int) -> Rows:
        f = self.fronts[s]
        columns = self.a_col[int(f["entry0"]) : int(f["entry1"])]
        items: Rows = []
        for col in range(0, int(f["width"]), PANEL):
            e0, e1 = np.searchsorted(columns, [col, col + PANEL])
            items += [
                (s, 0, row, col, 0, int(e0), int(e1), 0)
                for row in range(col // TILE * TILE, int(f["rows"]), TILE)
            ]
        return items

    def strip_items(self, live: list[int], begin: int, chunk: int) -> Rows:
        """Diagonal strips of all fronts first: a strip waits for smaller block indices only.

        Rows behind them are cut at multiples of 32, as the children's ranges are.
        """
        alone = int(all(self.fronts["width"][s] <= chunk for s in live) and begin == 0)
        diagonal: list[tuple[int, tuple[int, ...]]] = []
        rest: Rows = []
        for s in live:
            width, rows = int(self.fronts["width"][s]), int(self.fronts["rows"][s])
            end = min(width, begin + chunk)
            blocks = -(-(end - begin) // PANEL)
            for i in range(blocks):
                row = begin + i * PANEL
                diagonal.append((i, (s, min(end, row + PANEL), row, begin, end, blocks, alone, i)))
            starts = [end, *range((end // PANEL + 1) * PANEL, rows, PANEL)]
            rest += [
                (s, min(rows, (row // PANEL + 1) * PANEL), row, begin, end, blocks, alone, blocks)
                for row in starts
                if row < rows
            ]
        return [item for _, item in sorted(diagonal)] + rest

    def tile_items(self, s: int, begin: int, end: int, k0: int, k1: int) -> Rows:
        """Tiles of the lower triangle of columns begin..end, all rows of the front from there on."""
        rows = int(self.fronts["rows"][s])
        return [
            (s, 0, row, col, min(end, col + TILE), k0, k1, 0)
            for col in range(begin, end, TILE)
            for row in range(col, rows, TILE)
        ]
