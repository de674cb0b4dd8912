"""Block columns of the LU on the GPU: the plan, the kernels under the SIMT runner, the builds."""

import numpy as np
import pytest
import scipy.linalg

from warpfront.dense import _lu_block_cuda as plan
from warpfront.dense._lu_blocked import row_order

DTYPES = ("float32",)


def test_plan():
    assert plan.plan_block("float32", 2048, 128, 132).expression == "lu_block<float, 4, 8>"
    assert plan.plan_block("float32", 500, 128, 132).blocks == 112
    assert plan.plan_block("float32", 500, 16, 132).blocks == 1
    assert plan.supported("float32", 2048)
    assert not plan.supported("float32", 2049)
    assert not plan.supported("float64", 100)
    assert plan.solves_blocks("float64", 16384)
    assert not plan.supported("complex64", 10)


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "first", "wide", "blocks", "threads"),
    [(70, 0, 40, 3, 64), (70, 40, 30, 2, 64), (33, 0, 33, 1, 64), (150, 10, 33, 4, 96), (40, 0, 8, 2, 64)],
)
def test_block_column_on_the_host(n, first, wide, blocks, threads, dtype):
    from warpfront.backend.simt import Simt

    rng = np.random.default_rng(n)
    given = rng.standard_normal((n, n)).astype(dtype)
    given[:first, :] = 0  # rows above are not touched
    a = np.asfortranarray(given).T.copy()  # a[j, i] is entry i, j
    made = plan.plan_block(dtype, n - first, wide, blocks, threads)
    pivots, zero = np.full(n, -9, np.int32), np.full(1, -1, np.int32)
    moves, outer = np.full(4 * 16, -9, np.int32), np.full(4 * wide, -9, np.int32)
    counter = np.zeros(1, np.uint32)
    runner = Simt.build(plan.SOURCE, plan.instantiations()[0][1])
    report = runner.launch(
        made.expression, blocks, threads, [a, n, n, first, wide, pivots, moves, outer, zero, counter],
        shared_bytes=made.shared_bytes, schedules=2,
    )  # fmt: skip
    assert not report.findings, report.findings
    report = runner.launch(
        f"lu_exchange<{plan.CUDA_TYPES[dtype]}>", 3, 64, [a, n, n, first, wide, outer, 2 * wide],
        shared_bytes=2 * wide * a.itemsize, schedules=2,
    )  # fmt: skip
    assert not report.findings, report.findings
    assert zero[0] == -1
    part = given[first:, first : first + wide]
    wanted, swaps = scipy.linalg.lu_factor(part)
    local = pivots[first : first + wide] - 1 - first
    assert np.array_equal(local, swaps)
    found = a.T[first:, first : first + wide]
    assert np.abs(found - wanted).max() < 300 * n * np.finfo(dtype).eps
    order = row_order(np.concatenate([local + 1, np.arange(wide + 1, n - first + 1)]).astype(np.int32))
    outside = [c for c in range(n) if not first <= c < first + wide]
    assert np.array_equal(a.T[first:][:, outside], given[first:][order][:, outside])


@pytest.mark.simt
def test_zero_pivot_is_named():
    from warpfront.backend.simt import Simt

    n = 20
    a = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    a[5] = 0  # column 5
    made = plan.plan_block("float32", n, n, 2, 64)
    zero = np.full(1, -1, np.int32)
    buffers = [
        np.zeros(n, np.int32),
        np.zeros(64, np.int32),
        np.zeros(4 * n, np.int32),
        zero,
        np.zeros(1, np.uint32),
    ]
    runner = Simt.build(plan.SOURCE, plan.instantiations()[0][1])
    report = runner.launch(made.expression, 2, 64, [a, n, n, 0, n, *buffers], shared_bytes=made.shared_bytes)
    assert not report.findings, report.findings
    assert zero[0] == 5


@pytest.mark.simt
def test_order_on_the_host():
    from warpfront.backend.simt import Simt

    pivots = np.array([3, 3, 5, 4, 5], np.int32)
    order = np.full(5, -9, np.int32)
    runner = Simt.build(plan.SOURCE, plan.instantiations()[0][1])
    report = runner.launch("lu_order", 1, 64, [pivots, order, 5], shared_bytes=40, schedules=2)
    assert not report.findings, report.findings
    assert np.array_equal(order, row_order(pivots))


def check_build(entries, arch):
    from warpfront.backend import compile as compiling
    from warpfront.backend import nvrtc

    for file, names, least in entries:
        assert arch >= least
        built = nvrtc.compile(file, names, f"sm_{arch}", compiling.CompileOptions())
        assert set(built.resources) == set(names)
        for name, found in built.resources.items():
            assert found.registers <= 128, (name, found)
            assert found.spill_store_bytes <= 128, (name, found)  # while a panel is loaded and stored


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_every_kernel_builds(arch):
    check_build(plan.subset(), arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_all_instantiations_build(arch):
    check_build(plan.instantiations(), arch)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [65, 513, 1030, 2040, 2100])
def test_large_systems_on_the_device(n, dtype):
    import cupy

    from warpfront.dense import inv, slogdet, solve

    a = np.random.default_rng(n).standard_normal((n, n)).astype(dtype)
    b = np.random.default_rng(1).standard_normal((n, 3)).astype(dtype)
    device = cupy.asarray(a)
    eps = np.finfo(dtype).eps
    first = solve(device, cupy.asarray(b))
    for _ in range(5):
        assert np.array_equal(cupy.asnumpy(solve(device, cupy.asarray(b))), cupy.asnumpy(first))
    x = cupy.asnumpy(first)
    assert np.abs(b - a @ x).max() < 40 * n * eps * np.abs(x).max()
    inverse = cupy.asnumpy(inv(device))
    assert np.abs(a @ inverse - np.eye(n)).max() < 40 * n * eps * np.abs(inverse).max()
    sign, logarithm = slogdet(device)
    wanted = np.linalg.slogdet(a.astype(np.float64))
    assert float(sign) == wanted.sign
    assert float(logarithm) == pytest.approx(wanted.logabsdet, rel=1e3 * eps)
    singular = device.copy()
    singular[:, n // 2] = 0
    assert int(slogdet(singular).sign) == 0
