"""A model of the warp kernels' ownership: 32 lanes, a row each, padded shared memory, phases between barriers.

It repeats what `cholesky.cu` and `lu.cu` do with one system to a warp, lane by lane, in the input's own
type. `Shared` refuses what a barrier would have to separate: a read of a word that another lane wrote in the
same phase, a second writer, a write to a word that another lane read, a word outside its array or never written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.batched._reference import power_scale

__all__ = ["OwnershipError", "Shared", "cholesky_lanes", "lu_lanes"]

LANES = 32
Array = NDArray[Any]


class OwnershipError(AssertionError):
    """A phase touches shared memory in a way that no barrier orders."""


class Shared:
    """One array in shared memory, watched."""

    def __init__(self, name: str, size: int, dtype: Any) -> None:
        self.name = name
        self.values = np.zeros(size, dtype)
        self.written = np.zeros(size, bool)
        self.barrier()

    def barrier(self) -> None:
        """All accesses so far are ordered before all that follow."""
        self.writer: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}

    def _inside(self, lane: int, at: int) -> None:
        if not 0 <= at < self.values.size:
            raise OwnershipError(f"lane {lane}: {self.name}[{at}] is outside 0 to {self.values.size - 1}")

    def read(self, lane: int, at: int) -> Any:
        """Return a word as a lane sees it."""
        self._inside(lane, at)
        if not self.written[at]:
            raise OwnershipError(f"lane {lane} reads {self.name}[{at}], which nobody has written")
        if self.writer.get(at, lane) != lane:
            raise OwnershipError(
                f"lane {lane} reads {self.name}[{at}], written by lane {self.writer[at]} just now"
            )
        self.readers.setdefault(at, set()).add(lane)
        return self.values[at]

    def write(self, lane: int, at: int, value: Any) -> None:
        """Set a word on behalf of a lane."""
        self._inside(lane, at)
        if self.writer.get(at, lane) != lane:
            raise OwnershipError(f"lanes {self.writer[at]} and {lane} both write {self.name}[{at}]")
        if self.readers.get(at, {lane}) - {lane}:
            raise OwnershipError(f"lane {lane} writes {self.name}[{at}], read by another lane just now")
        self.writer[at] = lane
        self.written[at] = True
        self.values[at] = value


def _barrier(*arrays: Shared) -> None:
    for array in arrays:
        array.barrier()


def _load(a: Array, b: Array, pitch: int) -> tuple[Shared, Shared]:
    """Element e of the input goes through lane e mod 32."""
    n, nrhs = b.shape
    matrix, rhs = Shared("matrix", n * pitch, a.dtype), Shared("rhs", max(n * nrhs, 1), a.dtype)
    for e, value in enumerate(a.reshape(-1)):
        matrix.write(e % LANES, e // n * pitch + e % n, value)
    for e, value in enumerate(b.reshape(-1)):
        rhs.write(e % LANES, e, value)
    _barrier(matrix, rhs)
    return matrix, rhs


def _sweeps(matrix: Shared, rhs: Shared, n: int, nrhs: int, pitch: int, source: Any, unit: bool) -> None:
    """Both sweeps; lane = row group x right-hand side, as the kernel splits them. Shuffles carry x[k]."""
    across = 1 << max(nrhs - 1, 0).bit_length()
    groups = LANES // across
    x = {}
    for lane in range(LANES):
        s, c = divmod(lane, across)
        for row in range(s, n, groups):
            if c < nrhs:
                x[row, c] = rhs.read(lane, source(lane, row) * nrhs + c)
    if not unit:
        pass  # only LU permutes: its reads need the barrier below before the rows are written back
    _barrier(rhs)
    for down in (True, False):
        for k in range(n) if down else reversed(range(n)):
            for c in range(nrhs):
                value = x[k, c]
                for lane in range(c, LANES, across):
                    s = lane // across
                    if not (down and unit):
                        value = x[k, c] / matrix.read(lane, k * pitch + k)
                    for row in range(s, n, groups):
                        if (row > k) if down else (row < k):
                            at = k * pitch + row if not (down or unit) else row * pitch + k
                            x[row, c] = x[row, c] - matrix.read(lane, at) * value
                x[k, c] = value
    for (row, c), value in x.items():
        rhs.write(row % groups * across + c, row * nrhs + c, value)
    _barrier(matrix, rhs)


def cholesky_lanes(a: Array, b: Array) -> tuple[Array, Array]:
    """Solve one system that can be solved; returns (x, L).

    Parameters
    ----------
    a : float[n, n]
    b : float[n, nrhs]
    """
    n, nrhs = b.shape
    pitch = n | 1
    matrix, rhs = _load(a, b, pitch)
    rows = [[matrix.read(i, i * pitch + c) for c in range(n)] for i in range(n)]
    for i in range(n):  # symmetry: the mirror of every element of the row
        for c in range(i):
            matrix.read(i, c * pitch + i)
    lines = [Shared("line 0", n, a.dtype), Shared("line 1", n, a.dtype)]
    _barrier(matrix)
    for j in range(n):
        d = np.sqrt(rows[j][0])  # a shuffle from lane j
        line = lines[j % 2]
        multiplier = [a.dtype.type(0)] * n
        for i in range(n):
            if i > j:
                multiplier[i] = rows[i][0] / d
            if i >= j:
                matrix.write(i, i * pitch + j, d if i == j else multiplier[i])
            line.write(i, i - j - 1 if i > j else i - j - 1 + n, multiplier[i])
        _barrier(matrix, *lines)
        for i in range(n):
            wide = n - j - 1
            rows[i] = [rows[i][c + 1] - multiplier[i] * line.read(i, c) for c in range(wide)]
    _sweeps(matrix, rhs, n, nrhs, pitch, lambda lane, row: row, unit=False)
    low = np.tril([[matrix.values[i * pitch + c] for c in range(n)] for i in range(n)])
    return rhs.values[: n * nrhs].reshape(n, nrhs), low.astype(a.dtype)


def lu_lanes(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Solve one system that can be solved; returns (x, LU, pivots). Parameters as `cholesky_lanes`."""
    n, nrhs = b.shape
    pitch = n | 1
    matrix, rhs = _load(a, b, pitch)
    scale, inverse = (v[0] for v in power_scale(np.abs(a).max(axis=(0, 1), keepdims=True)[0]))
    rows = [[matrix.read(i, i * pitch + c) * scale for c in range(n)] for i in range(n)]
    lines = [Shared("line 0", n, a.dtype), Shared("line 1", n, a.dtype)]
    order, pivots = Shared("order", n, np.int64), Shared("pivots", n, np.int64)
    at = list(range(n))
    _barrier(matrix)
    for k in range(n):
        candidates = [(-abs(rows[i][0]), at[i], i) for i in range(n) if at[i] >= k]
        _, position, winner = min(candidates)  # warp reductions
        pivots.write(0, k, position)
        line = lines[k % 2]
        for c in range(n - k):
            line.write(winner, c, rows[winner][c])
        at = [k if i == winner else position if p == k else p for i, p in enumerate(at)]
        _barrier(matrix, *lines, pivots)
        for i in range(n):
            if at[i] > k:
                factor = rows[i][0] / line.read(i, 0)
                matrix.write(i, i * pitch + k, factor)
                rows[i] = [rows[i][c] - factor * line.read(i, c) for c in range(1, n - k)]
    for first in range(0, n, 8):
        chunk = [
            [(c, matrix.read(i, i * pitch + c)) for c in range(first, min(first + 8, at[i]))]
            for i in range(n)
        ]
        _barrier(matrix)
        for i in range(n):
            for c, value in chunk[i]:
                matrix.write(i, at[i] * pitch + c, value)
        _barrier(matrix)
    for i in range(n):
        order.write(i, at[i], i)
        for c, value in enumerate(rows[i]):
            matrix.write(i, at[i] * pitch + at[i] + c, value)
    _barrier(matrix, order)
    _sweeps(matrix, rhs, n, nrhs, pitch, lambda lane, row: int(order.read(lane, row)), unit=True)
    lu = np.array([[matrix.values[i * pitch + c] for c in range(n)] for i in range(n)], a.dtype)
    lu = np.where(np.triu(np.ones((n, n), bool)), lu * inverse, lu)
    x = rhs.values[: n * nrhs].reshape(n, nrhs) * scale
    return x, lu, pivots.values.astype(np.int32)
