"""The factorisation as a sequence of launches: values to factor and summary. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.gpu.inverses import Inversion, invert_steps
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.schedule import GpuPlan, front_bytes
from warpfront.sparse.gpu.step import (
    ROW_LANES,
    SCALING_SWEEPS,
    THREADS,
    TREE_BLOCKS,
    TREE_THREADS,
    TREE_WARPS,
    Step,
    clear_cells,
    grid,
)
from warpfront.sparse.gpu.tree import TreePlan

__all__ = ["Tables", "Tolerances", "factor_steps", "make_tables"]


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
    from warpfront.sparse.gpu import _schedule_kernels as kernels

    gather_ptr, gather_ind = kernels.entries_of_slots(pattern.value_map, pattern.nnz)
    row_ptr, row_col, row_slot = kernels.rows_of_triangle(pattern.ptr, pattern.ind)
    return Tables(
        gather_ptr, gather_ind, pattern.ind.astype(np.int32), pattern.col, row_ptr, row_col, row_slot,
        np.ascontiguousarray(perm, np.int32),
    )  # fmt: skip


def factor_steps(
    plan: GpuPlan, nnz: int, dtype: str, tolerances: Tolerances, *, scaled: bool, gather: bool = True,
    inversions: tuple[Inversion, ...] = (),
) -> list[Step]:  # fmt: skip
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
    inversions : tuple of Inversion, optional
        From `inverses.invert_items`.
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
        add("gather_values", grid(nnz), THREADS, (nnz,))
    exponents: str | None = None
    if scaled:
        names = ["zeros", *(f"exponents_{k}" for k in range(SCALING_SWEEPS - 1)), "exponents"]
        for old, new in pairwise(names):
            add("sweep_exponents", grid(n * ROW_LANES), THREADS, (n,), exponents_a=old, exponents_b=new)
        exponents = "exponents"
    values = "values" if scaled or plan.pivoting else "original"
    if values == "values":
        add("scale_values", grid(nnz), THREADS, (nnz,), exponents=exponents)
    if plan.pivoting:
        t = tolerances
        add("set_rule", 1, 32, (t.threshold, t.zero, t.doubt, t.epsilon))
    ready = len(steps) - 1
    # The row sums matter to the refinement only: nothing but the end waits for them.
    add("row_sums", grid(n * ROW_LANES), THREADS, (n,))
    steps += _eliminations(plan, dtype, values, ready, len(steps))
    steps += invert_steps(plan, inversions, dtype, len(steps) - len(plan.launches), len(steps))
    followed = {k for step in steps for k in step.after}
    last = [k for k in range(len(steps)) if k not in followed]
    steps.append(
        Step(
            "collect",
            "collect",
            grid(plan.stat_rows),
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
    clear = [clear_cells(plan.forest, 0)] if plan.forest is not None and in_one else []
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


def _forest_step(
    forest: TreePlan, expression: str, itemsize: int, rename: dict[str, str | None], after: tuple[int, ...]
) -> Step:
    shared = max(front_bytes(forest.most_rows, itemsize), TREE_WARPS * front_bytes(32, itemsize))
    blocks = min(forest.up, TREE_BLOCKS // 2)
    return Step("factor_tree", expression, blocks, TREE_THREADS, shared, -1, (forest.up,), rename, after)
