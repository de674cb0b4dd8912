"""Prove and measure the batched solvers on a GPU.

    PYTHONPATH=src python3 tools/device/batched.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/batched.py --phase time --out "$OUT"

``check`` builds every kernel the measurement needs, runs the device tests, compute-sanitizer's four tools over
``--driver``, and the driver with nvcc's kernels; it may share the GPU. ``time`` wants it alone. Everything goes to
``--out`` as JSON and logs; a short table comes last. ``--dry`` walks through ``time`` without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import signal
import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "batched")]

from batched_measure import Bench, DryBench  # noqa: E402
from batched_record import write_record  # noqa: E402
from batched_variants import COUNTERS, PROFILED, STALL, STALLS, builds, source_digest  # noqa: E402

from warpfront.backend import compile as compiling  # noqa: E402
from warpfront.batched import _batched_cuda as plans  # noqa: E402

CHECKS = ("memcheck", "racecheck", "synccheck", "initcheck")
DRIVER_SIZES = [(1, 1), (2, 3), (8, 8), (9, 1), (17, 2), (32, 1), (32, 8)]


def compile_one(job):
    source, expression, registers, compiler = job
    options = compiling.CompileOptions(fma=False, max_registers=registers)
    entry = {"expression": expression, "registers_cap": registers, "compiler": compiler}
    try:
        built = compiling.build(source, (expression,), "sm_90", options=options, compiler=compiler)
    except Exception as error:
        return {**entry, "error": f"{type(error).__name__}: {str(error)[:600]}"}
    r = built.resources[expression]
    spills = r.spill_store_bytes + r.spill_load_bytes
    return {
        **entry,
        "seconds": built.seconds,
        "cached": built.cached,
        "registers": r.registers,
        "spills": spills,
    }


def driver_plans(variants, compiler="nvrtc"):
    for method in plans.METHODS:
        for dtype in plans.DTYPES:
            for n, nrhs in DRIVER_SIZES if compiler == "nvrtc" else DRIVER_SIZES[1::2]:
                for variant in variants:
                    yield plans.BatchedProblem(method, n, nrhs, 12, dtype), variant


def build_all(jobs, seconds=60.0):
    """Compile in parallel; what has not begun when the time is over is left out."""
    started = perf_counter()
    jobs = sorted(set(jobs), key=str)
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(compile_one, job) for job in jobs]
        wait(waiting, seconds)
        pool.shutdown(cancel_futures=True)
    done = [future.result() for future in waiting if not future.cancelled()]
    if len(done) < len(jobs):
        print(f"out of time: {len(jobs) - len(done)} not built", flush=True)
    bad = [entry for entry in done if "error" in entry]
    slow = max((entry.get("seconds", 0) for entry in done), default=0)
    spilt = [entry for entry in done if entry.get("spills") and not entry["registers_cap"]]
    print(
        f"built {len(done)} in {perf_counter() - started:.0f} s, slowest {slow:.1f} s, {len(bad)} failed",
        flush=True,
    )
    for entry in bad[:5] + spilt[:5]:
        print("  NOTE", entry, flush=True)
    return done


def driver(compiler, variants):
    """Every kernel on awkward systems, each array an allocation of its own; results against the reference."""
    import cupy
    import numpy as np
    from batched_systems import awkward, right

    from warpfront.backend import cuda
    from warpfront.batched import _reference

    cupy.cuda.set_allocator(None)
    checked = 0
    for problem, variant in driver_plans(variants, compiler):
        dtype = np.dtype(problem.dtype).type
        a, _ = awkward(problem.method, problem.n, dtype)
        b = right(len(a), problem.n, problem.nrhs, dtype)
        rtol = 64 * float(np.finfo(dtype).eps)
        if problem.method == "cholesky":
            want, numbers = _reference.cholesky_serial(a, b, 0.0, rtol, 0.0), (0.0, rtol, 0.0)
        else:
            want, numbers = _reference.lu_serial(a, b), ()
        made = plans.plan(problem, variant)
        kernel = cuda.load(made.source, made.expression, made.signature, 0, plans.OPTIONS, compiler)
        device = [cupy.asarray(x) for x in (a, b)] + [cupy.asarray(np.empty_like(want[k])) for k in (1, 0)]
        device += [cupy.asarray(np.empty_like(w)) for w in want[2:]]
        stream = cupy.cuda.get_current_stream().ptr
        kernel.launch(
            stream, made.blocks, made.threads, (*[x.data.ptr for x in device], *made.tail, *numbers)
        )
        got = [device[3], device[2], *device[4:]]
        for g, w in zip(got, want, strict=True):
            if cupy.asnumpy(g).tobytes() != np.ascontiguousarray(w).tobytes():
                raise SystemExit(f"{compiler} {made.expression}: differs from the reference")
        checked += 1
    print(f"{checked} launches of {compiler}'s kernels equal the reference", flush=True)


def start(commands, out):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUPY_CACHE_IN_MEMORY": "1"}
    running = {}
    for name, command in commands.items():
        log = (out / f"{name}.log").open("w")
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        running[name] = (process, log)
    return running


def profiler(this):
    tool = which("ncu") or "/usr/local/cuda/bin/ncu"
    metrics = [*COUNTERS, *(STALL.format(reason) for reason in STALLS)]
    command = [tool, "--clock-control", "none", "--csv", "--page", "raw", "-k", "regex:cholesky_|lu_"]
    command += ["--metrics", ",".join(metrics), *this[:2], "--profile"]
    return {"profile": command} if Path(tool).is_file() else {}


def profiled(log):
    """Print and return the profiler's counters and the stalls above a fifth of a warp, one line a kernel."""
    lines = (
        [line for line in log.read_text(errors="replace").splitlines() if line.startswith('"')]
        if log.is_file()
        else []
    )
    rows = []
    for row, what in zip(list(csv.DictReader(lines))[1:], PROFILED, strict=False):
        found = {short: row[name] for name, short in COUNTERS.items() if row.get(name)}
        stalls = {reason: row.get(STALL.format(reason)) or "0" for reason in STALLS}
        stalls = {reason: value for reason, value in stalls.items() if float(value.replace(",", "")) > 0.2}
        rows.append({"kernel": " ".join(map(str, what)), "counters": found, "stalls": stalls})
        print(rows[-1]["kernel"], found, "stalls", stalls, flush=True)
    return rows


def finish(running, out, seconds):
    deadline, results = perf_counter() + seconds, {}
    for name, (process, log) in running.items():
        try:
            code = process.wait(max(1.0, deadline - perf_counter()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the process and what it started: it leads its own group
            code = "timeout"
        log.close()
        lines = (out / f"{name}.log").read_text(errors="replace").strip().splitlines() or [""]
        results[name] = {"exit": code, "last": lines[-1][:200]}
        print(f"{name:10s} exit {code}: {lines[-1][:130]}", flush=True)
        if code != 0:
            print("\n".join("    " + line[:160] for line in lines[-14:]), flush=True)
    return results


def jobs_of(compiler, variants):
    made = (plans.plan(*problem) for problem in driver_plans(variants, compiler))
    return [(p.source, p.expression, None, compiler) for p in made]


def jobs_of_tests(variants):
    """What the device tests compile one after the other; here, all at once."""
    from batched_backends import Simt

    problems = [
        (plans.BatchedProblem(method, n, nrhs, 12, dtype), variant)
        for method in plans.METHODS
        for dtype in plans.DTYPES
        for n, nrhs in [*Simt.sizes, (16, 2)]
        for variant in variants
    ]
    return [(p.source, p.expression, None, "nvrtc") for p in (plans.plan(*problem) for problem in problems)]


def check(out, quick, variants, seconds=160.0):
    """Everything that may share the GPU. Quick: builds, the driver and the profiler only.

    Variants: which kernels are driven and tested, all or those that changed since they were.
    """
    begin = perf_counter()

    def left(until):
        return max(1.0, until * seconds / 160 - (perf_counter() - begin))

    record = {"phase": "check", "source": source_digest(), "variants": variants}
    this = [sys.executable, str(Path(__file__).resolve()), "--variants", *variants, "--driver"]
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "cuda and not slow", "-W", "default"]
    tests += ["-p", "no:cacheprovider", "tests/batched"]
    if len(variants) < len(plans.VARIANTS):
        tests += ["-k", " or ".join(["short_forms", *variants])]
    tool = which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    record["builds"] = build_all(jobs_of("nvrtc", variants), left(60))
    running = start({"driver": this} if quick else {"pytest": tests, "driver": this}, out)
    if Path(tool).is_file() and not quick:
        options = ("--error-exitcode", "1", "--target-processes", "all")
        api = {"memcheck": ("--report-api-errors", "no")}
        running |= start({k: [tool, "--tool", k, *options, *api.get(k, ()), *this] for k in CHECKS}, out)
        record["builds"] += build_all(jobs_of_tests(variants), left(100))
    record["builds"] += build_all(builds(), left(130))
    running |= start(profiler(this), out)
    if which("nvcc") and not quick and left(125) > 15:
        record["builds"] += build_all(jobs_of("nvcc", variants), left(125))
        running |= start({"nvcc": [*this, "--compiler", "nvcc"]}, out)
    record["checks"] = finish(running, out, left(160))
    record["profile"] = profiled(out / "profile.log")
    (out / "batched_check.json").write_text(json.dumps(record, indent=1))
    errors = [b for b in record["builds"] if "error" in b]
    # Where the profiler may not read counters, that is no finding about a kernel.
    return not errors and all(c["exit"] == 0 for k, c in record["checks"].items() if k != "profile")


def measure(out, dry, deadline, only):
    bench = DryBench() if dry else Bench()
    record = {"phase": "time", "device": bench.device(), "source": source_digest(), "sections": {}}
    if not dry:  # what the check has not built, as far as a few seconds go
        done = build_all(builds(), 12.0)
        bench.built = {entry["expression"] for entry in done if "error" not in entry}
    good = True
    for name, section in bench.sections():
        if name != "copy" and not re.search(only, name):
            continue
        if perf_counter() > deadline:
            record["sections"][name] = {"skipped": "out of time"}
            continue
        try:
            record["sections"][name] = section(deadline)
        except Exception:
            good = False
            record["sections"][name] = {"error": traceback.format_exc()[-2000:]}
            print(record["sections"][name]["error"], flush=True)
        (out / "batched_time.json").write_text(json.dumps(record))
    print(bench.summary(record), flush=True)
    if not dry:
        write_record(record, out)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seconds", type=float, help="default: 160 for check, 55 for time")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--only", default="", help="sections whose name this regular expression finds")
    parser.add_argument("--quick", action="store_true", help="check: no tests, sanitizers, nvcc")
    parser.add_argument("--variants", nargs="+", choices=plans.VARIANTS, default=list(plans.VARIANTS))
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--compiler", default="nvrtc")
    given = parser.parse_args()
    if given.driver:
        driver(given.compiler, given.variants)
        return 0
    if given.profile:
        Bench().profile()
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    begin = perf_counter()
    good = (
        check(given.out, given.quick, given.variants, given.seconds or 160.0)
        if given.phase == "check"
        else measure(given.out, given.dry, begin + (given.seconds or 55.0), given.only)
    )
    print(f"{given.phase}: {'ok' if good else 'FAILED'} in {perf_counter() - begin:.0f} s", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
