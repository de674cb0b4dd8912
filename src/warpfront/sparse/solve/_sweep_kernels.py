"""Triangular sweeps over the supernodal tree, one right-hand side at a time.

A right-hand side is numbered as the forward side of a factor, a solution as its backward side (`Sides`).

Forward: a thread takes subtrees by ticket and collects what they owe to their ancestors in a vector of its own; the
rows of the subtree's root are then stored apart, and the trunk adds them in task order. So the order of every sum is
fixed by the tree. Backward: the trunk first, then the subtrees. The subtrees are the analysis's, whatever the number
of threads.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._bundle import bundle
from warpfront.backend._intrinsics import (
    atomic_add,
    conjugate_if,
    load_acquire,
    relax,
    store_release,
    view,
)
from warpfront.backend.jit import njit
from warpfront.sparse.solve._lanes_kernels import dot4, muladd

__all__ = [
    "BACKWARD",
    "DIAGONAL",
    "FORWARD",
    "SWEEP_WORDS",
    "backward_node",
    "divided",
    "forward_node",
    "sweep",
    "sweep_alone",
]

PANEL_AT, IND_AT, PIVOT_AT, ROWS, FULL, DONE = 0, 1, 2, 3, 4, 5
FORWARD_TICKET, FORWARD_DONE, BACKWARD_TICKET, TRUNK_DONE = 0, 8, 16, 24
SWEEP_WORDS = 32
SMALL_FRONT = 32  # rows of a front whose part of a vector is not copied
FORWARD, DIAGONAL, BACKWARD = 1, 2, 4
DIVIDE, UNIT, RECIPROCAL = 0, 1, 2  # Sides.forward_unit, Sides.backward_unit


@njit(cache=True, nogil=True, fastmath={"contract"})
def divided(value, diagonal, mode, d, k):
    """``value`` divided by the diagonal entry of column k, as ``mode`` says."""
    if mode == DIVIDE:
        value = value / diagonal
    elif mode == RECIPROCAL:
        value = value * d[2 * k]
    return value


@njit(cache=True, nogil=True, fastmath={"contract"})
def _forward_columns(panel, rows, done, unit, x, ind, t):
    """``t = L^-1`` applied to the pivots, and the rows below brought up to date; four columns at a time."""
    j = 0
    while j < done:
        block = min(4, done - j)
        for k in range(j, j + block):
            t[k] += x[ind[k]]
            if unit != UNIT:
                t[k] /= panel[k + k * rows]
            for i in range(k + 1, j + block):
                t[i] -= panel[i + k * rows] * t[k]
        below = rows - j - block
        out = view(t, j + block, below)
        zero = t.dtype.type(0)
        t0, t1, t2, t3 = t[j], zero, zero, zero  # a block of less than four is filled up with zeros
        if block > 1:
            t1 = t[j + 1]
        if block > 2:
            t2 = t[j + 2]
        if block > 3:
            t3 = t[j + 3]
        a0 = view(panel, j + block + j * rows, below)
        a1 = view(a0, min(1, block - 1) * rows, below)
        a2 = view(a0, min(2, block - 1) * rows, below)
        a3 = view(a0, (block - 1) * rows, below)
        for i in range(below):
            out[i] -= muladd(a0[i], t0, muladd(a1[i], t1, muladd(a2[i], t2, a3[i] * t3)))
        j += block


@njit(cache=True, nogil=True, fastmath={"contract"})
def _backward_columns(panel, rows, done, unit, t):
    """``t = L^-T`` on the pivots, given the rows below; four columns at a time, each a sum in ascending order."""
    j = done
    while j > 0:
        block = min(4, j)
        j -= block
        below = rows - j - block
        begin = j + block
        if block == 4:
            s0, s1, s2, s3 = dot4(panel, begin + j * rows, rows, t, begin, below)
            t[j] -= s0
            t[j + 1] -= s1
            t[j + 2] -= s2
            t[j + 3] -= s3
        else:
            for k in range(j, begin):
                s0, s1, s2, s3 = dot4(panel, begin + k * rows, 0, t, begin, below)
                t[k] -= s0
        for q in range(block):
            k = j + block - 1 - q
            for i in range(k + 1, j + block):
                t[k] -= panel[i + k * rows] * t[i]
            if unit != UNIT:
                t[k] /= panel[k + k * rows]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _forward_small(sides, s, x, y, owed):
    """`forward_node` of a front with few rows: without a copy of its part of the vectors; same sums in the same order.

    Up to four columns at a time; a block of three has a fourth of zeros.
    """
    node = sides.node
    rows, done, at, mode = node[s, ROWS], node[s, DONE], node[s, PIVOT_AT], sides.forward_unit
    ind = view(sides.forward_ind, node[s, IND_AT], rows)
    to = view(sides.backward_ind, node[s, IND_AT], rows)
    d = view(sides.diagonal, 2 * at, 2 * done)
    j = 0
    while j < done:
        block = min(4, done - j)
        a0 = view(sides.forward, node[s, PANEL_AT] + j * rows, rows)
        a1 = view(a0, min(1, block - 1) * rows, rows)
        a2 = view(a0, min(2, block - 1) * rows, rows)
        a3 = view(a0, (block - 1) * rows, rows)
        t1, t2, t3 = x.dtype.type(0), x.dtype.type(0), x.dtype.type(0)
        i = np.uint32(ind[j])
        t0 = divided(owed[i] + x[i], a0[j], mode, d, j)
        owed[i] = 0
        y[np.uint32(to[j])] = t0
        if block > 1:
            i = np.uint32(ind[j + 1])
            t1 = owed[i] - a0[j + 1] * t0
            t1 = divided(t1 + x[i], a1[j + 1], mode, d, j + 1)
            owed[i] = 0
            y[np.uint32(to[j + 1])] = t1
        if block > 2:
            i = np.uint32(ind[j + 2])
            t2 = owed[i] - a0[j + 2] * t0
            t2 = t2 - a1[j + 2] * t1
            t2 = divided(t2 + x[i], a2[j + 2], mode, d, j + 2)
            owed[i] = 0
            y[np.uint32(to[j + 2])] = t2
        if block > 3:
            i = np.uint32(ind[j + 3])
            t3 = owed[i] - a0[j + 3] * t0
            t3 = t3 - a1[j + 3] * t1
            t3 = t3 - a2[j + 3] * t2
            t3 = divided(t3 + x[i], a3[j + 3], mode, d, j + 3)
            owed[i] = 0
            y[np.uint32(to[j + 3])] = t3
        j += block
        if block > 2:
            for r in range(j, rows):
                i = np.uint32(ind[r])
                owed[i] -= muladd(a0[r], t0, muladd(a1[r], t1, muladd(a2[r], t2, a3[r] * t3)))
        else:
            for r in range(j, rows):
                i = np.uint32(ind[r])
                owed[i] -= muladd(a0[r], t0, a1[r] * t1)


@njit(cache=True, nogil=True)
def forward_node(sides, s, x, y, owed, t):
    """Eliminate one front's pivots from ``x`` into ``y``; what its other rows owe is added to ``owed``.

    A pivot is what it owes, less the columns before it in ascending order, and the right-hand side. The order of every
    sum is the one that `_many_kernels` has too.
    """
    node = sides.node
    rows, done, at = node[s, ROWS], node[s, DONE], node[s, PANEL_AT]
    if rows <= SMALL_FRONT:
        _forward_small(sides, s, x, y, owed)
        return
    ind = view(sides.forward_ind, node[s, IND_AT], rows)
    to = view(sides.backward_ind, node[s, IND_AT], rows)
    for i in range(rows):
        t[i] = owed[ind[i]]
    for i in range(done):
        owed[ind[i]] = 0
    _forward_columns(view(sides.forward, at, rows * done), rows, done, sides.forward_unit, x, ind, t)
    for i in range(done):
        y[to[i]] = t[i]
    for i in range(done, rows):
        owed[ind[i]] = t[i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _backward_small(sides, s, parts, y, t):
    """`backward_node` of a front with few rows; the sums of `_backward_columns` in their order."""
    node = sides.node
    rows, done, at, mode = node[s, ROWS], node[s, DONE], node[s, PIVOT_AT], sides.backward_unit
    ind = view(sides.backward_ind, node[s, IND_AT], rows)
    d = view(sides.diagonal, 2 * at, 2 * done)
    for i in range(done):
        t[i] = y[np.uint32(ind[i])]
    if parts & DIAGONAL:
        _divide_by_d(d, view(sides.kind, at, done), done, False, t)
    j = done
    while j > 0:
        block = min(4, j)
        j -= block
        a0 = view(sides.backward, node[s, PANEL_AT] + j * rows, rows)
        a1 = view(a0, min(1, block - 1) * rows, rows)
        a2 = view(a0, min(2, block - 1) * rows, rows)
        a3 = view(a0, (block - 1) * rows, rows)
        t0, t1, t2, t3 = y.dtype.type(0), y.dtype.type(0), y.dtype.type(0), y.dtype.type(0)
        if block > 2:
            for r in range(j + block, rows):
                v = y[np.uint32(ind[r])]
                t0 += a0[r] * v
                t1 += a1[r] * v
                t2 += a2[r] * v
                t3 += a3[r] * v
        else:
            for r in range(j + block, rows):
                v = y[np.uint32(ind[r])]
                t0 += a0[r] * v
                t1 += a1[r] * v
        t0, t1 = t[j] - t0, t[j + min(1, block - 1)] - t1
        t2, t3 = t[j + min(2, block - 1)] - t2, t[j + block - 1] - t3
        if block > 3:
            t3 = divided(t3, a3[j + 3], mode, d, j + 3)
            t2 -= a2[j + 3] * t3
            y[np.uint32(ind[j + 3])] = t3
        if block > 2:
            t2 = divided(t2, a2[j + 2], mode, d, j + 2)
            t1 -= a1[j + 2] * t2
            y[np.uint32(ind[j + 2])] = t2
        if block > 1:
            if block > 3:
                t1 -= a1[j + 3] * t3
            t1 = divided(t1, a1[j + 1], mode, d, j + 1)
            t0 -= a0[j + 1] * t1
            y[np.uint32(ind[j + 1])] = t1
        if block > 2:
            t0 -= a0[j + 2] * t2
        if block > 3:
            t0 -= a0[j + 3] * t3
        y[np.uint32(ind[j])] = divided(t0, a0[j], mode, d, j)


@njit(cache=True, nogil=True)
def backward_node(sides, s, parts, y, t):
    """Solve for one front's pivots in ``y``, given its other rows."""
    node = sides.node
    rows, done, at = node[s, ROWS], node[s, DONE], node[s, PIVOT_AT]
    conj = sides.hermitian == 1
    if rows <= SMALL_FRONT and parts & BACKWARD and not conj:
        _backward_small(sides, s, parts, y, t)
        return
    ind = view(sides.backward_ind, node[s, IND_AT], rows)
    for i in range(rows):
        t[i] = y[ind[i]]
    if parts & DIAGONAL:
        _divide_by_d(view(sides.diagonal, 2 * at, 2 * done), view(sides.kind, at, done), done, conj, t)
    if parts & BACKWARD:
        if conj:  # L^H t = y is L^T conj(t) = conj(y)
            for i in range(rows):
                t[i] = conjugate_if(True, t[i])
        panel = view(sides.backward, node[s, PANEL_AT], rows * done)
        _backward_columns(panel, rows, done, sides.backward_unit, t)
        if conj:
            for i in range(done):
                t[i] = conjugate_if(True, t[i])
    for i in range(done):
        y[ind[i]] = t[i]


@njit(cache=True, nogil=True)
def _divide_by_d(d, kind, done, conj, t):
    """``t = D^-1 t``; a zero pivot's component becomes zero. The entry above the diagonal is conjugate where ``conj``."""
    k = 0
    while k < done:
        if kind[k] == 2:
            off = d[2 * k + 1]
            above = conjugate_if(conj, off)
            p, q = d[2 * k] / off, d[2 * k + 2] / above
            scale = muladd(p, q, d.dtype.type(-1))
            u, v = t[k], t[k + 1]
            t[k] = muladd(q, u / off, -v / off) / scale
            t[k + 1] = muladd(p, v / above, -u / above) / scale
            k += 2
        else:
            t[k] = t[k] / d[2 * k] if kind[k] == 1 else t[k] * 0
            k += 1


@njit(cache=True, nogil=True)
def _forward_task(plan, sides, task, x, y, owed, stored, t):
    """One subtree, and what its root's rows owe put aside; ``stored`` starts at the task's place."""
    node = sides.node
    last = plan.task_end[task]
    for s in range(plan.task_begin[task], last + 1):
        forward_node(sides, s, x, y, owed, t)
    done, rows = node[last, DONE], node[last, ROWS]
    ind = view(sides.forward_ind, node[last, IND_AT], rows)
    for i in range(done, rows):
        stored[i - done] = owed[ind[i]]
        owed[ind[i]] = 0


@njit(cache=True, nogil=True)
def _forward_trunk(plan, sides, x, y, owed, stored, stored_ptr, t):
    """Add what the subtrees owe in task order, then the trunk's fronts."""
    node = sides.node
    for task in range(plan.task_begin.size):
        last = plan.task_end[task]
        at = stored_ptr[task] - node[last, DONE]
        ind = view(sides.forward_ind, node[last, IND_AT], node[last, ROWS])
        for i in range(node[last, DONE], node[last, ROWS]):
            owed[ind[i]] += stored[at + i]
    for k in range(plan.trunk.size):
        forward_node(sides, plan.trunk[k], x, y, owed, t)


@njit(cache=True, nogil=True)
def sweep_alone(plan, sides, parts, x, y, owed, stored, stored_ptr, t):
    """`sweep` on one thread, for compiled callers; plan and sides are bundles."""
    tasks, trunk = plan.task_begin.size, plan.trunk.size
    if parts & FORWARD:
        for task in range(tasks):
            room = view(stored, stored_ptr[task], stored_ptr[task + 1] - stored_ptr[task])
            _forward_task(plan, sides, task, x, y, owed, room, t)
        _forward_trunk(plan, sides, x, y, owed, stored, stored_ptr, t)
    if parts > FORWARD:
        for k in range(trunk):
            backward_node(sides, plan.trunk[trunk - 1 - k], parts, y, t)
        for task in range(tasks):
            for k in range(plan.task_end[task] + 1 - plan.task_begin[task]):
                backward_node(sides, plan.task_end[task] - k, parts, y, t)


@njit(cache=True, nogil=True)
def sweep(plan_arrays, side_arrays, parts, x, y, owed, stored, stored_ptr, sync, tid, scratch):
    """Solve for one right-hand side; runs on every thread of a team, thread 0 must be among them.

    Parameters
    ----------
    plan_arrays, side_arrays : FrontPlan, Sides
    parts : int
        Sum of FORWARD, DIAGONAL (a factor with a D only), BACKWARD.
    x : float[n]
        Right-hand side in the permuted numbering of the forward side. Read only.
    y : float[n]
        Solution in the permuted numbering of the backward side; without FORWARD also the right-hand side.
    owed : float[threads * n]
        Zeros; left as zeros.
    stored : float
        Room for the rows of every subtree's root, task t at ``stored_ptr[t]``.
    sync : int64[SWEEP_WORDS]
        Zeros.
    tid : int
        This thread.
    scratch : float[threads * rows]
        Written.
    """
    plan, sides = bundle(plan_arrays), bundle(side_arrays)
    n = x.size
    tasks = plan.task_begin.size
    mine = view(owed, tid * n, n)
    width = scratch.size * n // owed.size
    t = view(scratch, tid * width, width)
    while parts & FORWARD:
        task = atomic_add(sync, FORWARD_TICKET, 1)
        if task >= tasks:
            break
        begin = stored_ptr[task]
        room = view(stored, begin, stored_ptr[task + 1] - begin)
        _forward_task(plan, sides, task, x, y, mine, room, t)
        atomic_add(sync, FORWARD_DONE, 1)
    if tid == 0:
        if parts & FORWARD:
            while load_acquire(sync, FORWARD_DONE) < tasks:
                relax()
            _forward_trunk(plan, sides, x, y, mine, stored, stored_ptr, t)
        if parts > FORWARD:
            for k in range(plan.trunk.size):
                backward_node(sides, plan.trunk[plan.trunk.size - 1 - k], parts, y, t)
        store_release(sync, TRUNK_DONE, 1)
    while load_acquire(sync, TRUNK_DONE) == 0:
        relax()
    while parts > FORWARD:
        task = atomic_add(sync, BACKWARD_TICKET, 1)
        if task >= tasks:
            break
        for k in range(plan.task_end[task] + 1 - plan.task_begin[task]):
            backward_node(sides, plan.task_end[task] - k, parts, y, t)
