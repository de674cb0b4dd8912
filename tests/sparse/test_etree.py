"""Elimination tree and column counts against dense symbolic elimination."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import InvalidValueError
from warpfront.sparse.analysis._etree_kernels import tree_height
from warpfront.sparse.analysis.etree import elimination_tree
from warpfront.sparse.analysis.graph import adjacency, compress, expand, pairs_to_groups


def graph(dense):
    """Return (n, xadj, adj) of a boolean pattern."""
    matrix = sp.csc_matrix(np.asarray(dense, dtype=float))
    n = matrix.shape[0]
    return n, *adjacency(n, matrix.indptr, matrix.indices)


def eliminate(dense, perm):
    """Return parents and column counts of the factor, by filling in a dense pattern."""
    pattern = (dense | dense.T)[np.ix_(perm, perm)]
    n = len(perm)
    parent, counts = np.full(n, -1), np.ones(n, int)
    for k in range(n):
        below = k + 1 + np.flatnonzero(pattern[k + 1 :, k])
        pattern[np.ix_(below, below)] = True
        counts[k] += below.size
        if below.size:
            parent[k] = below[0]
    return parent, counts


@st.composite
def patterns(draw, largest=24):
    n = draw(st.integers(0, largest))
    density = draw(st.sampled_from([0.0, 0.03, 0.1, 0.3, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.random((n, n)) < density, rng


def check(dense, perm):
    n, xadj, adj = graph(dense)
    tree = elimination_tree(n, xadj, adj, perm.astype(np.int32))
    assert np.array_equal(np.sort(tree.perm), np.arange(n))
    parent, counts = eliminate(dense, tree.perm)
    assert np.array_equal(tree.parent, parent)
    assert np.array_equal(tree.counts, counts)
    assert (tree.perm.dtype, tree.parent.dtype, tree.counts.dtype) == (np.int32, np.int32, np.int64)
    # Postordering changes no size, and puts every subtree in one run that ends at its root.
    given_counts = eliminate(dense, perm)[1]
    assert tree.nnz_factor == given_counts.sum()
    assert tree.flops == np.sum(given_counts.astype(float) ** 2)
    size, above = np.ones(n, int), np.ones(n, int)
    for k in range(n):
        if parent[k] >= 0:
            above[parent[k]] = max(above[parent[k]], above[k] + 1)
    assert tree_height(tree.parent) == above.max(initial=0)
    for k in range(n):
        assert np.all(tree.parent[k - size[k] + 1 : k] <= k)
        if parent[k] >= 0:
            size[parent[k]] += size[k]
    return tree


@given(patterns())
def test_tree_and_counts_are_those_of_dense_elimination(case):
    dense, rng = case
    tree = check(dense, rng.permutation(len(dense)))
    assert (tree.depth == 0) == (len(dense) == 0)
    assert tree.depth <= len(dense)


@given(patterns())
def test_a_column_right_before_its_parent_stays_there(case):
    dense, rng = case
    n, xadj, adj = graph(dense)
    perm = rng.permutation(n).astype(np.int32)
    parent = eliminate(dense, perm)[0]
    place = np.argsort(elimination_tree(n, xadj, adj, perm).perm)
    for k in np.flatnonzero(parent == np.arange(1, n + 1)):
        assert place[perm[k + 1]] == place[perm[k]] + 1


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_extreme_shapes(n):
    full = np.ones((n, n), bool)
    arrow = np.eye(n, dtype=bool)
    arrow[-1:] = True
    for dense in (np.eye(n, dtype=bool), full, arrow, arrow[::-1, ::-1]):
        check(dense, np.arange(n))
        check(dense, np.arange(n)[::-1])
    assert elimination_tree(*graph(full), np.arange(n, dtype=np.int32)).depth == min(n, 1)


def test_depth_counts_levels_of_fronts():
    # Cliques of 40 in a chain, neighbours sharing 4 vertices: eliminated from one end, one front per clique.
    n_cliques, size, shared = 5, 40, 4
    n = n_cliques * (size - shared) + shared
    dense = np.zeros((n, n), bool)
    for first in range(0, n - shared, size - shared):
        dense[first : first + size, first : first + size] = True
    assert check(dense, np.arange(n)).depth == n_cliques


@given(patterns())
def test_adjacency_is_the_symmetric_union(case):
    dense, rng = case
    n = len(dense)
    union = dense | dense.T
    np.fill_diagonal(union, False)
    expected = sp.csc_matrix(union)
    row, col = np.nonzero(dense)
    order = rng.permutation(np.tile(np.arange(row.size), 2))
    order = order[np.argsort(col[order], kind="stable")]
    twice = np.concatenate(([0], np.cumsum(np.bincount(col[order], minlength=n)))).astype(np.int64)
    lower = sp.csc_matrix(np.tril(union | np.eye(n, dtype=bool)))
    whole = sp.csc_matrix(dense)
    for ptr, ind in ((twice, row[order]), (lower.indptr, lower.indices), (whole.indptr, whole.indices)):
        xadj, adj = adjacency(n, ptr, ind)
        assert (xadj.dtype, adj.dtype) == (np.int64, np.int32)
        assert np.array_equal(xadj, expected.indptr)
        assert np.array_equal(adj, expected.indices)


@given(patterns())
def test_quotient_graph_and_expansion(case):
    dense, rng = case
    n, xadj, adj = graph(dense)
    groups = np.unique(rng.integers(0, n // 2 + 1, n), return_inverse=True)[1].astype(np.int32)
    n_groups, group_xadj, group_adj, weights = compress(n, xadj, adj, groups)
    incidence = np.eye(n_groups, dtype=int)[groups] if n else np.zeros((0, 0), int)
    union = incidence.T @ (dense | dense.T).astype(int) @ incidence > 0
    np.fill_diagonal(union, False)
    expected = sp.csc_matrix(union)
    assert np.array_equal(group_xadj, expected.indptr)
    assert np.array_equal(group_adj, expected.indices)
    assert np.array_equal(weights, incidence.sum(axis=0))
    perm = expand(rng.permutation(n_groups), groups)
    assert np.array_equal(np.sort(perm), np.arange(n))
    assert np.count_nonzero(np.diff(groups[perm])) == max(n_groups - 1, 0)


def test_pairs_become_groups_numbered_by_their_smallest_row():
    assert pairs_to_groups(np.array([3, -1, 4, 0, 2])).tolist() == [0, 1, 2, 0, 2]
    assert pairs_to_groups(np.zeros(0, np.int32)).size == 0


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], "shape"),
        ([0.0, 1.0, 2.0], "integer"),
        ([0, -1, 1], r"groups\[1\]"),
        ([0, 2, 2], "1 is unused"),
    ],
)
def test_malformed_groups_are_named(groups, message):
    with pytest.raises(InvalidValueError, match=message):
        compress(*graph(np.ones((3, 3), bool)), np.array(groups))
