"""LU in every dtype: complex by default here; float32 and complex64, which compile as long again, are slow tests."""

import numpy as np
import pytest
import scipy.sparse as sp
from general_matrices_for_tests import GENERAL, backward_error, entries
from hypothesis import given, settings
from hypothesis import strategies as st

import warpfront as wf
from warpfront import DirectSolver, Status

KINDS = [
    "complex128",
    pytest.param("float32", marks=pytest.mark.slow),
    pytest.param("complex64", marks=pytest.mark.slow),
]
TRANSPOSED = {"N": lambda a: a, "T": lambda a: a.T, "H": lambda a: a.conj().T}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("kind", GENERAL)
@settings(max_examples=5, deadline=None)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_errors_are_those_of_the_dtype(kind, dtype, n, seed):
    """Solutions keep the dtype; the backward error, computed in complex128, is a few of its units."""
    rng = np.random.default_rng(seed)
    a = GENERAL[kind](rng, n, dtype)
    b = entries(rng, n, dtype)
    eps = float(np.finfo(dtype).eps)
    solver = DirectSolver(sp.csr_array(a), structure="G", check="status")
    for trans, turn in TRANSPOSED.items():
        x = solver.solve(b, trans)
        assert x.dtype == np.dtype(dtype)
        if solver.report.factor.status == Status.OK:
            wide = turn(a).astype("complex128"), x.astype("complex128"), b.astype("complex128")
            assert backward_error(*wide) < 32 * eps
        else:
            assert np.linalg.cond(a.astype("complex128")) > 0.01 / eps
    assert solver._factor.state.panel.dtype == solver._factor.state.upper.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("kind", ["random", "zero block", "blocks"])
def test_superlu_identity_and_determinant(kind, dtype):
    n = 40
    a = GENERAL[kind](np.random.default_rng(3), n, dtype)
    eps = float(np.finfo(dtype).eps)
    f = wf.splu(sp.csc_array(a))
    rows, cols = np.argsort(f.perm_r), np.argsort(f.perm_c)
    size = abs(f.L).sum(axis=1).max() * abs(f.U).max()
    assert np.abs((f.L @ f.U).toarray() - a[rows][:, cols]).max() < 50 * eps * size
    sign, logarithm = np.linalg.slogdet(a.astype("complex128"))
    ours = f.slogdet()
    assert abs(complex(ours[0]) - sign) < 1e4 * eps
    assert abs(ours[1] - logarithm) < 1e4 * eps
    if np.dtype(dtype).kind == "c":
        assert abs(np.exp(f.logdet() - logarithm) - sign) < 1e5 * eps


def test_complex_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(1)
    a = sp.random_array((1500, 1500), density=0.002, rng=rng) + 2 * sp.eye_array(1500)
    a = sp.csr_array(a * (1 + 0.5j))
    b = rng.standard_normal(1500)
    found = {DirectSolver(a, structure="G", host_nthreads=t).solve(b).tobytes() for t in (1, 2, 3)}
    assert len(found) == 1
