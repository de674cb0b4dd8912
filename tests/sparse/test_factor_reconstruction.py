"""``P^T S A S P = L D L^T`` and the eigenvalue count, over random patterns; every pivot, not only the
solution."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matrices_for_tests import INDEFINITE, positive_definite

from warpfront import DirectSolver, Inertia, Status, cholesky, ldlt
from warpfront.sparse._reference import (
    backward_errors,
    dense_inertia,
    dense_symmetric,
    reconstruct,
    reconstruction_error,
)

SEEDS = st.integers(0, 2**32 - 1)


def check_shape(dense):
    """L is unit or positive lower triangular, D symmetric with blocks of order 1 and 2, perm a
    permutation."""
    n = dense.perm.size
    assert sorted(dense.perm) == list(range(n))
    assert np.all(np.triu(dense.L, 1) == 0)
    assert np.all(np.diag(dense.L) > 0)
    beside = np.diag(dense.D, -1) != 0
    assert not np.any(beside[1:] & beside[:-1])  # 2x2 blocks do not overlap
    assert np.array_equal(dense.D, dense.D.T)
    assert np.count_nonzero(np.tril(dense.D, -2)) == 0
    mantissa, _ = np.frexp(dense.scale)
    assert np.all(mantissa == 0.5)  # powers of two: scaling rounds nothing


@pytest.mark.parametrize("kind", INDEFINITE)
@settings(max_examples=12)
@given(n=st.integers(1, 64), seed=SEEDS)
@example(n=1, seed=0)
@example(n=2, seed=1)
@example(n=64, seed=2)
def test_indefinite(kind, n, seed):
    a = INDEFINITE[kind](np.random.default_rng(seed), n)
    solver = DirectSolver(sp.csc_array(a), structure="S", check="status")
    factor = ldlt(sp.csc_array(a), check="status")
    dense = reconstruct(factor)
    check_shape(dense)
    assert reconstruction_error(a, dense) <= 1e-10
    assert np.abs(dense.L).max() <= 101.0  # threshold 0.01 bounds every entry of L
    expected = dense_inertia(a)
    if expected is None:
        return
    assert factor.inertia == expected
    if expected.zero == 0 and dense_inertia(a, 1e-6) is not None:
        assert factor.solver.report.factor.inertia_certain  # no hedging where there is no doubt
    assert sum(factor.inertia) == n
    assert factor.solver.status == (Status.SINGULAR if expected.zero else Status.OK)
    if expected.zero == 0:
        b = a @ np.ones(n)
        x = solver.solve(b)
        assert backward_errors(a, x, b)[0] <= 5e-14


@pytest.mark.parametrize("kind", INDEFINITE)
@settings(max_examples=8)
@given(n=st.integers(1, 64), seed=SEEDS)
@example(n=1, seed=0)
@example(n=64, seed=2)
def test_positive_definite(kind, n, seed):
    a = positive_definite(kind, np.random.default_rng(seed), n)
    factor = cholesky(sp.csc_array(a))
    dense = reconstruct(factor)
    check_shape(dense)
    d = 1.0 / np.sqrt(np.diag(a))  # judged with a unit diagonal, whatever the scale
    unit = np.ldexp(1.0, np.rint(np.log2(d)).astype(int))
    lower = dense.L * unit[dense.perm][:, None]
    assert reconstruction_error(unit[:, None] * a * unit[None, :], dense._replace(L=lower)) <= 1e-13
    assert factor.inertia == Inertia(n, 0, 0)
    b = a @ np.ones(n)
    assert backward_errors(a, factor.solve(b), b)[0] <= 1e-14
    both = ldlt(sp.csc_array(a))
    assert both.inertia == Inertia(n, 0, 0)
    assert reconstruction_error(a, reconstruct(both)) <= 1e-12


@pytest.mark.parametrize("ordering", ["amd", "multilevel", "metis", "level_set", "natural", "user"])
@pytest.mark.parametrize("kind", ["zero block", "70% delayed", "empty rows", "all 2x2"])
def test_every_ordering(kind, ordering):
    rng = np.random.default_rng(7)
    a = INDEFINITE[kind](rng, 60)
    options = {"user_perm": rng.permutation(60)} if ordering == "user" else {"reordering_alg": ordering}
    factor = ldlt(sp.csr_array(a), check="status", **options)
    assert factor.solver.report.analysis.ordering == ordering
    assert reconstruction_error(a, reconstruct(factor)) <= 1e-10
    assert factor.inertia == dense_inertia(a)


@pytest.mark.parametrize("n", range(65))
def test_dense_as_sparse(n):
    rng = np.random.default_rng(n)
    a = INDEFINITE["dense"](rng, n)
    factor = ldlt(a)
    assert reconstruction_error(a, reconstruct(factor)) <= 1e-10
    assert factor.inertia == dense_inertia(a)
    spd = a @ a.T + np.eye(n)
    b = rng.standard_normal(n)
    x = cholesky(spd).solve(b)
    np.testing.assert_allclose(x, np.linalg.solve(spd, b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [30, 31, 32, 33, 34, 63, 64, 65, 95, 96, 97, 159, 160, 161, 193, 257])
def test_two_by_two_pivots_across_block_edges(n):
    """One 1x1 pivot first, then only 2x2 pivots, in one dense front: a pair straddles every panel edge."""
    rng = np.random.default_rng(n)
    a = 1e-3 * INDEFINITE["dense"](rng, n)
    np.fill_diagonal(a, 0.0)
    a[0, 0] = 1.0
    for i in range(1, n - 1, 2):
        a[i + 1, i] = a[i, i + 1] = 1.0
    factor = ldlt(a, reordering_alg="natural", check="status")
    assert factor.solver.pivot_stats.two_by_two >= 0.9 * ((n - 2) // 2)
    dense = reconstruct(factor)
    check_shape(dense)
    assert reconstruction_error(a, dense) <= 1e-13
    assert factor.inertia == dense_inertia(a)


@pytest.mark.parametrize("threshold", [0.0, 1e-8, 0.01, 0.1, 0.5])
def test_threshold_bounds_the_factor(threshold):
    """Up to u = 0.5 a stable pivot exists at every root, so nothing nonsingular may be called singular."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        a = INDEFINITE[list(INDEFINITE)[seed % 12]](rng, 50)
        expected = dense_inertia(a)
        factor = ldlt(sp.csr_array(a), pivot_threshold=threshold, check="status")
        assert np.isfinite(factor.L.toarray()).all()
        assert sum(factor.inertia) == 50
        if expected is not None and threshold >= 0.01:
            assert factor.inertia == expected
            assert reconstruction_error(a, reconstruct(factor)) <= 1e-10
            assert np.abs(factor.L.toarray()).max() <= 1.01 / threshold


@pytest.mark.parametrize("scaling", ["none", "equilibrate"])
@pytest.mark.parametrize("factor", [1e-150, 1e-30, 1.0, 1e30, 1e150, -1.0])
def test_scaling_by_a_number(scaling, factor):
    a = factor * INDEFINITE["random"](np.random.default_rng(3), 50)
    f = ldlt(sp.csr_array(a), scaling=scaling)
    assert f.inertia == dense_inertia(a)
    assert reconstruction_error(a, reconstruct(f)) <= 1e-12
    b = a @ np.ones(50)
    assert backward_errors(a, f.solve(b), b)[0] <= 5e-14


def test_reading_the_reference():
    """The reference itself: a triangle, duplicates and a triple mean what they say."""
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    assert np.array_equal(dense_symmetric(np.tril(a), "lower"), a)
    assert np.array_equal(dense_symmetric(np.triu(a), "upper"), a)
    triple = (np.array([0, 2, 3]), np.array([0, 0, 1]), np.array([1.0, 1.0, 3.0]))
    assert np.array_equal(dense_symmetric(triple), np.diag([2.0, 3.0]))
    assert dense_inertia(np.diag([1.0, -1e150, 0.0])) == Inertia(1, 1, 1)
    assert dense_inertia(np.zeros((3, 3))) == Inertia(0, 0, 3)
