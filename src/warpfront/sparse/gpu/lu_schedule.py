"""The GPU plan of an LU: the symmetric plan's fronts and maps, every front in two halves, launches of the LU kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu.layout import PANEL, SUBTREE_SHARE, Kind, lay_out
from warpfront.sparse.gpu.records import ITEM, ROW_LIST, Device, Launch
from warpfront.sparse.gpu.schedule import CHUNK, FOREST_ROWS, TILE, front_bytes, strip_bytes
from warpfront.sparse.gpu.tree import WARPS, TreePlan

__all__ = ["CLASSES", "LuPlan", "make_lu_plan", "tree_bytes", "upper_fronts"]

CLASSES = ((32, 32), (64, 128), (160, 256))  # rows of a front up to which a class goes, and its threads
GENERAL = Kind(halves=2, published=3 * PANEL * PANEL + PANEL, flags=4)
TILE_BYTES = 2 * 2 * 32 * 68  # of a value's bytes: dynamic shared memory of a tile
OWN_BYTES = 22528  # shared memory that is left beside a front for the kernel's own
TREE_SCRATCH = (18976, 11264)  # bytes beside a front: a block's, a warp's (lu_tree.cu)

Rows = list[tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class LuPlan:
    """Everything the device needs but values; what is not explained here is as in `GpuPlan`.

    Attributes
    ----------
    entries : record array
        Of the upper half, the slot's complement with row and column exchanged: every entry lies in a lower triangle.
    fronts : record array
        Panels and contribution blocks have room for both halves, one behind the other (``lu_front.cuh``); ``unused`` is
        the order of the matrix; a wide front has four flags a panel.
    gathers, sources, places : record array, int32, uint16
        Lists by which small fronts are assembled, of both halves (``gather.cuh``).
    row_lists, row_list_sources : record array, int32
        Where each row of a front finds its children's contributions in a sweep (``front.cuh``).
    forest : TreePlan or None
        Subtrees of fronts with at most FOREST_ROWS rows: their factorisation is the first launch, and either sweep is one.
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
    row_lists: NDArray[Any]
    row_list_sources: NDArray[np.int32]
    forest: TreePlan | None = None
    tree: None = None  # a solve is more than one launch


def make_lu_plan(
    symbolic: Symbolic, *, itemsize: int = 8, device: Device | None = None, small_rows: int = 160, chunk: int = CHUNK,
    subtree_share: float = SUBTREE_SHARE, most_subtree_rows: int = 32, one_launch: bool = True, lists: bool = True,
) -> LuPlan:  # fmt: skip
    """Plan an LU; parameters and errors as of `make_plan`. ``lists``: small fronts are assembled by lists, not by pull."""
    device = device or Device()
    limit = _largest_small(device, itemsize, small_rows)
    made = lay_out(symbolic, GENERAL, limit, subtree_share, most_subtree_rows)
    made.fronts["unused"] = symbolic.n
    member = made.forest(min(FOREST_ROWS[int(made.wide.any())], limit) if one_launch else 0)
    tree = (made.parent, made.level, made.root, made.first, made.wide)
    launches = _Launches(made.fronts, made.entries["col"], tree, member, itemsize, chunk, device.sms)
    launches.small = "lu_fronts" if lists else "lu_fronts_pull"
    launches.build(np.where(made.root >= 0, made.weight, made.flops))
    row_lists, row_sources = np.zeros(1, ROW_LIST), np.zeros(1, np.int32)
    if made.fronts.size:
        row_lists, row_sources = made.row_lists()
    return LuPlan(
        symbolic.n, True, made.fronts, made.children, made.entries, made.gathers, made.sources, made.places,
        launches.all_items(), made.maps, made.below_ind, tuple(launches.launches), *made.words, *tree, made.flops,
        row_lists, row_sources, made.tickets(member) if member.any() else None,
    )  # fmt: skip


def upper_fronts(plan: LuPlan) -> NDArray[Any]:
    """Fronts whose panels are the upper halves, for the sweeps."""
    fronts = plan.fronts.copy()
    fronts["panel"] += fronts["ld"].astype(np.int64) * fronts["width"]
    return fronts


def tree_bytes(most_rows: int, itemsize: int) -> int:
    """Dynamic shared memory of a block that takes tickets, fronts of at most this many rows among them."""
    block, warp = TREE_SCRATCH
    return max(block + front_bytes(most_rows, itemsize), WARPS * (warp + front_bytes(32, itemsize)))


def _largest_small(device: Device, itemsize: int, most: int) -> int:
    """Rows of the largest front that one block's shared memory takes."""
    steps = (32, 64, 96, 128, 160)
    fitting = [r for r in steps if r <= most and front_bytes(r, itemsize) + OWN_BYTES <= device.shared_bytes]
    return fitting[-1] if fitting else min(32, most)


class _Launches:
    """Builds the items and launches, level by level: classes of small fronts, then the wide ones."""

    def __init__(
        self,
        fronts: NDArray[Any],
        a_col: NDArray[Any],
        tree: tuple[NDArray[Any], ...],
        member: NDArray[np.bool_],
        itemsize: int,
        chunk: int,
        sms: int,
    ) -> None:
        self.member, self.small, self.sms = member, "lu_fronts", sms
        self.fronts, self.a_col, self.itemsize, self.chunk = fronts, a_col, itemsize, chunk
        self.parent, self.level, self.root, self.first, self.wide = tree
        self.begin = np.where(self.root >= 0, self.first, np.arange(self.root.size))  # an item's first front
        self.rows = fronts["rows"].copy()  # the most of an item
        self.launches: list[Launch] = []
        self.items: list[NDArray[Any]] = []
        self.count = 0

    def all_items(self) -> NDArray[Any]:
        return np.concatenate(self.items) if self.items else np.zeros(1, ITEM)

    def add(self, kernel: str, threads: int, shared: int, rows: Rows, after: set[int], level: int) -> int:
        """Append a launch with one item a block; returns its number."""
        self.items.append(np.array(rows, np.int32).reshape(-1, 8).view(ITEM).reshape(-1))
        waits = tuple(sorted(after))
        self.launches.append(Launch(kernel, threads, len(rows), shared, self.count, waits, level))
        self.count += len(rows)
        return len(self.launches) - 1

    def build(self, work: NDArray[Any]) -> None:
        """Make all launches; ``work`` decides what starts first in one."""
        root = self.root
        waits: list[set[int]] = [set() for _ in range(root.size)]
        order = np.lexsort((-work, self.level))
        order = order[((root < 0) | (root == np.arange(root.size)))[order] & ~self.member[order]]
        if self.member.any():
            self.launches.append(Launch("lu_tree", 128, 0, 0, -1, (), 0))
            for s in np.flatnonzero(self.member & (self.parent >= 0)).tolist():
                waits[self.parent[s]].add(0)
        for level in range(int(self.level.max(initial=-1)) + 1):
            here = order[self.level[order] == level]
            if self.goes_on(here, order[self.level[order] == level + 1]):
                s = int(here[0])
                waits[s + 1] |= waits[s]
                self.begin[s + 1], self.rows[s + 1] = self.begin[s], max(self.rows[s], self.rows[s + 1])
                continue
            done: dict[int, int] = {}
            for group, threads in self.classes(here):
                after = set().union(*(waits[s] for s in group if root[s] < 0))
                items: Rows = [(int(self.begin[s]), s, 0, 0, 0, 0, 0, 0) for s in group]
                most = max(int(self.fronts["rows"][a[0] : a[1] + 1].max()) for a in items)
                number = self.add(self.small, threads, front_bytes(most, self.itemsize), items, after, level)
                done.update(dict.fromkeys(group, number))
            wide = here[self.wide[here]].tolist()
            if wide:
                number = self.wide_fronts(wide, set().union(*(waits[s] for s in wide)), level)
                done.update(dict.fromkeys(wide, number))
            for s, number in done.items():
                if self.parent[s] >= 0:
                    waits[self.parent[s]].add(number)

    def goes_on(self, here: NDArray[Any], above: NDArray[Any]) -> bool:
        """Whether a level's only front is held by a block, and the next level is its parent alone: one block takes both."""
        if here.size != 1 or above.size != 1 or self.wide[[here[0], above[0]]].any():
            return False
        s = int(here[0])
        return bool(
            self.parent[s] == s + 1 == above[0] and (self.root[[s, s + 1]] < 0).all() and self.rows[s] > 32
        )

    def classes(self, here: NDArray[Any]) -> list[tuple[list[int], int]]:
        """Small fronts of a level by class: fronts and threads."""
        rows, least, found = self.rows[here], 0, []
        for most, threads in CLASSES:
            group = here[(rows > least) & (rows <= most) & ~self.wide[here]].tolist()
            least = most
            if group:
                found.append((group, threads))
        return found

    def wide_fronts(self, group: list[int], after: set[int], level: int) -> int:
        """Assembly, chunk by chunk strips and the update behind them, contribution blocks.

        Strips of fronts of one chunk assemble themselves where all run at once: a multiprocessor holds one, whose assembly
        nothing hides, and small blocks do it faster where there are many.
        """
        fronts, before = self.fronts, after
        widest, tile = int(fronts["width"][group].max()), TILE_BYTES * self.itemsize
        strips = self.strip_items(group, 0, self.chunk)
        alone = widest <= self.chunk and len(strips) <= self.sms
        if not alone:
            items: Rows = [item for s in group for item in self.assembly_items(s)]
            before = {self.add("lu_assemble", 128, 0, items, after, level)}
        # One chunk where it does; beyond that, narrower ones leave more of the work to tiles.
        chunk = self.chunk if widest <= self.chunk else max(TILE, self.chunk // 2)
        for begin in range(0, widest, chunk):
            live = [s for s in group if fronts["width"][s] > begin]
            end = begin + chunk
            shared = strip_bytes(min(chunk, widest - begin), self.itemsize)
            last = self.add(
                "lu_strips", 256, shared, self.strip_items(live, begin, chunk, alone), before, level
            )
            before = {last}
            items = [
                item for s in live for item in self.tile_items(s, end, int(fronts["width"][s]), begin, end)
            ]
            if items:
                last = self.add("lu_update", 128, tile, items, before, level)
                before = {last}
        items = []
        for s in group:
            width, rows = int(fronts["width"][s]), int(fronts["rows"][s])
            if rows > width:
                items += self.tile_items(s, width // TILE * TILE, rows, 0, width)
        final = self.add("lu_contribution", 128, tile, items, {last}, level) if items else last
        moved: Rows = [
            (s, 0, row, 0, row, 0, 0, 0)
            for s in group
            for row in range(PANEL, int(fronts["width"][s]), PANEL)
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
                (s, side, row, col, 0, int(e0), int(e1), 0)
                for side in (0, 1)
                for row in range(col // TILE * TILE, int(f["rows"]), TILE)
            ]
        return items

    def strip_items(self, live: list[int], begin: int, chunk: int, alone: bool = False) -> Rows:
        """Strips with a panel first, by panel; the upper side's before the lower one's, which waits for it.

        Rows behind them are cut at multiples of 32, as the children's ranges are.
        """
        diagonal: list[tuple[int, int, tuple[int, ...]]] = []
        rest: Rows = []
        for s in live:
            width, rows = int(self.fronts["width"][s]), int(self.fronts["rows"][s])
            end = min(width, begin + chunk)
            blocks = -(-(end - begin) // PANEL)
            for i in range(blocks):
                row = begin + i * PANEL
                for side in (1, 0) if i else (0,):
                    item = (s, min(end, row + PANEL), row, begin, end, blocks, 2 * alone + side, i)
                    diagonal.append((i, 1 - side, item))
            rest += [
                (s, min(rows, (row // PANEL + 1) * PANEL), row, begin, end, blocks, 2 * alone + side, blocks)
                for row in (end, *range((end // PANEL + 1) * PANEL, rows, PANEL))
                if row < rows
                for side in (1, 0)
            ]
        return [item for *_, item in sorted(diagonal)] + rest

    def tile_items(self, s: int, begin: int, end: int, k0: int, k1: int) -> Rows:
        """Tiles of both halves' lower triangles, columns begin..end, all rows of the front from there on."""
        rows = int(self.fronts["rows"][s])
        return [
            (s, side, row, col, min(end, col + TILE), k0, k1, 0)
            for col in range(begin, end, TILE)
            for row in range(col, rows, TILE)
            for side in (0, 1)
        ]
