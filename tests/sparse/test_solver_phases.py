"""``execute``: phases by their cuDSS names; joined parts equal ``solve``, partial solves equal the dense
reference."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, laplacian_2d, positive_definite

from warpfront import DirectSolver, Status
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotFactorizedError,
    PatternChangedError,
    SingularMatrixError,
)
from warpfront.sparse._reference import reconstruct
from warpfront.sparse.interface import SymmetricFactor

PARTS = ["solve_fwd_perm", "solve_fwd", "solve_diag", "solve_bwd", "solve_bwd_perm", "solve_refinement"]
MATRICES = {
    "SPD": ("SPD", positive_definite("random", np.random.default_rng(0), 40)),
    "S": ("S", INDEFINITE["zero block"](np.random.default_rng(1), 40)),
    "S 2x2": ("S", INDEFINITE["all 2x2"](np.random.default_rng(2), 41)),
    "S scaled": ("S", INDEFINITE["badly scaled"](np.random.default_rng(3), 40)),
    "S delayed": ("S", INDEFINITE["70% delayed"](np.random.default_rng(4), 40)),
    "SPD grid": ("SPD", laplacian_2d(12).toarray()),
}


def made(name, **options):
    structure, a = MATRICES[name]
    return DirectSolver(sp.csr_array(a), structure=structure, **options).factorize(), a


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_joined_parts_equal_solve(name, shape):
    solver, a = made(name)
    n = a.shape[0]
    b = np.random.default_rng(5).standard_normal((n, *shape))
    reference = solver.solve(b)
    x = np.full_like(b, np.nan)
    solver.execute("|".join(PARTS), x, b)
    assert x.tobytes() == reference.tobytes()
    x[...] = np.nan
    solver.execute("solve", x, b)
    assert x.tobytes() == reference.tobytes()


@pytest.mark.parametrize("name", MATRICES)
def test_parts_one_by_one_equal_the_joined_ones(name):
    """Each call reads what the one before wrote, in place."""
    solver, a = made(name)
    b = np.random.default_rng(6).standard_normal((a.shape[0], 2))
    x = b.copy()
    for part in PARTS[:-1]:
        solver.execute(part, x, x)
    solver.execute("solve_refinement", x, b)
    assert x.tobytes() == solver.solve(b).tobytes()


@pytest.mark.parametrize("name", MATRICES)
def test_partial_solves_equal_the_reference(name):
    """With L, D, P and S multiplied out in dense arrays.

    Between the parts vectors are in the planned order, which delayed pivots leave: ``perm_reorder_row``, not
    ``perm``.
    """
    solver, a = made(name)
    n = a.shape[0]
    dense = reconstruct(SymmetricFactor(solver))
    planned = np.asarray(solver.get("perm_reorder_row"))
    to_pivots = np.argsort(planned)[dense.perm]  # planned position of the k-th pivot
    b = np.random.default_rng(7).standard_normal(n)

    x = np.empty(n)
    solver.execute("solve_fwd_perm", x, b)
    np.testing.assert_array_equal(x, (dense.scale * b)[planned])
    y = x.copy()
    solver.execute("solve_fwd", x, y)
    expected = scipy.linalg.solve_triangular(dense.L, y[to_pivots], lower=True)
    np.testing.assert_allclose(x[to_pivots], expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    z = x.copy()
    solver.execute("solve_diag", x, z)
    divided = np.linalg.solve(dense.D, z[to_pivots])
    np.testing.assert_allclose(x[to_pivots], divided, rtol=1e-10, atol=1e-13 * np.abs(divided).max())
    w = x.copy()
    solver.execute("solve_bwd", x, w)
    expected = scipy.linalg.solve_triangular(dense.L, w[to_pivots], lower=True, trans="T")
    np.testing.assert_allclose(x[to_pivots], expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    v = x.copy()
    solver.execute("solve_bwd_perm", x, v)
    back = np.empty(n)
    back[planned] = v
    np.testing.assert_array_equal(x, dense.scale * back)


def test_partial_solves_with_many_threads():
    """Sweeps over a tree large enough for a team."""
    a = laplacian_2d(110)
    one = DirectSolver(a, structure="SPD", host_nthreads=1).factorize()
    three = DirectSolver(a, structure="SPD", host_nthreads=3).factorize()
    assert one.get("lu_nnz") > 150_000
    b = np.random.default_rng(8).standard_normal(a.shape[0])
    for part in PARTS[:-1]:
        x, y = np.empty_like(b), np.empty_like(b)
        one.execute(part, x, b)
        for _ in range(3):
            three.execute(part, y, b)
            assert x.tobytes() == y.tobytes()


def test_all_phases_in_one_string():
    a = laplacian_2d(6)
    b = np.arange(36.0)
    x = np.empty(36)
    solver = DirectSolver(a)
    solver.execute("analysis|factorization|solve", x, b)
    assert x.tobytes() == DirectSolver(a).solve(b).tobytes()
    other = DirectSolver(a)
    other.execute("reordering | symbolic_factorization")
    other.execute("factorization")
    other.execute("refactorization|solve", x, b)
    assert x.tobytes() == solver.solve(b).tobytes()


def test_phases_too_early():
    x = np.zeros(36)
    for phase in ("factorization", "refactorization", "symbolic_factorization"):
        with pytest.raises(NotAnalyzedError):
            DirectSolver(laplacian_2d(6)).execute(phase)
    for phase in ("solve", *PARTS):
        with pytest.raises(NotFactorizedError):
            DirectSolver(laplacian_2d(6)).execute(f"analysis|{phase}", x, x)
    with pytest.raises(NotFactorizedError):
        DirectSolver(laplacian_2d(6)).execute("analysis|refactorization")


@pytest.mark.parametrize("phases", ["nonsense", "", "solve|", "Solve", "analysis,solve", 3, None, ["solve"]])
def test_unknown_phases_list_what_is_allowed(phases):
    solver = DirectSolver(laplacian_2d(6)).factorize()
    x = np.full(36, 7.0)
    with pytest.raises(InvalidValueError, match="solve_fwd_perm"):
        solver.execute(phases, x, x)
    assert np.all(x == 7.0)


@pytest.mark.parametrize(
    "x", [None, [0.0] * 36, np.zeros(35), np.zeros((36, 2)), np.zeros(36, np.float32), np.zeros((36, 1, 1))]
)
@pytest.mark.parametrize("phase", ["solve", "solve_fwd", "solve_refinement"])
def test_wrong_x(phase, x):
    solver = DirectSolver(laplacian_2d(6)).factorize()
    with pytest.raises(InvalidValueError):
        solver.execute(phase, x, np.ones(36))


def test_failed_factor_does_not_solve_by_parts():
    a = np.diag([1.0, 0.0, 2.0])
    solver = DirectSolver(sp.csr_array(a), structure="S", check="status").factorize()
    assert solver.status == Status.SINGULAR
    x = np.full(3, np.nan)
    solver.execute("|".join(PARTS), x, np.array([1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(x, [1.0, 0.0, 1.0])
    strict = DirectSolver(sp.csr_array(a), structure="S")
    with pytest.raises(SingularMatrixError):
        strict.execute("analysis|factorization")
    for phase in ("solve", "solve_fwd", "solve_diag"):
        with pytest.raises(SingularMatrixError):
            strict.execute(phase, x, np.ones(3))


def test_refactorize_of_the_wrong_pattern_is_no_phase():
    solver = DirectSolver(laplacian_2d(6)).factorize()
    with pytest.raises(PatternChangedError):
        solver.refactorize(laplacian_2d(5))
