"""How often the gate is wrong on this machine: 200 pairs of equal runs of a real kernel, and 200 with 10% more work.

Run ``python tools/measure_gate.py -o benchmarks/records/<device>/gate.json``. The kernel is the CPU transpose of 20
matrices of 300 x 300 float32 into memory that is there, on one thread; the slow one has 22 under the same name. Each run
is 21 samples of at least a millisecond, taken in turn with its partner's, as ``warpfront bench --against`` does. The
same samples are judged as pairs and as if they were of two runs of their own, and an ambiguous pair is measured again
once, all samples counting, as ``--against`` does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

os.environ["WARPFRONT_THREADS"] = "1"

import numpy as np

from warpfront.bench import gate
from warpfront.bench.case import Case, Verdict
from warpfront.bench.collect import collected, cpu_record
from warpfront.bench.record import Row, measurement, write
from warpfront.bench.timing import time_round_robin
from warpfront.dense import transpose

SIDE, BATCH = 300, {"equal": 20, "10% slower": 22}
RULES = {"in turn": {"pairing": "in turn"}, "as runs of their own": {}}


def case(batch):
    def make():
        return np.ones((batch, SIDE, SIDE), np.float32), np.empty((batch, SIDE, SIDE), np.float32)

    return Case(make, lambda s: transpose(s[0], out=s[1]), lambda s, o: Verdict(bool((o == 1).all())))


def pair(batch, samples):
    """Return the measurements of base and new, taken in turn."""
    cases = {"base": case(BATCH["equal"]), "new": case(batch)}
    timings = time_round_robin(cases, rounds=samples)
    return [measurement(timings[name], cases[name]) for name in cases]


def judged(sides, values):
    return gate.judge(*(replace(side, values=values) for side in sides))


def rates(kind, pairs, samples):
    """Return for each rule the verdicts' counts, the medians of the new runs, and the ratios, from the same samples."""
    found = {rule: (Counter(), [], []) for rule in (*RULES, "in turn, ambiguous ones again")}
    for _ in range(pairs):
        sides = pair(BATCH[kind], samples)
        ones = {rule: judged(sides, values) for rule, values in RULES.items()}
        one = ones["in turn"]
        if one.verdict == gate.AMBIGUOUS:
            more = pair(BATCH[kind], samples)
            sides = [
                replace(side, seconds=side.seconds + again.seconds)
                for side, again in zip(sides, more, strict=True)
            ]
            one = judged(sides, RULES["in turn"])
        ones["in turn, ambiguous ones again"] = one
        for rule, one in ones.items():
            counts, seconds, ratios = found[rule]
            counts[one.verdict] += 1
            seconds.append(one.new_seconds)
            ratios.append(one.ratio)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("-o", "--output", type=Path, default=None)
    asked = parser.parse_args()
    rows = []
    for kind, batch in BATCH.items():
        for rule, (counts, seconds, ratios) in rates(kind, asked.pairs, asked.samples).items():
            values = {
                "pairs": asked.pairs,
                **{name: counts[name] for name in ("same", "faster", "slow", "ambiguous")},
            }
            values["median_ratio"] = float(f"{np.median(ratios):.4g}")
            print(f"{kind}, {rule}: {values}", flush=True)
            found = collected(seconds, clock="wall", algorithm=f"gate.judge, {rule}", values=values)
            shapes = {"n": SIDE, "batch": batch, "samples": asked.samples}
            case = f"{kind}, {rule}"
            rows.append(
                Row(case, "verdicts on a pair", shapes, "float32", "ones", None, ["gate"], {"gate": found})
            )
    if asked.output is not None:
        write(
            cpu_record("gate", rows, {"pairs": asked.pairs, "samples": asked.samples}),
            asked.output,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
