"""Batched Cholesky and LU on the CPU: sixteen systems side by side, so that SIMD runs over the batch.

A block of `LANES` systems is interleaved (element of the matrix first, system last); every statement of the
serial recurrence is then a vector statement over the systems (`_lanes_kernels`). A system that fails is
carried on with a pivot of 1 and zeroed when it is written back: no branch depends on a value. Products and
sums are rounded by themselves, in the order of `_reference`: the results have the bits of the GPU kernels.

Every index is unsigned: a signed one is tested for a negative index at each access. Division must not test
for zero: ``error_model="numpy"``. An exchange of rows goes through the rows below and exchanges with each the lanes
whose pivot it holds. Each step of a factorisation fetches its share of the next block, and of the place of its own results.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit
from warpfront.batched._lanes_kernels import (
    divide,
    divide_unless,
    gap,
    greatest,
    multiply,
    powers,
    roots,
    search,
    settle,
    subtract,
)
from warpfront.batched._moves_kernels import exchange, fetch, fetch_to_write, turn, wanted
from warpfront.batched._strips import LANES

ZERO, ONE = np.uint64(0), np.uint64(1)
NON_FINITE_INPUT, NOT_SYMMETRIC, NON_FINITE_INTERMEDIATE = np.int32(-1), np.int32(-2), np.int32(-3)
OK = np.int32(0)
_LINE = 64  # bytes of a cache line


@njit(cache=True, nogil=True, error_model="numpy")
def interleave(src, first, present, count, work):
    """Copy ``count`` elements of ``present`` systems from ``first`` on into lanes; zeros in the others."""
    start = ZERO
    if present == LANES:
        start = count - count % LANES
        for e in range(ZERO, start, LANES):
            turn(work, e * LANES, LANES, src, first * count + e, count)
    for t in range(ZERO, present):
        at = (first + t) * count
        for e in range(start, count):
            work[e * LANES + t] = src[at + e]
    for t in range(present, LANES):
        for e in range(ZERO, count):
            work[e * LANES + t] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def separate(work, first, present, count, status, dst):
    """Copy lanes back to systems; zeros for a system whose status is not 0."""
    start = ZERO
    if present == LANES:
        start = count - count % LANES
        for e in range(ZERO, start, LANES):
            turn(dst, first * count + e, count, work, e * LANES, LANES)
    for t in range(ZERO, present):
        at = (first + t) * count
        if status[t] == OK:
            for e in range(start, count):
                dst[at + e] = work[e * LANES + t]
        else:
            for e in range(ZERO, count):
                dst[at + e] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def judge(work, count, size, bound, status, code):
    """Leave the greatest size of each lane; ``code`` where it is not finite and nothing failed before."""
    for t in range(ZERO, LANES):
        size[t] = 0
    greatest(size, work, ZERO, LANES, count)
    for t in range(ZERO, LANES):
        if status[t] == OK and not size[t] <= bound:
            status[t] = code


@njit(cache=True, nogil=True, error_model="numpy")
def look_ahead(streams, n, k):
    """Fetch what step k's share is of the next block's matrices, and of the place where this block's factors go."""
    a, factor, first, line = streams
    row = n * LANES
    fetch(a, (first + LANES) * n * n + k * row, line, row // line)
    fetch_to_write(factor, first * n * n + k * row, line, row // line)


@njit(cache=True, nogil=True, error_model="numpy")
def cholesky_columns(w, n, bound, status, streams):
    """L over the lower triangle of every lane, right-looking."""
    row = n * LANES
    for j in range(ZERO, n):
        look_ahead(streams, n, j)
        d = j * row + j * LANES
        roots(w, d, status, bound, j + ONE, NON_FINITE_INTERMEDIATE)
        divide(w, d + row, row, w, d, n - j - ONE)
        for i in range(j + ONE, n):
            left = i * row + j * LANES
            subtract(w, left + LANES, LANES, w, left, w, d + row, row, i - j)


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_down(w, x, n, nrhs, unit):
    """Solve with the lower triangle, its diagonal taken as 1 if ``unit``."""
    row, step = n * LANES, nrhs * LANES
    for k in range(ZERO, n):
        d = k * row + k * LANES
        for c in range(ZERO, nrhs):
            at = k * step + c * LANES
            if not unit:
                divide(x, at, LANES, w, d, ONE)
            subtract(x, at + step, step, x, at, w, d + row, row, n - k - ONE)


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_up(w, x, n, nrhs, across):
    """Solve with an upper triangle, from the last row up; ``across``: element (r, k) is stored at (k, r)."""
    row, step = n * LANES, nrhs * LANES
    for back in range(ZERO, n):
        k = n - ONE - back
        d = k * row + k * LANES
        first, next_one = (k * row, LANES) if across else (k * LANES, row)
        for c in range(ZERO, nrhs):
            at = k * step + c * LANES
            divide(x, at, LANES, w, d, ONE)
            subtract(x, c * LANES, step, x, at, w, first, next_one, k)


@njit(cache=True, nogil=True, error_model="numpy")
def cholesky_blocks(a, b, factor, solution, status, sizes, numbers):
    """Solve the systems of some blocks.

    Parameters
    ----------
    a, factor : float[batch * n * n]
    b, solution : float[batch * n * nrhs]
    status : int32[batch]
    sizes : five uint64
        First system (a multiple of LANES), one after the last, batch, n, nrhs.
    numbers : float[4]
        Shift, rtol, atol, the largest finite number; of the type of ``a``.
    """
    begin, end, batch, n, nrhs = sizes
    shift, rtol, atol, bound = numbers[0], numbers[1], numbers[2], numbers[3]
    line = np.uint64(_LINE // a.itemsize)
    work, x = np.empty(np.int64(n * n * LANES), a.dtype), np.empty(np.int64(n * nrhs * LANES), a.dtype)
    size = np.empty(np.int64(LANES), a.dtype)
    apart, codes = np.empty(np.int64(LANES), a.dtype), np.empty(np.int64(LANES), np.int32)
    row = n * LANES
    for first in range(begin, end, LANES):
        present = min(LANES, batch - first)
        interleave(a, first, present, n * n, work)
        interleave(b, first, present, n * nrhs, x)
        for t in range(ZERO, LANES):
            codes[t] = OK
            apart[t] = 0
        judge(x, n * nrhs, size, bound, codes, NON_FINITE_INPUT)
        judge(work, n * n, size, bound, codes, NON_FINITE_INPUT)
        for i in range(ZERO, n):
            gap(apart, work, i * row, LANES, i * LANES, row, i)
        for t in range(ZERO, LANES):
            if codes[t] == OK and not apart[t] <= atol + rtol * size[t]:
                codes[t] = NOT_SYMMETRIC
        for i in range(ZERO, n):
            for t in range(ZERO, LANES):
                work[i * row + i * LANES + t] += shift
        cholesky_columns(work, n, bound, codes, (a, factor, first, line))
        sweep_down(work, x, n, nrhs, False)
        sweep_up(work, x, n, nrhs, True)
        judge(x, n * nrhs, size, bound, codes, NON_FINITE_INTERMEDIATE)
        for i in range(ZERO, n):
            for e in range(i * row + (i + ONE) * LANES, (i + ONE) * row):
                work[e] = 0
        separate(work, first, present, n * n, codes, factor)
        separate(x, first, present, n * nrhs, codes, solution)
        for t in range(ZERO, present):
            status[first + t] = codes[t]


@njit(cache=True, nogil=True, error_model="numpy")
def lu_columns(w, x, n, nrhs, best, rows, hits, piv, status, streams):
    """P A = L U of every lane, right-looking; the right-hand sides take the row exchanges."""
    row = n * LANES
    for k in range(ZERO, n):
        d = k * row + k * LANES
        look_ahead(streams, n, k)
        search(best, rows, w, d, row, k, n - k)
        settle(status, best, rows, piv, k * LANES, k + ONE)
        found = ZERO
        for i in range(k + ONE, n):
            hits[found] = i
            found += wanted(rows, i)
        exchange(w, ZERO, row, k, n, hits, found, rows)
        exchange(x, ZERO, nrhs * LANES, k, nrhs, hits, found, rows)
        divide_unless(w, d + row, row, w, d, best, n - k - ONE)
        for i in range(k + ONE, n):
            left = i * row + k * LANES
            subtract(w, left + LANES, LANES, w, left, w, d + LANES, LANES, n - k - ONE)


@njit(cache=True, nogil=True, error_model="numpy")
def lu_blocks(a, b, factor, solution, pivots, status, sizes, numbers):
    """Solve the systems of some blocks; as `cholesky_blocks`.

    ``pivots`` is int32[batch * n].
    """
    begin, end, batch, n, nrhs = sizes
    bound, line = numbers[3], np.uint64(_LINE // a.itemsize)
    work, x = np.empty(np.int64(n * n * LANES), a.dtype), np.empty(np.int64(n * nrhs * LANES), a.dtype)
    size, hits = np.empty(np.int64(LANES), a.dtype), np.empty(np.int64(n), np.uint64)
    scale, inverse = np.empty(np.int64(LANES), a.dtype), np.empty(np.int64(LANES), a.dtype)
    best, rows = np.empty(np.int64(LANES), a.dtype), np.empty(np.int64(LANES), np.int32)
    codes, piv = np.empty(np.int64(LANES), np.int32), np.empty(np.int64(n * LANES), np.int32)
    for first in range(begin, end, LANES):
        present = min(LANES, batch - first)
        interleave(a, first, present, n * n, work)
        interleave(b, first, present, n * nrhs, x)
        for t in range(ZERO, LANES):
            codes[t] = OK
        judge(x, n * nrhs, size, bound, codes, NON_FINITE_INPUT)
        judge(work, n * n, size, bound, codes, NON_FINITE_INPUT)
        powers(size, codes, scale, inverse)
        for t in range(ZERO, LANES):
            if codes[t] != OK:
                for e in range(ZERO, n * n):
                    work[e * LANES + t] = 0
        multiply(work, ZERO, LANES, scale, ZERO, n * n)
        lu_columns(work, x, n, nrhs, best, rows, hits, piv, codes, (a, factor, first, line))
        sweep_down(work, x, n, nrhs, True)
        sweep_up(work, x, n, nrhs, False)
        multiply(x, ZERO, LANES, scale, ZERO, n * nrhs)
        for i in range(ZERO, n):
            multiply(work, i * (n + ONE) * LANES, LANES, inverse, ZERO, n - i)
        judge(x, n * nrhs, size, bound, codes, NON_FINITE_INTERMEDIATE)
        judge(work, n * n, size, bound, codes, NON_FINITE_INTERMEDIATE)
        separate(work, first, present, n * n, codes, factor)
        separate(x, first, present, n * nrhs, codes, solution)
        for t in range(ZERO, present):
            status[first + t] = codes[t]
            for k in range(ZERO, n):
                pivots[(first + t) * n + k] = piv[k * LANES + t] if codes[t] == OK else np.int32(-1)
