"""The tree walk shared by LL^T, LDL^T and LU.

A thread takes whole subtrees by ticket; then thread 0 walks the trunk, and all threads share the tiles of its fronts.

One front, in order: panel cleared, entries of A, children's columns -> fully summed columns eliminated -> contribution
block computed afresh -> children's remaining columns added to it. Contribution blocks live on two stacks by the parity
of the node's depth: while a node's block is pushed on one, its children's blocks are popped from the other. The block
of a subtree's root goes to an area of its own, where the trunk finds it.
"""

from __future__ import annotations

from warpfront.backend._bundle import bundle
from warpfront.backend._intrinsics import atomic_add, atomic_cas, load_acquire, relax, store_release, view
from warpfront.backend.jit import njit
from warpfront.sparse.numeric._assembly_kernels import child_map
from warpfront.sparse.numeric._eliminate_kernels import eliminate
from warpfront.sparse.numeric._layout import (
    ADD_BLOCK,
    ADD_COLUMNS,
    BLOCK_AT,
    BLOCK_SIZE,
    CLEAR,
    CONTRIBUTION,
    DONE,
    FULL,
    IND_AT,
    IND_END,
    MAP_SPAN,
    PANEL_AT,
    PANEL_END,
    PIVOT_AT,
    PIVOT_END,
    ROOT_AT,
    ROOT_END,
    ROWS,
    SMALL,
    STACK_SPAN,
    WORK_SPAN,
)
from warpfront.sparse.numeric._step_kernels import (
    add_small,
    eliminate_scratch,
    enter,
    enter_small,
    first_row,
    keep_delayed,
    open_columns,
    part_of_block,
)
from warpfront.sparse.numeric._team_kernels import (
    CLOSED,
    IND_OVER,
    JOB,
    PANEL_OVER,
    PIVOT_OVER,
    ROOT_OVER,
    STATUS,
    TASK_TICKET,
    TASKS_DONE,
    Job,
)
from warpfront.sparse.numeric._tile_kernels import contribution_tiles, help_out, share

__all__ = ["HIGH", "LOW", "NEED_MEMORY", "NOT_POSITIVE", "OK_WORD", "SMALL", "first_zero_pivot", "walk"]

# status word: (pivot position << 8) | reason; the smallest wins
OK_WORD = 1 << 62
NEED_MEMORY, NOT_POSITIVE = 1, 2
LOW, HIGH = 9, 10  # columns of FactorState.stats: tops of the two stacks


@njit(cache=True, nogil=True)
def _report(sync, position, reason):
    """Keep the smallest failing position, so that the verdict does not depend on which thread came first."""
    word = (position << 8) | reason
    while True:
        seen = load_acquire(sync, STATUS)
        if seen <= word or atomic_cas(sync, STATUS, seen, word):
            return


@njit(cache=True, nogil=True)
def _open_front(rule, plan, state, s):
    """Place the front's panel, indices and pivots; false when the overflow areas are full."""
    node, sync, limits = state.node, state.sync, state.limits
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    rows = plan.front_ptr[s + 1] - plan.front_ptr[s]
    delayed = 0
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        delayed += node[child, FULL] - node[child, DONE]
    full = own + delayed
    rows += delayed
    node[s, ROWS], node[s, FULL] = rows, full
    if delayed == 0:
        node[s, PANEL_AT], node[s, IND_AT], node[s, PIVOT_AT] = (
            plan.panel_ptr[s],
            plan.front_ptr[s],
            plan.node_ptr[s],
        )
    else:
        size = (rows * full + 7) & ~7
        node[s, PANEL_AT] = atomic_add(sync, PANEL_OVER, size)
        node[s, IND_AT] = atomic_add(sync, IND_OVER, rows)
        node[s, PIVOT_AT] = atomic_add(sync, PIVOT_OVER, full)
        if (
            node[s, PANEL_AT] + size > limits[PANEL_END]
            or node[s, IND_AT] + rows > limits[IND_END]
            or node[s, PIVOT_AT] + full > limits[PIVOT_END]
            or rows > limits[MAP_SPAN]
        ):
            return False
    at = node[s, IND_AT]
    begin = plan.front_ptr[s]
    for i in range(own):
        state.ind[at + i] = plan.front_ind[begin + i]
    at += own
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        for i in range(node[child, DONE], node[child, FULL]):
            state.ind[at] = state.ind[node[child, IND_AT] + i]
            at += 1
    for i in range(own, plan.front_ptr[s + 1] - begin):
        state.ind[at - own + i] = plan.front_ind[begin + i]
    open_columns(rule, plan, state, s)
    return True


@njit(cache=True, nogil=True)
def _add_children(rule, plan, state, tid, team, s, to_panel):
    """Extend-add in ascending child order: columns of the panel, or the rest into the contribution block."""
    node = state.node
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    full = node[s, FULL]
    delayed = full - own
    place = view(state.work_map, tid * state.limits[MAP_SPAN], state.limits[MAP_SPAN])
    shift = 0
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        child_delayed = node[child, FULL] - node[child, DONE]
        size = child_map(plan, child, child_delayed, own, delayed, shift, place)
        shift += child_delayed
        split = child_delayed
        while split < size and place[split] < full:
            split += 1
        begin, end = part_of_block(rule, split, size, to_panel)
        span = max(8, 16384 // (size + 1))
        tiles = (end - begin + span - 1) // span
        job = ADD_COLUMNS if to_panel else ADD_BLOCK
        share(
            rule, state, tid, team, Job(job, s, begin, end, tiles, tid, child, span), (end - begin) * size * 8
        )


@njit(cache=True, nogil=True)
def _push_block(plan, state, tid, s, root):
    """Give the node's contribution block a place; false when there is none."""
    node, stats, limits = state.node, state.stats, state.limits
    size = node[s, ROWS] - node[s, DONE]
    node[s, BLOCK_SIZE] = size
    words = (size * size + 7) & ~7
    if root:
        node[s, BLOCK_AT] = atomic_add(state.sync, ROOT_OVER, words)
        return node[s, BLOCK_AT] + words <= limits[ROOT_END]
    if plan.depth[s] & 1 == 0:
        node[s, BLOCK_AT] = stats[tid, LOW]
        stats[tid, LOW] += words
    else:
        stats[tid, HIGH] -= words
        node[s, BLOCK_AT] = stats[tid, HIGH]
    return stats[tid, LOW] <= stats[tid, HIGH]


@njit(cache=True, nogil=True)
def _pop_children(plan, state, tid, s):
    """Free the children's blocks that lie on this thread's stack."""
    stats = state.stats
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        at = state.node[child, BLOCK_AT]
        size = state.node[child, BLOCK_SIZE]
        if at < state.limits[ROOT_AT]:
            if plan.depth[child] & 1 == 0:
                stats[tid, LOW] = min(stats[tid, LOW], at)
            else:
                stats[tid, HIGH] = max(stats[tid, HIGH], at + ((size * size + 7) & ~7))


@njit(cache=True, nogil=True)
def _small_front(rule, plan, state, tid, s, root):
    """A front that fits the cache: assembled and eliminated whole in scratch, then copied out."""
    node, limits = state.node, state.limits
    rows, full = node[s, ROWS], node[s, FULL]
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    front = view(state.work, tid * limits[WORK_SPAN], rows * rows)
    for i in range(rows * rows):
        front[i] = 0
    enter_small(rule, plan, state, s, front)
    place = view(state.work_map, tid * limits[MAP_SPAN], limits[MAP_SPAN])
    shift = 0
    for c in range(plan.child_ptr[s], plan.child_ptr[s + 1]):
        child = plan.child_ind[c]
        delayed = node[child, FULL] - node[child, DONE]
        size = child_map(plan, child, delayed, own, full - own, shift, place)
        shift += delayed
        block = view(state.stack, node[child, BLOCK_AT], size * size)
        add_small(rule, block, size, place, delayed, front, rows)
    done = eliminate_scratch(rule, state, tid, s, front, root)
    if done < 0:
        _report(state.sync, plan.node_ptr[s] - 1 - done, NOT_POSITIVE)
        return False
    node[s, DONE] = done
    panel = view(state.panel, node[s, PANEL_AT], rows * done)
    for i in range(rows * done):
        panel[i] = front[i]
    if not _push_block(plan, state, tid, s, root):
        _report(state.sync, plan.node_ptr[s], NEED_MEMORY)
        return False
    size = rows - done
    block = view(state.stack, node[s, BLOCK_AT], size * size)
    for j in range(size):
        top = first_row(rule, j)
        source = view(front, done + top + (done + j) * rows, size - top)
        target = view(block, top + j * size, size - top)
        for i in range(size - top):
            target[i] = source[i]
    _pop_children(plan, state, tid, s)
    return True


@njit(cache=True, nogil=True)
def _front(rule, plan, state, tid, team, s, root):
    """Assemble and eliminate one front; false when the walk above it must stop."""
    node = state.node
    if not _open_front(rule, plan, state, s):
        _report(state.sync, plan.node_ptr[s], NEED_MEMORY)
        return False
    ld, full = node[s, ROWS], node[s, FULL]
    if ld <= SMALL:
        return _small_front(rule, plan, state, tid, s, root)
    span = max(1, 32768 // ld)
    share(rule, state, tid, team, Job(CLEAR, s, 0, 0, (full + span - 1) // span, tid, 0, span), ld * full)
    enter(rule, plan, state, s)
    _add_children(rule, plan, state, tid, team, s, True)
    done = eliminate(rule, plan, state, tid, team, s)
    if done < 0:
        _report(state.sync, plan.node_ptr[s] - 1 - done, NOT_POSITIVE)
        return False
    node[s, DONE] = done
    if not _push_block(plan, state, tid, s, root):
        _report(state.sync, plan.node_ptr[s], NEED_MEMORY)
        return False
    below = ld - full
    keep_delayed(rule, state, s)
    if below > 0:
        cost = below * below * done // 2
        share(
            rule,
            state,
            tid,
            team,
            Job(CONTRIBUTION, s, 0, done, contribution_tiles(rule, below), -1, 0, 0),
            cost,
        )
        _add_children(rule, plan, state, tid, team, s, False)
    _pop_children(plan, state, tid, s)
    return True


@njit(cache=True, nogil=True)
def walk(rule, plan_arrays, state_arrays, tid, threads):
    """Run one thread of a factorisation; thread 0 must run, the others may come late or not at all."""
    plan, state = bundle(plan_arrays), bundle(state_arrays)
    sync = state.sync
    span = state.limits[STACK_SPAN]
    state.stats[tid, LOW] = tid * span
    state.stats[tid, HIGH] = (tid + 1) * span
    tasks = plan.task_begin.size
    while True:
        task = atomic_add(sync, TASK_TICKET, 1)
        if task >= tasks:
            break
        last = plan.task_end[task]
        for s in range(plan.task_begin[task], last + 1):
            if not _front(rule, plan, state, tid, False, s, s == last):
                if state.stats[tid, LOW] <= state.stats[tid, HIGH]:
                    state.stats[tid, LOW] = tid * span  # the next subtree starts with empty stacks
                    state.stats[tid, HIGH] = (tid + 1) * span
                break
        atomic_add(sync, TASKS_DONE, 1)
    if tid > 0:
        help_out(rule, state, tid)
        return
    while load_acquire(sync, TASKS_DONE) < tasks:
        relax()
    for i in range(plan.trunk.size):
        if load_acquire(sync, STATUS) != OK_WORD:
            break
        if not _front(rule, plan, state, tid, threads > 1, plan.trunk[i], False):
            break
    store_release(sync, JOB, CLOSED)


@njit(cache=True, nogil=True)
def first_zero_pivot(node, kind, ind):
    """Permuted column of the first zero pivot in elimination order, or -1."""
    for s in range(node.shape[0]):
        for k in range(node[s, DONE]):
            if kind[node[s, PIVOT_AT] + k] == 0:
                return ind[node[s, IND_AT] + k]
    return -1
