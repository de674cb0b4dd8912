"""Inverses of a batch from its LU factors on the GPU: what is known is subtracted by cuBLAS, diagonal triangles are ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warpfront.dense._lu_panel_cuda import CUDA_TYPES, ROWS_COLUMNS, ROWS_THREADS, WIDTH, cuda_load

__all__ = ["Sweep", "invert_on", "sweeps"]


@dataclass(frozen=True)
class Sweep:
    """One step of the inverses of a batch: subtract what is known, then solve with a diagonal triangle.

    Attributes
    ----------
    upper : bool
    first, wide : int
        Rows that are solved for.
    known_first, known : int
        Rows that are known; none at the beginning of each sweep.
    columns : int
        Columns 0 .. columns are touched; the rest of ``L^-1`` is zero.
    """

    upper: bool
    first: int
    wide: int
    known_first: int
    known: int
    columns: int


def sweeps(n: int, width: int = WIDTH) -> Iterator[Sweep]:
    """Yield the steps of ``U^-1 (L^-1 I)``."""
    for first in range(0, n, width):
        yield Sweep(False, first, min(width, n - first), 0, first, min(n, first + width))
    for first in reversed(range(0, n, width)):
        wide = min(width, n - first)
        yield Sweep(True, first, wide, first + wide, n - first - wide, n)


def invert_on(lu: Any, x: Any, routines: Any, stream: int) -> None:
    """Queue the inverses of ``L U`` for a batch; ``x`` [batch, n, n] holds identities and is overwritten, column-major."""
    batch, n = lu.shape[:2]
    item, device, kind = lu.itemsize, lu.device.id, CUDA_TYPES[lu.dtype.name]
    at, to = lu.data.ptr, x.data.ptr
    for sweep in sweeps(n):
        row = sweep.first * item
        if sweep.known:  # left of the triangle every column of L^-1 is known, but only so many are not zero
            columns = n if sweep.upper else sweep.first
            routines.subtract_product(
                sweep.wide, columns, sweep.known, at + row + sweep.known_first * n * item,
                to + sweep.known_first * item, to + row, n, batch, n * n,
            )  # fmt: skip
        kernel = cuda_load(f"lu_triangle<{kind}, {str(sweep.upper).lower()}>", device)
        args = (at, to, n, sweep.first, sweep.wide, 0, sweep.columns)
        kernel.launch(stream, (-(-sweep.columns // ROWS_COLUMNS), batch), ROWS_THREADS, args)
