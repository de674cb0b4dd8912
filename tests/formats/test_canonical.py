"""Canonical patterns against SciPy's conversions and dense arithmetic."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import InvalidValueError, PatternChangedError
from warpfront.formats import canonicalize, read_operand, symmetry


@st.composite
def triplets(draw, square=False):
    """Random entries, unsorted, with duplicates and explicit zeros; integer values make every sum exact."""
    n_rows = draw(st.integers(1, 7))
    n_cols = n_rows if square else draw(st.integers(1, 7))
    entry = st.tuples(st.integers(0, n_rows - 1), st.integers(0, n_cols - 1), st.integers(-3, 3))
    entries = draw(st.lists(entry, max_size=40))
    row, col, value = (np.array([e[k] for e in entries], dtype=np.int32) for k in range(3))
    return sp.coo_array((value.astype(np.float64), (row, col)), shape=(n_rows, n_cols))


def in_kind(coo, kind):
    """Return `coo` in another kind with unsorted, unsummed entries."""
    if kind == "coo":
        return coo
    if kind == "dense":
        return coo.toarray()
    major, minor = (coo.col, coo.row) if kind == "csc" else (coo.row, coo.col)
    order = np.argsort(major, kind="stable")
    n_major = coo.shape[1] if kind == "csc" else coo.shape[0]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=n_major))]).astype(np.int32)
    parts = (coo.data[order], minor[order].astype(np.int32), ptr)
    if kind == "raw":
        return (ptr, parts[1], parts[0], coo.shape)
    if kind == "bsr":
        return sp.bsr_array((parts[0].reshape(-1, 1, 1), parts[1], ptr), shape=coo.shape)
    return {"csr": sp.csr_array, "csc": sp.csc_array}[kind](parts, shape=coo.shape)


def as_csc(canonical, values):
    return sp.csc_array((values, canonical.ind, canonical.ptr), shape=(canonical.n_rows, canonical.n_cols))


def assert_sorted_unique(canonical):
    assert (canonical.ptr.dtype, canonical.ind.dtype) == (np.int64, np.int32)
    assert canonical.value_map.dtype == np.int64
    for j in range(canonical.n_cols):
        assert (np.diff(canonical.ind[canonical.ptr[j] : canonical.ptr[j + 1]]) > 0).all()


@given(triplets(), st.sampled_from(["coo", "csr", "csc", "bsr", "raw"]))
def test_canonical_is_scipys_sum_of_duplicates(coo, kind):
    operand = read_operand(in_kind(coo, kind))
    canonical = canonicalize(operand)
    assert_sorted_unique(canonical)
    expected = coo.tocsc()
    expected.sum_duplicates()
    np.testing.assert_array_equal(canonical.ptr, expected.indptr)
    np.testing.assert_array_equal(canonical.ind, expected.indices)
    np.testing.assert_array_equal(canonical.gather(operand.data), expected.data)
    row, col = operand.coordinates()
    np.testing.assert_array_equal(canonical.ind[canonical.value_map], row)
    np.testing.assert_array_equal(np.searchsorted(canonical.ptr, canonical.value_map, side="right") - 1, col)


@given(triplets(square=True), st.sampled_from(["coo", "csr", "csc", "dense", "raw"]))
def test_triangles_are_numpys(coo, kind):
    operand = read_operand(in_kind(coo, kind))
    full = coo.toarray()
    row, col = operand.coordinates()
    for triangle, expected, kept in (
        ("lower", np.tril(full), row >= col),
        ("lower_as_lower", np.tril(full), row >= col),
        ("upper_as_lower", np.triu(full).T, row <= col),
    ):
        canonical = canonicalize(operand, triangle)
        assert_sorted_unique(canonical)
        np.testing.assert_array_equal(as_csc(canonical, canonical.gather(operand.data)).toarray(), expected)
        np.testing.assert_array_equal(canonical.value_map >= 0, kept)
        assert canonical.mirrored == (triangle == "upper_as_lower")


@given(triplets(), st.randoms(use_true_random=False))
def test_new_values_in_the_callers_order_need_no_new_analysis(coo, random):
    operand = read_operand(coo)
    canonical = canonicalize(operand)
    values = np.array([float(random.randint(-9, 9)) for _ in range(operand.nnz)])
    expected = sp.coo_array((values, (coo.row, coo.col)), shape=coo.shape).toarray()
    np.testing.assert_array_equal(as_csc(canonical, canonical.gather(values)).toarray(), expected)


@given(triplets(square=True))
def test_symmetry_is_what_dense_arithmetic_says(coo):
    evidence = symmetry(read_operand(coo))
    full = coo.toarray()
    pattern = np.zeros(coo.shape, bool)
    pattern[coo.row, coo.col] = True
    assert evidence.pattern_symmetric == np.array_equal(pattern, pattern.T)
    assert evidence.symmetric == evidence.hermitian == np.array_equal(full, full.T)
    assert evidence.skew == np.array_equal(full, -full.T)
    scale = np.maximum(abs(full), abs(full.T))
    ratio = np.divide(abs(full - full.T), scale, out=np.zeros_like(full), where=scale > 0)
    assert evidence.max_relative_difference == ratio.max()
    assert evidence.zero_diagonals == np.count_nonzero(np.diag(full) == 0)
    assert evidence.all_positive_diagonal == bool((np.diag(full) > 0).all())


def test_duplicates_are_summed_in_the_callers_order():
    values = np.array([1e16, 1.0, -1e16, 1.0])
    position = np.zeros(4, np.int32)
    canonical = canonicalize(read_operand(sp.coo_array((values, (position, position)), shape=(1, 1))))
    assert canonical.gather(values)[0] == ((0.0 + 1e16 + 1.0) - 1e16) + 1.0
    assert canonical.gather(values[[1, 3, 0, 2]])[0] == ((0.0 + 1.0 + 1.0) + 1e16) - 1e16


def test_explicit_zeros_stay():
    operand = read_operand(sp.csr_array((np.zeros(3), [2, 0, 1], [0, 1, 2, 3]), shape=(3, 3)))
    assert canonicalize(operand).nnz == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_gather_keeps_the_dtype(dtype):
    rng = np.random.default_rng(1)
    dense = rng.integers(-4, 5, (6, 6)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        dense *= 1 - 2j
    operand = read_operand(dense)
    canonical = canonicalize(operand)
    values = canonical.gather(operand.data)
    assert values.dtype == dtype
    np.testing.assert_array_equal(as_csc(canonical, values).toarray(), dense)
    out = np.full(canonical.nnz, 7, dtype)
    canonical.gather_into(operand.data, out)
    np.testing.assert_array_equal(out, values)


def test_gather_reads_strided_and_read_only_values():
    canonical = canonicalize(read_operand(np.eye(3)))
    strided = np.arange(6.0)[::2]
    np.testing.assert_array_equal(canonical.gather(strided), [0, 2, 4])
    strided.flags.writeable = False
    np.testing.assert_array_equal(canonical.gather(strided), [0, 2, 4])


def test_gather_refuses_what_does_not_fit():
    canonical = canonicalize(read_operand(np.eye(3)))
    with pytest.raises(PatternChangedError, match="3 entries"):
        canonical.gather(np.ones(4))
    for out in (np.empty(2), np.empty(3, np.float32), np.empty(6)[::2]):
        with pytest.raises(InvalidValueError, match="out is"):
            canonical.gather_into(np.ones(3), out)


def test_complex_symmetric_hermitian_and_skew_are_told_apart():
    rng = np.random.default_rng(2)
    a = rng.standard_normal((8, 8)) + 1j * rng.standard_normal((8, 8))
    for matrix, expected in (
        (a + a.T, (True, False, False)),
        (a + a.conj().T, (False, True, False)),
        (a - a.T, (False, False, True)),
        (a, (False, False, False)),
    ):
        evidence = symmetry(read_operand(matrix))
        assert (evidence.symmetric, evidence.hermitian, evidence.skew) == expected
        assert (evidence.max_relative_difference == 0) == (expected[0] or expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetry_forgives_eight_units_and_reports_them(dtype):
    eps = np.finfo(dtype).eps
    for units, symmetric in ((4, True), (32, False)):
        matrix = np.array([[2, 1], [1 + units * eps, 2]], dtype)
        evidence = symmetry(read_operand(matrix))
        assert evidence.symmetric is symmetric
        assert evidence.max_relative_difference == pytest.approx(units * eps, rel=1e-4)


def test_a_missing_partner_counts_as_zero():
    stored = sp.coo_array((np.array([1.0, 0.0, 1.0]), ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    evidence = symmetry(read_operand(stored))
    assert not evidence.pattern_symmetric
    assert evidence.symmetric


def test_nan_is_never_symmetric():
    evidence = symmetry(read_operand(np.array([[1.0, np.nan], [np.nan, 1.0]])))
    assert not any((evidence.symmetric, evidence.hermitian, evidence.skew))
    assert np.isnan(evidence.max_relative_difference)


def test_rectangular_and_empty_matrices():
    evidence = symmetry(read_operand(np.ones((2, 3))))
    assert not any((evidence.pattern_symmetric, evidence.symmetric, evidence.hermitian, evidence.skew))
    assert evidence.max_relative_difference == np.inf
    assert canonicalize(read_operand(sp.csr_array((3, 2)))).ptr.tolist() == [0, 0, 0]
    empty = read_operand(sp.csr_array((0, 0)))
    assert canonicalize(empty, "lower").nnz == 0
    assert symmetry(empty).symmetric


def test_refusals():
    operand = read_operand(np.ones((2, 3)))
    with pytest.raises(InvalidValueError, match="square"):
        canonicalize(operand, "lower")
    with pytest.raises(InvalidValueError, match="allowed are all, lower"):
        canonicalize(operand, "upper")
    with pytest.raises(InvalidValueError, match="does not belong"):
        symmetry(operand, canonicalize(read_operand(np.eye(2))))
