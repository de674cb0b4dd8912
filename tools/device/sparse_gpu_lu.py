"""Prove and measure the LU of general matrices on a GPU.

    PYTHONPATH=src python3 tools/device/sparse_gpu_lu.py --phase check --out "$OUT"
    PYTHONPATH=src python3 tools/device/sparse_gpu_lu.py --phase time --out "$OUT"

check: builds every kernel the LU can ask for, then runs the sections below side by side, each in a process of its own with a
time limit. time: alone on the GPU, beside cuDSS (structure G) where its library lies (``--cudss``).
``--section NAME`` runs one section in this process.
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
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).resolve().parent), str(ROOT / "tests" / "sparse")]

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
import side_by_side  # noqa: E402
from sparse_gpu_cases import carried, carried_names, errors, grid_kkt, kkt, laplacian  # noqa: E402

RESULTS = []
REPEATS = 20


def note(**facts):
    RESULTS.append(facts)
    print(
        " ".join(f"{k}={v:.2e}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()), flush=True
    )


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def convection(*dims, flow=0.6):
    """Convection and diffusion on a grid: unsymmetric values on the Laplacian's pattern."""
    parts = []
    for k, m in enumerate(dims):
        line = sp.diags([-1.0 - flow, 2.0 + flow, -1.0], [-1, 0, 1], shape=(m, m))
        term = sp.identity(1)
        for j, size in enumerate(dims):
            term = sp.kron(term, line if j == k else sp.identity(size))
        parts.append(term)
    return sum(parts[1:], parts[0]).tocsr()


def circuit(m, seed=0):
    """Modified nodal analysis of an m x m net: conductances over six decades, controlled sources, and voltage sources, whose
    rows have no diagonal entry."""
    rng = np.random.default_rng(seed)
    n = m * m
    node = np.arange(n).reshape(m, m)
    a = np.concatenate([node[:, :-1].ravel(), node[:-1].ravel()])
    b = np.concatenate([node[:, 1:].ravel(), node[1:].ravel()])
    g = 10.0 ** rng.uniform(-3, 3, a.size)
    source = rng.random(a.size) < 0.2
    rows = np.concatenate([a, b, a, b, a[source], np.arange(n)])
    cols = np.concatenate([a, b, b, a, b[source], np.arange(n)])
    values = np.concatenate([g, g, -g, -g, rng.standard_normal(source.sum()), np.full(n, 1e-6)])
    net = sp.csr_matrix((values, (rows, cols)), shape=(n, n))
    k = max(1, n // 20)
    at = rng.permutation(n)[:k]
    fixed = sp.csr_matrix((np.ones(k), (np.arange(k), at)), shape=(k, n))
    return sp.bmat([[net, fixed.T], [fixed, None]]).tocsr()


def solver(a, **more):
    from warpfront import DirectSolver

    return DirectSolver(a, **{"structure": "G", "device": "cuda", "reordering_alg": "amd", **more})


# ------------------------------------------------------------------ sections


def one(name, a, limit=1e-12, **more):
    """Factor, solve with A and its transpose for one and six right-hand sides, judge by SciPy alone."""
    a = sp.csr_matrix(a)
    rng = np.random.default_rng(0)
    s = solver(a, check="status", **more)
    many = rng.standard_normal((a.shape[0], 6))
    found = {}
    for trans, m in (("N", a), ("T", a.T.tocsr())):
        xs = s.solve(many, trans=trans)
        found[trans] = errors(m, xs, many)[1]
        expect(
            np.array_equal(s.solve(many[:, 1], trans=trans), xs[:, 1]),
            f"{name}: a column's bits depend on its neighbours",
        )
    note(
        case=name, n=a.shape[0], status=str(s.status), component=found["N"], transposed=found["T"],
        steps=s.report.solve.refinement_steps, pivots=tuple(s.pivot_stats), front=s.report.analysis.max_front,
        scaling=s.report.factor.scaling[:30],
    )  # fmt: skip
    expect(max(found.values()) <= limit, f"{name}: componentwise {found}")
    return s


def section_general():
    from general_matrices_for_tests import GENERAL, leaves_on_a_hub, saddle

    rng = np.random.default_rng(5)
    for name, build in GENERAL.items():
        for n in (5, 31, 33, 100, 300):
            one(f"{name} {n}", build(rng, n, "float64"), 1e-9 if name == "badly scaled" else 1e-12)
    one("saddle", saddle(40, 1), 1e-9)
    one("hub", leaves_on_a_hub(900, 30))
    for n in (161, 700, 1500):
        one(f"dense {n}", rng.standard_normal((n, n)))


def section_grids():
    one("convection 60 60", convection(60, 60))
    one("convection 18 18 18", convection(18, 18, 18))
    one("convection 30 30 30", convection(30, 30, 30))
    one("lap3d_24", laplacian(24, 24, 24))
    one("circuit 200", circuit(200))
    one("grid_kkt_40", grid_kkt(40))
    one("kkt 3000 1000", kkt(3000, 1000))


def section_carried():
    missed = []
    for name in carried_names():
        if "_K1_" in name or "K1u" in name:
            continue
        try:
            one(name, carried(name))
        except AssertionError as error:
            note(case=name, missed=str(error))
            missed.append(name)
    expect(not missed, f"missed: {missed}")


def hashes(s):
    import hashlib

    r = s._factor.runner.buffers
    return [hashlib.sha256(r[k].get().tobytes()).hexdigest()[:16] for k in ("diagonal", "pivots", "panels")]


def section_repeat():
    """20 refactorisations; what pads the panels is written or stays, so it is equal too."""
    import cupy

    for name, a in (
        ("convection 24 24 24", convection(24, 24, 24)), ("convection 150 150", convection(150, 150)),
        ("circuit 70", circuit(70)), ("dense 600", sp.csr_matrix(np.random.default_rng(1).standard_normal((600, 600)))),
    ):  # fmt: skip
        s = solver(a, check="status").factorize()
        b = np.random.default_rng(0).standard_normal((a.shape[0], 5))
        first, x, y = hashes(s), s.solve(b), s.solve(b, trans="T")
        values = cupy.asarray(a.data)
        for k in range(20):
            s.refactorize(values if k % 2 else a.data)
            expect(hashes(s) == first, f"{name}: factor differs in repeat {k}")
            expect(np.array_equal(s.solve(b), x), f"{name}: solution differs in repeat {k}")
            expect(
                np.array_equal(s.solve(b, trans="T"), y), f"{name}: transposed solution differs in repeat {k}"
            )
        s.refactorize(a.data * (1 + 0.5 * np.random.default_rng(2).random(a.nnz)))
        expect(hashes(s) != first, "new values, same factor")
        s.refactorize(a.data)
        expect(hashes(s) == first, f"{name}: old -> new -> old")
        note(case=name, bitwise="equal over 20")


def section_many():
    """2 to 64 right-hand sides have the bits of single ones, with A and with its transpose."""
    rng = np.random.default_rng(5)
    cases = {
        "convection 60 60": convection(60, 60), "convection 24 24 24": convection(24, 24, 24), "circuit 70": circuit(70),
        "dense 700": sp.csr_matrix(rng.standard_normal((700, 700))), "circuit 12": circuit(12),
    }  # fmt: skip
    for name, a in cases.items():
        b = rng.standard_normal((a.shape[0], 64))
        for trans, m in (("N", a), ("T", a.T.tocsr())):
            s = solver(a, check="status")
            single = np.stack([s.solve(b[:, k], trans=trans) for k in range(64)], axis=1)
            for count in (2, 5, 8, 13, 16, 32, 40, 64):
                found = s.solve(b[:, :count], trans=trans)
                expect(
                    np.array_equal(found, single[:, :count]),
                    f"{name} {trans}: bits of {count} right-hand sides",
                )
            component = errors(m, single, b)[1]
            note(case=name, trans=trans, component=component)
            expect(component <= 1e-12, f"{name}: componentwise {component}")


def section_capture():
    import cupy

    a = convection(40, 40)
    s = solver(a, check="status")
    b, values = cupy.asarray(a @ np.ones(a.shape[0])), cupy.asarray(a.data)
    s.analyze().refactorize(values)
    x, y = s.solve(b), s.solve(b, trans="T")
    stream = cupy.cuda.Stream(non_blocking=True)
    out, transposed = cupy.empty_like(b), cupy.empty_like(b)
    with stream:
        for begin in (False, True):
            if begin:
                stream.begin_capture()
            s.refactorize(values)
            s.solve(b, out=out)
            s.solve(b, trans="T", out=transposed)
            if begin:
                graph = stream.end_capture()
            else:
                stream.synchronize()
        out[...] = transposed[...] = 0
        graph.launch(stream)
        stream.synchronize()
    expect(bool((out == x).all()) and bool((transposed == y).all()), "captured into a caller's graph")
    note(case="capture", ok=True)


def section_parity():
    """The CPU's factor with the same rule where one block holds every front."""
    from warpfront import DirectSolver
    from warpfront.sparse.gpu import facade

    facade.regroup = lambda symbolic, **_: symbolic
    dense = np.random.default_rng(3).standard_normal((150, 150))
    cases = {"convection 9 9 9": convection(9, 9, 9), "circuit 17": circuit(17), "dense 150": dense}
    for name, a in cases.items():
        gpu = solver(sp.csr_matrix(a), check="status").factorize()
        cpu = DirectSolver(
            sp.csr_matrix(a), structure="G", reordering_alg="amd", block_triangular=False, on_unstable="perturb",
            check="status",
        ).factorize()  # fmt: skip
        n, state = a.shape[0], cpu._factor.state
        d = gpu._factor.runner.buffers["diagonal"].get()[: 2 * n : 2]
        theirs = state.diagonal[: 2 * n : 2]
        note(
            case=name, front=gpu.report.analysis.max_front, pivots_gpu=tuple(gpu.pivot_stats),
            pivots_cpu=tuple(cpu.pivot_stats), difference=float((np.abs(d - theirs) / np.abs(theirs)).max()),
        )  # fmt: skip
        expect(tuple(gpu.pivot_stats) == tuple(cpu.pivot_stats), f"{name}: pivots differ from the CPU's")


def section_driver():
    """Small run for compute-sanitizer: every kernel, strips and tiles included."""
    from warpfront.sparse.gpu import lu_engine
    from warpfront.sparse.gpu.lu_schedule import make_lu_plan

    for options in ({}, {"small_rows": 32, "chunk": 64}):
        lu_engine.make_lu_plan = lambda symbolic, options=options, **more: make_lu_plan(
            symbolic, **more, **options
        )
        for a in (
            convection(8, 8, 8),
            circuit(20),
            sp.csr_matrix(np.random.default_rng(1).standard_normal((150, 150))),
        ):
            s = solver(a, check="status")
            b = a @ np.ones((a.shape[0], 5))
            note(
                rows=str(options), n=a.shape[0], component=errors(a, s.solve(b), b)[1],
                transposed=errors(a.T.tocsr(), s.solve(b, trans="T"), b)[1],
            )  # fmt: skip


def sections():
    return {name[8:]: f for name, f in globals().items() if name.startswith("section_")}


# ------------------------------------------------------------------ check


def jobs(arch):
    """What an LU in float64 and float32 asks for: its own kernels, sweeps and vectors."""
    from warpfront.sparse.gpu.kernels import of_type

    files = ("solve.cu", "vectors.cu", "order.cu")
    return sorted(
        {
            (file, name, arch)
            for t in ("float64", "float32")
            for file, names in of_type(t)
            for name in names
            if file.name.startswith("lu_") or file.name in files
        },
        key=str,
    )


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


def check(out, limit):
    me, python, begun = str(Path(__file__).resolve()), sys.executable, perf_counter()
    with ProcessPoolExecutor(min(12, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        built = list(pool.map(build_one, jobs("sm_90")))
    (out / "build.json").write_text(json.dumps(built, indent=1))
    bad = [entry for entry in built if "error" in entry]
    print(
        f"built {len(built)} kernels in {perf_counter() - begun:.1f} s, {len(bad)} failed", *bad, flush=True
    )
    commands = {n: [python, me, "--section", n, "--out", str(out)] for n in sections() if n != "driver"}
    commands["pytest"] = [
        python, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p", "no:cacheprovider",
        "tests/sparse_gpu/test_gpu_lu_solver.py",
    ]  # fmt: skip
    tool = which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    for name in ("memcheck", "racecheck", "synccheck", "initcheck"):
        api = ("--report-api-errors", "no") if name == "memcheck" else ()
        commands[name] = [
            tool, "--tool", name, "--error-exitcode", "1", *api, "--target-processes", "all", python, me, "--section",
            "driver", "--out", str(out / name),
        ]  # fmt: skip
    running = side_by_side.start(commands, out)
    results = side_by_side.finish(running, begun + limit - perf_counter())
    failed = [name for name, result in results.items() if result["exit"] != 0]
    (out / "check.json").write_text(json.dumps({"failed": failed}))
    print(f"check took {perf_counter() - begun:.0f} s; failed: {failed or 'none'}")
    return 1 if failed or bad else 0


def run_section(name, out):
    out.mkdir(parents=True, exist_ok=True)
    code = 0
    try:
        sections()[name]()
    except Exception:
        traceback.print_exc()
        code = 1
    (out / f"{name}.json").write_text(json.dumps(RESULTS, indent=1, default=str))
    return code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--phase", choices=("check", "time"))
    parser.add_argument("--section")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cudss", type=Path, default=ROOT / ".carry" / "libcudss.so.1")
    parser.add_argument(
        "--limit", type=float, default=0.0, help="seconds; default 140 for check, 55 for time"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.section:
        return run_section(args.section, args.out)
    if args.phase == "check":
        side_by_side.leave_on_term()
        return check(args.out, args.limit or 140.0)
    from sparse_gpu_lu_time import measure

    return measure(args.out, args.cudss, args.limit or 55.0)


if __name__ == "__main__":
    sys.exit(main())
