"""Prove and measure the image room on a GPU: builds, device tests, sanitizers; then timings beside peers.

Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/image.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/image.py --phase time --out "$OUT"

Every section is a process of its own with a time limit, and writes its JSON when it ends; a short table comes last.
``--dry`` walks through the flow on a machine without a GPU.
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

import side_by_side  # noqa: E402

STARTED = perf_counter()
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


def compile_one(job):
    from warpfront.backend import compile as compiling

    source, expression, arch, defines, compiler = job
    try:
        built = compiling.build(
            source,
            (expression,),
            arch,
            options=compiling.CompileOptions(defines=defines),
            compiler=compiler,
        )
    except Exception as error:  # one failed build must not hide the others
        return {"expression": expression, "error": f"{type(error).__name__}: {error}"[:600]}
    found = built.resources[expression]
    spills = found.spill_store_bytes + found.spill_load_bytes
    return {
        "expression": expression,
        "compiler": compiler,
        "defines": dict(defines),
        "seconds": built.seconds,
        "registers": found.registers,
        "spills": spills,
    }


def build(phase, arch, everything):
    """Compile what the phase needs, in parallel, into the disk cache."""
    from image_bench import variants

    from warpfront.image import _edges_cuda as plans

    if phase == "check":
        which_ones = plans.instantiations if everything else plans.subset
        jobs = [(f, n, arch, (), "nvrtc") for f, names, _ in which_ones() for n in names]
        if which("nvcc"):
            jobs += [(f, n, arch, (), "nvcc") for f, names, _ in plans.subset() for n in names]
    else:
        jobs = [(f, n, arch, (), "nvrtc") for f, names, _ in plans.subset() for n in names]
        jobs += [(plans.SOURCE, v.expression, arch, v.defines, "nvrtc") for v in variants()]
    # Spawned, not forked: this process may hold a CUDA context already.
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        done = list(pool.map(compile_one, dict.fromkeys(jobs)))
    # A variant of the tuning may spill: that is why it will lose.
    bad = [entry for entry in done if "error" in entry or (entry["spills"] and phase == "check")]
    slowest = max((entry.get("seconds", 0) for entry in done), default=0)
    print(f"built {len(done)} for {arch}, slowest {slowest:.1f} s, {len(bad)} bad", flush=True)
    for entry in bad[:8]:
        print("  BAD", entry, flush=True)
    return {"builds": done, "bad": len(bad)}


# ------------------------------------------------------------------ check: tests and sanitizers, side by side


def start_checks(out):
    """Start the device tests and the sanitizers; name -> (process, log)."""
    python, here = sys.executable, str(Path(__file__).resolve())
    # -W default: another library's deprecation warning at import must not end the run.
    commands = {
        "pytest": [
            python, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p", "no:cacheprovider", "tests/image",
        ]
    }  # fmt: skip
    tool = which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for check in TOOLS if Path(tool).is_file() else ():
        # Libraries probe for driver entry points; a probe that fails is no finding.
        quiet = ("--report-api-errors", "no") if check == "memcheck" else ()
        commands[check] = [
            tool, "--tool", check, "--error-exitcode", "1", "--target-processes", "all", *quiet, python, here,
            "--driver",
        ]  # fmt: skip
    profiler = which("ncu") or "/usr/local/cuda/bin/ncu"
    if Path(profiler).is_file():
        sections = (
            "SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy",
            "InstructionStats", "SchedulerStats", "LaunchStats", "SourceCounters",
        )  # fmt: skip
        commands["ncu"] = [
            profiler, "--clock-control", "none", "--kernel-name", "regex:image_", "--csv", "--page", "raw",
            *(word for section in sections for word in ("--section", section)),
            "--log-file", str(out / "ncu.csv"), python, str(Path(here).with_name("image_measure.py")), "profile", str(out),
        ]  # fmt: skip
    return side_by_side.start(commands, out)


def driver():
    """Every kind of kernel on small and awkward sizes, checked; no library kernel runs beside them."""
    import cupy
    import numpy as np

    from warpfront.image import _edges_cuda as plans
    from warpfront.image.layout import pixels_of
    from warpfront.image.operation import operation
    from warpfront.image.run import apply

    stream, checked = cupy.cuda.get_current_stream(), 0
    chosen = [("edges", {"sigma": 0, "threshold": 60}), ("edges", {"sigma": 5, "threshold": None, "norm": "l2"}),
              ("edges", {"threshold": 60}), ("blur", {"sigma": 1.5}), ("sobel", {}), ("gray", {})]  # fmt: skip
    for layout, shape in (("packed", (150, 277, 3)), ("packed", (2, 67, 144, 4)), ("planar", (3, 70, 131)),
                          ("gray", (65, 160)), ("packed", (1, 9, 3)), ("packed", (9, 1, 3))):  # fmt: skip
        image = np.random.default_rng(len(shape)).integers(0, 256, shape, np.uint8)
        source = cupy.asarray(image)
        pixels = pixels_of(image.shape, image.strides, layout)
        for stage, options in chosen:
            if stage == "gray" and layout == "gray":
                continue
            for border in ("clamp", "zero", "wrap") if "sigma" in options else ("reflect",):
                what = operation(stage, border=border, **options)
                expected = apply(what, image, layout, "rgb", None, "cpu", "auto")
                expected = expected if isinstance(expected, tuple) else (expected,)
                size = pixels.size * expected[0].itemsize
                outs = [cupy.cuda.alloc(size) for _ in expected]
                pitch = pixels.width * expected[0].itemsize
                steps = (pitch, pitch * pixels.height if pixels.batched else 0)
                plans.queue(what, pixels, source.data.ptr, tuple(o.ptr for o in outs), steps, 0, stream.ptr)
                for out, want in zip(outs, expected, strict=True):
                    back = np.empty_like(want)
                    cupy.cuda.runtime.memcpy(back.ctypes.data, out.ptr, back.nbytes, 2)
                    assert np.array_equal(back, want), (layout, shape, stage, border)
                    checked += 1
    print(f"driver: {checked} results, all right")


# ------------------------------------------------------------------ sections in processes of their own


def section(name, out, limit, dry):
    """Run one timed section; whatever it wrote is kept."""
    command = [sys.executable, str(Path(__file__).with_name("image_measure.py")), name, str(out)]
    begin = perf_counter()
    process = subprocess.Popen(
        [*command, *(["--dry"] if dry else [])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    )
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = "timeout"
    print(
        f"[{perf_counter() - STARTED:.0f} s] {name}: exit {code} after {perf_counter() - begin:.1f} s",
        flush=True,
    )
    return code


def libraries():
    """Which image libraries could be peers on this machine."""
    from importlib.util import find_spec

    found = [
        name
        for name in ("cv2", "torchvision", "kornia", "cvcuda", "nvidia.nvimgcodec")
        if _importable(find_spec, name)
    ]
    found += [p.name for p in sorted(Path("/usr/local/cuda/lib64").glob("libnpp*.so"))[:3]]
    return ", ".join(found) or "none"


def _importable(find_spec, name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument(
        "--all", action="store_true", help="build every instantiation, not the covering subset"
    )
    parser.add_argument("--sections", default="kernels,steps,stages,pipeline,crossover,memory")
    options = parser.parse_args()
    if options.driver:
        driver()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    arch = "sm_90"
    if not options.dry:
        from warpfront.backend import capability

        arch = capability.probe(0).arch
    failed = []
    done = {"build": build(options.phase, arch, options.all)}
    if done["build"]["bad"]:
        failed.append("build")
    (options.out / "build.json").write_text(json.dumps(done, indent=1))
    print(f"[{perf_counter() - STARTED:.0f} s] build", flush=True)
    if options.phase == "check":
        print(f"libraries here: {libraries()}", flush=True)
        if not options.dry:
            from image_report import counters

            checks = side_by_side.finish(start_checks(options.out), STARTED + 140 - perf_counter())
            # Where the profiler may not read counters, that is no finding about a kernel.
            failed += [name for name, found in checks.items() if found["exit"] != 0 and name != "ncu"]
            print(counters(options.out / "ncu.csv"), flush=True)
            (options.out / "check.json").write_text(json.dumps(checks, indent=1))
    else:
        limits = {"kernels": 22, "steps": 20, "stages": 16, "pipeline": 25, "crossover": 12, "memory": 10}
        for name in options.sections.split(","):
            if section(name, options.out, limits[name], options.dry) != 0:
                failed.append(name)
        from image_report import summary

        print(summary(options.out), flush=True)
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
