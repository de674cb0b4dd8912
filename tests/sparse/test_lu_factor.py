"""`splu` beside SuperLU: attributes, identities, determinant, condition; refactorisation; triangular substitution."""

import numpy as np
import pytest
import scipy.sparse as sp
from general_matrices_for_tests import GENERAL, backward_error, convection, saddle
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfront as wf
from warpfront import DirectSolver
from warpfront.errors import (
    InvalidValueError,
    NonFiniteError,
    NotSupportedError,
    PatternChangedError,
    SingularMatrixError,
)


@pytest.mark.parametrize("kind", [kind for kind in GENERAL if kind != "badly scaled"])
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 50), st.booleans(), st.integers(0, 2**32 - 1))
def test_superlu_identity(kind, n, blocks, seed):
    """Pr A Pc = L U as SciPy documents it, L unit lower, U upper; the determinant is the dense one."""
    a = GENERAL[kind](np.random.default_rng(seed), n, "float64")
    solver = DirectSolver(sp.csr_array(a), structure="G", block_triangular=blocks, check="status").factorize()
    if solver.status:
        return
    f = wf.splu(sp.csr_array(a), block_triangular=blocks)
    pr = sp.csc_array((np.ones(n), (f.perm_r, np.arange(n))))
    pc = sp.csc_array((np.ones(n), (np.arange(n), f.perm_c)))
    size = np.abs(f.L).sum(axis=1).max() * np.abs(f.U).max()
    assert np.abs((pr.T @ (f.L @ f.U) @ pc.T).toarray() - a).max() <= 1e-13 * max(1.0, size)
    assert np.array_equal(f.L.diagonal(), np.ones(n))
    assert sp.triu(f.L, 1).nnz == sp.tril(f.U, -1).nnz == 0
    assert blocks or f.L.nnz + f.U.nnz <= f.nnz
    sign, logarithm = np.linalg.slogdet(a)
    ours = f.slogdet()
    assert ours[0] == sign
    assert ours[1] == pytest.approx(logarithm, abs=1e-8)
    logdet = f.logdet()
    assert np.isnan(logdet) if sign < 0 else logdet == pytest.approx(logarithm, abs=1e-8)


def test_as_superlu_is_used():
    a = convection(12)
    f = wf.splu(a.tocsc())
    b = np.random.default_rng(0).standard_normal(144)
    assert f.shape == (144, 144)
    for trans, turn in (("N", a), ("T", a.T), ("H", a.T)):
        assert backward_error(turn, f.solve(b, trans), b) < 1e-15
    assert np.array_equal(f(b), f.solve(b))
    operator = f.as_linear_operator()
    assert backward_error(a, operator @ b, b) < 1e-15
    assert backward_error(a.T, operator.rmatvec(b), b) < 1e-15
    dense = a.toarray()
    true = 1 / (np.linalg.norm(dense, 1) * np.linalg.norm(np.linalg.inv(dense), 1))
    assert true * (1 - 1e-9) <= f.rcond() <= 3 * true
    assert sorted(f.perm_r) == sorted(f.perm_c) == list(range(144))


def test_cudss_names_of_an_lu():
    a = saddle(8)
    n = a.shape[0]
    s = DirectSolver(a).factorize()
    rows, cols = s.get("perm_row"), s.get("perm_col")
    row_of, r, c = s.get("perm_matching"), s.get("scale_row"), s.get("scale_col")
    scaled = np.abs(np.diag(r) @ a.toarray() @ np.diag(c))
    assert scaled.max() <= 2
    assert scaled[row_of, np.arange(n)].min() >= 0.5
    by_column = s.get("diag")
    f = wf.splu(a)
    u = f.U.diagonal() * r[rows] * c[cols]
    np.testing.assert_allclose(by_column[cols], u, rtol=1e-12)
    for name in ("perm_reorder_row", "perm_reorder_col", "perm_row", "perm_col", "perm_matching"):
        assert sorted(s.get(name)) == list(range(n))
    with pytest.raises(NotSupportedError, match="inertia"):
        _ = s.inertia
    with pytest.raises(NotSupportedError, match="LU"):
        DirectSolver(sp.eye_array(3).tocsr()).analyze().get("perm_matching")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"permc_spec": "COLAMD"}, NotSupportedError), ({"relax": 1}, NotSupportedError),
        ({"panel_size": 4}, NotSupportedError), ({"options": {"Equil": True}}, NotSupportedError),
        ({"diag_pivot_thresh": 2.0}, InvalidValueError), ({"pivot_threshold": 1.5}, InvalidValueError),
        ({"structure": "S"}, InvalidValueError),
    ],
)  # fmt: skip
def test_tuning_of_superlu_is_refused_not_ignored(options, error):
    with pytest.raises(error):
        wf.splu(convection(3), **options)


def test_natural_order_and_diagonal_threshold_are_taken():
    a = convection(6)
    f = wf.splu(a, permc_spec="NATURAL", diag_pivot_thresh=0.0)
    assert f.solver.report.analysis.ordering == "natural"
    assert np.array_equal(f.perm_r, f.perm_c)


def test_a_factor_knows_that_it_is_stale():
    a = convection(5)
    f = wf.splu(a)
    f.solver.refactorize(a.data * 2)
    with pytest.raises(InvalidValueError, match="refactorized"):
        _ = f.L


def test_refactorize_with_new_values():
    """Case 11's other half: values in the caller's order; bits as with a factorisation of the same analysis."""
    rng = np.random.default_rng(0)
    a = saddle(15)
    solver = DirectSolver(a).factorize()
    b = rng.standard_normal(a.shape[0])
    reference = solver.solve(b)
    for _ in range(10):
        values = a.data * (1 + 0.2 * rng.standard_normal(a.nnz))
        solver.refactorize(values)
        new = sp.csr_array((values, a.indices, a.indptr), shape=a.shape)
        assert backward_error(new, solver.solve(b), b) < 1e-14
        solver.refactorize(a)
        assert np.array_equal(solver.solve(b), reference)
    with pytest.raises(PatternChangedError):
        solver.refactorize(a.data[:-1])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_stale_matching_is_said_and_never_wrong(seed):
    """Values far from those that were matched: the scaling is made anew, the report says so, the answer is right."""
    rng = np.random.default_rng(seed)
    n = 80
    a = sp.csr_array(sp.random_array((n, n), density=0.06, rng=rng) + 3 * sp.eye_array(n))
    solver = DirectSolver(a, structure="G").factorize()
    assert not solver.report.factor.stale_matching
    values = a.data * 10.0 ** rng.uniform(-8, 8, a.nnz)
    new = sp.csr_array((values, a.indices, a.indptr), shape=a.shape)
    b = rng.standard_normal(n)
    reference = None
    for policy in ("rescale", "analyze"):
        solver.set("stale_matching", policy)
        solver.refactorize(values)
        record = solver.report.factor
        assert record.stale_matching or policy == "analyze"
        assert ("anew" in record.scaling) == (policy == "rescale") or "matched anew" in record.scaling
        x = solver.solve(b)
        assert backward_error(new, x, b) < 1e-14
        assert solver.report.solve.componentwise_error < 1e-12
        solver.refactorize(a)
        first = solver.solve(b)
        reference = first if reference is None else reference
        assert np.array_equal(first, reference)


def test_diagonal_shift():
    a = convection(6)
    solver = DirectSolver(a).factorize()
    solver.refactorize(a, diagonal_shift=(0.5, 0.25))
    b = np.ones(36)
    assert backward_error(a + 0.5 * sp.eye_array(36), solver.solve(b), b) < 1e-15
    with pytest.raises(InvalidValueError, match="not stored"):
        DirectSolver(saddle(4)).factorize().refactorize(saddle(4), diagonal_shift=(1.0, 1.0))


@pytest.mark.parametrize("kind", ["dense", "blocks", "triangular"])
def test_phases_by_name(kind):
    a = sp.csr_array(GENERAL[kind](np.random.default_rng(2), 60, "float64"))
    solver = DirectSolver(a, structure="G", ir_n_steps=0)
    b = np.random.default_rng(0).standard_normal(60)
    x = np.empty(60)
    solver.execute("analysis|factorization")
    assert (solver.report.analysis.n_blocks > 1) == (kind != "dense")
    solver.execute("solve_fwd_perm|solve_fwd|solve_diag|solve_bwd|solve_bwd_perm", x, b)
    assert np.array_equal(x, solver.solve(b))
    y = np.empty(60)
    solver.execute("solve_fwd_perm", y, b)
    for part in ("solve_fwd", "solve_diag", "solve_bwd", "solve_bwd_perm"):
        solver.execute(part, y, y)
    assert np.array_equal(y, x)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_triangular_substitution(lower, dtype):
    rng = np.random.default_rng(0)
    n = 50
    dense = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.1)
    if np.dtype(dtype).kind == "c":
        dense = dense + 1j * rng.standard_normal((n, n)) * (dense != 0)
    dense = (np.tril(dense, -1) if lower else np.triu(dense, 1)).astype(dtype)
    a = sp.csr_array(dense + np.diag(3 + rng.random(n)).astype(dtype))
    eps = np.finfo(dtype).eps
    for b in (rng.standard_normal(n).astype(dtype), rng.standard_normal((n, 3)).astype(dtype)):
        for form in (a.tocsr(), a.tocsc(), a.tocoo()):
            x = wf.spsolve_triangular(form, b, lower=lower)
            assert x.dtype == np.dtype(dtype)
            assert np.abs(a @ x - b).max() < 50 * eps
        x = wf.spsolve_triangular(sp.csr_array(dense), b, lower=lower, unit_diagonal=True)
        assert np.abs(dense @ x + x - b).max() < 50 * eps * np.abs(x).max()


def test_triangular_substitution_refuses():
    good = sp.csr_array(np.array([[2.0, 0.0], [1.0, 3.0]]))
    with pytest.raises(InvalidValueError, match=r"entry \(1, 0\)"):
        wf.spsolve_triangular(good, np.ones(2), lower=False)
    with pytest.raises(SingularMatrixError, match="column 1") as caught:
        wf.spsolve_triangular(sp.csr_array(np.array([[2.0, 0.0], [1.0, 0.0]])), np.ones(2))
    assert caught.value.column == 1
    with pytest.raises(InvalidValueError, match="shape"):
        wf.spsolve_triangular(good, np.ones(3))
    with pytest.raises(NonFiniteError):
        wf.spsolve_triangular(good, np.array([1.0, np.nan]))
    with pytest.raises(InvalidValueError, match="square"):
        wf.spsolve_triangular(sp.csr_array((2, 3)), np.ones(2))
    assert wf.spsolve_triangular(sp.csr_array((0, 0)), np.ones((0, 2))).shape == (0, 2)
