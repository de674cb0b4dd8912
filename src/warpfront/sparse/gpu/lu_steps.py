"""Sequences of launches for a general matrix: tables, buffers, factorisation, solves with A and its transpose. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu import steps
from warpfront.sparse.gpu.inverses import Inversion, invert_steps
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.lu_schedule import LuPlan, tree_bytes, upper_fronts
from warpfront.sparse.gpu.memory import BLOCKS, FACTOR, PLAN, ROOM, SOLVE, Need, solve_needs
from warpfront.sparse.gpu.schedule import STATS
from warpfront.sparse.gpu.step import THREADS, TREE_BLOCKS, Step

__all__ = ["LuTolerances", "lu_factor_steps", "lu_needs", "lu_solve_steps", "lu_uploads"]

SWEEPS = 3  # of rows and columns, before the last one that raises (`equilibrate_matched`)
COLUMN_LANES = 8


@dataclass(frozen=True)
class LuTolerances:
    """Pivot rule, relative to the largest scaled entry, and when a matching still fits (`numeric.factorize_lu`)."""

    threshold: float = 0.1
    share: float = 0.5
    zero: float = 1e-14
    doubt: float = 1e-11
    epsilon: float = 1e-8
    weak: float = 1e-3
    range: float = 16.0


def _exponents(scale: NDArray[np.float64]) -> NDArray[np.int32]:
    return (np.frexp(scale)[1] - 1).astype(np.int32)


def lu_uploads(plan: LuPlan, symbolic: Symbolic, items: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Arrays that are copied to the device once, by buffer name; none is empty."""
    general, pattern = symbolic.general, symbolic.pattern
    assert general is not None
    n, nnz = plan.n, pattern.nnz
    used = np.flatnonzero(pattern.value_map >= 0)
    slots = pattern.value_map[used]
    row, order = pattern.ind.astype(np.int32), np.argsort(pattern.ind, kind="stable")
    col = np.repeat(np.arange(n, dtype=np.int32), np.diff(pattern.ptr))
    arrays = {
        "items": plan.items, "fronts": plan.fronts, "fronts_upper": upper_fronts(plan), "children": plan.children,
        "entries": plan.entries, "gathers": plan.gathers, "sources": plan.sources, "places": plan.places,
        "maps": plan.maps, "below_ind": plan.below_ind, "solve_items": items,
        "row_lists": plan.row_lists, "row_list_sources": plan.row_list_sources,
        "gather_ptr": _starts(np.bincount(slots, minlength=nnz)),
        "gather_ind": used[np.argsort(slots, kind="stable")].astype(np.int64),
        "slot_row": row, "slot_col": col, "row_ptr": _starts(np.bincount(row, minlength=n)), "row_col": col[order],
        "row_slot": order.astype(np.int64), "col_ptr": pattern.ptr.astype(np.int64),
        "col_slot": np.arange(nnz, dtype=np.int64), "perm": symbolic.perm.astype(np.int32),
        "rows": general.rows.astype(np.int32), "matched": general.matched.astype(np.int64),
        "matched_rows": _exponents(general.row_scale), "matched_cols": _exponents(general.col_scale),
        "zeros": np.zeros(n, np.int32), "sizes": np.array([n, plan.below_ind.size], np.int64),
        "shape": np.array([n, 1, n], np.int64),
    }  # fmt: skip
    if plan.forest is not None:
        arrays |= {"forest_tickets": plan.forest.tickets, "forest_items": plan.forest.items}
    return {k: np.ascontiguousarray(a) if a.size else np.zeros(1, a.dtype) for k, a in arrays.items()}


def _starts(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def lu_needs(plan: LuPlan, symbolic: Symbolic, dtype: Any) -> dict[str, Need]:
    """Buffers the device writes, by name; ``pivots`` holds those of the rows, then those of the columns."""
    n, nnz = plan.n, symbolic.pattern.nnz
    value, i4, f8 = np.dtype(dtype), np.dtype(np.int32), np.dtype(np.float64)
    table = {
        "source": (value, symbolic.pattern.value_map.size, PLAN), "original": (value, nnz, PLAN),
        "values": (value, nnz, PLAN), "rule": (value, 8, PLAN), "panels": (value, plan.panel_words, FACTOR),
        "blocks": (value, plan.block_words, BLOCKS), "diagonal": (value, 2 * n, FACTOR), "pivots": (i4, 4 * n, FACTOR),
        "stats": (i4, STATS * plan.stat_rows, PLAN), "work": (value, plan.work_words, PLAN),
        "flags": (i4, plan.flag_words, PLAN), "summary": (i4, 16, PLAN),
        "quality": (i4, 4, PLAN), "scalars": (f8, 8, PLAN), "scalars_t": (f8, 8, PLAN), "sums": (f8, n, PLAN),
        "sums_t": (f8, n, PLAN), "active": (i4, 4, SOLVE),
    }  # fmt: skip
    for name in (f"{side}_exponents{tail}" for side in ("row", "col") for tail in ("", "_0", "_1")):
        table[name] = (i4, n, PLAN)
    made = {name: Need(kind, max(int(size), 4), what) for name, (kind, size, what) in table.items()}
    return {**made, **solve_needs(cast(Any, plan), value, ROOM)}


class _Sequence:
    """Steps in the making; each waits for the one before unless told otherwise."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.steps = dtype, list[Step]()

    def add(
        self, name: str, blocks: int, numbers: tuple[float, ...] = (), after: tuple[int, ...] | None = None,
        threads: int = THREADS, **rename: str | None,
    ) -> int:  # fmt: skip
        before = ((len(self.steps) - 1,) if self.steps else ()) if after is None else after
        expression = KERNELS[name].expression(self.dtype)
        self.steps.append(Step(name, expression, blocks, threads, 0, -1, numbers, dict(rename), before))
        return len(self.steps) - 1


def _grid(count: int) -> int:
    return max(1, -(-count // THREADS))


def _scaling(made: _Sequence, n: int, t: LuTolerances) -> int:
    """Exponents of rows and columns; returns the step they are complete after."""
    judged = _grid(n * COLUMN_LANES)
    made.add(
        "lu_judge",
        judged,
        (n, 0, t.weak, t.range),
        row_exponents="matched_rows",
        col_exponents="matched_cols",
    )
    before: tuple[int, ...] = (len(made.steps) - 1,)
    line = {"col": ("col_ptr", "slot_row", None), "row": ("row_ptr", "row_col", "row_slot")}
    other = {"col": "row", "row": "col"}
    old = {"col": "zeros", "row": "zeros"}
    for k in range(SWEEPS):
        new = {side: f"{side}_exponents_{k % 2}" for side in line}
        before = tuple(
            made.add(
                "lu_sweep", _grid(n), (n, 0), before, ptr=ptr, ind=ind, slot=slot, mine=old[side],
                theirs=old[other[side]], to=new[side], matched_exponents=None,
            )
            for side, (ptr, ind, slot) in line.items()
        )  # fmt: skip
        old = new
    for side, (ptr, ind, slot) in line.items():
        theirs = old["row"] if side == "col" else "col_exponents"
        done = made.add(
            "lu_sweep", _grid(n), (n, 1), before, ptr=ptr, ind=ind, slot=slot, mine=old[side], theirs=theirs,
            to=f"{side}_exponents", matched_exponents=f"matched_{side}s",
        )  # fmt: skip
        before = (done,)
    return done


def lu_factor_steps(
    plan: LuPlan, nnz: int, dtype: str, tolerances: LuTolerances, *, scaling: str, gather: bool = True,
    inversions: tuple[Inversion, ...] = (),
) -> list[Step]:  # fmt: skip
    """Values in the caller's order (buffer ``source``) to factor and summary.

    Parameters
    ----------
    plan : LuPlan
    nnz : int
    dtype : str
    tolerances : LuTolerances
    scaling : {"auto", "none", "equilibrate"}
        By the matching while it fits the values, else equilibrated; none; always equilibrated.
    gather : bool
        False: the canonical values are in ``original`` already.
    inversions : tuple of Inversion, optional
        From `inverses.invert_items`; made in both halves.
    """
    n, t = plan.n, tolerances
    made = _Sequence(dtype)
    made.add("lu_start", 1, (int(scaling == "equilibrate"),), threads=32)
    if gather:
        made.add("gather_values", _grid(nnz), (nnz,))
    loaded = len(made.steps) - 1
    scaled = scaling != "none"
    scales = {side: f"{side}_exponents" if scaled else None for side in ("row", "col")}
    if scaled:
        _scaling(made, n, t)
    after = len(made.steps) - 1
    made.add("lu_scale", _grid(nnz), (nnz,), row_exponents=scales["row"], col_exponents=scales["col"])
    ready = made.add("lu_rule", 1, (t.threshold, t.share, t.zero, t.doubt, t.epsilon), threads=32)
    aside = [
        made.add("row_sums", _grid(n), (n,), (loaded,)),
        made.add(
            "row_sums", _grid(n), (n,), (loaded,), row_ptr="col_ptr", row_slot="col_slot", sums="sums_t", scalars="scalars_t"
        ),
    ]  # fmt: skip
    if scaled:
        aside.append(made.add("lu_judge", _grid(n * COLUMN_LANES), (n, 1, t.weak, t.range), (after,)))
    clear: tuple[int, ...] = ()
    if plan.forest is not None:
        cells = plan.forest.cells
        clear = (made.add("start_tree", _grid(cells), (cells, 0), ()),)
    base = len(made.steps)
    for launch in plan.launches:
        blocks, shared, numbers = launch.blocks, launch.shared_bytes, tuple[float, ...]()
        before = tuple(base + k for k in launch.after) or (ready,)
        if launch.kernel == "lu_tree" and plan.forest is not None:
            tickets = plan.forest.up
            blocks, numbers, before = min(tickets, TREE_BLOCKS // 2), (tickets,), (ready, *clear)
            shared = tree_bytes(plan.forest.most_rows, np.dtype(dtype).itemsize)
        expression = KERNELS[launch.kernel].expression(dtype, launch.threads)
        made.steps.append(
            Step(launch.kernel, expression, blocks, launch.threads, shared, launch.items, numbers, {}, before)
        )
    for fronts in ("fronts", "fronts_upper"):
        made.steps += invert_steps(cast(Any, plan), inversions, dtype, base, len(made.steps), fronts)
    ends = {*aside, ready, *range(base, len(made.steps))} - {k for s in made.steps[base:] for k in s.after}
    made.add("collect", _grid(plan.stat_rows), (plan.stat_rows,), tuple(sorted(ends)))
    return made.steps


_LISTS: dict[str, str | None] = {"row_lists": "row_lists", "row_list_sources": "row_list_sources"}
FORWARD = 4  # which of the numbers of a sweep through the forest says its direction
_NORMAL: dict[str, dict[str, str | None]] = {
    "permute_in": {"perm": "rows", "exponents": "row_exponents"},
    "permute_out": {"exponents": "col_exponents"},
    "backward": {"fronts": "fronts_upper", "pivots": "col_pivots"},
}
_TRANSPOSED: dict[str, dict[str, str | None]] = {
    "permute_in": {"exponents": "col_exponents"},
    "permute_out": {"perm": "rows", "exponents": "row_exponents"},
    "forward": {"fronts": "fronts_upper", "pivots": "col_pivots"},
    "measure": {"row_ptr": "col_ptr", "row_col": "slot_row", "row_slot": "col_slot", "sums": "sums_t"},
    "judge": {"scalars": "scalars_t"},
}


def lu_solve_steps(
    plan: LuPlan, sweeps: list[list[tuple[str, int, int, int]]], dtype: str, rhs: int, refinements: int, *,
    scaled: bool, target: float, transposed: bool, span: int = 1,
) -> list[Step]:  # fmt: skip
    """`steps.solve_steps` on the halves of an LU: forward through L and back through U, or the other way for A^T."""
    table = _TRANSPOSED if transposed else _NORMAL
    made = []
    for step in steps.solve_steps(
        cast(Any, plan), sweeps, dtype, rhs, refinements, scaled=False, target=target, span=span
    ):
        kind = step.kernel.partition("_")[0]
        if step.kernel == "sweep_forest":
            kind = "forward" if step.numbers[FORWARD] else "backward"
        names = {**_LISTS} if step.kernel == "forward_strips" else {}
        names |= table.get(kind, {}) if kind in ("forward", "backward") else table.get(step.kernel, {})
        if "exponents" in names and not scaled:
            names = {**names, "exponents": None}
        made.append(replace(step, rename={**step.rename, **names}))
    return made
