"""Assembly of a front: entries of A, then the children's contribution blocks in ascending child order."""

from __future__ import annotations

import numpy as np

from warpfront.backend._intrinsics import conjugate_if, view
from warpfront.backend.jit import njit

__all__ = ["add_block_columns", "child_map", "enter_a"]


@njit(cache=True, nogil=True)
def enter_a(plan, values, s, panel, rows, delayed):
    """Put A's entries into the zeroed panel; local rows past the node's own columns move down by ``delayed``."""
    own = plan.node_ptr[s + 1] - plan.node_ptr[s]
    begin = plan.a_ptr[s]
    count = plan.a_ptr[s + 1] - begin
    row, col, slot = (
        view(plan.a_row, begin, count),
        view(plan.a_col, begin, count),
        view(plan.a_slot, begin, count),
    )
    for e in range(count):
        i = row[e]
        i = i + delayed if i >= own else i
        panel[np.uint64(i + col[e] * rows)] += values[np.uint64(slot[e])]


@njit(cache=True, nogil=True)
def child_map(plan, child, child_delayed, own, delayed, shift, out):
    """Places of the child's block rows in the parent's front.

    The block starts with the child's delayed columns; they become fully summed columns own + shift of the parent.
    """
    for i in range(child_delayed):
        out[i] = own + shift + i
    begin = plan.front_ptr[child] + plan.node_ptr[child + 1] - plan.node_ptr[child]
    count = plan.front_ptr[child + 1] - begin
    for i in range(count):
        place = plan.asm_map[begin + i]
        out[child_delayed + i] = place + delayed if place >= own else place
    return child_delayed + count


@njit(cache=True, nogil=True)
def add_block_columns(block, size, place, child_delayed, conj, target, ld, offset, begin, end):
    """Add columns begin..end of a child's lower block to a lower trapezoid; entry (i, j) goes to ``place - offset``.

    Only the child's delayed columns can map out of order; their entries are mirrored into the lower triangle,
    conjugated where ``conj`` (a Hermitian matrix).
    """
    tail = size  # from here on the rows are neighbours in the parent too
    while tail > child_delayed and (tail == size or place[tail] == place[tail - 1] + 1):
        tail -= 1
    for j in range(begin, end):
        pj = place[j] - offset
        source = view(block, j + j * size, size - j)
        if j < child_delayed:
            for i in range(size - j):
                pi = place[j + i] - offset
                target[max(pi, pj) + min(pi, pj) * ld] += conjugate_if(conj and pi < pj, source[i])
            continue
        column = view(target, pj * ld, ld)
        rows = view(place, j, size - j)
        scattered = max(0, tail - j)
        for i in range(scattered):
            column[np.uint64(rows[i] - offset)] += source[i]
        if scattered < size - j:
            run = view(column, rows[scattered] - offset, size - j - scattered)
            rest = view(source, scattered, size - j - scattered)
            for i in range(size - j - scattered):
                run[i] += rest[i]
