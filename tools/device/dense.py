"""Prove and measure the dense room on a GPU. Run from the repository's root on a machine with a GPU:

    PYTHONPATH=src python3 tools/device/dense.py --phase check --out "$OUT"   # others may use the GPU meanwhile
    PYTHONPATH=src python3 tools/device/dense.py --phase time --out "$OUT"    # alone on the GPU
    PYTHONPATH=src python3 tools/device/dense.py --phase compare --out "$OUT" # alone: where time goes, and variants

check: the device tests and compute-sanitizer's four tools over the own kernels. time: records ``dense_gpu.json``
(torch and CuPy beside; wall time with synchronisation, since a status is read back) and ``dense_mixed_gpu.json``.
Each section may fail by itself; the exit code then is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from shutil import which
from tempfile import gettempdir
from time import perf_counter

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from warpfront.bench.collect import collected, gpu_record, refused  # noqa: E402
from warpfront.bench.record import Row, write  # noqa: E402

SOLVES = "test_solve_inverse_and_determinant"
TESTS = {
    "solves f": ("tests/dense/test_linalg.py", "-k", f"{SOLVES} and float"),
    "solves c": ("tests/dense/test_linalg.py", "-k", f"{SOLVES} and complex"),
    "others": ("tests/dense/test_linalg.py", "-k", f"not {SOLVES}"),
    "overflow": ("tests/dense/test_overflow.py",),
    "panels": ("tests/dense/test_lu_panel.py",),
    "profile": ("tests/bench/test_profile.py",),
    "products": ("tests/sparse/test_products.py",),
}
STARTED = perf_counter()


def checks(out, seconds):
    """Build everything side by side; then the device tests in several processes and the sanitizers, together."""
    python, quiet = sys.executable, ["-W", "default", "-p", "no:cacheprovider"]
    # CuPy's own kernels are compiled once for all processes: most of the time of a test on a fresh machine.
    cache = Path(gettempdir()) / "warpfront-cupy-kernels"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUPY_CACHE_DIR": str(cache)}
    build_all()
    print(f"[{perf_counter() - STARTED:.0f} s] built", flush=True)
    place = Path("/usr/local/cuda/bin/compute-sanitizer")
    tool = which("compute-sanitizer") or (str(place) if place.is_file() else None)
    chains = [[], []]  # two sanitizers at a time: the GPU is shared among all processes
    if tool:
        for k, check in enumerate(("racecheck", "memcheck", "synccheck", "initcheck")):
            silent = ["--report-api-errors", "no"] if check == "memcheck" else []
            command = [tool, "--tool", check, "--error-exitcode", "1", *silent, "--target-processes", "all"]
            chains[k % 2].append((check, [*command, python, str(Path(__file__).resolve()), "--driver"]))
    jobs = [*chains]
    for name, (path, *more) in TESTS.items():
        marks = ["-m", "cuda and not slow"]
        jobs.append([(name, [python, "-m", "pytest", "-q", *marks, *quiet, str(ROOT / path), *more])])

    def run(chain):
        return [(name, run_one(name, command, out, environment, seconds)) for name, command in chain]

    bad = []
    with ThreadPoolExecutor(len(jobs)) as pool:
        for results in pool.map(run, jobs):
            bad += [name for name, code in results if code != 0]
    if bad:
        raise AssertionError(f"failed: {bad}")


def run_one(name, command, out, environment, seconds):
    """Run one command until the checks' time is over; print its end, and more of it where it failed."""
    log = out / f"{name.replace(' ', '_')}.log"
    with log.open("w") as sink:
        process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, env=environment)
        try:
            code = process.wait(max(1, seconds - (perf_counter() - STARTED)))
        except subprocess.TimeoutExpired:
            process.kill()
            code = "timeout"
    lines = log.read_text(errors="replace").strip().splitlines()
    text = f"{name:10s} exit {code} at {perf_counter() - STARTED:.0f} s: {(lines or [''])[-1][:140]}"
    if code != 0:
        text += "\n" + "\n".join("    " + line[:220] for line in lines[-25:])
    print(text, flush=True)
    return code


def build_one(job):
    """Compile one kernel into the disk cache."""
    from warpfront.backend import compile

    path, expression, arch, options = job
    compile.build(path, (expression,), arch, options=options)


def build_all():
    """Compile the room's kernels in a pool of processes: what they take one after another is most of a first call."""
    from multiprocessing import get_context

    from warpfront.backend import capability
    from warpfront.dense import _lu_panel_cuda as panels
    from warpfront.dense import _lu_small_cuda as small
    from warpfront.sparse import _product_cuda as products

    have = capability.probe(0)
    wanted = [(entry, None) for entry in (*panels.instantiations(), *products.instantiations())]
    wanted += [(entry, small.OPTIONS) for entry in small.instantiations()]
    jobs = [(file, name, have.arch, options) for (file, names, least), options in wanted for name in names
            if least <= 10 * have.cc_major + have.cc_minor]  # fmt: skip
    with ProcessPoolExecutor(14, mp_context=get_context("spawn")) as pool:
        list(pool.map(build_one, jobs))


def driver():
    """The own kernels on small inputs, checked; no library kernel beside them."""
    import cupy

    from warpfront.dense._device_lu import factor

    for dtype in ("float32", "float64", "complex64", "complex128"):
        for n in (1, 7, 33, 64):
            a = np.random.default_rng(n).standard_normal((3, n, n)).astype(dtype)
            b = np.random.default_rng(1).standard_normal((3, n, 2)).astype(dtype)
            found = factor(cupy.asarray(a))
            x = cupy.asnumpy(found.solve(cupy.asarray(b)))
            assert np.abs(a @ x - b).max() < 1e5 * np.finfo(dtype).eps, (dtype, n)
    for dtype in ("float32", "float64"):  # panels; cuBLAS's products run between them
        a = np.random.default_rng(0).standard_normal((1, 600, 600)).astype(dtype)
        found = factor(cupy.asarray(a))
        b = cupy.ones((1, 600, 70), dtype)
        x = cupy.asnumpy(found.solve(b))
        assert np.abs(a @ x - 1).max() < 1e6 * np.finfo(dtype).eps, dtype
    from scipy.sparse import csr_array

    from warpfront.sparse.products import SparseOperator

    rng = np.random.default_rng(0)
    ptr = np.concatenate([[0], np.cumsum((rng.pareto(1.0, 3000) * 3).astype(int))])
    for dtype in ("float32", "float64", "complex128"):
        A = csr_array((np.ones(ptr[-1], dtype), rng.integers(0, 3000, ptr[-1]), ptr), shape=(3000, 3000))
        y = SparseOperator(A, "csr", "cuda").matvec(cupy.ones(3000, dtype))
        assert np.abs(cupy.asnumpy(y) - np.diff(ptr)).max() < 1e-3 * ptr[-1], dtype
    print("driver: all right")


def timed(contenders, samples):
    """Wall seconds with synchronisation, the order reversed every round; a contender that fails says why."""
    import cupy

    sync = cupy.cuda.runtime.deviceSynchronize
    taken, failed = {name: [] for name in contenders}, {}
    for name, call in contenders.items():
        try:
            for _ in range(2):
                call()
            sync()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:250]
    for k in range(samples):
        for name in contenders if k % 2 == 0 else reversed(contenders):
            if name not in failed:
                sync()
                begin = perf_counter()
                contenders[name]()
                sync()
                taken[name].append(perf_counter() - begin)
    return {name: refused("failed", failed[name]) if name in failed
            else collected(taken[name], clock="wall") for name in contenders}  # fmt: skip


def show(row):
    parts = []
    for name, found in row.contenders.items():
        parts.append(
            f"{name} {1e3 * found.median:.3f} ms"
            if found.median
            else f"{name} {found.status}: {found.detail[:60]}"
        )
    print(f"{row.operation:12s} {row.case:34s} {row.dtype:10s} " + "  ".join(parts), flush=True)


def main_figures(out, budget):
    import cupy
    import torch

    import warpfront.dense as wf

    rows = []
    rng = cupy.random.default_rng(0)
    kinds = ("float32", "float64")
    jobs = [("slogdet", 512, "float32", 1000), ("inv", 512, "float32", 1000)]
    jobs += [("inv", n, dt, 1) for n in (512, 2048, 8192) for dt in kinds]
    jobs += [("slogdet", n, dt, 1) for n in (512, 2048) for dt in kinds]
    jobs += [("solve", n, dt, 1) for n in (32, 512, 2048) for dt in kinds]
    jobs += [("solve", 64, "float64", 4096)]
    for operation, n, dtype, batch in jobs:
        if perf_counter() - STARTED > budget:
            print(f"out of time before {operation} {n} {dtype}", flush=True)
            continue
        shape = (n, n) if batch == 1 else (batch, n, n)
        a = rng.standard_normal(shape, dtype=np.dtype(dtype))
        b = cupy.ones((*shape[:-1],), dtype) if batch == 1 else cupy.ones((batch, n, 1), dtype)
        ta, tb = torch.from_dlpack(a), torch.from_dlpack(b)
        ours = {
            "inv": lambda a=a: wf.inv(a),
            "slogdet": lambda a=a: wf.slogdet(a),
            "solve": lambda a=a, b=b: wf.solve(a, b),
        }
        theirs = {"inv": lambda ta=ta: torch.linalg.inv(ta), "slogdet": lambda ta=ta: torch.linalg.slogdet(ta),
                  "solve": lambda ta=ta, tb=tb: torch.linalg.solve(ta, tb)}  # fmt: skip
        other = {"inv": lambda a=a: cupy.linalg.inv(a), "slogdet": lambda a=a: cupy.linalg.slogdet(a),
                 "solve": lambda a=a, b=b: cupy.linalg.solve(a, b)}  # fmt: skip
        contenders = {"warpfront": ours[operation], "torch": theirs[operation], "cupy": other[operation]}
        slow = batch > 100 and n > 64
        if slow:
            del contenders["cupy"]  # its loop over the batch takes three times the others
        found = timed(contenders, 5 if n >= 8192 or slow else 11)
        case = f"n={n}, {dtype}" if batch == 1 else f"{batch} x n={n}, {dtype}"
        shapes = {"n": n, "batch": batch}
        rows.append(Row(case, operation, shapes, dtype, "standard normal", 0, ["warpfront"], found))
        show(rows[-1])
        write(
            gpu_record("dense_gpu", rows, {"clock": "wall"}, packages=("torch", "cupy-cuda13x")),
            out / "dense_gpu.json",
        )
        del a, b, ta, tb
        cupy.get_default_memory_pool().free_all_blocks()


def precisions(out, budget, sizes=(512, 2048, 8192, 16384)):
    """Time and error of a solve by precision of the factorisation."""
    import cupy

    import warpfront.dense as wf

    rows, rng = [], cupy.random.default_rng(0)
    for n in sizes:
        if perf_counter() - STARTED > budget:
            print(f"out of time before precision table n={n}", flush=True)
            continue
        a = rng.standard_normal((n, n)) + 2 * n**0.5 * cupy.eye(n)
        truth = cupy.ones(n)
        b = a @ truth
        contenders = {"working": lambda a=a, b=b: wf.solve(a, b)}
        for name in ("float32", "tf32", "float16"):
            contenders[name] = lambda a=a, b=b, name=name: wf.solve(a, b, precision=name)
        found = timed(contenders, 5 if n < 16384 else 3)
        for name in contenders:
            try:
                outcome = wf.solve(a, b, precision=name, check="status")
                error = float(abs(outcome.value - truth).max())
                print(f"   n={n} {name:8s} forward {error:.1e} backward {outcome.backward_error:.1e} "
                      f"steps {outcome.refinement_steps} {outcome.status.name}", flush=True)  # fmt: skip
            except Exception as error:
                print(f"   n={n} {name}: {type(error).__name__}: {error}"[:300], flush=True)
        rows.append(
            Row(f"n={n}", "solve", {"n": n}, "float64", "normal + 2 sqrt(n) I", 0, list(contenders), found)
        )
        show(rows[-1])
        write(gpu_record("dense_mixed_gpu", rows, {"clock": "wall"}), out / "dense_mixed_gpu.json")
        del a, b
        cupy.get_default_memory_pool().free_all_blocks()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--phase", choices=("check", "compare", "time"), default="check")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")))
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--seconds", type=float, default=116, help="check: when what still runs is ended")
    options = parser.parse_args()
    if options.driver:
        driver()
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    sections = {"checks": lambda: checks(options.out, options.seconds)}
    if options.phase == "compare":
        from dense_profile import ahead, mixed_parts, stages
        from products import figures

        sections = {
            "build": build_all,
            "stages": lambda: stages(options.out),
            "products": lambda: figures(options.out, blocks=False),
            "ahead": lambda: ahead(options.out, 20),
            "mixed": lambda: mixed_parts(options.out),
            "precisions": lambda: precisions(options.out, 50, (8192, 16384, 2048)),
        }
    if options.phase == "time":
        from dense_profile import ahead, mixed_parts, profile, stages
        from products import figures

        sections = {
            "build": build_all,
            "products": lambda: figures(options.out),
            "ahead": lambda: ahead(options.out, 8),
            "stages": lambda: stages(options.out),
            "figures": lambda: main_figures(options.out, 40),
            "mixed": lambda: mixed_parts(options.out),
            "precisions": lambda: precisions(options.out, 50, (16384, 8192, 2048, 512)),
            "profile": lambda: profile(options.out, 54 - (perf_counter() - STARTED)),
        }
    failed = []
    for name, work in sections.items():
        try:
            work()
        except Exception:
            failed.append(name)
            (options.out / f"{name}.traceback.txt").write_text(traceback.format_exc())
            print(f"section {name} FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        print(f"[{perf_counter() - STARTED:.0f} s] {name}", flush=True)
    print(f"failed: {', '.join(failed) or 'nothing'}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
