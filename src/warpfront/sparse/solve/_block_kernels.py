"""Solve with a factored block triangular matrix: block by block, the entries above the blocks as they stand.

One thread; every sum runs in the order of the blocks and, inside one, of its fronts and rows.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend._bundle import bundle
from warpfront.backend.jit import njit
from warpfront.sparse.solve._lanes_kernels import muladd
from warpfront.sparse.solve._sweep_kernels import (
    BACKWARD,
    PANEL_AT,
    UNIT,
    backward_node,
    forward_node,
)

__all__ = ["block_sweeps", "solve_blocks"]


@njit(cache=True, nogil=True)
def block_sweeps(sides, node_ptr, blocks, coupling, values, transposed, x, y, owed, t):
    """`solve_blocks` for compiled callers; ``sides`` is a bundle."""
    node, (ptr, col, slot) = sides.node, coupling
    pivots = sides.backward if sides.forward_unit == UNIT else sides.forward  # on U's side
    count = blocks.shape[0]
    for block in range(count):
        c = block if transposed == 1 else count - 1 - block
        first, last = blocks[c, 0], blocks[c, 1]
        begin, end = node_ptr[first], node_ptr[last + 1]
        if transposed == 0:
            for i in range(begin, end):
                xi = x[i]
                for e in range(ptr[i], ptr[i + 1]):
                    xi = muladd(-values[np.uint64(slot[e])], y[np.uint32(col[e])], xi)
                x[i] = xi
        if end - begin == 1:
            y[begin] = x[begin] / pivots[node[first, PANEL_AT]]
        else:
            for s in range(first, last + 1):
                forward_node(sides, s, x, y, owed, t)
            for s in range(last - first + 1):
                backward_node(sides, last - s, BACKWARD, y, t)
        if transposed == 1:
            for i in range(begin, end):
                yi = y[i]
                for e in range(ptr[i], ptr[i + 1]):
                    j = np.uint32(col[e])
                    x[j] = muladd(-values[np.uint64(slot[e])], yi, x[j])


@njit(cache=True, nogil=True)
def solve_blocks(node_ptr, side_arrays, blocks, coupling, values, transposed, x, y, owed, t):
    """Write the solution of ``A y = x`` (of ``A^T y = x`` where ``transposed``) to ``y``; permuted numbering.

    Parameters
    ----------
    node_ptr : int64[nodes+1]
    side_arrays : Sides
        Of A or of A^T.
    blocks : int64[n_blocks, 2]
        First and last front of each block; block upper triangular in this order.
    coupling : Coupling
        Entries above the blocks, by rows.
    values : [nnz]
        Scaled values of A.
    x : [n]
        Right-hand side; overwritten.
    owed : [n or more]
        Zeros; left as zeros.
    t : [largest front]
        Scratch.
    """
    sides = bundle(side_arrays)
    block_sweeps(sides, node_ptr, blocks, coupling, values, transposed, x, y, owed, t)
