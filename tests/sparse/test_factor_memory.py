"""Buffers that turn out too small: the walk is repeated with more, the result is the same, and memory stays
in bounds."""

import numpy as np
import pytest
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, laplacian_2d, leaves_on_hubs

from warpfront import DirectSolver, Inertia
from warpfront.sparse._reference import dense_inertia, reconstruct, reconstruction_error
from warpfront.sparse.interface import SymmetricFactor


@pytest.mark.parametrize(("leaves", "hubs"), [(40, 2), (300, 3), (300, 30), (700, 5)])
def test_columns_delayed_to_the_root(leaves, hubs):
    """Far more delayed pivots than planned for; every entry of the factor is still right."""
    a = leaves_on_hubs(leaves, hubs)
    solver = DirectSolver(a, structure="S", matching_alg="none").factorize()
    assert solver.pivot_stats.delayed >= 0.8 * leaves
    dense = a.toarray()
    assert solver.inertia == Inertia(leaves, hubs, 0) == dense_inertia(dense, 1e-12)
    assert reconstruction_error(dense, reconstruct(SymmetricFactor(solver))) <= 1e-11
    x = solver.solve(a @ np.ones(leaves + hubs))
    assert solver.report.solve.backward_error <= 5e-14
    assert np.isfinite(x).all()


def test_memory_of_the_repeat_follows_the_need():
    """The final factor of 3,010 rows is full (36 MB); the buffers may not be a multiple of the plan's worst
    guess."""
    solver = DirectSolver(leaves_on_hubs(3000, 10), structure="S", matching_alg="none").factorize()
    record = solver.report.factor
    assert solver.inertia == Inertia(3000, 10, 0)
    assert record.nnz_factor > 4_000_000
    assert record.peak_bytes <= 12 * record.factor_bytes


def test_no_repeat_no_slack():
    """Where nothing is delayed the buffers stay near the plan."""
    a = laplacian_2d(60)
    for structure in ("SPD", "S"):
        solver = DirectSolver(a, structure=structure, host_nthreads=1).factorize()
        assert solver.report.factor.peak_bytes <= 4 * solver.memory_estimates["total"] + 4_000_000


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_more_threads_than_subtrees(threads):
    a = sp.csr_array(INDEFINITE["arrow"](np.random.default_rng(0), 60))
    solver = DirectSolver(a, structure="S", host_nthreads=threads)
    reference = DirectSolver(a, structure="S", host_nthreads=1).solve(np.ones(60))
    assert solver.solve(np.ones(60)).tobytes() == reference.tobytes()
    big = laplacian_2d(60)
    one = DirectSolver(big, host_nthreads=1).solve(np.ones(3600))
    many = DirectSolver(big, host_nthreads=threads)
    assert many.solve(np.ones(3600)).tobytes() == one.tobytes()
    assert many.report.factor.threads == threads


@pytest.mark.parametrize("structure", ["SPD", "S"])
def test_one_dense_front_without_a_tree(structure):
    """A single root, nothing below it: all tiles, no subtrees; wide enough for every tile size."""
    rng = np.random.default_rng(1)
    n = 450
    a = rng.standard_normal((n, n))
    a = a @ a.T + n * np.eye(n) if structure == "SPD" else a + a.T
    found = set()
    for threads in (1, 2, 3):
        solver = DirectSolver(a, structure=structure, host_nthreads=threads).factorize()
        factor = SymmetricFactor(solver)
        found.add((factor.L.data.tobytes(), factor.diagonal().tobytes(), factor.perm.tobytes()))
        assert solver.report.analysis.max_front == n
    assert len(found) == 1
    assert solver.inertia == dense_inertia(a)
    assert reconstruction_error(a, reconstruct(factor)) <= (1e-13 if structure == "SPD" else 1e-10)


def test_failing_subtree_among_good_ones():
    """One indefinite block among many, in a forest: the column is right with any number of threads, and it
    resets."""
    good = sp.block_diag([laplacian_2d(25) for _ in range(6)], format="csr")
    bad = good.copy()
    diagonal = bad.diagonal()
    diagonal[[700, 2000, 3300]] = -1.0
    bad.setdiag(diagonal)
    columns = set()
    for threads in (1, 2, 3):
        for _ in range(3):
            solver = DirectSolver(
                sp.csr_array(bad), structure="SPD", host_nthreads=threads, check="status"
            ).factorize()
            columns.add(solver.info - 1)
            solver.refactorize(good.data)
            assert solver.inertia == Inertia(3750, 0, 0)
    assert len(columns) == 1
    # the first failing pivot lies in the part of an offending row, and at or after all its descendants
    assert columns.pop() // 625 in {700 // 625, 2000 // 625, 3300 // 625}


@pytest.mark.parametrize("structure", ["SPD", "S", "G"])
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_estimates_are_what_is_taken(structure, threads, dtype):
    """Without delayed pivots the estimate made before the factorisation is what its buffers take, within 5 percent."""
    for a in (laplacian_2d(12), laplacian_2d(90), sp.eye_array(30, format="csc")):
        structure_of = (
            {"SPD": "HPD", "S": "H"}.get(structure, structure) if dtype == np.complex128 else structure
        )
        solver = DirectSolver(a.astype(dtype), structure=structure_of, host_nthreads=threads).analyze()
        estimates = solver.memory_estimates
        solver.factorize()
        assert solver.pivot_stats.delayed == 0
        planned = estimates["total"] - estimates["indices"]
        assert planned == pytest.approx(solver.report.factor.peak_bytes, rel=0.05)


@pytest.mark.parametrize("dims", [(200, 200), (22, 22, 22)])
def test_peak_is_factor_and_active_blocks(dims):
    """Nothing else above a tenth of them but the scaled values of A, for a factorisation without delayed pivots."""
    lines = [
        sp.diags_array([[-1.0] * (k - 1), [2.0] * k, [-1.0] * (k - 1)], offsets=[-1, 0, 1]) for k in dims
    ]
    a = lines[0]
    for line in lines[1:]:
        a = sp.kron(a, sp.eye_array(line.shape[0])) + sp.kron(sp.eye_array(a.shape[0]), line)
    solver = DirectSolver(sp.csc_array(a), host_nthreads=2).analyze()
    estimates = solver.memory_estimates
    peak = solver.factorize().report.factor.peak_bytes
    values = 8 * sp.tril(a).nnz
    assert peak <= 1.1 * (estimates["factor"] + estimates["contribution_blocks"]) + values
