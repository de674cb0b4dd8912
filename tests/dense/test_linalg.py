"""LU, solve, inverse, determinant and condition, on the CPU and on a GPU, against NumPy and SciPy in double precision."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront import errors
from warpfront.dense import det, inv, lu_factor, many, rcond, slogdet, solve
from warpfront.errors import Status

DTYPES = ("float32", "float64", "complex64", "complex128")
ORDERS = (1, 2, 3, 8, 31, 32, 33, 64, 65, 130, 257, 300)
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.cuda))
DEVICE_ORDERS = (1, 64, 65, 300)  # one of every path: small kernels, one block's panels, several blocks'
CASES = [(n, dtype, "cpu") for n in ORDERS for dtype in DTYPES]
CASES += [pytest.param(n, dtype, "cuda", marks=pytest.mark.cuda) for n in DEVICE_ORDERS for dtype in DTYPES]


def matrix(n, dtype, seed=0, batch=None):
    rng = np.random.default_rng((seed, n))
    shape = (n, n) if batch is None else (batch, n, n)
    a = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(dtype)


def error_of(a, x, b):
    """Normwise backward error, in double precision."""
    a, x, b = (np.asarray(v, np.complex128) for v in (a, x, b))
    x, b = x.reshape(len(a), -1), b.reshape(len(a), -1)
    below = np.abs(a).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return float((np.abs(b - a @ x).max(axis=0) / below).max())


def limit(n, dtype):
    return 4 * max(n, 10) * float(np.finfo(dtype).eps)


@pytest.mark.parametrize(("n", "dtype", "device"), CASES)
def test_solve_inverse_and_determinant(n, dtype, device):
    a = matrix(n, dtype)
    rng = np.random.default_rng(n)
    for shape in ((n,), (n, 1), (n, 7), (n, 0)):
        b = rng.standard_normal(shape).astype(dtype)
        x = solve(a, b, device=device)
        assert x.shape == shape
        assert x.dtype == dtype
        if b.size:
            assert error_of(a, x, b) < limit(n, dtype)
    inverse = inv(a, device=device)
    assert inverse.dtype == dtype
    assert error_of(a, inverse, np.eye(n)) < limit(n, dtype)
    sign, logarithm = slogdet(a, device=device)
    wanted = np.linalg.slogdet(a.astype(np.complex128))
    scale = np.linalg.cond(a.astype(np.complex128)) * limit(n, dtype)
    assert abs(sign - wanted.sign) < scale + limit(n, dtype)
    assert abs(logarithm - wanted.logabsdet) < n * scale + limit(n, dtype)
    exact = 1 / (
        np.abs(a).sum(axis=0).max() * np.abs(np.linalg.inv(a.astype(np.complex128))).sum(axis=0).max()
    )
    assert exact * 0.9 <= rcond(a, device=device) <= 10 * exact


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pivoting", ["partial", "rook", "complete"])
@pytest.mark.parametrize("n", [1, 2, 9, 40, 90])
def test_factor_reconstructs_the_matrix(n, pivoting, dtype):
    a = matrix(n, dtype)
    factor = lu_factor(a, pivoting=pivoting)
    rows, cols = np.arange(n), np.arange(n)
    for order, swaps in ((rows, factor.pivots), (cols, factor.column_pivots)):
        for k, other in enumerate([] if swaps is None else swaps - 1):
            order[k], order[other] = order[other], order[k]
    lower, upper = np.tril(factor.lu, -1) + np.eye(n), np.triu(factor.lu)
    assert np.abs(a[rows][:, cols] - lower @ upper).max() < limit(n, dtype) * np.abs(a).max()
    # LAPACK compares |re| + |im|: a complex multiplier reaches the square root of 2
    assert np.abs(lower).max() <= (1.42 if np.dtype(dtype).kind == "c" else 1)
    if pivoting == "complete":
        sizes = np.abs(upper)
        assert all(sizes[k, k] >= sizes[k, k:].max() * (1 - 1e-6) for k in range(n))
    for trans, op in (("N", a), ("T", a.T), ("H", a.conj().T)):
        b = np.random.default_rng(1).standard_normal((n, 3))
        assert error_of(op, factor.solve(b.astype(dtype), trans), b) < limit(n, dtype)


def test_rook_and_complete_pivoting_hold_growth_back():
    n = 50  # Wilkinson's matrix: partial pivoting doubles the last column at every step
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    assert lu_factor(a).growth > 2.0 ** (n - 8)
    for pivoting in ("rook", "complete"):
        assert lu_factor(a, pivoting=pivoting).growth < 2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "values", [[[4, 4], [12, 12]], [[1, 2, 3], [2, 5, 6], [3, 6, 9]], [[0]], [[1, 2], [0, 0]]]
)
def test_exactly_singular_is_said(values, dtype, device):
    a = np.array(values, dtype)
    for call in (lambda: inv(a, device=device), lambda: solve(a, a[0], device=device)):
        with pytest.raises(errors.SingularMatrixError) as caught:
            call()
        assert caught.value.column == len(a) - 1
    outcome = inv(a, check="status", device=device)
    assert outcome.status == Status.SINGULAR
    assert not outcome.ok
    assert outcome.rcond == 0
    assert np.isnan(outcome.value).all()
    assert det(a, device=device) == 0
    assert slogdet(a, device=device) == (0, -np.inf)
    assert rcond(a, device=device) == 0


def test_singular_large_matrix_names_its_pivot():
    a = matrix(300, "float64")
    a[:, 120] = 0
    with pytest.raises(errors.SingularMatrixError) as caught:
        inv(a)
    assert caught.value.column == 120


@pytest.mark.parametrize("device", DEVICES)
def test_determinants_out_of_range_are_flagged(device):
    small = 1e-2 * np.eye(32, dtype="float32")
    with pytest.warns(errors.DeterminantRangeWarning, match="underflow"):
        assert det(small, device=device) == 0
    assert det(small, device=device, check="status").flag == "underflow"
    sign, logarithm = slogdet(small, device=device)
    assert sign == 1
    assert logarithm == pytest.approx(32 * np.log(float(np.float32(1e-2))), rel=1e-12)
    with pytest.warns(errors.DeterminantRangeWarning, match="overflow"):
        assert det(1e200 * np.eye(3), device=device) == np.inf
    for copies in (8, 9):  # whatever path a batch's size takes
        found = det(np.array([[[1e-40, 1e-40], [0, 0]]] * copies, "float32"), device=device, check="status")
        assert found.flag == ["singular"] * copies
        assert found.column == [1] * copies
        assert (found.value == 0).all()
    big = np.diag(np.full(2000, 1e-3)) if device == "cpu" else np.diag(np.full(700, 1e-3))
    assert slogdet(big, device=device).logabsdet == pytest.approx(len(big) * np.log(1e-3), rel=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 5, 40, 100, 300])
def test_a_matrix_has_the_same_bits_alone_and_in_a_batch(n, device):
    a = matrix(n, "float64", batch=5)
    b = np.random.default_rng(3).standard_normal((5, n, 2))
    x, inverse, signs = solve(a, b, device=device), inv(a, device=device), slogdet(a, device=device)
    for k in range(5 if device == "cpu" or n <= 64 else 0):
        assert np.array_equal(x[k], solve(a[k], b[k], device=device))
        assert np.array_equal(inverse[k], inv(a[k], device=device))
        assert signs.logabsdet[k] == slogdet(a[k], device=device).logabsdet
    shared = solve(a, b[0], device=device)
    assert shared.shape == (5, n, 2)
    assert np.array_equal(shared[0], x[0])
    if n != 5:
        vectors = solve(a, b[:, :, 0], device=device)
        assert vectors.shape == (5, n)
        assert max(error_of(a[k], vectors[k], b[k, :, 0]) for k in range(5)) < limit(n, "float64")


def test_one_bad_matrix_leaves_its_neighbours_alone():
    a, b = matrix(20, "float64", batch=4), np.ones((4, 20))
    clean = solve(a, b)
    a[1, 3, 4], a[2] = np.nan, 1.0
    found = solve(a, b, check="status")
    assert found.status == [Status.OK, Status.NON_FINITE, Status.SINGULAR, Status.OK]
    assert np.array_equal(found.value[[0, 3]], clean[[0, 3]])
    assert np.isnan(found.value[1:3]).all()
    with pytest.raises(errors.NonFiniteError, match="matrix 1"):
        solve(a, b)


@pytest.mark.parametrize("n", [50, 300, 450, 700])
def test_bits_do_not_depend_on_threads(n, monkeypatch):
    a, b = matrix(n, "float64"), np.random.default_rng(5).standard_normal((n, 130))
    seen = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("WARPFRONT_THREADS", threads)
        seen.append((lu_factor(a).lu, solve(a, b), inv(a)))
    for other in seen[1:]:
        assert all(np.array_equal(x, y) for x, y in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_lower_precision_is_refined_or_refused(device):
    a, b = matrix(200, "float64"), np.random.default_rng(0).standard_normal((200, 3))
    outcome = solve(a, b, precision="float32", device=device, check="status")
    assert outcome.status == Status.OK
    assert 1 <= outcome.refinement_steps <= 10
    assert error_of(a, outcome.value, b) < limit(200, "float64")
    inverse = inv(a, precision="float32", device=device, check="status")
    assert inverse.status == Status.OK
    assert error_of(a, inverse.value, np.eye(200)) < limit(200, "float64")
    hard = scipy.linalg.hilbert(14)
    stuck = solve(hard, np.ones(14), precision="float32", device=device, check="status")
    assert stuck.status in (Status.REFINEMENT_FAILED, Status.SINGULAR)
    with pytest.raises((errors.RefinementFailedError, errors.SingularMatrixError)):
        solve(hard, np.ones(14), precision="float32", device=device)
    with pytest.raises(errors.InvalidValueError, match="float64"):
        solve(a.astype("float32"), b, precision="float32", device=device)


def test_gmres_takes_over_where_plain_refinement_stalls():
    rng = np.random.default_rng(2)
    u, v = np.linalg.qr(rng.standard_normal((2, 60, 60)))[0]
    a = u @ np.diag(np.logspace(0, -8.5, 60)) @ v  # condition beyond single precision
    outcome = solve(a, rng.standard_normal(60), precision="float32", check="status")
    assert "GMRES" in outcome.method
    assert outcome.status == Status.OK


def test_tensor_core_precisions_need_a_gpu():
    for precision in ("tf32", "float16"):
        with pytest.raises(errors.NotSupportedError, match="GPU"):
            solve(np.eye(3), np.ones(3), precision=precision)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "float16"])
def test_tensor_core_factors_are_refined(precision):
    a, b = matrix(900, "float64") + 30 * np.eye(900), np.ones(900)
    outcome = solve(a, b, precision=precision, device="cuda", check="status")
    assert outcome.status == Status.OK
    assert error_of(a, outcome.value, b) < limit(900, "float64")


@pytest.mark.parametrize("device", DEVICES)
def test_ill_conditioned_input_is_reported(device):
    hilbert = scipy.linalg.hilbert(13)
    with pytest.warns(errors.IllConditionedWarning):
        solve(hilbert, np.ones(13), device=device)
    with pytest.warns(errors.IllConditionedWarning):
        inv(hilbert, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = solve(hilbert, np.ones(13), device=device, check="status")
        solve(np.eye(13), np.ones(13), device=device)
    assert 0 < outcome.rcond < 1e-15


@pytest.mark.parametrize("device", DEVICES)
def test_empty_systems_are_defined(device):
    empty = np.zeros((0, 0))
    assert det(empty, device=device) == 1
    assert slogdet(empty, device=device) == (1, 0)
    assert inv(empty, device=device).shape == (0, 0)
    assert solve(empty, np.zeros(0), device=device).shape == (0,)
    assert solve(empty, np.zeros((0, 3)), device=device).shape == (0, 3)
    none = np.zeros((0, 4, 4))
    assert inv(none, device=device).shape == (0, 4, 4)
    assert solve(none, np.zeros((0, 4)), device=device).shape == (0, 4)
    assert det(none, device=device).shape == (0,)


@pytest.mark.parametrize(
    ("a", "text"),
    [
        (np.ones((2, 3)), "shape"),
        (np.ones(3), "shape"),
        (np.ones((2, 2, 2, 2)), "shape"),
        (np.ones((2, 2), "float16"), "float32"),
        (np.ones((2, 2), "longdouble"), "allowed"),
        (np.array([["a", "b"], ["c", "d"]]), "allowed"),
        (np.array([[None, 1], [2, 3]]), "numbers"),
    ],
)
def test_what_is_no_matrix_is_refused(a, text):
    for call in (
        lambda: inv(a),
        lambda: det(a),
        lambda: lu_factor(a),
        lambda: solve(a, np.ones(2)),
        lambda: rcond(a),
    ):
        with pytest.raises(errors.InvalidValueError, match=text):
            call()


def test_wrong_arguments_are_named():
    a = np.eye(3)
    for options in (
        {"pivoting": "none"},
        {"precision": "half"},
        {"device": "tpu"},
        {"check": "maybe"},
        {"check": 1},
    ):
        with pytest.raises(errors.InvalidValueError, match=next(iter(options))):
            solve(a, np.ones(3), **options)
    for b in (np.ones(4), np.ones((4, 3)), np.ones((1, 3, 1)), np.float64(1)):
        with pytest.raises(errors.InvalidValueError, match="b has shape"):
            solve(a, b)
    with pytest.raises(errors.InvalidValueError, match="three axes"):
        solve(np.stack([a] * 3), np.ones((3, 3)))
    with pytest.raises(errors.NonFiniteError):
        det(np.array([[np.nan]]))
    with pytest.raises(errors.NonFiniteError, match="right-hand side"):
        solve(a, [1, np.inf, 2])
    with pytest.raises(errors.InvalidValueError, match="trans"):
        lu_factor(a).solve(np.ones(3), "X")


def test_inputs_of_every_layout_and_kind():
    a = np.arange(16).reshape(4, 4) ** 2 % 7 + 8 * np.eye(4, dtype=int)
    b = np.arange(4)
    wanted = np.linalg.solve(a, b)
    for given_a in (
        a,
        a.tolist(),
        np.asfortranarray(a),
        a.astype(">f8"),
        np.repeat(a.astype(float), 2, axis=1)[:, ::2],
    ):
        assert solve(given_a, b) == pytest.approx(wanted, rel=1e-13)
    frozen = a.astype(float)
    frozen.setflags(write=False)
    before = frozen.copy()
    solve(frozen, b.astype(float))
    inv(frozen)
    assert np.array_equal(frozen, before)
    assert solve(a.astype("float32"), b.astype("float64")).dtype == np.float64
    assert solve(a.astype("float32"), b + 1j).dtype == np.complex128
    assert solve(a.astype(bool), [True] * 4, check="status").status in (Status.OK, Status.SINGULAR)


@pytest.mark.parametrize("device", DEVICES)
def test_many_unequal_matrices_over_streams(device):
    matrices = [matrix(n, "float64") for n in (3, 70, 1, 33, 300, 65, 64)]
    matrices[3][:, 2] = 0
    right = [np.ones(len(a)) for a in matrices]
    for streams in (1, 4):
        inverses = many("inv", matrices, streams=streams, device=device)
        assert [one.status for one in inverses] == [Status.OK] * 3 + [Status.SINGULAR] + [Status.OK] * 3
        for a, one in zip(matrices, inverses, strict=True):
            if one.ok:
                assert np.array_equal(one.value, inv(a, device=device))
        for a, one in zip(matrices, many("slogdet", matrices, streams=streams, device=device), strict=True):
            assert tuple(one) == tuple(slogdet(a, device=device))
        found = many("solve", matrices, right, streams=streams, device=device)
        assert [one.ok for one in found] == [True] * 3 + [False] + [True] * 3
        assert many("rcond", matrices, streams=streams, device=device)[3] == 0
        assert many("det", matrices, streams=streams, device=device)[3].flag == "singular"
    assert many("inv", [], device=device) == []
    for options in ({"operation": "lu"}, {"streams": 0}, {"right_hand_sides": right}):
        with pytest.raises(errors.InvalidValueError, match=next(iter(options))):
            many(**{"operation": "inv", "matrices": matrices, "device": device, **options})


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1e-15, 1.0, 1e15, 1e30]))
def test_any_scale(n, seed, scale):
    a = matrix(n, "float64", seed) * scale
    b = np.random.default_rng(seed).standard_normal(n)
    x = solve(a, b)
    assert error_of(a / scale, x * scale, b) < limit(n, "float64")
    assert slogdet(a).logabsdet == pytest.approx(
        np.linalg.slogdet(a / scale).logabsdet + n * np.log(scale), abs=1e-9
    )


def test_the_page_prints_what_it_says(capsys):
    import re
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "docs" / "dense.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", page, re.DOTALL).groups()
    exec(compile(code, "docs/dense.md", "exec"), {})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [65, 192, 193, 384, 512])
def test_one_compiled_call_has_the_bits_of_the_calls_one_by_one(n, dtype):
    a, b = matrix(n, dtype), matrix(n, dtype, seed=1)[:, :3]
    batch = np.stack([a, a])
    assert np.array_equal(solve(a, b), solve(batch, np.stack([b, b]))[1])
    assert np.array_equal(solve(a, b[:, 0]), lu_factor(a).solve(b[:, 0]))
    assert np.array_equal(inv(a), inv(batch)[1])
    assert slogdet(a)[1] == slogdet(batch)[1][1]
    for wrong in (np.nan, np.inf):
        bad = a.copy()
        bad[0, n - 1] = wrong
        for call in (lambda bad=bad: solve(bad, b), lambda bad=bad: inv(bad), lambda bad=bad: slogdet(bad)):
            with pytest.raises(errors.NonFiniteError):
                call()
    a[:, 7] = 0
    with pytest.raises(errors.SingularMatrixError):
        inv(a)
    assert slogdet(a).logabsdet == -np.inf
