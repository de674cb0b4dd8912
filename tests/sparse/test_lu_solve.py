"""LU: solutions with A, A^T and A^H against NumPy and by backward error; every kind swept by a property."""

import numpy as np
import pytest
import scipy.sparse as sp
from general_matrices_for_tests import (
    GENERAL,
    backward_error,
    convection,
    leaves_on_a_hub,
    oettli_prager,
    saddle,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfront as wf
from warpfront import DirectSolver, Status
from warpfront.errors import InvalidValueError

TRANSPOSED = {"N": lambda a: a, "T": lambda a: a.T, "H": lambda a: a.conj().T}


@pytest.mark.parametrize("kind", GENERAL)
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_small_backward_error_or_a_status(kind, n, seed):
    """The property of cases 1 and 2: by default a small componentwise backward error, or the verdict "singular"."""
    rng = np.random.default_rng(seed)
    a = GENERAL[kind](rng, n, "float64")
    b = rng.standard_normal(n)
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status")
    for trans, turn in TRANSPOSED.items():
        x = solver.solve(b, trans)
        if solver.report.factor.status == Status.OK:
            assert backward_error(turn(a), x, b) < 5e-14
            assert (
                solver.report.solve.componentwise_error < 1e-12 or solver.report.solve.backward_error < 1e-14
            )
        else:
            assert np.linalg.cond(a) > 1e12


@pytest.mark.parametrize("kind", GENERAL)
@pytest.mark.parametrize(
    "options", [{"block_triangular": False}, {"matching_alg": "none"}, {"scaling": "none"}, {}]
)
def test_against_dense_solutions(kind, options):
    rng = np.random.default_rng(5)
    a = GENERAL[kind](rng, 40, "float64")
    if kind == "badly scaled" and options:
        options = {"block_triangular": False}
    b = rng.standard_normal((40, 3))
    solver = DirectSolver(sp.csc_array(a), structure="G", **options)
    for trans, turn in TRANSPOSED.items():
        x = solver.solve(b, trans)
        assert backward_error(turn(a), x, b) < 5e-14
        if kind != "badly scaled":
            np.testing.assert_allclose(x, np.linalg.solve(turn(a), b), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 16, 33, 64, 65, 130, 300])
def test_dense_as_sparse(n):
    """Case 5's kind; 65 and more leave the scratch path, 130 is more than one outer block, 300 more than one tile."""
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n, n))
    b = rng.standard_normal(n)
    for threads in (1, 2):
        x = DirectSolver(sp.csr_array(a), structure="G", host_nthreads=threads).solve(b)
        assert backward_error(a, x, b) < 5e-15
        np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-6, atol=1e-8)


def test_case_1_random_with_zero_diagonals():
    for seed in range(10):
        a = sp.random_array((100, 100), density=0.05, rng=np.random.default_rng(seed)).tocsr()
        b = np.ones(100)
        solver = DirectSolver(a, check="status")
        x = solver.solve(b)
        if solver.status == Status.OK:
            assert backward_error(a, x, b) < 1e-14
        else:
            assert solver.status == Status.SINGULAR
            assert np.linalg.matrix_rank(a.toarray()) < 100


def test_case_2_zero_block_on_the_diagonal():
    a = saddle(30)
    b = np.ones(a.shape[0])
    solver = DirectSolver(a)
    assert solver.factorize().report.factor.method == "LU"
    for trans, turn in TRANSPOSED.items():
        x = solver.solve(b, trans)
        assert backward_error(turn(a), x, b) < 1e-14
        assert oettli_prager(turn(a), x, b) < 1e-12
        assert solver.report.solve.componentwise_error < 1e-12


def test_without_symmetry_auto_takes_lu_and_says_why():
    solver = DirectSolver(convection(8)).factorize()
    record = solver.report.analysis
    assert record.structure == "G"
    assert "symmetric" in record.structure_reason
    assert record.structural_rank == 64
    assert solver.report.factor.method == "LU"
    assert solver.report.factor.inertia is None


@pytest.mark.parametrize("name", ["convection", "leaves", "saddle", "dense root"])
def test_any_number_of_threads_gives_the_same_bits(name):
    matrices = {
        "convection": lambda: convection(70),
        "leaves": lambda: leaves_on_a_hub(400, 5),
        "saddle": lambda: saddle(40),
        "dense root": lambda: sp.csr_array(
            sp.random_array((2500, 2500), density=0.0014, rng=np.random.default_rng(1))
            + 2 * sp.eye_array(2500)
        ),
    }
    a = matrices[name]()
    rng = np.random.default_rng(0)
    b = rng.standard_normal((a.shape[0], 2))
    found = []
    for threads in (1, 2, 3):
        solver = DirectSolver(a, structure="G", host_nthreads=threads)
        for _ in range(3):
            solver.factorize()
            parts = [solver.solve(b), solver.solve(b, "T"), solver.solve(b[:, 0]), solver.get("diag")]
            found.append(b"".join(part.tobytes() for part in parts) + repr(solver.pivot_stats).encode())
    assert len(set(found)) == 1


def test_columns_are_solved_alike_alone_and_together():
    a = convection(20)
    b = np.random.default_rng(0).standard_normal((400, 5))
    solver = DirectSolver(a)
    together = solver.solve(b)
    for k in range(5):
        assert np.array_equal(together[:, k], solver.solve(b[:, k]))
    assert np.array_equal(solver.solve(np.asfortranarray(b)), together)
    out = b.copy()
    assert solver.solve(out, out=out) is out
    assert np.array_equal(out, together)


def test_delayed_pivots_reach_the_parent():
    """Without a matching every leaf fails the threshold in its front; rows and columns go up together."""
    a = leaves_on_a_hub(300, 4)
    b = np.random.default_rng(0).standard_normal(304)
    solver = DirectSolver(a, structure="G", matching_alg="none", scaling="none", reordering_alg="natural")
    x = solver.solve(b)
    assert solver.pivot_stats.delayed > 100
    assert backward_error(a, x, b) < 1e-14
    assert backward_error(a.T, solver.solve(b, "T"), b) < 1e-14


def test_delays_through_large_fronts():
    """Fronts of more than the scratch path's rows delay too."""
    rng = np.random.default_rng(1)
    a = convection(45, wind=0.0).tocoo()
    a.data = a.data * (1 + rng.random(a.nnz))
    a.data[(a.row == a.col) & (rng.random(a.nnz) < 0.3)] = 1e-9
    a = a.tocsr()
    solver = DirectSolver(a, structure="G", matching_alg="none")
    b = rng.standard_normal(2025)
    x = solver.solve(b)
    assert solver.pivot_stats.delayed > 50
    assert solver.report.analysis.max_front > 64
    assert backward_error(a, x, b) < 1e-13
    assert backward_error(a.T, solver.solve(b, "T"), b) < 1e-13


def test_perturbation_by_name_is_counted():
    a = leaves_on_a_hub(50, 3)
    a[0, 0] = 0.0
    a.eliminate_zeros()
    solver = DirectSolver(
        a, structure="G", on_unstable="perturb", matching_alg="none", pivot_threshold=1.0,
        reordering_alg="natural", check="status", ir_n_steps=30,
    )  # fmt: skip
    solver.factorize()
    assert solver.pivot_stats.delayed == 0
    assert solver.get("npivots") == solver.pivot_stats.perturbed


@pytest.mark.parametrize("threshold", [0.01, 0.1, 0.5, 1.0])
def test_entries_of_l_stay_below_the_inverse_threshold(threshold):
    for kind in ("random", "dense", "tiny pivots"):
        a = GENERAL[kind](np.random.default_rng(1), 120, "float64")
        solver = DirectSolver(
            sp.csr_array(a), structure="G", pivot_threshold=threshold, diag_pivot_thresh=threshold
        ).factorize()
        factor = solver._factor
        for at, _, _, rows, _, done, _, _ in factor.state.node.tolist():
            panel = factor.state.panel[at : at + rows * done].reshape(done, rows)
            below = panel[np.arange(rows) > np.arange(done)[:, None]]
            assert np.abs(below).max(initial=0) <= 1 / threshold * (1 + 1e-12)


def test_general_needs_every_entry():
    for view in ("lower", "upper"):
        with pytest.raises(InvalidValueError, match="view"):
            DirectSolver(convection(3), structure="G", view=view)


def test_symmetric_structures_refuse_what_is_not_symmetric():
    with pytest.raises(InvalidValueError, match="not symmetric"):
        DirectSolver(convection(3), structure="S")


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_formats_duplicates_and_index_types(form, index):
    """Case 11: duplicates are summed in every format, rows stay rows, and values keep the caller's order."""
    rng = np.random.default_rng(0)
    a = _with_duplicates(rng, form, index)
    dense = a.toarray()
    solver = DirectSolver(a, structure="G")
    b = rng.standard_normal(12)
    assert backward_error(dense, solver.solve(b), b) < 1e-14
    assert backward_error(dense.T, solver.solve(b, "T"), b) < 1e-14
    values = a.data * (1 + 0.1 * rng.random(a.data.shape))
    again = a.copy()
    again.data = values
    solver.refactorize(values.ravel() if form != "bsr" else values)
    assert backward_error(again.toarray(), solver.solve(b), b) < 1e-14


def _with_duplicates(rng, form, index):
    n = 12
    row = np.concatenate([np.arange(n), rng.integers(0, n, 30), [3, 3]]).astype(index)
    col = np.concatenate([rng.permutation(n), rng.integers(0, n, 30), [4, 4]]).astype(index)
    data = rng.standard_normal(row.size) + 2
    if form == "coo":
        return sp.coo_array((data, (row, col)), shape=(n, n))
    if form == "bsr":
        return sp.bsr_array(sp.coo_array((data, (row, col)), shape=(n, n)).tocsr(), blocksize=(2, 3))
    major = row if form == "csr" else col
    order = np.argsort(major, kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=n))]).astype(index)
    minor = (col if form == "csr" else row)[order]
    return (sp.csr_array if form == "csr" else sp.csc_array)((data[order], minor, ptr), shape=(n, n))


@pytest.mark.parametrize("n", [0, 1])
def test_smallest(n):
    a = sp.csr_array(2.0 * np.eye(n))
    solver = DirectSolver(a, structure="G")
    assert np.array_equal(solver.solve(np.ones(n)), np.full(n, 0.5))
    assert solver.solve(np.ones((n, 2))).shape == (n, 2)


def test_helpers_for_general_matrices():
    a = convection(6)
    b = np.arange(36.0)
    assert backward_error(a, wf.spsolve(a, b), b) < 1e-15
    assert backward_error(a, wf.factorized(a)(b), b) < 1e-15


@pytest.mark.parametrize("exponent", [-150, 150])
def test_extreme_uniform_scales(exponent):
    a = convection(10) * 10.0**exponent
    b = np.ones(100)
    x = DirectSolver(a).solve(b)
    assert np.allclose(x * 10.0**exponent, DirectSolver(convection(10)).solve(b), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("trans", "NTH")
def test_one_compiled_call_has_the_bits_of_its_steps(dtype, trans):
    rng = np.random.default_rng(7)
    block = sp.csc_array(GENERAL["random"](rng, 60, dtype))
    above = sp.random_array((60, 60), density=0.1, random_state=rng)
    a = sp.csc_array(sp.block_array([[block, above], [None, block]]), dtype=dtype)
    b = rng.standard_normal(a.shape[0]).astype(dtype)
    solver = DirectSolver(a, structure="G").factorize()
    assert solver.report.analysis.n_blocks > 1
    refiner = solver._refined(trans)
    for steps in (0, 3):
        found = []
        for work in (refiner._work, None):
            refiner._work, kept = work, refiner._work
            x = np.empty_like(b)
            found.append((refiner.solve(b, x, steps) if steps else refiner.solve_unrefined(b, x), x))
            refiner._work = kept
        assert found[0][0] == found[1][0]
        np.testing.assert_array_equal(found[0][1], found[1][1])
