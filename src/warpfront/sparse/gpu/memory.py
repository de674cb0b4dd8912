"""Every buffer of the GPU solver: its type, its length, and what it counts as in the memory estimates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.gpu.kernels import MOST_TOGETHER
from warpfront.sparse.gpu.schedule import STATS, GpuPlan
from warpfront.sparse.gpu.steps import SCALING_SWEEPS, STATE, Tables

__all__ = ["SLOTS", "Need", "estimates", "needs", "solve_bytes", "solve_needs", "uploads"]

FACTOR, BLOCKS, PLAN, SOLVE = "factor", "contribution_blocks", "plan", "solve"
ROOM = 8  # right-hand sides a factor has room for from the beginning
SLOTS = 16


class Need(NamedTuple):
    """One buffer: element type, elements, kind."""

    dtype: np.dtype[Any]
    size: int
    kind: str

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.dtype.itemsize * self.size


def uploads(plan: GpuPlan, tables: Tables, items: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Arrays that are copied to the device once, by buffer name; none is empty."""
    n = plan.n
    arrays = {
        "items": plan.items, "fronts": plan.fronts, "children": plan.children, "entries": plan.entries,
        "gathers": plan.gathers, "sources": plan.sources, "places": plan.places,
        "maps": plan.maps, "below_ind": plan.below_ind, "solve_items": items,
        "gather_ptr": tables.gather_ptr, "gather_ind": tables.gather_ind, "slot_row": tables.slot_row,
        "slot_col": tables.slot_col, "row_ptr": tables.row_ptr, "row_col": tables.row_col, "row_slot": tables.row_slot,
        "perm": tables.perm, "zeros": np.zeros(n, np.int32),
        "sizes": np.array([n, plan.below_ind.size], np.int64), "shape": np.array([n, 1, n], np.int64),
    }  # fmt: skip
    if plan.tree is not None:
        arrays |= {"tickets": plan.tree.tickets, "tree_items": plan.tree.items}
    rows = plan.tree or plan.forest
    if rows is not None:
        arrays |= {"row_lists": rows.lists, "row_list_sources": rows.sources}
    if plan.forest is not None:
        arrays |= {"forest_tickets": plan.forest.tickets, "forest_items": plan.forest.items}
    return {k: np.ascontiguousarray(a) if a.size else np.zeros(1, a.dtype) for k, a in arrays.items()}


def needs(plan: GpuPlan, nnz: int, entries: int, dtype: np.dtype[Any]) -> dict[str, Need]:
    """Buffers the device writes, by name. Flags are zeroed once; nothing else needs a first value."""
    n = plan.n
    value, i4, f8 = np.dtype(dtype), np.dtype(np.int32), np.dtype(np.float64)
    table = {
        "source": (value, entries, PLAN), "original": (value, nnz, PLAN), "values": (value, nnz, PLAN),
        "rule": (value, 8, PLAN), "panels": (value, plan.panel_words, FACTOR),
        "blocks": (value, plan.block_words, BLOCKS), "diagonal": (value, 2 * n, FACTOR),
        "pivots": (i4, 2 * n, FACTOR), "stats": (i4, STATS * plan.stat_rows, PLAN),
        "block_flags": (i4, 4 * plan.work_words, PLAN), "flags": (i4, plan.flag_words, PLAN),
        "active": (i4, 4, SOLVE), "summary": (i4, 16, PLAN), "scalars": (f8, 8, PLAN),
        "sums": (f8, n, PLAN), "exponents": (i4, n, PLAN),
    }  # fmt: skip
    for k in range(SCALING_SWEEPS - 1):
        table[f"exponents_{k}"] = (i4, n, PLAN)
    made = {name: Need(kind, max(int(size), 4), what) for name, (kind, size, what) in table.items()}
    return {**made, **solve_needs(plan, dtype, ROOM)}


def solve_needs(plan: GpuPlan, dtype: np.dtype[Any], rhs: int) -> dict[str, Need]:
    """Those whose length depends on how many right-hand sides are solved for at once."""
    value, i4 = np.dtype(dtype), np.dtype(np.int32)
    names = ("x", "z", "b", "best", "candidate", "residual")
    table: dict[str, tuple[np.dtype[Any], int]] = {name: (value, rhs * plan.n) for name in names}
    table["upd"] = (value, rhs * plan.below_ind.size)
    table["state"] = (np.dtype(np.float64), rhs * STATE)
    table["solve_flags"] = (i4, plan.flag_words * max(1, rhs // 8))
    trees = (getattr(plan, "tree", None), plan.forest)  # an LU's plan has no whole solve in one launch
    cells = [made.cells for made in trees if made is not None]
    if cells:
        table["cells"] = (i4, max(cells) * -(-rhs // MOST_TOGETHER))
    return {name: Need(kind, max(int(size), 4), SOLVE) for name, (kind, size) in table.items()}


def solve_bytes(plan: GpuPlan, dtype: np.dtype[Any], rhs: int) -> int:
    """Bytes of those buffers."""
    return sum(need.nbytes for need in solve_needs(plan, dtype, rhs).values())


def estimates(
    uploaded: dict[str, NDArray[Any]], written: dict[str, Need], host_bytes: int
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Bytes by name, and cuDSS's 16 slots.

    0 permanent device, 1 peak device, 2 permanent host, 3 peak host, 4 least device memory; 12 private contribution
    blocks, 13 the other plan buffers; both are part of 0, 1 and 4. The rest is 0.
    """
    total = {
        kind: sum(n.nbytes for n in written.values() if n.kind == kind)
        for kind in (FACTOR, BLOCKS, PLAN, SOLVE)
    }
    total[PLAN] += sum(int(a.nbytes) for a in uploaded.values())
    device = sum(total.values())
    slots = [0] * SLOTS
    slots[0] = slots[1] = slots[4] = device
    slots[2] = slots[3] = host_bytes
    slots[12], slots[13] = total[BLOCKS], total[PLAN]
    return {**total, "total": device}, tuple(slots)
