"""Transpose on the CPU, the host's side: which loop, which threads, and views that the kernels can take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import settings
from warpfront.dense._transpose_cuda import TransposeProblem

__all__ = ["run"]

# Below this many bytes a thread costs more than it saves.
_THREAD_BYTES = 1 << 24
# NumPy's copy is the fastest loop while what it reads down a column stays in cache: a matrix narrower than this, and
# otherwise blocks of so many rows, as long as the pitch does not put them into few cache sets.
_NARROW, _ROWS = 16, {1: 512, 2: 512, 4: 512, 8: 1024, 16: 1024}
_SETS_BYTES, _CONFLICT = 4096, 512


def run(problem: TransposeProblem, dst: NDArray[Any], src: NDArray[Any]) -> None:
    """Transpose host arrays, neither of them empty; ``dst`` and ``src`` are the same memory in place."""
    size = problem.itemsize
    if not problem.in_place and (
        min(problem.m, problem.n) < _NARROW or math.gcd(problem.src_pitch, _SETS_BYTES) < _CONFLICT
    ):
        _copy_blocks(problem, dst, src)
        return
    from warpfront.dense import _transpose_cpu as kernels

    tile, carrier = kernels.TILE[size], kernels.CARRIER[size]
    work = problem.batch * problem.m * problem.n * size
    steps = [
        step // size for step in (problem.src_batch, problem.src_pitch, problem.dst_batch, problem.dst_pitch)
    ]
    columns = -(-problem.n // tile)
    strips = min(_threads(work), columns)
    if problem.in_place:
        sizes = _unsigned(problem.batch, problem.n, steps[0], steps[1], tile, 0)
        flat = _flat(dst, carrier)
        # Tile rows of the triangle shorten towards the end: dealt out in turn, the strips weigh the same.
        _together([(kernels.transpose_square, (flat, sizes, *_unsigned(k, strips))) for k in range(strips)])
    else:
        sizes = _unsigned(problem.batch, problem.m, problem.n, *steps, tile, 0)
        both = (_flat(src, carrier), _flat(dst, carrier), sizes)
        edges = _unsigned(*(columns * k // strips for k in range(strips + 1)))
        _together([(kernels.transpose_strip, (*both, edges[k], edges[k + 1])) for k in range(strips)])


def _copy_blocks(problem: TransposeProblem, dst: NDArray[Any], src: NDArray[Any]) -> None:
    """Transpose by NumPy's copies of blocks of rows; threads take ranges of columns."""
    m, n = problem.m, problem.n
    rows = _ROWS[problem.itemsize] if n >= _NARROW else m
    strips = min(_threads(problem.batch * m * n * problem.itemsize), max(n // _NARROW, 1))

    def strip(first: int, last: int) -> None:
        for start in range(0, m, rows):
            part = src[..., start : start + rows, first:last]
            np.copyto(dst[..., first:last, start : start + rows], np.swapaxes(part, -1, -2))

    edges = [n * k // strips for k in range(strips + 1)]
    _together([(strip, (edges[k], edges[k + 1])) for k in range(strips)])


class _Memory:
    """Memory for NumPy to view: keeps its owner alive, writable even when a read-only array lies there.

    (A read-only argument would make Numba compile a second version of a kernel that only reads it anyway.)
    """

    def __init__(self, owner: NDArray[Any], count: int, carrier: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (int(owner.__array_interface__["data"][0]), False),
            "shape": (count,),
            "typestr": np.dtype(carrier).str,
            "version": 3,
        }


def _flat(a: NDArray[Any], carrier: Any) -> NDArray[Any]:
    """A 1-D view from the first element to the last, gaps included, as integers of the element's size."""
    last = sum((size - 1) * step for size, step in zip(a.shape, a.strides, strict=True))
    return np.asarray(_Memory(a, last // a.itemsize + 1, carrier))


def _unsigned(*values: int) -> tuple[Any, ...]:
    return tuple(np.uint64(value) for value in values)


def _threads(work_bytes: int) -> int:
    if work_bytes < 2 * _THREAD_BYTES:
        return 1
    return max(1, min(settings.threads(), work_bytes // _THREAD_BYTES))


def _together(jobs: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> None:
    """Run independent strips, the first on this thread."""
    if len(jobs) == 1:
        jobs[0][0](*jobs[0][1])
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(jobs) - 1) as pool:
        waiting = [pool.submit(function, *arguments) for function, arguments in jobs[1:]]
        jobs[0][0](*jobs[0][1])
        for job in waiting:
            job.result()
