"""Breadth-first search on every backend: the CPU, the kernel sources on the host (SIMT runner), and a GPU."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import SimtMachine, make_state, search
from scipy.sparse import csgraph, csr_array

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.graph import (
    VARIANTS,
    Graph,
    _bfs_cpu,
    _reference,
    bfs,
    explain_bfs,
    grid,
    kronecker,
    read_graph,
    uniform,
    verify,
)
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_cpu import Options

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "expected.json").read_text())
BY_DIRECTION = ("direction", "persistent")


def directed_graph(n=120, arcs=400, seed=5):
    rng = np.random.default_rng(seed)
    return Graph.from_edges(rng.integers(0, n, arcs), rng.integers(0, n, arcs), n, directed=True)


def star(leaves, extra=0):
    """A hub with many arcs, a path behind one of its leaves."""
    tail = np.r_[np.zeros(leaves, int), np.arange(leaves, leaves + extra)]
    return Graph.from_edges(tail, np.r_[np.arange(1, leaves + 1), np.arange(leaves + 1, leaves + extra + 1)])


FAMILIES = {
    "kronecker": lambda: kronecker(7, 6),
    "uniform": lambda: uniform(200, 500),
    "grid": lambda: grid(9, 17),
    "holes": lambda: grid(12, 13, keep=0.7, seed=3),
    "line": lambda: grid(1, 60),
    "star": lambda: star(150, 40),
    "apart": lambda: Graph.from_edges([0, 1, 3], [1, 2, 4], 40),
    "one": lambda: Graph.from_edges([], [], 1),
    "directed": directed_graph,
    "both ways": lambda: directed_graph().with_transpose(),
    "by degree": lambda: kronecker(7, 4).by_degree(),
    "directed by degree": lambda: directed_graph().with_transpose().by_degree(),
    "complete": lambda: Graph.from_csr(np.arange(0, 41 * 40, 40), np.tile(np.arange(40), 40)),
}


def expected(graph, sources, max_depth=None):
    """The reference's answer in the caller's numbering."""
    if graph.order is None:
        return _reference.serial_bfs(graph.ptr, graph.ind, sources, max_depth)
    rank = np.empty(graph.n, int)
    rank[graph.order] = np.arange(graph.n)
    inner, tree = _reference.serial_bfs(graph.ptr, graph.ind, rank[np.asarray(sources)], max_depth)
    distances, parents = np.empty_like(inner), np.full_like(tree, -1)
    distances[graph.order] = inner
    parents[graph.order] = np.where(tree < 0, -1, graph.order[tree])
    return distances, parents


class Cpu:
    """All threads and thresholds of the CPU's driver."""

    ways = tuple(
        (threads, wide, d) for threads in (1, 2) for wide in (0, 1 << 16) for d in ("auto", "push", "pull")
    )

    def run(self, graph, sources, way, max_depth=None, monkeypatch=None):
        threads, wide, direction = way
        if direction == "pull" and not graph.can_pull:
            return None
        monkeypatch.setattr(_bfs_cpu, "WIDE_ARCS", wide)
        monkeypatch.setenv("WARPFRONT_THREADS", str(threads))
        return bfs(graph, sources, direction=direction, max_depth=max_depth)


class Simt:
    """Every variant's kernel sources, three blocks of two warps; short pieces, so that hubs are split."""

    ways = tuple(
        (v, d) for v in VARIANTS for d in (("auto", "push", "pull") if v in BY_DIRECTION else ("auto",))
    )

    def run(self, graph, sources, way, max_depth=None, monkeypatch=None):
        variant, direction = way
        if direction == "pull" and not graph.can_pull:
            return None
        options = Options(direction, 15.0, 18.0, max_depth, variant != "block")
        inner = np.atleast_1d(sources)
        if graph.order is not None:
            rank = np.empty(graph.n, int)
            rank[graph.order] = np.arange(graph.n)
            inner = rank[inner]
        piece = 16 if plans.piece_of(variant) == plans.PIECE and variant != "block" else None
        dist, parent, outcome, _ = search(graph, inner, variant, options, piece=piece)
        if graph.order is not None:
            turned = np.empty_like(dist), np.empty_like(parent)
            turned[0][graph.order] = dist
            turned[1][graph.order] = np.where(parent < 0, -1, graph.order[parent])
            dist, parent = turned
        assert outcome.reached == np.count_nonzero(dist >= 0)
        assert outcome.depth == dist.max(initial=0)
        return dist, parent


class Cuda:
    """The public function on a GPU, every variant."""

    ways = (("auto", "auto"), *Simt.ways)

    def run(self, graph, sources, way, max_depth=None, monkeypatch=None):
        variant, direction = way
        if direction == "pull" and not graph.can_pull:
            return None
        if variant == "block" and plans.why_not_block(graph.n, graph.arcs, direction, False):
            return None
        return bfs(graph, sources, variant=variant, direction=direction, max_depth=max_depth, device="cuda")


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(Simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def backend(request):
    return request.param()


def same(result, distances, parents, what):
    found = (result.distances, result.parents) if hasattr(result, "distances") else result
    np.testing.assert_array_equal(found[0], distances, err_msg=str(what))
    np.testing.assert_array_equal(found[1], parents, err_msg=str(what))


@pytest.mark.parametrize("family", FAMILIES)
def test_families(backend, family, monkeypatch):
    """Distances and parents equal the textbook's, bit for bit, whatever the way."""
    graph = FAMILIES[family]()
    source = int(np.argmax(graph.degrees())) if graph.order is None else 5
    distances, parents = expected(graph, [source])
    ran = 0
    for way in backend.ways:
        result = backend.run(graph, source, way, monkeypatch=monkeypatch)
        if result is not None:
            same(result, distances, parents, way)
            ran += 1
    assert ran >= len(backend.ways) // 2


@pytest.mark.parametrize("max_depth", [0, 1, 3])
def test_depth_limit(backend, max_depth, monkeypatch):
    for family in ("kronecker", "star", "both ways"):
        graph = FAMILIES[family]()
        distances, parents = expected(graph, [2], max_depth)
        for way in backend.ways:
            result = backend.run(graph, 2, way, max_depth, monkeypatch)
            if result is not None:
                same(result, distances, parents, (family, way))


def test_several_sources(backend, monkeypatch):
    """Distances are to the nearest source; all vertices as sources is allowed (case 37)."""
    for graph in (grid(8, 21), directed_graph()):
        for sources in ([0, 60, 61, 119], list(range(graph.n))):
            distances, parents = expected(graph, sources)
            for way in backend.ways:
                result = backend.run(graph, sources, way, monkeypatch=monkeypatch)
                if result is not None:
                    same(result, distances, parents, way)
    assert not distances.any()


def test_directed_line(backend, monkeypatch):
    """Case 33: 0 -> 4 -> 1 -> 3 -> 2."""
    line = Graph.from_edges([0, 4, 1, 3], [4, 1, 3, 2], directed=True)
    for graph in (line, line.with_transpose()):
        for way in backend.ways:
            result = backend.run(graph, 0, way, monkeypatch=monkeypatch)
            if result is not None:
                same(result, [0, 2, 4, 3, 1], [0, 4, 3, 1, 0], way)


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


@pytest.mark.simt
@pytest.mark.parametrize("file", ["karate", "lesmis", "visbrazil"])
def test_real_graphs_under_the_runner(file):
    graph = read_graph(DATA / f"{file}.mtx.gz")
    for variant in ("persistent", "block"):
        dist, parent, _, _ = search(graph, [3], variant, Options("auto", 15.0, 18.0, None))
        same((dist, parent), *_reference.serial_bfs(graph.ptr, graph.ind, [3]), variant)


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


def test_thousand_repeats(monkeypatch):
    """Case 34: a power-law graph, two threads on every level, 1,000 times the same bits."""
    monkeypatch.setattr(_bfs_cpu, "WIDE_ARCS", 0)
    monkeypatch.setenv("WARPFRONT_THREADS", "2")
    graph = kronecker(9)
    source = int(np.argmax(graph.degrees()))
    distances, parents = _reference.serial_bfs(graph.ptr, graph.ind, [source])
    for k in range(1000):
        result = bfs(graph, source, direction=("auto", "push", "pull")[k % 3])
        assert np.array_equal(result.distances, distances)
        assert np.array_equal(result.parents, parents)


@pytest.mark.simt
def test_many_schedules():
    """The same for the kernels: twelve orders of lanes and blocks each, any finding or wrong word fails."""
    graph = kronecker(6, 5)
    expected_ = _reference.serial_bfs(graph.ptr, graph.ind, [1])
    for variant in ("batched", "direction", "persistent"):
        for seed in range(4):
            machine = SimtMachine(schedules=3, seed=3 * seed)
            dist, parent, _, _ = search(
                graph, [1], variant, Options("auto", 15.0, 18.0, None), machine, piece=8
            )
            same((dist, parent), *expected_, (variant, seed))


@pytest.mark.simt
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "block"])
def test_large_offsets_under_the_runner(variant):
    """Case 35: arcs numbered from beyond 2^33; any 32-bit number on the way would show."""
    graph = kronecker(6, 4)
    dist, parent, _, _ = search(graph, [1], variant, Options("auto", 15.0, 18.0, None), base=2**33 + 12345)
    same((dist, parent), *_reference.serial_bfs(graph.ptr, graph.ind, [1]), variant)


@pytest.mark.parametrize("direction", ["push", "pull", "auto"])
def test_large_offsets(monkeypatch, direction):
    """The same on the CPU: the arcs lie at the end of an array of 2^31 entries, of which nothing else is touched."""
    small = kronecker(8)
    base = 2**31
    ind = np.empty(base + small.arcs, np.int32)
    ind[base:] = small.ind
    for wide in (0, 1 << 16):
        monkeypatch.setattr(_bfs_cpu, "WIDE_ARCS", wide)
        graph = Graph(small.ptr + base, ind, False, small.ptr + base, ind)
        result = bfs(graph, 7, direction=direction)
        same(result, *_reference.serial_bfs(small.ptr, small.ind, [7]), wide)


@pytest.mark.simt
@pytest.mark.parametrize("variant", ["split", "batched", "direction", "persistent"])
def test_queue_at_its_bound(variant):
    """Every vertex in the frontier at once, each a piece and one arc long: the queue's last item is used, and no more."""
    n, piece = 34, 33 - 1
    heads = np.concatenate([np.delete(np.arange(n), u) for u in range(n)])
    graph = Graph.from_csr(np.arange(0, n * (n - 1) + 1, n - 1), heads)
    assert graph.degrees().tolist() == [piece + 1] * n
    options = Options("push", 15.0, 18.0, None)
    state = make_state(graph, variant, options, piece=piece)
    everyone = np.arange(n)
    plans.run(SimtMachine(), state, variant, options, everyone, everyone, threads=64)
    used = np.count_nonzero(state.queue[0, :, 3] != 0xABABABAB)
    assert used == 2 * n
    assert 2 * n <= plans.capacity(n, graph.arcs, piece) == n + graph.arcs // piece


def test_capacity_is_a_bound():
    rng = np.random.default_rng(0)
    for _ in range(200):
        degree, piece = rng.integers(0, 100, 50), int(rng.integers(1, 40))
        items = np.sum(np.where(degree > 0, -(-degree // piece), 0))
        assert items <= plans.capacity(50, int(degree.sum()), piece)


def test_the_persistent_kernel_takes_every_way():
    """One graph on which the frontier is narrow, wide, pulled, and narrow again."""
    core = kronecker(8, 12)
    tail, head = np.repeat(np.arange(core.n), core.degrees()), core.ind
    chain = np.arange(core.n, core.n + 20)
    hub = int(np.argmax(core.degrees()))
    far = int(np.flatnonzero(core.degrees())[-1])
    graph = Graph.from_edges(
        np.r_[tail, chain[:-1], chain[9], chain[10]], np.r_[head, chain[1:], hub, far], core.n + 20
    )
    reference = _reference.serial_bfs(graph.ptr, graph.ind, [chain[0]])
    for threads in (1, 2):
        found = _bfs_cpu.search(graph, np.array([chain[0]]), Options("auto", 15.0, 18.0, None), threads)
        same(found, *reference, threads)
        assert {level.direction for level in found.levels} == {"push", "pull"}


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


@pytest.mark.simt
def test_the_levels_of_every_variant_agree():
    """Frontier, arcs and found of each level are the same numbers in every variant's log."""
    graph = kronecker(7, 6)
    tables = {}
    for variant in VARIANTS:
        if variant != "block":
            _, _, outcome, levels = search(
                graph, [1], variant, Options("push", 15.0, 18.0, None, True), piece=None
            )
            tables[variant] = outcome.table[:, 1:5]
            assert all(level.direction == "push" for level in levels)
            won = outcome.table[:, 7]
            assert np.array_equal(won, outcome.table[:, 3]), variant
            assert np.all(outcome.table[:, 6] >= won), variant
    for variant, table in tables.items():
        np.testing.assert_array_equal(table, tables["naive"], err_msg=variant)


def test_a_gpu_asked_for_and_absent_says_what_to_install():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    for options in ({"device": "cuda"}, {"device": "cuda", "variant": "persistent"}):
        with pytest.raises(NotSupportedError, match="install"):
            bfs(grid(2, 3), 0, **options)
    assert [d.path for d in explain_bfs(1000, 4000) if d.taken] == ["cpu"]
    assert len(explain_bfs(1000, 4000)) == 4


# A GPU alone can answer these.


@pytest.mark.cuda
class TestOnAGpu:
    def test_thousand_repeats(self):
        """Case 34."""
        graph = kronecker(12)
        source = int(np.argmax(graph.degrees()))
        result = bfs(graph, source)
        there = graph.to_device()
        import cupy

        distances, parents = cupy.asarray(result.distances), cupy.asarray(result.parents)
        for k in range(1000):
            found = bfs(there, source, variant=("persistent", "direction")[k % 10 == 9])
            assert bool((found.distances == distances).all())
            assert bool((found.parents == parents).all())

    @pytest.mark.parametrize(
        "variant", ["naive", "queue", "classes", "split", "batched", "direction", "persistent"]
    )
    def test_larger_graphs(self, variant):
        for graph in (
            kronecker(15),
            uniform(1 << 15, 1 << 18),
            grid(300, 400, keep=0.9),
            kronecker(14).by_degree(),
        ):
            source = int(np.argmax(graph.degrees()))
            expected_ = bfs(graph, source)
            for direction in ("auto", "push", "pull"):
                if direction == "pull" and variant not in BY_DIRECTION:
                    continue
                found = bfs(graph, source, device="cuda", variant=variant, direction=direction, trace=True)
                same(found, expected_.distances, expected_.parents, (graph, variant, direction))
                assert isinstance(found.distances, np.ndarray)
                assert found.record.reached == expected_.record.reached
                assert found.record.depth == expected_.record.depth

    def test_generators_and_building(self):
        import cupy

        for here, there in (
            (kronecker(12, seed=3), kronecker(12, seed=3, device="cuda")),
            (uniform(5000, 20000, seed=4), uniform(5000, 20000, seed=4, device="cuda")),
            (grid(40, 50, keep=0.8, seed=2), grid(40, 50, keep=0.8, seed=2, device="cuda")),
            (kronecker(11).by_degree(), kronecker(11, device="cuda").by_degree()),
        ):
            assert there.on_device
            for name in ("ptr", "ind", "order"):
                a, b = getattr(here, name), getattr(there, name)
                assert (a is None and b is None) or np.array_equal(a, cupy.asnumpy(b)), name
            assert (here.loops, here.repeated, here.input_edges) == (
                there.loops,
                there.repeated,
                there.input_edges,
            )
        arcs = directed_graph()
        there = Graph.from_csr(cupy.asarray(arcs.ptr), cupy.asarray(arcs.ind))
        assert there.directed
        both = there.with_transpose()
        np.testing.assert_array_equal(cupy.asnumpy(both.in_ind), arcs.with_transpose().in_ind)
        result = bfs(both, 0, direction="pull")
        same((cupy.asnumpy(result.distances), cupy.asnumpy(result.parents)), *expected(arcs, [0]), "pull")

    @pytest.mark.parametrize("entry", EXPECTED, ids=lambda e: Path(e["file"]).stem)
    def test_real_graphs(self, entry):
        graph = read_graph(DATA / Path(entry["file"]).name)
        source = entry["bfs_source_0based"]
        here = bfs(graph, source)
        there = bfs(graph, source, device="cuda")
        same(there, here.distances, here.parents, entry["file"])
        assert there.record.depth == here.record.depth
        assert there.record.path in ("block", "persistent")
