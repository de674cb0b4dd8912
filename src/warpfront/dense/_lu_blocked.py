"""LU with partial pivoting on the CPU: blocks of columns, shared among threads, the same bits for any number of them.

The matrix is column-major. A job ``(k, j)`` brings block column j up to date with panel k: row interchanges, triangular
solve, product; the job ``(k, k + 1)`` then factors panel k + 1, so that it is ready while other threads still work on
step k. Threads take jobs in the order ``(0, 1), (0, 2), ..., (1, 2), ...`` and wait only for earlier ones. Every job is
one call of each routine on a block fixed by n alone, with BLAS at one thread. Interchanges of the columns left of a
panel come last, all at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import run_jobs, single_threaded_blas
from warpfront.dense._lapack import Lapack, lapack

__all__ = ["condition", "factor", "invert", "row_order", "share_jobs", "solve"]

WHOLE = 512  # up to this order one call of getrf is the faster way
TINY = 64  # up to this order OpenBLAS never starts a second thread: holding it at one would cost more than the work
UNSPLIT = 192  # up to this order an inverse is two calls
RHS_BLOCK = 64  # right-hand sides of one job


def block_width(n: int) -> int:
    """Columns of a block: wide enough for the product to run at speed, narrow enough to share the work."""
    return 160 if n <= 1024 else 192 if n <= 2048 else 256


def share_jobs(threads: int, jobs: Iterable[Callable[[], None]]) -> None:
    """Run jobs on several threads, taken in order, with BLAS held at one thread."""
    with single_threaded_blas():
        run_jobs(threads, jobs)


def _one_thread(n: int) -> AbstractContextManager[None]:
    return nullcontext() if n <= TINY else single_threaded_blas()


class _Blocks:
    """One factorisation in progress."""

    def __init__(self, a: NDArray[Any], pivots: NDArray[np.int32]) -> None:
        self.n = a.shape[0]
        self.width = block_width(self.n)
        self.count = -(-self.n // self.width)
        self.call: Lapack = lapack(a.dtype.name)
        self.at, self.item = a.ctypes.data, a.itemsize
        self.pivots, self.pivots_at = pivots, pivots.ctypes.data
        self.ready = {(-1, j): threading.Event() for j in range(self.count)}
        for event in self.ready.values():
            event.set()
        self.ready |= {(k, j): threading.Event() for k in range(self.count) for j in range(k + 1, self.count)}
        self.failed: list[BaseException] = []

    def place(self, i: int, j: int) -> int:
        return int(self.at + (i + j * self.n) * self.item)

    def columns(self, j: int) -> int:
        return int(min(self.width, self.n - j * self.width))

    def panel(self, j: int) -> None:
        at = j * self.width
        self.call.getrf(self.n - at, self.columns(j), self.place(at, at), self.n, self.pivots_at + 4 * at)
        self.pivots[at : at + self.columns(j)] += at

    def update(self, k: int, j: int) -> None:
        """Bring block column j up to date with panel k."""
        try:
            self.ready[k - 1, k].wait()
            self.ready[k - 1, j].wait()
            if not self.failed:
                self._update(k, j)
        except BaseException as error:
            self.failed.append(error)
            raise
        finally:
            self.ready[k, j].set()

    def _update(self, k: int, j: int) -> None:
        n, call = self.n, self.call
        top, left, wide, high = k * self.width, j * self.width, self.columns(j), self.columns(k)
        below = n - top - high
        call.laswp(wide, self.place(0, left), n, top + 1, top + high, self.pivots_at)
        call.solve_unit_lower(high, wide, self.place(top, top), n, self.place(top, left), n)
        call.subtract_product(
            below, wide, high, self.place(top + high, top), n, self.place(top, left), n,
            self.place(top + high, left), n,
        )  # fmt: skip
        if j == k + 1:
            self.panel(j)

    def swap_left(self, j: int) -> None:
        """Interchange rows of block column j by the pivots found after it."""
        first = (j + 1) * self.width
        self.call.laswp(
            self.columns(j), self.place(0, j * self.width), self.n, first + 1, self.n, self.pivots_at
        )


def factor(a: NDArray[Any], threads: int) -> NDArray[np.int32]:
    """Factor in place, ``P A = L U``.

    Parameters
    ----------
    a : float or complex [n, n], column-major
        Overwritten by L (unit, below the diagonal) and U.
    threads : int

    Returns
    -------
    int32[n]
        Row interchanges as LAPACK counts them, from 1. Zero pivots are left in U; nothing is divided by them.
    """
    n = a.shape[0]
    pivots = np.zeros(n, np.int32)
    if n == 0:
        return pivots
    if n <= WHOLE:
        with _one_thread(n):
            lapack(a.dtype.name).getrf(n, n, a.ctypes.data, n, pivots.ctypes.data)
        return pivots
    blocks = _Blocks(a, pivots)
    with single_threaded_blas():
        blocks.panel(0)
    pairs = [(k, j) for k in range(blocks.count) for j in range(k + 1, blocks.count)]
    share_jobs(threads, (partial(blocks.update, k, j) for k, j in pairs))
    share_jobs(threads, (partial(blocks.swap_left, j) for j in range(blocks.count - 1)))
    return pivots


def condition(lu: NDArray[Any], norm1: float) -> float:
    """Return LAPACK's estimate of the reciprocal condition number in the 1-norm."""
    n = lu.shape[0]
    with _one_thread(n):
        return lapack(lu.dtype.name).gecon(n, lu.ctypes.data, n, norm1)


def solve(lu: NDArray[Any], pivots: NDArray[np.int32], b: NDArray[Any], trans: str, threads: int) -> None:
    """Solve in place for the columns of ``b`` (column-major [n, k], same dtype as ``lu``)."""
    n, count = b.shape
    if n == 0 or count == 0:
        return
    call = lapack(lu.dtype.name)

    def job(first: int) -> None:
        many = min(RHS_BLOCK, count - first)
        at = b.ctypes.data + first * n * b.itemsize
        call.getrs(trans, n, many, lu.ctypes.data, n, pivots.ctypes.data, at, n)

    if count <= RHS_BLOCK:
        with _one_thread(n):
            job(0)
    else:
        share_jobs(threads, (partial(job, first) for first in range(0, count, RHS_BLOCK)))


def invert(lu: NDArray[Any], pivots: NDArray[np.int32], threads: int) -> NDArray[Any]:
    """Return the inverse, column-major, from a factorisation without zero pivots.

    Small ones at once; else block columns of ``U^-1 L^-1`` (the rows of ``L^-1`` above a block column are zero and
    left out), then the interchanges of columns.
    """
    n = lu.shape[0]
    order = row_order(pivots)
    if n <= UNSPLIT:
        out = np.zeros((n, n), lu.dtype, order="F")
        out[np.arange(n), order] = 1  # interchanged already: no zeros to leave out, no columns to move
        with _one_thread(n):
            lapack(lu.dtype.name).solve_unit_lower(n, n, lu.ctypes.data, n, out.ctypes.data, n)
            lapack(lu.dtype.name).solve_upper(n, n, lu.ctypes.data, n, out.ctypes.data, n)
        return out
    call, item, wide = lapack(lu.dtype.name), lu.itemsize, 64 if n <= 1024 else 128
    out = np.zeros((n, n), lu.dtype, order="F")

    def job(first: int) -> None:
        many = min(wide, n - first)
        block = np.zeros((n, many), lu.dtype, order="F")
        block[np.arange(first, first + many), np.arange(many)] = 1
        at = block.ctypes.data
        corner = lu.ctypes.data + first * (n + 1) * item
        call.solve_unit_lower(n - first, many, corner, n, at + first * item, n)
        call.solve_upper(n, many, lu.ctypes.data, n, at, n)
        out[:, order[first : first + many]] = block

    share_jobs(threads, (partial(job, first) for first in range(0, n, wide)))
    return out


def row_order(pivots: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return ``order`` with ``(P A)[i] = A[order[i]]``."""
    from warpfront.dense import _load_kernels as kernels

    order: NDArray[np.int64] = kernels.row_order(pivots)
    return order
