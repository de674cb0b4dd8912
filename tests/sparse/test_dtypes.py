"""float32, complex64, complex128: every structure, errors by the type's own rounding, against NumPy in double
precision."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import INDEFINITE, laplacian_2d, mirrored, with_dense_root

from warpfront import DirectSolver, Status
from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError
from warpfront.sparse._reference import (
    backward_errors,
    dense_inertia,
    reconstruct,
    reconstruction_error,
)
from warpfront.sparse.interface import SymmetricFactor

STRUCTURES = [
    ("float32", "SPD"), ("float32", "S"), ("complex64", "HPD"), ("complex64", "H"), ("complex64", "S"),
    ("complex128", "HPD"), ("complex128", "H"), ("complex128", "S"), ("float64", "SPD"), ("float64", "S"),
]  # fmt: skip
DOUBLE_ONLY = ("badly scaled", "times 1e-150", "times 1e150")


def matrix_of(structure, dtype, kind, n, seed=0):
    """A matrix of the structure: real part by kind, imaginary part likewise, symmetric or skew."""
    rng = np.random.default_rng([seed, n])
    a = INDEFINITE[kind](rng, n).astype(np.complex128)
    if np.dtype(dtype).kind == "c":
        other = INDEFINITE[kind](rng, n)
        a = a + 1j * (other if structure == "S" else np.tril(other, -1) - np.tril(other, -1).T)
    if structure in ("SPD", "HPD"):
        np.fill_diagonal(a, 0.0)
        size = np.abs(a).sum(axis=1)
        np.fill_diagonal(a, 1.01 * size + 0.1 * (size.max(initial=0.0) or 1.0))
    return (a if np.dtype(dtype).kind == "c" else a.real).astype(dtype)


def right_hand_side(dtype, shape, seed=1):
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(shape)
    return (b + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else b).astype(dtype)


@pytest.mark.parametrize(("dtype", "structure"), STRUCTURES)
@pytest.mark.parametrize("kind", INDEFINITE)
@pytest.mark.parametrize("n", [7, 120])
def test_backward_error_reconstruction_and_inertia(dtype, structure, kind, n):
    if kind in DOUBLE_ONLY and (np.finfo(dtype).bits == 32 or structure in ("SPD", "HPD")):
        pytest.skip("entries beyond the range of the type")
    a = matrix_of(structure, dtype, kind, n)
    solver = DirectSolver(sp.csr_array(a), structure=structure, check="status").factorize()
    eps = float(np.finfo(dtype).eps)
    if solver.status != Status.OK:
        assert solver.status == Status.SINGULAR
        singular = np.linalg.svd(a.astype(np.complex128), compute_uv=False)
        assert singular[-1] < 2e4 * eps * singular[0]
        return
    b = right_hand_side(dtype, n)
    for trans, op in (("N", a), ("T", a.T), ("H", a.conj().T)):
        x = solver.solve(b, trans)
        assert x.dtype == dtype
        assert backward_errors(op, x, b)[0] <= 20 * eps
    error = reconstruction_error(a.astype(np.complex128), reconstruct(SymmetricFactor(solver)))
    assert error <= (1e3 if structure in ("SPD", "HPD") else 1e6) * eps
    if structure in ("H", "SPD", "HPD") or a.dtype.kind != "c":
        expected = dense_inertia(a, gap=1e6 * eps)
        assert expected is None or solver.inertia == expected
    else:
        with pytest.raises(NotSupportedError, match="complex symmetric"):
            _ = solver.inertia


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("indefinite", [False, True])
def test_large_fronts_and_threads(dtype, indefinite):
    """Fronts wide enough for BLAS and for sharing; the same bits from one thread and from two."""
    a = with_dense_root(900, 300, indefinite=indefinite).astype(dtype)
    structure = "S" if indefinite else "SPD"
    if np.dtype(dtype).kind == "c":
        lower = sp.tril(a, -1)
        a = sp.csr_array(a + 0.3j * lower - 0.3j * lower.T).astype(dtype)
        structure = {"S": "H", "SPD": "HPD"}[structure]
    b = right_hand_side(dtype, 900)
    found = [DirectSolver(a, structure=structure, host_nthreads=k).factorize() for k in (1, 2)]
    x = [solver.solve(b) for solver in found]
    assert x[0].tobytes() == x[1].tobytes()
    assert backward_errors(a, x[0], b)[0] <= 20 * np.finfo(dtype).eps
    assert found[0].inertia == dense_inertia(a.toarray(), gap=1e-5)


def test_no_float32_where_the_matrix_is_float64():
    """Entries that float32 cannot tell apart: 1 + 1e-9 is 1 there, and the matrix singular."""
    a = np.array([[1.0, 1.0, 0.0], [1.0, 1.0 + 1e-9, 0.0], [0.0, 0.0, 1.0]])
    b = np.array([0.0, 1e-9, 1.0])
    for structure in ("SPD", "S"):
        solver = DirectSolver(a, structure=structure, ir_n_steps=0)
        np.testing.assert_allclose(solver.solve(b), [-1.0, 1.0, 1.0], rtol=1e-6)
    assert (
        DirectSolver(a.astype(np.float32), structure="S", check="status").factorize().status
        == Status.SINGULAR
    )
    n = 400
    wide = mirrored(np.random.default_rng(0).standard_normal((n, n))) + 40 * np.eye(n)
    x = DirectSolver(wide, ir_n_steps=0).solve(wide @ np.ones(n))
    assert np.abs(x - 1).max() < 1e-11  # float32 anywhere on the way leaves 1e-6
    z = wide + 1j * np.triu(wide, 1) - 1j * np.triu(wide, 1).T
    x = DirectSolver(z, ir_n_steps=0).solve(z @ np.ones(n))
    assert np.abs(x - 1).max() < 1e-11


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_error_is_of_single_precision(dtype):
    a = laplacian_2d(20).astype(dtype)
    solver = DirectSolver(a)
    x = solver.solve(a @ np.ones(400, dtype))
    assert x.dtype == dtype
    assert 1e-9 < solver.report.solve.backward_error < 1e-6
    assert np.abs(x - 1).max() < 1e-4


@pytest.mark.parametrize("kind", ["random", "zero block", "badly scaled", "times 1e150", "all 2x2", "dense"])
@pytest.mark.parametrize("mode", ["residual", "fgmres"])
def test_single_factor_with_double_refinement(kind, mode):
    """Named on purpose: the factor takes half the memory, the solution has the errors of float64."""
    a = INDEFINITE[kind](np.random.default_rng(3), 60)
    solver = DirectSolver(sp.csr_array(a), structure="S", downcast_factors=True, ir_mode=mode)
    b = a @ np.ones(60)
    x = solver.solve(b)
    assert x.dtype == np.float64
    assert backward_errors(a, x, b)[0] <= 1e-14
    record = solver.report.factor
    assert "float32" in record.method
    assert record.factor_bytes == 4 * record.nnz_factor


def test_complex_right_hand_side_of_a_real_matrix():
    a = INDEFINITE["random"](np.random.default_rng(0), 30)
    b = right_hand_side("complex128", (30, 3))
    solver = DirectSolver(a)
    x = solver.solve(b)
    assert x.dtype == np.complex128
    assert backward_errors(a.astype(complex), x, b)[0] <= 5e-15
    assert x.real.tobytes() == np.ascontiguousarray(solver.solve(b.real)).tobytes()
    out = b.copy()
    assert solver.solve(out, out=out) is out
    assert out.tobytes() == x.tobytes()
    assert DirectSolver(a.astype(np.float32)).solve(b).dtype == np.complex64


def test_values_of_another_type():
    a = sp.csr_array(np.array([[2.0, 1.0], [1.0, 3.0]], np.float32))
    solver = DirectSolver(a).factorize()
    solver.refactorize(np.array([4.0, 2.0, 2.0, 6.0]))  # float64 values for a float32 matrix
    np.testing.assert_allclose(solver.solve([4.0, 2.0]), [1.0, 0.0], atol=1e-6)
    with pytest.raises(InvalidValueError, match="complex"):
        solver.refactorize(a.data * 1j)
    with pytest.raises(NonFiniteError):
        solver.refactorize(np.array([1e300, 1.0, 1.0, 1.0]))
    with pytest.raises(NonFiniteError, match="range of float32"):
        solver.solve(np.array([1e300, 1.0]))


@settings(max_examples=40)
@given(
    st.sampled_from(STRUCTURES), st.integers(1, 40), st.integers(0, 10_000),
    st.sampled_from([k for k in INDEFINITE if k not in (*DOUBLE_ONLY, "many leaves on one parent")]),
)  # fmt: skip
def test_small_backward_error_or_singular(which, n, seed, kind):
    """The property of cases 1 and 2 for every type: a small backward error, or a status."""
    dtype, structure = which
    a = matrix_of(structure, dtype, kind, n, seed)
    solver = DirectSolver(sp.coo_array(a), structure=structure, check="status")
    b = right_hand_side(dtype, (n, 2), seed)
    x = solver.solve(b)
    if solver.status == Status.OK:
        assert backward_errors(a, x, b)[0] <= 50 * np.finfo(dtype).eps
    else:
        assert solver.status == Status.SINGULAR
