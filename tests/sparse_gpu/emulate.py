"""Runs a GPU plan's launches one after another under the SIMT runner, and reads the factor back."""

from types import SimpleNamespace

import numpy as np

from warpfront.backend.simt import Simt
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.schedule import STATS


def buffers(plan, values, rule=None):
    """Host arrays of every buffer, under the names the kernels' arguments have."""
    dtype = values.dtype
    n = max(plan.n, 1)
    made = SimpleNamespace(
        items=plan.items, fronts=plan.fronts, children=plan.children, entries=plan.entries, maps=plan.maps,
        values=values, rule=np.zeros(8, dtype) if rule is None else np.asarray(rule, dtype),
        panels=np.full(max(plan.panel_words, 1), np.nan, dtype), blocks=np.full(max(plan.block_words, 1), np.nan, dtype),
        diagonal=np.full(2 * n, np.nan, dtype), pivots=np.full(2 * n, -99, np.int32),
        stats=np.full(STATS * max(plan.stat_rows, 1), -99, np.int32), work=np.full(max(plan.work_words, 1), np.nan, dtype),
        flags=np.zeros(plan.flag_words, np.uint32),
    )  # fmt: skip
    for name in ("children", "entries", "maps"):
        if getattr(made, name).size == 0:
            setattr(made, name, np.zeros(1, getattr(made, name).dtype))
    return made


def run(name, made, grid, block, *, shared=0, items=0, expression, numbers=(), schedules=2, seed=0):
    """One launch; any finding is an error."""
    spec = KERNELS[name]
    arguments = [getattr(made, a) for a in spec.arguments[: len(spec.arguments)]]
    if "items" in spec.arguments:
        arguments[spec.arguments.index("items")] = made.items[items : items + grid].copy()
    report = Simt.build(spec.source, [expression]).launch(
        expression, grid, block, [*arguments, *numbers], shared_bytes=shared, resident=max(16, grid),
        schedules=schedules, seed=seed,
    )  # fmt: skip
    report.check()


def factorize(plan, values, rule=None, schedules=2, seed=0):
    """Run the factorisation; returns the buffers."""
    made = buffers(plan, values, rule)
    dtype = values.dtype.name
    run("epoch", made, 1, 1, expression="next_epoch", schedules=1)
    for launch in plan.launches:
        expression = KERNELS[launch.kernel].expression(dtype, launch.threads, plan.pivoting)
        run(
            launch.kernel, made, launch.blocks, launch.threads, shared=launch.shared_bytes, items=launch.items,
            expression=expression, schedules=schedules, seed=seed,
        )  # fmt: skip
    return made


def dense_factor(plan, made, symbolic):
    """(L, D, place): dense factor of the permuted matrix; row k of L belongs to permuted column place[k]."""
    n = plan.n
    lower, d = np.eye(n), np.zeros((n, n))
    place = np.arange(n)
    ind, ptr = symbolic.plan.front_ind, symbolic.plan.front_ptr
    for s in range(plan.fronts.size):
        f = plan.fronts[s]
        first, width = int(f["first"]), int(f["width"])
        place[first : first + width] = first + made.pivots[2 * first : 2 * (first + width) : 2]
    position = np.empty(n, int)
    position[place] = np.arange(n)
    for s in range(plan.fronts.size):
        f = plan.fronts[s]
        first, width, rows = int(f["first"]), int(f["width"]), int(f["rows"])
        where = ind[ptr[s] : ptr[s + 1]].astype(int)
        where = np.concatenate([np.arange(first, first + width), position[where[width:]]])
        panel = made.panels[f["panel"] : f["panel"] + f["ld"] * width].reshape(width, f["ld"])
        for k in range(width):
            lower[where[k + 1 : rows], first + k] = panel[k, k + 1 : rows]
            d[first + k, first + k] = made.diagonal[2 * (first + k)]
            if made.pivots[2 * (first + k) + 1] == 2:
                d[first + k, first + k + 1] = d[first + k + 1, first + k] = made.diagonal[2 * (first + k) + 1]
    return lower, d, place
