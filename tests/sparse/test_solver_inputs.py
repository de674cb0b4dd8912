"""Every way to hand over a matrix and a right-hand side; what is refused is refused by name."""

import numpy as np
import pytest
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, laplacian_2d

import warpfront
from warpfront import DirectSolver, Inertia, Status
from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError, WarpfrontError

A = INDEFINITE["dense"](np.random.default_rng(0), 12)
A[np.abs(A) < 0.7] = 0.0
B = np.random.default_rng(1).standard_normal((12, 4))
X = np.linalg.solve(A, B)


def int64(matrix):
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def coo64():
    i, j = np.nonzero(A)
    return sp.coo_array((A[i, j], (i.astype(np.int64), j.astype(np.int64))), shape=A.shape)


def unsorted():
    m = sp.csr_array(A)
    for i in range(12):
        part = slice(m.indptr[i], m.indptr[i + 1])
        m.indices[part], m.data[part] = m.indices[part][::-1].copy(), m.data[part][::-1].copy()
    m.has_sorted_indices = False
    return m


def raw():
    m = sp.csr_array(A)
    return m.indptr, m.indices, m.data


FORMS = {
    "csr": lambda: sp.csr_array(A),
    "csr matrix": lambda: sp.csr_matrix(A),
    "csc": lambda: sp.csc_array(A),
    "csc matrix": lambda: sp.csc_matrix(A),
    "coo": lambda: sp.coo_array(A),
    "coo matrix": lambda: sp.coo_matrix(A),
    "bsr": lambda: sp.bsr_array(A, blocksize=(3, 3)),
    "bsr oblong": lambda: sp.bsr_array(A, blocksize=(2, 3)),
    "bsr matrix": lambda: sp.bsr_matrix(A, blocksize=(4, 4)),
    "dense": A.copy,
    "dense Fortran": lambda: np.asfortranarray(A),
    "dense strided": lambda: np.repeat(np.repeat(A, 2, axis=0), 2, axis=1)[::2, ::2],
    "dense reversed view": lambda: A[::-1, ::-1].copy()[::-1, ::-1],
    "csr int64": lambda: int64(sp.csr_array(A)),
    "csc int64": lambda: int64(sp.csc_array(A)),
    "coo int64": coo64,
    "unsorted": unsorted,
    "triple": raw,
    "triple of lists": lambda: tuple(list(part) for part in raw()),
    "triple int64": lambda: (raw()[0].astype(np.int64), raw()[1].astype(np.int64), raw()[2]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_bits(form):
    """One matrix, one canonical pattern: the way it was stored may not even change the rounding.

    (Blocks hold explicit zeros, which stay in the pattern: there the order may be another.)
    """
    reference = DirectSolver(sp.csr_array(A)).solve(B)
    given = FORMS[form]()
    before = [np.array(part).copy() for part in given] if isinstance(given, tuple) else given.copy()
    solver = DirectSolver(given)
    x = solver.solve(B)
    assert "bsr" in form or x.tobytes() == reference.tobytes()
    np.testing.assert_allclose(x, X, rtol=1e-9)
    after = given if isinstance(given, tuple) else (given,)
    for old, new in zip(before if isinstance(given, tuple) else (before,), after, strict=True):
        same = [m.toarray() if sp.issparse(m) else np.asarray(m) for m in (old, new)]
        assert np.array_equal(*same)  # the caller's matrix is only read


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.bool_, ">f8"])
def test_other_dtypes_become_float64(dtype):
    m = np.diag(np.array([1, 1, 1])).astype(dtype)
    m[0, 1] = m[1, 0] = 1
    m[0, 0] = 0
    solver = DirectSolver(sp.csr_array(m) if np.dtype(dtype).isnative else m)
    x = solver.solve(np.array([1, 2, 3]))
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, [1.0, 1.0, 3.0], rtol=1e-15)


RIGHT_HAND_SIDES = {
    "C": B,
    "Fortran": np.asfortranarray(B),
    "strided rows": np.repeat(B, 3, axis=0)[::3],
    "strided columns": np.repeat(B, 2, axis=1)[:, ::2],
    "negative strides": B[::-1, ::-1].copy()[::-1, ::-1],
    "read only": np.frombuffer(B.tobytes()).reshape(B.shape),
    "nested list": B.tolist(),
    "big endian": B.astype(">f8"),
    "matrix": B.view(np.matrix) if hasattr(np, "matrix") else B,
}


@pytest.mark.parametrize("name", RIGHT_HAND_SIDES)
def test_right_hand_sides_of_any_layout(name):
    solver = DirectSolver(sp.csr_array(A)).factorize()
    reference = solver.solve(B)
    b = RIGHT_HAND_SIDES[name]
    x = solver.solve(b)
    assert x.tobytes() == reference.tobytes()
    assert x.shape == (12, 4)
    assert np.array_equal(np.asarray(b), B)


@pytest.mark.parametrize("kind", ["S", "SPD"])
@pytest.mark.parametrize("steps", [0, 2])
def test_columns_equal_single_solves(kind, steps):
    """A column's bits do not depend on its neighbours, not even on one that needs more refinement."""
    rng = np.random.default_rng(3)
    a = laplacian_2d(20) if kind == "SPD" else sp.csr_array(INDEFINITE["badly scaled"](rng, 60))
    n = a.shape[0]
    solver = DirectSolver(a, structure=kind, ir_n_steps=steps)
    b = rng.standard_normal((n, 5))
    b[:, 1] *= 1e-100
    b[:, 2] = 0.0
    b[:, 3] = a @ np.ones(n)
    x = solver.solve(b)
    for k in range(5):
        assert solver.solve(b[:, k]).tobytes() == np.ascontiguousarray(x[:, k]).tobytes()
        assert solver.solve(b[:, k : k + 1]).tobytes() == np.ascontiguousarray(x[:, k]).tobytes()
    assert not x[:, 2].any()
    for trans in ("T", "H"):
        assert solver.solve(b, trans=trans).tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", [(12,), (12, 1), (12, 3), (12, 0)])
def test_shapes(shape):
    solver = DirectSolver(sp.csr_array(A))
    b = np.ones(shape)
    x = solver.solve(b)
    assert x.shape == shape
    assert x.dtype == np.float64
    assert solver.report.solve.n_rhs == (1 if len(shape) == 1 else shape[1])
    out = np.full(shape, np.nan)
    assert solver.solve(b, out=out) is out
    assert out.tobytes() == x.tobytes()


def test_out_may_alias_b():
    solver = DirectSolver(sp.csr_array(A)).factorize()
    reference = solver.solve(B)
    b = B.copy()
    assert solver.solve(b, out=b) is b
    assert b.tobytes() == reference.tobytes()
    fortran = np.asfortranarray(B)
    solver.solve(fortran, out=fortran)
    assert np.array_equal(fortran, reference)
    wide = np.full((24, 8), 7.0)
    target = wide[::2, ::2]
    target[...] = B
    solver.solve(target, out=target)
    assert np.array_equal(target, reference)
    assert np.all(wide[1::2] == 7.0)
    assert np.all(wide[:, 1::2] == 7.0)
    overlap = np.concatenate([B[:, 0], np.zeros(1)])
    solver.solve(overlap[:-1], out=overlap[1:])
    assert np.array_equal(overlap[1:], reference[:, 0])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint32, np.bool_, np.float32])
def test_integer_right_hand_sides(dtype):
    solver = DirectSolver(np.diag([2.0, 4.0, 1.0]))
    b = np.array([1, 0, 1]).astype(dtype)
    x = solver.solve(b)
    assert x.dtype == np.float64
    np.testing.assert_allclose(x, [0.5, 0.0, 1.0], rtol=1e-15)


READ_ONLY = np.zeros(12)
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    "b",
    [
        np.ones(11), np.ones(13), np.ones((4, 12)), np.ones((12, 1, 1)), 1.0, ["a"] * 12,
        [None] * 12, [[1.0]] * 11 + [[1.0, 2.0]], np.ones(12, np.float16), np.ones(12, np.longdouble),
        np.ma.masked_equal(np.arange(12.0), 2), None, sp.csr_array(np.ones((11, 1))), sp.coo_array(np.ones(12)),
    ],
    ids=lambda b: f"{type(b).__name__}{getattr(b, 'shape', '')}{getattr(b, 'dtype', '')}",
)  # fmt: skip
def test_right_hand_sides_that_are_refused(b):
    with pytest.raises(InvalidValueError, match=r"\bb\b"):
        DirectSolver(sp.csr_array(A)).solve(b)


@pytest.mark.parametrize(
    "out",
    [[0.0] * 12, np.zeros((12, 1)), np.zeros(11), np.zeros(12, np.float32), np.zeros(12, complex), READ_ONLY],
)
def test_out_that_is_refused(out):
    with pytest.raises(InvalidValueError, match="out"):
        DirectSolver(sp.csr_array(A)).solve(np.ones(12), out=out)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite(bad):
    solver = DirectSolver(sp.csr_array(A)).factorize()
    b = B.copy()
    b[7, 2] = bad
    for given in (b, np.asfortranarray(b)):
        with pytest.raises(NonFiniteError) as error:
            solver.solve(given)
        assert error.value.entry == 7 * 4 + 2
    for form in ("csr", "csc", "coo", "bsr", "triple"):
        given = FORMS[form]()
        data = given[2] if isinstance(given, tuple) else given.data
        flat = data.reshape(-1)
        flat[5] = bad
        with pytest.raises(NonFiniteError) as error:
            DirectSolver(given, structure="S")
        assert error.value.entry == 5
        assert "5" in str(error.value)


@pytest.mark.parametrize(
    ("matrix", "error"),
    [
        (None, InvalidValueError), ("text", InvalidValueError), (3.0, InvalidValueError), ([[1.0]],
        InvalidValueError),
        (np.ones(3), InvalidValueError), (np.ones((2, 3)), InvalidValueError), (np.ones((2, 2, 2)),
        InvalidValueError),
        (np.eye(2, dtype=np.float16), InvalidValueError), (np.eye(2, dtype=object), InvalidValueError),
        ((np.array([0, 1, 3]), np.array([0, 1]), np.ones(2)), InvalidValueError),
        ((np.array([0, 1, 2]), np.array([0, 2]), np.ones(2)), InvalidValueError),
        ((np.array([0, 1, 2]), np.array([0, -1]), np.ones(2)), InvalidValueError),
        ((np.array([0, 2, 1]), np.array([0, 1]), np.ones(2)), InvalidValueError),
        ((np.array([0, 1]), np.array([0])), InvalidValueError),
    ],
)  # fmt: skip
def test_matrices_that_are_refused(matrix, error):
    with pytest.raises(error) as caught:
        DirectSolver(matrix)
    assert isinstance(caught.value, WarpfrontError)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("structure", ["S", "SPD", "H", "HPD"])
def test_unsymmetric_values_are_refused_with_the_entry(structure):
    with pytest.raises(InvalidValueError, match=r"a\[1, 0\] = 3.0 but a\[0, 1\] = 2.0"):
        DirectSolver(np.array([[1.0, 2.0], [3.0, 4.0]]), structure=structure)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "G", "view": "lower"}, InvalidValueError, "full"),
        ({"structure": "LU"}, InvalidValueError, "SPD"),
        ({"structure": None}, InvalidValueError, "SPD"),
        ({"structure": np.array(["S", "G"])}, InvalidValueError, "SPD"),
        ({"view": "both"}, InvalidValueError, "upper"),
        ({"view": 1}, InvalidValueError, "upper"),
        ({"device": "cuda"}, NotSupportedError, "GPU"),
        ({"device": "tpu"}, InvalidValueError, "cpu"),
        ({"check": True}, InvalidValueError, "status"),
        ({"nonsense": 1}, InvalidValueError, "allowed"),
    ],
)
def test_options_that_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        DirectSolver(np.eye(2), **options)


@pytest.mark.parametrize("trans", ["n", "C", 0, ["N"]])
def test_trans_that_is_refused(trans):
    with pytest.raises(InvalidValueError, match="'N', 'T', 'H'"):
        DirectSolver(np.eye(2)).solve(np.ones(2), trans=trans)


@pytest.mark.parametrize("structure", ["auto", "S", "SPD", "H", "HPD"])
def test_order_zero(structure):
    solver = DirectSolver(sp.csr_array((0, 0)), structure=structure)
    assert solver.solve(np.zeros(0)).shape == (0,)
    assert solver.solve(np.zeros((0, 3))).shape == (0, 3)
    assert solver.inertia == Inertia(0, 0, 0)
    assert solver.status == Status.OK
    assert solver.rcond() == 1.0
    solver.refactorize(np.zeros(0))
    assert solver.get("diag").shape == (0,)
    factor = warpfront.ldlt(sp.csr_array((0, 0)))
    assert factor.L.shape == (0, 0)
    assert factor.slogdet() == (1.0, 0.0)
    assert factor(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("value", [4.0, -4.0, 1e300, -1e-300, 5e-324])
def test_order_one(value):
    solver = DirectSolver(np.array([[value]]))
    expected = Inertia(1, 0, 0) if value > 0 else Inertia(0, 1, 0)
    x = solver.solve(np.array([value]))
    assert solver.inertia == expected
    np.testing.assert_allclose(x, [1.0], rtol=1e-15)


@pytest.mark.parametrize("method", ["auto", "amd", "natural", "metis", "multilevel", "level_set"])
def test_diagonal_and_identity(method):
    n = 50
    d = np.where(np.arange(n) % 3 == 0, -2.0, 3.0)
    solver = DirectSolver(sp.diags_array(d, format="csr"), reordering_alg=method)
    np.testing.assert_allclose(solver.solve(d), np.ones(n), rtol=1e-15)
    assert solver.inertia == Inertia(int((d > 0).sum()), int((d < 0).sum()), 0)
    assert solver.get("lu_nnz") >= n


@pytest.mark.parametrize("stored", ["dia", "lil", "dok"])
def test_formats_without_an_entry_order_are_read_as_csr(stored):
    dense = np.array([[4.0, 1.0, 0.0], [2.0, 5.0, 1.0], [0.0, 0.0, 3.0]])
    a = sp.csr_array(dense).asformat(stored)
    solver, b = DirectSolver(a), np.arange(1.0, 4.0)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(dense, b), rtol=1e-14)
    solver.refactorize(2 * a.tocsr().data)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(2 * dense, b), rtol=1e-14)
    solver.refactorize((3 * a).asformat(stored))
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(3 * dense, b), rtol=1e-14)


def test_a_determinant_of_a_matrix_with_nan_names_the_entry():
    from warpfront.sparse.determinant import sparse_slogdet

    with pytest.raises(NonFiniteError) as caught:
        sparse_slogdet(sp.csr_array(np.array([[1.0, 2.0], [np.nan, 4.0]])))
    assert caught.value.entry == 2


def test_a_determinant_is_never_that_of_a_perturbed_matrix():
    from warpfront.errors import UnstablePivotError
    from warpfront.sparse.determinant import sparse_slogdet

    a = sp.csr_array(np.array([[1e-20, 1.0], [1.0, 1.0]]))
    options = {"pivot_type": "none", "scaling": "none", "pivot_epsilon": 1e-8, "on_unstable": "perturb"}
    with pytest.raises(UnstablePivotError, match="another matrix"):
        sparse_slogdet(a, "S", **options)
    assert sparse_slogdet(a, "S")[:2] == (-1.0, pytest.approx(0.0, abs=1e-15))
