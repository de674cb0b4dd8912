"""Kernels for matrices up to order 64 on the GPU, under the SIMT runner and as builds."""

import numpy as np
import pytest

from warpfront.dense import lu_factor

DTYPES = ("float32", "float64", "complex64", "complex128")


def matrix(n, dtype, batch):
    rng = np.random.default_rng(n)
    a = rng.standard_normal((batch, n, n))
    return (a + 1j * a[::-1] if np.dtype(dtype).kind == "c" else a).astype(dtype)


def error_of(a, x, b):
    """Normwise backward error, in double precision."""
    a, x, b = (np.asarray(v, np.complex128) for v in (a, x, b))
    below = np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return float((np.abs(b - a @ x).max(axis=0) / below).max())


def limit(n, dtype):
    return 4 * max(n, 10) * float(np.finfo(dtype).eps)


class Simt:
    """The small kernels under the SIMT runner."""

    @staticmethod
    def factor(a):
        from warpfront.backend.simt import Simt as Runner
        from warpfront.dense import _lu_small_cuda as plan

        batch, n = a.shape[:2]
        name = plan.expressions(a.dtype.name)[0]
        lu, pivots = np.full_like(a, np.nan), np.full((batch, n), -9, np.int32)
        zero, size = np.full(batch, -9, np.int32), np.full((batch, 2), np.nan)
        runner = Runner.build(plan.SOURCE, plan.instantiations()[0][1])
        report = runner.launch(
            name, batch, plan.THREADS, [a, lu, pivots, zero, size, n],
            shared_bytes=plan.shared_bytes(a.dtype.name, n, solve=False), schedules=2,
        )  # fmt: skip
        assert not report.findings, report.findings
        pivot = np.abs(np.array([one.diagonal() for one in lu])) if n else size
        assert size == pytest.approx(
            np.stack([pivot.min(axis=1), pivot.max(axis=1)], axis=1), rel=1e-6, nan_ok=True
        )
        return lu, pivots, zero

    @staticmethod
    def solve(lu, pivots, zero, x):
        from warpfront.backend.simt import Simt as Runner
        from warpfront.dense import _lu_small_cuda as plan

        n = lu.shape[1]
        runner = Runner.build(plan.SOURCE, plan.instantiations()[0][1])
        report = runner.launch(
            plan.expressions(lu.dtype.name)[1], len(lu), plan.THREADS, [lu, pivots, zero, x, n, x.shape[1]],
            shared_bytes=plan.shared_bytes(lu.dtype.name, n, solve=True), schedules=2,
        )  # fmt: skip
        assert not report.findings, report.findings


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 33, 64])
def test_small_kernels_on_the_host(n, dtype):
    a = matrix(n, dtype, batch=3)
    a[1] = 1  # singular
    lu, pivots, zero = Simt.factor(a)
    assert zero.tolist() == [-1, 1 if n > 1 else -1, -1]
    b = np.random.default_rng(0).standard_normal((3, 2, n)).astype(dtype)
    x = b.copy()
    Simt.solve(lu, pivots, zero, x)
    for k in (0, 2):
        alone = lu_factor(a[k])
        assert np.array_equal(alone.pivots, pivots[k])
        assert error_of(a[k], x[k].T, b[k].T) < limit(n, dtype)
        if np.dtype(dtype).kind == "f":
            assert np.array_equal(lu[k].T, alone.lu)
            assert np.array_equal(x[k].T, alone.solve(b[k].T))
    if n > 1:
        assert np.isnan(x[1]).all()


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
def test_summary_kernel_on_the_host(dtype):
    from warpfront.backend.simt import Simt as Runner
    from warpfront.dense import _lu_small_cuda as plan

    n, kind = 300, np.dtype(dtype)
    lu = matrix(n, dtype, batch=4)
    lu[1, 69, 3] = np.nan
    lu[2, 17, 17] = lu[2, 200, 200] = 0
    pivots = np.tile(np.arange(1, n + 1, dtype=np.int32), (4, 1))
    pivots[3, 5] = 9
    report, value, sign = np.zeros((4, plan.REPORT)), np.full(4, np.nan, kind), np.full(4, np.nan, kind)
    runner = Runner.build(plan.SOURCE, plan.instantiations()[0][1])
    found = runner.launch(
        plan.expressions(dtype)[2],
        (4, 2),
        plan.SUMMARY_THREADS,
        [lu, pivots, report, value, sign, n],
        schedules=2,
    )
    assert not found.findings, found.findings
    assert report[:, 0].tolist() == [0, 1, 0, 0]
    assert report[[0, 2, 3], 1].tolist() == [-1, 17, -1]
    size = np.abs(np.array([one.diagonal() for one in lu]))
    assert report[:, 2:4] == pytest.approx(np.stack([size.min(axis=1), size.max(axis=1)], axis=1), rel=1e-6)
    assert (value[2], sign[2], report[2, 4]) == (0, 0, -np.inf)
    for k in (0, 3):
        diagonal = lu[k].diagonal().astype(np.complex128)
        unit = np.prod(diagonal / np.abs(diagonal)) * (-1 if k == 3 else 1)
        eps = 300 * float(np.finfo(dtype).eps)
        assert sign[k] == pytest.approx(unit if kind.kind == "c" else unit.real, abs=eps)
        assert report[k, 4] == pytest.approx(np.log(np.abs(diagonal)).sum(), rel=1e-12)
        with np.errstate(under="ignore", over="ignore"):
            wanted = np.exp(report[k, 4]).astype(value.real.dtype)
        assert abs(value[k]) == pytest.approx(wanted, rel=1e-5)
        assert report[k, 5] == pytest.approx(abs(value[k]), rel=1e-6)


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_that_are_not_finite_are_marked_on_the_host(dtype):
    from warpfront.backend.simt import Simt as Runner
    from warpfront.dense import _lu_small_cuda as plan

    x = matrix(45, dtype, batch=4)
    x[1, 44, 44] = np.inf
    x[3, 0, 0] = np.nan if np.dtype(dtype).kind == "f" else complex(0, np.nan)
    entries, report = x[0].size * (2 if np.dtype(dtype).kind == "c" else 1), np.zeros((4, plan.REPORT))
    runner = Runner.build(plan.SOURCE, plan.instantiations()[0][1])
    args = [x.view(x.real.dtype), entries, report, plan.RESULT]
    found = runner.launch(plan.finite_expression(dtype), (4, 3), plan.SUMMARY_THREADS, args, schedules=2)
    assert not found.findings, found.findings
    assert report[:, plan.RESULT].tolist() == [0, 1, 0, 1]
    assert not np.delete(report, plan.RESULT, axis=1).any()


@pytest.mark.simt
def test_small_kernel_refuses_what_is_not_finite():
    a = matrix(5, "float32", batch=2)
    a[1, 2, 3] = np.inf
    assert Simt.factor(a)[2].tolist() == [-1, -2]


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_small_kernels_build_without_spills(arch):
    from warpfront.backend import nvrtc
    from warpfront.dense import _lu_small_cuda as plan

    for file, names, least in plan.instantiations():
        assert arch >= least
        built = nvrtc.compile(file, names, f"sm_{arch}", plan.OPTIONS)
        assert set(built.resources) == set(names)
        assert not any(found.spill_store_bytes for found in built.resources.values())
