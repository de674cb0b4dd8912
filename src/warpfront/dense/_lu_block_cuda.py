"""Launch plan of ``lu_block.cu`` and the LU of one real matrix on the GPU: our block columns, cuBLAS's products."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "SHAPES",
    "SOURCE",
    "BlockPlan",
    "all_instantiations",
    "factor_blocks",
    "instantiations",
    "plan_block",
    "solve_blocks",
    "solves_blocks",
    "subset",
    "supported",
]

SOURCE = Path(__file__).parent / "lu_block.cu"
THREADS, EXCHANGE_THREADS = 512, 256
# Rows a thread, columns of a panel: what 64 registers of data hold. Larger orders, and float64, are no faster than
# cuSOLVER this way (profile of tools/device/dense.py).
SHAPES = {"float32": ((1, 16), (2, 16), (4, 8))}
CUDA_TYPES = {"float32": "float", "float64": "double"}
MAX_ORDER_SOLVE = 16384  # two integers a row in shared memory
SIGNATURES = {"lu_block": "pqiiippppp", "lu_exchange": "pqiiipi", "lu_order": "ppi"}


@dataclass(frozen=True)
class BlockPlan:
    """How one block column is factored.

    Attributes
    ----------
    expression : str
        Kernel.
    blocks : int
        Resident blocks.
    panel : int
        Columns of a panel.
    shared_bytes : int
        The two orders of rows.
    """

    expression: str
    blocks: int
    panel: int
    shared_bytes: int


def supported(dtype: str, n: int) -> bool:
    """Whether a matrix's block columns are ours: where they fit the registers of one block."""
    return dtype in SHAPES and n <= SHAPES[dtype][-1][0] * THREADS


def solves_blocks(dtype: str, n: int) -> bool:
    """Whether `solve_blocks` takes a factor, ours or cuSOLVER's."""
    return dtype in CUDA_TYPES and n <= MAX_ORDER_SOLVE


def block_columns(n: int) -> int:
    """Return the columns of a block: the products want them wide, the panels narrow."""
    return 64 if n <= 512 else 128


def plan_block(dtype: str, rows: int, wide: int, sm_count: int, threads: int = THREADS) -> BlockPlan:
    """Plan a block column of ``wide`` columns with ``rows`` rows."""
    each, panel = next(shape for shape in SHAPES[dtype] if shape[0] * threads >= rows)
    blocks = max(1, min(sm_count, wide - min(panel, wide)))
    return BlockPlan(f"lu_block<{CUDA_TYPES[dtype]}, {each}, {panel}>", blocks, panel, 8 * rows)


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that can be launched: (file, expressions, least architecture)."""
    names = [f"lu_block<{CUDA_TYPES[d]}, {r}, {w}>" for d, shapes in SHAPES.items() for r, w in shapes]
    names += [f"lu_exchange<{CUDA_TYPES[d]}>" for d in SHAPES]
    return [(SOURCE, (*names, "lu_order"), 75)]


def all_instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return those of small orders too: what the room's build suite compiles."""
    from warpfront.dense import _lu_small_cuda as small

    return [*instantiations(), *small.instantiations()]


def subset() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return every kernel once: the largest instantiations take seconds to compile."""
    from warpfront.dense import _lu_small_cuda as small

    return [
        (SOURCE, ("lu_block<float, 4, 8>", "lu_exchange<float>", "lu_order"), 75),
        *small.instantiations(),
    ]


def cuda_load(source: Path, expression: str, signature: str, device: int) -> Any:
    """Return a loaded kernel; one place, so that a profile can stand in between."""
    from warpfront.backend import cuda

    return cuda.load(source, expression, signature, device)


def factor_blocks(lu: Any, pivots: Any, zero: Any) -> None:
    """Factor one column-major matrix in place (``lu[j, i]`` is entry i, j) on CuPy's current stream.

    Parameters
    ----------
    lu : cupy float32 [n, n]
    pivots : cupy int32 [n]
        Written, counted from 1.
    zero : cupy int32 [1]
        Written: column of the first zero pivot, or -1.
    """
    import cupy

    from warpfront.backend import capability

    n, dtype, device = len(lu), lu.dtype.name, lu.device.id
    stream, sms = int(cupy.cuda.get_current_stream().ptr), capability.probe(device).sm_count
    width = block_columns(n)
    steps = -(-n // width)
    zero[...] = -1
    # Every step has a counter and lists of its own: nothing is cleared between launches.
    counters, panel_moves = cupy.zeros(steps, np.uint32), cupy.empty((steps, 4 * 16), np.int32)
    moves = cupy.empty((steps, 4 * width), np.int32)
    exchange = cuda_load(SOURCE, f"lu_exchange<{CUDA_TYPES[dtype]}>", SIGNATURES["lu_exchange"], device)
    for step, first in enumerate(range(0, n, width)):
        wide = min(width, n - first)
        made = plan_block(dtype, n - first, wide, sms)
        kernel = cuda_load(SOURCE, made.expression, SIGNATURES["lu_block"], device)
        at = (pivots, panel_moves[step], moves[step], zero, counters[step:])
        args = (lu.data.ptr, n, n, first, wide, *(array.data.ptr for array in at))
        kernel.launch(stream, made.blocks, THREADS, args, made.shared_bytes, cooperative=True)
        if n > wide:
            args = (lu.data.ptr, n, n, first, wide, moves[step].data.ptr, 2 * wide)
            shared = 2 * wide * lu.itemsize
            exchange.launch(stream, min(n - wide, 4 * sms), EXCHANGE_THREADS, args, shared)
        if first + wide < n:
            _update(lu, first, wide)


def solve_blocks(lu: Any, pivots: Any, x: Any) -> Any:
    """Solve for many right-hand sides: ``x`` [count, n] holds column-major columns; returns a new array like it."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    n, count, letter = len(lu), len(x), "s" if lu.itemsize == 4 else "d"
    order = cupy.empty(n, np.int32)
    kernel = cuda_load(SOURCE, "lu_order", SIGNATURES["lu_order"], lu.device.id)
    stream = int(cupy.cuda.get_current_stream().ptr)
    kernel.launch(stream, 1, EXCHANGE_THREADS, (pivots.data.ptr, order.data.ptr, n), 8 * n)
    result = x[:, order]
    one = np.ones(1, lu.dtype)
    solve = getattr(cublas, letter + "trsm")
    for upper in (False, True):
        solve(
            device.get_cublas_handle(), 0, int(upper), 0, int(not upper), n, count, one.ctypes.data, lu.data.ptr, n,
            result.data.ptr, n,
        )  # fmt: skip
    return result


def _update(lu: Any, first: int, wide: int) -> None:
    """``U12 = L11^-1 A12``, ``A22 -= L21 U12`` by cuBLAS."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    n, item = len(lu), lu.itemsize
    scalars = np.array([-1, 1], lu.dtype)
    minus, one = scalars.ctypes.data, scalars.ctypes.data + item
    handle, rest = device.get_cublas_handle(), n - first - wide
    corner = lu.data.ptr + first * (n + 1) * item
    right, below = corner + wide * n * item, corner + wide * item
    cublas.strsm(handle, 0, 0, 0, 1, wide, rest, one, corner, n, right, n)
    target = right + wide * item
    cublas.sgemm(handle, 0, 0, rest, rest, wide, minus, below, n, right, n, one, target, n)
