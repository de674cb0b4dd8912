"""The SIMT runner as the machine of the GPU search, and a search on it from start to end."""

import numpy as np

from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_run import run
from warpfront.graph.result import Levels

# Small blocks: several of them, and several warps in each, on graphs of a few hundred vertices.
THREADS = {"persistent": 64, "block": 64}
BLOCKS = 3


class SimtMachine:
    """Runs each launch under the SIMT runner; arrays are NumPy's, and every finding is an error."""

    def __init__(self, schedules=2, seed=0):
        self.schedules, self.seed = schedules, seed
        self.accesses = 0
        self.launched = []

    def launch(self, kernel, blocks, threads, args, *, shared_bytes=0, cooperative=False):
        from warpfront.backend.simt import Simt

        names = [kernel.expression]
        report = Simt.build(kernel.source, names).launch(
            kernel.expression,
            blocks,
            threads,
            list(args),
            shared_bytes=shared_bytes,
            schedules=self.schedules,
            seed=self.seed,
            compare=False,  # the order of a queue is nobody's business; results are compared by the test
        )
        self.accesses += report.accesses
        self.launched.append(kernel.expression)
        assert not report.findings, "\n".join(str(f) for f in report.findings)

    def prepare(self, *args, **options):
        return lambda: self.launch(*args, **options)

    def clear(self, words, first, last):
        words.reshape(-1)[first:last] = 0

    def read(self, words, first, last):
        return words[first:last].copy()

    def mark(self):
        pass

    def resident(self, kernel, threads):
        return BLOCKS


def make_state(graph, variant, options, *, base=0, piece=None, rows=plans.LOG_ROWS):
    """The arrays of a search in host memory, as `_bfs_device` makes them in device memory."""
    n, arcs = graph.n, graph.arcs
    piece = piece or plans.piece_of(variant)
    room, words = plans.capacity(n, arcs, piece), -(-n // 32)
    pull = graph.can_pull and variant not in plans.PUSH_ONLY
    bits = np.zeros(4 * words if pull else 4, np.uint32)
    into = (graph.in_ptr, graph.in_ind) if pull else (graph.ptr, graph.ind)
    if pull:
        bits[3 * words :] = plans.closed_bits(graph.in_ptr)
    control = plans.control_words(
        options, n, arcs, can_pull=pull, symmetric=not graph.directed, piece=piece, rows=rows, base=base
    )
    return plans.State(
        ptr=graph.ptr + base,
        ind=graph.ind,
        in_ptr=into[0] + base,
        in_ind=into[1],
        dist=np.full(n, 77, np.int32),  # poisoned: a search sets every word
        parent=np.full(n, 77, np.int32),
        queue=np.full((2, room, 4), 0xABABABAB, np.uint32),
        bits=bits,
        control=control,
        n=n,
        arcs=arcs,
        packed=plans.pack_graph(graph.ptr, graph.ind) if variant == "block" else None,
    )


def search(graph, sources, variant, options, machine=None, **changes):
    """Return distances, parents (inner numbers) and the outcome."""
    machine = machine or SimtMachine()
    state = make_state(graph, variant, options, **changes)
    sources = np.unique(sources).astype(np.int64)
    outcome = run(machine, state, variant, options, sources, sources, threads=THREADS.get(variant, 64))
    return state.dist, state.parent, outcome, Levels(outcome.table)
