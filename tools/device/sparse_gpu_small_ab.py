"""Small symmetric systems: a parent told when a child's contribution block is written, beside when the child is done.

    PYTHONPATH=src python3 tools/device/sparse_gpu_small_ab.py --out "$OUT"

For each system and way: refactorisation in milliseconds (least and median of 40) in turns, whether the factors agree in
every bit, and where a refactorisation spends its time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).resolve().parent)]

from sparse_gpu_cases import carried, ordering  # noqa: E402
from sparse_gpu_time import profile, summary, walls  # noqa: E402

TURNS, REPEATS = 4, 10
WAYS = {
    "late": "factor_tree<{T}, {pivoting}, false>",
    "early": "factor_tree<{T}, {pivoting}, true>",
}
CASES = (
    ("case14_ieee_K2_it10", "S"),
    ("case118_ieee_K2_it10", "S"),
    ("case1354_pegase_K2_it10", "S"),
    ("case1354_pegase_C2_it10", "S"),
    ("case1354_pegase_K1_it10", "SPD"),
)


def solver(name, structure, template):
    """A solver whose tree kernel is the one named."""
    import cupy

    from warpfront import DirectSolver
    from warpfront.sparse.gpu.kernels import KERNELS

    a = carried(name)
    KERNELS["factor_tree"] = replace(KERNELS["factor_tree"], template=template)
    s = DirectSolver(a, structure=structure, device="cuda", check="status", **ordering(name)).analyze()
    values = cupy.asarray(a.data)
    for _ in range(3):
        s.refactorize(values)
    cupy.cuda.runtime.deviceSynchronize()
    return s, values


def hashes(s):
    buffers = s._factor.runner.buffers
    return [hashlib.sha256(buffers[k].get().tobytes()).hexdigest()[:16] for k in ("diagonal", "pivots")]


def one(name, structure):
    """Times in turns."""
    made = {way: solver(name, structure, template) for way, template in WAYS.items()}
    seconds = {way: [] for way in WAYS}
    for _ in range(TURNS):
        for way, (s, values) in made.items():
            seconds[way] += walls(lambda s=s, values=values: s.refactorize(values), REPEATS)
    found = {way: summary(seconds[way]) | {"hashes": hashes(s)} for way, (s, _) in made.items()}
    for way, (s, _) in made.items():
        found[way]["profile"] = profile(s, "factor from entries")
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which no system is begun")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    begun, record, failed = perf_counter(), {}, 0
    for name, structure in CASES:
        if perf_counter() - begun > args.limit:
            print("out of time before", name, flush=True)
            break
        try:
            found = record[name] = one(name, structure)
        except Exception:
            failed += 1
            traceback.print_exc()
            continue
        equal = len({tuple(f["hashes"]) for f in found.values()}) == 1
        failed += not equal
        times = " ".join(f"{w} {f['min_ms']:.3f}/{f['median_ms']:.3f}" for w, f in found.items())
        print(f"{name:28s} {structure:3s} {times} bits {'equal' if equal else 'DIFFER'}", flush=True)
        for way in WAYS:
            print(
                "  ",
                way,
                " ".join(f"{k[:9]}:{us}" for k, _, _, us in found[way]["profile"])[:400],
                flush=True,
            )
        (args.out / "small_ab.json").write_text(json.dumps(record, indent=1, default=str))
    print(f"took {perf_counter() - begun:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
