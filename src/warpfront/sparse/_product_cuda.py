"""Launch plan of ``product.cu`` and the product of a `SparseOperator` on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays
from warpfront.errors import InvalidValueError

__all__ = [
    "BLOCK_ROW",
    "LONG_ROW",
    "SOURCE",
    "THREADS",
    "Balanced",
    "LongRows",
    "apply",
    "balance",
    "instantiations",
    "lanes_for",
    "short_row",
    "split_long_rows",
    "spread",
]

SOURCE = Path(__file__).parent / "product.cu"
THREADS = 256
LANES = (1, 2, 4, 8, 16, 32)
LONG_ROW = 2048  # entries of a row up to which a warp may own it
SHORT_LANE = 16  # entries a thread up to which a row may be, where a few threads own it: its neighbours wait
CHUNK = 2048  # entries that a block takes together
# For a block of vectors: entries of a row from which blocks share it, and of a part.
BLOCK_ROW, BLOCK_SEGMENT = 256, 1024
TYPICAL = 4  # times the mean: rows up to this length say how many threads share a row
CUDA_TYPES = {
    "float32": "float",
    "float64": "double",
    "complex64": "wf::complex<float>",
    "complex128": "wf::complex<double>",
}
SIGNATURES = {
    "csr_rows": "pppppi",
    "csr_balanced": "pppppppppp",
    "csr_finish": "ppppii",
    "ell_rows": "ppppii",
    "csr_block": "pppppiiqpip",
}


def lanes_for(ptr: NDArray[np.int64]) -> int:
    """Return the threads that share a short row.

    The power of two nearest below half the mean length of the rows that are not far longer than the mean of all, 1 to 32.
    """
    lengths = np.diff(ptr)
    if not lengths.size:
        return 1
    typical = lengths[lengths <= TYPICAL * lengths.mean()].mean()
    return next((lanes for lanes in reversed(LANES) if lanes <= max(1.0, typical / 2)), 1)


def short_row(lanes: int) -> int:
    """Return the entries up to which a row is short."""
    return LONG_ROW if lanes == LANES[-1] else SHORT_LANE * lanes


@dataclass(frozen=True)
class LongRows:
    """Rows that are split.

    Attributes
    ----------
    rows : int64[count]
    first : int64[count + 1]
        Each row's segments.
    segments : int64[parts, 2]
        Entry ranges.
    """

    rows: NDArray[np.int64]
    first: NDArray[np.int64]
    segments: NDArray[np.int64]


def split_long_rows(
    ptr: NDArray[np.int64], longest: int = BLOCK_ROW, segment: int = BLOCK_SEGMENT
) -> LongRows:
    """Cut the rows longer than ``longest`` into parts of at most ``segment`` entries."""
    rows = np.flatnonzero(np.diff(ptr) > longest)
    first, segments = [0], []
    for row in rows:
        begin, end = int(ptr[row]), int(ptr[row + 1])
        segments += [(at, min(at + segment, end)) for at in range(begin, end, segment)]
        first.append(len(segments))
    parts = np.array(segments, np.int64).reshape(-1, 2)
    return LongRows(rows.astype(np.int64), np.array(first, np.int64), parts)


@dataclass(frozen=True)
class Balanced:
    """Blocks of `CHUNK` entries, wherever rows end.

    Attributes
    ----------
    ends : uint8[blocks * CHUNK / 8]
        A bit an entry, set for the last of a row.
    starts : int64[blocks]
        Twice the number, among rows that are not empty, of the row of the block's first entry; 1 more where it began before.
    names : int64[count] or None
        The rows that are not empty; None where none is empty.
    origin : int32[blocks]
        The block in which the row of the block's first entry began.
    """

    ends: NDArray[np.uint8]
    starts: NDArray[np.int64]
    names: NDArray[np.int64] | None
    origin: NDArray[np.int32]


def balance(ptr: NDArray[np.int64]) -> Balanced:
    """Plan `csr_balanced` for a matrix with entries."""
    rows = np.flatnonzero(np.diff(ptr))
    begin, end = ptr[rows], ptr[rows + 1]
    blocks = -(-int(ptr[-1]) // CHUNK)
    last = np.zeros(blocks * CHUNK, np.uint8)
    last[end - 1] = 1
    edges = np.arange(blocks, dtype=np.int64) * CHUNK
    rank = np.searchsorted(end, edges, side="right")
    names = None if len(rows) == len(ptr) - 1 else rows
    origin = (begin[rank] // CHUNK).astype(np.int32)
    return Balanced(np.packbits(last, bitorder="little"), 2 * rank + (begin[rank] < edges), names, origin)


def spread(entries: NDArray[Any]) -> NDArray[Any]:
    """Return entries as `csr_balanced` reads them: 16 bytes of every thread side by side, then the next 16 of each."""
    width = 16 // entries.itemsize
    padded = np.zeros(-(-len(entries) // CHUNK) * CHUNK, entries.dtype)
    padded[: len(entries)] = entries
    packs = padded.reshape(-1, THREADS, CHUNK // THREADS // width, width)
    return np.ascontiguousarray(packs.swapaxes(1, 2)).reshape(-1)


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that can be launched: (file, expressions, least architecture)."""
    names = [f"csr_rows<{kind}, {lanes}>" for kind in CUDA_TYPES.values() for lanes in LANES]
    for kernel in ("csr_balanced", "csr_finish", "ell_rows", "csr_block"):
        names += [f"{kernel}<{kind}>" for kind in CUDA_TYPES.values()]
    return [(SOURCE, tuple(names), 75)]


class _LongOnDevice:
    """`LongRows` on the device."""

    def __init__(self, plan: LongRows) -> None:
        import cupy

        self.count, self.parts = len(plan.rows), len(plan.segments)
        self.rows, self.first = cupy.asarray(plan.rows), cupy.asarray(plan.first)
        self.segments = cupy.asarray(plan.segments)


class _BalancedOnDevice:
    """`Balanced` on the device, and the matrix's entries in its order."""

    def __init__(self, plan: Balanced, ind: NDArray[np.int32], values: NDArray[Any]) -> None:
        import cupy

        self.blocks = len(plan.starts)
        self.ends, self.starts = cupy.asarray(plan.ends), cupy.asarray(plan.starts)
        self.names = None if plan.names is None else cupy.asarray(plan.names)
        self.origin = cupy.asarray(plan.origin)
        self.ind, self.values = cupy.asarray(spread(ind)), cupy.asarray(spread(values))
        self._carried: dict[int, tuple[Any, Any]] = {}

    def carried(self, stream: int) -> tuple[Any, Any]:
        """Room and flags of launches on one stream: two at a time must not share them."""
        import cupy

        if stream not in self._carried:
            if len(self._carried) >= 8:
                self._carried.clear()
            room = cupy.empty(self.blocks, self.values.dtype), cupy.zeros(self.blocks, np.uint32)
            self._carried[stream] = room
        return self._carried[stream]


class _OnDevice:
    """The matrix's arrays on one device in one element type, and its plan."""

    def __init__(self, operator: Any, kind: np.dtype[Any], *, balanced: bool = False) -> None:
        import cupy

        self.kind, self.type = kind, CUDA_TYPES[kind.name]
        rows = operator._rows
        self.rows, self.nnz = operator.shape[0], operator.nnz
        self.ell = operator._ell
        if self.ell is not None:
            self.ell_ind = cupy.asarray(self.ell.ind)
            self.ell_values = cupy.asarray(self.ell.values.astype(kind, copy=False))
        self.given, self.device = rows, int(cupy.cuda.runtime.getDevice())
        self.lanes = lanes_for(rows.ptr)
        self.alike = int(np.diff(rows.ptr).max(initial=0)) <= short_row(self.lanes)
        self.balanced: _BalancedOnDevice | None = None
        if self.nnz and (balanced or not self.alike):
            values = rows.values.astype(kind, copy=False)
            self.balanced = _BalancedOnDevice(balance(rows.ptr), rows.ind, values)
        self.long_block = _LongOnDevice(split_long_rows(rows.ptr))
        self.partial: dict[int, Any] = {}

    @cached_property
    def ptr(self) -> Any:
        """Where rows begin, on the device: made when a product first asks for rows as they are."""
        import cupy

        return cupy.asarray(self.given.ptr)

    @cached_property
    def ind(self) -> Any:
        """Columns, as `ptr`."""
        import cupy

        return cupy.asarray(self.given.ind)

    @cached_property
    def values(self) -> Any:
        """Entries, as `ptr`."""
        import cupy

        return cupy.asarray(self.given.values.astype(self.kind, copy=False))

    def _room(self, parts: int, k: int) -> Any:
        """Partial sums of ``parts`` parts and ``k`` columns, kept."""
        import cupy

        if k not in self.partial:
            if len(self.partial) >= 4:
                self.partial.clear()
            self.partial[k] = cupy.empty(max(1, parts * k), self.kind)
        return self.partial[k]

    def _launch(self, expression: str, grid: Any, args: tuple[Any, ...], shared: int = 0) -> None:
        import cupy

        from warpfront.backend import cuda

        signature = SIGNATURES[expression.partition("<")[0]]
        kernel = cuda.load(SOURCE, expression, signature, self.device)
        kernel.launch(int(cupy.cuda.get_current_stream().ptr), grid, THREADS, args, shared)

    def times_vector(self, x: Any, y: Any) -> None:
        args: tuple[Any, ...]
        at = x.data.ptr, y.data.ptr
        if self.ell is not None:
            args = (self.ell_ind.data.ptr, self.ell_values.data.ptr, *at, self.rows, len(self.ell.ind))
            self._launch(f"ell_rows<{self.type}>", -(-self.rows // THREADS), args)
            return
        if self.balanced is not None:
            self._times_balanced(self.balanced, at, y)
            return
        matrix = self.ptr.data.ptr, self.ind.data.ptr, self.values.data.ptr
        grid = -(-self.rows * self.lanes // THREADS)
        self._launch(f"csr_rows<{self.type}, {self.lanes}>", grid, (*matrix, *at, self.rows))

    def _times_balanced(self, held: _BalancedOnDevice, at: tuple[int, int], y: Any) -> None:
        import cupy

        names = 0
        if held.names is not None:
            y.fill(0)  # empty rows
            names = held.names.data.ptr
        room, flags = held.carried(int(cupy.cuda.get_current_stream().ptr))
        args = (
            held.ind.data.ptr, held.values.data.ptr, *at, held.ends.data.ptr, held.starts.data.ptr, names,
            held.origin.data.ptr, room.data.ptr, flags.data.ptr,
        )  # fmt: skip
        self._launch(f"csr_balanced<{self.type}>", held.blocks, args)

    def _finish(self, long: _LongOnDevice, partial: Any, y: Any, k: int) -> None:
        if long.count:
            args = (long.rows.data.ptr, long.first.data.ptr, partial.data.ptr, y.data.ptr, long.count, k)
            self._launch(f"csr_finish<{self.type}>", -(-long.count * k // THREADS), args)

    def times_block(self, x: Any, y: Any) -> None:
        k, long = x.shape[1], self.long_block
        partial = self._room(long.parts, k)
        args = (
            self.ptr.data.ptr, self.ind.data.ptr, self.values.data.ptr, x.data.ptr, y.data.ptr, self.rows, k, BLOCK_ROW,
            long.segments.data.ptr, long.parts, partial.data.ptr,
        )  # fmt: skip
        grid = long.parts + -(-self.rows // (THREADS // 32))
        self._launch(f"csr_block<{self.type}>", (grid, -(-k // 32)), args)
        self._finish(long, partial, y, k)


def apply(operator: Any, x: Any, out: Any) -> Any:
    """Product of a `SparseOperator` with a vector or block: NumPy in, NumPy out; device arrays stay."""
    import cupy

    from warpfront.sparse.products import _checked

    library = arrays.library_of(x)
    moved = cupy.asarray(x) if library is None else arrays.as_device_array(x)
    kind = np.result_type(operator.dtype, _checked(np.dtype(moved.dtype)))
    held = operator.__dict__.setdefault("_on_device", {})
    if kind.name not in held:
        held[kind.name] = _OnDevice(operator, kind)
    moved = cupy.ascontiguousarray(moved, dtype=kind)
    shape = (operator.shape[0], *moved.shape[1:])
    if out is not None and (arrays.library_of(out) != "cupy" or out.shape != shape or out.dtype != kind):
        raise InvalidValueError(f"out must be a CuPy array of shape {shape} and type {kind}")
    y = cupy.empty(shape, kind) if out is None else out
    if y.size:
        if not operator.nnz:
            y[...] = 0
        elif moved.ndim == 1:
            held[kind.name].times_vector(moved, y)
        else:
            held[kind.name].times_block(moved, y)
    if out is not None:
        return out
    if library is None:
        return cupy.asnumpy(y)
    if library == "torch":
        import torch

        return torch.from_dlpack(y)
    return arrays.to_library(y, library)
