"""Launch plan of ``product.cu`` and the product of a `SparseOperator` on the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays
from warpfront.errors import InvalidValueError

__all__ = [
    "LONG_ROW",
    "SOURCE",
    "THREADS",
    "LongRows",
    "apply",
    "instantiations",
    "lanes_for",
    "split_long_rows",
]

SOURCE = Path(__file__).parent / "product.cu"
THREADS = 256
LANES = (1, 2, 4, 8, 16, 32)
LONG_ROW = 4096  # entries of a row from which it is always split
LONG_LANE = 64  # entries a thread from which a row is left to whole blocks: its warp would wait
SEGMENT = 4096  # entries of one part
CUDA_TYPES = {
    "float32": "float",
    "float64": "double",
    "complex64": "wf::complex<float>",
    "complex128": "wf::complex<double>",
}
SIGNATURES = {
    "csr_rows": "pppppiq",
    "csr_segments": "ppppp",
    "csr_finish": "ppppi",
    "ell_rows": "ppppii",
    "csr_block": "pppppii",
}


def lanes_for(rows: int, nnz: int) -> int:
    """Return the threads that share a row: the power of two nearest below half the mean row length, 1 to 32."""
    mean = nnz / max(1, rows)
    return next((lanes for lanes in reversed(LANES) if lanes <= max(1.0, mean / 2)), 1)


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


def split_long_rows(ptr: NDArray[np.int64], longest: int = LONG_ROW, segment: int = SEGMENT) -> LongRows:
    """Cut the rows longer than ``longest`` into parts of at most ``segment`` entries."""
    rows = np.flatnonzero(np.diff(ptr) > longest)
    first, segments = [0], []
    for row in rows:
        begin, end = int(ptr[row]), int(ptr[row + 1])
        segments += [(at, min(at + segment, end)) for at in range(begin, end, segment)]
        first.append(len(segments))
    parts = np.array(segments, np.int64).reshape(-1, 2)
    return LongRows(rows.astype(np.int64), np.array(first, np.int64), parts)


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that can be launched: (file, expressions, least architecture)."""
    names = [f"csr_rows<{kind}, {lanes}>" for kind in CUDA_TYPES.values() for lanes in LANES]
    for kernel in ("csr_segments", "csr_finish", "ell_rows", "csr_block"):
        names += [f"{kernel}<{kind}>" for kind in CUDA_TYPES.values()]
    return [(SOURCE, tuple(names), 75)]


class _OnDevice:
    """The matrix's arrays on one device in one element type, and its plan."""

    def __init__(self, operator: Any, kind: np.dtype[Any]) -> None:
        import cupy

        self.kind, self.type = kind, CUDA_TYPES[kind.name]
        rows = operator._rows
        self.rows, self.nnz = operator.shape[0], operator.nnz
        self.ell = operator._ell
        if self.ell is not None:
            self.ell_ind = cupy.asarray(self.ell.ind)
            self.ell_values = cupy.asarray(self.ell.values.astype(kind, copy=False))
        self.ptr, self.ind = cupy.asarray(rows.ptr), cupy.asarray(rows.ind)
        self.values = cupy.asarray(rows.values.astype(kind, copy=False))
        self.lanes = lanes_for(self.rows, self.nnz)
        self.longest = min(LONG_ROW, LONG_LANE * self.lanes)
        plan = split_long_rows(rows.ptr, self.longest)
        self.long_count, self.parts = len(plan.rows), len(plan.segments)
        if self.long_count:
            self.long_rows, self.first = cupy.asarray(plan.rows), cupy.asarray(plan.first)
            self.segments, self.partial = cupy.asarray(plan.segments), cupy.empty(self.parts, kind)

    def _launch(self, expression: str, grid: Any, args: tuple[Any, ...]) -> None:
        import cupy

        from warpfront.backend import cuda

        signature = SIGNATURES[expression.partition("<")[0]]
        kernel = cuda.load(SOURCE, expression, signature, self.ptr.device.id)
        kernel.launch(int(cupy.cuda.get_current_stream().ptr), grid, THREADS, args)

    def times_vector(self, x: Any, y: Any) -> None:
        args: tuple[Any, ...]
        at = x.data.ptr, y.data.ptr
        if self.ell is not None:
            args = (self.ell_ind.data.ptr, self.ell_values.data.ptr, *at, self.rows, len(self.ell.ind))
            self._launch(f"ell_rows<{self.type}>", -(-self.rows // THREADS), args)
            return
        matrix = self.ptr.data.ptr, self.ind.data.ptr, self.values.data.ptr
        grid = -(-self.rows * self.lanes // THREADS)
        self._launch(f"csr_rows<{self.type}, {self.lanes}>", grid, (*matrix, *at, self.rows, self.longest))
        if self.long_count:
            args = (self.segments.data.ptr, *matrix[1:], at[0], self.partial.data.ptr)
            self._launch(f"csr_segments<{self.type}>", self.parts, args)
            args = (
                self.long_rows.data.ptr,
                self.first.data.ptr,
                self.partial.data.ptr,
                at[1],
                self.long_count,
            )
            self._launch(f"csr_finish<{self.type}>", -(-self.long_count // THREADS), args)

    def times_block(self, x: Any, y: Any) -> None:
        k = x.shape[1]
        args = (
            self.ptr.data.ptr,
            self.ind.data.ptr,
            self.values.data.ptr,
            x.data.ptr,
            y.data.ptr,
            self.rows,
            k,
        )
        self._launch(f"csr_block<{self.type}>", (-(-self.rows // (THREADS // 32)), -(-k // 32)), args)


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
