"""`DirectSolver(structure="G", device="cuda")` from outside: on a GPU, and with the SIMT runner for a device."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from warpfront import DirectSolver
from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError, SingularMatrixError, Status
from warpfront.sparse.determinant import sparse_slogdet

sys.path.insert(0, str(Path(__file__).parents[1] / "sparse"))
from general_matrices_for_tests import GENERAL, convection, leaves_on_a_hub, saddle


def errors(a, x, b):
    r = np.abs(b - a @ x)
    return np.max(np.where(r > 0, r / (abs(a) @ np.abs(x) + np.abs(b)), 0.0), initial=0.0)


def hard(name, n, seed=3):
    return sp.csr_array(GENERAL[name](np.random.default_rng(seed), n, "float64"))


def make(a, **more):
    return DirectSolver(a, **{"structure": "G", "device": "cuda", "reordering_alg": "amd", **more})


MATRICES = {
    **{name: (lambda name=name: hard(name, 36)) for name in GENERAL},
    "convection": lambda: convection(12),
    "saddle": lambda: saddle(10),
    "hub": lambda: leaves_on_a_hub(60, 4),
}


@pytest.mark.parametrize("name", MATRICES)
def test_solves_with_the_matrix_and_its_transpose(cupy, name):
    a = MATRICES[name]()
    n = a.shape[0]
    s = make(a)
    b = np.random.default_rng(0).standard_normal((n, 6))
    x = s.solve(b)
    assert type(x) is np.ndarray
    assert errors(a, x, b) <= 1e-12
    assert s.status == Status.OK
    assert s.report.factor.method == "LU"
    assert s.report.solve.n_rhs == 6
    y = s.solve(b, trans="T")
    assert errors(a.T, y, b) <= 1e-12
    assert np.array_equal(s.solve(b, trans="H"), y)
    assert np.array_equal(s.solve(b[:, 2]), x[:, 2])
    assert np.array_equal(s.solve(b[:, 3], trans="T"), y[:, 3])
    if name not in ("badly scaled", "arrow"):
        other = scipy.sparse.linalg.splu(a.tocsc()).solve(b)
        np.testing.assert_allclose(x, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())


def test_new_values_and_the_bits_of_old_ones(cupy):
    a = convection(12)
    s = make(a, check="status")
    b = np.random.default_rng(0).standard_normal(a.shape[0])
    x, y = s.solve(cupy.asarray(b)), s.solve(b, trans="T")
    assert type(x).__module__.startswith("cupy")
    assert s.report.factor.scaling == "by the matching"
    for k in range(20):
        s.refactorize(cupy.asarray(a.data) if k % 2 else a.data)
        assert np.array_equal(s.solve(b), x.get())
    assert np.array_equal(s.solve(b, trans="T"), y)
    new = a.copy()
    new.data *= 10.0 ** np.random.default_rng(1).uniform(-4, 4, a.nnz)
    s.refactorize(cupy.asarray(new.data))
    assert errors(new, s.solve(b), b) <= 1e-12
    assert s.report.factor.stale_matching
    cpu = DirectSolver(a, structure="G", block_triangular=False, reordering_alg="amd").factorize()
    cpu.refactorize(new.data)
    assert s.report.factor.scaling == cpu.report.factor.scaling
    s.refactorize(a.data)
    assert not s.report.factor.stale_matching
    assert np.array_equal(s.solve(b), x.get()), "old -> new -> old"


def test_structure_is_found(cupy):
    s = DirectSolver(convection(6), device="cuda").factorize()
    assert s.report.analysis.structure == "G"
    assert s.report.factor.method == "LU"


@pytest.mark.parametrize("scaling", ["none", "equilibrate"])
def test_scaling_by_name(cupy, scaling):
    a = hard("random", 30)
    s = make(a, scaling=scaling)
    b = np.ones(30)
    assert errors(a, s.solve(b), b) <= 1e-12
    cpu = DirectSolver(a, structure="G", scaling=scaling, block_triangular=False).factorize()
    assert s.report.factor.scaling == cpu.report.factor.scaling
    assert np.array_equal(s.get("scale_row"), cpu.get("scale_row"))
    assert np.array_equal(s.get("scale_col"), cpu.get("scale_col"))


def test_structurally_singular(cupy):
    a = hard("random", 30).tolil()
    a[:, 4] = 0
    a[7, :] = 0
    a = sp.csr_array(a)
    with pytest.raises(SingularMatrixError, match="structurally singular: its structural rank is 29 of 30"):
        make(a).factorize()
    s = make(a, check="status").factorize()
    assert s.status == Status.SINGULAR
    assert s.info > 0


def test_singular_names_the_column(cupy):
    a = sp.csr_array(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0], [0.0, 0.0, 1.0]]))
    with pytest.raises(SingularMatrixError) as caught:
        make(a).factorize()
    assert caught.value.column in (0, 1)
    dense = hard("dense", 40).toarray()
    dense[:, 9] = 0.0
    stored = hard("dense", 40)
    stored.data[:] = dense.reshape(-1)
    s = make(stored, check="status").factorize()
    assert s.status == Status.SINGULAR
    assert s.info == 10
    b = dense @ np.ones(40)
    assert errors(stored, s.solve(b), b) <= 1e-12, "a consistent system is solved"


def test_not_finite(cupy):
    a = hard("dense", 20)
    s = make(a, check="status").factorize()
    bad = a.data.copy()
    bad[7] = np.nan
    s.refactorize(cupy.asarray(bad))
    assert s.status == Status.NON_FINITE
    bad[7] = np.inf
    s.refactorize(cupy.asarray(bad))
    assert s.status == Status.NON_FINITE
    with pytest.raises(NonFiniteError):
        make(a).factorize().refactorize(cupy.asarray(bad))
    s.refactorize(bad)
    assert s.status == Status.NON_FINITE, "host values are read first"
    s.refactorize(a.data)
    assert s.status == Status.OK


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny(cupy, n):
    a = sp.csr_array(np.diag(np.arange(1.0, n + 1))[::-1])
    s = make(a)
    np.testing.assert_allclose(a @ s.solve(np.ones(n)), np.ones(n))
    np.testing.assert_allclose(a.T @ s.solve(np.ones(n), trans="T"), np.ones(n))


def test_readings_and_misuse(cupy):
    a = convection(8)
    s = make(a).analyze()
    planned = s.memory_estimates
    s.factorize()
    assert s.memory_estimates == planned
    assert planned["total"] == s.memory_slots[0] == s._factor.nbytes
    exact = 1 / (np.linalg.norm(a.toarray(), 1) * np.linalg.norm(np.linalg.inv(a.toarray()), 1))
    assert s.rcond() == pytest.approx(exact, rel=0.5)
    assert s.get("npivots") == 0
    rows, cols, diagonal = s.get("perm_row"), s.get("perm_col"), s.get("diag")
    assert np.array_equal(np.sort(rows), np.arange(64))
    assert np.array_equal(np.sort(cols), np.arange(64))
    size = np.log(np.abs(diagonal) / s.get("scale_col") / s.get("scale_row")[rows[np.argsort(cols)]]).sum()
    assert size == pytest.approx(np.linalg.slogdet(a.toarray())[1], rel=1e-12)
    with pytest.raises(NotSupportedError, match="no inertia"):
        _ = s.inertia
    with pytest.raises(NotSupportedError, match="delayed pivots are on the CPU"):
        make(a, on_unstable="delay")
    with pytest.raises(NotSupportedError, match="factors the matrix whole"):
        make(a, block_triangular=True)
    with pytest.raises(NotSupportedError, match="stale_matching='analyze'"):
        make(a, stale_matching="analyze").factorize()
    with pytest.raises(InvalidValueError, match="trans"):
        s.solve(np.ones(64), trans="X")
    with pytest.raises(NotSupportedError, match="complex128"):
        make(a.astype(complex))


def test_duplicates_in_the_callers_order(cupy):
    dense = hard("random", 20).toarray()
    row, col = np.nonzero(dense)
    order = np.random.default_rng(2).permutation(row.size)
    row, col = np.tile(row[order], 2), np.tile(col[order], 2)
    values = np.concatenate(
        [
            0.25 * dense[row[: order.size], col[: order.size]],
            0.75 * dense[row[: order.size], col[: order.size]],
        ]
    )
    s = make(sp.coo_array((values, (row, col)), shape=(20, 20)))
    b = np.random.default_rng(3).standard_normal(20)
    x = s.solve(b)
    s.refactorize(cupy.asarray(values))
    assert np.array_equal(s.solve(b), x)
    assert errors(sp.csr_array(dense), x, b) <= 1e-12


def test_float32(cupy):
    a = convection(8).astype(np.float32)
    s = make(a)
    b = np.ones(64, np.float32)
    for trans, m in (("N", a), ("T", a.T)):
        x = s.solve(b, trans=trans)
        assert x.dtype == np.float32
        assert errors(m.astype(float), x.astype(float), b.astype(float)) <= 1e-5


@pytest.mark.parametrize("name", ["convection", "saddle", "hub"])
def test_determinant(cupy, name):
    a = MATRICES[name]()
    sign, logarithm, method = sparse_slogdet(a, "G", device="cuda", reordering_alg="amd")
    expected = np.linalg.slogdet(a.toarray())
    assert (sign, method) == (expected[0], "LU")
    assert logarithm == pytest.approx(expected[1], rel=1e-12)
    with pytest.raises(NotSupportedError, match="structure='G'"):
        sparse_slogdet(convection(6) + convection(6).T, "S", device="cuda")
