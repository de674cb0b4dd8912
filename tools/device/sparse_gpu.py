"""Prove and measure the sparse solver on a GPU.

    PYTHONPATH=src python3 tools/device/sparse_gpu.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/sparse_gpu.py --phase time --out "$OUT"

check: builds every kernel, then runs the sections below side by side, each in a process of its own with a time limit.
time: alone on the GPU, beside cuDSS where its library lies (``--cudss``). Records go to ``--out``; a table comes last.
``--section NAME`` runs one section in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
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

import numpy as np  # noqa: E402
from sparse_gpu_cases import carried, carried_names, errors, grid_kkt, laplacian  # noqa: E402

RESULTS = []


def note(**facts):
    RESULTS.append(facts)
    print(
        " ".join(f"{k}={v:.2e}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()), flush=True
    )


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


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

    jobs = {(file, name, arch) for t in types for file, names in of_type(t) for name in names}
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


# ------------------------------------------------------------------ sections


def solver(a, structure, **more):
    from warpfront import DirectSolver

    return DirectSolver(a, structure=structure, device="cuda", **{"reordering_alg": "amd", **more})


def one(name, a, structure, limit=1e-12, **more):
    """Factor, solve one and six right-hand sides, judge by SciPy alone."""
    rng = np.random.default_rng(0)
    s = solver(a, structure, check="status", **more)
    b = a @ np.ones(a.shape[0])
    many = a @ rng.standard_normal((a.shape[0], 6))
    x, xs = s.solve(b), s.solve(many)
    s.solve(b)
    norm, component = errors(a, x, b)
    note(
        case=name, structure=structure, n=a.shape[0], status=str(s.status), normwise=norm, componentwise=component,
        many=errors(a, xs, many)[1], steps=s.report.solve.refinement_steps, inertia=tuple(s.inertia),
        pivots=tuple(s.pivot_stats), front=s.report.analysis.max_front,
    )  # fmt: skip
    expect(component <= limit, f"{name}: componentwise {component}")
    expect(np.array_equal(s.solve(many[:, 1]), xs[:, 1]), f"{name}: a column's bits depend on its neighbours")
    return s


def section_spd():
    one("lap2d_60", laplacian(60, 60), "SPD")
    one("lap3d_18", laplacian(18, 18, 18), "SPD")
    one("lap3d_30", laplacian(30, 30, 30), "SPD")
    one("dense_300", laplacian(300).toarray() + 0.01, "SPD")
    for k in (1, 2, 31, 32, 33, 64, 65):
        one(f"chain_{k}", laplacian(k) if k > 1 else laplacian(2)[:1, :1], "SPD")
    for name in carried_names("_K1_it10"):
        one(name, carried(name), "SPD")


def section_symmetric():
    one("grid_kkt_40", grid_kkt(40), "S")
    one("lap3d_18", laplacian(18, 18, 18), "S")
    one("lap2d_60", laplacian(60, 60), "S")
    rng = np.random.default_rng(1)
    for n in (20, 100, 200, 700):
        m = rng.standard_normal((n, n))
        m = m + m.T
        s = one(f"random_{n}", m, "S")
        w = np.linalg.eigvalsh(m)
        expect(
            tuple(s.inertia) == (int((w > 0).sum()), int((w < 0).sum()), 0), "inertia is not the eigenvalues'"
        )
    for name in (*carried_names("case14_"), *carried_names("case118_"), *carried_names("case1354_")):
        if "_K1_" not in name:
            try:
                one(name, carried(name), "S")
            except AssertionError as error:
                note(case=name, missed=str(error))


def hashes(s):
    import hashlib

    r = s._factor.runner.buffers
    return [hashlib.sha256(r[k].get().tobytes()).hexdigest()[:16] for k in ("diagonal", "pivots", "panels")]


def section_repeat():
    """20 refactorisations; the panels' padding is never written, so it is equal too."""
    import cupy

    for name, a, structure in (
        ("lap3d_24", laplacian(24, 24, 24), "SPD"), ("lap3d_24", laplacian(24, 24, 24), "S"),
        ("grid_kkt_40", grid_kkt(40), "S"), ("lap2d_150", laplacian(150, 150), "SPD"),
    ):  # fmt: skip
        s = solver(a, structure, check="status")
        b = np.random.default_rng(0).standard_normal((a.shape[0], 5))
        s.factorize()
        first, x = hashes(s), s.solve(b)
        values = cupy.asarray(a.data)
        for k in range(20):
            s.refactorize(values if k % 2 else a.data)
            expect(hashes(s) == first, f"{name} {structure}: factor differs in repeat {k}")
            expect(np.array_equal(s.solve(b), x), f"{name} {structure}: solution differs in repeat {k}")
        s.refactorize(a.data * 1.5)
        expect(hashes(s) != first, "new values, same factor")
        s.refactorize(a.data)
        expect(hashes(s) == first, f"{name}: old -> new -> old")
        note(case=name, structure=structure, bitwise="equal over 20")


def section_capture():
    import cupy

    a = laplacian(40, 40)
    s, t = solver(a, "SPD", check="status"), solver(grid_kkt(20), "S", check="status")
    b, c = cupy.asarray(a @ np.ones(a.shape[0])), cupy.ones(t._system.pattern.n_cols)
    values = cupy.asarray(a.data)
    s.analyze().refactorize(values)
    x = s.solve(b)
    y = t.solve(c)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(10):
        with streams[0]:
            s.refactorize(values)
            x1 = s.solve(b)
        with streams[1]:
            y1 = t.solve(c)
    cupy.cuda.runtime.deviceSynchronize()
    expect(bool((x1 == x).all()) and bool((y1 == y).all()), "two solvers at once")
    stream, out = cupy.cuda.Stream(non_blocking=True), cupy.empty_like(b)
    with stream:
        s.refactorize(values)
        s.solve(b, out=out)
        stream.synchronize()
        stream.begin_capture()
        s.refactorize(values)
        s.solve(b, out=out)
        graph = stream.end_capture()
        out[...] = 0
        graph.launch(stream)
        stream.synchronize()
    expect(bool((out == x).all()), "captured into a caller's graph")
    note(case="streams and capture", ok=True)


def section_float32():
    import cupy

    from warpfront.sparse.gpu.engine import GpuFactor
    from warpfront.sparse.gpu.steps import Tolerances

    rough = Tolerances(zero=1e-6, doubt=1e-5, epsilon=1e-4)

    for name, a, pivoting in (
        ("lap3d_18", laplacian(18, 18, 18), False),
        ("grid_kkt_20", grid_kkt(20), True),
    ):
        s = solver(a, "S" if pivoting else "SPD")
        s.analyze()
        f = GpuFactor(
            s._symbolic, pivoting=pivoting, scaled=pivoting, dtype=np.float32, tolerances=rough,
            device=0,
        )  # fmt: skip
        f.refactorize(s._values.astype(np.float32), canonical=True)
        b = (a @ np.ones(a.shape[0])).astype(np.float32)
        x = f.solve(cupy.asarray(b), 2).get().astype(float)
        norm, component = errors(a, x, b.astype(float))
        note(case=name, dtype="float32", normwise=norm, componentwise=component, status=str(f.status))
        expect(norm < 1e-6, "float32 backward error")


def section_parity():
    """The CPU's factor with the same rule on the same tree, where every front is searched whole."""
    from warpfront import DirectSolver
    from warpfront.sparse.gpu import facade

    facade.regroup = lambda symbolic, **_: symbolic
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((150, 150))
    cases = {"lap3d_9": laplacian(9, 9, 9), "grid_kkt_12": grid_kkt(12), "dense_150": dense + dense.T}
    cases |= {name: carried(name) for name in carried_names("case118_ieee_K2")}
    for name, a in cases.items():
        gpu = solver(a, "S", check="status", scaling="none", pivot_threshold=0.01).factorize()
        cpu = DirectSolver(
            a, structure="S", reordering_alg="amd", scaling="none", on_unstable="perturb", check="status"
        )
        cpu.factorize()
        n, state = a.shape[0], cpu._factor.state
        d = gpu._factor.runner.buffers["diagonal"].get()[: 2 * n]
        kinds = gpu._factor.runner.buffers["pivots"].get()[1 : 2 * n : 2]
        size = np.abs(state.diagonal[: 2 * n])
        note(
            case=name, front=gpu.report.analysis.max_front, inertia_gpu=tuple(gpu.inertia), inertia_cpu=tuple(cpu.inertia),
            kinds_differ=int((kinds != state.kind[:n]).sum()), pivots_gpu=tuple(gpu.pivot_stats),
            pivots_cpu=tuple(cpu.pivot_stats),
            difference=float((np.abs(d - state.diagonal[: 2 * n]) / np.maximum(size, 1e-300)).max()),
        )  # fmt: skip
        expect(tuple(gpu.inertia) == tuple(cpu.inertia), f"{name}: inertia differs from the CPU's")


def section_driver():
    """Small run for compute-sanitizer: every kernel, strips and tiles included, no library kernel in between."""
    from warpfront.sparse.gpu import schedule

    plan = schedule.make_plan
    for rows, chunk in ((160, 512), (32, 64)):
        schedule.make_plan.__kwdefaults__.update(small_rows=rows, chunk=chunk)
        for a, structure in ((laplacian(8, 8, 8), "SPD"), (grid_kkt(14), "S")):
            s = solver(a, structure, check="status")
            b = a @ np.ones((a.shape[0], 5))
            x = s.solve(b)
            component = errors(a, x, b)[1]
            note(case=structure, rows=rows, componentwise=component)
            expect(component <= 1e-13, "driver: componentwise error")
    expect(plan is schedule.make_plan, "plan")


def section_smoke():
    """Does the shortest thing that every measurement needs; run apart before measuring, since a kernel could hang."""
    one("grid_kkt_30", grid_kkt(30), "S")
    one("lap2d_40", laplacian(40, 40), "SPD")
    for name in carried_names("case118_ieee_K2_it10"):
        one(name, carried(name), "S")


def sections():
    return {name[8:]: f for name, f in globals().items() if name.startswith("section_")}


# ------------------------------------------------------------------ phases


def start(command, log):
    handle = log.open("w")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "CUPY_CACHE_IN_MEMORY": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    return subprocess.Popen(
        command, cwd=ROOT, stdout=handle, stderr=subprocess.STDOUT, env=environment, start_new_session=True
    )


def finish(process, seconds):
    try:
        return process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the process and what it started: it leads its own group
        return "timeout"


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
    running = {n: start(c, out / f"{n}.log") for n, c in commands.items()}
    deadline, failed = begun + limit, []
    for name, process in running.items():
        code = finish(process, deadline - perf_counter())
        lines = (out / f"{name}.log").read_text(errors="replace").strip().splitlines() or [""]
        print(f"{name:10s} exit {code}: {lines[-1][:160]}", flush=True)
        if code not in (0, 5):
            failed.append(name)
            print("\n".join("    " + line[:200] for line in lines[-14:]), flush=True)
        (out / "check.json").write_text(json.dumps({"failed": failed}))
    print(f"check took {perf_counter() - begun:.0f} s; failed: {failed or 'none'}")
    return 1 if failed or any("error" in b for b in built) else 0


def run_section(name, out):
    out.mkdir(parents=True, exist_ok=True)
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
        return check(args.out, args.limit)
    smoke = start(
        [sys.executable, str(Path(__file__).resolve()), "--section", "smoke", "--out", str(args.out)], args.out / "smoke.log"
    )  # fmt: skip
    if finish(smoke, 40.0) != 0:
        from warpfront.sparse.gpu import schedule

        print("smoke failed: solves level by level", (args.out / "smoke.log").read_text()[-1500:], flush=True)
        schedule.make_plan.__kwdefaults__["one_launch"] = False
    from sparse_gpu_time import measure

    return measure(args.out, args.cudss, args.limit)


if __name__ == "__main__":
    sys.exit(main())
