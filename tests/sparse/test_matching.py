"""Matching against SciPy's bipartite matchings, and its scaling against the optimality conditions."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import maximum_bipartite_matching, min_weight_full_bipartite_matching

from warpfront.errors import InvalidValueError, NonFiniteError
from warpfront.sparse.analysis._matching_kernels import split_cycles
from warpfront.sparse.analysis.matching import maximum_product_matching, symmetric_matching

TOLERANCE = 1e-12


def csc(dense):
    a = sp.csc_array(np.asarray(dense, np.float64))
    return a.indptr.astype(np.int64), a.indices.astype(np.int32), np.abs(a.data)


def match(dense, **options):
    return maximum_product_matching(*dense.shape, *csc(dense), **options)


def log_scaled(dense, row_scale, col_scale):
    """Return log |r_i a_ij c_j|, without forming products that could overflow."""
    with np.errstate(divide="ignore"):
        return np.log(np.abs(dense)) + np.log(row_scale)[:, None] + np.log(col_scale)


def structural_rank(dense):
    return int((maximum_bipartite_matching(sp.csr_array(dense), perm_type="column") >= 0).sum())


def best_log_product(dense):
    """Return the largest sum of logarithms over matchings of size min(shape), by SciPy."""
    a = sp.csr_array(dense)
    a.data = 1000.0 - np.log(np.abs(a.data))
    row, col = min_weight_full_bipartite_matching(a)
    return float(np.log(np.abs(dense[row, col])).sum())


def check_matching(a, found):
    """Check cardinality, one entry per row and column, tight matched entries, feasibility and optimality."""
    matched = np.flatnonzero(found.row_of_column >= 0)
    rows = found.row_of_column[matched]
    assert found.structural_rank == matched.size == structural_rank(a) == np.unique(rows).size
    np.testing.assert_array_equal(found.unmatched_rows, np.setdiff1d(np.arange(a.shape[0]), rows))
    np.testing.assert_array_equal(found.unmatched_columns, np.setdiff1d(np.arange(a.shape[1]), matched))
    scaled = log_scaled(a, found.row_scale, found.col_scale)
    assert np.all(scaled <= TOLERANCE)
    assert np.all(np.abs(scaled[rows, matched]) <= TOLERANCE)
    for side, largest in ((a.any(axis=1), scaled.max(axis=1)), (a.any(axis=0), scaled.max(axis=0))):
        assert np.all(np.abs(largest[side]) <= TOLERANCE)
    assert np.all(found.row_scale[~a.any(axis=1)] == 1.0)
    assert np.all(found.col_scale[~a.any(axis=0)] == 1.0)
    if matched.size:
        square = a[np.ix_(np.sort(rows), matched)]
        whole = a if matched.size == min(a.shape) else square
        assert np.log(a[rows, matched]).sum() == pytest.approx(best_log_product(whole), rel=1e-10, abs=1e-10)


@st.composite
def magnitudes(draw, symmetric=False):
    m = draw(st.integers(1, 12))
    n = m if symmetric else draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        a = rng.integers(1, 4, (m, n)).astype(float)  # many ties
    else:
        a = 10.0 ** rng.uniform(-1, 1, (m, n)) ** draw(st.sampled_from([1, 3])) * draw(
            st.sampled_from([1e-120, 1.0, 1e120])
        )
    a *= rng.random((m, n)) < draw(st.floats(0.05, 1.0))
    return np.tril(a) + np.tril(a, -1).T if symmetric else a


@settings(max_examples=200, deadline=None)
@given(magnitudes())
def test_small_matrices_match_scipy(a):
    check_matching(a, match(a))


@pytest.mark.parametrize(("m", "n"), [(200, 200), (260, 200), (200, 260)])
@pytest.mark.parametrize("per_column", [1, 2, 3, 8])
def test_larger_matrices_match_scipy(m, n, per_column):
    """With few entries most searches fail, one after another, and later ones pass by what they took out."""
    rng = np.random.default_rng(m * n + per_column)
    a = np.exp(rng.normal(0.0, 3.0, (m, n))) * (rng.random((m, n)) < per_column / m)
    check_matching(a, match(a))


def test_permuted_dominant_matrix_is_found():
    rng = np.random.default_rng(5)
    n = 300
    perm = rng.permutation(n)
    a = rng.random((n, n)) * (rng.random((n, n)) < 0.02)
    a[perm, np.arange(n)] = 10.0
    np.testing.assert_array_equal(match(a).row_of_column, perm)


def test_diagonal_wins_ties():
    np.testing.assert_array_equal(match(np.ones((6, 6))).row_of_column, np.arange(6))


def test_structurally_singular_rows_and_columns_are_named():
    a = np.zeros((5, 5))
    a[0, [0, 1, 2]] = [1.0, 2.0, 4.0]  # columns 0, 1, 2 live in rows 0 and 1
    a[1, [0, 1, 2]] = [1.0, 2.0, 3.0]
    a[2, 3] = 1.0
    a[4, 4] = 8.0  # row 3 is empty
    found = match(a)
    check_matching(a, found)
    assert found.structural_rank == 4
    np.testing.assert_array_equal(found.unmatched_rows, [3])
    assert found.unmatched_columns.size == 1
    assert found.unmatched_columns[0] in (0, 1, 2)


def test_explicit_zeros_are_absent():
    found = maximum_product_matching(
        2, 2, np.array([0, 2, 4]), np.array([0, 1, 0, 1], np.int32), np.array([0.0, 3.0, 2.0, 0.0])
    )
    np.testing.assert_array_equal(found.row_of_column, [1, 0])
    none = maximum_product_matching(2, 1, np.array([0, 2]), np.array([0, 1], np.int32), np.zeros(2))
    assert none.structural_rank == 0
    np.testing.assert_array_equal(none.unmatched_rows, [0, 1])
    np.testing.assert_array_equal(np.r_[none.row_scale, none.col_scale], np.ones(3))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_no_entries(shape):
    found = match(np.zeros(shape))
    assert found.structural_rank == 0
    assert found.row_scale.shape == shape[:1]
    assert found.row_of_column.shape == found.col_scale.shape == shape[1:]
    assert found.unmatched_rows.size == shape[0]


def test_order_one():
    found = match(np.array([[1e-200]]))
    np.testing.assert_array_equal(found.row_of_column, [0])
    assert found.row_scale[0] * 1e-200 * found.col_scale[0] == pytest.approx(1.0, rel=TOLERANCE)


def test_huge_and_tiny_entries():
    a = np.array([[1e300, 1e-300, 0.0], [1e-290, 5e-324, 1.0], [1.0, 1e250, 1e-308]])
    check_matching(a, match(a))


def growing_chain(n):
    """Bidiagonal; ratios multiply up from column to column, so the scaling leaves the range of a double."""
    return np.diag(np.full(n, 1e-200)) + np.diag(np.full(n - 1, 1e200), 1)


def test_scales_out_of_range_are_confined():
    a = growing_chain(8)
    found = match(a)
    np.testing.assert_array_equal(found.row_of_column, np.arange(8))
    for scale in (found.row_scale, found.col_scale):
        assert np.all(np.isfinite(scale) & (scale > 0.0) & np.isfinite(1.0 / scale))
    assert np.all(log_scaled(a, found.row_scale, found.col_scale) <= TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(magnitudes())
def test_exact_scales_are_powers_of_two(a):
    found = match(a, exact=True)
    for scale in (found.row_scale, found.col_scale):
        assert np.all(np.frexp(scale)[0] == 0.5)
    scaled = log_scaled(a, found.row_scale, found.col_scale) / np.log(2.0)
    assert np.all(scaled <= 1.0 + TOLERANCE)
    matched = np.flatnonzero(found.row_of_column >= 0)
    assert np.all(scaled[found.row_of_column[matched], matched] >= -1.0 - TOLERANCE)


def test_bad_values_are_refused():
    ptr, ind = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    with pytest.raises(NonFiniteError) as caught:
        maximum_product_matching(2, 2, ptr, ind, np.array([1.0, np.nan]))
    assert caught.value.entry == 1
    with pytest.raises(InvalidValueError, match="negative"):
        symmetric_matching(2, ptr, ind, np.array([-1.0, 1.0]))


def check_symmetric(a, scale, mate):
    n = len(a)
    has_mate = np.flatnonzero(mate >= 0)
    assert has_mate.size == structural_rank(a)
    np.testing.assert_array_equal(mate[mate[has_mate]], has_mate)
    assert structural_rank(a[np.ix_(has_mate, has_mate)]) == has_mate.size
    scaled = log_scaled(a, scale, scale)
    assert np.all(scaled <= TOLERANCE)
    pairs = has_mate[mate[has_mate] != has_mate]
    assert np.all(np.abs(scaled[pairs, mate[pairs]]) <= TOLERANCE)
    full = a.any(axis=1)
    assert np.all(np.abs(scaled.max(axis=1, initial=-np.inf)[full]) <= TOLERANCE)
    assert np.all(scale[~full] == 1.0)
    assert np.array_equal(mate == -1, ~np.isin(np.arange(n), has_mate))


@settings(max_examples=200, deadline=None)
@given(magnitudes(symmetric=True))
def test_symmetric_scaling_and_pivots(a):
    check_symmetric(a, *symmetric_matching(len(a), *csc(a)))


@pytest.mark.parametrize("per_column", [1, 2, 4])
def test_symmetric_larger(per_column):
    rng = np.random.default_rng(per_column)
    n = 200
    a = np.exp(rng.normal(0.0, 3.0, (n, n))) * (rng.random((n, n)) < 0.5 * per_column / n)
    a += a.T
    check_symmetric(a, *symmetric_matching(n, *csc(a)))


def test_saddle_point_pairs_every_constraint():
    rng = np.random.default_rng(11)
    n, m = 60, 25
    a = np.zeros((n + m, n + m))
    a[:n, :n] = np.diag(10.0 ** rng.uniform(-8, 0, n))
    b = rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.1)
    b[np.arange(m), np.arange(m)] = 10.0 ** rng.uniform(-3, 3, m)
    a[n:, :n], a[:n, n:] = b, b.T
    scale, mate = symmetric_matching(n + m, *csc(a))
    check_symmetric(np.abs(a), scale, mate)
    assert np.all(mate[n:] < n)
    assert np.all(mate[n:] >= 0)


def test_symmetric_structurally_singular():
    """A star: the hub pairs with its strongest leaf, the other leaves scale to the hub."""
    a = np.zeros((4, 4))
    a[0, 1:] = a[1:, 0] = [2.0, 8.0, 0.5]
    scale, mate = symmetric_matching(4, *csc(a))
    check_symmetric(a, scale, mate)
    assert (mate == -1).sum() == 2
    assert mate[0] > 0


def test_odd_cycle_leaves_the_vertex_with_a_diagonal():
    a = np.ones((3, 3)) - np.eye(3)
    a[1, 1] = 1e-3
    _, mate = symmetric_matching(3, *csc(a))
    np.testing.assert_array_equal(mate, [2, 1, 0])


@pytest.mark.parametrize("shift", [0, 1])
def test_even_cycle_takes_the_better_alternation(shift):
    """Diagonals of 1 on both ends of an edge make its pivot singular; the other edges must be taken."""
    n = 6
    ring = np.roll(np.eye(n), 1, axis=0)
    strong = np.isin(np.arange(n), [shift, shift + 1])
    a = ring + ring.T + np.diag(strong.astype(float))
    ptr, ind, values = csc(a)
    mate = np.full(n, -1, np.int32)
    row_of = np.roll(np.arange(n, dtype=np.int32), -1)
    work = np.empty(n, np.int32), np.empty(n), np.empty(n)
    split_cycles(ptr, ind.view(np.uint32), values, np.ones(n), row_of, mate, *work)
    expected = [5, 2, 1, 4, 3, 0] if shift == 0 else [1, 0, 3, 2, 5, 4]
    np.testing.assert_array_equal(mate, expected)


def test_symmetric_exact_and_confined():
    rng = np.random.default_rng(3)
    a = np.exp(rng.normal(0.0, 20.0, (40, 40))) * (rng.random((40, 40)) < 0.1)
    a += a.T
    scale, mate = symmetric_matching(40, *csc(a), exact=True)
    assert np.all(np.frexp(scale)[0] == 0.5)
    scaled = log_scaled(a, scale, scale) / np.log(2.0)
    assert np.all(scaled <= 1.0 + TOLERANCE)
    pairs = np.flatnonzero(mate != np.arange(40))
    assert np.all(scaled[pairs, mate[pairs]] >= -1.0 - TOLERANCE)
    chain = growing_chain(9)[:, 1:]
    wide = np.block([[np.zeros((9, 9)), chain], [chain.T, np.zeros((8, 8))]])
    scale, _ = symmetric_matching(17, *csc(wide))
    assert np.all(np.isfinite(scale) & (scale > 0.0) & np.isfinite(1.0 / scale))
    assert np.all(log_scaled(wide, scale, scale) <= TOLERANCE)


@pytest.mark.parametrize("n", [0, 1])
def test_symmetric_degenerate(n):
    scale, mate = symmetric_matching(n, *csc(np.full((n, n), 16.0)))
    np.testing.assert_allclose(scale, np.full(n, 0.25), rtol=TOLERANCE)
    np.testing.assert_array_equal(mate, np.arange(n))


def test_same_bits_every_run():
    rng = np.random.default_rng(8)
    a = np.exp(rng.normal(size=(150, 150))) * (rng.random((150, 150)) < 0.03)
    first, second = match(a), match(a)
    np.testing.assert_array_equal(first.row_of_column, second.row_of_column)
    assert first.row_scale.tobytes() == second.row_scale.tobytes()
    assert first.col_scale.tobytes() == second.col_scale.tobytes()
