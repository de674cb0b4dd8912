"""Updates of wide fronts cut in two, so that what others wait for comes first. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.gpu.records import Launch
from warpfront.sparse.gpu.schedule import GpuPlan

__all__ = ["look_ahead"]


def look_ahead(plan: GpuPlan) -> GpuPlan:
    """Cut each update behind a chunk in two: the next chunk's columns, and the rest.

    The next chunk's strips wait for the former only and run beside the latter, which waits for the rest before it: an
    element takes its updates in the same order as before, so the factor has the same bits.

    Parameters
    ----------
    plan : GpuPlan

    Returns
    -------
    GpuPlan
        With launches ``update_rest`` besides ``update``.
    """
    items: list[NDArray[Any]] = [plan.items]
    count = plan.items.size
    launches: list[Launch] = []
    moved: list[int] = []  # where a launch of the plan went: what waits for it waits for that
    rest_of: dict[int, int] = {}
    for launch in plan.launches:
        after = {moved[k] for k in launch.after}
        cut = _cut(plan, launch) if launch.kernel == "update" else None
        if launch.kernel == "update" and launch.level in rest_of:
            after |= {rest_of[launch.level]}
        made = replace(launch, after=tuple(sorted(after)))
        if cut is not None:
            items.append(np.concatenate(cut))
            made = replace(made, items=count, blocks=cut[0].size)
            launches.append(made)
            moved.append(len(launches) - 1)
            rest_of[launch.level] = len(launches)
            launches.append(
                replace(made, kernel="update_rest", items=count + cut[0].size, blocks=cut[1].size)
            )
            count += cut[0].size + cut[1].size
        else:
            launches.append(made)
            moved.append(len(launches) - 1)
    return replace(plan, items=np.concatenate(items), launches=tuple(launches))


def _cut(plan: GpuPlan, launch: Launch) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Items of the next chunk's columns and the others; None where one of them is empty."""
    here = plan.items[launch.items : launch.items + launch.blocks]
    near = here["col"] < 2 * here["e1"] - here["e0"]
    return (here[near], here[~near]) if near.any() and not near.all() else None
