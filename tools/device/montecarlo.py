"""Prove and measure Monte Carlo pricing on a GPU. Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/montecarlo.py --phase check --out "$OUT"   # others may use the GPU meanwhile
    PYTHONPATH=src python3 tools/device/montecarlo.py --phase time --out "$OUT"    # alone on the GPU

check: every instantiation built by NVRTC, a part by nvcc, the device tests, the four tools of compute-sanitizer. time:
the sweep of K, peers in one process, rates over sizes, methods and grids, the error of float32, the profiler. Each
section may fail by itself; the exit code then is 1. ``--dry`` builds the sweep for sm_90 and walks through the summary
without a GPU; ``--driver`` and ``--profile`` are what the sanitizer and the profiler run.
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
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import montecarlo_measure as measure  # noqa: E402
import side_by_side  # noqa: E402
from montecarlo_report import record_of, summary  # noqa: E402

from warpfront.montecarlo import AsianArithmetic, Barrier, European, _cuda, price  # noqa: E402

STARTED = perf_counter()
WORKERS = min(16, os.cpu_count() or 1)
SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "Occupancy",
    "InstructionStats",
    "LaunchStats",
    "SchedulerStats",
)


class Outcome:
    """The record, written after every section; which sections failed."""

    def __init__(self, out, name):
        self.path, self.data, self.failed = out / f"montecarlo_{name}.json", {}, []

    def section(self, name, seconds, body):
        def late(*_):
            raise TimeoutError(f"{name} took more than {seconds} s")

        begin = perf_counter()
        signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        try:
            self.data[name] = body()
        except BaseException as error:
            self.failed.append(name)
            self.data[name] = {"error": traceback.format_exc()}
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            signal.alarm(0)
        self.path.write_text(json.dumps(self.data, indent=1, default=str))
        took, since = perf_counter() - begin, perf_counter() - STARTED
        print(f"[{since:5.1f} s] {name}: {took:.1f} s", flush=True)


def builds(arch):
    ((_, names, _),) = _cuda.instantiations()
    ((_, part, _),) = _cuda.subset()
    jobs = [(name, arch, "nvrtc") for name in names]
    jobs += [(name, other, "nvrtc") for other in ("sm_80", "sm_100", "sm_120") for name in part[:8]]
    from warpfront.backend import nvcc

    if nvcc.missing() is None:
        jobs += [(name, arch, "nvcc") for name in part[2::4]]
    done = measure.compile_all(jobs, WORKERS)
    bad = [entry for entry in done if "error" in entry]
    print(f"built {len(done)}, {len(bad)} bad", flush=True)
    for entry in bad[:5]:
        print("  BAD", entry, flush=True)
    if bad:
        raise RuntimeError(f"{len(bad)} builds failed: {bad[0]}")
    return done


def check_commands():
    python, script = sys.executable, str(Path(__file__).resolve())
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
            "tests/montecarlo",
        ]
    }
    tool = which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        quiet = ("--report-api-errors", "no") if check == "memcheck" else ()
        commands[check] = [
            tool,
            "--tool",
            check,
            "--error-exitcode",
            "1",
            *quiet,
            "--target-processes",
            "all",
        ]
        commands[check] += [python, script, "--driver"]
    return commands


def run_checks(out, seconds):
    """Run the device tests and the four sanitizers side by side, each with the same deadline."""
    results = side_by_side.finish(side_by_side.start(check_commands(), out, "montecarlo_"), seconds, 20)
    if any(entry["exit"] != 0 for entry in results.values()):
        raise RuntimeError(str(results))
    return results


def driver():
    """Every payoff and method once, small: what the sanitizers watch."""
    market = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
    barrier = {"barrier": 130.0, "knock": "up-and-out", "n_steps": 3, **market}
    options = [
        European(**market),
        European(kind="put", n_steps=2, **market),
        AsianArithmetic(n_steps=3, **market),
    ]
    barriers = [Barrier(**barrier), Barrier(monitoring="continuous", **barrier)]
    count = 0
    for precision in measure.PRECISIONS:
        for method in ({}, {"antithetic": True, "control_variate": True}, {"sobol": True, "replicates": 16}):
            n = 16 * 1024 if method.get("sobol") else 70 * 16384 + 500
            for group in (options[:1], options, barriers):
                price(group, n, device="cuda", precision=precision, **method)
                count += 1
            price(options, n, device="cuda", precision=precision, greeks=True, **method)
    print(f"driver: {count} groups priced")


def profile(precision):
    ours = measure.Ours(precision)
    for _ in range(2):
        ours.launch(1 << 30)
    import cupy

    cupy.cuda.runtime.deviceSynchronize()


def profile_sweep():
    """One launch of every K of 128 lanes, in both precisions, for the counters of instructions."""
    import cupy

    for precision in measure.PRECISIONS:
        for lanes, sweeps, _ in measure.variants(precision):
            if lanes == 128:
                measure.Ours(precision, lanes, sweeps).launch(1 << 28)
                cupy.cuda.runtime.deviceSynchronize()


METRICS = {
    "gpu__time_duration.sum": "time",
    "smsp__inst_executed.sum": "warp_instructions",
    "sm__inst_executed.avg.per_cycle_active": "ipc",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved_occupancy_percent",
    "launch__registers_per_thread": "registers",
}


def counters(out):
    """Instructions executed, instructions a cycle and occupancy of every K: one row for each launch."""
    import csv

    tool = which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [
        tool,
        "--clock-control",
        "none",
        "--target-processes",
        "all",
        "--kernel-name",
        "regex:price_paths",
    ]
    command += ["--metrics", ",".join(METRICS), "--csv", "--page", "raw"]
    command += [sys.executable, str(Path(__file__).resolve()), "--profile", "sweep"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=28, check=False, env=environment
    )
    (out / "montecarlo_ncu_sweep.csv").write_text(done.stdout + done.stderr)
    lines = done.stdout.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if done.returncode or start is None:
        raise RuntimeError((done.stdout + done.stderr)[-600:])
    rows = []
    for row in csv.DictReader(lines[start:]):
        if not row["ID"]:  # the line of units
            units = row
            continue
        found = {name: row[metric] for metric, name in METRICS.items()}
        rows.append({"kernel": row["Kernel Name"], **found, "time_unit": units["gpu__time_duration.sum"]})
    return rows


def profiled(out, precision):
    tool = which("ncu") or "/usr/local/cuda/bin/ncu"
    command = [
        tool,
        "--clock-control",
        "none",
        "--target-processes",
        "all",
        "--kernel-name",
        "regex:price_paths",
    ]
    command += ["--launch-skip", "1", "--launch-count", "1", "--print-details", "all"]
    for section in SECTIONS:
        command += ["--section", section]
    command += [sys.executable, str(Path(__file__).resolve()), "--profile", precision]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=28, check=False, env=environment
    )
    text = done.stdout + done.stderr
    (out / f"montecarlo_ncu_{precision}.txt").write_text(text)
    if done.returncode:
        raise RuntimeError(text[-600:])
    wanted = (
        "Executed Ipc Active",
        "Issue Slots Busy",
        "Registers Per",
        "Achieved Occupancy",
        "SM Busy",
        "Executed Instructions ",
    )
    return [" ".join(line.split()) for line in text.splitlines() if any(word in line for word in wanted)]


def time_phase(outcome, out):
    from warpfront.backend import capability
    from warpfront.bench.record import write

    names = [name for precision in measure.PRECISIONS for *_, name in measure.variants(precision)]
    arch = capability.probe(0).arch
    outcome.section(
        "build", 40, lambda: measure.compile_all([(name, arch, "nvrtc") for name in names], WORKERS)
    )

    def peers(precision, n):
        samples, notes, means = measure.peers(precision, n)
        return {"n": n, "samples": samples, "notes": notes, "means": means}

    outcome.section("peers float32", 60, lambda: peers("float32", 1 << 28))
    outcome.section("sweep float32", 30, lambda: measure.sweep("float32", 1 << 32))
    outcome.section("sweep float64", 30, lambda: measure.sweep("float64", 1 << 31))
    outcome.section("peers float64", 45, lambda: peers("float64", 1 << 27))
    outcome.section("record", 20, lambda: str(write(record_of(outcome.data), out / "montecarlo.json")))
    outcome.section("methods", 40, measure.methods)
    outcome.section("float32 error", 30, measure.float32_error)
    for precision in measure.PRECISIONS:
        outcome.section(f"sizes {precision}", 20, lambda p=precision: measure.sizes(p))
        outcome.section(f"waves {precision}", 20, lambda p=precision: measure.waves(p, 1 << 31))
    outcome.section("counters", 30, lambda: counters(out))
    for precision in measure.PRECISIONS:
        if perf_counter() - STARTED < 75:
            outcome.section(f"profile {precision}", 30, lambda p=precision: profiled(out, p))


def dry_run(out):
    outcome = Outcome(out, "dry")
    names = [name for precision in measure.PRECISIONS for *_, name in measure.variants(precision)]
    outcome.section("build", 300, lambda: measure.compile_all([(n, "sm_90", "nvrtc") for n in names], 2))
    bad = [entry for entry in outcome.data["build"] if "error" in entry]
    for precision in measure.PRECISIONS:
        outcome.data[f"peers {precision}"] = {
            "n": 1 << 28,
            "samples": {"warpfront": [0.01, 0.02], "torch": [0.1]},
            "notes": {"torch first call s": 1.0, "cupy": "no"},
            "means": {"warpfront": 10.45, "torch": 10.45},
        }
        outcome.data[f"sweep {precision}"] = [
            {"K": 4 * s, "lanes": l, "gpaths_per_s": s, "registers": 3, "occupancy": 0.5, "z": 0.0}
            for l, s, _ in measure.variants(precision)
        ]
        outcome.data[f"sizes {precision}"] = {20: 1.0}
    print(summary(outcome.data))
    for entry in bad:
        print("BAD", entry)
    return int(bool(bad or outcome.failed))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--profile", choices=(*measure.PRECISIONS, "sweep"))
    options = parser.parse_args()
    if options.driver or options.profile:
        if options.profile == "sweep":
            profile_sweep()
        else:
            driver() if options.driver else profile(options.profile)
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    if options.dry:
        return dry_run(options.out)
    outcome = Outcome(options.out, options.phase)
    if options.phase == "check":
        from warpfront.backend import capability

        outcome.section("builds", 90, lambda: builds(capability.probe(0).arch))
        outcome.section("checks", 140, lambda: run_checks(options.out, 125))
    else:
        time_phase(outcome, options.out)
        text = summary(outcome.data)
        (options.out / "montecarlo.txt").write_text(text + "\n")
        print(text)
    print("failed: " + (", ".join(outcome.failed) or "nothing"))
    return int(bool(outcome.failed))


if __name__ == "__main__":
    sys.exit(main())
