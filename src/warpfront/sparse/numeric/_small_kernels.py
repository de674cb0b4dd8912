"""Elimination inside a small front: a rows x rows lower triangle in scratch, all of it updated at once."""

from __future__ import annotations

from numba.extending import overload

from warpfront.backend._intrinsics import view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._dense_kernels import cholesky_columns, update
from warpfront.sparse.numeric._ldlt_kernels import ldlt_panel
from warpfront.sparse.numeric._tile_kernels import is_cholesky

__all__ = ["DELAYED", "NARROW", "eliminate_small"]

NARROW = 32  # columns of a Cholesky panel
DELAYED = 8  # column of FactorState.stats, behind the eight of ldlt_panel


def eliminate_small(rule, front, rows, full, root, work, ind, d, kind, stats):
    """Factor the first columns of a small front and update all the rest; returns the number eliminated, or -1 - column."""


@overload(eliminate_small, inline="never")
def _eliminate_small_overload(rule, front, rows, full, root, work, ind, d, kind, stats):
    return _eliminate_small_cholesky if is_cholesky(rule) else _eliminate_small_ldlt


def _eliminate_small_cholesky(rule, front, rows, full, root, work, ind, d, kind, stats):
    for k in range(0, full, NARROW):
        width = min(NARROW, full - k)
        start = k + k * rows
        bad = cholesky_columns(view(front, start, rows * rows - start), rows, rows - k, width)
        if bad >= 0:
            return -1 - k - bad
        after = k + width
        if after < rows:
            a = view(front, after + k * rows, rows * rows - after - k * rows)
            c = view(front, after + after * rows, rows * rows - after - after * rows)
            update(rule.gemm, c, rows, a, rows, a, rows, rows - after, rows - after, width, True, False)
    return full


def _eliminate_small_ldlt(rule, front, rows, full, root, work, ind, d, kind, stats):
    last_chance = rows == full or rule.perturb == 1
    force = False
    k, candidates, pass_start = 0, full, 0
    while k < full:
        k1, candidates = ldlt_panel(
            rule, front, rows, rows, full, candidates, k, force, work, rows, ind, d, kind, stats
        )
        if k1 > k and k1 < rows:
            a = view(front, k1 + k * rows, rows * rows - k1 - k * rows)
            c = view(front, k1 + k1 * rows, rows * rows - k1 - k1 * rows)
            b = view(work, k1, rows * (k1 - k) - k1)
            update(rule.gemm, c, rows, a, rows, b, rows, rows - k1, rows - k1, k1 - k, True, False)
        k = k1
        if k >= candidates and k < full:
            if k == pass_start:
                if not last_chance or force:
                    break
                force = True
            pass_start, candidates = k, full
    stats[DELAYED] += full - k
    return k


@njit(cache=True, nogil=True)
def trailing_entries(rows, done):
    """Entries of the lower triangle left behind ``done`` eliminated columns."""
    return (rows - done) * (rows - done + 1) // 2
