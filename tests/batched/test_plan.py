"""Launch plans, checked without a GPU; the CPU's shares; refusals."""

import numpy as np
import pytest
from batched_systems import definite, general, right

from warpfront import batched
from warpfront.backend import compile as compiling
from warpfront.batched import _batched_cuda as plans
from warpfront.errors import BatchFailedError, InvalidValueError, NotSupportedError

EVERY = [(n, nrhs) for n in range(1, 33) for nrhs in range(9)]


def problem(method="cholesky", n=8, nrhs=1, batch=100, dtype="float32", aligned=True):
    return plans.BatchedProblem(method, n, nrhs, batch, dtype, True, aligned)


@pytest.mark.parametrize("method", plans.METHODS)
@pytest.mark.parametrize("dtype", plans.DTYPES)
def test_every_size_has_a_plan_within_the_limits(method, dtype):
    for n, nrhs in EVERY:
        for variant in ("warp", "packed"):
            made = plans.plan(problem(method, n, nrhs, 1000, dtype), variant)
            assert made.threads == 32
            assert made.systems * made.lanes == 32
            assert made.blocks == -(-1000 // made.systems)
            assert made.shared_bytes <= 48 * 1024
            assert made.lanes == 32 or variant == "packed"
            pitch = int(made.expression.split(",")[4])
            assert pitch >= n
            if "_packed<" not in made.expression:
                assert pitch % 2 == 1
                continue
            chunks, rest = divmod(pitch * plans.DTYPES[dtype][1], 16)
            assert rest == 0
            assert chunks % 2 == 1 or chunks % 8 == 0


@pytest.mark.parametrize("batch", [1, 65535, 65536, 65537, 2**20, 2**31 - 1])
def test_batches_go_into_one_dimension_of_the_grid(batch):
    for variant in plans.VARIANTS:
        made = plans.plan(problem(batch=batch), variant)
        assert made.blocks * made.systems >= batch > (made.blocks - 1) * made.systems
    with pytest.raises(NotSupportedError, match="split the batch"):
        plans.plan(problem(batch=2**31), "warp")
    assert plans.plan(problem(batch=2**31), "packed").blocks == 2**28


@pytest.mark.parametrize(
    ("size", "variant", "limits", "message"),
    [
        ({"n": 33}, "warp", {}, "cholesky_solve_batched .the serial baseline. takes any size"),
        ({"nrhs": 9}, "packed", {}, "nrhs = 0 to 8, got n = 8, nrhs = 9"),
        ({"dtype": "float16"}, "warp", {}, "float32 and float64, not for float16"),
        ({}, "warp", {"warp": 64}, "warps of 32 lanes, the device has 64"),
        ({}, "serial", {"threads_x": 64}, "128 threads in x"),
        ({"n": 32}, "packed", {"shared_bytes": 4096}, "the device gives 4096"),
        ({"batch": 100}, "warp", {"blocks_x": 99}, "at most 99"),
    ],
)
def test_a_plan_that_cannot_be_names_the_requirement(size, variant, limits, message):
    with pytest.raises(NotSupportedError, match=message):
        plans.plan(problem(**size), variant, plans.Limits(**limits))


def test_the_serial_baseline_takes_any_size():
    made = plans.plan(problem(n=200, nrhs=31), "serial")
    assert made.shared_bytes == 0
    assert made.expression == "cholesky_serial<float>"
    with pytest.raises(InvalidValueError, match="variant must be one of"):
        plans.plan(problem(), "fast")
    with pytest.raises(InvalidValueError, match="32 lanes"):
        plans.plan(problem(), "warp", lanes=8)


def test_one_instantiation_for_each_name():
    names = [name for _, (name,), _ in plans.instantiations()]
    assert len(names) == len(set(names))
    listed = set(names)
    assert {name for _, (name,), _ in plans.subset()} <= listed
    assert plans.plan(problem("lu", 17, 3, 5, "float64"), "packed").expression in listed


@pytest.mark.parametrize("method", plans.METHODS)
def test_declared_shared_memory_is_what_the_compiler_lays_out(method):
    from warpfront.backend import nvrtc

    if nvrtc.missing() is not None:
        pytest.skip(nvrtc.missing())
    for n, nrhs, dtype, variant in [(8, 1, "float32", "packed"), (17, 3, "float64", "warp")]:
        made = plans.plan(problem(method, n, nrhs, 1, dtype), variant)
        built = compiling.build(made.source, (made.expression,), "sm_90", options=plans.OPTIONS)
        resources = built.resources[made.expression]
        assert abs(resources.shared_bytes - made.shared_bytes) <= 16
        assert resources.spill_store_bytes == 0


@pytest.mark.parametrize("threads", ["1", "2", "3"])
def test_bits_do_not_depend_on_threads_batch_or_place(monkeypatch, threads):
    a, b = general(3000, 16, np.float32), right(3000, 16, 2, np.float32)
    monkeypatch.setenv("WARPFRONT_THREADS", "1")
    first = batched.lu_solve_batched(a, b)
    monkeypatch.setenv("WARPFRONT_THREADS", threads)
    again = batched.lu_solve_batched(a, b)
    part = batched.lu_solve_batched(a[1001:1040].copy(), b[1001:1040].copy())
    for name in ("solution", "lu", "pivots", "status"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()
        assert getattr(first, name)[1001:1040].tobytes() == getattr(part, name).tobytes()


def test_a_thread_that_never_runs_leaves_nothing_undone(monkeypatch):
    from warpfront.backend import cpu

    monkeypatch.setenv("WARPFRONT_THREADS", "4")
    monkeypatch.setattr(cpu, "run_threads", lambda threads, body: body(0))
    a, b = general(3000, 16, np.float32), right(3000, 16, 2, np.float32)
    result = batched.lu_solve_batched(a, b).check_status()
    assert np.abs(a[-1] @ result.solution[-1] - b[-1]).max() < 1e-2


@pytest.mark.parametrize("shape", [(0, 4, 2), (3, 0, 2), (0, 0, 0), (3, 0, 0)])
def test_empty(shape):
    """Case 19: nothing to solve is solved."""
    batch, n, nrhs = shape
    a, b = np.empty((batch, n, n)), np.empty(shape)
    for solve in (batched.cholesky_solve_batched, batched.lu_solve_batched, batched.lu_solve_batched_warp):
        result = solve(a, b).check_status()
        assert result.solution.shape == (batch, n, nrhs)
        assert result.status.tolist() == [0] * batch


A, B = definite(3, 4, np.float32), right(3, 4, 2, np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": A.astype(np.float16)}, "float16; convert"),
        ({"a": A.astype(np.int32)}, "float32 or float64, got int32"),
        ({"a": A.astype(np.complex64)}, "complex64"),
        ({"b": B.astype(np.float64)}, "b must have a's type, float32"),
        ({"a": A[0]}, r"\(batch, n, n\)"),
        ({"a": A[:, :3].copy()}, r"\(batch, n, n\)"),
        ({"b": B[:, :, 0].copy()}, "add an axis"),
        ({"b": B[:, :, 0]}, "add an axis"),
        ({"a": None}, "a must be an array of NumPy, or of CuPy or PyTorch on the GPU, got NoneType"),
        ({"b": "b"}, "b must be an array of NumPy.*got str"),
        ({"a": np.ma.masked_less(A, 0)}, r"a is a masked array.*a\.filled"),
        ({"b": B[:2]}, r"shape \(3, 4, nrhs\)"),
        ({"a": A.transpose(0, 2, 1)}, "row-major contiguous"),
        ({"a": np.broadcast_to(A[0], (3, 4, 4))}, "row-major contiguous"),
        ({"a": A.astype(">f4")}, "byte order"),
        ({"diagonal_shift": np.nan}, "diagonal_shift must be finite"),
        ({"diagonal_shift": "1"}, "diagonal_shift must be"),
        ({"diagonal_shift": 1e300}, "finite in float32"),
        ({"symmetry_rtol": -1.0}, "symmetry_rtol must not be negative"),
        ({"symmetry_atol": np.inf}, "symmetry_atol must be finite"),
        ({"out": 3}, "out must be a result"),
        ({"out": (B.copy(), A.copy())}, "out must be a result"),
        ({"out": (B.copy(), A.copy(), np.empty(3))}, "status must have shape"),
        ({"out": (B, A.copy(), np.empty(3, np.int32))}, "solution overlaps b"),
        ({"out": (B.copy(), A, np.empty(3, np.int32))}, "factor overlaps a"),
    ],
)
def test_refusals(change, message):
    arguments = {"a": A, "b": B} | change
    before = A.tobytes(), B.tobytes()
    with pytest.raises(InvalidValueError, match=message):
        batched.cholesky_solve_batched(**arguments)
    assert (A.tobytes(), B.tobytes()) == before


def test_warp_entries_keep_their_limits_everywhere():
    for solve in (batched.cholesky_solve_batched_warp, batched.cholesky_solve_batched_packed):
        with pytest.raises(NotSupportedError, match="the serial baseline"):
            solve(np.eye(33)[None], np.ones((1, 33, 1)))
        with pytest.raises(NotSupportedError, match="nrhs = 9"):
            solve(np.eye(3)[None], np.ones((1, 3, 9)))
    big = definite(2, 40, np.float64)
    result = batched.cholesky_solve_batched(big, np.ones((2, 40, 9))).check_status()
    np.testing.assert_allclose(big @ result.solution, 1, atol=1e-10)


def test_failed_systems_are_named():
    a = general(70, 3, np.float32)
    a[[3, 64]] = 1
    a[5] = np.nan
    result = batched.lu_solve_batched(a, np.ones((70, 3, 1), np.float32))
    with pytest.raises(BatchFailedError, match="3 of 70 systems failed: system 3: pivot 2 is zero") as caught:
        result.check_status()
    assert caught.value.indices == [3, 5, 64]
    assert caught.value.statuses == [2, -1, 2]
    a[:] = -1
    with pytest.raises(BatchFailedError, match="system 4: pivot 1 is not positive; and 65 more"):
        batched.cholesky_solve_batched(a, np.ones((70, 3, 1), np.float32)).check_status()


def test_out_takes_the_record_of_an_earlier_call():
    first = batched.lu_solve_batched(A, B)
    address = first.solution.ctypes.data
    again = batched.lu_solve_batched(A * 2, B, out=first)
    assert again.solution is first.solution
    assert again.solution.ctypes.data == address
    np.testing.assert_allclose(2 * A @ again.solution, B, atol=1e-5)


def test_read_only_inputs_compile_nothing_new():
    from warpfront.batched import _batched_cpu as kernels

    batched.lu_solve_batched(A, B)
    before = len(kernels.lu_blocks.signatures)
    frozen = A.copy()
    frozen.flags.writeable = False
    batched.lu_solve_batched(frozen, B)
    assert len(kernels.lu_blocks.signatures) == before


def test_a_torch_tensor_in_host_memory_is_refused():
    class Tensor(np.ndarray):
        """What the check goes by is the class's module; the real one is not needed for that."""

    Tensor.__module__ = "torch"
    with pytest.raises(InvalidValueError, match="PyTorch tensor in host memory"):
        batched.lu_solve_batched(A.view(Tensor), B)
