"""Refinement, condition, determinant and the SciPy faces of a factor, against dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import INDEFINITE, laplacian_2d, mirrored, positive_definite
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from warpfront import DirectSolver, Status, cholesky, factorized, ldlt, spsolve
from warpfront.errors import RefinementFailedError
from warpfront.sparse._reference import backward_errors, inverse_condition, reconstruct, reconstruction_error


def hilbert(n):
    i = np.arange(n)
    return 1.0 / (i[:, None] + i[None, :] + 1.0)


# ---------------------------------------------------------------------- refinement
def test_no_steps_measures_nothing():
    solver = DirectSolver(laplacian_2d(8), ir_n_steps=0)
    solver.solve(np.ones((64, 3)))
    record = solver.report.solve
    assert np.isnan(record.backward_error)
    assert np.isnan(record.componentwise_error)
    assert record.refinement_steps == 0
    assert record.status == Status.OK


@pytest.mark.parametrize(
    "kind", ["random", "zero block", "badly scaled", "70% delayed", "times 1e150", "times 1e-150"]
)
def test_recorded_errors_are_the_true_ones(kind):
    """Recomputed in extended precision: what the record says is within a few units of rounding."""
    a = INDEFINITE[kind](np.random.default_rng(2), 50)
    b = np.random.default_rng(3).standard_normal((50, 3)) * np.abs(a).max()
    solver = DirectSolver(sp.csr_array(a), structure="S")
    x = solver.solve(b)
    whole, component = backward_errors(a, x, b)
    record = solver.report.solve
    assert record.backward_error == pytest.approx(whole, abs=1e-15)
    assert record.componentwise_error == pytest.approx(component, abs=5e-15 * 50)
    assert record.backward_error <= 5e-14


@pytest.mark.parametrize("steps", [1, 2, 5, 100])
def test_refinement_never_makes_it_worse(steps):
    """Best iterate kept, down to hopeless conditions; steps stop when they no longer help."""
    for n in (5, 8, 12):
        a = hilbert(n)
        b = a @ np.ones(n)
        plain = DirectSolver(a, structure="S", ir_n_steps=0, check="status").solve(b)
        solver = DirectSolver(a, structure="S", ir_n_steps=steps, check="status")
        x = solver.solve(b)
        assert backward_errors(a, x, b)[1] <= backward_errors(a, plain, b)[1] * (1 + 1e-9) + 1e-18
        assert solver.report.solve.refinement_steps <= steps


class WorseEachTime:
    """A sweeper whose corrections are good for one step and harmful afterwards."""

    def __init__(self, sweeper):
        self.sweeper, self.calls = sweeper, 0

    def solve_into(self, b, base, x, trans):
        self.sweeper.solve_into(b, base, x, trans)
        self.calls += 1
        x += {1: 1e-3, 2: 1e-6}.get(self.calls, 1.0)


def test_the_best_iterate_is_kept():
    a = laplacian_2d(6)
    b = a @ np.ones(36)
    solver = DirectSolver(a, ir_n_steps=10, check="status").factorize()
    refiner = solver._refined()
    refiner._sweeper = worse = WorseEachTime(refiner._sweeper)
    x = np.empty(36)
    result = refiner.solve(b, x, 10)
    assert worse.calls == 3  # the step that did harm is the last one
    assert result.steps == 2
    np.testing.assert_allclose(x, np.full(36, 1.0 + 1e-6), rtol=1e-12)  # what the second call gave
    whole, component = backward_errors(a, x, b)
    assert result.normwise == pytest.approx(whole, rel=1e-6)
    assert result.componentwise == pytest.approx(component, rel=1e-6)


def test_refinement_repairs_a_perturbed_factor():
    """Pivots replaced by 1e-8: the factor is of another matrix, the solution is not."""
    rng = np.random.default_rng(5)
    a = INDEFINITE["random"](rng, 30)
    a[0, 0], a[0, 1:], a[1:, 0] = 0.0, 0.0, 0.0
    a[0, 1] = a[1, 0] = 1.0
    a[1, 1] = 0.0
    solver = DirectSolver(
        sp.csr_array(a), structure="S", on_unstable="perturb", ir_n_steps=20, pivot_threshold=0.5
    )
    b = rng.standard_normal(30)
    x = solver.solve(b)
    assert backward_errors(a, x, b)[0] <= 1e-12


def test_ir_tol_is_held():
    a = INDEFINITE["dense"](np.random.default_rng(6), 40)
    b = np.random.default_rng(7).standard_normal(40)
    with pytest.raises(RefinementFailedError) as error:
        DirectSolver(a, ir_tol=0.0).solve(b)
    assert 0 < error.value.backward_error < 1e-12
    quiet = DirectSolver(a, ir_tol=0.0, check="status")
    x = quiet.solve(b)
    assert quiet.status == Status.REFINEMENT_FAILED
    assert quiet.report.solve.backward_error > 0
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-8)
    quiet.set("ir_tol", 1e-8)
    quiet.solve(b)
    assert quiet.status == Status.OK


@pytest.mark.parametrize("exponent", [-300, -150, -20, 0, 20, 150])
def test_right_hand_sides_of_any_size(exponent):
    a = laplacian_2d(6)
    solver = DirectSolver(a).factorize()
    b = np.ldexp(np.arange(1.0, 37.0), exponent)
    x = solver.solve(b)
    assert np.isfinite(x).all()
    assert np.array_equal(
        np.ldexp(x, -exponent), solver.solve(np.arange(1.0, 37.0))
    )  # powers of two change no digit
    assert solver.report.solve.backward_error <= 1e-14


# ---------------------------------------------------------------------- condition
@pytest.mark.parametrize(
    "kind", ["random", "zero block", "arrow", "banded", "dense", "70% delayed", "all 2x2"]
)
@settings(max_examples=10)
@given(n=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_rcond_within_ten_of_the_truth(kind, n, seed):
    a = INDEFINITE[kind](np.random.default_rng(seed), n)
    truth = inverse_condition(a)
    solver = DirectSolver(sp.csr_array(a), structure="S", check="status").factorize()
    if truth < 1e-13 or solver.status != Status.OK:
        assert solver.rcond() <= 1e-11
        return
    assert truth / 1.01 <= solver.rcond() <= 10 * truth


@pytest.mark.parametrize("n", [2, 6, 9])
def test_rcond_of_hilbert(n):
    truth = inverse_condition(hilbert(n))
    assert truth / 1.1 <= cholesky(hilbert(n)).rcond() <= 10 * truth
    assert truth / 1.1 <= ldlt(hilbert(n)).rcond() <= 10 * truth


# ---------------------------------------------------------------------- determinant
@pytest.mark.parametrize("kind", INDEFINITE)
@settings(max_examples=6)
@given(n=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
def test_slogdet_equals_numpy(kind, n, seed):
    a = INDEFINITE[kind](np.random.default_rng(seed), n)
    factor = ldlt(sp.csr_array(a), check="status")
    sign, logarithm = factor.slogdet()
    if factor.solver.status == Status.SINGULAR:
        assert (sign, logarithm) == (0.0, -np.inf)
        return
    if inverse_condition(a) < 1e-10 and kind != "badly scaled":
        return
    if kind in (
        "badly scaled",
        "times 1e-150",
        "times 1e150",
    ):  # NumPy's own elimination, with rows scaled first
        unit = factor.scale
        scaled = unit[:, None] * a * unit[None, :]
        expected = np.linalg.slogdet(scaled)
        shift = -2 * np.log(unit).sum()
    else:
        expected, shift = np.linalg.slogdet(a), 0.0
    assert sign == expected[0]
    assert logarithm == pytest.approx(expected[1] + shift, rel=1e-10, abs=1e-7)
    value = factor.logdet()
    assert value == logarithm if sign > 0 else np.isnan(value)


def test_slogdet_where_det_underflows():
    """1e-2 I_32 and its kind: the determinant is no double, its logarithm is."""
    n = 400
    factor = cholesky(sp.csr_array(1e-2 * sp.eye_array(n)))
    sign, logarithm = factor.slogdet()
    assert sign == 1.0
    assert logarithm == pytest.approx(n * np.log(1e-2), rel=1e-14)


# ---------------------------------------------------------------------- faces
def test_factor_reads_like_a_factor():
    a = INDEFINITE["zero block"](np.random.default_rng(8), 45)
    factor = ldlt(sp.csc_array(a))
    dense = reconstruct(factor)
    assert reconstruction_error(a, dense) <= 1e-12
    order = np.argsort(factor.perm)
    s = factor.scale
    rebuilt = (dense.L @ dense.D @ dense.L.T)[np.ix_(order, order)] / s[:, None] / s[None, :]
    np.testing.assert_allclose(rebuilt, a, atol=1e-12 * np.abs(a).max())
    np.testing.assert_array_equal(factor.diagonal()[factor.perm], np.diag(dense.D))
    assert factor.shape == (45, 45)
    assert factor.dtype == np.float64
    assert factor.nnz >= np.count_nonzero(dense.L)


def test_cholesky_diagonal_is_that_of_d():
    a = positive_definite("random", np.random.default_rng(9), 30)
    factor = cholesky(sp.csc_array(a))
    lower = factor.L.toarray()
    np.testing.assert_allclose(factor.diagonal()[factor.perm], np.diag(lower) ** 2, rtol=1e-15)


def test_entry_points_agree():
    a = laplacian_2d(7)
    b = np.random.default_rng(10).standard_normal((49, 2))
    x = spsolve(a, b)
    for solve in (factorized(a), cholesky(a), cholesky(a).solve, DirectSolver(a).solve):
        assert solve(b).tobytes() == x.tobytes()
    np.testing.assert_allclose(ldlt(a)(b), x, rtol=1e-11)
    np.testing.assert_allclose(x, np.linalg.solve(a.toarray(), b), rtol=1e-11)


def test_linear_operator_in_eigsh():
    """Shift-invert around an interior point of the spectrum, as ``OPinv``."""
    a = laplacian_2d(14)
    sigma = 1.7
    shifted = sp.csr_array(a - sigma * sp.eye_array(196))
    operator = ldlt(shifted).as_linear_operator()
    assert isinstance(operator, LinearOperator)
    found = eigsh(a, k=6, sigma=sigma, OPinv=operator, return_eigenvectors=False)
    exact = np.linalg.eigvalsh(a.toarray())
    nearest = np.sort(exact[np.argsort(np.abs(exact - sigma), kind="stable")[:6]])
    np.testing.assert_allclose(np.sort(found), nearest, rtol=1e-10)
    below = int((exact < sigma).sum())
    assert ldlt(shifted).inertia.negative == below


def test_linear_operator_is_the_inverse():
    a = laplacian_2d(9)
    operator = cholesky(a).as_linear_operator()
    inverse = np.linalg.inv(a.toarray())
    np.testing.assert_allclose(operator @ np.eye(81), inverse, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(operator.H @ np.ones(81), inverse @ np.ones(81), rtol=1e-12)
    x, info = cg(a, np.ones(81), M=operator, maxiter=3, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(a @ x, np.ones(81), rtol=1e-8)


@pytest.mark.parametrize("n", [1, 10, 63])
def test_solution_against_dense(n):
    a = mirrored(np.random.default_rng(n).standard_normal((n, n)))
    b = np.random.default_rng(n + 1).standard_normal((n, 2))
    x = spsolve(sp.coo_array(a), b)
    assert backward_errors(a, x, b)[0] <= 5e-14
