"""Small inputs that broke other libraries, by their number in the list of cases, each with the right
answer."""

import json
import time

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from matrices_for_tests import DATA, INDEFINITE, kkt, laplacian_2d, random_symmetric

from warpfront import DirectSolver, Inertia, Status, cholesky, ldlt, spsolve
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotPositiveDefiniteError,
    SingularMatrixError,
)
from warpfront.sparse._reference import backward_errors, dense_inertia

KKT = sorted(path.name.removesuffix(".mtx.gz") for path in (DATA / "kkt").glob("*.mtx.gz"))


def power_flow(name):
    folder = DATA / "kkt"
    facts = json.loads((folder / f"{name}.json").read_text())
    return sp.csc_array(scipy.io.mmread(folder / f"{name}.mtx.gz")), Inertia(*facts["inertia"])


def test_the_kkt_matrices_are_here():
    assert len(KKT) >= 4


def test_case_1_zero_diagonals_without_shift():
    """Unsymmetric as reported, and its symmetric twin: a small backward error, or a status that says why not."""
    rng = np.random.default_rng(1)
    a = sp.random(100, 100, 0.05, random_state=rng, format="csr")
    general = DirectSolver(a, check="status")
    x = general.solve(a @ np.ones(100))
    assert general.status != Status.OK or backward_errors(a, x, a @ np.ones(100))[0] <= 5e-14
    twin = sp.csr_array(a + a.T + 0)
    solver = DirectSolver(twin, structure="S", check="status")
    b = twin @ np.ones(100)
    x = solver.solve(b)
    assert solver.status != Status.OK or backward_errors(twin, x, b)[0] <= 5e-14
    assert solver.inertia == dense_inertia(twin.toarray())


@pytest.mark.parametrize("name", KKT)
@pytest.mark.parametrize("scaling", ["auto", "none", "equilibrate"])
@pytest.mark.parametrize("ordering", ["auto", "amd", "metis", "natural"])
def test_case_3_true_inertia_of_k2_under_any_scaling(name, scaling, ordering):
    k, inertia = power_flow(name)
    solver = DirectSolver(k, structure="S", scaling=scaling, reordering_alg=ordering).factorize()
    assert solver.inertia == inertia
    # unscaled, entries of one system lie 1e14 apart: right all the same, and honestly not called certain
    assert solver.report.factor.inertia_certain or scaling == "none"
    assert solver.get("npivots") == 0
    assert solver.info == 0


@pytest.mark.parametrize("name", KKT)
def test_case_3_k2_is_solved_by_default(name):
    """By default parameters, detection of the structure included: componentwise backward error at most
    1e-12."""
    k, inertia = power_flow(name)
    b = k @ np.ones(k.shape[0])
    solver = DirectSolver(k)
    x = solver.solve(b)
    whole, component = backward_errors(k, x, b)
    assert whole <= 5e-14
    assert component <= 1e-12
    assert solver.inertia == inertia


def test_case_3_one_analysis_for_all_iterations():
    """Analyse once, refactor many: values of another iteration, same inertia and accuracy as on their own."""
    names = [name for name in KKT if "_K2_" in name]
    first, _ = power_flow(names[0])
    solver = DirectSolver(first, structure="S").analyze()
    for name in [*names, *names[::-1]]:
        k, inertia = power_flow(name)
        solver.refactorize(k)
        assert solver.inertia == inertia
        b = k @ np.ones(k.shape[0])
        assert backward_errors(k, solver.solve(b), b)[1] <= 1e-12


def test_case_4_the_same_system_twice_is_bit_equal():
    rng = np.random.default_rng(4)
    a = sp.random(1000, 1000, 0.05, random_state=rng, format="csr")
    a = sp.csr_array((a + a.T) / 2 + 0.01 * sp.eye_array(1000))
    b = rng.standard_normal(1000)
    first = spsolve(a, b)
    assert spsolve(a, b).tobytes() == first.tobytes()
    assert spsolve(a, b, host_nthreads=1).tobytes() == spsolve(a, b, host_nthreads=2).tobytes()
    residual = np.abs(b - a @ first).max() / (
        np.abs(a).sum(axis=1).max() * np.abs(first).max() + np.abs(b).max()
    )
    assert residual <= 5e-14


@pytest.mark.parametrize("n", range(1, 17))
def test_case_5_full_matrices_stored_sparse(n):
    rng = np.random.default_rng(n)
    a = INDEFINITE["dense"](rng, n)
    b = rng.standard_normal(n)
    np.testing.assert_allclose(spsolve(sp.csr_array(a), b), np.linalg.solve(a, b), rtol=1e-8, atol=1e-12)
    spd = a @ a.T + np.eye(n)
    np.testing.assert_allclose(cholesky(sp.csc_array(spd))(b), np.linalg.solve(spd, b), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("check", ["raise", "status"])
def test_case_6_status_resets_once_the_values_are_positive_definite(check):
    good = laplacian_2d(6)
    bad = sp.csr_array(good.copy())
    bad.setdiag(np.where(np.arange(36) == 20, -1.0, 4.0))
    solver = DirectSolver(bad, structure="SPD", check=check)
    if check == "raise":
        with pytest.raises(NotPositiveDefiniteError) as error:
            solver.factorize()
        assert error.value.column + 1 == solver.info
    else:
        solver.factorize()
    assert solver.info > 0
    assert solver.status == Status.NOT_POSITIVE_DEFINITE
    solver.refactorize(good.data)
    assert (solver.info, solver.status) == (0, Status.OK)
    assert solver.inertia == Inertia(36, 0, 0)
    fresh = DirectSolver(good, structure="SPD").solve(np.ones(36))
    np.testing.assert_allclose(solver.solve(np.ones(36)), fresh, rtol=1e-13)


def test_case_7_refactorize_first_is_a_typed_error_and_edits_in_place_do_nothing():
    a = laplacian_2d(4)
    with pytest.raises(NotAnalyzedError):
        DirectSolver(a).refactorize(a.data)
    solver = DirectSolver(a).factorize()
    x = solver.solve(np.ones(16))
    a.data *= 2.0
    assert solver.solve(np.ones(16)).tobytes() == x.tobytes()
    solver.refactorize(a.data)
    np.testing.assert_allclose(solver.solve(np.ones(16)), x / 2, rtol=1e-14)


@pytest.mark.parametrize("n", [0, 1, 5, 49])
def test_case_8_inertia_of_an_spd_factor(n):
    a = sp.csr_array(2.0 * sp.eye_array(n, format="csr"))
    solver = DirectSolver(a, structure="SPD").factorize()
    assert solver.inertia == Inertia(n, 0, 0)
    assert solver.get("inertia") == (n, 0, 0)
    assert cholesky(a).inertia == Inertia(n, 0, 0)


def constrained(n, m, seed):
    """KKT whose Hessian is a chain and whose constraints each touch a few neighbouring variables."""
    rng = np.random.default_rng(seed)
    h = sp.diags_array([np.full(n - 1, -1.0), np.full(n, 3.0), np.full(n - 1, -1.0)], offsets=[-1, 0, 1])
    i = np.repeat(np.arange(m), 3)
    j = (np.arange(m)[:, None] * n // m + np.array([0, 1, 3])).ravel() % n
    b = sp.csr_array((rng.uniform(0.5, 2.0, 3 * m) * rng.choice([-1.0, 1.0], 3 * m), (i, j)), shape=(m, n))
    return sp.csr_array(sp.block_array([[h, b.T], [b, None]])), Inertia(n, m, 0)


@pytest.mark.parametrize("stored", [False, True], ids=["zero block absent", "zero block stored"])
def test_case_9_all_zero_block_of_43000(stored):
    """No cascade of delayed pivots: fill within twice the prediction, in well under the 14 seconds of the
    report."""
    k, inertia = constrained(28_000, 15_000, 9)
    if stored:
        coo = k.tocoo()
        zero = np.arange(28_000, 43_000)
        data = np.concatenate([coo.data, np.zeros(zero.size)])
        k = sp.coo_array(
            (data, (np.concatenate([coo.row, zero]), np.concatenate([coo.col, zero]))), shape=k.shape
        )
    DirectSolver(constrained(50, 20, 0)[0], structure="S").solve(
        np.ones(70)
    )  # compiled before the clock starts
    start = time.process_time()
    solver = DirectSolver(k, structure="S").factorize()
    assert time.process_time() - start < 5.0
    assert solver.inertia == inertia
    record = solver.report
    assert record.analysis.n_pairs > 0
    assert record.factor.nnz_factor <= 2 * record.analysis.nnz_factor
    b = k @ np.ones(43_000)
    solver.solve(b)
    assert record.factor.inertia_certain
    assert solver.report.solve.backward_error <= 5e-14
    assert solver.report.solve.componentwise_error <= 1e-12


def test_case_10_repeated_factorisations_have_one_inertia():
    a = sp.csr_array(random_symmetric(np.random.default_rng(10), 150, 0.05, "some"))
    expected = dense_inertia(a.toarray())
    for threads in (1, 2):
        solver = DirectSolver(a, structure="S", host_nthreads=threads, check="status")
        found = {(solver.refactorize(a.data) if k else solver.factorize()).inertia for k in range(10)}
        assert found == {expected}
    assert {DirectSolver(a, structure="S", check="status").factorize().inertia for _ in range(3)} == {
        expected
    }


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_case_11_duplicates_are_summed_and_refactorize_keeps_their_order(form):
    row, col = np.array([0, 0, 1, 1, 0, 1, 0]), np.array([0, 0, 1, 0, 1, 1, 1])
    if form == "csr":
        order = np.argsort(row, kind="stable")
        row, col = row[order], col[order]
    first, second = np.arange(1.0, 8.0), np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0])

    def matrix(values):
        dense = np.zeros((2, 2))
        np.add.at(dense, (row, col), values)
        return dense

    def balanced(values):
        """Make entry (1, 0) agree with the sum at (0, 1)."""
        values = values.copy()
        below = np.flatnonzero((row == 1) & (col == 0))
        values[below] = matrix(values)[0, 1] / below.size
        return values

    first, second = balanced(first), balanced(second)
    coo = sp.coo_array((first, (row, col)), shape=(2, 2))
    ptr = np.array([0, int((row == 0).sum()), row.size])
    a = coo if form == "coo" else sp.csr_array((first, col, ptr), shape=(2, 2))
    assert a.nnz == 7
    solver = DirectSolver(a, structure="S")
    b = np.array([1.0, -2.0])
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(matrix(first), b), rtol=1e-12)
    solver.refactorize(second)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(matrix(second), b), rtol=1e-12)


def test_case_12_singular_is_an_error_with_the_column_and_no_print(capfd):
    a = np.diag([1.0, 2.0, 0.0, 4.0])
    with pytest.raises(SingularMatrixError, match="column 2") as error:
        spsolve(sp.csr_array(a), np.ones(4))
    assert error.value.column == 2
    assert capfd.readouterr() == ("", "")


def test_case_12_int64_indices():
    a = laplacian_2d(5)
    a.indices, a.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    b = np.ones(25)
    np.testing.assert_allclose(spsolve(a, b), np.linalg.solve(a.toarray(), b), rtol=1e-13)


@pytest.mark.parametrize("spread", [1, 6, 12])
def test_case_13_lp_shaped_kkt(spread):
    """[[D, A^T], [A, 0]], D from 10^-spread to 10^spread as an LP's late iterations have it: (n, m, 0),
    exactly."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n, m = 300, 120
        a = sp.random(m, n, 0.03, random_state=rng, data_rvs=lambda k, rng=rng: rng.integers(1, 4, k) * 1.0)
        a = sp.csr_array(a + sp.eye_array(m, n))
        d = 10.0 ** rng.uniform(-spread, spread, n)
        k = sp.csr_array(sp.block_array([[sp.diags_array(d), a.T], [a, None]]))
        solver = DirectSolver(k, structure="S", check="status").factorize()
        certain = solver.report.factor.inertia_certain
        assert solver.inertia == Inertia(n, m, 0) or not certain
        if spread <= 6:
            assert solver.inertia == Inertia(n, m, 0)


def test_case_14_values_that_say_nothing_are_refused():
    k = sp.csr_array(kkt(10, 4, 0))
    zero = k.copy()
    zero.data[:] = 0.0
    solver = DirectSolver(zero, structure="S")
    with pytest.raises(InvalidValueError, match="zero"):
        solver.analyze()
    with pytest.raises(InvalidValueError, match="zero"):
        ldlt(zero)
    with pytest.raises(NotAnalyzedError):
        solver.refactorize(k.data)
    good = DirectSolver(k, structure="S").factorize()
    assert good.inertia == Inertia(10, 4, 0)
    with pytest.raises(SingularMatrixError):
        good.refactorize(zero.data)
    good.refactorize(k.data)
    assert good.inertia == Inertia(10, 4, 0)
