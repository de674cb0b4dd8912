"""Equilibration against its definition: exact powers of two, every row maximum in [0.5, 2)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront.errors import InvalidValueError, NonFiniteError
from warpfront.sparse.analysis.scaling import equilibrate_general, equilibrate_symmetric

LIMIT = 1000


def csc(dense, lower=False):
    """Return (ptr, ind, values) of the nonzero entries, of the lower triangle if asked."""
    kept = np.tril(dense) if lower else dense
    ptr = np.zeros(dense.shape[1] + 1, np.int64)
    np.cumsum((kept != 0).sum(axis=0), out=ptr[1:])
    col, row = np.nonzero(kept.T)
    return ptr, row.astype(np.int32), np.abs(kept[row, col]).astype(np.float64)


def exponents(scale):
    """Return log2 of a scale, which must be exact."""
    mantissa, exponent = np.frexp(scale)
    assert np.all(mantissa == 0.5)
    return exponent - 1


def check_rows(scaled, clamped):
    largest = scaled.max(axis=1, initial=0.0)
    assert np.all(largest < 2.0)
    if not clamped:
        assert np.all((largest >= 0.5) | (largest == 0.0))


@st.composite
def magnitudes(draw, symmetric=False):
    m = draw(st.integers(1, 9))
    n = m if symmetric else draw(st.integers(1, 9))
    spread = draw(st.sampled_from([0, 3, 60, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a = 10.0 ** rng.uniform(-spread, spread, (m, n)) * (rng.random((m, n)) < draw(st.floats(0.1, 1.0)))
    return np.tril(a) + np.tril(a, -1).T if symmetric else a


@settings(max_examples=150, deadline=None)
@given(magnitudes(symmetric=True), st.integers(1, 5))
def test_symmetric_rows_are_equilibrated(a, iterations):
    e = exponents(equilibrate_symmetric(len(a), *csc(a, lower=True), iterations=iterations))
    check_rows(np.ldexp(a, e[:, None] + e), np.any(np.abs(e) == LIMIT))
    assert np.all(e[~a.any(axis=1)] == 0)


@settings(max_examples=150, deadline=None)
@given(magnitudes(), st.integers(1, 5))
def test_general_rows_and_columns_are_equilibrated(a, iterations):
    row, col = (exponents(s) for s in equilibrate_general(*a.shape, *csc(a), iterations=iterations))
    scaled = np.ldexp(a, row[:, None] + col)
    clamped = np.any(np.abs(row) == LIMIT) or np.any(np.abs(col) == LIMIT)
    check_rows(scaled, clamped)
    check_rows(scaled.T, clamped)
    assert np.all(row[~a.any(axis=1)] == 0)
    assert np.all(col[~a.any(axis=0)] == 0)


def test_equilibrated_matrix_is_left_alone():
    a = np.array([[1.0, 0.25], [0.25, 1.9]])
    np.testing.assert_array_equal(equilibrate_symmetric(2, *csc(a, lower=True)), [1.0, 1.0])


@pytest.mark.parametrize("factor", [1e150, 1e-150, 2.0**900])
def test_uniformly_scaled_matrix_gets_a_uniform_scale(factor):
    n = 30
    a = factor * (np.eye(n) + np.diag(np.full(n - 1, 0.6), 1) + np.diag(np.full(n - 1, 0.6), -1))
    e = exponents(equilibrate_symmetric(n, *csc(a, lower=True)))
    assert np.ptp(e) == 0
    check_rows(np.ldexp(a, e[:, None] + e), clamped=False)


def test_smallest_and_largest_numbers():
    a = np.diag([5e-324, 2.3e-308, 1.7e308, 1.0])
    e = exponents(equilibrate_symmetric(4, *csc(a)))
    check_rows(np.ldexp(a, e[:, None] + e), clamped=False)


def test_scale_beyond_the_range_keeps_the_upper_bound():
    """A path whose couplings alternate needs scales that grow from vertex to vertex."""
    n = 8
    off = np.array([1e300, 1e-300] * n)[: n - 1]
    a = np.diag(off, 1) + np.diag(off, -1)
    a[n - 1, n - 2] = a[n - 2, n - 1] = 1e-300
    a[0, 1] = a[1, 0] = 1e300
    e = exponents(equilibrate_symmetric(n, *csc(a, lower=True)))
    assert np.all(np.abs(e) <= LIMIT)
    check_rows(np.ldexp(a, e[:, None] + e), clamped=True)


def test_explicit_zeros_and_zero_rows():
    ptr, ind = np.array([0, 2, 3, 3]), np.array([0, 1, 1], np.int32)
    np.testing.assert_array_equal(
        equilibrate_symmetric(3, ptr, ind, np.array([16.0, 0.0, 0.0])), [0.25, 1.0, 1.0]
    )
    row, col = equilibrate_general(3, 3, ptr, ind, np.array([16.0, 0.0, 0.0]))
    assert 0.5 <= row[0] * 16.0 * col[0] < 2.0
    np.testing.assert_array_equal(np.r_[row[1:], col[1:]], np.ones(4))


def test_empty():
    none = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
    assert equilibrate_symmetric(0, *none).shape == (0,)
    row, col = equilibrate_general(3, 0, *none)
    np.testing.assert_array_equal(row, np.ones(3))
    assert col.shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_entry_is_named(bad):
    ptr, ind = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    with pytest.raises(NonFiniteError) as caught:
        equilibrate_symmetric(2, ptr, ind, np.array([1.0, bad, 1.0]))
    assert caught.value.entry == 1


def test_misuse_is_refused():
    ptr, ind = np.array([0, 1]), np.array([0], np.int32)
    with pytest.raises(InvalidValueError, match="negative"):
        equilibrate_general(1, 1, ptr, ind, np.array([-1.0]))
    with pytest.raises(InvalidValueError, match="iterations"):
        equilibrate_symmetric(1, ptr, ind, np.ones(1), iterations=0)
