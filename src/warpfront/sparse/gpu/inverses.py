"""Inverses of the wide fronts' larger diagonal blocks, by doubling (``invert.cu``), beside the factorisation. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.schedule import ITEM, PANEL, GpuPlan
from warpfront.sparse.gpu.step import INVERT_THREADS, Step

__all__ = ["SPAN", "Inversion", "invert_items", "invert_steps"]

SPAN = 8  # panels of 32 columns with a common inverse: a power of two, at most 8


class Inversion(NamedTuple):
    """One launch: the corners of all blocks of one order on one level of the tree."""

    level: int
    first: int
    blocks: int


def invert_items(plan: GpuPlan, span: int, base: int) -> tuple[NDArray[Any], tuple[Inversion, ...]]:
    """Items that double inverses from 32 to ``32 * span`` columns, numbered from ``base`` on, and their launches.

    Parameters
    ----------
    plan : GpuPlan
    span : int
        Panels with a common inverse; 1: nothing to do.
    base : int

    Returns
    -------
    items : record array
        front, row (first of the pair), col (first of 32 columns), end (of the pair), e0 (order of its first half).
    inversions : tuple of Inversion
        Level by level, small orders first.
    """
    items: list[tuple[int, ...]] = []
    made: list[Inversion] = []
    width = plan.fronts["width"]
    for level in range(int(plan.level.max(initial=-1)) + 1):
        fronts = np.flatnonzero(plan.wide & (plan.level == level)).tolist()
        order = PANEL
        while order < PANEL * span:
            here = [
                (s, 0, row, row + col, min(int(width[s]), row + 2 * order), order, 0, 0)
                for s in fronts
                for row in range(0, int(width[s]) - order, 2 * order)
                for col in range(0, order, PANEL)
            ]
            if here:
                made.append(Inversion(level, base + len(items), len(here)))
                items += here
            order *= 2
    packed = np.array(items, np.int32).reshape(-1, 8).view(ITEM).reshape(-1)
    return packed, tuple(made)


def invert_steps(
    plan: GpuPlan, inversions: tuple[Inversion, ...], dtype: str, launches: int, begin: int, fronts: str = "fronts"
) -> list[Step]:  # fmt: skip
    """Launches that follow a level's strips and interchanges; nothing but the end of the factorisation waits for them.

    Parameters
    ----------
    plan : GpuPlan
    inversions : tuple of Inversion
    dtype : str
    launches : int
        Number of the step that is the plan's first launch.
    begin : int
        Number of the first step made here.
    fronts : str, optional
        Records that say where the panels are: an LU has two halves.
    """
    ready: dict[int, list[int]] = {}
    for k, launch in enumerate(plan.launches):
        if launch.kernel in ("strips", "lu_strips", "order"):
            ready.setdefault(launch.level, []).append(launches + k)
    last: dict[int, int] = {}
    steps: list[Step] = []
    expression = KERNELS["invert"].expression(dtype)
    for level, first, blocks in inversions:
        after = (last[level],) if level in last else tuple(ready[level])
        last[level] = begin + len(steps)
        names: dict[str, str | None] = {"items": "solve_items", "fronts": fronts}
        steps.append(Step("invert", expression, blocks, INVERT_THREADS, 0, first, (), names, after))
    return steps
