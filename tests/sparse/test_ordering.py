"""Orderings: permutations of known quality, the choice among them, and pairs kept together."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from warpfront.backend import settings
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.sparse.analysis import dissection
from warpfront.sparse.analysis._amd_kernels import _collect, approximate_minimum_degree
from warpfront.sparse.analysis.amd import amd
from warpfront.sparse.analysis.dissection import OrderingFailedError, level_set, metis, multilevel
from warpfront.sparse.analysis.graph import adjacency, pairs_to_groups
from warpfront.sparse.analysis.ordering import METHODS, choose, predicted_seconds
from warpfront.sparse.analysis.pairing import zero_diagonal_pairs

ORDERERS = (amd, multilevel, metis, level_set)


def graph(matrix):
    """Return (n, xadj, adj) of a pattern."""
    matrix = sp.csc_matrix(matrix)
    return matrix.shape[0], *adjacency(matrix.shape[0], matrix.indptr, matrix.indices)


def grid(*sides):
    """Return the matrix of a 3-, 5- or 7-point grid."""
    total = sp.csr_matrix((1, 1))
    for side in sides:
        line = sp.diags_array([np.ones(side - 1)] * 2, offsets=[-1, 1], shape=(side, side))
        total = sp.kron(total, sp.eye_array(side)) + sp.kron(sp.eye_array(total.shape[0]), line)
    return total


def cube27(side):
    line = sp.diags_array([np.ones(side - 1), np.ones(side), np.ones(side - 1)], offsets=[-1, 0, 1])
    return sp.kron(sp.kron(line, line), line)


def fill(matrix, perm):
    """Entries of the factor, by elimination on sets of neighbours."""
    matrix = sp.csr_matrix(matrix)
    place = np.argsort(perm)
    lists = [set() for _ in perm]
    for i, j in zip(*matrix.nonzero(), strict=True):
        low, high = sorted((place[i], place[j]))
        if low < high:
            lists[low].add(high)
    total = len(perm)
    for k, below in enumerate(lists):
        total += len(below)
        if below:
            parent = min(below)
            lists[parent] |= below - {parent}
        lists[k] = None
    return total


@st.composite
def patterns(draw, largest=40):
    n = draw(st.integers(0, largest))
    density = draw(st.sampled_from([0.0, 0.02, 0.06, 0.2, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return sp.csc_matrix((rng.random((n, n)) < density).astype(float)), rng


@given(patterns(), st.sampled_from(ORDERERS), st.booleans())
def test_every_orderer_gives_a_permutation_and_repeats_it(case, orderer, weighted):
    matrix, rng = case
    n, xadj, adj = graph(matrix)
    weights = rng.integers(1, 4, n).astype(np.int32) if weighted else None
    before = xadj.copy(), adj.copy(), None if weights is None else weights.copy()
    perm = orderer(n, xadj, adj, weights)
    assert perm.dtype == np.int32
    assert np.array_equal(np.sort(perm), np.arange(n))
    assert np.array_equal(orderer(n, xadj, adj, weights), perm)
    assert np.array_equal(xadj, before[0])
    assert np.array_equal(adj, before[1])
    assert weights is None or np.array_equal(weights, before[2])


@given(patterns(), st.sampled_from([m for m in METHODS if m != "user"]))
def test_counts_of_the_chosen_order_add_up_to_its_fill(case, method):
    matrix, _ = case
    n, xadj, adj = graph(matrix)
    chosen = choose(n, xadj, adj, method)
    assert np.array_equal(np.sort(chosen.perm), np.arange(n))
    assert chosen.counts.sum() == fill(matrix, chosen.perm)
    assert chosen.method == ("amd" if method == "auto" else method)
    assert chosen.candidates[0].nnz_factor == chosen.counts.sum()
    assert chosen.candidates[0].seconds > 0
    assert np.all((chosen.parent > np.arange(n)) | (chosen.parent == -1))
    again = choose(n, xadj, adj, method)
    assert np.array_equal(again.perm, chosen.perm)
    assert again.reason == chosen.reason


@pytest.mark.parametrize("orderer", ORDERERS)
def test_degenerate_graphs(orderer):
    arrow = np.eye(50)
    arrow[0] = 1
    blocks = sp.block_diag([grid(7, 7), sp.csc_matrix((3, 3)), grid(5), np.ones((4, 4))])
    no_fill = [sp.csc_matrix((n, n)) for n in (0, 1, 2, 30)]
    no_fill += [np.ones((2, 2)), np.ones((30, 30)), arrow, blocks]
    for matrix in no_fill:
        n, xadj, adj = graph(matrix)
        perm = orderer(n, xadj, adj)
        assert np.array_equal(np.sort(perm), np.arange(n))
    if orderer is amd:
        # A tree, and an arrow from the wrong side, have orders without fill: minimum degree finds them.
        rng = np.random.default_rng(3)
        tree = sp.coo_matrix((np.ones(199), (np.arange(1, 200), [rng.integers(0, i) for i in range(1, 200)])))
        tree.resize(200, 200)
        for matrix, entries in ((tree, 399), (arrow, 99)):
            assert fill(matrix, amd(*graph(matrix))) == entries


# About a tenth above what was measured, so that only a real loss of quality trips them. For scale: nested
# dissection in theory, 31/4 k^2 log2 k for a k x k grid, is 165 thousand at k = 60 (George 1973).
@pytest.mark.parametrize(
    ("matrix", "orderer", "entries"),
    [
        (grid(60, 60), amd, 62_000),
        (grid(60, 60), level_set, 66_000),
        (grid(60, 60), metis, 62_000),
        (grid(60, 60), multilevel, 66_000),
        (grid(14, 14, 14), amd, 165_000),
        (grid(14, 14, 14), level_set, 135_000),
        (grid(14, 14, 14), metis, 132_000),
        (grid(14, 14, 14), multilevel, 132_000),
        (cube27(10), amd, 78_000),
        (cube27(10), metis, 73_000),
        (cube27(10), multilevel, 73_000),
    ],
)
def test_fill_on_grids(matrix, orderer, entries):
    n, xadj, adj = graph(matrix)
    assert fill(matrix, orderer(n, xadj, adj)) < entries


def test_dense_rows_go_last():
    matrix = sp.lil_matrix(grid(30, 30))
    matrix[[17, 400]] = 1
    n, xadj, adj = graph(matrix)
    assert amd(n, xadj, adj)[-2:].tolist() == [17, 400]
    assert np.array_equal(np.sort(amd(n, xadj, adj, dense=-1.0)), np.arange(n))


def test_vertices_of_weight_zero_are_ordered_last_and_not_counted():
    n, xadj, adj = graph(np.ones((6, 6)))
    weight = np.array([1, 0, 1, 1, 0, 1], np.int32)
    assert approximate_minimum_degree(n, xadj, adj, weight, n)[-2:].tolist() == [1, 4]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 10**6))
def test_garbage_collection_keeps_every_list(lengths, seed):
    rng = np.random.default_rng(seed)
    n = len(lengths)
    store, start = [], np.full(n, -9, np.int64)
    lists = [rng.integers(0, max(n, 1), size).astype(np.int32) for size in lengths]
    for v in rng.permutation(n):
        store += [5] * rng.integers(0, 3)
        if lengths[v]:
            start[v] = len(store)
        store += lists[v].tolist()
    array = np.array([*store, 7, 7], np.int32)
    free = _collect(np.int64(len(store)), start, np.array(lengths, np.int32), array)
    assert free == sum(lengths)
    for v in range(n):
        if lengths[v]:
            assert array[start[v] : start[v] + lengths[v]].tolist() == lists[v].tolist()


@pytest.mark.parametrize("weights", [[1, 1], [1, 0, 1], [2**30, 2**30, 1]])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(InvalidValueError, match="weights must be 3"):
        amd(*graph(np.ones((3, 3))), np.array(weights))


def test_auto_tries_only_what_can_pay():
    small = choose(*graph(grid(20, 20)))
    assert [c.method for c in small.candidates] == ["amd"]
    assert "level_set not tried" in small.reason
    assert "multilevel not tried" in small.reason
    cube = choose(*graph(grid(24, 24, 24)))
    assert [c.method for c in cube.candidates] == ["amd", "level_set"]
    assert cube.method == "level_set"
    assert cube.counts.sum() == min(c.nnz_factor for c in cube.candidates)
    times = [predicted_seconds(c) for c in cube.candidates]
    assert times[1] < times[0]


def test_auto_takes_multilevel_where_it_is_best(monkeypatch):
    costs = {"level_set": (1, 1), "multilevel": (0, 0)}
    monkeypatch.setattr("warpfront.sparse.analysis.ordering._ORDERING_SECONDS", costs)
    chosen = choose(*graph(cube27(12)))
    assert [c.method for c in chosen.candidates] == ["amd", "multilevel"]
    assert chosen.method == "multilevel"


def test_auto_prefers_shallow_trees_for_a_gpu():
    pattern = graph(grid(90, 90))
    here, there = choose(*pattern), choose(*pattern, target="cuda")
    assert len(there.candidates) > len(here.candidates)
    assert predicted_seconds(there.candidates[0], "cuda") > min(
        predicted_seconds(c, "cuda") for c in there.candidates
    )
    depth = {c.method: c.depth for c in there.candidates}
    assert depth[there.method] < depth["amd"]
    assert all(c.height is None for c in here.candidates)


def test_auto_takes_long_thin_patterns_apart_for_a_gpu():
    chosen = choose(*graph(grid(20000)), target="cuda")
    assert chosen.method == chosen.candidates[2].method == "multilevel"


def test_missing_metis_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(NotSupportedError, match="pymetis"):
        choose(*graph(grid(6, 6)), "metis")


@pytest.mark.parametrize("answer", [RuntimeError("out of memory"), ([0, 0, 1], None)])
def test_failing_metis_is_an_error(monkeypatch, answer):
    import pymetis

    def fail(*_, **__):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(pymetis, "nested_dissection", fail)
    with pytest.raises(OrderingFailedError, match=r"METIS (failed: out of memory|returned something)"):
        choose(*graph(grid(3)), "metis")


@pytest.mark.parametrize("matrix", [grid(70, 70), sp.block_diag([grid(50, 50), grid(13, 13, 13), grid(900)])])
def test_multilevel_has_the_same_bits_on_any_number_of_threads(monkeypatch, matrix):
    monkeypatch.setattr(dissection, "_ALONE", 300)
    n, xadj, adj = graph(matrix)
    weights = np.random.default_rng(0).integers(1, 4, n).astype(np.int32)
    found = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(settings, "threads", lambda threads=threads: threads)
        found.append(multilevel(n, xadj, adj, weights))
    assert np.array_equal(np.sort(found[0]), np.arange(n))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_multilevel_ends_with_a_separator_and_leaves_cliques_whole():
    matrix = grid(40, 40)
    perm = multilevel(*graph(matrix))
    kept = np.sort(perm[:-40])
    assert sp.csgraph.connected_components(sp.csr_matrix(matrix)[kept][:, kept])[0] > 1
    n, xadj, adj = graph(np.ones((300, 300)))
    assert np.array_equal(np.sort(multilevel(n, xadj, adj)), np.arange(n))


def test_multilevel_takes_a_star_apart():
    star = sp.lil_matrix((3000, 3000))
    star[0] = star[:, 0] = 1
    perm = multilevel(*graph(star))
    assert fill(star, perm) == 2 * 3000 - 1


def test_level_sets_split_down_to_the_leaves(monkeypatch):
    monkeypatch.setattr(dissection, "_LEAF_SIZE", 4)
    matrix = sp.block_diag([grid(9, 9), grid(30), sp.csc_matrix((5, 5))])
    n, xadj, adj = graph(matrix)
    perm = level_set(n, xadj, adj)
    assert np.array_equal(np.sort(perm), np.arange(n))
    # The last vertices are the first separator: without it the 9 x 9 grid falls apart.
    rest = sp.csr_matrix(matrix)[np.sort(perm[:-9])][:, np.sort(perm[:-9])]
    assert sp.csgraph.connected_components(rest)[0] > sp.csgraph.connected_components(matrix)[0]


def test_user_permutation_is_postordered_with_equal_fill():
    matrix = grid(8, 8)
    n, xadj, adj = graph(matrix)
    perm = np.random.default_rng(0).permutation(n)
    chosen = choose(n, xadj, adj, "user", user_perm=perm)
    assert chosen.method == "user"
    assert chosen.counts.sum() == fill(matrix, perm)


@pytest.mark.parametrize(
    ("perm", "message"),
    [
        ([0, 1, 1, 3], r"user_perm\[2\] = 1 occurs twice"),
        ([0, 4, 1, 1], r"user_perm\[1\] = 4 is outside \[0, 4\)"),
        ([0, 1, 2, -1], r"user_perm\[3\] = -1 is outside"),
        ([0, 1, 2], "4 integers"),
        ([0.0, 1.0, 2.0, 3.0], "4 integers"),
    ],
)
def test_first_bad_entry_of_a_user_permutation_is_named(perm, message):
    with pytest.raises(InvalidValueError, match=message):
        choose(*graph(np.ones((4, 4))), "user", user_perm=np.array(perm))


@pytest.mark.parametrize(("method", "perm"), [("user", None), ("amd", np.arange(2)), ("auto", np.arange(2))])
def test_user_permutation_and_method_go_together(method, perm):
    with pytest.raises(InvalidValueError, match="go together"):
        choose(*graph(np.ones((2, 2))), method, user_perm=perm)


def test_unknown_method_lists_the_known_ones():
    with pytest.raises(InvalidValueError, match="amd, multilevel, metis, level_set, natural, user"):
        choose(*graph(np.ones((2, 2))), "colamd")


@given(patterns(), st.sampled_from(METHODS))
def test_groups_stay_together(case, method):
    matrix, rng = case
    n, xadj, adj = graph(matrix)
    mate = np.full(n, -1)
    for i in rng.permutation(n):
        free = [j for j in adj[xadj[i] : xadj[i + 1]] if mate[j] < 0]
        if mate[i] < 0 and free and rng.random() < 0.7:
            mate[i], mate[free[-1]] = free[-1], i
    groups = pairs_to_groups(mate)
    perm = rng.permutation(n) if method == "user" else None
    chosen = choose(n, xadj, adj, method, user_perm=perm, groups=groups)
    assert chosen.counts.sum() == fill(matrix, chosen.perm)
    place = np.argsort(chosen.perm)
    for i in np.flatnonzero(mate > np.arange(n)):
        assert place[mate[i]] == place[i] + 1
        assert chosen.parent[place[i]] == place[i] + 1


def test_a_group_of_strangers_is_refused():
    with pytest.raises(InvalidValueError, match=r"groups\[0\] = groups\[2\] = 0, but these rows"):
        choose(*graph(grid(4)), groups=np.array([0, 1, 0, 2]))


def lower(dense):
    """Return (n, ptr, ind, values) of the lower triangle, absolute."""
    matrix = sp.csc_matrix(np.tril(np.abs(dense)))
    return matrix.shape[0], matrix.indptr, matrix.indices, matrix.data


def test_zero_diagonals_find_a_perfect_matching_on_a_saddle_point():
    rng = np.random.default_rng(1)
    n, m = 60, 40
    jacobian = sp.random(m, n, 0.05, random_state=rng) + sp.eye(m, n)
    system = sp.bmat([[sp.eye(n) * 1e-3, jacobian.T], [jacobian, None]]).toarray()
    mate = zero_diagonal_pairs(*lower(system))
    paired = np.flatnonzero(mate >= 0)
    assert mate.dtype == np.int32
    assert np.array_equal(mate[mate[paired]], paired)
    assert np.all(system[paired, mate[paired]] != 0)
    assert np.count_nonzero(mate[n:] >= 0) >= m - 2
    assert np.array_equal(zero_diagonal_pairs(*lower(system)), mate)


def test_only_rows_in_need_are_paired_and_with_the_strong_partner():
    # Row 0 needs a partner: row 1 is strong, row 2 weak; rows 3 and 4 are well off.
    system = np.diag([0.0, 1.0, 1.0, 1.0, 1.0])
    for i, j, value in ((0, 1, 0.9), (0, 2, 0.01), (1, 2, 0.5), (2, 3, 0.5), (3, 4, 1.0)):
        system[i, j] = system[j, i] = value
    assert zero_diagonal_pairs(*lower(system)).tolist() == [1, 0, -1, -1, -1]
    system[0, 0] = 1e-8
    assert zero_diagonal_pairs(*lower(system)).tolist() == [1, 0, -1, -1, -1]
    assert zero_diagonal_pairs(*lower(system), tiny=1e-9).tolist() == [-1] * 5


def test_a_safe_singleton_neighbour_makes_a_partner_needless():
    # Row 0's slack (row 1) is eliminated first and fills in its diagonal, unless its own is no safe pivot.
    system = np.array([[0.0, 1.0, 0.5], [1.0, 0.8, 0.0], [0.5, 0.0, 1.0]])
    assert zero_diagonal_pairs(*lower(system)).tolist() == [-1, -1, -1]
    system[1, 1] = system[2, 2] = 1e-4
    assert zero_diagonal_pairs(*lower(system)).tolist() == [1, 0, -1]


def test_a_row_with_one_choice_gets_it_first():
    # Rows 0 and 1 both could take row 2, which is all that row 1 has; row 0 takes row 3.
    system = np.zeros((5, 5))
    system[2, 2] = system[3, 3] = system[4, 4] = 1.0
    for i, j, value in ((0, 2, 1.0), (0, 3, 0.5), (1, 2, 0.5), (2, 4, 1.0), (3, 4, 1.0)):
        system[i, j] = system[j, i] = value
    assert zero_diagonal_pairs(*lower(system)).tolist() == [3, 2, 1, 0, -1]


@given(patterns())
def test_pairs_are_symmetric_neighbours_on_any_pattern(case):
    matrix, rng = case
    dense = matrix.toarray() * rng.random(matrix.shape)
    dense = np.maximum(dense, dense.T)
    np.fill_diagonal(dense, np.where(rng.random(len(dense)) < 0.7, 0.0, 1.0))
    mate = zero_diagonal_pairs(*lower(dense))
    for i in np.flatnonzero(mate >= 0):
        assert mate[mate[i]] == i
        assert dense[i, mate[i]] > 0
        assert dense[i, i] == 0 or dense[mate[i], mate[i]] == 0
