"""Keep runs of montecarlo.py as a record, and write the figures of docs/montecarlo.md from it. From the repository's root:

    python3 tools/device/montecarlo_page.py --keep "first version" DIR   # DIR: what --phase time left
    python3 tools/device/montecarlo_page.py                              # writes the page's table

The record is ``benchmarks/records/nvidia-h200/montecarlo_raw.json.gz``: the kept runs, in order, with every sample.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "records" / "nvidia-h200" / "montecarlo_raw.json.gz"
PAGE = ROOT / "docs" / "montecarlo.md"
BEGIN, END = "<!-- figures: written by tools/device/montecarlo_page.py -->", "<!-- end of figures -->"
PRECISIONS = ("float32", "float64")


def kept():
    return json.loads(gzip.decompress(RECORD.read_bytes())) if RECORD.is_file() else []


def keep(name, folder):
    data = json.loads((folder / "montecarlo_time.json").read_text())
    data.pop("build", None)
    data.pop("record", None)
    for precision in PRECISIONS:
        data[f"pipes {precision}"] = busiest(folder / f"montecarlo_ncu_{precision}.txt")
    stamp = json.loads((folder / "montecarlo.json").read_text())
    code = stamp["fingerprint"]["code"]
    run = {"name": name, "created": stamp["created"], "code": code, "sections": data}
    runs = [other for other in kept() if other["name"] != name] + [run]
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_bytes(gzip.compress(json.dumps(runs).encode(), mtime=0))


def busiest(file, most=4):
    """The pipes of a multiprocessor the profiler found busiest, with their percentages."""
    found = re.findall(
        r"SM: (?:Pipe|Inst Executed Pipe) (\w+)(?: Cycles Active)?\s+%\s+([\d.]+)", file.read_text()
    )
    best = {}
    for pipe, share in found:
        best[pipe] = max(best.get(pipe, 0.0), float(share))
    return sorted(best.items(), key=lambda pair: -pair[1])[:most]


def rate(samples, n):
    return n / median(samples) / 1e9


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def peers(last):
    found = {p: last[f"peers {p}"] for p in PRECISIONS}
    names = list(found["float32"]["samples"])
    rows = [
        [name, *(f"{rate(found[p]['samples'][name], found[p]['n']):.0f}" for p in PRECISIONS)]
        for name in names
    ]
    counts = " and ".join(f"{found[p]['n']:,}" for p in PRECISIONS)
    return [
        f"One-step European call, {counts} paths, in one process, in turn, billions of paths a second:",
        "",
        *table(["", *PRECISIONS], rows),
    ]


def steps(runs):
    """The best K and the production kernel of each kept run: the order of optimisation as it was measured."""
    rows = []
    for run in runs:
        row = [run["name"]]
        for precision in PRECISIONS:
            sweep = run["sections"][f"sweep {precision}"]
            ours = next(r for r in sweep if r["lanes"] == 128 and r["K"] == 128)
            row.append(f"{ours['gpaths_per_s']:.0f} ({ours['registers']} registers)")
        rows.append(row)
    head = ["production kernel (128 threads, K = 128), billions of paths a second", *PRECISIONS]
    return ["In the order they were made:", "", *table(head, rows)]


def sweep(last):
    rows = []
    counters = {
        (c["kernel"].split("<")[1].split(",")[0].strip(), _samples(c["kernel"])): c
        for c in last.get("counters", [])
    }
    for k in sorted({r["K"] for r in last["sweep float32"]}):
        row = [k]
        for precision, kind in zip(PRECISIONS, ("float", "double"), strict=True):
            r = next(r for r in last[f"sweep {precision}"] if r["K"] == k and r["lanes"] == 128)
            counted = counters.get((kind, k))
            row += [f"{r['gpaths_per_s']:.0f}", f"{r['registers']}, {r['occupancy']:.0%}"]
            row.append(f"{float(counted['ipc']):.2f}" if counted else "")
        rows.append(row)
    head = [
        "K",
        *(
            f"{p} {what}"
            for p in PRECISIONS
            for what in ("rate", "registers, occupancy", "instructions a cycle")
        ),
    ]
    return ["K samples a thread (blocks of 128 threads):", "", *table(head, rows)]


def _samples(kernel):
    """K of a kernel as the profiler names it: its last template argument, times four."""
    inside = kernel[kernel.index("<") + 1 : kernel.rindex(">")]
    return 4 * int("".join(c for c in inside.split(",")[-1] if c.isdigit()))


def pipes(last):
    lines = []
    for precision in PRECISIONS:
        shares = ", ".join(f"{pipe} {share:.0f}%" for pipe, share in last.get(f"pipes {precision}", []))
        lines.append(f"Busiest pipes of the {precision} kernel, by the profiler: {shares}.")
    return [*lines, ""]


def methods(last):
    cases = list(dict.fromkeys(row["case"] for row in last["methods"]))
    rates = {(row["case"], row["precision"]): row["gsteps_per_s"] for row in last["methods"]}
    rows = [[case, *(f"{rates[case, p]:.0f}" for p in PRECISIONS)] for case in cases]
    return [
        "`price` from call to result, billions of path steps a second (numbers after a name: time steps):",
        "",
        *table(["", *PRECISIONS], rows),
    ]


def error(last):
    worst = max(abs(row["difference"]) for row in last["float32 error"])
    strikes = ", ".join(f"{row['strike']:g}" for row in last["float32 error"])
    return [
        f"float32 against float64 on one stream of $2^{{34}}$ paths (spot 100, strikes {strikes}): the prices differ "
        f"by at most {worst:.0e}.",
        "",
    ]


def text():
    runs = kept()
    last = runs[-1]["sections"]
    lines = [BEGIN, "", *peers(last), *steps(runs), *sweep(last), *pipes(last), *methods(last), *error(last)]
    made = f"From `montecarlo_raw.json.gz` of `benchmarks/records/nvidia-h200`, run of {runs[-1]['created']}."
    return "\n".join([*lines, made, "", END])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", nargs=2, metavar=("NAME", "DIR"))
    options = parser.parse_args()
    if options.keep:
        keep(options.keep[0], Path(options.keep[1]))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + text() + after, encoding="utf-8")


if __name__ == "__main__":
    main()
