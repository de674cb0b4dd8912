"""What the sparse GPU solver has to show on a device: one function a section, each run in a process of its own."""

from __future__ import annotations

import numpy as np
from sparse_gpu_cases import carried, carried_names, errors, grid_kkt, laplacian

RESULTS = []


def note(**facts):
    RESULTS.append(facts)
    print(
        " ".join(f"{k}={v:.2e}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items()), flush=True
    )


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


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


def section_many():
    """1, 8, 64 right-hand sides and what lies between have the bits of single ones."""
    rng = np.random.default_rng(5)
    cases = {
        "lap2d_60": (laplacian(60, 60), "SPD"), "lap2d_150": (laplacian(150, 150), "SPD"),
        "lap3d_24": (laplacian(24, 24, 24), "SPD"), "lap3d_20": (laplacian(20, 20, 20), "S"),
        "grid_kkt_40": (grid_kkt(40), "S"), "dense_700": (laplacian(700).toarray() + 0.01, "SPD"),
    }  # fmt: skip
    for name, (a, structure) in cases.items():
        for refinements in (0, 2):
            s = solver(a, structure, check="status", ir_n_steps=refinements)
            b = rng.standard_normal((a.shape[0], 64))
            single = np.stack([s.solve(b[:, k]) for k in range(64)], axis=1)
            for count in (1, 2, 4, 5, 8, 13, 16, 32, 40, 64):
                expect(
                    np.array_equal(s.solve(b[:, :count]), single[:, :count]),
                    f"{name}: bits of {count} right-hand sides",
                )
            norm, component = errors(a, single, b)
            note(case=name, structure=structure, steps=refinements, normwise=norm, componentwise=component)
            expect(norm <= 5e-14, f"{name}: normwise {norm}")


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
        same, theirs = kinds == state.kind[:n], state.diagonal[: 2 * n].reshape(n, 2)
        # of each row of D: its diagonal and, in a pivot of two, what is beside it; 1 x 1 pivots have nothing there
        apart = np.where(theirs == 0, 0, np.abs(d.reshape(n, 2) - theirs)).max(axis=1) / np.abs(theirs).max(
            axis=1
        )
        difference = float(apart[same].max())
        note(
            case=name, front=gpu.report.analysis.max_front, inertia_gpu=tuple(gpu.inertia), inertia_cpu=tuple(cpu.inertia),
            kinds_differ=int((~same).sum()), pivots_gpu=tuple(gpu.pivot_stats),
            pivots_cpu=tuple(cpu.pivot_stats),
            difference=difference,
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
            expect(np.array_equal(s.solve(b[:, 2]), x[:, 2]), "driver: bits of a single right-hand side")
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
