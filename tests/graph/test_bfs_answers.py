"""What a search answers: real graphs, SciPy, types, bad input, the record."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph, csr_array
from ways import DATA, EXPECTED, directed_graph, same

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.graph import Graph, _reference, bfs, explain_bfs, grid, kronecker, read_graph, verify


@pytest.mark.parametrize("entry", EXPECTED, ids=lambda e: Path(e["file"]).stem)
def test_real_graphs(entry):
    graph = read_graph(DATA / Path(entry["file"]).name)
    source = entry["bfs_source_0based"]
    assert (graph.n, graph.directed) == (entry["n"], entry["header_sym"] == "directed")
    result = bfs(graph, source)
    distances = result.distances
    found = np.count_nonzero(distances >= 0), distances.max(), distances[distances > 0].sum()
    assert found == (entry["bfs_reached"], entry["bfs_depth"], entry["bfs_sum"])
    assert result.record.depth == entry["bfs_depth"]
    same(result, *_reference.serial_bfs(graph.ptr, graph.ind, [source]), entry["file"])
    checked = verify(graph, source, result)
    assert checked.ok, str(checked)
    if graph.directed:
        for direction in ("auto", "pull"):
            same(
                bfs(graph.with_transpose(), source, direction=direction), distances, result.parents, direction
            )
    by_degree = bfs(graph.by_degree(), source)
    np.testing.assert_array_equal(by_degree.distances, distances)
    assert verify(graph.by_degree(), source, by_degree).ok
    assert verify(graph, source, by_degree).ok


@given(
    n=st.integers(1, 70),
    arcs=st.integers(0, 300),
    seed=st.integers(0, 10**6),
    directed=st.booleans(),
    sources=st.integers(1, 3),
)
def test_against_scipy(n, arcs, seed, directed, sources):
    rng = np.random.default_rng(seed)
    tail, head = rng.integers(0, n, arcs), rng.integers(0, n, arcs)
    graph = Graph.from_edges(tail, head, n, directed=directed)
    start = np.unique(rng.integers(0, n, sources))
    matrix = csr_array((np.ones(arcs), (tail, head)), shape=(n, n))
    lengths = csgraph.shortest_path(matrix, unweighted=True, directed=directed, indices=start).min(axis=0)
    result = bfs(graph, start)
    np.testing.assert_array_equal(result.distances, np.where(np.isinf(lengths), -1, lengths))
    assert verify(graph, start, result).ok


def test_vertex_numbers_keep_their_type():
    edges = np.array([[0, 1], [1, 2]])
    for kind in (np.int32, np.int64, np.uint32):
        graph = Graph.from_edges(*edges.astype(kind).T)
        assert bfs(graph, 0).parents.dtype == (np.int64 if kind == np.int64 else np.int32)
        assert bfs(graph, 0).distances.dtype == np.int32
    assert bfs(csr_array(([1.0], ([0], [1])), shape=(2, 2)), 0).distances.tolist() == [0, 1]


def test_unreached_is_minus_one():
    """Case 36."""
    for kind in (np.int32, np.int64):
        result = bfs(Graph.from_edges(np.array([0], kind), np.array([1], kind), 4), 1)
        assert result.distances.tolist() == [1, 0, -1, -1]
        assert result.parents.tolist() == [1, 1, -1, -1]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "source 7 is not a vertex of the graph: there are 0 … 5"),
        (-1, "source -1"),
        ([0, 3, 99], "source 99"),
        ([], "no source"),
        (1.5, "vertex number"),
        ([[0]], "sequence"),
        ("a", "vertex number"),
        (2**40, "source 1099511627776"),
    ],
)
def test_bad_sources(source, message):
    """Case 37: the vertex is named; never an index out of range."""
    with pytest.raises(ValueError, match=message):
        bfs(grid(2, 3), source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "up"}, "direction must be"),
        ({"alpha": 0}, "alpha must be"),
        ({"beta": float("nan")}, "beta must be"),
        ({"alpha": "x"}, "alpha must be"),
        ({"max_depth": -1}, "max_depth"),
        ({"max_depth": 1.5}, "max_depth"),
        ({"device": "gpu"}, "device must be"),
        ({"variant": "fast"}, "variant must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InvalidValueError, match=message):
        bfs(grid(2, 3), 0, **options)


def test_refusals():
    with pytest.raises(InvalidValueError, match="with_transpose"):
        bfs(directed_graph(), 0, direction="pull")
    with pytest.raises(NotSupportedError, match='device="cuda"'):
        bfs(grid(2, 3), 0, variant="naive")
    with pytest.raises(InvalidValueError, match="the graph has none"):
        bfs(Graph.from_edges([], []), 0)
    with pytest.raises(InvalidValueError, match="a Graph"):
        bfs([[0, 1]], 0)


def test_the_record_says_what_happened():
    graph = kronecker(10)
    result = bfs(graph, int(np.argmax(graph.degrees())))
    record = result.record
    levels = list(record.levels)
    assert record.path == "cpu"
    assert record.pull == "used"
    assert (
        sum(level.found for level in levels) + record.n_sources
        == record.reached
        == np.sum(result.distances >= 0)
    )
    assert [level.frontier for level in levels] == np.bincount(result.distances[result.distances >= 0])[
        : len(levels)
    ].tolist()
    arcs = graph.degrees()
    assert record.edges == (arcs[result.distances >= 0].sum() + 1) // 2
    for level in levels:
        assert level.frontier_arcs == arcs[result.distances == level.level].sum()
        assert level.seconds >= 0
        assert level.examined == level.frontier_arcs or level.direction == "pull"
    assert record.teps == record.edges / record.seconds
    plain = json.loads(json.dumps(record.to_dict()))
    assert plain["levels"][0]["direction"] == "push"
    assert levels[-1] == record.levels[-1]
    assert record.levels[1:3] == tuple(levels[1:3])
    with pytest.raises(IndexError):
        record.levels[len(levels)]
    assert (
        bfs(directed_graph(), 0).record.pull == "off: the graph is directed and its transpose was not given"
    )
    assert bfs(graph, 0, direction="push").record.pull == 'off: direction="push" was asked for'
    assert bfs(kronecker(8), 0, max_depth=0).record.pull == "not needed"
    assert bfs(grid(1, 5), 0).record.pull == "off: fewer than 6 arcs a vertex, little to save"


def test_a_gpu_asked_for_and_absent_says_what_to_install():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    for options in ({"device": "cuda"}, {"device": "cuda", "variant": "persistent"}):
        with pytest.raises(NotSupportedError, match="install"):
            bfs(grid(2, 3), 0, **options)
    assert [d.path for d in explain_bfs(1000, 4000) if d.taken] == ["cpu"]
    assert len(explain_bfs(1000, 4000)) == 4
