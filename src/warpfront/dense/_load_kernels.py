"""What is read of a matrix before and after its factorisation, in one pass each.

Before: its column-major copy and its column sums of absolute values.

Tiles go through a small buffer, as in the transpose (`warpfront.dense._transpose_cpu`): with a power-of-two pitch every
row of a tile falls into the same few sets of the cache. Indices are unsigned for the reason given there.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["TILE", "load_columns", "look", "row_order"]

TILE = 32


@njit(cache=True, nogil=True)
def look(lu, n):
    """Look through the pivots of column-major factors.

    Returns
    -------
    int, bool, float, float
        The first that is zero, or -1; whether all are finite; the smallest and the largest size, for complex ones that of
        the larger part.
    """
    zero, finite = -1, True
    least = most = max(abs(lu[0].real), abs(lu[0].imag))
    for k in range(n):
        pivot = lu[k * (n + 1)]
        size = max(abs(pivot.real), abs(pivot.imag))
        if not (np.isfinite(pivot.real) and np.isfinite(pivot.imag)):
            finite = False
        if size == 0 and zero < 0:
            zero = k
        least, most = min(least, size), max(most, size)
    return zero, finite, least, most


@njit(cache=True, nogil=True)
def row_order(pivots):
    """See `warpfront.dense._lu_blocked.row_order`."""
    order = np.arange(pivots.size)
    for i in range(pivots.size):
        other = np.int64(pivots[i]) - 1
        held = order[i]
        order[i] = order[other]
        order[other] = held
    return order


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
