"""Ways to factor the small fronts of an LU beside one another: children pulled, by lists, a tree of fronts in one launch.

    PYTHONPATH=src python3 tools/device/sparse_gpu_lu_ab.py --out "$OUT"

For each system and way: refactorisation and solve in milliseconds (least of 20), and whether the ways agree in every bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import traceback
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).resolve().parent)]

import numpy as np  # noqa: E402
from sparse_gpu_cases import carried, errors, kkt, laplacian  # noqa: E402
from sparse_gpu_lu import circuit, solver  # noqa: E402
from sparse_gpu_time import device_times, profile, summary, walls  # noqa: E402

REPEATS = 20
WAYS = {
    "pull": {"one_launch": False, "lists": False},
    "lists": {"one_launch": False},
    "tree": {},
}


def cases():
    for name in ("case14_ieee_K2_it10", "case118_ieee_K2_it10", "case1354_pegase_K2_it10"):
        yield f"{name} amd", lambda name=name: carried(name), "amd"
        yield f"{name} multilevel", lambda name=name: carried(name), "multilevel"
    yield "circuit_200 amd", lambda: circuit(200), "amd"
    yield "circuit_200 multilevel", lambda: circuit(200), "multilevel"
    yield "kkt_3000_1000 amd", lambda: kkt(3000, 1000), "amd"
    yield "lap2d_300 auto", lambda: laplacian(300, 300), "auto"
    yield "lap3d_40 auto", lambda: laplacian(40, 40, 40), "auto"


def one(a, order, options):
    """One way: times, error, and hashes of the factor."""
    import cupy

    from warpfront.sparse.gpu import lu_engine
    from warpfront.sparse.gpu.lu_schedule import make_lu_plan

    lu_engine.make_lu_plan = lambda symbolic, **more: make_lu_plan(symbolic, **more, **options)
    s = solver(a, check="status", ir_n_steps=0, reordering_alg=order).analyze()
    values, b = cupy.asarray(a.data), cupy.asarray(a @ np.ones(a.shape[0]))
    for _ in range(3):
        s.refactorize(values)
    lu_engine.make_lu_plan = make_lu_plan
    refactor = summary(walls(lambda: s.refactorize(values), REPEATS))
    refactor["device_ms"] = min(device_times(lambda: s.refactorize(values), 10))
    print("  ", options, f"refactor {refactor['min_ms']:.3f} device {refactor['device_ms']:.3f}", flush=True)
    for _ in range(3):
        x = s.solve(b)
    buffers = s._factor.runner.buffers
    facts = {
        "refactor": refactor,
        "solve": summary(walls(lambda: s.solve(b), REPEATS)),
        "launches": len(s._factor.plan.launches),
        "componentwise": errors(a, x.get(), b.get())[1],
        "hashes": [
            hashlib.sha256(buffers[k].get().tobytes()).hexdigest()[:16] for k in ("diagonal", "pivots")
        ],
    }
    return s, facts


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=45.0, help="seconds after which no system is begun")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    begun, record, failed = perf_counter(), {}, 0
    for name, make, order in cases():
        if perf_counter() - begun > args.limit:
            print("out of time before", name, flush=True)
            break
        a, found = make(), {}
        for way, options in WAYS.items():
            try:
                s, found[way] = one(a, order, options)
            except Exception:
                failed += 1
                traceback.print_exc()
                continue
            if way == "tree" and "lap" not in name:
                try:
                    rows = profile(s, "factor from entries")
                    found[way]["profile"] = rows
                    print("  ", " ".join(f"{k[:7]}{t}x{b}:{us}" for k, t, b, us in rows)[:700], flush=True)
                except Exception:
                    failed += 1
                    traceback.print_exc()
        record[name] = found
        equal = len({tuple(f["hashes"]) for f in found.values()}) == 1
        failed += not equal
        times = " ".join(
            f"{w} {f['refactor']['min_ms']:.3f}/{f['solve']['min_ms']:.3f}" for w, f in found.items()
        )
        print(f"{name:32s} {times} bits {'equal' if equal else 'DIFFER'}", flush=True)
        (args.out / "lu_ab.json").write_text(json.dumps(record, indent=1, default=str))
    print(f"took {perf_counter() - begun:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
