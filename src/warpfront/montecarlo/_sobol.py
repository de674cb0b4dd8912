"""Sobol's direction numbers and their random scrambles.

Directions are those of Joe and Kuo (2008), which SciPy brings. A scramble is Matousek's random linear one (a lower
triangular binary matrix for each coordinate) followed by a digital shift: every point becomes uniform, the net's
structure stays, and independent scrambles give independent estimates. Its random words are Philox words of a
stream of their own, so replicate ``r`` is a function of seed and ``r``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError
from warpfront.montecarlo._run import SCRAMBLE_STREAM

__all__ = ["directions", "scrambles"]

BITS = 32
Words = NDArray[np.uint64]


@lru_cache(maxsize=4)
def directions(dims: int) -> Words:
    """Return the direction numbers of ``dims`` coordinates: (dims, 32) uint64, the first bit the highest of 32.

    Raises
    ------
    NotSupportedError
        More coordinates than there are direction numbers for.
    """
    import scipy.stats

    file = Path(scipy.stats.__file__).with_name("_sobol_direction_numbers.npz")
    if not file.is_file():
        raise NotSupportedError(f"this SciPy brings no {file.name}; Sobol points need it")
    with np.load(file) as data:
        polynomials, starts = data["poly"], data["vinit"]
    if dims > len(polynomials):
        raise NotSupportedError(
            f"there are Sobol direction numbers for {len(polynomials)} time steps, the path has {dims}"
        )
    result = np.zeros((dims, BITS), np.uint64)
    for d in range(dims):
        result[d] = [v << (BITS - 1 - j) for j, v in enumerate(_integers(d, polynomials, starts))]
    return result


def _integers(d: int, polynomials: NDArray[np.int64], starts: NDArray[np.int64]) -> list[int]:
    """Return the odd integers of one coordinate, by Bratley and Fox's recurrence."""
    if d == 0:
        return [1] * BITS
    polynomial = int(polynomials[d])
    degree = polynomial.bit_length() - 1
    v = [int(start) for start in starts[d][:degree]]
    for j in range(degree, BITS):
        value = v[j - degree]
        for k in range(degree):
            if (polynomial >> (degree - 1 - k)) & 1:
                value ^= v[j - k - 1] << (k + 1)
        v.append(value)
    return v


@lru_cache(maxsize=4)
def scrambles(dims: int, replicates: int, seed: int) -> tuple[Words, Words]:
    """Return scrambled directions (replicates, dims, 32) and digital shifts (replicates, dims), uint64."""
    plain = directions(dims)
    scrambled, shifts = np.zeros((replicates, dims, BITS), np.uint64), np.zeros((replicates, dims), np.uint64)
    for r in range(replicates):
        words = _random_words(dims * (BITS + 1), r, seed).reshape(dims, BITS + 1)
        shifts[r] = words[:, BITS]
        for row in range(BITS):
            at = BITS - 1 - row
            above = np.uint64(((1 << row) - 1) << (at + 1))
            line = (words[:, row] & above) | np.uint64(1 << at)
            parity = (np.bitwise_count(plain & line[:, None]) & 1).astype(np.uint64)
            scrambled[r] |= parity << np.uint64(at)
    return scrambled, shifts


def _random_words(count: int, replicate: int, seed: int) -> Words:
    from warpfront.montecarlo import _normal_kernels as kernels

    blocks, words = [], np.empty((4, kernels.LANES), np.uint64)
    u = np.uint64
    for first in range(0, -(-count // 4), kernels.LANES):
        key = (u(seed & 0xFFFFFFFF), u(seed >> 32))
        kernels.philox(words, u(first), u(replicate), u(SCRAMBLE_STREAM), *key)
        blocks.append(words.T.reshape(-1).copy())
    return np.concatenate(blocks)[:count]
