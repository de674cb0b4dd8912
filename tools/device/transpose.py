"""Prove and measure transpose on a GPU, in one run: device tests, sanitizers, a sweep of tiles, a record.

Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/transpose.py --out "$OUT"

Everything goes to ``--out`` as JSON and logs; a short table comes last. ``--dry`` compiles every variant for
sm_90 and walks through the flow on a machine without a GPU. ``--driver`` is the small program that
compute-sanitizer runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from transpose_measure import (  # noqa: E402
    HINTS,
    PORTABLE,
    SIZES,
    Bench,
    DryBench,
    problem_for,
    shapes,
    sweep,
    variants,
)
from transpose_report import overheads, summary  # noqa: E402

from warpfront.backend import compile as compiling  # noqa: E402
from warpfront.dense import _transpose_cuda as plans  # noqa: E402


def compile_one(job):
    source, expression, arch, defines = job
    try:
        built = compiling.build(
            source, (expression,), arch, options=compiling.CompileOptions(defines=defines)
        )
    except compiling.CompileError as error:
        return {"expression": expression, "defines": dict(defines), "error": str(error)[:800]}
    resources = built.resources[expression]
    return {
        "expression": expression,
        "defines": dict(defines),
        "seconds": built.seconds,
        "cached": built.cached,
        "registers": resources.registers,
        "spills": resources.spill_store_bytes + resources.spill_load_bytes,
    }


def all_jobs(arch):
    jobs = {(file, name, arch, ()) for file, names, _ in plans.instantiations() for name in names}
    for size in PORTABLE:
        for _, path, tile, _ in variants(size):
            made = plans.plan(problem_for(size, 4096, 4096), path, tile=tile)
            jobs |= {
                (made.source, made.expression, arch, HINTS[h])
                for h in (HINTS if path == "portable" else ("default",))
            }
    return sorted(jobs, key=str)


def build_all(arch):
    started = perf_counter()
    # Spawned, not forked: this process may hold a CUDA context already.
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        done = list(pool.map(compile_one, all_jobs(arch)))
    bad = [entry for entry in done if "error" in entry or entry["spills"]]
    print(
        f"built {len(done)} instantiations for {arch} in {perf_counter() - started:.1f} s; {len(bad)} bad",
        flush=True,
    )
    for entry in bad:
        print("  BAD", entry, flush=True)
    return done


# ------------------------------------------------------------------ tests and sanitizers, side by side


def start_checks(out):
    """Start the device tests and the four sanitizers; return name -> (process, log file)."""
    python = sys.executable
    commands = {
        "pytest": [
            # -W default: another library's deprecation warning at import must not end the run.
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
            "tests/backend",
            "tests/dense",
        ],
    }
    tool = which("compute-sanitizer") or next(
        (p for p in ("/usr/local/cuda/bin/compute-sanitizer",) if Path(p).is_file()), None
    )
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        if tool is not None:
            commands[check] = [
                tool,
                "--tool",
                check,
                "--error-exitcode",
                "1",
                # libraries probe for driver entry points; a probe that fails is no finding
                *(("--report-api-errors", "no") if check == "memcheck" else ()),
                "--target-processes",
                "all",
                python,
                str(Path(__file__).resolve()),
                "--driver",
            ]
    running = {}
    for name, command in commands.items():
        log = (out / f"{name}.log").open("w")
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "CUPY_CACHE_IN_MEMORY": "1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        running[name] = (
            subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            ),
            log,
        )
    return running


def finish_checks(running, out, seconds):
    deadline, results = perf_counter() + seconds, {}
    for name, (process, log) in running.items():
        try:
            code = process.wait(max(1.0, deadline - perf_counter()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the process and what it started: it leads its own group
            code = "timeout"
        log.close()
        text = (out / f"{name}.log").read_text(errors="replace").strip().splitlines()
        results[name] = {"exit": code, "last": text[-1:] or [""]}
        print(f"{name:10s} exit {code}: {(text or [''])[-1][:150]}", flush=True)
        if code != 0:
            print("\n".join("    " + line[:200] for line in text[-25:]), flush=True)
    return results


def driver():
    """Every kernel of the room on small and awkward sizes, checked; no library kernel runs beside them."""
    import cupy
    import numpy as np

    checked = 0
    for size in plans.ELEMENT_BYTES:
        for m, n, batch in (
            (130, 96, 1),
            (96, 257, 2),
            (65, 33, 1),
            (7, 300, 1),
            (192, 192, 1),
            (272, 144, 2),
        ):
            source = np.random.default_rng(m).integers(0, 256, (batch, m, n, size), np.uint8)
            expected = np.ascontiguousarray(source.transpose(0, 2, 1, 3))
            for path in ("portable", "sm_80", "sm_90", "in place"):
                problem = problem_for(size, m, n, batch, in_place=path == "in place")
                if path == "in place" and m != n:
                    continue
                if path in ("sm_80", "sm_90") and plans.why_not_streamed(
                    problem, whole_chunks=path == "sm_90"
                ):
                    continue
                a, b = cupy.asarray(source), cupy.cuda.alloc(source.nbytes)
                stream = cupy.cuda.get_current_stream()
                here = a.data.ptr if path == "in place" else b.ptr
                plans.launch(
                    problem, "portable" if path == "in place" else path, here, a.data.ptr, 0, stream.ptr
                )
                back = np.empty(source.nbytes, np.uint8)
                cupy.cuda.runtime.memcpy(back.ctypes.data, here, back.nbytes, 2)
                assert np.array_equal(back, expected.reshape(-1)), (size, m, n, path)
                checked += 1
    print(f"driver: {checked} launches, all right")


def dry_run():
    """Compile everything for sm_90 and walk through the flow; return the exit code."""
    built = build_all("sm_90")
    bench, far = DryBench(), perf_counter() + 1000
    record = {
        "sweep": [sweep(bench, size, SIZES[0], far) for size in PORTABLE],
        "shapes": shapes(bench),
        "overheads": {},
        "checks": {},
    }
    print(summary(record))
    print("dry run: nothing was launched, the times above are made up")
    return int(any("error" in entry or entry["spills"] for entry in built))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--seconds", type=float, default=140.0)
    options = parser.parse_args()
    if options.driver:
        driver()
        return 0
    started = perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.dry:
        return dry_run()
    from warpfront.backend import capability
    from warpfront.bench.gpu_fingerprint import gpu_fingerprint

    arch = capability.probe(0).arch
    record = {
        "fingerprint": gpu_fingerprint(0),
        "build": build_all(arch),
        "sweep": [],
        "shapes": [],
        "overheads": {},
        "checks": {},
    }
    running = start_checks(options.out)
    record["checks"] = finish_checks(running, options.out, 75.0)
    print(f"checks done at {perf_counter() - started:.0f} s", flush=True)
    bench = Bench()
    steps = [
        ("overheads", overheads),
        *((("sweep", size, side), None) for size in (4, 8, 1, 2, 16) for side in SIZES),
        ("shapes", shapes),
    ]
    for step, function in steps:
        left = options.seconds - (perf_counter() - started)
        if left < 5:
            print(f"out of time before {step}", flush=True)
            break
        try:
            if step == "overheads":
                record["overheads"] = function()
            elif step == "shapes":
                record["shapes"] = function(bench)
            else:
                record["sweep"].append(sweep(bench, step[1], step[2], perf_counter() + left / 2))
        except Exception as error:  # what was measured so far is worth keeping
            import traceback

            traceback.print_exc()
            print(f"{step}: {type(error).__name__}: {error}", flush=True)
        print(f"{step} done at {perf_counter() - started:.0f} s", flush=True)
        (options.out / "transpose.json").write_text(json.dumps(record, indent=1, default=str))
    text = summary(record)
    (options.out / "transpose.txt").write_text(text)
    print(text)
    bad = any(v["exit"] != 0 for v in record["checks"].values()) or any(e["wrong"] for e in record["sweep"])
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
