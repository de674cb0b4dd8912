"""Prove and measure breadth-first search on a GPU.

Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/graph.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/graph.py --phase time --out "$OUT"

``check`` builds every kernel, runs the device tests, compute-sanitizer's four tools and the profiler. ``time``
measures: Graph500's rate on each family, the ladder, parameters. Sections run in a child process that is
replaced when one hangs; what was measured is written as it comes. ``--dry`` walks through the flow without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from shutil import which
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import graph_measure as measure  # noqa: E402
import graph_report  # noqa: E402
import side_by_side  # noqa: E402

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
PROFILE = {
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads active per instruction, of 32",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": "load efficiency, %",
    "l1tex__t_sector_hit_rate.pct": "L1 hits, %",
    "lts__t_sector_hit_rate.pct": "L2 hits, %",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps resident, %",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "device memory, % of peak",
}


def tool(name):
    places = [which(name), f"/usr/local/cuda/bin/{name}"]
    return next((p for p in places if p and Path(p).is_file()), None)


# ------------------------------------------------------------------ check


def build(out):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from warpfront.backend import capability
    from warpfront.graph import _bfs_cuda as plans

    arch = capability.probe(0).arch if capability.missing() is None else "sm_90"
    jobs = [(str(file), name, arch) for file, names, _ in plans.instantiations() for name in names]
    with ProcessPoolExecutor(8, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(measure.compile_one, jobs))
    (out / "build.json").write_text(json.dumps(done, indent=1))
    bad = [entry for entry in done if "error" in entry]
    slow = max(done, key=lambda e: e.get("seconds", 0))
    print(
        f"built {len(done)}: {len(bad)} bad; slowest {slow['expression']} {slow.get('seconds', 0):.1f} s",
        flush=True,
    )
    for entry in bad:
        print("  BAD", entry["expression"], entry["error"][:500], flush=True)
    return bool(bad)


def check_commands():
    python, driver = sys.executable, [str(Path(__file__).resolve()), "--driver"]
    commands = {
        "pytest": [
            python,
            "-m",
            "pytest",
            "-q",
            "-m",
            "cuda",
            "-W",
            "default",
            "-p",
            "no:cacheprovider",
            "tests/graph",
        ],
    }
    sanitizer = tool("compute-sanitizer")
    for check in SANITIZERS if sanitizer else ():
        quiet = ["--report-api-errors", "no"] if check == "memcheck" else []
        flags = ["--tool", check, "--error-exitcode", "1", "--target-processes", "all", *quiet]
        commands[check] = [sanitizer, *flags, python, *driver]
    if tool("ncu"):
        flags = [
            "--clock-control",
            "none",
            "--csv",
            "--page",
            "raw",
            "-k",
            "regex:bfs_",
            "--metrics",
            ",".join(PROFILE),
        ]
        commands["profile"] = [tool("ncu"), *flags, python, str(Path(__file__).resolve()), "--profile"]
    return commands


def check(out, seconds):
    failed = False
    try:
        failed |= build(out)
    except Exception:
        traceback.print_exc()
        failed = True
    results = side_by_side.finish(side_by_side.start(check_commands(), out), seconds, 25)
    (out / "checks.json").write_text(json.dumps(results, indent=1))
    try:
        measure.profile_table(out / "profile.log", PROFILE, out / "profile.json")
    except Exception:
        traceback.print_exc()
    return failed or any(result["exit"] != 0 for name, result in results.items() if name != "profile")


# ------------------------------------------------------------------ time


def time_all(out, seconds, dry):
    """Run the sections in children; replace a child that exceeds its section's limit, and skip that section."""
    left, started, bad = list(measure.SECTIONS), perf_counter(), []
    while left and perf_counter() - started < seconds:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--out",
            str(out),
            "--sections",
            ",".join(left),
        ]
        child = subprocess.Popen(
            command + (["--dry"] if dry else []),
            cwd=ROOT,
            env=side_by_side.environment(),
            start_new_session=True,
        )
        begun, current = perf_counter(), None
        while child.poll() is None:
            sleep(0.1)
            done = [name for name in left if (out / f"{name}.json").exists()]
            if done != current:
                current, begun = done, perf_counter()
            over = perf_counter() - started > seconds
            if perf_counter() - begun > measure.SECTION_SECONDS or over:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        left = [name for name in left if not (out / f"{name}.json").exists()]
        if left:
            print(f"section {left[0]} did not end", flush=True)
            bad.append(left.pop(0))
    errors = [name for name in measure.SECTIONS if "error" in read(out, name)]
    print(graph_report.summary({name: read(out, name) for name in measure.SECTIONS}))
    missed = ", ".join(bad + left) or "none"
    print(f"time: {perf_counter() - started:.0f} s; not measured: {missed}; failed: {errors or 'none'}")
    return bool(bad or left or errors)


def read(out, name):
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def run_sections(out, names, dry):
    for name in names:
        begun = perf_counter()
        try:
            result = measure.SECTIONS[name](dry)
        except Exception:
            traceback.print_exc()
            result = {"error": traceback.format_exc()}
        result["section_seconds"] = perf_counter() - begun
        temporary = out / f"{name}.part"
        temporary.write_text(json.dumps(result))
        temporary.rename(out / f"{name}.json")
        print(f"{name}: {result['section_seconds']:.1f} s", flush=True)
    if not dry:
        from warpfront.bench.collect import gpu_record

        found = {name: read(out, name) for name in measure.SECTIONS}
        graph_report.write_record(found, out, gpu_record)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--sections")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    if options.driver or options.profile:
        (measure.driver if options.driver else measure.profiled)()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if options.sections:
        run_sections(options.out, options.sections.split(","), options.dry)
        return 0
    if options.phase == "check":
        return int(check(options.out, options.seconds or 130.0))
    for name in measure.SECTIONS:
        (options.out / f"{name}.json").unlink(missing_ok=True)
    return int(time_all(options.out, options.seconds or 58.0, options.dry))


if __name__ == "__main__":
    sys.exit(main())
