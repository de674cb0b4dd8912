"""Times of the sparse solver on a GPU, beside cuDSS in the same process, and where a factorisation spends its time."""

from __future__ import annotations

import json
import traceback
from time import perf_counter

import numpy as np
import sparse_gpu_sweeps
from sparse_gpu_cases import carried, errors, kkt, laplacian
from sparse_gpu_cudss import Cudss, library

REPEATS = 20
MANY = (8, 64)


def cases():
    yield "lap2d_300", lambda: laplacian(300, 300), ("SPD", "S")
    yield "lap3d_40", lambda: laplacian(40, 40, 40), ("SPD", "S")
    yield "lap3d_64", lambda: laplacian(64, 64, 64), ("SPD",)
    for name in ("case1354_pegase_K1_it10",):
        yield name, lambda name=name: carried(name), ("SPD",)
    for name in (
        "case14_ieee_K2_it10",
        "case118_ieee_K2_it10",
        "case1354_pegase_C2_it10",
        "case1354_pegase_K2_it10",
    ):
        yield name, lambda name=name: carried(name), ("S",)
    yield "kkt_3000_1000", lambda: kkt(3000, 1000), ("S",)


def walls(call, repeats):
    """Wall times of a call that queues work and of the wait for it, as cuDSS is timed."""
    import cupy

    result = []
    for _ in range(repeats):
        cupy.cuda.runtime.deviceSynchronize()
        begun = perf_counter()
        call()
        cupy.cuda.runtime.deviceSynchronize()
        result.append(perf_counter() - begun)
    return result


def device_times(call, repeats):
    """Times between events around a call, milliseconds."""
    import cupy

    result = []
    for _ in range(repeats):
        a, b = cupy.cuda.Event(), cupy.cuda.Event()
        a.record()
        call()
        b.record()
        b.synchronize()
        result.append(cupy.cuda.get_elapsed_time(a, b))
    return result


def summary(samples):
    return {
        "min_ms": 1e3 * min(samples),
        "median_ms": 1e3 * float(np.median(samples)),
        "seconds": [float(f"{value:.4g}") for value in samples],
    }


KEPT = ("normwise", "inertia", "pivots", "gflop", "nnz_factor")


def order_of(entry, label):
    """The ordering that `auto` chose, in words; a peer's is its own."""
    return f", {entry['ours']['ordering']} ordering" if label == "ours" else ""


def rows_of(record):
    """Rows of a house record: one for the refactorisation and one for the solve of each system."""
    from warpfront.bench.collect import collected
    from warpfront.bench.record import Row

    rows = []
    for key, entry in record.items():
        name, structure, refined = key.split()
        limit = 1e-12 if refined == "ir2" else 1.0
        for operation in ("refactor", "solve", *(f"solve_{k}" for k in MANY)):
            contenders = {}
            for label, found in entry.items():
                if operation not in found:
                    continue
                error = found[operation].get("componentwise", found["componentwise"])
                right = operation == "refactor" or error <= limit
                contenders["warpfront" if label == "ours" else label] = collected(
                    found[operation]["seconds"], clock="wall", right=right,
                    detail="" if right else f"componentwise backward error {error:.0e}",
                    algorithm=f"{structure}, {refined[2:]} refinement steps" + order_of(entry, label),
                    error=error, error_limit=limit,
                    values={k: found[k] for k in KEPT if k in found} | found[operation].get("bounds", {}),
                )  # fmt: skip
            if not contenders:
                continue
            shapes = {"n": entry["ours"]["n"], "nnz": entry["ours"]["nnz"]}
            words = operation.replace("solve_", "solve of ")
            made = Row(
                name, f"{words} {structure}, {refined}", shapes, "float64", "as generated or read", None,
                ["warpfront"], contenders,
            )  # fmt: skip
            rows.append(made)
    return rows


def write_record(out, record, more):
    from warpfront.bench.collect import gpu_record
    from warpfront.bench.record import write

    options = {"samples": REPEATS, "clock": "wall, call to synchronisation"}
    write(gpu_record("sparse_gpu", rows_of(record) + more, options), out / "sparse_gpu.json")


def bandwidth():
    """Bytes a second that a copy of a gigabyte reads and writes."""
    import cupy

    a, b = cupy.zeros(1 << 27), cupy.empty(1 << 27)
    return 2 * a.nbytes / (1e-3 * min(device_times(lambda: cupy.copyto(b, a), 10)[2:]))


def bounds(facts, plan, copy):
    """What no implementation is faster than: the factor read once a sweep; and how long the chain of wide fronts is."""
    least = 16.0 * facts["nnz_factor"] / copy
    chain = [
        int(np.max(plan.fronts["width"][plan.wide & (plan.level == k)], initial=0))
        for k in range(facts["levels"])
    ]
    panels = sum(-(-w // 32) for w in chain)
    facts["refactor"]["bounds"] = {
        "levels": facts["levels"], "dependent_panels": panels,
        "share_of_66_tflops": 1e-3 * facts["gflop"] / 66 / (1e-3 * facts["refactor"]["median_ms"]),
    }  # fmt: skip
    for key in ("solve", *(f"solve_{k}" for k in MANY)):
        if key in facts:
            facts[key]["bounds"] = {
                "levels": facts["levels"], "dependent_panels": panels, "factor_read_twice_ms": 1e3 * least,
                "roofline_share": 1e3 * least / facts[key]["median_ms"],
            }  # fmt: skip


def ours(a, structure, refinements, copy):
    import cupy

    from warpfront import DirectSolver

    begun = perf_counter()
    s = DirectSolver(a, structure=structure, device="cuda", check="status", ir_n_steps=refinements)
    s.analyze()
    analysis = perf_counter() - begun
    values, b = cupy.asarray(a.data), cupy.asarray(a @ np.ones(a.shape[0]))
    begun = perf_counter()
    for _ in range(3):
        s.refactorize(values)
        x = s.solve(b)
    cupy.cuda.runtime.deviceSynchronize()
    first = perf_counter() - begun
    box = [x]

    def solve():
        box[0] = s.solve(b)

    facts = {
        "analysis_s": analysis, "first_s": first, "refactor": summary(walls(lambda: s.refactorize(values), REPEATS)),
        "solve": summary(walls(solve, REPEATS)), "refactor_device_ms": min(device_times(lambda: s.refactorize(values), 10)),
        "solve_device_ms": min(device_times(solve, 10)),
    }  # fmt: skip
    norm, component = errors(a, box[0].get(), a @ np.ones(a.shape[0]))
    steps, plan = s.report.solve.refinement_steps, s._factor.plan
    facts |= {
        "n": a.shape[0],
        "nnz": int(a.nnz),
        "normwise": norm, "componentwise": component, "inertia": tuple(s.inertia), "pivots": tuple(s.pivot_stats),
        "status": str(s.status), "gflop": s.report.analysis.flops / 1e9,
        "nnz_factor": s.report.analysis.nnz_factor, "ordering": s.report.analysis.ordering,
        "max_front": s.report.analysis.max_front, "launches": len(plan.launches), "levels": int(plan.level.max()) + 1,
        "wide": int(plan.wide.sum()), "steps": steps, "bytes": s._factor.nbytes,
    }  # fmt: skip
    if refinements == 0:
        for k in MANY:
            facts[f"solve_{k}"] = solve_many(s, a, k)
    bounds(facts, plan, copy)
    return s, facts


def solve_many(s, a, count):
    """Times for several right-hand sides; their bits are those of single ones."""
    import cupy

    b = cupy.asarray(a @ np.random.default_rng(0).standard_normal((a.shape[0], count)))
    box = [s.solve(b)]
    for _ in range(2):
        box[0] = s.solve(b)

    def solve():
        box[0] = s.solve(b)

    found = summary(walls(solve, 8))
    for k in (0, count // 2, count - 1):
        if not bool((s.solve(b[:, k]) == box[0][:, k]).all()):
            raise AssertionError(f"column {k} of {count} is not what a single solve gives")
    return found | {"componentwise": errors(a, box[0].get(), b.get())[1]}


def many_by_peer(p, a):
    """The peer's times for several right-hand sides."""
    import cupy

    facts = {}
    for k in MANY:
        b = cupy.asarray(a @ np.random.default_rng(0).standard_normal((a.shape[0], k)))
        p.right_hand_sides(b)
        for _ in range(3):
            p.solve()
        facts[f"solve_{k}"] = summary([p.solve() for _ in range(8)])
        facts[f"solve_{k}"]["componentwise"] = errors(a, p.x.get(), b.get())[1]
    return facts


def peer(lib, a, structure, refinements, deterministic):
    import cupy

    p = Cudss(lib, a, structure, deterministic=deterministic, refinements=refinements)
    rhs = a @ np.ones(a.shape[0])
    p.b[...] = cupy.asarray(rhs)
    p.refactorize()
    p.solve()
    facts = {
        "analysis_s": p.analysis_seconds, "refactor": summary([p.refactorize() for _ in range(REPEATS)]),
        "solve": summary([p.solve() for _ in range(REPEATS)]),
    }  # fmt: skip
    norm, component = errors(a, p.x.get(), rhs)
    if refinements == 0 and not deterministic:
        facts |= many_by_peer(p, a)
    p.close()
    return facts | {"normwise": norm, "componentwise": component}


def repeats(s, a):
    """How many of 20 refactorisations differ in a bit of D, the pivots or the panels."""
    import cupy

    def state():
        r = s._factor.runner.buffers
        return [
            r["diagonal"].get().tobytes(),
            r["pivots"].get().tobytes(),
            int(r["panels"].view(cupy.uint64).sum()),
        ]

    values = cupy.asarray(a.data)
    s.refactorize(values)
    first = state()
    return sum(state() != first for _ in range(20) if s.refactorize(values) is s)


def profile(s, sequence):
    """Time added by each launch: graphs of growing prefixes of the sequence, one branch."""
    import cupy

    runner = s._factor.runner
    steps = runner.sequence(sequence)
    branches, runner.branches = runner.branches, 1
    rows, before = [], 0.0
    for k in range(1, len(steps) + 1):
        key = f"prefix {sequence} {k}"
        runner.define(key, steps[:k])
        runner.run(key)
        now = min(device_times(lambda key=key: runner.run(key), 6))
        step = steps[k - 1]
        rows.append((step.kernel, step.threads, step.blocks, round(1e3 * (now - before), 1)))
        before = now
    runner.branches = branches
    cupy.cuda.runtime.deviceSynchronize()
    return rows


def profile_all(out, solvers, deadline):
    """Profiles of a few factorisations; returns how many failed."""
    failed = 0
    wanted = [
        (key, "factor from entries")
        for key in ("lap2d_300 SPD ir0", "lap3d_40 SPD ir0", "case1354_pegase_K2_it10 S ir0")
    ]
    wanted += [(key, "solve N 1 0 0") for key in ("kkt_3000_1000 S ir0", "lap3d_64 SPD ir0")]
    for key, sequence in wanted:
        if key not in solvers or perf_counter() > deadline:
            continue
        try:
            rows = profile(solvers[key], sequence)
            (out / f"profile {key} {sequence[:6]}.json").write_text(json.dumps(rows))
            total = {}
            for kernel, threads, _, us in rows:
                total[f"{kernel}/{threads}"] = total.get(f"{kernel}/{threads}", 0.0) + us
            print(key, sequence, {k: round(v) for k, v in total.items()}, flush=True)
            print("   ", " ".join(f"{k[:4]}{t}x{b}:{us}" for k, t, b, us in rows)[:1800], flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
    return failed


def line_of(key, entry):
    """One system's figures for the log."""
    mine = entry["ours"]
    line = f"{key:34s} ours {mine['refactor']['min_ms']:.3f} / {mine['solve']['min_ms']:.3f}"
    line += f" (device {mine['refactor_device_ms']:.3f} / {mine['solve_device_ms']:.3f})"
    line += f" err {mine['normwise']:.0e} {mine['componentwise']:.0e}"
    line += f" by {mine['ordering']}"
    line += f" differing {mine['differing_repeats']}/20" if "differing_repeats" in mine else ""
    line += f" roofline {mine['solve']['bounds']['roofline_share']:.2f}"
    for name in ("cudss", "cudss deterministic"):
        if name in entry:
            theirs = entry[name]
            line += f" | {name[:9]} {theirs['refactor']['min_ms']:.3f} / {theirs['solve']['min_ms']:.3f}"
            line += f" err {theirs['componentwise']:.0e}"
    for k in MANY:
        found = {name: part[f"solve_{k}"] for name, part in entry.items() if f"solve_{k}" in part}
        if found:
            line += f"\n     {k} rhs: " + ", ".join(
                f"{name} {part['min_ms']:.3f} err {part['componentwise']:.0e}" for name, part in found.items()
            )
    return line


def one_system(key, a, solvers, lib, copy):
    """Measure one system in one structure, ours and the peer's."""
    name, structure, refined = key.split()
    refinements = int(refined[2:])
    solvers[key], mine = ours(a, structure, refinements, copy)
    plain = refinements == 0 and name != "lap3d_64"
    if plain:
        mine["differing_repeats"] = repeats(solvers[key], a)
    entry = {"ours": mine}
    if lib is not None:
        entry["cudss"] = peer(lib, a, structure, refinements, False)
        if plain:
            entry["cudss deterministic"] = peer(lib, a, structure, refinements, True)
    return entry


def measure(out, cudss, limit):
    begun, failed, record = perf_counter(), 0, {}
    try:
        lib = library(cudss)
    except Exception as error:
        lib = None
        print("no cuDSS:", error, flush=True)
    solvers = {}
    copy = bandwidth()
    print(f"copy {copy / 1e12:.2f} TB/s", flush=True)
    for name, make, structures in cases():
        if perf_counter() - begun > limit:
            print("out of time before", name, flush=True)
            break
        a = make()
        for structure in structures:
            for refinements in (0, 2) if name.startswith("case") else (0,):
                key = f"{name} {structure} ir{refinements}"
                try:
                    record[key] = one_system(key, a, solvers, lib, copy)
                    print(line_of(key, record[key]), flush=True)
                except Exception:
                    failed += 1
                    traceback.print_exc()
                (out / "time.json").write_text(json.dumps(record, indent=1, default=str))
    more = []
    try:
        from sparse_gpu_assembly import record_rows

        more = record_rows(solvers, ("lap2d_300 SPD ir0", "case1354_pegase_K2_it10 S ir0"), REPEATS)
    except Exception:
        failed += 1
        traceback.print_exc()
    try:
        write_record(out, record, more)
    except Exception:
        failed += 1
        traceback.print_exc()
    sparse_gpu_sweeps.variants(out, solvers, begun + limit)
    failed += profile_all(out, solvers, begun + limit)
    sparse_gpu_sweeps.probe(out, solvers)
    print(f"time took {perf_counter() - begun:.0f} s, {failed} failed")
    return 1 if failed else 0
