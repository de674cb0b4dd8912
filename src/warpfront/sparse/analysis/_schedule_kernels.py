"""Compiled part of the schedule: subtrees for threads, and where every block of memory lies."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["memory_plan", "node_flops", "subtree_tasks"]


@njit(cache=True, nogil=True)
def _aligned(words):
    return (words + 7) & ~7


@njit(cache=True, nogil=True)
def node_flops(node_ptr, node_front):
    """Multiply-adds of each front times two: the sum of squared column lengths."""
    count = node_front.size
    flops = np.empty(count, np.float64)
    for s in range(count):
        total = 0.0
        length = float(node_front[s])
        for _ in range(node_ptr[s + 1] - node_ptr[s]):
            total += length * length
            length -= 1.0
        flops[s] = total
    return flops


@njit(cache=True, nogil=True)
def subtree_tasks(node_parent, flops, share):
    """Cut the tree: subtrees of at most ``share`` of all flops are tasks, the nodes above them the trunk.

    Returns ``(task_begin, task_end, task_flops, trunk, depth)``; a task is the range of postordered nodes it holds.
    The cut depends on the tree alone, never on the number of threads.
    """
    count = node_parent.size
    below = flops.copy()
    first = np.arange(count)
    depth = np.zeros(count, np.int64)
    for s in range(count):
        p = node_parent[s]
        if p >= 0:
            below[p] += below[s]
            first[p] = min(first[p], first[s])
    total = 0.0
    for s in range(count):
        t = count - 1 - s
        p = node_parent[t]
        if p >= 0:
            depth[t] = depth[p] + 1
        else:
            total += below[t]
    limit = total * share
    begin = np.empty(count, np.int64)
    end = np.empty(count, np.int64)
    weight = np.empty(count, np.float64)
    trunk = np.empty(count, np.int64)
    tasks, rest = 0, 0
    for s in range(count):
        p = node_parent[s]
        if below[s] > limit:
            trunk[rest] = s
            rest += 1
        elif p < 0 or below[p] > limit:
            begin[tasks], end[tasks], weight[tasks] = first[s], s, below[s]
            tasks += 1
    return begin[:tasks], end[:tasks], weight[:tasks], trunk[:rest], depth


@njit(cache=True, nogil=True)
def _walk_range(begin, end, node_ptr, node_front, child_ptr, child_ind, depth, trunk, on_stack):
    """Largest use of the two contribution stacks over nodes begin..end (or ``trunk[begin..end]``)."""
    use = np.zeros(2, np.int64)
    peak = 0
    for position in range(begin, end + 1):
        s = trunk[position] if trunk.size > 0 else position
        below = node_front[s] - (node_ptr[s + 1] - node_ptr[s])
        use[depth[s] & 1] += _aligned(below * below)
        peak = max(peak, use[0] + use[1])
        for c in range(child_ptr[s], child_ptr[s + 1]):
            child = child_ind[c]
            if on_stack[child]:
                rows = node_front[child] - (node_ptr[child + 1] - node_ptr[child])
                use[depth[child] & 1] -= _aligned(rows * rows)
    return peak


@njit(cache=True, nogil=True)
def memory_plan(node_ptr, node_front, child_ptr, child_ind, depth, task_begin, task_end, trunk):
    """Place panels and measure stacks, in words.

    Returns ``(panel_ptr, stack_span, root_words)``: planned panel offsets, the largest stack use of any subtree or of
    the trunk, and the sum over subtrees of their root's contribution block.
    """
    count = node_front.size
    panel_ptr = np.zeros(count + 1, np.int64)
    for s in range(count):
        panel_ptr[s + 1] = panel_ptr[s] + _aligned((node_ptr[s + 1] - node_ptr[s]) * node_front[s])
    on_stack = np.ones(count, np.bool_)
    span, roots = 0, 0
    nothing = np.empty(0, np.int64)
    for t in range(task_begin.size):
        s = task_end[t]
        below = node_front[s] - (node_ptr[s + 1] - node_ptr[s])
        roots += _aligned(below * below)
        used = _walk_range(
            task_begin[t], s - 1, node_ptr, node_front, child_ptr, child_ind, depth, nothing, on_stack
        )
        span = max(span, used)
    for t in range(task_begin.size):
        on_stack[task_end[t]] = False
    if trunk.size > 0:
        used = _walk_range(
            0, trunk.size - 1, node_ptr, node_front, child_ptr, child_ind, depth, trunk, on_stack
        )
        span = max(span, used)
    return panel_ptr, span, roots
