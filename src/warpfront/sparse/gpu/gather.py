"""Assembly lists of the fronts that one team holds in shared memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings
from warpfront.backend.cpu import run_jobs
from warpfront.errors import NotSupportedError
from warpfront.sparse.gpu.records import GATHER
from warpfront.sparse.plan import FrontPlan

__all__ = ["gather_lists"]

PART_ELEMENTS = 500_000  # elements of fronts from which another thread is worth its start


def gather_lists(
    plan: FrontPlan, rows: NDArray[Any], wide: NDArray[Any], below_ptr: NDArray[Any], maps: NDArray[Any],
    block: NDArray[Any], general: bool = False,
) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.uint16]]:  # fmt: skip
    """Lists by which the small fronts are assembled (``gather.cuh``).

    Parameters
    ----------
    plan : FrontPlan
    rows : int64[fronts]
    wide : bool[fronts]
        Fronts that are assembled otherwise.
    below_ptr, maps : int64[fronts + 1], int32
        Places of each front's rows below in its parent.
    block : int64[fronts]
        Places of the contribution blocks.
    general : bool
        Fronts and contribution blocks have two halves (``lu_front.cuh``).

    Returns
    -------
    gathers : record array[fronts]
    sources, places : int32, uint16
        256 a chunk.

    Raises
    ------
    NotSupportedError
        A front's children lie more than 2^31 words apart.
    """
    from warpfront.sparse.gpu import _gather_kernels as kernels

    short, total = np.zeros((rows.size, kernels.LONG), np.int64), np.zeros(rows.size, np.int64)
    tree = kernels.Tree(
        rows, wide, plan.a_ptr, plan.a_row, plan.a_col, plan.a_slot, plan.child_ptr, plan.child_ind, below_ptr, maps,
        np.ascontiguousarray(block), general,
    )  # fmt: skip
    parts, threads = _parts(rows, wide)
    run_jobs(threads, [partial(kernels.chunks, tree, *part, short, total) for part in parts])
    ends = np.cumsum(total)
    first, count = ends - total, int(ends[-1]) if ends.size else 0
    gathers = np.zeros(rows.size, GATHER)
    sources = np.empty(count * kernels.CHUNK_WORDS, np.int32)
    places = np.empty(count * kernels.CHUNK_WORDS, np.uint16)
    base, largest = np.zeros(rows.size, np.int64), [count, int(plan.a_slot.max(initial=0))]

    def fill(begin: int, end: int) -> None:
        largest.append(int(kernels.fill(tree, begin, end, first, short, total, base, sources, places)))

    run_jobs(threads, [partial(fill, *part) for part in parts])
    if max(largest) >= 2**31 - 4:
        raise NotSupportedError("the sources of a front are further apart than 32 bits number")
    gathers["base"], gathers["first"], gathers["longs"], gathers["last"] = (
        base,
        first,
        first + short.sum(axis=1),
        ends,
    )
    return gathers, sources, places


def _parts(rows: NDArray[Any], wide: NDArray[Any]) -> tuple[list[tuple[int, int]], int]:
    """Fronts in pieces of about equal work, a few for each thread; small work stays on this one."""
    work = np.cumsum(np.where(wide, 0, rows * rows))
    total = int(work[-1]) if rows.size else 0
    threads = min(settings.threads(), 1 + total // PART_ELEMENTS)
    if threads == 1:
        return [(0, rows.size)], 1
    pieces = 4 * threads
    cuts = np.searchsorted(work, np.arange(1, pieces) * (total / pieces)).tolist()
    return list(zip([0, *cuts], [*cuts, rows.size], strict=True)), threads
