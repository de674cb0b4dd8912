"""Ways to sweep through wide fronts, and what their inverses cost the factorisation, one after the other on the GPU."""

from __future__ import annotations

import json
import traceback
from time import perf_counter

import numpy as np

VARIANTS = {  # panels with a common inverse, most tiles, products in trees, most right-hand sides at once
    "as it is": (8, 2, True, 64),
    "sums in trees": (8, 2, False, 64),
    "8 at once": (8, 2, True, 8),
    "1 tile": (8, 1, True, 64),
    "none early": (8, 2, True, 64),
}
TREES = ("as it is", "8 at once")
COUNTS = (1, 4, 8, 16, 32, 64)


def compare(factor, deadline):
    """Milliseconds (least of a few) of a refactorisation and of solves for 1 to 64 right-hand sides."""
    import cupy
    from sparse_gpu_time import device_times

    from warpfront.sparse.gpu import engine, kernels, runner

    waiting = runner.WAITING
    values = factor.runner.buffers["original"].copy()
    b = cupy.asarray(np.random.default_rng(0).standard_normal((factor.plan.n, 64)))
    kept = (engine.SPAN, kernels.MOST_TILES, kernels.TREE_PRODUCTS)
    found = {}
    for name in VARIANTS if factor.plan.wide.any() else TREES:
        if perf_counter() > deadline:
            break
        engine.SPAN, kernels.MOST_TILES, kernels.TREE_PRODUCTS, most = VARIANTS[name]
        runner.WAITING = frozenset() if name == "none early" else waiting
        try:
            made = engine.GpuFactor(
                factor.symbolic, pivoting=factor.pivoting, scaled=factor.scaled, dtype=factor.dtype,
                tolerances=factor.tolerances, device=factor.runner.device,
            )  # fmt: skip
            made.groups = tuple(g for g in made.groups if g <= most)
            made.refactorize(values, canonical=True)
            row = []
            for count in COUNTS:
                for _ in range(2):
                    made.solve(b[:, :count], 0)
                row.append(min(device_times(lambda k=count, m=made: m.solve(b[:, :k], 0), 5)))
            made.refactorize(values, canonical=True)
            row.insert(0, min(device_times(lambda m=made: m.refactorize(values, canonical=True), 5)))
            found[name] = [round(t, 3) for t in row]
        finally:
            engine.SPAN, kernels.MOST_TILES, kernels.TREE_PRODUCTS = kept
            runner.WAITING = waiting
        del made
        cupy.get_default_memory_pool().free_all_blocks()
    return found


def compare_strips(factor):
    """Milliseconds of a refactorisation, least and median, by each way of the strips (strips.cu)."""
    from dataclasses import replace

    import cupy
    from sparse_gpu_time import device_times

    from warpfront.sparse.gpu.kernels import KERNELS

    values, kept, found = factor.runner.buffers["original"].copy(), KERNELS["strips"], {}
    runner = factor.runner
    for name, tags in (("by twos, flags", "false"), ("by eights, tags", "true")):
        KERNELS["strips"] = replace(kept, template=f"eliminate_strips<{{T}}, {{pivoting}}, {tags}>")
        try:
            key = f"factor, {name}"
            runner.define(key, factor._factor_sequence(gather=False))
            runner.buffers["original"][...] = values
            for _ in range(2):
                runner.run(key)
            times = device_times(lambda key=key: runner.run(key), 10)
            found[name] = [round(min(times), 4), round(float(np.median(times)), 4)]
            found[f"sum, {name}"] = int(runner.buffers["panels"].view(cupy.uint64).sum())
        finally:
            KERNELS["strips"] = kept
    return found


def variants(out, solvers, deadline):
    """Sweeps through wide fronts: level by level of old, by common inverses of 1 to 8 panels, a panel ahead or not."""
    found = {}
    keys = ("case118_ieee_K2_it10 S ir0", "case1354_pegase_K2_it10 S ir0", "kkt_3000_1000 S ir0")
    for key in (*keys, "lap3d_64 SPD ir0", "lap3d_40 SPD ir0", "lap2d_300 SPD ir0", "lap3d_40 S ir0"):
        if key not in solvers or perf_counter() > deadline:
            continue
        try:
            if key.endswith("SPD ir0"):
                found[f"{key} strips"] = compare_strips(solvers[key]._factor)
                print(key, "strips", found[f"{key} strips"], flush=True)
            found[key] = compare(solvers[key]._factor, deadline)
            print(key, *(f"\n    {name}: {row}" for name, row in found[key].items()), flush=True)
        except Exception:
            traceback.print_exc()
        (out / "sweeps.json").write_text(json.dumps(found, indent=1))


def probe(out, solvers):
    """Time stamps in the chains of strips that bound two factorisations."""
    from sparse_gpu_probe import table

    for key, rows, pick in (("lap2d_300 SPD ir0", 64, -1), ("lap3d_40 SPD ir0", 10, -2)):
        try:
            factor = solvers[key]._factor
            factor.refactorize(factor.runner.buffers["original"].copy(), canonical=True)
            lines = table(factor, rows, pick)
            (out / f"probe {key}.txt").write_text("\n".join(lines))
            print(key, *lines[:12], sep="\n", flush=True)
        except Exception:
            traceback.print_exc()
