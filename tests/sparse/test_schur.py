"""Schur complements against the dense formula, and solves through them."""

import numpy as np
import pytest
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, kkt, laplacian_2d

from warpfront import DirectSolver, Inertia, schur_complement
from warpfront.errors import InvalidValueError, NotSupportedError, SingularMatrixError


def dense_schur(a, indices):
    rest = np.setdiff1d(np.arange(a.shape[0]), indices)
    return a[np.ix_(indices, indices)] - a[np.ix_(indices, rest)] @ np.linalg.solve(
        a[np.ix_(rest, rest)], a[np.ix_(rest, indices)]
    )


def matrices():
    rng = np.random.default_rng(0)
    n = 60
    real = INDEFINITE["dense"](rng, n) * (rng.random((n, n)) < 0.2)
    symmetric = np.tril(real) + np.tril(real, -1).T + np.diag(rng.standard_normal(n))
    skew = np.tril(rng.standard_normal((n, n)), -1) * (rng.random((n, n)) < 0.2)
    return {
        "SPD": laplacian_2d(8).toarray(), "S": symmetric, "H": symmetric + 1j * skew - 1j * skew.T,
        "complex S": symmetric + 1j * (skew + skew.T), "G": symmetric + skew, "saddle": kkt(40, 20, 0),
    }  # fmt: skip


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize("count", [0, 1, 7])
def test_against_the_dense_formula(name, count):
    a = matrices()[name]
    n = a.shape[0]
    indices = np.random.default_rng(count).permutation(n)[:count]
    schur = schur_complement(sp.csr_array(a), indices)
    expected = dense_schur(a, indices)
    assert schur.matrix.dtype == a.dtype
    np.testing.assert_allclose(schur.matrix, expected, rtol=1e-8, atol=1e-9 * np.abs(a).max())
    b = a @ np.arange(1.0, n + 1)
    np.testing.assert_allclose(schur.solve(b), np.arange(1.0, n + 1), rtol=1e-6)
    two = np.c_[b, 2 * b]
    x2 = np.linalg.solve(expected, schur.forward(two)) if count else np.zeros((0, 2))
    np.testing.assert_allclose(schur.backward(two, x2), np.c_[1 : n + 1, 2 : 2 * n + 1 : 2], rtol=1e-6)
    if name in ("SPD", "S", "H", "saddle"):
        values = np.linalg.eigvalsh(a)
        assert schur.inertia == Inertia(int((values > 0).sum()), int((values < 0).sum()), 0)


def test_published_truths():
    """The 5 x 5 examples of an open Julia solver."""
    a = np.array([[2.0, 0, 0, 1, 0], [0, 2, 0, 0, 1], [0, 0, 2, 1, 1], [1, 0, 1, 3, 1.5], [0, 1, 1, 1.5, 3]])
    np.testing.assert_allclose(schur_complement(a, [3, 4]).matrix, [[2.0, 1.0], [1.0, 2.0]], rtol=1e-14)


def test_new_values_and_marks():
    a = matrices()["S"]
    mark = np.zeros(60, bool)
    mark[[5, 50]] = True
    schur = schur_complement(sp.csr_array(a), mark)
    assert schur.indices.tolist() == [5, 50]
    schur.refactorize(sp.csr_array(2 * a))
    np.testing.assert_allclose(schur.matrix, 2 * dense_schur(a, [5, 50]), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("structure", ["auto", "G"])
def test_entries_that_become_zero_and_come_back(structure):
    a = sp.csr_array(np.array([[4.0, 1, 0, 1], [1, 5, 1, 0], [0, 1, 6, 1], [1, 0, 1, 7]]))
    without = a.copy()
    row = np.repeat(np.arange(4), np.diff(a.indptr))
    without.data[row + a.indices == 1] = 0  # (0, 1) and (1, 0), still stored
    schur = schur_complement(a, [3], structure=structure)
    for values in (without, a):
        schur.refactorize(values.data)
        np.testing.assert_allclose(schur.matrix, dense_schur(values.toarray(), [3]), rtol=1e-14)
    schur_complement(without, [3], structure=structure).refactorize(a.data)


def test_refusals():
    for indices in ([60], [-1], [1, 1], [0.5], [[1]], np.ones(3, bool)):
        with pytest.raises(InvalidValueError, match="ind"):
            schur_complement(matrices()["S"], indices)
    with pytest.raises(SingularMatrixError):
        schur_complement(np.array([[0.0, 1.0], [1.0, 1.0]]), [1])
    schur = schur_complement(np.eye(3), [2])
    with pytest.raises(InvalidValueError, match="x2"):
        schur.backward(np.ones(3), np.ones(2))
    solver = DirectSolver(np.eye(3))
    for name in ("schur_mode", "user_schur_indices"):
        with pytest.raises(NotSupportedError, match="schur_complement"):
            solver.set(name, 1)
    with pytest.raises(NotSupportedError, match="schur_complement"):
        solver.execute("solve_fwd_schur", np.ones(3), np.ones(3))
