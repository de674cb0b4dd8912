"""Panels of the LU on the GPU: the plan, the kernels under the SIMT runner, the builds, and whole systems on a device."""

import numpy as np
import pytest
import scipy.linalg

from warpfront.dense import _lu_panel_cuda as plan
from warpfront.dense._lu_blocked import row_order
from warpfront.dense._lu_sweeps_cuda import sweeps


def test_plan():
    alone = plan.plan_panel("float32", 500, 32, True)
    assert (alone.expression, alone.ranks, alone.threads) == ("lu_panel<float, 1, 32, 0>", 1, 512)
    assert plan.plan_panel("float32", 100, 32, True).threads == 128
    shared = plan.plan_panel("float64", 2048, 32, True)
    assert (shared.expression, shared.ranks, shared.threads) == ("lu_panel<double, 1, 32, 1>", 8, 256)
    assert plan.plan_panel("float32", 600, 32, True).ranks == 5
    assert plan.plan_panel("float32", 8192, 32, False).expression == "lu_panel<float, 4, 32, 2>"
    assert plan.plan_panel("float64", 4100, 16, True).expression == "lu_panel<double, 4, 16, 1>"
    for dtype in plan.SHAPES:  # every row has a thread, and there is a slot for every warp
        for rows in (1, 33, 512, 513, 1025, 2049, 4097, 8192, *((16384,) if dtype == "float32" else ())):
            made = plan.plan_panel(dtype, rows, plan.panel_width(dtype, rows), True)
            each = int(made.expression.split(",")[1])
            assert made.ranks * made.threads * each >= rows
            assert made.ranks <= plan.MAX_RANKS
            assert made.ranks == 1 or made.threads // 32 <= plan.MAX_WARPS
    assert plan.panel_width("float64", 4097) == 16
    assert plan.panel_width("float64", 4096) == 32
    assert plan.supported("float64", 8192)
    assert not plan.supported("float64", 8193)
    assert plan.supported("float32", 16384)
    assert not plan.supported("float32", 16385)
    assert not plan.supported("complex64", 100)
    assert plan.solves("float64", 16384)
    assert not plan.solves("complex64", 10)


def kernels(dtype, each, width, way):
    from warpfront.backend.simt import Simt

    kind = plan.CUDA_TYPES[dtype]
    names = f"lu_panel<{kind}, {each}, {width}, {way}>", f"lu_rows<{kind}, {width}>"
    return Simt.build(plan.SOURCE, names), *names


def launched(runner, name, *args, shared_bytes=0):
    report = runner.launch(name, *args, shared_bytes=shared_bytes, schedules=2)
    assert not report.findings, report.findings


@pytest.mark.simt
@pytest.mark.parametrize(
    ("dtype", "n", "first", "wide", "shape", "way", "ranks", "threads", "batch"),
    [
        ("float32", 150, 0, 32, (1, 32), plan.ALONE, 1, 160, 1),
        ("float32", 90, 40, 32, (1, 32), plan.ALONE, 1, 64, 2),
        ("float64", 40, 20, 20, (1, 32), plan.ALONE, 1, 32, 1),
        ("float64", 150, 10, 32, (4, 32), plan.CLUSTER, 1, 64, 1),
        ("float32", 90, 10, 32, (1, 32), plan.GRID, 3, 32, 1),
        ("float64", 90, 10, 32, (1, 32), plan.CLUSTER, 3, 32, 2),
        ("float64", 120, 10, 32, (2, 32), plan.CLUSTER, 2, 32, 1),
        ("float64", 120, 10, 16, (4, 16), plan.CLUSTER, 2, 32, 1),
        ("float32", 90, 20, 21, (1, 32), plan.CLUSTER, 2, 64, 1),
        ("float32", 280, 0, 32, (1, 32), plan.CLUSTER, 5, 64, 1),
        ("float32", 300, 0, 32, (1, 32), plan.GRID, 5, 256, 1),
    ],
)
def test_panel_on_the_host(dtype, n, first, wide, shape, way, ranks, threads, batch):
    given = np.random.default_rng(n).standard_normal((batch, n, n)).astype(dtype)
    a = np.ascontiguousarray(given.transpose(0, 2, 1))  # a[b, j, i] is entry i, j
    pivots, moves = np.full((batch, n), -9, np.int32), np.full((batch, 128), -9, np.int32)
    box, counter = np.zeros(plan.scratch(n, batch, dtype, n)[1], np.uint8), np.zeros(batch, np.uint32)
    runner, panel, rows = kernels(dtype, *shape, way)
    launched(runner, panel, (ranks, batch), threads, [a, n * n, n, first, wide, pivots, moves, box, counter])
    launched(
        runner, rows, (-(-(n - wide) // 16), batch), 128, [a, n * n, n, first, wide, wide, 0, n, moves, 1, 1]
    )
    eps = np.finfo(dtype).eps
    for k in range(batch):
        wanted, swaps = scipy.linalg.lu_factor(given[k][first:, first : first + wide])
        local = pivots[k, first : first + wide] - 1 - first
        assert np.array_equal(local, swaps[:wide])
        found = a[k].T
        assert np.abs(found[first:, first : first + wide] - wanted).max() < 300 * n * eps
        order = row_order(np.concatenate([local + 1, np.arange(wide + 1, n - first + 1)]).astype(np.int32))
        moved = given[k][first:][order]
        assert np.array_equal(found[first:, :first], moved[:, :first])
        assert np.array_equal(found[:first], given[k][:first])
        right = moved[:, first + wide :]
        lower = np.tril(wanted[:wide], -1) + np.eye(wide)
        top = scipy.linalg.solve_triangular(lower, right[:wide], lower=True)
        assert np.allclose(found[first:, first + wide :], np.vstack([top, right[wide:]]), atol=1e3 * n * eps)


@pytest.mark.simt
def test_lists_of_moves_follow_one_another():
    n, first, runner = 80, 8, kernels("float32", 1, 32, plan.ALONE)
    given = np.random.default_rng(3).standard_normal((n, n)).astype(np.float32)
    a, pivots = np.ascontiguousarray(given.T), np.arange(1, n + 1, dtype=np.int32)
    moves, zero = np.full((2, 128), -9, np.int32), np.zeros(64, np.uint32)
    for k, (at, wide) in enumerate(((first, 32), (first + 32, 20))):  # two panels; nothing between them
        launched(
            runner[0], runner[1], (1, 1), 96, [a, n * n, n, at, wide, pivots, moves[k : k + 1], zero, zero]
        )
    launched(runner[0], runner[2], (2, 1), 128, [a, n * n, n, first, 52, 52, 0, n, moves, 2, 0])
    order = row_order(pivots)
    outside = [c for c in range(n) if not first <= c < first + 52]
    assert np.array_equal(a.T[:, outside], given[order][:, outside])


@pytest.mark.simt
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_first_of_equal_entries_is_the_pivot(dtype):
    n, runner = 96, kernels(dtype, 1, 32, plan.CLUSTER)
    given = np.random.default_rng(0).integers(-2, 3, (1, n, n)).astype(dtype)
    plain, scale = given[0, :, :2].copy(), 2.0**-130 if dtype == "float32" else 2.0**-1040
    given[0, :, 1] *= scale  # a pivot whose reciprocal is out of range
    a, pivots = np.ascontiguousarray(given.transpose(0, 2, 1)), np.zeros((1, n), np.int32)
    moves, counter = np.full((1, 128), -9, np.int32), np.zeros(1, np.uint32)
    box = np.zeros(plan.scratch(n, 1, dtype, n)[1], np.uint8)
    launched(runner[0], runner[1], (3, 1), 32, [a, n * n, n, 0, 2, pivots, moves, box, counter])
    wanted, swaps = scipy.linalg.lu_factor(plain)
    wanted[:2, 1] *= scale
    assert np.array_equal(pivots[0, :2] - 1, swaps[:2])
    assert np.allclose(a[0].T[:, :2], wanted, rtol=1e-5, atol=0)


@pytest.mark.simt
def test_a_zero_column_is_left_and_a_nan_stays():
    n, runner = 40, kernels("float32", 1, 32, plan.ALONE)
    given = np.random.default_rng(0).standard_normal((2, n, n)).astype(np.float32)
    given[0, :, 5] = 0
    given[1, 7, 3] = np.nan
    a, pivots = np.ascontiguousarray(given.transpose(0, 2, 1)), np.zeros((2, n), np.int32)
    moves, zero = np.full((2, 128), -9, np.int32), np.zeros(64, np.uint32)
    launched(runner[0], runner[1], (1, 2), 64, [a, n * n, n, 0, 32, pivots, moves, zero, zero])
    assert a[0, 5, 5] == 0
    assert np.isfinite(a[0, :32]).all()
    assert np.isnan(a[1]).any()


@pytest.mark.simt
def test_order_on_the_host():
    from warpfront.backend.simt import Simt

    pivots = np.array([[3, 3, 5, 4, 5], [1, 2, 3, 5, 5]], np.int32)
    order, place = np.full((2, 5), -9, np.int32), np.full((2, 5), -9, np.int32)
    runner = Simt.build(plan.SOURCE, ("lu_order",))
    launched(runner, "lu_order", 2, 64, [pivots, order, place, 5], shared_bytes=40)
    assert np.array_equal(order, [row_order(one) for one in pivots])
    assert np.array_equal(place, np.argsort(order, axis=1))


@pytest.mark.simt
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_of_an_inverse_are_placed_on_the_host(dtype):
    from warpfront.backend.simt import Simt

    n, name = 70, f"lu_place<{plan.CUDA_TYPES[dtype]}>"
    rng = np.random.default_rng(0)
    solution, order = rng.standard_normal((n, n)).astype(dtype), rng.permutation(n)
    inverse, place = np.full((n, n), np.nan, dtype), np.argsort(order).astype(np.int32)
    runner = Simt.build(plan.SOURCE, (name,))
    launched(runner, name, (3, 3), plan.PLACE_THREADS, [solution, place, inverse, n])
    assert np.array_equal(inverse[:, order], solution.T)


@pytest.mark.simt
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sweeps_make_inverses_on_the_host(dtype):
    from warpfront.backend.simt import Simt

    n, kind = 70, plan.CUDA_TYPES[dtype]
    names = {upper: f"lu_triangle<{kind}, {str(upper).lower()}>" for upper in (False, True)}
    runner = Simt.build(plan.SOURCE, tuple(names.values()))
    given = np.random.default_rng(0).standard_normal((2, n, n)).astype(dtype)
    factors = [scipy.linalg.lu_factor(one) for one in given]
    lu = np.ascontiguousarray(np.stack([one.T for one, _ in factors])).astype(dtype)
    x = np.tile(np.eye(n, dtype=dtype), (2, 1, 1))
    for step in sweeps(n):
        rows, known = (
            slice(step.first, step.first + step.wide),
            slice(step.known_first, step.known_first + step.known),
        )
        for b in range(2):  # x[b].T and lu[b].T read as matrices
            x[b].T[rows] -= lu[b].T[rows, known] @ x[b].T[known]
        launched(runner, names[step.upper], (-(-step.columns // 16), 2), 128,
                 [lu, x, n, step.first, step.wide, 0, step.columns])  # fmt: skip
    for b, (_, swaps) in enumerate(factors):
        inverse = np.empty((n, n), dtype)
        inverse[:, row_order((swaps + 1).astype(np.int32))] = x[b].T
        size = np.abs(inverse).max()
        assert np.abs(given[b] @ inverse - np.eye(n)).max() < 1e3 * n * np.finfo(dtype).eps * max(1, size)


def exchanged(a, pivots, first, wide):
    for i in range(first, first + wide):
        a[[i, pivots[i]]] = a[[pivots[i], i]]


@pytest.mark.parametrize(("n", "outer"), [(70, 70), (150, 64), (200, 96), (31, 64), (150, 32), (100, 16)])
@pytest.mark.parametrize("rows", [4096, 100])
@pytest.mark.parametrize("order", ["one stream", "side at once", "side late"])
def test_steps_make_a_factorisation(n, outer, rows, order, monkeypatch):
    """The steps in NumPy, each as the kernel or the library does it, end in LAPACK's factors, however streams interleave."""
    monkeypatch.setattr(plan, "panel_width", lambda dtype, left: 32 if left <= rows else 16)
    given = np.random.default_rng(n).standard_normal((n, n))
    a, pivots = given.copy(), np.zeros(n, int)
    waiting = []

    def in_order():
        for step in plan.steps(n, "float64", outer, order != "one stream"):
            if step.kind == "join":
                yield from waiting
                waiting.clear()
            elif step.kind != "fork":
                late = step.side and order == "side late"
                waiting.append(step) if late else (yield step)

    for step in in_order():
        top, end = slice(step.first, step.first + step.wide), step.first + step.wide
        changed = slice(step.begin, step.end)
        if step.kind == "panel":
            part, swaps = scipy.linalg.lu_factor(a[step.first :, top])
            a[step.first :, top], pivots[top] = part, swaps[: step.wide] + step.first
        elif step.kind == "rows":
            hole = step.first + (step.hole or step.wide)
            columns = [c for c in range(step.begin, step.end) if not step.first <= c < hole]
            others = a[:, columns]
            exchanged(others, pivots, step.first, step.wide)
            a[:, columns] = others
            right = slice(hole, step.end)
            if step.triangle and hole < step.end:
                a[top, right] = scipy.linalg.solve_triangular(
                    a[top, top], a[top, right], lower=True, unit_diagonal=True
                )
        elif step.kind == "triangle":
            a[top, changed] = scipy.linalg.solve_triangular(
                a[top, top], a[top, changed], lower=True, unit_diagonal=True
            )
        else:
            a[end:, changed] -= a[end:, top] @ a[top, changed]
    wanted, swaps = scipy.linalg.lu_factor(given)
    assert np.array_equal(pivots, swaps)
    assert np.allclose(a, wanted, atol=1e-9)


def check_build(entries, arch):
    from warpfront.backend import compile as compiling
    from warpfront.backend import nvrtc

    for file, names, least in entries:
        if arch < least:
            continue
        built = nvrtc.compile(file, names, f"sm_{arch}", compiling.CompileOptions())
        assert set(built.resources) == set(names)
        for name, found in built.resources.items():
            assert found.spill_store_bytes <= 64, (name, found)  # eight rows of sixteen columns


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_every_kernel_builds(arch):
    check_build(plan.subset(), arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_all_instantiations_build(arch):
    check_build(plan.instantiations(), arch)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "n", [513, 2100, *(pytest.param(n, marks=pytest.mark.slow) for n in (65, 1030, 4200))]
)
def test_large_systems_on_the_device(n, dtype):
    import cupy

    from warpfront.dense import inv, slogdet, solve

    rng = cupy.random.default_rng(n)
    device = rng.standard_normal((n, n), dtype=np.dtype(dtype))
    b = cupy.random.default_rng(1).standard_normal((n, 3), dtype=np.dtype(dtype))
    eps = np.finfo(dtype).eps
    first = solve(device, b)
    for _ in range(3):
        assert bool((solve(device, b) == first).all())
    assert float(abs(b - device @ first).max()) < 40 * n * eps * float(abs(first).max())
    inverse = inv(device)
    assert float(abs(device @ inverse - cupy.eye(n)).max()) < 40 * n * eps * float(abs(inverse).max())
    sign, logarithm = slogdet(device)
    wanted = np.linalg.slogdet(cupy.asnumpy(device).astype(np.float64))
    assert float(sign) == wanted.sign
    assert float(logarithm) == pytest.approx(wanted.logabsdet, rel=1e3 * eps)
    singular = device.copy()
    singular[:, n // 2] = 0
    assert int(slogdet(singular).sign) == 0


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "outer"), [(300, 32), (1111, 32), (1111, 96), (700, 256)])
def test_block_columns_ahead_end_in_the_same_factors_on_the_device(n, outer, dtype):
    import cupy

    from warpfront.dense import _lu_graph_cuda as graphs
    from warpfront.dense._blas_cuda import blas

    a = cupy.random.default_rng(n).standard_normal((1, n, n), dtype=np.dtype(dtype))
    stream, found = int(cupy.cuda.get_current_stream().ptr), []
    for ahead in (False, True, True):
        lu, pivots, room = a.copy(), cupy.zeros((1, n), np.int32), graphs.make_room(n, 1, dtype, outer)
        if ahead:
            graphs.queue_ahead(lu, pivots, room, stream, outer)
        else:
            plan.factor_on(lu, pivots, room, blas(dtype, stream, 0), stream, outer)
        found.append((cupy.asnumpy(lu[0]).T, cupy.asnumpy(pivots[0])))
    assert np.array_equal(found[1][0], found[2][0])
    given = cupy.asnumpy(a[0]).T.astype(np.float64)
    for lu, pivots in found:
        lower, upper = np.tril(lu, -1) + np.eye(n), np.triu(lu)
        wrong = np.abs(lower.astype(np.float64) @ upper - given[row_order(pivots)]).max()
        assert wrong < 40 * n * np.finfo(dtype).eps
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("n", "block", "count"), [(700, 128, 1), (700, 256, 3), (512, 512, 2)])
def test_triangles_in_blocks_solve_on_the_device(n, block, count, dtype):
    import cupy

    from warpfront.dense import _device_lu
    from warpfront.dense._lu_graph_cuda import solve_triangles

    rng = cupy.random.default_rng(n)
    a, b = (
        rng.standard_normal((n, n), dtype=np.dtype(dtype)),
        rng.standard_normal((count, n), dtype=np.dtype(dtype)),
    )
    found = _device_lu.factor(a[None])
    x = solve_triangles(found.lu[0], found.pivots[0], b, block)
    assert bool((x == solve_triangles(found.lu[0], found.pivots[0], b, block)).all())
    error = abs(b.T - a @ x.T).max() / abs(x).max()
    assert float(error) < 40 * n * np.finfo(dtype).eps


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_is_factored_as_one_on_the_device(dtype):
    import cupy

    from warpfront.dense import inv, slogdet

    a = cupy.random.default_rng(0).standard_normal((6, 130, 130), dtype=np.dtype(dtype))
    a[4, :, 100] = 0
    for _ in range(3):  # directly, then from a graph
        signs, logarithms = slogdet(a)
        wanted = np.linalg.slogdet(cupy.asnumpy(a).astype(np.float64))
        assert np.array_equal(cupy.asnumpy(signs), wanted.sign)
        assert cupy.asnumpy(logarithms) == pytest.approx(wanted.logabsdet, rel=1e3 * np.finfo(dtype).eps)
    right = cupy.concatenate([a[:4], a[5:]])
    error = abs(right @ inv(right) - cupy.eye(130)).max()
    assert float(error) < 1e5 * np.finfo(dtype).eps
