"""Graphs from edges, rows, matrices and files; generators; the five rules; rates; the picture."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix, random_array, save_npz

from warpfront.errors import FormatError, InvalidValueError, NotSupportedError
from warpfront.graph import (
    Graph,
    bfs,
    grid,
    kronecker,
    kronecker_edges,
    plot_levels,
    read_graph,
    teps,
    uniform,
    uniform_edges,
    verify,
)
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph.teps import draw_sources


def matrix_of(graph):
    return csr_array((np.ones(graph.arcs), graph.ind, graph.ptr), shape=(graph.n, graph.n))


@given(n=st.integers(1, 30), edges=st.integers(0, 120), seed=st.integers(0, 10**6), directed=st.booleans())
def test_from_edges(n, edges, seed, directed):
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, n, edges), rng.integers(0, n, edges)
    graph = Graph.from_edges(tail, head, n, directed=directed)
    pairs = {(int(u), int(v)) for u, v in zip(tail, head, strict=True) if u != v}
    if not directed:
        pairs |= {(v, u) for u, v in pairs}
    rows = np.repeat(np.arange(n), np.diff(graph.ptr))
    assert list(zip(rows.tolist(), graph.ind.tolist(), strict=True)) == sorted(pairs)
    assert graph.loops == np.count_nonzero(tail == head)
    assert graph.input_edges == edges == graph.loops + graph.repeated + graph.arcs // (1 if directed else 2)
    turned = graph.with_transpose()
    np.testing.assert_array_equal(
        csr_array((np.ones(graph.arcs), turned.in_ind, turned.in_ptr), shape=(n, n)).toarray(),
        matrix_of(graph).toarray().T,
    )


def test_from_csr_uses_sorted_rows_as_they_are():
    ptr, ind = np.array([0, 2, 3]), np.array([0, 1, 0], np.int32)
    graph = Graph.from_csr(ptr, ind)
    assert graph.ptr is ptr
    assert graph.ind is ind
    assert not graph.directed
    jumbled = Graph.from_csr(ptr, np.array([1, 0, 0], np.int32))
    np.testing.assert_array_equal(jumbled.ind, ind)
    twice = Graph.from_csr([0, 3, 4], [1, 1, 1, 0])
    assert (twice.arcs, twice.repeated) == (2, 2)
    assert Graph.from_csr([0, 1, 1], [1]).directed


@pytest.mark.parametrize(
    ("ptr", "ind", "options", "message"),
    [
        ([0, 1, 3], [1, 5, 0], {}, r"ind\[1\] is vertex 5, and there are 0 … 1"),
        ([0, 1, 2], [1, -1], {}, "vertex -1"),
        ([0, 2, 1], [1], {}, "decreases"),
        ([0, 1, 3], [1, 0], {}, "run from 0 to the number of arcs"),
        ([], [], {}, "empty"),
        ([0.0, 1.0], [0], {}, "vector of integers"),
        ([0, 1], [[0]], {}, "vector of integers"),
        ([0, 1, 1], [1], {"directed": False}, "without its reverse"),
        ([0, 1, 1], [1], {"n": 3}, "not n \\+ 1"),
    ],
)
def test_bad_rows(ptr, ind, options, message):
    with pytest.raises(InvalidValueError, match=message):
        Graph.from_csr(ptr, ind, **options)


@pytest.mark.parametrize(
    ("tail", "head", "n", "message"),
    [
        ([0, 4], [1, 1], 3, r"tail\[1\] is vertex 4"),
        ([0], [-2], None, r"head\[0\] is vertex -2"),
        ([0], [1, 2], None, "an edge has one of each"),
        ([0.5], [1], None, "vector of integers"),
        ([0], [1], 2.5, "number of vertices"),
    ],
)
def test_bad_edges(tail, head, n, message):
    with pytest.raises(InvalidValueError, match=message):
        Graph.from_edges(tail, head, n)


def test_too_many_vertices():
    with pytest.raises(NotSupportedError, match="32 bits"):
        Graph.from_edges([0], [1], 2**31)


def test_from_scipy():
    a = random_array((60, 60), density=0.05, rng=np.random.default_rng(1), format="csr")
    for matrix in (a, csr_matrix(a), a.tocsc(), a.tocoo()):
        graph = Graph.from_scipy(matrix)
        assert graph.directed
        np.testing.assert_array_equal(matrix_of(graph).toarray() != 0, a.toarray() != 0)
    zero = coo_array(([0.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2))
    assert Graph.from_scipy(zero).arcs == 2
    with pytest.raises(InvalidValueError, match="square"):
        Graph.from_scipy(csr_array((2, 3)))
    with pytest.raises(InvalidValueError, match=r"scipy\.sparse"):
        Graph.from_scipy(np.eye(2))


class NetworkxLike:
    """What is used of a networkx graph."""

    def __init__(self, nodes, edges, directed=False):
        self.nodes, self.edges, self._directed = nodes, edges, directed

    def is_directed(self):
        return self._directed


def test_from_networkx():
    graph = Graph.from_networkx(NetworkxLike(range(4), [(0, 1), (2, 1)]))
    assert bfs(graph, 0).distances.tolist() == [0, 1, 2, -1]
    assert bfs(NetworkxLike([1, 0, 2], [(1, 0, {"weight": 2})], True), 1).distances.tolist() == [1, 0, -1]
    with pytest.raises(InvalidValueError, match="convert_node_labels_to_integers"):
        Graph.from_networkx(NetworkxLike(["a", "b"], []))
    with pytest.raises(InvalidValueError, match="networkx"):
        Graph.from_networkx([1])


def test_a_real_networkx_graph():
    networkx = pytest.importorskip("networkx")
    karate = networkx.karate_club_graph()
    lengths = networkx.single_source_shortest_path_length(karate, 3)
    assert bfs(karate, 3).distances.tolist() == [lengths[v] for v in range(34)]


def test_a_transpose_can_be_given():
    graph = Graph.from_edges([0, 1, 1], [1, 2, 3], directed=True)
    assert not graph.can_pull
    given_ = graph.with_transpose(*(graph.with_transpose().in_ptr, graph.with_transpose().in_ind))
    assert bfs(given_, 0, direction="pull").distances.tolist() == [0, 1, 2, 2]
    with pytest.raises(InvalidValueError, match="both"):
        graph.with_transpose(ptr=graph.ptr)
    with pytest.raises(InvalidValueError, match="has 1 arcs, the graph 3"):
        graph.with_transpose([0, 1, 1, 1, 1], [1])


# Files.


def test_edge_lists(tmp_path):
    text = "# from to\n0 1\n\n1\t2 0.5\n% note\n3,1\n"
    for name, data in (("g.txt", text.encode()), ("g.edges.gz", gzip.compress(text.encode()))):
        path = tmp_path / name
        path.write_bytes(data)
        graph = read_graph(path)
        assert (graph.n, graph.arcs, graph.directed) == (4, 6, False)
        assert bfs(path, 0).distances.tolist() == [0, 1, 2, 2]
    assert read_graph(tmp_path / "g.txt", directed=True).arcs == 3


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("a.txt", "0 1\n2\n", FormatError, r"a\.txt:2: expected two vertex numbers"),
        ("a.csv", "0,x\n", FormatError, r"a\.csv:1"),
        ("a.el", "0 -4\n", FormatError, "vertex -4"),
        ("a.el", "0 5000000000\n", FormatError, "vertex 5000000000"),
        ("a.xyz", "", InvalidValueError, "unknown suffix"),
        (
            "a.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 3\n",
            InvalidValueError,
            "2 x 3",
        ),
        ("a.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", InvalidValueError, "dense"),
        ("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 3\n", FormatError, r"a\.mtx:3"),
        ("a.txt.gz", "\x1f\x8bnot gzip", (FormatError, InvalidValueError), "gzip|read"),
    ],
)
def test_bad_files(tmp_path, name, text, error, message):
    path = tmp_path / name
    path.write_bytes(text.encode("latin1"))
    with pytest.raises(error, match=message):
        read_graph(path)
    with pytest.raises(InvalidValueError, match="no such file"):
        read_graph(tmp_path / "none.txt")


def test_matrix_files(tmp_path):
    (tmp_path / "s.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1\n3 2 0\n")
    symmetric = read_graph(tmp_path / "s.mtx")
    assert (symmetric.directed, symmetric.input_edges, symmetric.arcs) == (False, 2, 4)
    assert read_graph(tmp_path / "s.mtx", directed=True).arcs == 4
    (tmp_path / "g.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n")
    assert bfs(tmp_path / "g.mtx", 0).distances.tolist() == [0, 1, 2]
    assert bfs(tmp_path / "g.mtx", 2).distances.tolist() == [-1, -1, 0]
    save_npz(tmp_path / "g.npz", csr_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(2, 2)))
    assert not read_graph(tmp_path / "g.npz").directed
    np.savez(tmp_path / "d.npz", x=np.eye(2))
    with pytest.raises(InvalidValueError, match="dense"):
        read_graph(tmp_path / "d.npz")


# Generators.


def test_kronecker_has_graph500s_shape():
    tail, head = kronecker_edges(12, 16, seed=1)
    assert tail.size == 16 << 12
    assert tail.min() >= 0
    assert max(tail.max(), head.max()) < 1 << 12
    again = kronecker_edges(12, 16, seed=1)
    assert np.array_equal(tail, again[0])
    assert np.array_equal(head, again[1])
    assert not np.array_equal(tail, kronecker_edges(12, 16, seed=2)[0])
    degree = np.bincount(np.r_[tail, head], minlength=1 << 12)
    # The heaviest vertex draws each of its 12 bits with probability 0.76: 2 m 0.76^12 ends.
    assert 0.8 < degree.max() / (2 * tail.size * 0.76**12) < 1.25
    assert 0.15 < np.mean(degree == 0) < 0.5
    small = [np.bincount(kronecker_edges(1, 20000, seed=s)[0], minlength=2) / 40000 for s in (1, 2)]
    for share in small:
        assert sorted(np.round(share, 2)) == pytest.approx([0.24, 0.76], abs=0.011)


def test_uniform_and_grid():
    tail, head = uniform_edges(1000, 50000, seed=3)
    counts = np.bincount(np.r_[tail, head], minlength=1000)
    assert abs(counts.mean() - 100) < 1e-9
    assert 80 < counts.var() < 120
    g = grid(3, 4)
    assert g.arcs == 2 * (3 * 3 + 2 * 4)
    assert bfs(g, 0).distances.reshape(3, 4).tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert [grid(*s).n for s in ((0, 5), (5, 0), (1, 1))] == [0, 0, 1]
    kept = grid(200, 200, keep=0.7, seed=5)
    assert abs(kept.arcs / grid(200, 200).arcs - 0.7) < 0.02
    assert kronecker(0).n == 1
    assert uniform(5, 0).arcs == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kronecker(31), "scale"),
        (lambda: kronecker(3.0), "scale"),
        (lambda: kronecker(3, -1), "edge_factor"),
        (lambda: uniform(0, 3), "without vertices"),
        (lambda: grid(2, -1), "columns"),
        (lambda: grid(2, 2, keep=1.5), "keep"),
        (lambda: kronecker(3, seed="a"), "seed"),
        (lambda: kronecker(3, device="tpu"), "device"),
    ],
)
def test_bad_generator_arguments(call, message):
    with pytest.raises(InvalidValueError, match=message):
        call()


@pytest.mark.simt
def test_generator_kernels_give_the_same_edges():
    from warpfront.backend.simt import Out, Simt

    source = plans.FOLDER / "generate.cu"
    kernels = Simt.build(source, ["kronecker_edges<64>", "uniform_edges<64>", "grid_keep<64>"])
    for seed in (1, 2**63 + 5):
        a, b = np.empty(150, np.int32), np.empty(150, np.int32)
        for scale, count in ((9, 150), (30, 150)):
            kernels.launch(
                "kronecker_edges<64>", 3, 64, [Out(a), Out(b), count, scale, np.uint64(seed)]
            ).check()
            tail, head = (
                kronecker_edges(scale, 1, seed=seed) if scale < 20 else first_edges(scale, count, seed)
            )
            assert np.array_equal(a, tail[:count])
            assert np.array_equal(b, head[:count])
        kernels.launch("uniform_edges<64>", 3, 64, [Out(a), Out(b), 150, 1000003, np.uint64(seed)]).check()
        tail, head = uniform_edges(1000003, 150, seed=seed)
        assert np.array_equal(a, tail)
        assert np.array_equal(b, head)


def first_edges(scale, count, seed):
    from warpfront.graph import _generate_kernels

    tail, head = np.empty(count, np.int32), np.empty(count, np.int32)
    _generate_kernels.kronecker_edges(tail, head, np.uint64(0), scale, np.uint64(seed))
    return tail, head


# The five rules.


def spoil(name, distances, parents, graph):
    d, p = distances.copy(), parents.copy()
    v = int(np.flatnonzero(d == 2)[0])
    if name == "cycle":
        w = int(np.flatnonzero(d == 3)[0])
        p[v], p[w] = w, v
    elif name == "level":
        d[v] += 1
    elif name == "unreached":
        d[v], p[v] = -1, -1
    elif name == "no arc":
        p[v] = next(
            int(u) for u in np.flatnonzero(d == 1) if v not in graph.ind[graph.ptr[u] : graph.ptr[u + 1]]
        )
    elif name == "reached":
        far = int(np.flatnonzero(d < 0)[0])
        d[far], p[far] = 1, 0
    elif name == "root":
        p[0] = 1
    elif name == "parent range":
        p[v] = graph.n
    return d, p


@pytest.mark.parametrize(
    "fault", ["cycle", "level", "unreached", "no arc", "reached", "root", "parent range"]
)
def test_a_wrong_tree_is_noticed(fault):
    graph = Graph.from_edges(*np.r_[np.array(grid_pairs()), [[40, 41]]].T, 45)
    result = bfs(graph, 0)
    assert verify(graph, 0, result).ok
    checked = verify(graph, 0, spoil(fault, result.distances, result.parents, graph))
    assert not checked.ok
    assert "BROKEN" in str(checked)


def grid_pairs():
    g = grid(5, 6)
    rows = np.repeat(np.arange(g.n), np.diff(g.ptr))
    return [(int(u), int(v)) for u, v in zip(rows, g.ind, strict=True) if u < v]


def test_any_valid_tree_is_accepted():
    g = grid(2, 2)
    assert verify(g, 0, ([0, 1, 1, 2], [0, 0, 0, 1])).ok
    assert verify(g, 0, ([0, 1, 1, 2], [0, 0, 0, 2])).ok
    limited = bfs(grid(4, 4), 0, max_depth=2)
    assert not verify(grid(4, 4), 0, limited).ok
    assert verify(grid(4, 4), 0, limited, max_depth=2).ok


# Rates and the picture.


def test_teps():
    graph = kronecker(9)
    seen = []
    record = teps(graph, count=8, verify=True, progress=lambda done, all_: seen.append((done, all_)))
    assert record.verified
    assert seen[-1] == (8, 8)
    assert len(set(record.sources)) == 8
    assert all(graph.degrees()[v] >= 1 for v in record.sources)
    rates = np.array(record.edges) / record.seconds
    assert record.harmonic_mean == pytest.approx(8 / np.sum(1 / rates))
    assert draw_sources(graph, 8) == record.sources
    assert set(draw_sources(graph.by_degree(), 500)) <= set(np.flatnonzero(graph.degrees()).tolist())
    assert len(draw_sources(grid(1, 3), 64)) == 3
    with pytest.raises(InvalidValueError, match="no edge"):
        teps(Graph.from_edges([], [], 4))
    with pytest.raises(InvalidValueError, match="count"):
        teps(graph, count=0)


def test_plot(tmp_path):
    result = bfs(kronecker(10), 5)
    figure = plot_levels(result, tmp_path / "levels.png")
    assert (tmp_path / "levels.png").stat().st_size > 5000
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "vertices in frontier",
        "arcs examined",
        "time, µs",
    ]
    with pytest.raises(InvalidValueError, match="no levels"):
        plot_levels(bfs(grid(1, 2), 0, max_depth=0))


def test_repr():
    assert repr(grid(2, 3)) == "Graph(6 vertices, 14 arcs, undirected)"
