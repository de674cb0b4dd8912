"""Assembly lists of the fronts that one team holds in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError
from warpfront.sparse.gpu.records import GATHER
from warpfront.sparse.plan import FrontPlan

__all__ = ["gather_lists"]


def gather_lists(
    plan: FrontPlan, rows: NDArray[Any], wide: NDArray[Any], below_ptr: NDArray[Any], maps: NDArray[Any], block: NDArray[Any],
    general: bool = False,
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

    short, total = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
    tree = kernels.Tree(
        rows, wide, plan.a_ptr, plan.a_row, plan.a_col, plan.a_slot, plan.child_ptr, plan.child_ind, below_ptr, maps,
        np.ascontiguousarray(block), general,
    )  # fmt: skip
    kernels.chunks(tree, short, total)
    ends = np.cumsum(total)
    first, chunks = ends - total, int(ends[-1]) if ends.size else 0
    gathers = np.zeros(rows.size, GATHER)
    sources = np.full(chunks * kernels.CHUNK_WORDS, kernels.NOTHING, np.int32)
    places = np.full(chunks * kernels.CHUNK_WORDS, kernels.NOWHERE, np.uint16)
    base = np.zeros(rows.size, np.int64)
    largest = kernels.fill(tree, first, first + short, base, sources, places)
    if max(largest, chunks, int(plan.a_slot.max(initial=0))) >= 2**31 - 4:
        raise NotSupportedError("the sources of a front are further apart than 32 bits number")
    gathers["base"], gathers["first"], gathers["longs"], gathers["last"] = (
        base,
        first,
        first + short,
        first + total,
    )
    return gathers, sources, places
