"""How often the gate is wrong on this machine: 200 pairs of equal runs of a real kernel, and 200 with 10% more work.

Run ``python tools/measure_gate.py -o benchmarks/records/<device>/gate.json``. The kernel is the CPU transpose of 20
matrices of 300 x 300 float32 into memory that is there, on one thread; the slow one has 22 under the same name. Each run
is 15 samples of at least a millisecond, and those of a pair are taken in turn, as ``warpfront bench --against`` does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import thread_time

os.environ["WARPFRONT_THREADS"] = "1"

import numpy as np

from warpfront.bench import gate
from warpfront.bench.case import Case, Verdict
from warpfront.bench.collect import collected, cpu_record
from warpfront.bench.record import Row, measurement, write
from warpfront.bench.timing import time_round_robin
from warpfront.dense import transpose

SIDE, BATCH = 300, {"equal": 20, "10% slower": 22}
CLOCKS = {"wall time": "seconds", "processor time": "cpu_seconds"}


def case(batch):
    def make():
        return np.ones((batch, SIDE, SIDE), np.float32), np.empty((batch, SIDE, SIDE), np.float32)

    return Case(make, lambda s: transpose(s[0], out=s[1]), lambda s, o: Verdict(bool((o == 1).all())))


def pair(batch, samples):
    cases = {"base": case(BATCH["equal"]), "new": case(batch)}
    timings = time_round_robin(cases, rounds=samples)
    return (measurement(timings[name], cases[name]) for name in cases)


def rates(kind, pairs, samples):
    """Return for each clock the verdicts' counts, the medians of the second runs, and the ratios, from the same runs."""
    found = {clock: (Counter(), [], []) for clock in CLOCKS}
    for _ in range(pairs):
        base, new = pair(BATCH[kind], samples)
        for clock, (counts, seconds, ratios) in found.items():
            one = gate.judge(*(replace(run, seconds=getattr(run, CLOCKS[clock])) for run in (base, new)))
            counts[one.verdict] += 1
            seconds.append(one.new_seconds)
            ratios.append(one.ratio)
    return found


def best(state, calls=9):
    """Return the least processor time of several calls: what is left of a loaded machine's noise is small."""
    found = []
    for _ in range(calls):
        start = thread_time()
        transpose(state[0], out=state[1])
        found.append(thread_time() - start)
    return min(found)


def rates_of_best(kind, pairs, samples):
    """As `rates`, each sample the best of nine calls."""
    sides = [case(BATCH["equal"]).make(), case(BATCH[kind]).make()]
    counts, seconds, ratios = Counter(), [], []
    for _ in range(pairs):
        taken = [[best(side) for side in sides] for _ in range(samples)]
        base, new = (collected(column, clock="wall") for column in zip(*taken, strict=True))
        one = gate.judge(base, new)
        counts[one.verdict] += 1
        seconds.append(one.new_seconds)
        ratios.append(one.ratio)
    return {"best of nine, processor time": (counts, seconds, ratios)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--best", action="store_true", help="each sample the best of nine calls")
    parser.add_argument("-o", "--output", type=Path, default=None)
    asked = parser.parse_args()
    rows = []
    for kind, batch in BATCH.items():
        found = rates_of_best if asked.best else rates
        for clock, (counts, seconds, ratios) in found(kind, asked.pairs, asked.samples).items():
            values = {
                "pairs": asked.pairs,
                **{name: counts[name] for name in ("same", "faster", "slow", "ambiguous")},
            }
            values["median_ratio"] = float(f"{np.median(ratios):.4g}")
            print(f"{kind}, {clock}: {values}", flush=True)
            found = collected(seconds, clock="wall", algorithm=f"gate.judge, {clock}", values=values)
            shapes = {"n": SIDE, "batch": batch, "samples": asked.samples}
            case = f"{kind}, {clock}"
            rows.append(
                Row(case, "verdicts on a pair", shapes, "float32", "ones", None, ["gate"], {"gate": found})
            )
    if asked.output is not None:
        write(
            cpu_record(
                "gate_best" if asked.best else "gate", rows, {"pairs": asked.pairs, "samples": asked.samples}
            ),
            asked.output,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
