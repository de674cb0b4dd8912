"""Every barrier of the search's kernels is needed, and the runner says so when it is taken out."""

import re
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from machines import SimtMachine, search

from warpfront.graph import Graph, _reference, grid, kronecker
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Options

pytestmark = [pytest.mark.simt, pytest.mark.slow]
ORDERING = re.compile(r"^\s*(__syncthreads\(\)|__syncwarp\(\)|grid_barrier\([^;]*\));", re.MULTILINE)
FILES = ("bfs.cuh", "bfs_block.cuh", "bfs_narrow.cuh", "bfs_persistent.cu", "bfs_block.cu", "bfs_levels.cu")
# Barriers that nothing here depends on, each with its reason.
SPARE = {
    ("bfs_levels.cu", "__syncwarp()"): "the lanes of a warp meet again before their sums",
}


def sites():
    found = []
    for name in FILES:
        text = (plans.FOLDER / name).read_text(encoding="utf-8")
        found += [(name, k, m[1]) for k, m in enumerate(ORDERING.finditer(text)) if (name, m[1]) not in SPARE]
    return found


class Mutant(SimtMachine):
    """Kernels from another folder; findings are counted, not raised."""

    def __init__(self, folder):
        super().__init__(schedules=4)
        self.folder = folder

    def launch(self, kernel, *args, **options):
        super().launch(replace(kernel, source=self.folder / kernel.source.name), *args, **options)


def searches(folder):
    """Searches that use every barrier: several blocks, changes of direction, narrow and wide levels, spilt rings."""
    middle = Graph.from_edges(
        np.r_[np.zeros(300, int), np.arange(1, 301)], np.r_[np.arange(1, 301), np.arange(301, 601)]
    )
    leaves = np.arange(2, 602)
    twins = Graph.from_edges(np.r_[leaves % 2, 602, 602], np.r_[leaves, 0, 1])
    for graph, variants in (
        (kronecker(7, 6), ("classes", "batched", "direction", "persistent", "block")),
        (grid(12, 25), ("batched", "persistent")),
        (middle, ("batched", "persistent")),
        (twins, ("classes",)),
    ):
        # Not vertex 0: the thread that clears it is the one that places it.
        source = int(np.flatnonzero(graph.degrees())[-1])
        expected = _reference.serial_bfs(graph.ptr, graph.ind, [source])
        for variant in variants:
            for alpha in (15.0, 1e9):
                options = Options("auto", alpha, 1e4 if alpha > 15 else 18.0, None)
                dist, parent, _, _ = search(graph, [source], variant, options, Mutant(folder))
                assert np.array_equal(dist, expected[0])
                assert np.array_equal(parent, expected[1])


def copy_of_the_room(folder):
    for file in plans.FOLDER.glob("*.cu*"):
        (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")


def test_the_kernels_as_they_are_pass(tmp_path):
    copy_of_the_room(tmp_path)
    searches(tmp_path)


@pytest.mark.parametrize(("name", "k", "call"), sites())
def test_a_kernel_without_one_of_its_barriers_is_noticed(name, k, call, tmp_path):
    copy_of_the_room(tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    begin, end = list(ORDERING.finditer(text))[k].span(1)
    (tmp_path / name).write_text(text[:begin] + "(void)0" + text[end:], encoding="utf-8")
    # In a process of its own: without a barrier a search may not end, which is noticed, too.
    child = get_context("spawn").Process(target=searches, args=(tmp_path,))
    child.start()
    child.join(60)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    line = text.count("\n", 0, begin) + 1
    assert hangs or child.exitcode != 0, f"{name}:{line}: {call} can be removed and nobody notices"
