"""CPU kernels of the generators; `generate.cu` computes the same numbers on a GPU.

Every edge is a function of (seed, edge number) alone: a counter goes through the 64-bit finaliser of
SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["grid_keep", "kronecker_edges", "uniform_edges"]


@njit(cache=True, nogil=True)
def mix(x):  # type: ignore[no-untyped-def]
    """Finalise one uint64."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def draw(seed, counter):  # type: ignore[no-untyped-def]
    """Return the random uint64 number ``counter`` of the stream ``seed``."""
    return mix(seed + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


@njit(cache=True, nogil=True)
def scramble(x, scale, seed):  # type: ignore[no-untyped-def]
    """Permute 0 … 2^scale - 1: three rounds of an odd multiple, an offset, and a shift folded in."""
    mask = (np.uint64(1) << scale) - np.uint64(1)
    half = (scale + np.uint64(1)) // np.uint64(2)
    for r in range(3):
        k = mix(seed + np.uint64(r) + np.uint64(0x5851F42D4C957F2D))
        x = (x * (k | np.uint64(1)) + (k >> np.uint64(32))) & mask
        x ^= x >> half
    return x


@njit(cache=True, nogil=True)
def kronecker_edges(tail, head, first, scale, seed):  # type: ignore[no-untyped-def]
    """Write edges ``first …`` of the Graph500 Kronecker generator: initiator 0.57, 0.19, 0.19, 0.05."""
    low = np.uint64(0xFFFFFFFF)
    for e in range(tail.shape[0]):
        base = (first + np.uint64(e)) * np.uint64(16)
        u, v = np.uint64(0), np.uint64(0)
        word = np.uint64(0)
        for level in range(scale):
            if level % 2 == 0:
                word = draw(seed, base + np.uint64(level // 2))
            r = word & low
            word >>= np.uint64(32)
            # 0.57, 0.57 + 0.19, 0.57 + 2 * 0.19 of 2^32
            right = np.uint64(1) if r >= np.uint64(2448131359) else np.uint64(0)
            u = (u << np.uint64(1)) | (np.uint64(1) if r >= np.uint64(3264175145) else np.uint64(0))
            inside = r < np.uint64(3264175145) or r >= np.uint64(4080218931)
            v = (v << np.uint64(1)) | (right if inside else np.uint64(0))
        tail[e] = np.int32(scramble(u, np.uint64(scale), seed))
        head[e] = np.int32(scramble(v, np.uint64(scale), seed))


@njit(cache=True, nogil=True)
def uniform_edges(tail, head, first, n, seed):  # type: ignore[no-untyped-def]
    """Write edges ``first …`` with both ends uniform over 0 … n - 1."""
    low = np.uint64(0xFFFFFFFF)
    for e in range(tail.shape[0]):
        word = draw(seed, first + np.uint64(e))
        tail[e] = np.int32(((word & low) * n) >> np.uint64(32))
        head[e] = np.int32(((word >> np.uint64(32)) * n) >> np.uint64(32))


@njit(cache=True, nogil=True)
def grid_keep(kept, first, threshold, seed):  # type: ignore[no-untyped-def]
    """Set ``kept[e]`` where edge number ``first + e`` of a grid stays: its draw, of 32 bits, is below the threshold."""
    for e in range(kept.shape[0]):
        kept[e] = (draw(seed, first + np.uint64(e)) >> np.uint64(32)) < threshold
