"""Times of the LU on a GPU beside cuDSS (structure G) in the same process, and where a factorisation spends its time."""

from __future__ import annotations

import json
import traceback
from time import perf_counter

import numpy as np
from sparse_gpu_cases import carried, errors, kkt, laplacian
from sparse_gpu_cudss import Cudss, library
from sparse_gpu_lu import circuit, convection, solver
from sparse_gpu_time import device_times, many_by_peer, order_of, profile, solve_many, summary, walls

REPEATS, MANY = 20, (8, 64)
OPERATIONS = ("refactor", "solve", "solve transposed", *(f"solve_{k}" for k in MANY))


def cases():
    """Name, matrix, refinement steps."""
    yield "lap2d_300", lambda: laplacian(300, 300), (0,)
    yield "lap3d_40", lambda: laplacian(40, 40, 40), (0,)
    yield "convection2d_300", lambda: convection(300, 300), (0,)
    yield "convection3d_40", lambda: convection(40, 40, 40), (0,)
    yield "circuit_200", lambda: circuit(200), (0, 2)
    yield "kkt_3000_1000", lambda: kkt(3000, 1000), (0,)
    for name in ("case14_ieee_K2_it10", "case118_ieee_K2_it10", "case1354_pegase_K2_it10"):
        yield name, lambda name=name: carried(name), (0, 2)


def ours(a, refinements):
    import cupy

    begun = perf_counter()
    s = solver(a, check="status", ir_n_steps=refinements, reordering_alg="auto")
    s.analyze()
    facts = {"analysis_s": perf_counter() - begun}
    values, b = cupy.asarray(a.data), cupy.asarray(a @ np.ones(a.shape[0]))
    begun = perf_counter()
    for _ in range(3):
        s.refactorize(values)
        x = s.solve(b)
        s.solve(b, trans="T")
    cupy.cuda.runtime.deviceSynchronize()
    facts["first_s"] = perf_counter() - begun
    facts["refactor"] = summary(walls(lambda: s.refactorize(values), REPEATS))
    facts["solve"] = summary(walls(lambda: s.solve(b), REPEATS))
    facts["solve transposed"] = summary(walls(lambda: s.solve(b, trans="T"), REPEATS))
    facts["refactor_device_ms"] = min(device_times(lambda: s.refactorize(values), 10))
    facts["solve_device_ms"] = min(device_times(lambda: s.solve(b), 10))
    norm, component = errors(a, x.get(), a @ np.ones(a.shape[0]))
    if refinements == 0:
        for k in MANY:
            facts[f"solve_{k}"] = solve_many(s, a, k)
    plan = s._factor.plan
    facts |= {
        "n": a.shape[0], "nnz": int(a.nnz), "normwise": norm, "componentwise": component, "pivots": tuple(s.pivot_stats),
        "status": str(s.status), "ordering": s.report.analysis.ordering, "gflop": s.report.analysis.flops / 1e9,
        "nnz_factor": s.report.analysis.nnz_factor,
        "max_front": s.report.analysis.max_front, "launches": len(plan.launches), "levels": int(plan.level.max()) + 1,
        "wide": int(plan.wide.sum()), "bytes": s._factor.nbytes,
    }  # fmt: skip
    return s, facts


def peer(lib, a, refinements, deterministic):
    import cupy

    p = Cudss(lib, a, "G", deterministic=deterministic, refinements=refinements)
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


def differing(s, a):
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


def write_record(out, record):
    """House record: refactorisation and solves of each system."""
    from warpfront.bench.collect import collected, gpu_record
    from warpfront.bench.record import Row, write

    rows = []
    for key, entry in record.items():
        name, refined = key.split()
        limit = 1e-12 if refined == "ir2" else 1.0
        for operation in OPERATIONS:
            contenders = {}
            for label, found in entry.items():
                if operation not in found:
                    continue
                error = found[operation].get("componentwise", found["componentwise"])
                right = operation == "refactor" or error <= limit
                contenders["warpfront" if label == "ours" else label] = collected(
                    found[operation]["seconds"], clock="wall", right=right,
                    detail="" if right else f"componentwise backward error {error:.0e}",
                    algorithm=f"LU, {refined[2:]} refinement steps" + order_of(entry, label), error=error, error_limit=limit,
                    values={k: found[k] for k in ("normwise", "pivots", "gflop", "nnz_factor") if k in found},
                )  # fmt: skip
            if not contenders:
                continue
            words = operation.replace("solve_", "solve of ")
            shapes = {"n": entry["ours"]["n"], "nnz": entry["ours"]["nnz"]}
            rows.append(
                Row(
                    name, f"{words} G, {refined}", shapes, "float64", "as generated or read", None, ["warpfront"],
                    contenders,
                )
            )  # fmt: skip
    options = {"samples": REPEATS, "clock": "wall, call to synchronisation"}
    write(gpu_record("sparse_gpu_lu", rows, options), out / "sparse_gpu_lu.json")


def line_of(key, entry):
    """One printed line."""
    mine = entry["ours"]
    parts = [f"{key:28s}"]
    for label, found in entry.items():
        times = "/".join(
            f"{found[k]['min_ms']:.3f}"
            for k in ("refactor", "solve", "solve transposed", "solve_8", "solve_64")
            if k in found
        )
        parts.append(f"{'det' if 'det' in label else label} {times} {found['componentwise']:.0e}")
    parts.append(f"device {mine['refactor_device_ms']:.3f}/{mine['solve_device_ms']:.3f}")
    parts.append(
        f"by {mine['ordering']}, perturbed {mine['pivots'][3]} differing {mine.get('differing_repeats', '-')}"
    )
    return " | ".join(parts)


def measure(out, cudss, limit):
    begun, failed, record, solvers = perf_counter(), 0, {}, {}
    try:
        lib = library(cudss)
    except Exception as error:
        lib = None
        print("no cuDSS:", error, flush=True)
    for name, make, rounds in cases():
        if perf_counter() - begun > limit:
            print("out of time before", name, flush=True)
            break
        try:
            a = make()
            for refinements in rounds:
                key = f"{name} ir{refinements}"
                solvers[key], mine = ours(a, refinements)
                if refinements == 0:
                    mine["differing_repeats"] = differing(solvers[key], a)
                record[key] = {"ours": mine}
                if lib is not None:
                    for deterministic in (False, True) if refinements == 0 else (False,):
                        label = "cudss deterministic" if deterministic else "cudss"
                        record[key][label] = peer(lib, a, refinements, deterministic)
                print(line_of(key, record[key]), flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
        (out / "time.json").write_text(json.dumps(record, indent=1, default=str))
    try:
        write_record(out, record)
    except Exception:
        failed += 1
        traceback.print_exc()
    for key in ("lap2d_300 ir0", "lap3d_40 ir0", "case118_ieee_K2_it10 ir0", "circuit_200 ir0"):
        if key not in solvers or perf_counter() - begun > limit + 15:
            continue
        try:
            rows = profile(solvers[key], "factor from entries")
            (out / f"profile {key}.json").write_text(json.dumps(rows))
            total = {}
            for kernel, threads, _, us in rows:
                total[f"{kernel}/{threads}"] = total.get(f"{kernel}/{threads}", 0.0) + us
            print(key, {k: round(v) for k, v in total.items()}, flush=True)
            print("   ", " ".join(f"{k[:7]}{t}x{b}:{us}" for k, t, b, us in rows)[:1400], flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
    print(f"time took {perf_counter() - begun:.0f} s, {failed} failed")
    return 1 if failed else 0
