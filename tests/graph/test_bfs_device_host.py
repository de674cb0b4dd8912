"""What the GPU driver allocates and launches, with NumPy standing in for CuPy and the SIMT runner for the device."""

import contextlib
import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from machines import SimtMachine
from ways import same

from warpfront.graph import (
    VARIANTS,
    Graph,
    _bfs_device,
    _device_graph,
    _reference,
    kronecker,
    kronecker_edges,
)
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Options


class Array(np.ndarray):
    """A NumPy array with what the driver uses of a CuPy array."""

    @property
    def device(self):
        return contextlib.nullcontext()

    def set(self, values):
        self[...] = values


class Machine(SimtMachine):
    """The runner, with the clock of a GPU."""

    marks = 0

    def launch(self, kernel, blocks, threads, args, **options):
        plain = [a.view(np.ndarray) if isinstance(a, np.ndarray) else a for a in args]
        super().launch(kernel, blocks, threads, plain, **options)

    def mark(self):
        self.marks += 1

    def seconds(self):
        count, self.marks = self.marks - 1, 0
        return np.full(count, 1e-6)


@pytest.fixture
def cupy(monkeypatch):
    fake = types.ModuleType("cupy")
    for name in dir(np):
        if not name.startswith("__"):
            setattr(fake, name, getattr(np, name))
    fake.asarray = lambda a, *kind: np.array(a, *kind).view(Array)
    fake.empty = lambda count, kind: np.full(count, 77, kind).view(Array)
    fake.zeros = lambda count, kind: np.zeros(count, kind).view(Array)
    fake.empty_like = lambda a: np.full_like(a, 77).view(Array)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(_device_graph.arrays, "as_device_array", np.asarray)
    return fake


def on_device(graph):
    names = ("ptr", "ind", "in_ptr", "in_ind", "order")
    moved = {name: getattr(graph, name) for name in names}
    return replace(graph, **{n: a if a is None else a.view(Array) for n, a in moved.items()}, _kept={})


@pytest.mark.simt
@pytest.mark.parametrize("by_degree", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_searches_one_after_another(cupy, monkeypatch, variant, by_degree):
    """One source, several, other options and back: arrays are large enough, and none keeps what it held."""
    monkeypatch.setattr(plans, "THREADS", dict.fromkeys(plans.THREADS, 64))
    graph = kronecker(6, 4)
    there = on_device(graph.by_degree() if by_degree else graph)
    usual, limited = Options("auto", 15.0, 18.0, None), Options("auto", 3.0, 18.0, 1)
    for sources, options in (([3], usual), ([1, 3, 20], limited), ([1, 3, 20], usual), ([5], usual)):
        inner = np.array(sources)
        if by_degree:
            rank = np.empty(graph.n, int)
            rank[there.order] = np.arange(graph.n)
            inner = np.sort(rank[inner])
        found = _bfs_device.search(there, inner, options, variant, Machine(schedules=1))
        distances, _ = _reference.serial_bfs(graph.ptr, graph.ind, sources, options.max_depth)
        np.testing.assert_array_equal(found.distances, distances)
        if not by_degree:
            same(found, *_reference.serial_bfs(graph.ptr, graph.ind, sources, options.max_depth), variant)
        assert found.reached == np.count_nonzero(distances >= 0)
        assert found.depth == distances.max()
    assert len(there._kept["state", variant]) == 1


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_are_built_alike(cupy, directed):
    tail, head = kronecker_edges(8, seed=4)
    here, there = (
        Graph.from_edges(tail, head, 256, directed=directed),
        _device_graph.from_edges(tail, head, 256, directed),
    )
    assert (here.loops, here.repeated, here.input_edges) == (there.loops, there.repeated, there.input_edges)
    again = _device_graph.from_csr(here.ptr, here.ind, None)
    assert again.directed == directed
    pairs = [(here, there), (here, again), (here.by_degree(), _device_graph.by_degree(there))]
    for a, b in pairs:
        np.testing.assert_array_equal(a.ptr, b.ptr)
        np.testing.assert_array_equal(a.ind, b.ind)
        assert (a.order is None) == (b.order is None)
    if directed:
        turned = here.with_transpose()
        ptr, ind = _device_graph.transpose(here.ptr, here.ind)
        np.testing.assert_array_equal(ptr, turned.in_ptr)
        np.testing.assert_array_equal(ind, turned.in_ind)
