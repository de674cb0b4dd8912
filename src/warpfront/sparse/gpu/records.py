"""Records of the plan, as ``front.cuh``, ``gather.cuh`` and ``tree_sweeps.cuh`` declare them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["CHILD", "ENTRY", "FRONT", "GATHER", "ITEM", "ROW_LIST", "Device", "Launch"]

FRONT = np.dtype(
    [("panel", "i8"), ("block", "i8"), ("first", "i8"), ("entry0", "i8"), ("entry1", "i8"), ("work", "i8"),
     ("map", "i8"), ("rows", "i4"), ("width", "i4"), ("ld", "i4"), ("child0", "i4"), ("child1", "i4"), ("flag", "i4"),
     ("stat", "i4"), ("unused", "i4")]
)  # fmt: skip
CHILD = np.dtype([("block", "i8"), ("map", "i8"), ("range", "i8"), ("below", "i4"), ("front", "i4")])
ENTRY = np.dtype([("slot", "i8"), ("row", "i4"), ("col", "i4")])
ITEM = np.dtype([(name, "i4") for name in ("front", "last", "row", "col", "end", "e0", "e1", "index")])
GATHER = np.dtype([("base", "i8"), ("first", "i4"), ("longs", "i4"), ("last", "i4"), ("unused", "i4")])
ROW_LIST = np.dtype([("at", "i8"), ("depth", "i4"), ("unused", "i4")])


@dataclass(frozen=True)
class Device:
    """What of a device decides the plan.

    Attributes
    ----------
    shared_bytes : int
        Shared memory a block can opt in to.
    sms : int
        Multiprocessors.
    """

    shared_bytes: int = 232448
    sms: int = 132


@dataclass(frozen=True)
class Launch:
    """One kernel launch of the factorisation.

    Attributes
    ----------
    kernel : {"factor_tree", "fronts", "assemble", "strips", "update", "contribution", "order"}
    threads, blocks, shared_bytes : int
    items : int
        First of its items; there is one a block. The plan's forest is one launch, with tickets instead.
    after : tuple of int
        Launches it waits for.
    level : int
    """

    kernel: str
    threads: int
    blocks: int
    shared_bytes: int
    items: int
    after: tuple[int, ...]
    level: int
