"""The factorisation and the sweeps, launch by launch under the SIMT runner, against dense arithmetic and the CPU."""

import numpy as np
import pytest
from emulate import Emulated
from scipy.sparse import csr_matrix, identity

from conftest import grid_kkt, laplacian, random_symmetric
from warpfront import DirectSolver
from warpfront.sparse.gpu.regroup import DEFINITE, INDEFINITE, regroup
from warpfront.sparse.gpu.steps import Tolerances

ONE_CHUNK = {"small_rows": 32, "chunk": 256}  # up to eight panels follow each other in one launch
SMALL = {"small_rows": 32, "chunk": 64}  # most fronts are wide, and wide ones have several chunks


def dense_definite(n):
    a = random_symmetric(n, 5)
    return (a + (np.abs(a).sum(1).max() + 1.0) * identity(n)).tocsr()


def some_large_diagonal(n):
    """Panels whose first columns pass in place and whose later ones do not: a refusal must leave no trace."""
    a = random_symmetric(n, 7).toarray()
    a[np.diag_indices(n)] = np.where(np.arange(n) % 9 < 7, 400.0, 0.0)
    return csr_matrix(a)


CASES = {
    "grid": (lambda: laplacian(12, 12), False, {}),
    "cube": (lambda: laplacian(7, 7, 7), False, {}),
    "cube merged": (lambda: laplacian(8, 8, 8), False, {"regrouped": True, **SMALL}),
    "cube wide": (lambda: laplacian(7, 7, 7), False, SMALL),
    "kkt": (lambda: grid_kkt(12), True, {}),
    "kkt wide": (lambda: grid_kkt(12), True, SMALL),
    "dense wide": (lambda: random_symmetric(150, 1), True, SMALL),
    "definite in one chunk": (lambda: dense_definite(235), False, ONE_CHUNK),
    "indefinite in one chunk": (lambda: random_symmetric(212, 8), True, ONE_CHUNK),
    "some pivots in one chunk": (lambda: some_large_diagonal(212), True, ONE_CHUNK),
    "some pivots in place": (lambda: some_large_diagonal(150), True, SMALL),
    "dense": (lambda: random_symmetric(70, 2), True, {}),
    "kkt cut": (lambda: grid_kkt(14), True, {"regrouped": True}),
    "kkt cut wide": (lambda: grid_kkt(14), True, {"regrouped": True, **SMALL}),
    "dense cut": (lambda: random_symmetric(70, 2, zero_diagonal=True), True, {"regrouped": True}),
    "zero diagonal": (lambda: random_symmetric(40, 3, zero_diagonal=True), True, {}),
}


def emulated(a, pivoting, scaled=False, regrouped=False, **more):
    solver = DirectSolver(a, structure="S" if pivoting else "SPD", reordering_alg="amd").analyze()
    symbolic = solver._symbolic
    if regrouped:
        symbolic = (
            regroup(symbolic, most_width=32, rules=INDEFINITE)
            if pivoting
            else regroup(symbolic, rules=DEFINITE)
        )
    return Emulated(symbolic, pivoting, scaled=scaled, **more)


def reconstruction(e, a):
    lower, d, place = e.dense_factor()
    perm = e.symbolic.perm[place]
    scale = np.ldexp(1.0, e.buffers["exponents"][: e.plan.n]) if e.scaled else np.ones(e.plan.n)
    matrix = (scale[:, None] * a.toarray() * scale)[np.ix_(perm, perm)]
    return np.abs(lower @ d @ lower.T - matrix).max() / np.abs(matrix).max()


@pytest.mark.simt
@pytest.mark.parametrize("name", CASES)
def test_factor_and_solve(name):
    make, pivoting, plan = CASES[name]
    a = make()
    e = emulated(a, pivoting, scaled=pivoting, schedules=2, **plan)
    if plan is SMALL:
        assert e.plan.wide.any()
    summary = e.factorize(a.data)
    assert reconstruction(e, a) <= (1e-10 if pivoting else 1e-13)
    w = np.linalg.eigvalsh(a.toarray())
    assert (summary[4], summary[5], summary[3]) == ((w > 0).sum(), (w < 0).sum(), 0)
    assert summary[7] == 2**31 - 1
    b = np.random.default_rng(0).standard_normal((8, a.shape[0]))
    x = e.solve(b, refinements=1, rhs=8)
    size = abs(a) @ np.abs(x.T) + np.abs(b.T)
    assert np.max(np.abs(b.T - a @ x.T) / size) <= 1e-12
    e.schedules = 1
    assert np.array_equal(e.solve(b[:1], refinements=1, rhs=1), x[:1]), (
        "a column's bits depend on its neighbours"
    )


@pytest.mark.simt
@pytest.mark.parametrize("n", [1, 2, 3, 20, 33, 70, 100])
@pytest.mark.parametrize("zero_diagonal", [False, True])
def test_pivots_are_those_of_the_serial_rule(n, zero_diagonal):
    if n == 1 and zero_diagonal:
        pytest.skip("a 1 x 1 zero has no pivot: test_singular")
    a = random_symmetric(n, n, zero_diagonal)
    e = emulated(a, True, schedules=1)
    e.factorize(a.data)
    cpu = DirectSolver(
        a, structure="S", reordering_alg="amd", scaling="none", on_unstable="perturb"
    ).factorize()
    state = cpu._factor.state
    assert np.array_equal(e.buffers["pivots"][1 : 2 * n : 2], state.kind[:n])
    np.testing.assert_allclose(e.buffers["diagonal"][: 2 * n], state.diagonal[: 2 * n], rtol=1e-8, atol=1e-10)
    stats = cpu.pivot_stats
    assert tuple(e.buffers["summary"][:4]) == (
        stats.one_by_one,
        stats.two_by_two,
        stats.perturbed,
        stats.zero,
    )


@pytest.mark.simt
@pytest.mark.parametrize("plan", [{}, SMALL], ids=["small", "wide"])
def test_first_column_that_is_not_positive(plan):
    a = laplacian(7, 7, 7).tolil()
    a[200, 200] = -50.0
    a = a.tocsr()
    e = emulated(a, False, schedules=1, **plan)
    failed = e.factorize(a.data)[7]
    assert (
        e.symbolic.perm[failed]
        == DirectSolver(a, structure="SPD", reordering_alg="amd", check="status").factorize().info - 1
    )


@pytest.mark.simt
def test_zero_pivot_and_nan_are_seen():
    a = random_symmetric(30, 4).toarray()
    a[:, 7] = a[7, :] = 0.0
    a[7, 7] = 0.0
    stored = random_symmetric(30, 4)
    stored.data = a[stored.nonzero()]
    e = emulated(stored, True, schedules=1)
    summary = e.factorize(stored.data)
    assert summary[3] == 1
    assert e.symbolic.perm[summary[7]] == 7
    stored.data[5 * 30 + 5] = np.nan
    assert e.factorize(stored.data)[8] > 0


@pytest.mark.simt
def test_tiny_pivots_are_perturbed_and_counted():
    a = random_symmetric(24, 5)
    e = emulated(a, True, schedules=1, tolerances=Tolerances(threshold=0.5, epsilon=0.3))
    counted = e.factorize(a.data)[2]
    cpu = DirectSolver(
        a, structure="S", reordering_alg="amd", scaling="none", on_unstable="perturb", pivot_threshold=0.5, pivot_epsilon=0.3
    ).factorize()  # fmt: skip
    assert counted == cpu.pivot_stats.perturbed


@pytest.mark.simt
def test_float32():
    a = laplacian(6, 6, 6)
    e = emulated(a, False, dtype=np.float32, schedules=1, **SMALL)
    e.factorize(a.data.astype(np.float32))
    assert reconstruction(e, a) <= 1e-6
    b = np.random.default_rng(0).standard_normal((1, a.shape[0])).astype(np.float32)
    x = e.solve(b, refinements=1)
    assert np.abs(b.T - a @ x.T).max() / (np.abs(x).max() * abs(a).sum(1).max()) <= 1e-6


@pytest.mark.simt
def test_a_repeat_has_the_same_bits():
    a = grid_kkt(8)
    e = emulated(a, True, scaled=True, schedules=1)
    e.factorize(a.data)
    first = {k: e.buffers[k].tobytes() for k in ("panels", "diagonal", "pivots")}
    e.factorize(a.data * 3)
    assert e.buffers["diagonal"].tobytes() != first["diagonal"]
    e.seed = 5
    e.factorize(a.data)
    assert {k: e.buffers[k].tobytes() for k in first} == first
