"""Chunks on the CPU: threads take runs of chunks; each chunk's sums are its own, whoever computes them."""

from __future__ import annotations

import threading
from itertools import count

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import cpu, settings
from warpfront.montecarlo._run import CHANNELS, Run
from warpfront.montecarlo._tree import SumTree

__all__ = ["add_chunks", "prepare", "slab_chunks"]

# Chunks a thread takes at a time, about half a millisecond of one-step paths.
_BITE = 8


def prepare(run: Run) -> None:
    """Load the kernels, or compile them, so that no chunk waits for it."""
    from warpfront.montecarlo import _path_kernels as kernels

    nothing = np.zeros((0, CHANNELS))
    kernels.chunk_sums(nothing, 0, 0, run.coefficients[0], run.whole(0, 0), *_points(run)[0])


def slab_chunks(run: Run) -> int:
    """Return how many chunks of every series are simulated between two looks at the result."""
    work = run.n_series * max(option.n_steps for option in run.options)
    return max(_BITE, 65536 // work)


def add_chunks(
    run: Run, n_samples: int, first: int, last: int, tree: SumTree, threads: int | None = None
) -> None:
    """Simulate chunks ``first`` to ``last - 1`` of every series and add their sums to the tree.

    ``threads``: default as `warpfront.backend.settings.threads`; no bit depends on it.
    """
    from warpfront.montecarlo import _path_kernels as kernels

    out = np.zeros((run.n_series, last - first, CHANNELS))
    whole = [run.whole(k, n_samples) for k in range(len(run.options))]
    points = _points(run)
    bite = max(1, _BITE // max(option.n_steps for option in run.options))
    per_series = -(-(last - first) // bite)
    tickets, lock = count(), threading.Lock()

    def work(_: int) -> None:
        while True:
            with lock:
                ticket = next(tickets)
            series, at = divmod(ticket, per_series)
            if series >= run.n_series:
                return
            option, replicate = divmod(series, run.replicates)
            begin = first + at * bite
            end = min(begin + bite, last)
            target = out[series, begin - first : end - first]
            kernels.chunk_sums(
                target, begin, end, run.coefficients[option], whole[option], *points[replicate]
            )

    cpu.run_threads(min(threads or settings.threads(), per_series * run.n_series), work)
    tree.add(0, first, np.ascontiguousarray(out.transpose(1, 0, 2)))


def _points(run: Run) -> list[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Return directions and shifts of each replicate; placeholders for pseudo-random words."""
    if not run.settings.sobol:
        return [(np.zeros((1, 1), np.uint64), np.zeros(1, np.uint64))]
    from warpfront.montecarlo._sobol import scrambles

    directions, shifts = scrambles(run.dims, run.replicates, run.settings.seed)
    return [(directions[r], shifts[r]) for r in range(run.replicates)]
