"""Batched Cholesky and LU on every backend: the CPU twin, the kernel sources on the host (SIMT runner), a GPU."""

import numpy as np
import pytest
from batched_backends import DTYPES, METHODS, VARIANTS, Cpu, Cuda, Simt, entry, expected, same
from batched_systems import SHAPES, awkward, definite, general, matrices, right

from warpfront import batched
from warpfront import errors as batched_errors
from warpfront.batched import _reference


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(Simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def backend(request):
    return request.param()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_bits_of_the_serial_recurrence(backend, method, dtype, variant):
    """Every variant equals the recurrence bit for bit, and the recurrence solves the system."""
    for batch, n, nrhs in SHAPES:
        a, b = matrices(method, batch, n, dtype), right(batch, n, nrhs, dtype)
        got = backend.solve(method, variant, a, b)
        same(got, expected(method, a, b))
        assert not got[-1].any()
        exact = _reference.solve_exactly(a, b)
        error = np.abs(got[0] - exact).max(axis=(1, 2)) / np.abs(exact).max(axis=(1, 2))
        condition = np.linalg.cond(a.astype(np.float64))
        assert (error <= 8 * n * np.finfo(dtype).eps * condition).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 17])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_every_verdict(backend, method, dtype, variant, n):
    a, status = awkward(method, n, dtype)
    b = right(len(a), n, 2, dtype)
    b[0, 0, 0] = -0.0
    b[7, n - 1, 1] = np.nan
    status[7] = -1
    got = backend.solve(method, variant, a, b)
    same(got, expected(method, a, b))
    for have, want in zip(got[-1], status, strict=True):
        assert want is None or have == want
    failed = got[-1] != 0
    assert not got[0][failed].any()
    assert not got[1][failed].any()
    if method == "lu":
        assert (got[2][failed] == -1).all()
        assert (got[2][~failed] >= np.arange(n)).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_singular_where_one_contraction_would_hide_it(backend, variant):
    """Case 18: two matrices whose last pivot is exactly zero when each operation is rounded by itself."""
    for rows in ([[4, 4], [12, 12]], [[1, 2, 3], [2, 5, 6], [3, 6, 9]]):
        for dtype in DTYPES:
            a = np.array([rows], dtype)
            n = len(rows)
            got = backend.solve("lu", variant, a, np.ones((1, n, 1), dtype))
            assert got[-1].tolist() == [n]


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiny_entries_in_a_batch(backend, variant):
    """Cases 15 and 17: subnormal and NaN matrices keep their verdict at any place in any batch."""
    tiny = np.array([[1e-40, 1e-40], [0, 0]], np.float32)
    for batch in (1, 8, 9):
        a = np.broadcast_to(np.eye(2, dtype=np.float32), (batch, 2, 2)).copy()
        a[-1] = tiny
        got = backend.solve("lu", variant, a, np.ones((batch, 2, 1), np.float32))
        assert got[-1].tolist() == [0] * (batch - 1) + [2]
        a[-1] = np.nan
        for method in METHODS:
            got = backend.solve(method, variant, a, np.ones((batch, 2, 1), np.float32))
            assert got[-1].tolist() == [0] * (batch - 1) + [-1]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("method", METHODS)
def test_a_failed_neighbour_changes_no_bit(backend, method, variant):
    """Also case 20: a system alone and inside a batch has the same bits."""
    a, b = matrices(method, 37, 8, np.float32), right(37, 8, 1, np.float32)
    clean = backend.solve(method, variant, a, b)
    for where in (0, 5, 36):
        dirty = a.copy()
        dirty[where] = np.nan
        got = backend.solve(method, variant, dirty, b)
        assert got[-1][where] == -1
        others = np.arange(37) != where
        same([g[others] for g in got], [c[others] for c in clean])
    alone = backend.solve(method, variant, a[20:21].copy(), b[20:21].copy())
    same(alone, [c[20:21] for c in clean])


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15, 1e30])
@pytest.mark.parametrize("method", METHODS)
def test_scales(backend, method, scale):
    """A power of two changes no digit of a solution; a power of ten stays accurate."""
    a, b = matrices(method, 5, 8, np.float32, seed=3), right(5, 8, 3, np.float32)
    scaled = (a.astype(np.float64) * scale).astype(np.float32)
    got = backend.solve(method, "warp", scaled, b)
    assert not got[-1].any()
    exact = _reference.solve_exactly(scaled, b)
    assert np.abs(got[0] - exact).max() <= 1e-3 * np.abs(exact).max()
    if method == "lu":
        two = 2.0 ** np.round(np.log2(scale))
        power = backend.solve(method, "warp", (a * np.float32(two)), b)
        plain = backend.solve(method, "warp", a, b)
        np.testing.assert_array_equal(power[0].astype(np.float64) * two, plain[0])
        np.testing.assert_array_equal(power[2], plain[2])


def test_a_shift_is_added_to_the_diagonal_and_nothing_else(backend):
    a, b = definite(3, 8, np.float32), right(3, 8, 1, np.float32)
    a[1] = np.diag([1, 0, 1, 1, 1, 1, 1, 1])
    got = backend.solve("cholesky", "warp", a, b)
    assert got[-1].tolist() == [0, 2, 0]
    got = backend.solve("cholesky", "warp", a, b, shift=0.5)
    assert not got[-1].any()
    same(got, expected("cholesky", a, b, shift=0.5))
    shifted = backend.solve("cholesky", "warp", a + np.float32(0.5) * np.eye(8, dtype=np.float32), b)
    same(got, shifted)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("method", METHODS)
def test_without_right_hand_sides_the_systems_are_factored(backend, method, variant):
    """Case 19, with nrhs = 0."""
    a = matrices(method, 3, 5, np.float64)
    a[1] = 0
    got = backend.solve(method, variant, a, np.empty((3, 5, 0)))
    assert got[0].shape == (3, 5, 0)
    same(got[1:], expected(method, a, np.ones((3, 5, 1)))[1:])
    assert got[-1].tolist() == [0, 1, 0]


def test_factors_multiply_to_the_matrix(backend):
    a, b = definite(4, 17, np.float64), right(4, 17, 1, np.float64)
    low = backend.solve("cholesky", "packed", a, b)[1]
    np.testing.assert_allclose(low @ low.transpose(0, 2, 1), a, rtol=1e-13, atol=1e-12)
    a = general(4, 17, np.float64)
    lu, pivots = backend.solve("lu", "packed", a, b)[1:3]
    for matrix, packed, exchanges in zip(a, lu, pivots, strict=True):
        rows = matrix.copy()
        for k, p in enumerate(exchanges):
            rows[[k, p]] = rows[[p, k]]
        low, up = np.tril(packed, -1) + np.eye(17), np.triu(packed)
        assert np.abs(low).max() <= 1
        np.testing.assert_allclose(low @ up, rows, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 33))
@pytest.mark.parametrize("variant", ["warp", "packed"])
@pytest.mark.parametrize("method", METHODS)
def test_every_size(backend, method, variant, n):
    """Every n with every nrhs: race-free under the runner, bits of the recurrence everywhere."""
    backend.sizes = [(n, nrhs) for nrhs in range(1, 9)]
    for nrhs in range(1, 9):
        for dtype in DTYPES if nrhs in (1, 8) else DTYPES[:1]:
            batch = 3 if n > 8 else 9
            a, b = matrices(method, batch, n, dtype), right(batch, n, nrhs, dtype)
            a[1] = 0
            same(backend.solve(method, variant, a, b), expected(method, a, b))


# A GPU alone can answer these.


@pytest.mark.cuda
class TestOnAGpu:
    @pytest.mark.parametrize("batch", [65535, 65536, 65537, 1 << 20])
    @pytest.mark.parametrize("method", METHODS)
    def test_large_batches(self, method, batch):
        """Case 16, and places: every system of a large batch has the bits it has alone."""
        import cupy

        kinds, n = 61, 3
        a, b = matrices(method, kinds, n, np.float32), right(kinds, n, 1, np.float32)
        a[17] = 0
        want = expected(method, a, b)
        take = cupy.asarray(np.arange(batch) % kinds)
        left, other = cupy.asarray(a)[take], cupy.asarray(b)[take]
        for variant in VARIANTS:
            result = entry(method, variant)(left, other)
            fields = (
                ("solution", "factor", "status")
                if method == "cholesky"
                else ("solution", "lu", "pivots", "status")
            )
            for name, column in zip(fields, want, strict=True):
                assert bool((getattr(result, name) == cupy.asarray(column)[take]).all()), (variant, name)

    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("method", METHODS)
    def test_one_launch_and_no_wait(self, monkeypatch, method, variant):
        """Exactly one launch for a call, none for an empty batch, nothing waits before check_status."""
        import cupy

        from warpfront.backend import cuda

        launches = []
        original = cuda.Kernel.launch
        monkeypatch.setattr(
            cuda.Kernel,
            "launch",
            lambda self, *a, **k: (launches.append(self.expression), original(self, *a, **k))[1],
        )
        a, b = cupy.asarray(matrices(method, 9, 8, np.float32)), cupy.asarray(right(9, 8, 1, np.float32))
        solve = entry(method, variant)
        solve(a, b)
        cupy.cuda.runtime.deviceSynchronize()
        launches.clear()
        sleeping = cupy.cuda.Stream(non_blocking=True)
        with sleeping:
            a, b = a.copy(), b.copy()
            solve(a, b)
            sleeping.synchronize()
            launches.clear()
            wait = cupy.RawKernel(
                'extern "C" __global__ void wf_wait(long long n) { long long t = clock64(); while (clock64() - t < n); }',
                "wf_wait",
            )
            wait((1,), (1,), (200_000_000,))
            result = solve(a, b)
            assert not sleeping.done
            result.check_status()
            assert sleeping.done
            assert len(launches) == 1
            empty = solve(a[:0], b[:0])
            assert len(launches) == 1
        assert empty.solution.shape == (0, 8, 1)

    def test_the_baseline_compiles_no_warp_kernel(self):
        import subprocess
        import sys

        code = (
            "import cupy, numpy as np\n"
            "from warpfront.backend import compile as c\n"
            "seen = []; build = c.build\n"
            "c.build = lambda source, *a, **k: (seen.append(source.name), build(source, *a, **k))[1]\n"
            "from warpfront import batched\n"
            "a = cupy.asarray(np.eye(4, dtype='f4')[None]); b = cupy.ones((1, 4, 1), 'f4')\n"
            "batched.cholesky_solve_batched(a, b).check_status(); batched.lu_solve_batched(a, b).check_status()\n"
            "assert set(seen) == {'baseline.cu'}, seen\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("method", METHODS)
    def test_torch(self, method):
        torch = pytest.importorskip("torch")
        a, b = matrices(method, 33, 16, np.float32), right(33, 16, 4, np.float32)
        want = expected(method, a, b)
        left, other = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = entry(method, "packed")(left, other).check_status()
        assert isinstance(result.solution, torch.Tensor)
        assert result.status.dtype == torch.int32
        np.testing.assert_array_equal(result.solution.cpu().numpy(), want[0])
        left.requires_grad_(True)
        with pytest.raises(batched_errors.InvalidValueError, match="detach"):
            entry(method, "warp")(left, other)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_arrays_that_start_anywhere(self, variant):
        """Bases that are no multiple of 16 bytes take the same kernel without 16-byte accesses."""
        import cupy

        a, b = general(5, 8, np.float32), right(5, 8, 1, np.float32)
        memory = cupy.full(1000, 7, "f4")
        left = memory[1 : 1 + a.size].reshape(a.shape)
        left[...] = cupy.asarray(a)
        result = entry("lu", variant)(left, cupy.asarray(b))
        same(
            [cupy.asnumpy(getattr(result, k)) for k in ("solution", "lu", "pivots", "status")],
            expected("lu", a, b),
        )
        assert bool((memory[1 + a.size :] == 7).all())

    def test_refusals(self):
        import cupy

        a, b = cupy.asarray(general(5, 8, np.float32)), cupy.asarray(right(5, 8, 1, np.float32))
        wrong = batched_errors.InvalidValueError
        with pytest.raises(wrong, match="same memory"):
            batched.lu_solve_batched(a, cupy.asnumpy(b))
        with pytest.raises(wrong, match="row-major contiguous"):
            batched.lu_solve_batched(a.transpose(0, 2, 1), b)
        with pytest.raises(wrong, match="row-major contiguous"):
            batched.lu_solve_batched(cupy.broadcast_to(a[0], (5, 8, 8)), b)
        with pytest.raises(wrong, match="float16"):
            batched.lu_solve_batched(a.astype("f2"), b)
        with pytest.raises(wrong, match="overlaps"):
            batched.lu_solve_batched(a, b, out=(b, a.copy(), cupy.empty((5, 8), "i4"), cupy.empty(5, "i4")))
        with pytest.raises(batched_errors.NotSupportedError, match="lu_solve_batched"):
            batched.lu_solve_batched_warp(cupy.zeros((2, 33, 33)), cupy.zeros((2, 33, 1)))
        reaching = cupy.ndarray((1 << 20, 8, 8), "f4", memptr=a.data)
        with pytest.raises(wrong, match="beyond the memory"):
            batched.lu_solve_batched(reaching, cupy.zeros((1 << 20, 8, 1), "f4"))

    @pytest.mark.parametrize("method", METHODS)
    def test_twenty_runs_give_the_same_bits(self, method):
        import cupy

        a, b = (
            cupy.asarray(matrices(method, 5000, 32, np.float32)),
            cupy.asarray(right(5000, 32, 8, np.float32)),
        )
        for variant in VARIANTS:
            first = cupy.asnumpy(entry(method, variant)(a, b).solution).tobytes()
            for _ in range(19):
                assert cupy.asnumpy(entry(method, variant)(a, b).solution).tobytes() == first
