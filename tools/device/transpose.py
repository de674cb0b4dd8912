"""Prove and measure transpose on a GPU. Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/transpose.py --phase check --out "$OUT"   # others may use the GPU meanwhile
    PYTHONPATH=src python3 tools/device/transpose.py --phase time --out "$OUT"    # alone on the GPU

check: every instantiation built, the compiler's raw log, the device tests, compute-sanitizer's four tools, every variant
of the tuning against CuPy's transpose. time: the tuning (``tuning.json``) and the records (``transpose.json``,
``launch.json``, for ``benchmarks/records``). Each section may fail by itself; the exit code then is 1. ``--dry``
compiles every variant for sm_90 and walks through the flow without a GPU; ``--driver`` is what compute-sanitizer runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

import side_by_side  # noqa: E402
from transpose_measure import (  # noqa: E402
    ODD,
    PORTABLE,
    SIZES,
    Bench,
    DryBench,
    Variant,
    first_round,
    least_blocks,
    policies,
    problem_for,
    tune,
)
from transpose_report import launch_record, shapes_record, summary  # noqa: E402

from warpfront.backend import compile as compiling  # noqa: E402
from warpfront.dense import _transpose_cuda as plans  # noqa: E402

TESTS = ("tests/backend", "tests/dense/test_transpose.py")
STARTED = perf_counter()


def compile_one(job):
    source, expression, arch, defines = job
    try:
        built = compiling.build(
            source, (expression,), arch, options=compiling.CompileOptions(defines=defines)
        )
    except compiling.CompileError as error:
        return {"expression": expression, "defines": dict(defines), "error": str(error)[:800]}
    found = built.resources[expression]
    return {
        "expression": expression,
        "defines": dict(defines),
        "seconds": built.seconds,
        "cached": built.cached,
        "registers": found.registers,
        "spills": found.spill_store_bytes + found.spill_load_bytes,
    }


# What is still open; --tune all has the rest.
OPEN = [(size, shape) for size in (1, 2) for shape in (ODD[0], SIZES[:1] * 2, SIZES[1:] * 2)]
OPEN += [(4, ODD[0]), (8, ODD[0])]
ALL = [(size, shape) for size in (4, 8, 1, 2, 16) for shape in (SIZES[:1] * 2, SIZES[1:] * 2, ODD[0])]


def all_jobs(arch, cases, policies_too):
    jobs = {(file, name, arch, ()) for file, names, _ in plans.instantiations() for name in names}
    for size, (m, n) in cases:
        problem = problem_for(size, m, n)
        for v in first_round(size, m != n):
            made = plans.plan(problem, v[0], tile=v[1])
            more = []
            if policies_too:
                more = [Variant((*v[:5], k)) for k in least_blocks(*v[:2])]
                if v[0] == "portable":
                    more += [Variant((*v[:3], a, b, 1)) for a, b in policies()]
            jobs |= {(made.source, made.expression, arch, w.defines) for w in (v, *more)}
    return sorted(jobs, key=str)


def build_all(arch, cases, policies_too):
    started, jobs = perf_counter(), all_jobs(arch, cases, policies_too)
    # Spawned, not forked: this process may hold a CUDA context already.
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        done = list(pool.map(compile_one, jobs, chunksize=4))
    bad = [entry for entry in done if "error" in entry]
    spilling = [entry for entry in done if entry.get("spills")]
    tuned = [entry for entry in spilling if not entry["defines"]]
    print(f"built {len(done)} instantiations for {arch} in {perf_counter() - started:.1f} s; {len(bad)} bad, "
          f"{len(spilling)} spill, {len(tuned)} of them without macros", flush=True)  # fmt: skip
    for entry in bad:
        print("  BAD", entry, flush=True)
    return done


def raw_log(arch):
    """What NVRTC says of a plain kernel: the device headers' tests once found the assembler's part missing."""
    from cuda.core import Program, ProgramOptions

    from warpfront.backend import nvrtc

    lines = [f"NVRTC {nvrtc.version()}"]
    for name, text in (("plain", "__global__ void plain(float* x) { x[0] = x[1]; }"),
                       ("pair<3>", "template <int N> __global__ void pair(float* x) { x[0] = N * x[1]; }\n"
                                   "__global__ void plain(float* x) { x[0] = x[1]; }")):  # fmt: skip
        from io import StringIO

        log = StringIO()
        options = ProgramOptions(arch=arch, std="c++17", ptxas_options=["-v"])
        Program(text, "c++", options).compile("cubin", name_expressions=(name,), logs=log)
        lines += [f"--- {name}", *log.getvalue().splitlines()]
    print("\n".join(lines), flush=True)
    return lines


# ------------------------------------------------------------------ tests and sanitizers, side by side


def check_commands():
    python = sys.executable
    # -W default: another library's deprecation warning at import must not end the run.
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
            *TESTS,
        ]
    }
    place = Path("/usr/local/cuda/bin/compute-sanitizer")
    tool = which("compute-sanitizer") or (str(place) if place.is_file() else None)
    for check in ("memcheck", "racecheck", "synccheck", "initcheck") if tool else ():
        # Libraries probe for driver entry points; a probe that fails is no finding, and memcheck alone reports it.
        quiet = ("--report-api-errors", "no") if check == "memcheck" else ()
        commands[check] = [tool, "--tool", check, "--error-exitcode", "1", *quiet, "--target-processes", "all",
                           python, str(Path(__file__).resolve()), "--driver"]  # fmt: skip
    return commands


def start_checks(out):
    """Start the device tests and the four sanitizers; return name -> (process, log file)."""
    return side_by_side.start(check_commands(), out, XLA_PYTHON_CLIENT_PREALLOCATE="false")


def driver():
    """Every kernel of the room on small and awkward sizes, checked; no library kernel runs beside them."""
    import cupy
    import numpy as np

    checked = 0
    sizes = (
        (130, 96, 1),
        (96, 257, 2),
        (65, 33, 1),
        (7, 300, 1),
        (192, 192, 1),
        (272, 144, 2),
        (301, 301, 1),
    )
    for size in plans.ELEMENT_BYTES:
        for m, n, batch in sizes:
            source = np.random.default_rng(m).integers(0, 256, (batch, m, n, size), np.uint8)
            expected = np.ascontiguousarray(source.transpose(0, 2, 1, 3))
            for path in ("portable", "sm_80", "sm_90", "in place"):
                problem = problem_for(size, m, n, batch, in_place=path == "in place")
                streamed = path in ("sm_80", "sm_90")
                if (path == "in place" and m != n) or (
                    streamed and plans.why_not_streamed(problem, whole_chunks=path == "sm_90")
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


def check_variants(bench):
    """Every tile of the tuning on an awkward size, and every policy of the tuned ones, against CuPy."""
    wrong, count = [], 0
    for size in PORTABLE:
        for m, n in ((1040, 784), (1037, 785)):
            problem, pairs = problem_for(size, m, n), bench.buffers(m * n * size)
            chosen = first_round(size, m % 16 != 0)
            chosen += [Variant(("portable", None, None, a, b, 1)) for a, b in policies()]
            for variant in chosen:
                count += 1
                try:
                    if not bench.right(problem, bench.ours(problem, variant, pairs), pairs):
                        wrong.append(f"{size} bytes {m} x {n} {variant}")
                except Exception as error:  # one variant's failure must not hide the others
                    wrong.append(f"{size} bytes {m} x {n} {variant}: {type(error).__name__}: {error}"[:300])
    print(f"{count} variants checked, wrong: {wrong or 'none'}", flush=True)
    if wrong:
        raise AssertionError(f"{len(wrong)} variants are wrong")
    return count


def timing(bench, out, seconds, jobs):
    """The tuning, most wanted first, then the records."""
    tables = []
    for size, (m, n) in jobs:
        if perf_counter() - STARTED > seconds - 18:
            print(f"out of time before tuning {size} bytes {m} x {n}", flush=True)
            continue
        found = tune(bench, size, m, n, perf_counter() + 5)
        tables.append(found)
        (out / "tuning.json").write_text(json.dumps(tables, indent=1))
        best = [e for e in found["rows"]][:6]
        print(f"{size} B {m} x {n} at {perf_counter() - STARTED:.0f} s: "
              + "; ".join(f"{100 * e['of_copy']:.1f}% {e['us']:.2f} {e['name']}" for e in best)
              + (f" FAILED {found['failed'][:2]}" if found["failed"] else ""), flush=True)  # fmt: skip
    return tables


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--tune", choices=("open", "all"), default="open")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--seconds", type=float, default=None)
    options = parser.parse_args()
    if options.driver:
        driver()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed, done = [], {}

    def section(name, work):
        try:
            done[name] = work()
        except Exception:  # a failed section must not cost the rest
            failed.append(name)
            (options.out / f"{name}.traceback.txt").write_text(traceback.format_exc())
            print(f"section {name} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        print(f"[{perf_counter() - STARTED:.0f} s] {name}", flush=True)

    arch = "sm_90" if options.dry else None
    if arch is None:
        from warpfront.backend import capability

        arch = capability.probe(0).arch
    cases = ALL if options.tune == "all" else OPEN
    section("build", lambda: build_all(arch, cases, options.phase == "time"))
    if options.phase == "check":
        section("raw_log", lambda: raw_log(arch))
        running = {} if options.dry else start_checks(options.out)
        bench = DryBench() if options.dry else Bench()
        section("variants", lambda: check_variants(bench))
        section(
            "checks",
            lambda: side_by_side.finish(running, (options.seconds or 140) - (perf_counter() - STARTED)),
        )
        failed += [name for name, found in done.get("checks", {}).items() if found["exit"] != 0]
        (options.out / "check.json").write_text(json.dumps(done, indent=1, default=str))
    else:
        bench, seconds = (DryBench() if options.dry else Bench()), options.seconds or 60
        section("tuning", lambda: timing(bench, options.out, seconds, cases))
        section("shapes", lambda: shapes_record(bench, options.out, options.dry, STARTED + seconds - 6))
        section("launch", lambda: launch_record(options.out, options.dry))
        print(summary(done), flush=True)
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
