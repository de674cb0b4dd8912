"""Sequences of launches: a factorisation, a solve with refinement. Pure; device and SIMT runner take the same lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.schedule import ITEM, PANEL, GpuPlan, front_bytes
from warpfront.sparse.gpu.tree import TreePlan

__all__ = ["Step", "Tables", "Tolerances", "factor_steps", "make_tables", "solve_items", "solve_steps"]

THREADS, ROW_LANES = 256, 8
SWEEP_THREADS = 128
# one launch for the whole solve: its blocks, parts of the residual, shared memory (tree_sweeps.cuh: kTreeWords)
TREE_WARPS, TREE_THREADS, TREE_BLOCKS, TREE_PARTS, TREE_RESIDUAL_ROWS, TREE_BYTES = (
    4,
    128,
    528,
    264,
    16,
    8 * 32 * 162,
)
FEW = 1024  # small fronts of a level that one launch takes, whatever their rows
SCALING_SWEEPS = 3
STATE = 16


@dataclass(frozen=True)
class Step:
    """One launch.

    Attributes
    ----------
    kernel : str
        Key of `KERNELS`.
    expression : str
    blocks, threads, shared_bytes : int
    items : int
        First item; -1 where the kernel has none.
    numbers : tuple
        Arguments behind the buffers.
    rename : dict
        Argument name -> buffer name, where they differ; ``None`` is a null pointer.
    after : tuple of int
        Steps of the same sequence that come before.
    """

    kernel: str
    expression: str
    blocks: int
    threads: int
    shared_bytes: int = 0
    items: int = -1
    numbers: tuple[float, ...] = ()
    rename: dict[str, str | None] = field(default_factory=dict)
    after: tuple[int, ...] = ()

    def buffers(self) -> list[str | None]:
        """Buffer behind each pointer argument."""
        return [self.rename.get(name, name) for name in KERNELS[self.kernel].arguments]


@dataclass(frozen=True)
class Tolerances:
    """Pivot rule, relative to the largest scaled entry (`numeric.factorize.FactorOptions`)."""

    threshold: float = 0.01
    zero: float = 1e-13
    doubt: float = 1e-11
    epsilon: float = 1e-8


@dataclass(frozen=True, eq=False)
class Tables:
    """Index arrays around the factorisation.

    Attributes
    ----------
    gather_ptr, gather_ind : int64
        Caller's entries that make up each canonical slot, in the caller's order.
    slot_row, slot_col : int32[nnz]
    row_ptr, row_col, row_slot : int64[n+1], int32, int64
        Both triangles by rows, caller's numbering.
    perm : int32[n]
    """

    gather_ptr: NDArray[np.int64]
    gather_ind: NDArray[np.int64]
    slot_row: NDArray[np.int32]
    slot_col: NDArray[np.int32]
    row_ptr: NDArray[np.int64]
    row_col: NDArray[np.int32]
    row_slot: NDArray[np.int64]
    perm: NDArray[np.int32]


def make_tables(pattern: Canonical, perm: NDArray[np.int32]) -> Tables:
    """Build the tables of a lower triangle."""
    n, nnz = pattern.n_cols, pattern.nnz
    used = np.flatnonzero(pattern.value_map >= 0)
    slots = pattern.value_map[used]
    gather_ind = used[np.argsort(slots, kind="stable")].astype(np.int64)
    gather_ptr = np.concatenate([[0], np.cumsum(np.bincount(slots, minlength=nnz))]).astype(np.int64)
    row = pattern.ind.astype(np.int32)
    col = np.repeat(np.arange(n, dtype=np.int32), np.diff(pattern.ptr))
    slot = np.arange(nnz, dtype=np.int64)
    off = row != col
    rows, cols = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
    both = np.concatenate([slot, slot[off]])
    order = np.lexsort((cols, rows))
    row_ptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
    return Tables(
        gather_ptr, gather_ind, row, col, row_ptr, cols[order].astype(np.int32), both[order],
        np.ascontiguousarray(perm, np.int32),
    )  # fmt: skip


def _grid(count: int) -> int:
    return max(1, -(-count // THREADS))


def factor_steps(
    plan: GpuPlan, nnz: int, dtype: str, tolerances: Tolerances, *, scaled: bool, gather: bool = True
) -> list[Step]:
    """Values in the caller's order (buffer ``source``) to factor and summary.

    Parameters
    ----------
    plan : GpuPlan
    nnz : int
        Canonical slots.
    dtype : str
    tolerances : Tolerances
    scaled : bool
        Equilibrate on the device; the exponents end in ``exponents``.
    gather : bool
        False: the canonical values are in ``original`` already.
    """
    n = plan.n
    steps: list[Step] = []

    def add(
        name: str, blocks: int, threads: int, numbers: tuple[float, ...] = (), **rename: str | None
    ) -> None:
        after = (len(steps) - 1,) if steps else ()
        expression = KERNELS[name].expression(dtype)
        steps.append(Step(name, expression, blocks, threads, 0, -1, numbers, dict(rename), after))

    add("start_factor", 1, 32)
    if gather:
        add("gather_values", _grid(nnz), THREADS, (nnz,))
    exponents: str | None = None
    if scaled:
        names = ["zeros", *(f"exponents_{k}" for k in range(SCALING_SWEEPS - 1)), "exponents"]
        for old, new in pairwise(names):
            add("sweep_exponents", _grid(n * ROW_LANES), THREADS, (n,), exponents_a=old, exponents_b=new)
        exponents = "exponents"
    values = "values" if scaled or plan.pivoting else "original"
    if values == "values":
        add("scale_values", _grid(nnz), THREADS, (nnz,), exponents=exponents)
    if plan.pivoting:
        t = tolerances
        add("set_rule", 1, 32, (t.threshold, t.zero, t.doubt, t.epsilon))
    ready = len(steps) - 1
    # The row sums matter to the refinement only: nothing but the end waits for them.
    add("row_sums", _grid(n * ROW_LANES), THREADS, (n,))
    steps += _eliminations(plan, dtype, values, ready, len(steps))
    followed = {k for step in steps for k in step.after}
    last = [k for k in range(len(steps)) if k not in followed]
    steps.append(
        Step(
            "collect",
            "collect",
            _grid(plan.stat_rows),
            THREADS,
            0,
            -1,
            (plan.stat_rows,),
            {},
            tuple(last),
        )
    )
    return steps


def _eliminations(plan: GpuPlan, dtype: str, values: str, ready: int, base: int) -> list[Step]:
    """The fronts, behind step ``ready``. ``base``: number of the first step."""
    rename: dict[str, str | None] = {"values": values}
    in_one = plan.forest is not None and bool(plan.launches) and plan.launches[0].kernel == "factor_tree"
    clear = [_clear_cells(plan.forest, 0)] if plan.forest is not None and in_one else []
    steps = list(clear)
    for x in plan.launches:
        after = tuple(base + len(clear) + k for k in x.after) or (ready,)
        expression = KERNELS[x.kernel].expression(dtype, x.threads, plan.pivoting)
        if x.kernel == "factor_tree" and plan.forest is not None:
            steps.append(
                _forest_step(plan.forest, expression, np.dtype(dtype).itemsize, rename, (*after, base))
            )
        else:
            steps.append(
                Step(x.kernel, expression, x.blocks, x.threads, x.shared_bytes, x.items, (), rename, after)
            )
    return steps


def _clear_cells(tree: TreePlan, words: int) -> Step:
    return Step(
        "start_tree", "start_tree", _grid(max(tree.cells, words)), THREADS, 0, -1, (tree.cells, words)
    )


def _forest_step(
    forest: TreePlan, expression: str, itemsize: int, rename: dict[str, str | None], after: tuple[int, ...]
) -> Step:
    shared = max(front_bytes(forest.most_rows, itemsize), TREE_WARPS * front_bytes(32, itemsize))
    blocks = min(forest.up, TREE_BLOCKS // 2)
    return Step("factor_tree", expression, blocks, TREE_THREADS, shared, -1, (forest.up,), rename, after)


def solve_items(plan: GpuPlan) -> tuple[NDArray[np.void], list[list[tuple[str, int, int, int]]]]:
    """Items of the forward sweep, level by level: (kernel, threads, first item, count); then those of the backward.

    What the plan's forest holds is left out: `solve_steps` has a launch for it.
    """
    rows, width = plan.fronts["rows"], plan.fronts["width"]
    takes_part = (plan.root < 0) | (plan.root == np.arange(plan.root.size))
    forest = getattr(plan, "forest", None)  # an LU's plan has none
    if forest is not None and plan.tree is None:
        takes_part &= ~forest.member
    items: list[tuple[int, ...]] = []
    levels: list[list[tuple[str, int, int, int]]] = []
    back: list[list[tuple[str, int, int, int]]] = []

    def put(
        into: list[tuple[str, int, int, int]], kernel: str, threads: int, group: list[tuple[int, ...]]
    ) -> None:
        if group:
            into.append((kernel, threads, len(items), len(group)))
            items.extend(group)

    order = np.lexsort((-plan.flops, plan.level))
    order = order[takes_part[order]]
    for level in range(int(plan.level.max(initial=-1)) + 1):
        here = order[plan.level[order] == level]
        small, wide = here[~plan.wide[here]], here[plan.wide[here]].tolist()
        forward: list[tuple[str, int, int, int]] = []
        backward: list[tuple[str, int, int, int]] = []
        warps, teams = small[rows[small] <= 32], small[rows[small] > 32]
        if teams.size and small.size <= FEW:  # one launch fewer to wait for
            warps, teams = small[:0], small
        for threads, group in ((32, warps), (SWEEP_THREADS, teams)):
            ranges: list[tuple[int, ...]] = [
                (int(plan.first[s]) if plan.root[s] >= 0 else s, s, 0, 0, 0, 0, 0, 0) for s in group.tolist()
            ]
            put(forward, "forward", threads, ranges)
            put(backward, "backward", threads, ranges)
        strips = [
            (i, (s, 0, i * PANEL, 0, 0, 0, 0, i)) for s in wide for i in range(-(-int(rows[s]) // PANEL))
        ]
        put(forward, "forward_wide", SWEEP_THREADS, [item for _, item in sorted(strips)])
        strips = []
        for s in wide:
            count = -(-int(width[s]) // PANEL)
            strips += [(count - i, (s, 0, i * PANEL, 0, 0, 0, 0, i)) for i in range(count)]
        put(backward, "backward_wide", SWEEP_THREADS, [item for _, item in sorted(strips)])
        levels.append(forward)
        back.append(backward)
    made = np.array(items or [(0,) * 8], np.int32).reshape(-1, 8).view(ITEM).reshape(-1)
    return made, [*levels, *back[::-1]]


def solve_steps(
    plan: GpuPlan, sweeps: list[list[tuple[str, int, int, int]]], dtype: str, rhs: int, refinements: int, *,
    scaled: bool, target: float, rounds: int = 0, limit: float = 0.0,
) -> list[Step]:  # fmt: skip
    """Right-hand sides in ``b`` (rhs x n) to solutions in ``best``; state of the refinement in ``state``.

    Parameters
    ----------
    plan : GpuPlan
    sweeps : list
        From `solve_items`.
    dtype : str
    rhs : {1, 4}
    refinements : int
        Steps at most; 0: no residual is computed.
    scaled : bool
    target : float
        Componentwise backward error at which refinement stops.
    rounds, limit : optional
        Where all fronts are small: steps made while the error is above ``limit``, if more than ``refinements``.
    """
    n = plan.n
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
        steps.append(Step(name, expression, blocks, threads, shared, items, numbers, dict(rename), before))
        return len(steps) - 1

    forest, taken = getattr(plan, "forest", None), 0
    add("start_solve", 1, 128, (rhs,))
    if forest is not None:
        add("start_tree", _grid(forest.cells), THREADS, (forest.cells, 0))
    for round_ in range(refinements + 1):
        active = "active" if round_ else None
        source, base, out = ("residual", "best", "candidate") if round_ else ("b", None, "best")
        before: tuple[int, ...] = (
            add("permute_in", _grid(n), THREADS, (n, 1, n), exponents=exponents, b=source, active=active),
        )
        before, taken = _sweep_levels(add, forest, sweeps, before, round_, taken)
        add(
            "permute_out", _grid(n), THREADS, (n,), after=before, exponents=exponents, base=base, out=out,
            active=active, summary=None if plan.pivoting else "summary",
        )  # fmt: skip
        if refinements:
            add("measure", _grid(n * ROW_LANES), THREADS, b="b", out=out, active=active)
            add("judge", 1, 32, (rhs, round_, target))
            if round_:
                add("keep_better", _grid(n), THREADS, (n,))
    return steps


def _sweep_levels(
    add: Callable[..., int], forest: TreePlan | None, sweeps: list[list[tuple[str, int, int, int]]],
    before: tuple[int, ...], round_: int, taken: int,
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
        blocks = min(count, TREE_BLOCKS)
        made.append((blocks, (begin, count, taken, round_, forward)))
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


def _tree_steps(
    plan: GpuPlan, tree: TreePlan, dtype: str, rhs: int, counts: tuple[int, int], exponents: str | None,
    goals: tuple[float, float],
) -> list[Step]:  # fmt: skip
    """A solve as one launch behind one that clears its cells."""
    refinements, rounds = counts[0], max(counts)
    parts = min(-(-plan.n // TREE_RESIDUAL_ROWS), TREE_PARTS) if refinements else 0
    words = STATE * rhs
    start = _clear_cells(tree, words)
    tickets = (tree.up + tree.down) * (rounds + 1 if parts else 1)
    rename = {"exponents": exponents, "summary": None if plan.pivoting else "summary"}
    numbers = (tree.up, tree.down, parts, refinements, rounds if parts else 0, *goals)
    solve = Step(
        "solve_tree", KERNELS["solve_tree"].expression(dtype, rhs=rhs), min(tickets, TREE_BLOCKS), TREE_THREADS,
        TREE_BYTES, -1, numbers, rename, (0,),
    )  # fmt: skip
    return [start, solve]
