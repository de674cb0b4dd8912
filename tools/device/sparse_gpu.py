"""Prove and measure the sparse solver on a GPU.

    PYTHONPATH=src python3 tools/device/sparse_gpu.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/sparse_gpu.py --phase time --out "$OUT"

check: builds every kernel, then runs the sections below side by side, each in a process of its own with a time limit.
time: alone on the GPU, beside cuDSS where its library lies (``--cudss``). Records go to ``--out``; a table comes last.
``--section NAME`` runs one section in this process.
"""

from __future__ import annotations

import argparse
import faulthandler
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
sys.path.insert(0, str(Path(__file__).resolve().parent))

import side_by_side  # noqa: E402
from sparse_gpu_sections import RESULTS, sections  # noqa: E402


def build_one(job):
    from warpfront.backend import compile as compiling

    source, expression, arch = job
    started = perf_counter()
    try:
        built = compiling.build(source, (expression,), arch)
    except compiling.CompileError as error:
        return {"expression": expression, "error": str(error)[:800]}
    r = built.resources[expression]
    return {
        "expression": expression, "seconds": perf_counter() - started, "registers": r.registers,
        "spills": r.spill_store_bytes, "stack": r.stack_bytes, "shared": r.shared_bytes,
    }  # fmt: skip


def build_all(arch, types=("float64", "float32")):
    from warpfront.sparse.gpu.kernels import of_type

    jobs = {
        (file, name, arch)
        for t in types
        for file, names in of_type(t)
        for name in names
        if "lu_" not in file.name
    }
    started = perf_counter()
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        done = list(pool.map(build_one, sorted(jobs, key=str)))
    bad = [entry for entry in done if "error" in entry]
    print(
        f"built {len(done)} kernels for {arch} in {perf_counter() - started:.1f} s, {len(bad)} failed",
        flush=True,
    )
    for entry in bad:
        print("  BAD", entry)
    return done


# ------------------------------------------------------------------ phases


def smoke(out, seconds):
    """The shortest section, alone."""
    command = [sys.executable, str(Path(__file__).resolve()), "--section", "smoke", "--out", str(out)]
    return side_by_side.finish(side_by_side.start({"smoke": command}, out), seconds)["smoke"]["exit"]


def check(out, limit):
    me, python = str(Path(__file__).resolve()), sys.executable
    begun = perf_counter()
    built = build_all("sm_90")
    (out / "build.json").write_text(json.dumps(built, indent=1))
    commands = {
        n: [python, me, "--section", n, "--out", str(out)] for n in sections() if n not in ("driver", "smoke")
    }
    commands["pytest"] = [
        python, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p", "no:cacheprovider",
        "--ignore-glob=*lu*", "tests/sparse_gpu",
    ]  # fmt: skip
    tool = which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for name in ("memcheck", "racecheck", "synccheck", "initcheck"):
        api = ("--report-api-errors", "no") if name == "memcheck" else ()
        commands[name] = [
            tool, "--tool", name, "--error-exitcode", "1", *api, "--target-processes", "all", python, me, "--section",
            "driver", "--out", str(out / name),
        ]  # fmt: skip
    if smoke(out, 0.7 * (begun + limit - perf_counter())) != 0:  # a hung kernel would be in everyone's way
        print("smoke failed: nothing else is started")
        return 1
    running = side_by_side.start(commands, out, PYTHONFAULTHANDLER="1")
    results = side_by_side.finish(running, begun + limit - perf_counter())
    failed = [name for name, result in results.items() if result["exit"] not in (0, 5)]
    (out / "check.json").write_text(json.dumps({"failed": failed}))
    print(f"check took {perf_counter() - begun:.0f} s; failed: {failed or 'none'}")
    return 1 if failed or any("error" in b for b in built) else 0


def run_section(name, out):
    out.mkdir(parents=True, exist_ok=True)
    faulthandler.dump_traceback_later(40.0, repeat=True)  # a hung kernel or a long compilation: the log tells
    code = 0
    try:
        sections()[name]()
    except Exception:
        traceback.print_exc()
        code = 1
    (out / f"{name}.json").write_text(json.dumps(RESULTS, indent=1, default=str))
    if any("missed" in r for r in RESULTS):
        print("missed:", [r["case"] for r in RESULTS if "missed" in r])
        code = 1
    return code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--phase", choices=("check", "time"))
    parser.add_argument("--section")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cudss", type=Path, default=ROOT / ".carry" / "libcudss.so.1")
    parser.add_argument("--limit", type=float, default=140.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.section:
        return run_section(args.section, args.out)
    if args.phase == "check":
        side_by_side.leave_on_term()  # not where a kernel is waited for: the handler would wait with it
        return check(args.out, args.limit)
    if smoke(args.out, 60.0) != 0:
        from warpfront.sparse.gpu import schedule

        print("smoke failed: solves level by level", flush=True)
        schedule.make_plan.__kwdefaults__["one_launch"] = False
    from sparse_gpu_time import measure

    return measure(args.out, args.cudss, args.limit)


if __name__ == "__main__":
    sys.exit(main())
