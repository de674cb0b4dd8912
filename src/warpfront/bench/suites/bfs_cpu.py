"""Breadth-first search on the CPU beside SciPy, igraph, NetworKit and networkx: graphs made once, searches timed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from warpfront.bench.case import Case, NotOffered, Verdict
from warpfront.bench.suites.generic import Comparison, installed, suite

__all__ = ["run"]

DATA = Path(__file__).resolve().parents[4] / "tests" / "graph" / "data"
SOURCES = 4
PACKAGES = {"scipy": "scipy", "igraph": "igraph", "networkit": "networkit", "networkx": "networkx"}
# networkx keeps a dictionary for each vertex: gigabytes above this many arcs.
NETWORKX_ARCS = 4_000_000


def _graph(entry: dict[str, Any]) -> Any:
    from warpfront.graph import grid, kronecker, read_graph, uniform

    family = entry["family"]
    if family == "kronecker":
        return kronecker(entry["scale"])
    if family == "uniform":
        return uniform(entry["vertices"], entry["edges"])
    if family == "grid":
        return grid(entry["side"], entry["side"], keep=entry.get("keep", 1.0))
    file = DATA / entry["file"]
    if not file.is_file():
        raise NotOffered(f"{entry['file']} is in a checkout's tests/graph/data, and this is none")
    return read_graph(file)


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    from warpfront.graph import bfs
    from warpfront.graph.teps import draw_sources

    kept: dict[str, Any] = {}

    def graph() -> Any:
        if "graph" not in kept:
            kept["graph"] = _graph(entry)
            main = bfs(kept["graph"], int(np.argmax(kept["graph"].degrees()))).distances >= 0
            drawn = draw_sources(kept["graph"], 64, seed=3)
            kept["sources"] = [v for v in drawn if main[v]][:SOURCES]
            kept["distances"] = bfs(kept["graph"], kept["sources"][-1]).distances
        return kept["graph"]

    def each(
        make: Callable[[Any], Any], search: Callable[[Any, int], Any], judge: Callable[[Any, Any], bool]
    ) -> Case:
        def run_all(state: Any) -> Any:
            for source in kept["sources"]:
                last = search(state, source)
            return last

        def verify(state: Any, output: Any) -> Verdict:
            right = judge(output, kept["distances"])
            return Verdict(right, detail="" if right else "distances or reached vertices differ")

        return Case(
            lambda: make(graph()), run_all, verify, algorithm=f"{SOURCES} searches, one after another"
        )

    g = graph()
    cases = {"warpfront": each(lambda h: h, bfs, lambda out, d: np.array_equal(out.distances, d))}
    for name, maker in _PEERS.items():
        if installed(PACKAGES[name]) is not None and (name != "networkx" or g.arcs <= NETWORKX_ARCS):
            cases[name] = each(*maker())
    shapes = {"n": g.n, "arcs": g.arcs}
    packages = {
        name: package for name, package in PACKAGES.items() if name in cases or installed(package) is None
    }
    return [Comparison("search", shapes, "int32", entry["family"], ["warpfront"], cases, 1, packages)]


def _scipy() -> tuple[Any, Any, Any]:
    from scipy.sparse import csgraph, csr_array

    def make(g: Any) -> Any:
        return csr_array((np.ones(g.arcs), g.ind, g.ptr.astype(np.int32)), shape=(g.n, g.n))

    def search(matrix: Any, source: int) -> Any:
        return csgraph.breadth_first_order(matrix, source, directed=True)

    return make, search, lambda out, d: len(out[0]) == np.count_nonzero(d >= 0)


def _pairs(g: Any) -> Any:
    tail = np.repeat(np.arange(g.n), np.diff(g.ptr))
    keep = slice(None) if g.directed else tail < g.ind
    return np.column_stack([tail[keep], g.ind[keep]])


def _igraph() -> tuple[Any, Any, Any]:
    igraph = import_module("igraph")

    def make(g: Any) -> Any:
        return igraph.Graph(n=g.n, edges=_pairs(g), directed=g.directed)

    return make, lambda h, s: h.bfs(s), lambda out, d: len(out[0]) == np.count_nonzero(d >= 0)


def _networkit() -> tuple[Any, Any, Any]:
    networkit = import_module("networkit")

    def make(g: Any) -> Any:
        pairs = _pairs(g)
        ones = np.ones(len(pairs))
        return networkit.GraphFromCoo((ones, (pairs[:, 0], pairs[:, 1])), n=g.n, directed=g.directed)

    def search(h: Any, source: int) -> Any:
        return networkit.distance.BFS(h, source, storePaths=False).run()

    def judge(out: Any, d: Any) -> bool:
        found = np.array(out.getDistances())
        return np.array_equal(np.where(found > d.size, -1, found).astype(np.int32), d)

    return make, search, judge


def _networkx() -> tuple[Any, Any, Any]:
    networkx = import_module("networkx")

    def make(g: Any) -> Any:
        kind = networkx.DiGraph if g.directed else networkx.Graph
        h = networkx.from_edgelist(_pairs(g).tolist(), create_using=kind)
        h.add_nodes_from(range(g.n))
        return h

    def judge(out: Any, d: Any) -> bool:
        return len(out) == np.count_nonzero(d >= 0) and all(d[v] == k for v, k in out.items())

    return make, networkx.single_source_shortest_path_length, judge


_PEERS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "scipy": _scipy,
    "igraph": _igraph,
    "networkit": _networkit,
    "networkx": _networkx,
}

run = suite("bfs_cpu", "bfs_cpu", _compare)
