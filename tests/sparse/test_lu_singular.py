"""LU of singular matrices: rows and columns that have no pivot, consistent systems, refusals."""

import numpy as np
import pytest
import scipy.sparse as sp
from general_matrices_for_tests import backward_error, convection
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfront as wf
from warpfront import DirectSolver, Status
from warpfront.errors import InvalidValueError, NonFiniteError, SingularMatrixError


def rank_deficient(n, defect, seed, block=False):
    """Rank n - defect, with integers so that no rounding hides it, and a unique place for it when ``block``."""
    rng = np.random.default_rng(seed)
    a = (
        rng.integers(-3, 4, (n, n)) * (rng.random((n, n)) < 0.4)
        + 7 * np.eye(n, dtype=np.int64)[rng.permutation(n)]
    )
    for k in range(defect):
        target, one, two = rng.choice(n, 3, replace=False)
        a[:, target] = a[:, one] + 2 * a[:, two]
        del k
    return a.astype(float)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 40), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_the_rank_is_found_and_consistent_systems_are_solved(n, defect, seed):
    """Case 12's kind: named as singular, as many pivots missing as the rank says, and A x = b where b = A y."""
    a = rank_deficient(n, defect, seed)
    rank = np.linalg.matrix_rank(a)
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status")
    rng = np.random.default_rng(seed)
    b = a @ rng.standard_normal(n)
    x = solver.solve(b)
    if rank == n:
        assert solver.status == Status.OK
        return
    assert solver.status == Status.SINGULAR
    assert solver.pivot_stats.zero == n - rank
    assert backward_error(a, x, b) < 1e-12
    y = solver.solve(a.T @ b, "T")
    assert backward_error(a.T, y, a.T @ b) < 1e-12
    with pytest.raises(SingularMatrixError) as caught:
        DirectSolver(sp.csr_array(a), structure="G").factorize()
    assert caught.value.column == solver.report.factor.column
    assert 0 <= caught.value.column < n


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_without_the_named_rows_and_columns_the_rest_is_regular(n, seed):
    """The verdict is right: crossing out its rows and columns leaves a nonsingular matrix."""
    rng = np.random.default_rng(seed)
    a = np.where(rng.random((n, n)) < 2.0 / n, rng.standard_normal((n, n)), 0.0)
    if not a.any():
        return
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status").factorize()
    if solver.status == Status.OK:
        assert np.linalg.matrix_rank(a) == n
        return
    from warpfront.sparse.numeric.factorize_lu import zero_pivots

    rows, cols = zero_pivots(solver._factor)
    assert len(set(rows)) == len(set(cols)) == n - np.linalg.matrix_rank(a)
    rest = np.delete(np.delete(a, rows, 0), cols, 1)
    assert np.linalg.matrix_rank(rest) == rest.shape[0]


def test_structurally_singular_is_said_with_rows_and_columns():
    a = sp.csr_array(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0], [0.0, 0.0, 1.0]]))
    with pytest.raises(SingularMatrixError, match=r"structural rank is 2 of 3.*columns 1.*rows") as caught:
        wf.spsolve(a, np.ones(3))
    assert caught.value.column == 1
    solver = DirectSolver(a, check="status").factorize()
    assert (solver.status, solver.info) == (Status.SINGULAR, 2)
    assert solver.report.analysis.structural_rank == 2


def test_numerically_singular_names_a_dependent_column():
    a = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 1.0]])
    with pytest.raises(SingularMatrixError, match="to working precision: column") as caught:
        wf.splu(sp.csr_array(a))
    assert caught.value.column in (0, 1, 2)
    assert DirectSolver(a, check="status", structure="G").factorize().rcond() == 0.0


def test_empty_rows_and_columns():
    a = convection(5).tolil()
    a[7, :] = 0
    a[:, 11] = 0
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status").factorize()
    assert solver.status == Status.SINGULAR
    assert solver.report.factor.column == 11
    assert solver.pivot_stats.zero == 1
    rng = np.random.default_rng(0)
    b = a.tocsr() @ rng.standard_normal(25)
    assert backward_error(a, solver.solve(b), b) < 1e-13


def test_a_singular_block_of_a_regular_pattern_is_solved_as_a_whole():
    """The diagonal block is zero to working precision, the matrix as a whole has rank 3 of 4."""
    a = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, -1.0]])
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status").factorize()
    assert solver.pivot_stats.zero == 1
    b = a @ np.arange(1.0, 5.0)
    assert backward_error(a, solver.solve(b), b) < 1e-15


def test_status_resets_with_regular_values():
    a = convection(6)
    singular = a.copy()
    singular.data[singular.indptr[3] : singular.indptr[4]] = 0.0
    solver = DirectSolver(a, check="status").factorize()
    reference = solver.solve(np.ones(36))
    solver.refactorize(singular)
    assert solver.status == Status.SINGULAR
    solver.refactorize(a)
    assert solver.status == Status.OK
    assert np.array_equal(solver.solve(np.ones(36)), reference)


def test_values_that_say_nothing_are_refused():
    """Case 14's kind."""
    a = convection(4)
    with pytest.raises(InvalidValueError, match="every value of the matrix is zero"):
        DirectSolver(a * 0.0, structure="G").analyze()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(bad):
    a = convection(4)
    a.data[5] = bad
    with pytest.raises(NonFiniteError) as caught:
        DirectSolver(a)
    assert caught.value.entry == 5
    solver = DirectSolver(convection(4))
    with pytest.raises(NonFiniteError):
        solver.factorize().refactorize(a.data)
    b = np.ones(16)
    b[3] = bad
    with pytest.raises(NonFiniteError):
        solver.solve(b)


def test_no_pivot_epsilon_means_no_perturbation():
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    solver = DirectSolver(
        sp.csr_array(a), structure="G", on_unstable="perturb", pivot_epsilon=0.0, check="status"
    ).factorize()
    assert solver.status == Status.SINGULAR
    perturbed = DirectSolver(
        sp.csr_array(a), structure="G", on_unstable="perturb", check="status"
    ).factorize()
    assert perturbed.status == Status.OK
    assert perturbed.get("npivots") == 1
