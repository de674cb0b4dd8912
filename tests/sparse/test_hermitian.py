"""Complex matrices: Hermitian, complex symmetric and general told apart by evidence; views, determinants, conditions."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import random_symmetric

from warpfront import DirectSolver, Inertia, Status, cholesky, ldlt, spsolve
from warpfront.errors import InvalidValueError, NonFiniteError, NotPositiveDefiniteError
from warpfront.sparse._reference import backward_errors, inverse_condition


def hermitian(n, seed=0, density=0.3):
    rng = np.random.default_rng(seed)
    lower = np.tril(random_symmetric(rng, n, density), -1) + 1j * np.tril(
        random_symmetric(rng, n, density), -1
    )
    return lower + lower.conj().T + np.diag(rng.standard_normal(n))


def definite(n, seed=0):
    a = hermitian(n, seed)
    return a + np.diag(np.abs(a).sum(axis=1) + 1.0 - np.diag(a).real)


def complex_symmetric(n, seed=0):
    rng = np.random.default_rng(seed)
    return random_symmetric(rng, n, 0.3) + 1j * random_symmetric(rng, n, 0.3)


@pytest.mark.parametrize(
    ("matrix", "structure", "method", "words"),
    [
        (hermitian(20), "H", "LDL^H", "conj(a[j, i])"),
        (definite(20), "HPD", "LL^H", "Cholesky is tried first"),
        (complex_symmetric(20), "S", "LDL^T", "complex symmetric"),
        (
            complex_symmetric(20) + np.triu(complex_symmetric(20), 1),
            "G",
            "LU",
            "symmetric but the values are not",
        ),
        (definite(20).real, "SPD", "LL^T", "Cholesky is tried first"),
        (hermitian(20).real, "S", "LDL^T", "not all positive"),
        (np.triu(hermitian(20)), "G", "LU", "pattern is not symmetric"),
        (np.diag([1.0 + 0j, 2.0, 3.0]), "HPD", "LL^H", "Cholesky"),
        (np.diag([1j, 2.0, 3.0]), "S", "LDL^T", "complex symmetric"),
    ],
)
def test_the_structure_is_found_and_said(matrix, structure, method, words):
    solver = DirectSolver(sp.csr_array(matrix)).factorize()
    record = solver.report
    assert record.analysis.structure == structure
    assert words in record.analysis.structure_reason
    assert record.factor.method == method
    b = matrix @ np.ones(matrix.shape[0])
    assert backward_errors(matrix, solver.solve(b), b)[0] < 1e-14


def test_an_indefinite_hermitian_matrix_with_a_positive_diagonal():
    a = np.array([[1.0, 2j], [-2j, 1.0]])
    solver = DirectSolver(a).factorize()
    assert solver.report.factor.method.startswith("LDL^H (Cholesky stopped at column")
    assert solver.inertia == Inertia(1, 1, 0)
    with pytest.raises(NotPositiveDefiniteError):
        cholesky(a)


@pytest.mark.parametrize("structure", ["H", "HPD", "S"])
@pytest.mark.parametrize("view", ["lower", "upper"])
def test_one_triangle(structure, view):
    a = {"H": hermitian, "HPD": definite, "S": complex_symmetric}[structure](30)
    half = np.tril(a) if view == "lower" else np.triu(a)
    garbage = np.triu(np.full((30, 30), 7j), 1) if view == "lower" else np.tril(np.full((30, 30), 7j), -1)
    whole = DirectSolver(sp.csr_array(a), structure=structure)
    part = DirectSolver(sp.csr_array(half + garbage), structure=structure, view=view)
    b = np.arange(30) + 1j
    assert part.solve(b).tobytes() == whole.solve(b).tobytes()
    part.refactorize(sp.csr_array(half * 2 + garbage))
    assert part.solve(b).tobytes() == whole.refactorize(sp.csr_array(2 * a)).solve(b).tobytes()


def test_one_triangle_of_a_complex_matrix_needs_a_structure():
    a = sp.csr_array(np.tril(hermitian(5)))
    with pytest.raises(InvalidValueError, match=r"'H'.*'S'"):
        DirectSolver(a, view="lower")
    rounded = a + sp.diags_array(1e-16j * np.abs(a.diagonal()))  # as B @ B.conj().T leaves it
    with pytest.raises(InvalidValueError, match=r"'H'.*'S'"):
        DirectSolver(rounded.tocsr(), view="lower")
    skew = sp.csr_array(np.tril(complex_symmetric(5) + 1j * np.eye(5)))
    assert DirectSolver(skew, view="lower").analyze().report.analysis.structure == "S"


def test_what_is_not_hermitian_is_refused_with_the_entry():
    with pytest.raises(InvalidValueError, match=r"not Hermitian: a\[1, 0\] = 1j but conj\(a\[0, 1\]\) = -1j"):
        DirectSolver(np.array([[1.0, 1j], [1j, 1.0]]), structure="H")
    with pytest.raises(InvalidValueError, match=r"a\[1, 1\].*not real"):
        DirectSolver(np.array([[1.0, 1j], [-1j, 1j]]), structure="H")
    with pytest.raises(InvalidValueError, match="HPD"):
        DirectSolver(definite(4), structure="SPD")
    solver = DirectSolver(definite(4), structure="HPD").factorize()
    with pytest.raises(InvalidValueError, match="not real"):
        solver.refactorize(definite(4) + 1j * np.eye(4))


@pytest.mark.parametrize(
    ("make", "matrix"),
    [(cholesky, definite(25)), (lambda a: ldlt(a, hermitian=True), hermitian(25)), (ldlt, complex_symmetric(25))],
    ids=["HPD", "H", "S"],
)  # fmt: skip
def test_determinant_condition_and_operator(make, matrix):
    factor = make(sp.csr_array(matrix))
    sign, logarithm = factor.slogdet()
    expected = np.linalg.slogdet(matrix)
    assert sign == pytest.approx(expected.sign, abs=1e-12)
    assert logarithm == pytest.approx(expected.logabsdet, rel=1e-12)
    true = inverse_condition(matrix)
    assert true / 2 <= factor.rcond() <= 4 * true
    operator = factor.as_linear_operator()
    b = np.arange(25) + 2j
    np.testing.assert_allclose(operator @ b, np.linalg.solve(matrix, b), rtol=1e-9)
    np.testing.assert_allclose(operator.H @ b, np.linalg.solve(matrix.conj().T, b), rtol=1e-9)


def test_real_eigenvalues_by_shift_and_invert():
    from scipy.sparse.linalg import eigsh

    a = sp.csr_array(hermitian(60, density=0.1))
    inverse = ldlt(a, hermitian=True).as_linear_operator()
    found = eigsh(a, k=3, sigma=0.0, OPinv=inverse, return_eigenvectors=False)
    all_values = np.linalg.eigvalsh(a.toarray())
    expected = all_values[np.argsort(np.abs(all_values))[:3]]
    np.testing.assert_allclose(np.sort(found), np.sort(expected), rtol=1e-8)


def test_sparse_right_hand_sides():
    a = sp.csr_array(definite(40))
    b = sp.random_array((40, 150), density=0.05, rng=np.random.default_rng(0), format="csr")
    x = spsolve(a, b)
    assert isinstance(x, sp.csr_array)
    np.testing.assert_allclose(x.toarray(), np.linalg.solve(a.toarray(), b.toarray()), rtol=1e-10, atol=1e-12)
    old = spsolve(a, sp.csc_matrix(b))
    assert isinstance(old, sp.csc_matrix)
    empty = spsolve(a, sp.csc_array((40, 0)))
    assert empty.shape == (40, 0)
    with pytest.raises(InvalidValueError, match="out"):
        DirectSolver(a).solve(b, out=np.zeros((40, 150)))


def test_nan_is_a_status_where_status_was_asked_for():
    a = hermitian(10)
    bad = a.copy()
    bad[3, 4] = np.nan
    for matrix, structure in ((bad, "H"), (bad.real, "S"), (bad, "auto"), (bad.real, "auto")):
        with pytest.raises(NonFiniteError):
            DirectSolver(sp.csr_array(matrix), structure=structure)
        solver = DirectSolver(sp.csr_array(matrix), structure=structure, check="status")
        x = solver.solve(np.ones(10))
        assert np.isnan(x).all()
        assert solver.status == Status.NON_FINITE
        assert solver.report.factor.status == Status.NON_FINITE
    solver = DirectSolver(a, check="status").factorize()
    b = np.ones(10)
    b[2] = np.inf
    assert np.isnan(solver.solve(b)).all()
    assert solver.status == Status.NON_FINITE
    solver.refactorize(bad)
    assert solver.status == Status.NON_FINITE
    solver.refactorize(a)
    assert solver.status == Status.OK
    assert backward_errors(a, solver.solve(np.ones(10)), np.ones(10))[0] < 1e-14


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(0, 1000), st.floats(0.02, 1.0))
def test_inertia_equals_the_eigenvalues(n, seed, density):
    a = hermitian(n, seed, density)
    values = np.linalg.eigvalsh(a)
    solver = DirectSolver(sp.coo_array(a), structure="H", check="status").factorize()
    if np.abs(values).min() > 1e-9 * np.abs(values).max():
        assert solver.inertia == Inertia(int((values > 0).sum()), int((values < 0).sum()), 0)
