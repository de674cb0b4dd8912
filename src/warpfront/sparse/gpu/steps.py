"""Sequences of launches: a solve with refinement. Pure; device and SIMT runner take the same lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.gpu.factor_steps import Tables, Tolerances, factor_steps, make_tables
from warpfront.sparse.gpu.kernels import KERNELS, MOST_TOGETHER, column_tiles, team_columns
from warpfront.sparse.gpu.schedule import ITEM, PANEL, GpuPlan
from warpfront.sparse.gpu.step import (
    FEW,
    ROW_LANES,
    SCALING_SWEEPS,
    STATE,
    SWEEP_THREADS,
    THREADS,
    TREE_BLOCKS,
    TREE_BYTES,
    TREE_PARTS,
    TREE_RESIDUAL_ROWS,
    TREE_THREADS,
    Step,
    clear_cells,
    grid,
)
from warpfront.sparse.gpu.tree import TreePlan

__all__ = [
    "SCALING_SWEEPS",
    "STATE",
    "THREADS",
    "Step",
    "Tables",
    "Tolerances",
    "factor_steps",
    "make_tables",
    "solve_items",
    "solve_steps",
]


Sweep = tuple[str, int, int, int]


def solve_items(plan: GpuPlan) -> tuple[NDArray[np.void], list[list[Sweep]]]:
    """Items of the forward sweep, level by level: (kernel, threads, first item, count); then those of the backward.

    What the plan's forest holds is left out: `solve_steps` has a launch for it.

    Parameters
    ----------
    plan : GpuPlan
    """
    rows = plan.fronts["rows"]
    takes_part = (plan.root < 0) | (plan.root == np.arange(plan.root.size))
    forest = getattr(plan, "forest", None)  # an LU's plan has none
    if forest is not None and plan.tree is None:
        takes_part &= ~forest.member
    items: list[tuple[int, ...]] = []
    levels: list[list[Sweep]] = []
    back: list[list[Sweep]] = []

    def put(into: list[Sweep], kernel: str, threads: int, group: list[tuple[int, ...]]) -> None:
        if group:
            into.append((kernel, threads, len(items), len(group)))
            items.extend(group)

    order = np.lexsort((-plan.flops, plan.level))
    order = order[takes_part[order]]
    for level in range(int(plan.level.max(initial=-1)) + 1):
        here = order[plan.level[order] == level]
        small, wide = here[~plan.wide[here]], here[plan.wide[here]].tolist()
        forward: list[Sweep] = []
        backward: list[Sweep] = []
        warps, teams = small[rows[small] <= 32], small[rows[small] > 32]
        if teams.size and small.size <= FEW:  # one launch fewer to wait for
            warps, teams = small[:0], small
        for threads, group in ((32, warps), (SWEEP_THREADS, teams)):
            ranges: list[tuple[int, ...]] = [
                (int(plan.first[s]) if plan.root[s] >= 0 else s, s, 0, 0, 0, 0, 0, 0) for s in group.tolist()
            ]
            put(forward, "forward", threads, ranges)
            put(backward, "backward", threads, ranges)
        up, down = _tiled_strips(plan, wide)
        put(forward, "forward_strips", SWEEP_THREADS, up)
        put(backward, "backward_strips", SWEEP_THREADS, down)
        levels.append(forward)
        back.append(backward)
    made = np.array(items or [(0,) * 8], np.int32).reshape(-1, 8).view(ITEM).reshape(-1)
    return made, [*levels, *back[::-1]]


Items = list[tuple[int, ...]]


def _tiled_strips(plan: GpuPlan, wide: list[int]) -> tuple[Items, Items]:
    """Strips of the wide fronts in the order in which they are waited for, forward and backward.

    They are cut where a front's own rows end; `end` is where a strip does.
    """
    up: list[tuple[int, tuple[int, ...]]] = []
    down: list[tuple[int, tuple[int, ...]]] = []
    for s in wide:
        width, rows = int(plan.fronts["width"][s]), int(plan.fronts["rows"][s])
        blocks = -(-width // PANEL)
        own = [(i, (s, 0, i * PANEL, 0, min(width, (i + 1) * PANEL), 0, 0, i)) for i in range(blocks)]
        starts = [width, *range((width // PANEL + 1) * PANEL, rows, PANEL)]
        rest = [(row, min(rows, (row // PANEL + 1) * PANEL)) for row in starts if row < rows]
        up += own
        up += [(blocks + k, (s, 0, a, 0, b, 0, 0, blocks)) for k, (a, b) in enumerate(rest)]
        down += [(blocks - i, item) for i, item in own]
    return [item for _, item in sorted(up)], [item for _, item in sorted(down)]


LEAST_TREE_BLOCKS = 33  # of a launch through a tree, for each group of right-hand sides
ALONE = ("start_solve", "start_tree", "judge")
TILED = ("forward_strips", "backward_strips")


def row_groups(rhs: int) -> int:
    """Groups of right-hand sides of which a small front's team takes one."""
    return -(-rhs // MOST_TOGETHER)


def tree_groups(rhs: int) -> int:
    """Groups of which an item of a tree's sweep takes one."""
    return -(-rhs // team_columns(rhs))


def tile_groups(rhs: int) -> int:
    """Groups of which a strip of a wide front takes one."""
    return -(-rhs // (8 * column_tiles(rhs)))


def solve_steps(
    plan: GpuPlan, sweeps: list[list[Sweep]], dtype: str, rhs: int, refinements: int, *,
    scaled: bool, target: float, rounds: int = 0, limit: float = 0.0, span: int = 1,
) -> list[Step]:  # fmt: skip
    """Right-hand sides in ``b`` (rhs x n) to solutions in ``best``; state of the refinement in ``state``.

    Parameters
    ----------
    plan : GpuPlan
    sweeps : list
        From `solve_items`.
    dtype : str
    rhs : {1, 4, 8, 16, 32, 64}
    refinements : int
        Steps at most; 0: no residual is computed.
    scaled : bool
    target : float
        Componentwise backward error at which refinement stops.
    rounds, limit : optional
        Where all fronts are small: steps made while the error is above ``limit``, if more than ``refinements``.
    span : int, optional
        Panels of a wide front with a common inverse (`inverses.invert_items`).
    """
    n, groups = plan.n, row_groups(rhs)
    steps: list[Step] = []
    exponents = "exponents" if scaled else None
    if plan.tree is not None:
        return _tree_steps(plan, plan.tree, dtype, rhs, (refinements, rounds), exponents, (target, limit))

    def add(
        name: str, blocks: int, threads: int, numbers: tuple[float, ...] = (), items: int = -1,
        after: tuple[int, ...] | None = None, shared: int = 0, **rename: str | None,
    ) -> int:  # fmt: skip
        before = after if after is not None else (len(steps) - 1,) if steps else ()
        expression = KERNELS[name].expression(dtype, threads, rhs=rhs)
        if items >= 0:
            rename["items"] = "solve_items"
        many = 1 if name in ALONE else groups
        if name in TILED:
            numbers, many, blocks = (span, rhs, plan.flag_words), 1, blocks * tile_groups(rhs)
        if name == "sweep_forest":
            many = tree_groups(rhs)
        steps.append(
            Step(name, expression, blocks, threads, shared, items, numbers, dict(rename), before, many)
        )
        return len(steps) - 1

    forest, taken = getattr(plan, "forest", None), 0
    add("start_solve", 1, 128, (rhs,))
    if forest is not None:
        steps.append(replace(clear_cells(forest, 0, tree_groups(rhs)), after=(0,)))
    for round_ in range(refinements + 1):
        active = "active" if round_ else None
        source, base, out = ("residual", "best", "candidate") if round_ else ("b", None, "best")
        before: tuple[int, ...] = (
            add("permute_in", grid(n), THREADS, (n, 1, n), exponents=exponents, b=source, active=active),
        )
        before, taken = _sweep_levels(add, forest, sweeps, before, round_, taken, tree_groups(rhs))
        add(
            "permute_out", grid(n), THREADS, (n,), after=before, exponents=exponents, base=base, out=out,
            active=active, summary=None if plan.pivoting else "summary",
        )  # fmt: skip
        if refinements:
            add("measure", grid(n * ROW_LANES), THREADS, b="b", out=out, active=active)
            add("judge", 1, 32, (rhs, round_, target))
            if round_:
                add("keep_better", grid(n), THREADS, (n,))
    return steps


def _sweep_levels(
    add: Callable[..., int], forest: TreePlan | None, sweeps: list[list[Sweep]],
    before: tuple[int, ...], round_: int, taken: int, groups: int,
) -> tuple[tuple[int, ...], int]:  # fmt: skip
    """Up and down the tree: the forest, the levels above it, the forest.

    Launches through the forest share a counter of tickets, of which ``taken`` are gone; each of a launch's blocks takes one
    ticket more than there are. Returns the last steps, and what is taken then.
    """
    active = "active" if round_ else None
    if forest is None:
        lists: dict[str, str | None] = {"row_lists": None, "row_list_sources": None}
    else:
        lists = {}
    ways = [] if forest is None else [(0, forest.up, 1), (forest.up, forest.down, 0)]
    made = []
    for begin, count, forward in ways:
        blocks = _tree_blocks(count, groups)
        made.append((blocks, (begin, count, taken, round_, forward, forest.cells if forest else 0)))
        taken += count + blocks
    if made:
        before = (
            add("sweep_forest", made[0][0], TREE_THREADS, made[0][1], -1, before, TREE_BYTES, active=active),
        )
    for level in filter(None, sweeps):
        before = tuple(
            add(kernel, count, threads, (), first, before, active=active, **lists)
            for kernel, threads, first, count in level
        )
    if made:
        before = (
            add("sweep_forest", made[1][0], TREE_THREADS, made[1][1], -1, before, TREE_BYTES, active=active),
        )
    return before, taken


def _tree_blocks(tickets: int, groups: int) -> int:
    """Blocks of a launch through a tree for each group of right-hand sides: groups run side by side, not in turn."""
    return min(tickets, max(LEAST_TREE_BLOCKS, TREE_BLOCKS // groups))


def _tree_steps(
    plan: GpuPlan, tree: TreePlan, dtype: str, rhs: int, counts: tuple[int, int], exponents: str | None,
    goals: tuple[float, float],
) -> list[Step]:  # fmt: skip
    """A solve as one launch behind one that clears its cells."""
    refinements, rounds = counts[0], max(counts)
    parts = min(-(-plan.n // TREE_RESIDUAL_ROWS), TREE_PARTS) if refinements else 0
    words, groups = STATE * rhs, row_groups(rhs)
    start = clear_cells(tree, words, groups)
    tickets = (tree.up + tree.down) * (rounds + 1 if parts else 1)
    rename = {"exponents": exponents, "summary": None if plan.pivoting else "summary"}
    numbers = (tree.up, tree.down, parts, refinements, rounds if parts else 0, tree.cells, *goals)
    solve = Step(
        "solve_tree", KERNELS["solve_tree"].expression(dtype, rhs=rhs), _tree_blocks(tickets, groups), TREE_THREADS,
        TREE_BYTES, -1, numbers, rename, (0,), groups,
    )  # fmt: skip
    return [start, solve]
