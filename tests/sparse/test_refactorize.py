"""refactorize is factorize, to the last bit: factor, D, inertia and solution, in any order and with any
thread count."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import (
    INDEFINITE,
    laplacian_2d,
    leaves_on_hubs,
    mirrored,
    positive_definite,
    with_dense_root,
)

from warpfront import DirectSolver, Inertia, Status
from warpfront.errors import (
    InvalidValueError,
    NonFiniteError,
    NotAnalyzedError,
    NotPositiveDefiniteError,
    PatternChangedError,
    SingularMatrixError,
)
from warpfront.sparse.interface import SymmetricFactor


def bits(solver, b=None):
    """Everything a factorisation and a solve give, as bytes."""
    factor = SymmetricFactor(solver)
    lower = factor.L
    parts = [lower.indptr, lower.indices, lower.data, factor.perm, factor.diagonal(), factor.scale]
    if b is not None:
        parts.append(solver.solve(b))
    counts = repr((solver.inertia, solver.status, solver.pivot_stats, solver.info)).encode()
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts) + counts


def with_values(pattern, seed, kind):
    """Two matrices of one pattern."""
    rng = np.random.default_rng(seed)
    a = INDEFINITE[kind](rng, pattern) if kind in INDEFINITE else positive_definite("random", rng, pattern)
    mask = a != 0
    other = mirrored(rng.standard_normal(a.shape)) * mask
    return sp.csr_array(a), sp.csr_array(np.where(mask, np.where(other == 0, 0.5, other), 0.0))


@pytest.mark.parametrize(
    "kind",
    ["random", "zero block", "arrow", "bordered block diagonal", "70% delayed", "all 2x2", "empty rows"],
)
@settings(max_examples=6)
@given(n=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_old_new_old(kind, n, seed):
    old, new = with_values(n, seed, kind)
    if old.nnz == 0:
        return
    b = np.random.default_rng(seed).standard_normal((n, 2))
    once = DirectSolver(old, structure="S", check="status").factorize()
    reference = bits(once, b)
    solver = DirectSolver(old, structure="S", check="status").factorize()
    assert bits(solver, b) == reference
    solver.refactorize(new.data)
    changed = bits(solver, b)
    solver.refactorize(old.data)
    assert bits(solver, b) == reference
    solver.factorize()
    assert bits(solver, b) == reference
    solver.refactorize(new)
    assert bits(solver, b) == changed


def test_old_new_old_with_retry_for_memory():
    """New values delay far more pivots than planned; the old ones then give the old bits in the larger
    buffers."""
    new = leaves_on_hubs(400, 5)
    old = new.copy()
    old.setdiag(np.random.default_rng(0).uniform(10.0, 20.0, 405))
    b = np.ones(405)
    solver = DirectSolver(old, structure="S").factorize()
    reference, small = bits(solver, b), solver.report.factor.peak_bytes
    assert solver.pivot_stats.delayed == 0
    solver.refactorize(new)
    assert solver.pivot_stats.delayed > 300
    assert solver.report.factor.peak_bytes > small
    assert solver.inertia == Inertia(400, 5, 0)
    solver.refactorize(old)
    assert bits(solver, b) == reference


BIG = {
    "SPD dense root": lambda: (with_dense_root(3000, 450, indefinite=False), "SPD"),
    "S dense root": lambda: (with_dense_root(3000, 450, indefinite=True), "S"),
    "SPD grid": lambda: (laplacian_2d(60), "SPD"),
    "S grid": lambda: (sp.csr_array(laplacian_2d(60) - 3.9 * sp.eye_array(3600)), "S"),
    "S delayed": lambda: (leaves_on_hubs(600, 6), "S"),
}


@pytest.mark.parametrize("name", BIG)
def test_twenty_repeats_with_any_number_of_threads(name):
    """1, 2 and 3 threads, 20 refactorisations: one set of bits, single and many right-hand sides."""
    a, structure = BIG[name]()
    b = np.random.default_rng(1).standard_normal((a.shape[0], 3))
    reference = None
    solvers = [DirectSolver(a, structure=structure, host_nthreads=t).factorize() for t in (1, 2, 3)]
    if "dense root" in name:
        assert solvers[0].report.analysis.max_front > 400
    for repeat in range(7):
        for solver in solvers:
            solver.refactorize(a.data)
            found = bits(solver, b) if repeat in (0, 6) else bits(solver)
            key = len(found)
            reference = {} if reference is None else reference
            assert reference.setdefault(key, found) == found
    assert len(reference) == 2  # with and without the solution


def test_solvers_in_parallel_python_threads():
    """Four Python threads, each with a solver of its own, all with two workers: the bits of one alone."""
    a = with_dense_root(1500, 300, indefinite=True)
    b = np.ones(1500)
    reference = bits(DirectSolver(a, structure="S", host_nthreads=2).factorize(), b)
    found = [None] * 4

    def work(k):
        solver = DirectSolver(a, structure="S", host_nthreads=2).factorize()
        for _ in range(3):
            solver.refactorize(a.data)
        found[k] = bits(solver, b)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == reference for one in found)


@pytest.mark.parametrize("limit", [1, 2])
def test_bits_do_not_depend_on_the_blas_threads(limit):
    """Fronts that outgrow the plan by delayed pivots are updated with one BLAS thread like any other."""
    from threadpoolctl import threadpool_limits

    a = leaves_on_hubs(600, 6)
    solver = DirectSolver(a, structure="S", host_nthreads=1).factorize()
    assert solver.report.analysis.max_front < 80
    reference = bits(solver)
    with threadpool_limits(limits=limit):
        solver.refactorize(a.data)
    assert bits(solver) == reference


# ---------------------------------------------------------------------- the caller's order
def coo_with_duplicates(seed=0):
    """Unsorted COO with every entry split in two or three; returns it and the position of each part."""
    rng = np.random.default_rng(seed)
    a = INDEFINITE["random"](rng, 20)
    i, j = np.nonzero(a)
    parts = rng.integers(2, 4, i.size)
    row, col = np.repeat(i, parts), np.repeat(j, parts)
    value = np.repeat(a[i, j] / parts, parts)
    order = rng.permutation(row.size)
    return sp.coo_array((value[order], (row[order], col[order])), shape=a.shape)


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_duplicates_keep_the_callers_order(form):
    coo = coo_with_duplicates()
    if form == "coo":
        a = coo
    else:
        major, minor = (coo.row, coo.col) if form == "csr" else (coo.col, coo.row)
        order = np.argsort(major, kind="stable")
        ptr = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=20))])
        cls = sp.csr_array if form == "csr" else sp.csc_array
        a = cls((coo.data[order], minor[order], ptr), shape=(20, 20))
    dense = coo.toarray()
    dense = (dense + dense.T) / 2
    solver = DirectSolver(a, structure="S").factorize()
    b = np.arange(20.0)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(dense, b), rtol=1e-9, atol=1e-10)
    new = a.data * 3.0
    solver.refactorize(new)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(3 * dense, b), rtol=1e-9, atol=1e-10)


def test_explicit_zeros_stay_in_the_pattern():
    a = sp.csr_array(([4.0, 0.0, 0.0, 4.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    solver = DirectSolver(a).factorize()
    assert solver.report.analysis.nnz == 4
    solver.refactorize(np.array([4.0, 1.0, 1.0, 4.0]))
    np.testing.assert_allclose(solver.solve([5.0, 5.0]), [1.0, 1.0])


@pytest.mark.parametrize("view", ["lower", "upper"])
def test_views_ignore_the_other_triangle(view):
    """Whatever it holds: other values, NaN, nothing."""
    a = INDEFINITE["dense"](np.random.default_rng(1), 12)
    other = np.triu(np.ones((12, 12)), 1) if view == "lower" else np.tril(np.ones((12, 12)), -1)
    poisoned = np.where(other > 0, np.nan, a)
    b = np.ones(12)
    reference = np.linalg.solve(a, b)
    half = np.tril(a) if view == "lower" else np.triu(a)
    for matrix in (poisoned, half, sp.csr_array(poisoned), sp.csc_array(half), a):
        solver = DirectSolver(matrix, structure="S", view=view)
        np.testing.assert_allclose(solver.solve(b), reference, rtol=1e-8)
    csr = sp.csr_array(poisoned)
    solver = DirectSolver(csr, structure="S", view=view).factorize()
    solver.refactorize(csr.data * 2)
    np.testing.assert_allclose(solver.solve(b), reference / 2, rtol=1e-8)


def test_triangles_that_stop_agreeing_are_refused():
    a = sp.csr_array(np.array([[4.0, 1.0], [1.0, 4.0]]))
    solver = DirectSolver(a).factorize()
    with pytest.raises(InvalidValueError, match=r"a\[1, 0\] = 1.0 but a\[0, 1\] = 2.0"):
        solver.refactorize([4.0, 2.0, 1.0, 4.0])


@pytest.mark.parametrize("where", [(0, 2), (2, 0)])
def test_entry_stored_in_one_triangle_only(where):
    """A zero stored on one side makes the pattern unsymmetric; a value put there later may not be dropped."""
    i, j = where
    a = sp.coo_array(([2.0, 2.0, 2.0, 0.0], ([0, 1, 2, i], [0, 1, 2, j])), shape=(3, 3))
    solver = DirectSolver(a).factorize()
    np.testing.assert_allclose(solver.solve(np.ones(3)), [0.5, 0.5, 0.5], rtol=1e-15)
    solver.refactorize([4.0, 4.0, 4.0, 0.0])
    np.testing.assert_allclose(solver.solve(np.ones(3)), [0.25, 0.25, 0.25], rtol=1e-15)
    with pytest.raises(InvalidValueError, match="not symmetric"):
        solver.refactorize([2.0, 2.0, 2.0, 1.0])


# ---------------------------------------------------------------------- misuse
def test_before_analyze():
    solver = DirectSolver(sp.eye_array(3, format="csr"))
    with pytest.raises(NotAnalyzedError):
        solver.refactorize(np.ones(3))


def test_after_analyze_without_factorize():
    solver = DirectSolver(sp.eye_array(3, format="csr")).analyze()
    solver.refactorize([2.0, 4.0, 8.0])
    np.testing.assert_allclose(solver.solve(np.ones(3)), [0.5, 0.25, 0.125], rtol=1e-15)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (np.ones(2), PatternChangedError),
        (np.ones(4), PatternChangedError),
        (np.ones((3, 3)), PatternChangedError),
        (sp.eye_array(3, format="csc"), PatternChangedError),
        (sp.eye_array(4, format="csr"), PatternChangedError),
        (sp.csr_array(np.array([[1.0, 1, 0], [1, 0, 0], [0, 0, 0]])), PatternChangedError),
        (np.array([1.0, np.nan, 1.0]), NonFiniteError),
        (np.array([1.0, 1.0, -np.inf]), NonFiniteError),
        (np.ones(3) * 1j, InvalidValueError),
        (["a", "b", "c"], InvalidValueError),
        (None, InvalidValueError),
        (np.ones(3, np.float16), InvalidValueError),
    ],
)
def test_wrong_values(values, error):
    """Refused with the type, and the solver still holds the old matrix and its factor."""
    solver = DirectSolver(sp.eye_array(3, format="csr") * 2.0).factorize()
    before = bits(solver, np.ones(3))
    with pytest.raises(error) as caught:
        solver.refactorize(values)
    if error is NonFiniteError:
        assert caught.value.entry == int(np.flatnonzero(~np.isfinite(values))[0])
    assert bits(solver, np.ones(3)) == before
    solver.factorize()
    assert bits(solver, np.ones(3)) == before


def test_values_edited_in_place_have_no_effect_until_refactorize():
    a = sp.csr_array(np.diag([1.0, 2.0, 4.0]))
    solver = DirectSolver(a).factorize()
    a.data[:] = 100.0
    np.testing.assert_allclose(solver.solve(np.ones(3)), [1.0, 0.5, 0.25], rtol=1e-15)
    solver.factorize()
    np.testing.assert_allclose(solver.solve(np.ones(3)), [1.0, 0.5, 0.25], rtol=1e-15)
    solver.refactorize(a)
    np.testing.assert_allclose(solver.solve(np.ones(3)), [0.01, 0.01, 0.01], rtol=1e-15)


def test_indices_sorted_in_place_by_scipy_are_noticed():
    """SciPy sorts a matrix's arrays in place behind the caller's back: the entry order is then another
    one."""
    a = sp.csr_array((np.array([1.0, 4.0, 5.0, 1.0]), np.array([1, 0, 1, 0]), np.array([0, 2, 4])))
    a.has_sorted_indices = False
    solver = DirectSolver(a).factorize()
    a.sort_indices()
    assert a.indices.tolist() == [0, 1, 0, 1]
    with pytest.raises(PatternChangedError):
        solver.refactorize(a)


def test_duplicates_whose_sum_overflows_are_refused():
    a = sp.coo_array(([1.7e308, 1.0, 1.7e308], ([0, 1, 0], [0, 1, 0])), shape=(2, 2))
    with pytest.raises(NonFiniteError) as error:
        DirectSolver(a)
    assert error.value.entry in (0, 2)
    fine = sp.coo_array(([1.0, 1.0, 1.0], ([0, 1, 0], [0, 1, 0])), shape=(2, 2))
    solver = DirectSolver(fine).factorize()
    with pytest.raises(NonFiniteError):
        solver.refactorize(a)


# ---------------------------------------------------------------------- outcome of the next values
def test_status_resets_after_indefinite_values():
    """Case 6: Cholesky stops, then positive definite values succeed; and back, bitwise as before."""
    good = laplacian_2d(8)
    bad = good.copy()
    bad.setdiag(-1.0)
    solver = DirectSolver(good, structure="SPD").factorize()
    reference = bits(solver, np.ones(64))
    with pytest.raises(NotPositiveDefiniteError):
        solver.refactorize(bad)
    assert solver.status == Status.NOT_POSITIVE_DEFINITE
    assert solver.info > 0
    with pytest.raises(NotPositiveDefiniteError):
        solver.solve(np.ones(64))
    solver.refactorize(good)
    assert solver.status == Status.OK
    assert solver.info == 0
    assert bits(solver, np.ones(64)) == reference


def test_status_resets_after_singular_values():
    a = sp.csr_array(np.array([[1.0, 1.0], [1.0, -1.0]]))
    solver = DirectSolver(a, structure="S").factorize()
    reference = bits(solver, np.ones(2))
    with pytest.raises(SingularMatrixError) as error:
        solver.refactorize(np.ones(4))
    assert error.value.column in (0, 1)
    with pytest.raises(SingularMatrixError):
        solver.solve(np.ones(2))
    solver.refactorize(a.data)
    assert bits(solver, np.ones(2)) == reference


def test_auto_follows_the_values():
    """auto: positive definite -> indefinite -> positive definite, always the right inertia, always by
    name."""
    spd = laplacian_2d(6)
    saddle = spd - 2.5 * sp.eye_array(36)
    eigenvalues = np.linalg.eigvalsh(saddle.toarray())
    negative = int((eigenvalues < 0).sum())
    solver = DirectSolver(spd)
    assert solver.factorize().report.factor.method == "LL^T"
    solver.refactorize(sp.csr_array(saddle))
    assert solver.report.factor.method.startswith("LDL^T (Cholesky stopped at column")
    assert solver.inertia == Inertia(36 - negative, negative, 0)
    solver.refactorize(sp.csr_array(-spd))
    assert solver.report.factor.method == "LDL^T"
    assert solver.inertia == Inertia(0, 36, 0)
    solver.refactorize(spd)
    assert solver.report.factor.method == "LL^T"
    assert solver.inertia == Inertia(36, 0, 0)


def test_diagonal_shift():
    a = sp.csr_array(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, -1.0]]))
    solver = DirectSolver(a, structure="S").analyze()
    solver.refactorize(a.data, diagonal_shift=(0.5, 0.25))
    shifted = a.toarray() + np.diag([0.5, 0.5, -0.25])
    b = np.ones(3)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(shifted, b), rtol=1e-14)
    plain = DirectSolver(sp.csr_array(shifted), structure="S").factorize()
    assert bits(solver) == bits(plain)
    solver.refactorize(a.data)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(a.toarray(), b), rtol=1e-14)
    for shift in ((np.nan, 0.0), (1.0,), 3, (0.0, np.inf), "ab"):
        with pytest.raises(InvalidValueError, match="diagonal_shift"):
            solver.refactorize(a.data, diagonal_shift=shift)
    without = sp.csr_array(np.array([[2.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(InvalidValueError, match=r"\(1, 1\)"):
        DirectSolver(without, structure="S").analyze().refactorize(without.data, diagonal_shift=(1.0, 1.0))
