"""Host side of the sparse solver on a GPU machine: analysis and plan by step, beside cuDSS's analysis in the same process.

    PYTHONPATH=src python3 tools/device/sparse_host.py --phase time --out "$OUT" --cudss LIBRARY

For every system and ordering: read, analyse, plan, upload; then refactorisations and solves, which say what the ordering
is worth. ``--phase check`` does the host's part alone, without a GPU, which compiles it for the other phase. Records go to
``--out``; a table comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np  # noqa: E402
from sparse_gpu_cases import carried, kkt, laplacian, ordering  # noqa: E402


def cases():
    for name in ("case14_ieee_K2_it10", "case118_ieee_K2_it10", "case1354_pegase_K2_it10"):
        yield name, lambda name=name: carried(name), "S"
    yield "kkt_3000_1000", lambda: kkt(3000, 1000), "S"
    yield "case1354_pegase_K1_it10", lambda: carried("case1354_pegase_K1_it10"), "SPD"
    yield "lap2d_300", lambda: laplacian(300, 300), "SPD"
    yield "lap3d_40", lambda: laplacian(40, 40, 40), "SPD"
    yield "kkt_30000_10000", lambda: kkt(30000, 10000), "S"
    yield "lap3d_64", lambda: laplacian(64, 64, 64), "SPD"
    yield "lap2d_1000", lambda: laplacian(1000, 1000), "SPD"


def orderings(name, large):
    """Keywords by name; the stored METIS ordering where there is one."""
    found = {"auto": {}}
    if not large:
        found |= {kind: {"reordering_alg": kind} for kind in ("amd", "multilevel", "level_set")}
        stored = ordering(name)
        if "user_perm" in stored:
            found["metis, stored"] = stored
    return found


def host_plan(solver, structure):
    """What the device's phases do on the host after the analysis."""
    from warpfront.sparse.gpu import memory, schedule, steps
    from warpfront.sparse.gpu.regroup import DEFINITE, INDEFINITE, WARP_ROWS, regroup

    rules = {"SPD": DEFINITE, "S": INDEFINITE}[structure]
    grouped = regroup(solver._symbolic, most_width=WARP_ROWS if structure == "S" else 0, rules=rules)
    plan = schedule.make_plan(grouped, pivoting=structure != "SPD")
    items, _ = steps.solve_items(plan)
    memory.uploads(plan, steps.make_tables(grouped.pattern, grouped.perm), items)


def analysed(a, structure, device, keywords):
    """Seconds of constructor and analysis, of plan and upload, and the solver."""
    from warpfront import DirectSolver

    begun = perf_counter()
    solver = DirectSolver(a, structure=structure, device=device, **keywords).analyze()
    middle = perf_counter()
    if device == "cuda":
        import cupy

        solver._engine(structure != "SPD")
        cupy.cuda.runtime.deviceSynchronize()
    else:
        host_plan(solver, structure)
    return middle - begun, perf_counter() - middle, solver


def measure(name, a, structure, lib, device):
    """Analysis and plan of every ordering, cuDSS's analysis."""
    large = a.shape[0] > 100_000
    repeats = 1 if large else 3
    entry = {"n": a.shape[0], "structure": structure, "orderings": {}}
    if lib is not None:
        from sparse_gpu_cudss import Cudss

        peers = []
        for _ in range(repeats):
            peer = Cudss(lib, a, structure)
            peers.append(1e3 * peer.analysis_seconds)
            entry["cudss_refactor_ms"] = 1e3 * float(np.median([peer.refactorize() for _ in range(5)]))
            peer.close()
        entry["cudss_analysis_ms"] = peers
    for kind, keywords in orderings(name, large).items():
        runs = [analysed(a, structure, device, keywords) for _ in range(repeats)]
        host, plan, solver = min(runs, key=lambda run: run[0] + run[1])
        record = solver.report.analysis
        entry["orderings"][kind] = {
            "analysis_ms": 1e3 * host, "plan_ms": 1e3 * plan, "samples_ms": [1e3 * (r[0] + r[1]) for r in runs],
            "steps_ms": {step: round(1e3 * seconds, 3) for step, seconds in record.steps},
            "ordering": record.ordering, "flops": record.flops, "nnz_factor": record.nnz_factor,
            "depth": record.tree_depth,
        }  # fmt: skip
    return entry


def on_device(solver, a):
    """Medians of 10 refactorisations and unrefined solves."""
    import cupy

    values, b = cupy.asarray(a.data), cupy.asarray(a @ np.ones(a.shape[0]))
    solver.set("ir_n_steps", 0)

    def median(call):
        times = []
        for _ in range(11):
            begun = perf_counter()
            call()
            cupy.cuda.runtime.deviceSynchronize()
            times.append(perf_counter() - begun)
        return 1e3 * float(np.median(times[1:]))

    return {
        "refactor_ms": median(lambda: solver.refactorize(values)),
        "solve_ms": median(lambda: solver.solve(b)),
    }


def table(record):
    print(
        f"{'system':26} {'ordering':22} {'analysis':>9} {'plan':>8} {'cuDSS':>8} {'refactor':>9} {'solve':>8} {'cuDSS r':>8}"
    )
    for name, entry in record.items():
        if "error" in entry:
            print(f"{name:26} {entry['error'].strip().splitlines()[-1][:90]}")
            continue
        peer = min(entry.get("cudss_analysis_ms", [float("nan")]))
        for kind, f in entry["orderings"].items():
            what = f"{kind} ({f['ordering']})" if kind == "auto" else kind
            print(
                f"{name:26} {what:22} {f['analysis_ms']:9.1f} {f['plan_ms']:8.1f} {peer:8.1f} "
                f"{f.get('refactor_ms', float('nan')):9.3f} {f.get('solve_ms', float('nan')):8.3f} "
                f"{entry.get('cudss_refactor_ms', float('nan')):8.3f}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", choices=("check", "time"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cudss", default="")
    parser.add_argument("--limit", type=float, default=40.0)
    parser.add_argument("--names", nargs="*", default=[])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    device, lib, failed = "cpu" if given.phase == "check" else "cuda", None, []
    if given.cudss and device == "cuda":
        from sparse_gpu_cudss import library

        try:
            lib = library(given.cudss)
        except Exception:
            failed.append("cudss")
            traceback.print_exc()
    begun, record = perf_counter(), {"processors": os.cpu_count(), "systems": {}}

    def put(name, work):
        """Do one piece of work while there is time, and keep what there is."""
        if perf_counter() - begun > given.limit:
            print(f"{name}: no time left", flush=True)
            return
        try:
            work()
        except Exception:
            record["systems"].setdefault(name, {"orderings": {}})["error"] = traceback.format_exc()
            failed.append(name)
        (given.out / "sparse_host.json").write_text(json.dumps(record, indent=1))

    chosen = [case for case in cases() if not given.names or case[0] in given.names]
    for name, build, structure in chosen:

        def analyse(name=name, build=build, structure=structure):
            record["systems"][name] = measure(name, build(), structure, lib, device)

        put(name, analyse)
    for name, build, structure in chosen if device == "cuda" else ():
        for kind, found in record["systems"].get(name, {}).get("orderings", {}).items():

            def factor(name=name, build=build, structure=structure, kind=kind, found=found):
                a = build()
                solver = analysed(a, structure, device, orderings(name, a.shape[0] > 100_000)[kind])[2]
                found.update(on_device(solver, a))

            put(name, factor)
    table(record["systems"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
