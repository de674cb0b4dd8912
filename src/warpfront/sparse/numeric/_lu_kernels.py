"""LU of the fully summed columns of a front, threshold partial pivoting inside it.

A front lies in two arrays of the same shape, leading dimension = its rows: ``panel`` holds its first ``full`` columns
(L below the diagonal once they are eliminated), ``upper`` its first ``full`` rows, transposed (U^T, diagonal included).
Rows and columns of the fully summed block are exchanged independently; both arrays follow.

A panel is left-looking: a candidate column is brought up to date in scratch, so a rejected one costs one column update
and no repair. A pivot is taken when no entry of its column of L would exceed 1/u over the *whole* front; the diagonal
is preferred while it is at least ``rule.diagonal`` of the largest, which keeps a matched entry where it is. A rejected
column moves behind the others and is looked at again once other pivots have changed it; what is left when nothing more
is accepted is delayed (I. S. Duff and J. K. Reid, SIAM J. Sci. Stat. Comput. 5, 1984).
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import magnitude, view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._dense_kernels import subtract_columns, update

__all__ = ["PANEL", "add_square_columns", "exchange_columns", "lu_panel", "solve_upper"]

PANEL = 32


@njit(cache=True, nogil=True)
def _largest(x, begin, end):
    """First position of the largest |x[begin:end]| and its size; NaN counts as largest; (begin, 0) when empty."""
    where = begin
    best = magnitude(x[begin]) if begin < end else magnitude(x[0] * 0)
    for i in range(begin + 1, end):
        size = magnitude(x[i])
        if not size <= best and not np.isnan(best):
            best = size
            where = i
    return where, best


@njit(cache=True, nogil=True)
def _exchange_rows(panel, upper, ld, columns, full, ind, k, r):
    """Exchange rows k and r of ``columns`` columns of the panel and, where these are only the full ones, of U's rest."""
    if k == r:
        return
    for p in range(columns):
        panel[k + p * ld], panel[r + p * ld] = panel[r + p * ld], panel[k + p * ld]
    if columns == full:
        a = view(upper, full + k * ld, ld - full)
        b = view(upper, full + r * ld, ld - full)
        for i in range(ld - full):
            a[i], b[i] = b[i], a[i]
    ind[k], ind[r] = ind[r], ind[k]


@njit(cache=True, nogil=True)
def exchange_columns(panel, upper, ld, done, col, k, r):
    """Exchange columns k and r of the front, of which the first ``done`` rows of U are finished."""
    if k == r:
        return
    a = view(panel, k * ld, ld)
    b = view(panel, r * ld, ld)
    for i in range(ld):
        a[i], b[i] = b[i], a[i]
    for p in range(done):
        upper[k + p * ld], upper[r + p * ld] = upper[r + p * ld], upper[k + p * ld]
    col[k], col[r] = col[r], col[k]


@njit(cache=True, nogil=True)
def _current(panel, ld, begin, k, x):
    """Write column k into ``x[begin:ld]``, brought up to date: ``x[begin:k]`` is U, the rest what is left of the column."""
    column = view(panel, k * ld, ld)
    for i in range(begin, ld):
        x[i] = column[i]
    for p in range(begin, k):
        above = x[p]
        below = view(panel, p * ld, k)
        for i in range(p + 1, k):
            x[i] -= below[i] * above
    depth = k - begin
    if depth > 0:
        left = view(panel, begin * ld, depth * ld)
        subtract_columns(view(x, k, ld - k), left, ld, depth, k, view(x, begin, depth), 1, False, ld - k)


@njit(cache=True, nogil=True)
def _perturbed(pivot, epsilon):
    """Return a pivot of size ``epsilon`` in the direction of ``pivot``."""
    size = abs(pivot)
    if size > 0:
        return pivot / size * epsilon
    return pivot * 0 + epsilon


@njit(cache=True, nogil=True)
def lu_panel(rule, panel, upper, ld, columns, full, candidates, begin, force, x, state):
    """Eliminate up to PANEL columns from column ``begin`` on.

    Parameters
    ----------
    rule : LuRule
    panel, upper : [ld * columns], [ld * full]
        The front; read and written. ``columns`` is ``full``, or ``ld`` where the panel holds the whole front.
    candidates : int
        Columns begin..candidates are looked at; the rest was rejected in this pass.
    force : bool
        Take whatever is left: zero pivots where nothing is above ``rule.zero``, perturbed ones where ``rule.perturb``.
    x : [ld]
        Scratch.
    state : (ind, col, d, kind, stats)
        Row and column indices (permuted along), pivots at ``2k``, their kinds; counters added to: pivots, -, perturbed,
        zero, -, -, doubtful.

    Returns
    -------
    (next, candidates) : first column not eliminated, and the new end of the candidates.
    """
    ind, col, d, kind, stats = state
    k = begin
    while k < candidates and k - begin < PANEL:
        _current(panel, ld, begin, k, x)
        r, size = _largest(x, k, full)
        _, below = _largest(x, full, ld)
        diagonal = magnitude(x[k])
        accept = True
        good = 1
        if below < size or np.isnan(size):
            below = size
        if below <= rule.zero:
            accept = False
        elif diagonal >= rule.diagonal * below:
            r = k
        elif size < rule.threshold * below:
            accept = False
        if not accept and force:
            accept = True
            floor = rule.epsilon if rule.perturb == 1 else rule.zero
            if size <= floor:
                if rule.perturb == 1:
                    x[r] = _perturbed(x[r], floor)
                    stats[2] += 1
                else:
                    good = 0
                    stats[3] += 1
        if not accept:
            candidates -= 1
            exchange_columns(panel, upper, ld, begin, col, k, candidates)
            continue
        if below <= rule.doubt and good == 1:
            stats[6] += 1
        _exchange_rows(panel, upper, ld, columns, full, ind, k, r)
        x[k], x[r] = x[r], x[k]
        for p in range(begin, k):
            upper[k + p * ld] = x[p]
        pivot = x[k]
        column = view(panel, k + 1 + k * ld, ld - k - 1)
        rest = view(x, k + 1, ld - k - 1)
        kind[k] = good
        if good == 1:
            d[2 * k] = pivot
            upper[k + k * ld] = pivot
            inverse = x.dtype.type(1) / pivot
            for i in range(ld - k - 1):
                column[i] = rest[i] * inverse
            stats[0] += 1
        else:  # a component divided by infinity is zero
            d[2 * k] = 0
            upper[k + k * ld] = np.inf
            for i in range(ld - k - 1):
                column[i] = 0
        k += 1
    return k, candidates


@njit(cache=True, nogil=True)
def solve_upper(gemm, panel, upper, ld, row, rows, begin, end):
    """``W = W L^-T`` for ``W = upper[row:row+rows, begin:end]`` and the unit triangle L of columns begin..end."""
    for q in range(begin, end, PANEL):
        after = min(end, q + PANEL)
        w = view(upper, row + q * ld, (after - q - 1) * ld + rows)
        for p in range(q + 1, after):
            column = view(upper, row + p * ld, rows)
            depth = p - q
            subtract_columns(
                column, w, ld, depth, 0, view(panel, p + q * ld, (depth - 1) * ld + 1), ld, False, rows
            )
        if after < end:
            c = view(upper, row + after * ld, (end - after - 1) * ld + rows)
            b = view(panel, after + q * ld, (after - q - 1) * ld + end - after)
            update(gemm, c, ld, w, ld, b, ld, False, rows, end - after, after - q, False, False)


@njit(cache=True, nogil=True)
def add_square_columns(block, size, place, target, ld, offset, begin, end, first):
    """Add rows ``first`` on of columns begin..end of a child's block: entry (i, j) goes to ``place - offset``."""
    for j in range(begin, end):
        source = view(block, j * size, size)
        column = view(target, (place[j] - offset) * ld, ld)
        for i in range(first, size):
            column[place[i] - offset] += source[i]
