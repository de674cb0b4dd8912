"""The short table of image.py beside it."""

from __future__ import annotations

import csv
import json

# Profiler's counter -> short name.
COUNTERS = {
    "gpu__time_duration.sum": "time",
    "smsp__inst_executed.sum": "warp instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue %",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "alu %",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "fma %",
    "sm__inst_executed_pipe_fmaheavy.avg.pct_of_peak_sustained_active": "fma heavy %",
    "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active": "fp16 %",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": "lsu %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy %",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "dram %",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2 %",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "l1 %",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "bank conflicts",
    "launch__registers_per_thread": "registers",
}


def counters(path):
    """The profiler's main counters, one line a kernel; its stall reasons above 5 percent of the warps' time."""
    if not path.is_file():
        return "no profile"
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if len(rows) < 2:
        return "no profile: " + path.read_text(errors="replace")[-300:]
    shown = []
    for row in rows[1:]:  # the first holds the units
        found = [f"{short} {row[name]}" for name, short in COUNTERS.items() if row.get(name)]
        stalls = {
            name.split("stalled_")[1].split("_per")[0].split(".")[0]: float(value.replace(",", "") or 0)
            for name, value in row.items()
            if name and "issue_stalled" in name and "ratio" in name and value
        }
        worst = sorted(stalls.items(), key=lambda kv: -kv[1])[:5]
        shown.append(f"{row.get('Kernel Name', '?')[:40]}: " + ", ".join(found))
        shown.append("    stalls " + ", ".join(f"{name} {value:.2f}" for name, value in worst))
    return "\n".join(shown)


def median(values):
    return sorted(values)[len(values) // 2]


def summary(out):
    """The short table."""
    lines = []

    def load(name):
        path = out / f"{name}.json"
        return json.loads(path.read_text()) if path.is_file() else None

    if found := load("kernels"):
        lines.append(f"wrong: {found.pop('wrong') or 'none'}")
        for key, times in found.items():
            best = ", ".join(f"{name} {t:.1f}" for name, t in list(times.items())[:9])
            lines.append(f"{key}: {best}; copy {times['copy']:.1f} us")
    if found := load("steps"):
        lines.append(
            "steps us: " + ", ".join(f"{n} {t:.1f}" for n, t in found.items() if isinstance(t, float))
        )
        lines.append(f"steps wrong: {[v for v in found['wrong'].values() if v] or 'none'}")
    for layout, rows in (load("stages") or {}).items():
        lines.append(
            f"{layout}: "
            + "; ".join(
                f"{n} {r['us']:.1f} us {100 * r['of_copy']:.0f}% {r['wrong']}" for n, r in rows.items()
            )
        )
    for r in (load("pipeline") or {}).get("runs", ()):
        late = "/".join(f"{v:.2f}" for v in r["latency_ms"])
        lines.append(
            f"{'x'.join(map(str, r['shape']))} {r['name']}: {100 * r['of_h2d']:.0f}% of H2D, "
            f"D2H inside {100 * r['d2h_inside_h2d']:.0f}%, busy {100 * r['h2d_busy']:.0f}%, "
            f"{r['images_per_second']:.0f} img/s, latency {late} ms"
        )
    for r in (load("crossover") or {}).get("rows_ms", ()):
        times = ", ".join(f"{name} {median(t):.3f}" for name, t in r.items() if name != "side")
        lines.append(f"{r['side']}^2 ms: {times}")
    return "\n".join(lines)
