"""A row-major matrix read once: its column-major copy and its column sums of absolute values.

Tiles go through a small buffer, as in the transpose (`warpfront.dense._transpose_cpu`): with a power-of-two pitch every
row of a tile falls into the same few sets of the cache. Indices are unsigned for the reason given there.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["TILE", "load_columns"]

TILE = 32


@njit(cache=True, nogil=True)
def load_columns(a, lu, sums, sizes, first, last):
    """Copy tile columns ``first`` to ``last`` of a matrix and sum their absolute values.

    ``a``: row-major, ``lu``: column-major, both 1-D and of n * n entries. ``sums``: real[n], 0. ``sizes``: uint64 of
    n, the tile's side and 0.
    """
    n, tile, zero = sizes
    buffer = np.empty(np.int64(tile) * np.int64(tile), a.dtype)
    for jt in range(first, last):
        j0 = jt * tile
        width = min(tile, n - j0)
        for i0 in range(zero, n, tile):
            height = min(tile, n - i0)
            at = i0 * n + j0
            for i in range(zero, height):
                for j in range(zero, width):
                    value = a[at + i * n + j]
                    buffer[i * tile + j] = value
                    sums[j0 + j] += abs(value)
            at = j0 * n + i0
            for j in range(zero, width):
                for i in range(zero, height):
                    lu[at + j * n + i] = buffer[i * tile + j]
