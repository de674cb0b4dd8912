"""The GPU's host side (groups of options, launches, nodes of the tree) with its kernels run by the SIMT runner."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from warpfront.montecarlo import AsianArithmetic, Barrier, European, _cuda, _host
from warpfront.montecarlo._run import CHUNK, Run, Settings
from warpfront.montecarlo._tree import SumTree

pytestmark = pytest.mark.simt
MARKET = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}


class Memory:
    """What the launches use of a CuPy array; its address is its place in a table."""

    table: list = []  # noqa: RUF012

    def __init__(self, array):
        self.array = array
        self.table.append(array)
        self.data = SimpleNamespace(ptr=len(self.table) - 1)

    def __getitem__(self, where):
        return Memory(self.array[where])


class Kernel:
    def __init__(self, name):
        from warpfront.backend.simt import Simt

        self.name, self.kernel = name, Simt.build(_cuda.SOURCE, [name])

    def launch(self, stream, blocks, threads, arguments):
        count = 2 if self.name == _cuda.TREE else 5
        arrays = [np.ascontiguousarray(Memory.table[k]) for k in arguments[:count]]
        report = self.kernel.launch(self.name, blocks, threads, [*arrays, *arguments[count:]], schedules=1)
        assert not report.findings, report.findings
        Memory.table[arguments[0]][...] = arrays[0]


@pytest.fixture
def fake_gpu(monkeypatch):
    runtime = SimpleNamespace(getDevice=lambda: 0)
    cupy = SimpleNamespace(
        asarray=lambda a: Memory(np.array(a)),
        empty=lambda shape: Memory(np.full(shape, np.nan)),
        zeros=lambda count, dtype: Memory(np.zeros(count, dtype)),
        asnumpy=lambda memory: memory.array,
        uint32=np.uint32,
        cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda: SimpleNamespace(ptr=0)),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(_cuda, "_kernel", lambda name, signature, device: (Kernel(name), 1))
    _cuda._points_on.cache_clear()
    yield
    Memory.table.clear()
    _cuda._points_on.cache_clear()


def totals(engine, run, n, cuts):
    tree = SumTree()
    for first, last in pairwise(cuts):
        engine.add_chunks(run, n, first, last, tree)
    return tree.total(cuts[-1])


def test_groups_of_payoffs(fake_gpu):
    """Mixed payoffs, steps and streams in one call: every option gets its own sums."""
    options = (
        European(**MARKET),
        AsianArithmetic(n_steps=3, **MARKET),
        European(kind="put", n_steps=2, **MARKET),
        Barrier(barrier=120, knock="up-and-in", n_steps=2, **MARKET),
    )
    run = Run.of(options, Settings(seed=3, streams="independent", antithetic=True, control_variate=True))
    n = CHUNK + 700
    _cuda.prepare(run)
    assert np.array_equal(totals(_cuda, run, n, [0, 2]), totals(_host, run, n, [0, 2]))


@pytest.mark.parametrize("cuts", [[0, 70], [0, 3, 70], [0, 64, 70], [0, 65, 70]], ids=str)
def test_tree_on_the_device_and_leftovers(fake_gpu, cuts):
    """More than 64 chunks: whole groups are added on the device, the rest on the host, to the same bits."""
    run = Run.of((European(**MARKET),), Settings(seed=2**64 - 1))
    n = 69 * CHUNK + 5
    assert np.array_equal(totals(_cuda, run, n, cuts), totals(_host, run, n, [0, 70]))


def test_sobol_points_travel(fake_gpu):
    run = Run.of(
        (European(**MARKET), AsianArithmetic(n_steps=2, **MARKET)), Settings(sobol=True, replicates=16)
    )
    assert np.array_equal(totals(_cuda, run, 512, [0, 1]), totals(_host, run, 512, [0, 1]))
