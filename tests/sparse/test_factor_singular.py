"""Singular matrices: three counts, a column that is truly to blame, and never a wrong count called
certain."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import INDEFINITE, kkt, random_symmetric

from warpfront import DirectSolver, Inertia, Status, ldlt
from warpfront.errors import NonFiniteError, NotPositiveDefiniteError, SingularMatrixError
from warpfront.sparse._reference import dense_inertia, reconstruct, reconstruction_error


def factored(a, **options):
    return DirectSolver(sp.csr_array(a), structure="S", check="status", **options).factorize()


@settings(max_examples=30)
@given(n=st.integers(1, 40), zero=st.integers(1, 10), seed=st.integers(0, 2**32 - 1))
def test_zero_rows_are_counted_and_named(n, zero, seed):
    rng = np.random.default_rng(seed)
    a = random_symmetric(rng, n, 0.3) + np.diag(rng.choice([-9.0, 9.0], n))
    gone = rng.choice(n, min(zero, n), replace=False)
    a[gone, :] = a[:, gone] = 0.0
    solver = factored(a)
    assert solver.status == Status.SINGULAR
    assert solver.inertia == dense_inertia(a)
    assert solver.inertia.zero == gone.size
    assert solver.info - 1 in gone
    with pytest.raises(SingularMatrixError) as error:
        DirectSolver(sp.csr_array(a), structure="S").factorize()
    assert error.value.column in gone
    assert str(error.value.column) in str(error.value)


@pytest.mark.parametrize("n", [3, 10, 41, 100])
def test_duplicated_row_is_named(n):
    """Rows and columns i and j are equal: one zero eigenvalue, and one of the two columns is to blame."""
    rng = np.random.default_rng(n)
    a = random_symmetric(rng, n, 0.5) + 5 * np.eye(n)
    i, j = 0, n - 1
    a[j, :] = a[i, :]
    a[:, j] = a[:, i]
    a[j, j] = a[j, i] = a[i, j] = a[i, i]
    solver = factored(a)
    assert solver.status == Status.SINGULAR
    assert solver.inertia == dense_inertia(a)
    null = np.zeros(n)
    null[i], null[j] = 1.0, -1.0
    assert np.abs(a @ null).max() == 0.0
    # a column can only be found dependent if the null vector has a component there
    assert solver.info - 1 in (i, j)


@pytest.mark.parametrize("rank", [0, 1, 7, 14, 28])
def test_rank_deficient_saddle(rank):
    """Inertia (n, rank, m - rank) by construction: exact, or the record says that it is not certain."""
    n, m = 40, 29
    wrong = []
    for seed in range(12):
        solver = factored(kkt(n, m, seed, rank=rank))
        certain = solver.report.factor.inertia_certain
        if solver.inertia != Inertia(n, rank, m - rank) and certain:
            wrong.append((seed, solver.inertia))
    assert not wrong


@pytest.mark.parametrize("m", [1, 5, 20])
def test_integer_saddle_with_repeated_constraints(m):
    """Exactly representable values: a repeated constraint must be found, not rounded into existence."""
    rng = np.random.default_rng(m)
    n = 2 * m + 3
    b = rng.integers(-2, 3, (m, n)).astype(float)
    b = np.vstack([b, b[rng.integers(0, m, m)]])
    rank = int(np.linalg.matrix_rank(b))
    k = np.block([[np.diag(rng.choice([1.0, 2.0, 4.0], n)), b.T], [b, np.zeros((2 * m, 2 * m))]])
    solver = factored(k)
    assert solver.inertia == Inertia(n, rank, 2 * m - rank) or not solver.report.factor.inertia_certain


@pytest.mark.parametrize("n", [1, 2, 17])
def test_all_zero_and_empty(n):
    solver = factored(sp.csr_array((n, n)))
    assert solver.inertia == Inertia(0, 0, n)
    assert solver.status == Status.SINGULAR
    assert 1 <= solver.info <= n


def test_star_with_zero_diagonal():
    """Rank 2 whatever n: one hub, zero-diagonal leaves."""
    for n in (2, 3, 10, 150):
        a = np.zeros((n, n))
        a[0, 1:] = a[1:, 0] = 1.0
        solver = factored(a)
        assert solver.inertia == Inertia(1, 1, n - 2)
        assert reconstruction_error(a, reconstruct(ldlt(sp.csr_array(a), check="status"))) <= 1e-14


def test_consistent_singular_system_in_status_mode():
    """``check="status"``: the answer solves the system where it can be solved, and the status says
    singular."""
    a = np.diag([1.0, 2.0, 0.0, -3.0])
    solver = factored(a)
    b = np.array([1.0, 2.0, 0.0, 3.0])
    x = solver.solve(b)
    np.testing.assert_array_equal(x, [1.0, 1.0, 0.0, -1.0])
    assert solver.status == Status.SINGULAR
    assert solver.report.solve.status == Status.SINGULAR
    assert solver.report.solve.backward_error == 0.0
    assert solver.rcond() == 0.0


def test_status_mode_never_raises():
    """Singular, inconsistent, not positive definite, tolerance missed: all stay in the status."""
    singular = factored(np.diag([1.0, 0.0]))
    singular.solve(np.ones(2))
    assert singular.status == Status.SINGULAR
    assert singular.report.solve.backward_error > 0.1
    indefinite = DirectSolver(np.diag([1.0, -1.0, 2.0]), structure="SPD", check="status").factorize()
    assert indefinite.status == Status.NOT_POSITIVE_DEFINITE
    assert indefinite.info == 2
    x = indefinite.solve(np.ones((3, 2)))
    assert x.shape == (3, 2)
    assert np.isnan(x).all()
    assert indefinite.report.solve.status == Status.NOT_POSITIVE_DEFINITE
    assert np.isnan(indefinite.report.solve.backward_error)
    assert np.isnan(indefinite.rcond())
    strict = DirectSolver(INDEFINITE["dense"](np.random.default_rng(0), 30), check="status", ir_tol=0.0)
    strict.solve(np.random.default_rng(1).standard_normal(30))
    assert strict.status == Status.REFINEMENT_FAILED


def test_failed_factor_is_never_read():
    """What a stopped Cholesky left behind is not a factor."""
    solver = DirectSolver(np.diag([1.0, -1.0, 2.0]), structure="SPD", check="status").factorize()
    for name in ("diag",):
        with pytest.raises(NotPositiveDefiniteError):
            solver.get(name)
    from warpfront.sparse.interface import SymmetricFactor

    factor = SymmetricFactor(solver)
    for read in (lambda: factor.L, lambda: factor.perm, factor.slogdet, factor.logdet, factor.diagonal):
        with pytest.raises(NotPositiveDefiniteError):
            read()
    with pytest.raises(NotPositiveDefiniteError):
        solver.execute("solve_fwd", np.zeros(3), np.ones(3))


@pytest.mark.parametrize("n", [1, 5, 30, 64])
def test_not_positive_definite_names_the_first_bad_minor(n):
    """The column is where the leading minors, in the elimination order, stop being positive definite."""
    rng = np.random.default_rng(n)
    a = random_symmetric(rng, n, 0.3)
    np.fill_diagonal(a, np.abs(a).sum(axis=1))
    bad = rng.integers(n)
    a[bad, bad] = -1.0
    solver = DirectSolver(sp.csr_array(a), structure="SPD", check="status").factorize()
    assert solver.status == Status.NOT_POSITIVE_DEFINITE
    perm = solver.get("perm_reorder_row")
    permuted = a[np.ix_(perm, perm)]
    first = next(k for k in range(n) if np.linalg.eigvalsh(permuted[: k + 1, : k + 1])[0] <= 0)
    assert solver.info - 1 == perm[first]


def test_overflow_is_said():
    """Products that overflow end in a status or typed error, and good values afterwards are fine again."""
    a = sp.csr_array(np.array([[1e300, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, -3.0]]))
    a.data[:] = np.where(np.abs(a.data) == 1.0, 1e308, a.data)
    solver = DirectSolver(a, structure="S", scaling="none", check="status")
    try:
        solver.factorize()
        x = solver.solve(np.ones(3))
        assert solver.status != Status.OK or np.isfinite(x).all()
    except NonFiniteError:
        pass
    good = np.array([4.0, 1.0, 1.0, 2.0, 1.0, 1.0, -3.0])
    solver.refactorize(good)
    assert solver.status == Status.OK
    assert solver.inertia == Inertia(2, 1, 0)
