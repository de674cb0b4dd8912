"""Triangular sweeps over the supernodal tree, one right-hand side at a time.

A right-hand side is numbered as the forward side of a factor, a solution as its backward side (`Sides`).

Forward: a thread takes subtrees by ticket and collects what they owe to their ancestors in a vector of its own; the
rows of the subtree's root are then stored apart, and the trunk adds them in task order. So the order of every sum is
fixed by the tree. Backward: the trunk first, then the subtrees. The subtrees are the analysis's, whatever the number
of threads.
"""

from __future__ import annotations

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

__all__ = ["BACKWARD", "DIAGONAL", "FORWARD", "SWEEP_WORDS", "backward_node", "forward_node", "sweep"]

PANEL_AT, IND_AT, PIVOT_AT, ROWS, FULL, DONE = 0, 1, 2, 3, 4, 5
FORWARD_TICKET, FORWARD_DONE, BACKWARD_TICKET, TRUNK_DONE = 0, 8, 16, 24
SWEEP_WORDS = 32
FORWARD, DIAGONAL, BACKWARD = 1, 2, 4


@njit(cache=True, nogil=True, fastmath={"contract"})
def _forward_columns(panel, rows, done, unit, t):
    """``t = L^-1`` applied to the pivots, and the rows below brought up to date; four columns at a time."""
    j = 0
    while j < done:
        block = min(4, done - j)
        for k in range(j, j + block):
            if unit == 0:
                t[k] /= panel[k + k * rows]
            for i in range(k + 1, j + block):
                t[i] -= panel[i + k * rows] * t[k]
        below = rows - j - block
        out = view(t, j + block, below)
        if block == 4:
            a0 = view(panel, j + 4 + j * rows, below)
            a1 = view(panel, j + 4 + (j + 1) * rows, below)
            a2 = view(panel, j + 4 + (j + 2) * rows, below)
            a3 = view(panel, j + 4 + (j + 3) * rows, below)
            t0, t1, t2, t3 = t[j], t[j + 1], t[j + 2], t[j + 3]
            for i in range(below):
                out[i] -= a0[i] * t0 + a1[i] * t1 + a2[i] * t2 + a3[i] * t3
        else:
            for k in range(j, j + block):
                a0 = view(panel, j + block + k * rows, below)
                t0 = t[k]
                for i in range(below):
                    out[i] -= a0[i] * t0
        j += block


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _backward_columns(panel, rows, done, unit, t):
    """``t = L^-T`` on the pivots, given the rows below; four columns at a time."""
    j = done
    while j > 0:
        block = min(4, j)
        j -= block
        below = rows - j - block
        x = view(t, j + block, below)
        if block == 4:
            a0 = view(panel, j + 4 + j * rows, below)
            a1 = view(panel, j + 4 + (j + 1) * rows, below)
            a2 = view(panel, j + 4 + (j + 2) * rows, below)
            a3 = view(panel, j + 4 + (j + 3) * rows, below)
            s0, s1, s2, s3 = x.dtype.type(0), x.dtype.type(0), x.dtype.type(0), x.dtype.type(0)
            for i in range(below):
                s0 += a0[i] * x[i]
                s1 += a1[i] * x[i]
                s2 += a2[i] * x[i]
                s3 += a3[i] * x[i]
            t[j] -= s0
            t[j + 1] -= s1
            t[j + 2] -= s2
            t[j + 3] -= s3
        else:
            for k in range(j, j + block):
                a0 = view(panel, j + block + k * rows, below)
                s0 = x.dtype.type(0)
                for i in range(below):
                    s0 += a0[i] * x[i]
                t[k] -= s0
        for q in range(block):
            k = j + block - 1 - q
            for i in range(k + 1, j + block):
                t[k] -= panel[i + k * rows] * t[i]
            if unit == 0:
                t[k] /= panel[k + k * rows]


@njit(cache=True, nogil=True)
def forward_node(sides, s, x, y, owed, t):
    """Eliminate one front's pivots from ``x`` into ``y``; what its other rows owe is added to ``owed``."""
    node = sides.node
    rows, done, at = node[s, ROWS], node[s, DONE], node[s, PANEL_AT]
    ind = view(sides.forward_ind, node[s, IND_AT], rows)
    to = view(sides.backward_ind, node[s, IND_AT], rows)
    for i in range(done):
        t[i] = x[ind[i]] + owed[ind[i]]
        owed[ind[i]] = 0
    for i in range(done, rows):
        t[i] = owed[ind[i]]
    _forward_columns(view(sides.forward, at, rows * done), rows, done, sides.forward_unit, t)
    for i in range(done):
        y[to[i]] = t[i]
    for i in range(done, rows):
        owed[ind[i]] = t[i]


@njit(cache=True, nogil=True)
def backward_node(sides, s, parts, y, t):
    """Solve for one front's pivots in ``y``, given its other rows."""
    node = sides.node
    rows, done, at = node[s, ROWS], node[s, DONE], node[s, PIVOT_AT]
    conj = sides.hermitian == 1
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
            scale = p * q - 1
            u, v = t[k], t[k + 1]
            t[k] = (q * (u / off) - v / off) / scale
            t[k + 1] = (p * (v / above) - u / above) / scale
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
