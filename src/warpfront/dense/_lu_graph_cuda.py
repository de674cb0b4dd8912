"""The LU of ``_lu_panel_cuda`` made fast to queue: buffers that stay, and a captured graph from the second call on.

A factorisation of order 2048 is two hundred launches. A graph replays them for the price of one, on buffers of its own:
the matrix is copied in and the factors are copied out, which costs microseconds. Several of a kind are kept, so that
streams can work side by side; an event makes the next user of one wait for the last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from warpfront.dense import _lu_panel_cuda as panels
from warpfront.dense._blas_cuda import Blas, blas
from warpfront.dense._lu_sweeps_cuda import invert_on
from warpfront.dense.transpose import transpose

__all__ = ["factor_panels", "invert_batch", "invert_one", "make_room", "queue_ahead", "solve_triangles"]

GRID_ROWS = 65535  # matrices of one launch: the second number of a grid
AHEAD_ORDER = 129  # from four panels on
GRAPH_BYTES = 64 << 20  # matrices that a kept graph may hold; longer ones take longer than their launches
KEPT, OF_A_KIND = (
    4,
    4,
)  # kinds of graphs that are kept, and of each: 1.5 GB with cuBLAS's room at the very most
_kinds: dict[tuple[str, int, int, int], list[_Held]] = {}
_lock = threading.Lock()
_own = threading.local()


def inverse_parts(n: int) -> int:
    """Return the block columns whose zeros the first solve of an inverse leaves out: as many as pay, measured."""
    return 1 if n <= 2048 else 2 if n <= 4096 else 4


def looks_ahead(n: int, batch: int) -> bool:
    """Whether the next block column is factored beside the update of the others: a batch fills the GPU by itself."""
    return batch == 1 and n >= AHEAD_ORDER


def queue_ahead(
    lu: Any,
    pivots: Any,
    room: Any,
    stream: int,
    outer: int | None = None,
    products: Callable[[Any, int], Any] = lambda routines, stream: routines,
) -> None:
    """Queue the factorisation of one matrix: block columns on a stream of high priority, the rest on ``stream``.

    Parameters
    ----------
    lu, pivots, room, outer
        As for `panels.factor_on`.
    stream : int
        Holds what was queued before, and waits for the result.
    products : callable
        Makes the routines of a stream from `Blas` on it and its handle.
    """
    chain, name, device = _chain(lu.device.id), lu.dtype.name, lu.device.id
    panels.follow(stream, chain.ptr)
    first, second = (products(blas(name, at, device), at) for at in (chain.ptr, stream))
    outer = outer or panels.outer_width(lu.shape[1], True)
    panels.factor_on(lu, pivots, room, first, chain.ptr, outer, panels.Side(stream, second))
    panels.follow(chain.ptr, stream)


def _chain(device: int) -> Any:
    """Return this thread's stream of high priority on a device."""
    import cupy

    found: dict[int, Any] = _own.__dict__.setdefault("chains", {})
    if device not in found:
        with cupy.cuda.Device(device):
            found[device] = cupy.cuda.Stream(non_blocking=True, priority=-5)  # or the highest there is
    return found[device]


def make_room(n: int, batch: int, dtype: str, outer: int | None = None) -> tuple[Any, Any, Any]:
    """Return what `panels.factor_on` works in, on the current stream."""
    import cupy

    entries, mail = panels.scratch(n, batch, dtype, outer or panels.outer_width(n, looks_ahead(n, batch)))
    counters = cupy.zeros(entries * 4 // panels.LIST_BYTES, np.uint32)
    return cupy.empty(entries, np.int32), cupy.empty(mail, np.uint8), counters


class _Held:
    """Buffers of one kind of factorisation, and its graph once it has run."""

    def __init__(self, dtype: str, n: int, batch: int, device: int) -> None:
        import cupy

        self.stream = cupy.cuda.Stream(non_blocking=True)
        with self.stream:
            self.lu, self.pivots = cupy.empty((batch, n, n), dtype), cupy.empty((batch, n), np.int32)
            self.room = make_room(n, batch, dtype)
        self.routines = [Blas(dtype, self.stream.ptr, device)]
        if looks_ahead(n, batch):
            self.chain = cupy.cuda.Stream(non_blocking=True, priority=-5)
            self.routines.append(Blas(dtype, self.chain.ptr, device))
        self.stream.synchronize()
        self.done = cupy.cuda.Event(disable_timing=True)
        self.graph: Any = None

    def run(self, matrices: Any) -> tuple[Any, Any]:
        """Factor on the current stream; nothing is waited for. The caller holds the lock."""
        import cupy

        current = cupy.cuda.get_current_stream()
        current.wait_event(self.done)
        transpose(matrices, out=self.lu)
        self.graph.launch(current)
        result = self.lu.copy(), self.pivots.copy()
        self.done.record(current)
        return result

    def capture(self) -> None:
        with self.stream:
            self.stream.begin_capture()
            try:
                self.room[2].data.memset_async(0, self.room[2].nbytes, self.stream)
                self._queue()
            finally:
                self.graph = self.stream.end_capture()

    def _queue(self) -> None:
        at, work = self.stream.ptr, (self.lu, self.pivots, self.room)
        if len(self.routines) == 1:
            panels.factor_on(*work, self.routines[0], at)
            return
        panels.follow(at, self.chain.ptr)
        outer = panels.outer_width(self.lu.shape[1], True)
        side = panels.Side(at, self.routines[0])
        panels.factor_on(*work, self.routines[1], self.chain.ptr, outer, side)
        panels.follow(self.chain.ptr, at)


def _direct(matrices: Any) -> tuple[Any, Any]:
    import cupy

    batch, n = matrices.shape[:2]
    lu = transpose(matrices)
    pivots, stream = cupy.empty((batch, n), np.int32), int(cupy.cuda.get_current_stream().ptr)
    room = make_room(n, batch, lu.dtype.name)
    if looks_ahead(n, batch):
        queue_ahead(lu, pivots, room, stream)
    else:
        panels.factor_on(lu, pivots, room, blas(lu.dtype.name, stream, lu.device.id), stream)
    return lu, pivots


def factor_panels(matrices: Any) -> tuple[Any, Any]:
    """Factor a batch of real matrices [batch, n, n] on CuPy's current stream; they are read.

    Returns
    -------
    lu : cupy array [batch, n, n]
        Column-major factors.
    pivots : cupy int32 [batch, n]
        Counted from 1.
    """
    import cupy

    batch, n = matrices.shape[:2]
    if batch > GRID_ROWS:
        parts = [factor_panels(matrices[k : k + GRID_ROWS]) for k in range(0, batch, GRID_ROWS)]
        return cupy.concatenate([lu for lu, _ in parts]), cupy.concatenate([pivots for _, pivots in parts])
    key = (matrices.dtype.name, n, batch, matrices.device.id)
    if matrices.nbytes > GRAPH_BYTES:
        return _direct(matrices)
    with _lock:
        known = _kinds.pop(key, None)
        if known is None:  # the first of a kind compiles and loads, which a capture must not
            _kinds[key] = []
            while len(_kinds) > KEPT:
                _kinds.pop(next(iter(_kinds)))
            known = None
        else:
            _kinds[key] = known
    if known is None:
        return _direct(matrices)
    with _lock:
        held = next((one for one in known if one.done.done), None)
        if held is None and len(known) < OF_A_KIND:
            held = _Held(*key)
            held.capture()
            known.append(held)
        elif held is None:
            known.append(known.pop(0))
            held = known[-1]
        return held.run(matrices)


def _order(pivots: Any, stream: int) -> tuple[Any, Any]:
    """Queue `lu_order` for pivots [..., n]; returns the order and its inverse."""
    import cupy

    n, device = pivots.shape[-1], pivots.device.id
    order, place = cupy.empty_like(pivots), cupy.empty_like(pivots)
    args = (pivots.data.ptr, order.data.ptr, place.data.ptr, n)
    kernel = panels.cuda_load("lu_order", device)
    kernel.launch(stream, pivots.size // n, panels.ORDER_THREADS, args, 8 * n)
    return order, place


def solve_triangles(lu: Any, pivots: Any, x: Any, block: int | None = None) -> Any:
    """Solve with one matrix's factors: ``x`` [count, n] holds columns; returns a new array.

    Triangles of ``block`` rows and products with what is below or above them in turn; of all rows by default.
    """
    import cupy

    n, count, stream = len(lu), len(x), int(cupy.cuda.get_current_stream().ptr)
    routines, item = blas(lu.dtype.name, stream, lu.device.id), lu.itemsize
    result, wide = x[:, _order(pivots, stream)[0]], block or n
    at, right = lu.data.ptr, result.data.ptr
    starts = range(0, n, wide)
    for upper in (False, True):
        for first in reversed(starts) if upper else starts:
            many = min(wide, n - first)
            here, corner = right + first * item, at + first * (n + 1) * item
            routines.solve_triangle(upper, many, count, corner, n, here, n)
            if upper and first:
                routines.subtract_product(first, count, many, at + first * n * item, here, right, n)
            elif not upper and first + many < n:
                down = many * item
                routines.subtract_product(n - first - many, count, many, corner + down, here, here + down, n)
    return result


def invert_one(lu: Any, pivots: Any, out: Any) -> None:
    """Write the inverse, by rows, from one matrix's factors: two triangular solves for the unit vectors.

    The order of its columns is found beside the solves, on the stream of high priority.
    """
    import cupy

    n, device, kind = len(lu), lu.device.id, lu.dtype.name
    stream, chain = int(cupy.cuda.get_current_stream().ptr), _chain(lu.device.id)
    routines, item, at = blas(kind, stream, device), lu.itemsize, lu.data.ptr
    solution = cupy.zeros((n, n), lu.dtype)
    panels.follow(stream, chain.ptr)
    _, place = _order(pivots, chain.ptr)
    solution.reshape(-1)[:: n + 1] = 1
    wide = -(-n // inverse_parts(n))
    for first in range(0, n, wide):  # columns of L^-1 from their diagonal on
        corner = first * (n + 1) * item
        many = min(wide, n - first)
        routines.solve_triangle(False, n - first, many, at + corner, n, solution.data.ptr + corner, n)
    routines.solve_triangle(True, n, n, at, n, solution.data.ptr, n)
    panels.follow(chain.ptr, stream)
    tiles = -(-n // panels.PLACE_SIDE)
    kernel = panels.cuda_load(f"lu_place<{panels.CUDA_TYPES[kind]}>", device)
    args = (solution.data.ptr, place.data.ptr, out.data.ptr, n)
    kernel.launch(stream, (tiles, tiles), panels.PLACE_THREADS, args)


def invert_batch(lu: Any, pivots: Any) -> Any:
    """Return the inverses [batch, n, n] of a batch of real matrices from their factors, row-major, at most order 4096."""
    import cupy

    batch, n = lu.shape[:2]
    if batch > GRID_ROWS:
        parts = [slice(k, k + GRID_ROWS) for k in range(0, batch, GRID_ROWS)]
        return cupy.concatenate([invert_batch(lu[part], pivots[part]) for part in parts])
    stream = int(cupy.cuda.get_current_stream().ptr)
    x = cupy.zeros_like(lu)
    x.reshape(batch, -1)[:, :: n + 1] = 1
    invert_on(lu, x, blas(lu.dtype.name, stream, lu.device.id), stream)
    order, _ = _order(pivots, stream)
    result = cupy.empty_like(lu)
    result[cupy.arange(batch)[:, None], order] = x  # the interchanges, as columns of the inverse
    return transpose(result)
