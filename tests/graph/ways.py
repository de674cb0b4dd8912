"""Graphs to search, and the ways to search them on each backend."""

import json
from pathlib import Path

import numpy as np
from machines import search

from warpfront.graph import VARIANTS, Graph, _bfs_host, _reference, bfs, grid, kronecker, uniform
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Options

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
        monkeypatch.setattr(_bfs_host, "WIDE_ARCS", wide)
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


def same(result, distances, parents, what):
    found = (result.distances, result.parents) if hasattr(result, "distances") else result
    np.testing.assert_array_equal(found[0], distances, err_msg=str(what))
    np.testing.assert_array_equal(found[1], parents, err_msg=str(what))
