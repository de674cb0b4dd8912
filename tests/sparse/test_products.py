"""Sparse storage and products on every backend, against SciPy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator, cg

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.formats.storage import compressed
from warpfront.sparse import _product_cuda as plan
from warpfront.sparse.products import SparseOperator, spmm, spmv

DTYPES = ("float32", "float64", "complex64", "complex128")
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.cuda))


def random_matrix(m, n, density, dtype, seed=0):
    rng = np.random.default_rng(seed)
    A = sp.random_array((m, n), density=density, rng=rng, format="csr", data_sampler=rng.standard_normal)
    if np.dtype(dtype).kind == "c":
        A = A + 1j * sp.csr_array((rng.standard_normal(A.nnz), A.indices, A.indptr), shape=A.shape)
    return A.astype(dtype)


def power_law(n, dtype="float64"):
    """A few rows far longer than the rest, one longer than a segment."""
    A = random_matrix(n, n, 3 / n, dtype).tolil()
    rng = np.random.default_rng(1)
    for i, count in ((3, n), (n // 2, n // 3), (n - 1, 40)):
        A[i, rng.choice(n, count, replace=False)] = 1.5
    return A.tocsr()


def vector(n, dtype, seed=7, k=None):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n if k is None else (n, k))
    return (x + 1j * x[::-1] if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(y, A, x, dtype):
    wide = A.astype(np.complex128)
    bound = 8 * np.finfo(dtype).eps * (abs(wide) @ np.abs(x)) * (1 + np.sqrt(max(1, A.shape[1])))
    assert y.dtype == dtype
    assert (np.abs(y - wide @ x.astype(np.complex128)) <= bound + 1e-300).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("storage", ["auto", "csr", "csc"])
def test_products_of_rows_of_every_length(storage, dtype, device):
    for A in (
        random_matrix(200, 150, 0.02, dtype),
        random_matrix(70, 300, 0.4, dtype),
        power_law(6000, dtype),
        sp.csr_array((5, 4), dtype=dtype),
    ):
        operator = SparseOperator(A, storage, device)
        assert operator.shape == A.shape
        assert operator.nnz == A.nnz
        x = vector(A.shape[1], dtype)
        close(operator.matvec(x), A, x, dtype)
        X = vector(A.shape[1], dtype, k=35)
        close(operator.matmat(X), A, X, dtype)
        left = vector(A.shape[0], dtype)
        close(operator.T.matvec(left), A.T.tocsr(), left, dtype)
        close(operator.rmatvec(left), A.conj().T.tocsr(), left, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ellpack(dtype, device):
    A = sp.diags_array(
        [vector(300, dtype, s) for s in range(5)], offsets=[-20, -1, 0, 1, 20], shape=(300, 300)
    ).tocsr()
    operator = SparseOperator(A, "ell", device)
    assert operator.storage == "ell"
    x = vector(300, dtype)
    x[0] = 1e30  # what padding must never touch
    close(operator.matvec(x), A, x, dtype)
    assert (operator.to_scipy() != A).nnz == 0
    with pytest.raises(InvalidValueError, match="csr"):
        SparseOperator(power_law(500), "ell", device)


@pytest.mark.parametrize("device", DEVICES)
def test_nan_outside_a_row_stays_outside(device):
    A = sp.csr_array(np.array([[1.0, 0, 2], [0, 0, 3], [4, 0, 0]]))
    x = np.array([1.0, np.nan, 2.0])
    for storage in ("csr", "ell"):
        assert SparseOperator(A, storage, device).matvec(x).tolist() == [5, 6, 4]


@pytest.mark.parametrize("device", DEVICES)
def test_same_bits_every_time(device, monkeypatch):
    A, x = power_law(20_000), vector(20_000, "float64")
    X = np.stack([x, vector(20_000, "float64", 9), x], axis=1)
    seen = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("WARPFRONT_THREADS", threads)
        operator = SparseOperator(A, device=device)
        seen += [(operator.matvec(x), operator.matmat(X)) for _ in range(5)]
    assert all(np.array_equal(seen[0][0], y) and np.array_equal(seen[0][1], Y) for y, Y in seen)
    assert np.array_equal(seen[0][1][:, 0], seen[0][1][:, 2])
    alone = SparseOperator(A, device=device).matmat(X[:, 1:2])
    assert np.array_equal(alone[:, 0], seen[0][1][:, 1])


def test_conversions_keep_every_entry():
    A = random_matrix(60, 40, 0.1, "float64")
    rows = compressed(A).to_rows()
    assert np.array_equal(rows.ptr, A.indptr)
    assert np.array_equal(rows.ind, A.indices)
    assert np.array_equal(rows.values, A.data)
    columns = rows.turned()
    wanted = A.tocsc()
    assert np.array_equal(columns.ptr, wanted.indptr)
    assert np.array_equal(columns.ind, wanted.indices)
    assert np.array_equal(columns.values, wanted.data)
    back = rows.to_ell(40).to_rows()
    assert np.array_equal(back.ptr, rows.ptr)
    assert np.array_equal(back.ind, rows.ind)
    assert np.array_equal(back.values, rows.values)
    assert (rows.transposed().to_scipy() != A.T).nnz == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_duplicates_and_any_layout(m, n, seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 30)) if m else 0
    A = sp.coo_array(
        (rng.standard_normal(count), (rng.integers(0, max(m, 1), count), rng.integers(0, n, count))),
        shape=(m, n),
    )
    x = rng.standard_normal(n)
    for layout in (A, A.tocsr(), A.tocsc()):
        assert spmv(layout, x) == pytest.approx(A.toarray() @ x, abs=1e-12)
        assert spmm(layout, np.stack([x, -x], axis=1)) == pytest.approx(
            A.toarray() @ np.stack([x, -x], axis=1), abs=1e-12
        )


def test_it_is_a_linear_operator():
    A = sp.diags_array([-np.ones(49), 2.5 * np.ones(50), -np.ones(49)], offsets=[-1, 0, 1]).tocsr()
    operator = SparseOperator(A)
    assert isinstance(aslinearoperator(operator), LinearOperator)
    b = np.ones(50)
    x, info = cg(operator, b, rtol=1e-12)
    assert info == 0
    assert x == pytest.approx(sp.linalg.spsolve(A.tocsc(), b))
    assert operator @ b == pytest.approx(A @ b)
    assert operator @ np.eye(50) == pytest.approx(A.toarray())


def test_out_and_mixed_types():
    A = random_matrix(30, 20, 0.2, "float32")
    operator = SparseOperator(A)
    x = vector(20, "float64")
    y = operator.matvec(x)
    assert y.dtype == np.float64
    out = np.full(30, np.nan)
    assert operator.matvec(x, out) is out
    assert np.array_equal(out, y)
    assert operator.matvec(np.arange(20)).dtype == np.float64
    assert operator.matvec(x.reshape(-1, 1)).shape == (30, 1)
    for wrong in (np.empty(29), np.empty(30, "float32"), [0.0] * 30):
        with pytest.raises(InvalidValueError, match="out"):
            operator.matvec(x, wrong)
    square = SparseOperator(sp.eye_array(5).tocsr())
    v = np.ones(5)
    with pytest.raises(InvalidValueError, match="overlaps"):
        square.matvec(v, v)


def test_wrong_arguments_are_named():
    A = sp.eye_array(4).tocsr()
    for options, text in (
        ({"storage": "coo"}, "storage"),
        ({"device": "tpu"}, "device"),
        ({"max_padding": 2.0}, "max_padding"),
    ):
        with pytest.raises(InvalidValueError, match=text):
            SparseOperator(A, **options)
    operator = SparseOperator(A)
    for x in (np.ones(3), np.ones((4, 2)), np.float64(1)):
        with pytest.raises(InvalidValueError, match="shape"):
            operator.matvec(x)
    with pytest.raises(InvalidValueError, match="float16"):
        operator.matvec(np.ones(4, "float16"))
    with pytest.raises(InvalidValueError):
        SparseOperator("matrix")


def test_without_a_gpu_device_cuda_says_what_to_install():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(NotSupportedError, match=r"cuda13|device"):
        SparseOperator(sp.eye_array(4).tocsr(), device="cuda")


def test_plan():
    def lanes(*lengths):
        return plan.lanes_for(np.concatenate([[0], np.cumsum(lengths)]))

    assert [lanes(*[k] * 50) for k in (0, 1, 5, 10, 1000)] == [1, 1, 2, 4, 32]
    assert lanes(*[6] * 99, 100_000) == 2  # one long row says nothing about the others
    assert plan.lanes_for(np.zeros(1, np.int64)) == 1
    assert plan.short_row(4) == 64
    assert plan.short_row(32) == plan.LONG_ROW
    ptr = np.array([0, 5, 5005, 5006, 8000])
    found = plan.split_long_rows(ptr, 2048, 2048)
    assert found.rows.tolist() == [1, 3]
    assert found.first.tolist() == [0, 3, 5]
    assert found.segments.tolist() == [[5, 2053], [2053, 4101], [4101, 5005], [5006, 7054], [7054, 8000]]


def test_balanced_plan():
    chunk = plan.CHUNK
    found = plan.balance(np.array([0, 0, 3, chunk, 3 * chunk + 1, 3 * chunk + 1, 3 * chunk + 2]))
    assert found.names.tolist() == [1, 2, 3, 5]
    assert found.starts.tolist() == [0, 4, 5, 5]
    assert found.origin.tolist() == [0, 1, 1, 1]
    ends = np.flatnonzero(np.unpackbits(found.ends, bitorder="little"))
    assert ends.tolist() == [2, chunk - 1, 3 * chunk, 3 * chunk + 1]
    whole = plan.balance(np.array([0, chunk, 2 * chunk]))
    assert whole.names is None
    assert whole.starts.tolist() == [0, 2]
    assert plan.spread(np.arange(3, dtype="float64"))[[0, 1, 2, 2 * plan.THREADS]].tolist() == [0, 1, 0, 2]
    assert plan.spread(np.arange(chunk + 4, dtype=np.int32))[[4, 4 * plan.THREADS, chunk]].tolist() == [
        8,
        4,
        chunk,
    ]


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["power law", "long", "empty", "short", "edges"])
def test_balanced_kernel_on_the_host(dtype, shape):
    from warpfront.backend.simt import Simt

    rng, kind, chunk = np.random.default_rng(5), plan.CUDA_TYPES[dtype], plan.CHUNK
    lengths = {
        "power law": np.minimum(900, (rng.pareto(1.0, 900) * 3).astype(int)), "long": np.array([1, 5 * chunk + 3, 2, 900]),
        "empty": np.where(rng.random(4000) < 0.6, 0, 3), "short": np.ones(chunk + 5, int),
        "edges": np.array([chunk - 1, 1, chunk, 8, 0, 3 * chunk - 8, 7]),
    }[shape]  # fmt: skip
    n = 6 * chunk
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    A = sp.csr_array((vector(ptr[-1], dtype), rng.integers(0, n, ptr[-1]), ptr), shape=(len(lengths), n))
    x = vector(n, dtype, 3)
    made = plan.balance(ptr)
    blocks, flags = len(made.starts), np.zeros(len(made.starts), np.uint32)
    ind, values = plan.spread(A.indices.astype(np.int32)), plan.spread(A.data)
    y = np.full(len(lengths), 0 if made.names is not None else np.nan, dtype)
    name = f"csr_balanced<{kind}>"
    args = [
        ind,
        values,
        x,
        y,
        made.ends,
        made.starts,
        made.names,
        made.origin,
        np.full(blocks, np.nan, dtype),
        flags,
    ]
    runner = Simt.build(plan.SOURCE, (name,))
    for _ in range(2):  # the second launch finds the flags taken back, but those of blocks nobody waits for
        report = runner.launch(name, blocks, plan.THREADS, args, schedules=1, resident=blocks)
        assert not report.findings, report.findings
    close(y, A, x, dtype)


@pytest.mark.simt
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_on_the_host(dtype):
    from warpfront.backend.simt import Simt

    A = power_law(700, dtype)
    kind, x = plan.CUDA_TYPES[dtype], vector(700, dtype)
    names = plan.instantiations()[0][1]
    runner = Simt.build(
        plan.SOURCE, tuple(name for name in names if kind + "," in name or kind + ">" in name)
    )
    ptr, ind, values = A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data
    split = plan.split_long_rows(ptr, 100, 90)
    parts = len(split.segments)

    def launch(name, grid, args, shared_bytes=0):
        report = runner.launch(name, grid, plan.THREADS, args, shared_bytes=shared_bytes, schedules=2)
        assert not report.findings, report.findings

    for lanes in (1, 4, 32):
        y = np.full(700, np.nan, dtype)
        launch(f"csr_rows<{kind}, {lanes}>", -(-700 * lanes // plan.THREADS), [ptr, ind, values, x, y, 700])
        close(y, A, x, dtype)
    X = vector(700, dtype, k=33)
    Y, partial = np.full((700, 33), np.nan, dtype), np.full(parts * 33, np.nan, dtype)
    args = [
        ptr,
        ind,
        values,
        X.reshape(-1),
        Y.reshape(-1),
        700,
        33,
        100,
        split.segments.reshape(-1),
        parts,
        partial,
    ]
    launch(f"csr_block<{kind}>", (parts + -(-700 // 8), 2), args)
    args = [split.rows, split.first, partial, Y.reshape(-1), len(split.rows), 33]
    launch(f"csr_finish<{kind}>", 1, args)
    close(Y, A, X, dtype)
    band = sp.diags_array(
        [vector(300, dtype, s) for s in range(3)], offsets=[-2, 0, 1], shape=(300, 300)
    ).tocsr()
    ell = compressed(band).to_ell()
    y, x = np.full(300, np.nan, dtype), x[:300]
    launch(f"ell_rows<{kind}>", 2, [ell.ind.reshape(-1), ell.values.reshape(-1), x, y, 300, len(ell.ind)])
    close(y, band, x, dtype)


@pytest.mark.parametrize("arch", [80, 90, 100, 120])
def test_kernels_build_without_spills(arch):
    from warpfront.backend import compile as compiling
    from warpfront.backend import nvrtc

    for file, names, least in plan.instantiations():
        assert arch >= least
        built = nvrtc.compile(file, names, f"sm_{arch}", compiling.CompileOptions())
        assert set(built.resources) == set(names)
        assert not any(found.spill_store_bytes for found in built.resources.values())
