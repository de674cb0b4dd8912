"""The short table of graph.py beside it, its record, and the figures of docs/bfs.md.

``python tools/device/graph_report.py`` writes the figures of the record that the page names into the page; with a folder
it first takes ``bfs.json`` and ``profile.json`` of a run from there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def summary(found):
    lines = []
    for name in ("kron22", "kron24"):
        for run in found[name].get("runs", []):
            lines.append(line(f"{name} {run['order']} a={run['alpha']} b={run['beta']}", run))
    for run in found["uniform"].get("runs", []):
        lines.append(line(f"uniform a={run['alpha']}", run))
    for run in found["roads"].get("runs", []):
        lines.append(line(f"grid {run['side']} keep {run['keep']}", run))
    for run in found["real"].get("runs", []):
        lines.append(line(f"{run['graph']} {run['variant']}", run))
    steps = {}
    for run in found["ladder"].get("runs", []):
        steps.setdefault(run["graph"], []).append(f"{run['variant']} {run['median_us']:.0f}")
    lines += [f"ladder {graph} (us): " + ", ".join(values) for graph, values in steps.items()]
    for run in found["shapes"].get("runs", []):
        lines.append(f"{run['graph']} {run['threads']} threads a block: {run['median_us']:.0f} us")
    return "\n".join(lines)


def line(name, run):
    replay = " ".join(f"{k} {v:.3f}" for k, v in run.items() if k.startswith("replay_gteps"))
    return (
        f"{name:32s} {run['harmonic_mean_gteps']:8.3f} GTEPS ({run['wall_harmonic_mean_gteps']:.3f} with the call) "
        f"median {run['median_us']:.1f} us, depth {run['depth']} {replay}"
    )


# ------------------------------------------------------------------ the record, and the page's table from it

FAMILIES = {"kron22": "Kronecker 2^22", "kron24": "Kronecker 2^24", "uniform": "uniform 2^22"}
KEPT = (
    *("harmonic_mean_gteps", "wall_harmonic_mean_gteps", "min_gteps", "edges", "depth", "sources"),
    *("replay_gteps", "replay_gteps512", "replay_gteps1024"),
)


def write_record(found, out, make_record):
    """Write the run as a record of `warpfront.bench`: searches by family, and the ladder."""
    from warpfront.bench.collect import collected
    from warpfront.bench.record import Row, write

    def measured(run, algorithm):
        values = {key: run[key] for key in KEPT if key in run}
        return collected(run["seconds"], algorithm=algorithm, values=values)

    def row(case, run, variant, distribution, shapes):
        mine = {"warpfront": measured(run, variant)}
        return Row(case, "search", shapes, "int32", distribution, 1, ["warpfront"], mine)

    rows = []
    for name, case in FAMILIES.items():
        part = found[name]
        for run in part.get("runs", []):
            if (run["alpha"], run.get("beta", 18)) == (15, 18):
                order = ", by degree" if run.get("order") == "degree" else ""
                shapes = {"n": part["n"], "arcs": part["arcs"]}
                rows.append(row(case + order, run, "persistent", "edge factor 16", shapes))
    for run in found["roads"].get("runs", []):
        case = f"{'grid' if run['keep'] == 1 else 'streets'} {run['side']} x {run['side']}"
        rows.append(row(case, run, "persistent", f"keep {run['keep']}", {"n": run["n"]}))
    for run in found["real"].get("runs", []):
        rows.append(row(f"{run['graph']}, {run['variant']}", run, run["variant"], "real", {"n": run["n"]}))
    ladders = {}
    for run in found["ladder"].get("runs", []):
        ladders.setdefault(run["graph"], {})[run["variant"]] = measured(run, run["variant"])
    for graph, steps in ladders.items():
        rows.append(Row(graph, "ladder", {}, "int32", graph, 1, list(steps), steps))
    write(make_record("bfs", rows, {"sources": 64, "alpha": 15, "beta": 18}), out / "bfs.json")


def page_tables(record):
    """Return the Markdown of docs/bfs.md's figures from a record's JSON."""
    searches = [r for r in record["rows"] if r["operation"] == "search"]
    lines = [
        "| graph | vertices | depth | median | GTEPS | lowest | replayed |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in searches:
        m = r["contenders"]["warpfront"]
        v = m["values"]
        replays = [v[k] for k in ("replay_gteps", "replay_gteps512", "replay_gteps1024") if k in v]
        cells = [r["case"], f"{r['shapes']['n']:,}", str(v["depth"]), time_of(m["median"])]
        cells += [
            f"{v['harmonic_mean_gteps']:.3g}",
            f"{v['min_gteps']:.3g}",
            f"{max(replays):.3g}" if replays else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    ladders = [r for r in record["rows"] if r["operation"] == "ladder"]
    steps = list(dict.fromkeys(step for r in ladders for step in r["contenders"]))
    lines += [
        "",
        "| step | " + " | ".join(r["case"] for r in ladders) + " |",
        "|---" * (len(ladders) + 1) + "|",
    ]
    for step in steps:
        cells = [time_of(r["contenders"][step]["median"]) if step in r["contenders"] else "" for r in ladders]
        lines.append(f"| `{step}` | " + " | ".join(cells) + " |")
    profile = record["options"].get("profile")
    if profile:
        labels = list(next(iter(profile.values())))
        lines += ["", "| kernel | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
        lines += [
            f"| `{kernel}` | " + " | ".join(values.values()) + " |" for kernel, values in profile.items()
        ]
    return "\n".join(lines) + "\n"


def take(folder, target):
    """Copy a run's record, with the profiler's figures of each kernel's longest launch among its options."""
    record = json.loads((folder / "bfs.json").read_text(encoding="utf-8"))
    profile = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    by_kernel = {}
    for kernel, launches in profile.items():
        busiest = max(launches, key=lambda v: float(v["device memory, % of peak"] or 0))
        by_kernel[kernel.split()[-1]] = busiest
    record["options"]["profile"] = by_kernel
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def time_of(seconds):
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def main():
    root = Path(__file__).resolve().parents[2]
    page = root / "docs" / "bfs.md"
    text = page.read_text(encoding="utf-8")
    begin = re.search(r"<!-- bfs figures: (\S+) -->\n", text)
    end = text.index("<!-- end of bfs figures -->")
    kept = root / "benchmarks" / "records" / begin[1]
    if len(sys.argv) > 1:
        take(Path(sys.argv[1]), kept)
    record = json.loads(kept.read_text(encoding="utf-8"))
    page.write_text(text[: begin.end()] + page_tables(record) + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
