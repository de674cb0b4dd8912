"""A refined solve for `LANES` right-hand sides at a time: every panel is read once for all of them.

Vectors are [n, LANES] in C order, flat. Each right-hand side has the bits it has alone: every sum is that of
`_sweep_kernels` and `_residual_kernels`, element by element. Real types, symmetric factors, one thread; threads take
different blocks of right-hand sides.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._bundle import bundle
from warpfront.backend._intrinsics import magnitude, view
from warpfront.backend.jit import njit
from warpfront.sparse.solve._lanes_kernels import (
    LANES,
    add_row,
    copy_row,
    divide_row,
    dots,
    four_dots,
    muladd,
    scale_row,
    subtract_row,
    take_row,
    updates,
)
from warpfront.sparse.solve._refined_kernels import GOOD_ENOUGH
from warpfront.sparse.solve._sweep_kernels import (
    DIAGONAL,
    DONE,
    IND_AT,
    PANEL_AT,
    PIVOT_AT,
    RECIPROCAL,
    ROWS,
    SMALL_FRONT,
    UNIT,
)

__all__ = ["refined_many"]


@njit(cache=True, nogil=True)
def _divide(t, k, diagonal, unit, small, d):
    if unit == RECIPROCAL and small:
        scale_row(t, k * LANES, t, k * LANES, d[2 * k])
    elif unit != UNIT:
        divide_row(t, k * LANES, t, k * LANES, diagonal)


@njit(cache=True, nogil=True)
def _forward(sides, s, x, y, owed, t):
    """`forward_node`. The row behind the front's in ``t`` is zero: it fills up blocks of less than four columns."""
    node = sides.node
    rows, done, small = node[s, ROWS], node[s, DONE], node[s, ROWS] <= SMALL_FRONT
    ind = view(sides.forward_ind, node[s, IND_AT], rows)
    d = view(sides.diagonal, 2 * node[s, PIVOT_AT], 2 * done)
    panel = view(sides.forward, node[s, PANEL_AT], rows * done)
    for c in range(LANES):
        t[rows * LANES + c] = 0
    for i in range(rows):
        copy_row(owed, ind[i] * LANES, t, i * LANES)
    for i in range(done):
        copy_row(t, rows * LANES, owed, ind[i] * LANES)
    j = 0
    while j < done:
        block = min(4, done - j)
        for k in range(j, j + block):
            add_row(x, ind[k] * LANES, t, k * LANES)
            _divide(t, k, panel[k + k * rows], sides.forward_unit, small, d)
            for i in range(k + 1, j + block):
                take_row(t, k * LANES, t, i * LANES, panel[i + k * rows])
        begin = j + block
        v1, v2, v3 = rows, rows, rows
        if block > 1:
            v1 = j + 1
        if block > 2:
            v2 = j + 2
        if block > 3:
            v3 = j + 3
        one, two, three = min(1, block - 1) * rows, min(2, block - 1) * rows, (block - 1) * rows
        updates(
            panel, begin + j * rows, one, two, three,
            t, j * LANES, v1 * LANES, v2 * LANES, v3 * LANES, t, begin * LANES, LANES, rows - begin,
        )  # fmt: skip
        j = begin
    for i in range(done):
        copy_row(t, i * LANES, y, ind[i] * LANES)
    for i in range(done, rows):
        copy_row(t, i * LANES, owed, ind[i] * LANES)


@njit(cache=True, nogil=True)
def _divide_by_d(d, kind, done, t):
    k = 0
    while k < done:
        row = view(t, k * LANES, LANES)
        if kind[k] == 2:
            second = view(t, (k + 1) * LANES, LANES)
            off = d[2 * k + 1]
            p, q = d[2 * k] / off, d[2 * k + 2] / off
            scale = muladd(p, q, d.dtype.type(-1))
            for c in range(LANES):
                u, v = row[c], second[c]
                row[c] = muladd(q, u / off, -v / off) / scale
                second[c] = muladd(p, v / off, -u / off) / scale
            k += 2
        else:
            for c in range(LANES):
                row[c] = row[c] / d[2 * k] if kind[k] == 1 else row[c] * 0
            k += 1


@njit(cache=True, nogil=True)
def _backward(sides, s, parts, y, t, sums):
    """`backward_node`."""
    node = sides.node
    rows, done, at = node[s, ROWS], node[s, DONE], node[s, PIVOT_AT]
    small = rows <= SMALL_FRONT
    ind = view(sides.backward_ind, node[s, IND_AT], rows)
    d = view(sides.diagonal, 2 * at, 2 * done)
    panel = view(sides.backward, node[s, PANEL_AT], rows * done)
    for i in range(rows):
        copy_row(y, ind[i] * LANES, t, i * LANES)
    if parts & DIAGONAL:
        _divide_by_d(d, view(sides.kind, at, done), done, t)
    j = done
    while j > 0:
        begin = j
        j -= min(4, j)
        last = begin - 1 - j
        if small:
            one, two, three = min(1, last) * rows, min(2, last) * rows, min(3, last) * rows
            four_dots(panel, begin + j * rows, one, two, three, t, begin * LANES, LANES, rows - begin, sums)
        for k in range(j, begin):
            if not small:
                dots(
                    panel,
                    begin + k * rows,
                    t,
                    begin * LANES,
                    LANES,
                    rows - begin,
                    view(sums, (k - j) * LANES, LANES),
                )
            subtract_row(sums, (k - j) * LANES, t, k * LANES)
        for q in range(begin - j):
            k = begin - 1 - q
            for i in range(k + 1, begin):
                take_row(t, i * LANES, t, k * LANES, panel[i + k * rows])
            _divide(t, k, panel[k + k * rows], sides.backward_unit, small, d)
    for i in range(done):
        copy_row(t, i * LANES, y, ind[i] * LANES)


@njit(cache=True, nogil=True)
def _sweep(plan, sides, work):
    """`sweep_alone` for a block."""
    x, y, owed, stored, t, sums = work.x, work.y, work.owed, work.stored, work.t, work.sums
    node, tasks, trunk = sides.node, plan.task_begin.size, plan.trunk.size
    for c in range(LANES):
        sums[4 * LANES + c] = 0
    for task in range(tasks):
        last = plan.task_end[task]
        for s in range(plan.task_begin[task], last + 1):
            _forward(sides, s, x, y, owed, t)
        for i in range(node[last, ROWS] - node[last, DONE]):
            at = sides.forward_ind[node[last, IND_AT] + node[last, DONE] + i] * LANES
            copy_row(owed, at, stored, (work.stored_ptr[task] + i) * LANES)
            copy_row(sums, 4 * LANES, owed, at)
    for task in range(tasks):
        last = plan.task_end[task]
        for i in range(node[last, ROWS] - node[last, DONE]):
            at = sides.forward_ind[node[last, IND_AT] + node[last, DONE] + i] * LANES
            add_row(stored, (work.stored_ptr[task] + i) * LANES, owed, at)
    for k in range(trunk):
        _forward(sides, plan.trunk[k], x, y, owed, t)
    for k in range(trunk):
        _backward(sides, plan.trunk[trunk - 1 - k], work.parts, y, t, sums)
    for task in range(tasks):
        for k in range(plan.task_end[task] + 1 - plan.task_begin[task]):
            _backward(sides, plan.task_end[task] - k, work.parts, y, t, sums)


@njit(cache=True, nogil=True)
def _correct(plan, sides, work, r, base, adding, x):
    """``x = A^-1 r`` by the factor, plus ``base`` where ``adding``; in the caller's numbering."""
    perm, scale = work.perm, work.scale
    for k in range(perm.size):
        at = perm[k] * LANES
        if scale.size:
            scale_row(r, at, work.x, k * LANES, r.dtype.type(scale[perm[k]]))
        else:
            copy_row(r, at, work.x, k * LANES)
    _sweep(plan, sides, work)
    for k in range(perm.size):
        at = perm[k] * LANES
        if scale.size:
            scale_row(work.y, k * LANES, x, at, r.dtype.type(scale[perm[k]]))
        else:
            copy_row(work.y, k * LANES, x, at)
        if adding:
            add_row(base, at, x, at)


@njit(cache=True, nogil=True)
def _residual(matrix, x, b, work):
    """`symmetric_residual` for a block. ``work.y`` gets |x|."""
    residual, size, absolute, sums = work.residual, work.size, work.y, work.sums
    n = matrix.ptr.size - 1
    for i in range(n * LANES):
        residual[i] = b[i]
        size[i] = magnitude(b[i])
        absolute[i] = magnitude(x[i])
    for j in range(n):
        first, end, at = matrix.ptr[j], matrix.ptr[j + 1], j * LANES
        if first < end and matrix.ind[first] == j:
            a = matrix.values[first]
            take_row(x, at, residual, at, a)
            take_row(absolute, at, size, at, -magnitude(a))
            first += 1
        for c in range(2 * LANES):
            sums[c] = 0
        for k in range(first, end):
            i, a = matrix.ind[k] * LANES, matrix.values[k]
            take_row(x, at, residual, i, a)
            take_row(absolute, at, size, i, -magnitude(a))
            take_row(x, i, sums, 0, -a)
            take_row(absolute, i, sums, LANES, -magnitude(a))
        subtract_row(sums, 0, residual, at)
        add_row(sums, LANES, size, at)


@njit(cache=True, nogil=True)
def _errors(matrix, work, x, b, component, whole):
    """`backward_errors` of every right-hand side of a block."""
    n, residual, size, sums = matrix.sums.size, work.residual, work.size, matrix.sums
    x_max, r_max = view(work.errors, 3 * LANES, LANES), view(work.errors, 4 * LANES, LANES)
    b_max = view(work.errors, 5 * LANES, LANES)
    norm = 0.0
    rounding = 1000.0 * n * matrix.eps
    for c in range(LANES):
        x_max[c], r_max[c], b_max[c], component[c], whole[c] = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        norm = sums[i] if sums[i] > norm else norm
        row = view(x, i * LANES, LANES)
        for c in range(LANES):
            x_size = 1.0 * magnitude(row[c])
            x_max[c] = x_size if x_size > x_max[c] else x_max[c]
    for i in range(n):
        r_row, s_row, b_row = (
            view(residual, i * LANES, LANES),
            view(size, i * LANES, LANES),
            view(b, i * LANES, LANES),
        )
        for c in range(LANES):
            r = 1.0 * magnitude(r_row[c])
            scale = 1.0 * s_row[c]
            if not (r < np.inf and scale < np.inf):
                whole[c] = np.inf
            r_max[c] = r if r > r_max[c] else r_max[c]
            b_size = 1.0 * magnitude(b_row[c])
            b_max[c] = b_size if b_size > b_max[c] else b_max[c]
            if r > component[c] * scale:
                whole_row = sums[i] * x_max[c]
                if scale <= rounding * (whole_row + b_size):
                    scale += whole_row - b_size
                component[c] = max(component[c], r / scale)
    for c in range(LANES):
        if whole[c] > 0.0:
            component[c] = np.inf
        elif r_max[c] > 0.0:
            whole[c] = r_max[c] / (norm * x_max[c] + b_max[c])


@njit(cache=True, nogil=True)
def refined_many(plan_arrays, side_arrays, matrix_arrays, work_arrays, b, x, steps, taken, component, whole):
    """Write the solutions of ``A x = b`` to ``x``, both [n, LANES]; see `_refined_kernels.refined_solve`.

    ``taken``, ``component`` and ``whole``, float64[LANES], are written for every right-hand side.
    """
    plan, sides, matrix, work = (
        bundle(plan_arrays),
        bundle(side_arrays),
        bundle(matrix_arrays),
        bundle(work_arrays),
    )
    _correct(plan, sides, work, b, b, False, x)
    if steps == 0:
        return
    next_component, next_whole = view(work.errors, 0, LANES), view(work.errors, LANES, LANES)
    _residual(matrix, x, b, work)
    _errors(matrix, work, x, b, component, whole)
    going = view(work.errors, 2 * LANES, LANES)
    for c in range(LANES):
        taken[c] = 0
        going[c] = 1.0
    for step in range(steps):
        active = 0
        for c in range(LANES):
            if component[c] <= GOOD_ENOUGH * matrix.eps:
                going[c] = 0.0
            active += 1 if going[c] > 0.0 else 0
        if active == 0:
            return
        _correct(plan, sides, work, work.residual, x, True, work.other)
        _residual(matrix, work.other, b, work)
        _errors(matrix, work, work.other, b, next_component, next_whole)
        for c in range(LANES):
            if going[c] == 0.0:
                continue
            taken[c] = step + 1
            helped = next_component[c] < 0.5 * component[c]
            if next_component[c] < component[c]:
                for i in range(matrix.sums.size):
                    x[i * LANES + c] = work.other[i * LANES + c]
                component[c], whole[c] = next_component[c], next_whole[c]
            if not helped:
                going[c] = 0.0
