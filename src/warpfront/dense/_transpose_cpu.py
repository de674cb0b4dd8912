"""Transpose on the CPU: cache-blocked Numba kernels, one for each element size, on strips.

A tile goes through a small buffer: reading rows of the input and writing rows of the output both touch whole
cache lines, and a power-of-two pitch, which puts every row of a tile into the same few cache sets, then costs
nothing.

Every index is unsigned: with a signed one Numba tests each access for a negative index, which made these
loops three to ten times slower.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

# Tile side in elements by element size: two buffers of it fit the first-level cache.
TILE = {1: 64, 2: 64, 4: 64, 8: 32, 16: 32}
# Integers (and complex128 for 16 bytes) move bits unchanged.
CARRIER = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


@njit(cache=True, nogil=True)
def transpose_strip(src, dst, sizes, first, last):
    """Transpose the tile columns ``first`` to ``last`` of every matrix.

    ``src``, ``dst``: 1-D views from the first element on. ``sizes``: nine uint64, in elements: batch, m, n,
    batch step and pitch of the input, the same of the output, tile side, 0. A tile column is ``tile`` columns
    of the input.
    """
    batch, m, n, src_batch, src_pitch, dst_batch, dst_pitch, tile, zero = sizes
    buffer = np.empty(np.int64(tile) * np.int64(tile), src.dtype)
    for b in range(zero, batch):
        for jt in range(first, last):
            j0 = jt * tile
            width = min(tile, n - j0)
            for i0 in range(zero, m, tile):
                height = min(tile, m - i0)
                at = b * src_batch + i0 * src_pitch + j0
                for i in range(zero, height):
                    for j in range(zero, width):
                        buffer[i * tile + j] = src[at + i * src_pitch + j]
                at = b * dst_batch + j0 * dst_pitch + i0
                for j in range(zero, width):
                    for i in range(zero, height):
                        dst[at + j * dst_pitch + i] = buffer[i * tile + j]


@njit(cache=True, nogil=True)
def transpose_square(a, sizes, first, stride):
    """Transpose square matrices in place: tile rows ``first``, ``first + stride``, … of the upper triangle.

    ``a``: 1-D view from the first element on. ``sizes``: six uint64, in elements: batch, n, batch step,
    pitch, tile side, 0.
    """
    batch, n, step, pitch, tile, zero = sizes
    upper = np.empty(np.int64(tile) * np.int64(tile), a.dtype)
    lower = np.empty(np.int64(tile) * np.int64(tile), a.dtype)
    for b in range(zero, batch):
        for i0 in range(first * tile, n, stride * tile):
            height = min(tile, n - i0)
            for j0 in range(i0, n, tile):
                width = min(tile, n - j0)
                ij, ji = b * step + i0 * pitch + j0, b * step + j0 * pitch + i0
                for i in range(zero, height):
                    for j in range(zero, width):
                        upper[i * tile + j] = a[ij + i * pitch + j]
                for j in range(zero, width):
                    for i in range(zero, height):
                        lower[j * tile + i] = a[ji + j * pitch + i]
                for j in range(zero, width):
                    for i in range(zero, height):
                        a[ji + j * pitch + i] = upper[i * tile + j]
                for i in range(zero, height):
                    for j in range(zero, width):
                        a[ij + i * pitch + j] = lower[j * tile + i]
