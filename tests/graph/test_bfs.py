"""Breadth-first search on every backend: the CPU, the kernel sources on the host (SIMT runner), and a GPU."""

from pathlib import Path

import numpy as np
import pytest
from machines import SimtMachine, make_state, search
from ways import BY_DIRECTION, DATA, EXPECTED, FAMILIES, Cpu, Cuda, Simt, directed_graph, expected, same

from warpfront.graph import VARIANTS, Graph, _bfs_host, _reference, bfs, grid, kronecker, read_graph, uniform
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Options
from warpfront.graph._bfs_run import run


@pytest.fixture(
    params=[
        pytest.param(Cpu, id="cpu"),
        pytest.param(Simt, marks=pytest.mark.simt, id="simt"),
        pytest.param(Cuda, marks=pytest.mark.cuda, id="cuda"),
    ]
)
def backend(request):
    return request.param()


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


@pytest.mark.simt
@pytest.mark.parametrize("file", ["karate", "lesmis", "visbrazil"])
def test_real_graphs_under_the_runner(file):
    graph = read_graph(DATA / f"{file}.mtx.gz")
    for variant in ("persistent", "block"):
        dist, parent, _, _ = search(graph, [3], variant, Options("auto", 15.0, 18.0, None))
        same((dist, parent), *_reference.serial_bfs(graph.ptr, graph.ind, [3]), variant)


def test_thousand_repeats(monkeypatch):
    """Case 34: a power-law graph, two threads on every level, 1,000 times the same bits."""
    monkeypatch.setattr(_bfs_host, "WIDE_ARCS", 0)
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
        monkeypatch.setattr(_bfs_host, "WIDE_ARCS", wide)
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
    run(SimtMachine(), state, variant, options, everyone, everyone, threads=64)
    used = np.count_nonzero(state.queue[0, :, 3] != 0xABABABAB)
    assert used == 2 * n
    assert 2 * n <= plans.capacity(n, graph.arcs, piece) == n + graph.arcs // piece


@pytest.mark.simt
def test_few_long_lists_are_shared():
    """One item of many arcs, sliced among warps; and hubs of many pieces found in one step."""
    hubs = [Graph.from_edges(np.zeros(700, int), np.arange(1, 701)), FAMILIES["complete"]()]
    spokes = np.arange(1, 6)
    hubs.append(
        Graph.from_edges(np.r_[np.zeros(5, int), np.repeat(spokes, 90)], np.r_[spokes, np.arange(6, 456)])
    )
    for graph in hubs:
        for source in (0, graph.n - 1):
            for piece in (None, 16):
                options = Options("push", 15.0, 18.0, None)
                dist, parent, _, _ = search(graph, [source], "persistent", options, piece=piece)
                same((dist, parent), *_reference.serial_bfs(graph.ptr, graph.ind, [source]), (graph, source))


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
        found = _bfs_host.search(graph, np.array([chain[0]]), Options("auto", 15.0, 18.0, None), threads)
        same(found, *reference, threads)
        assert {level.direction for level in found.levels} == {"push", "pull"}


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
