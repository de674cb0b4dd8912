"""From an ordering to fronts in one compiled call: every call from Python costs a start where kernels come from a cache."""

from __future__ import annotations

from warpfront.backend.jit import njit
from warpfront.sparse.analysis._schedule_kernels import node_flops, subtree_tasks
from warpfront.sparse.analysis._supernode_kernels import amalgamate, children, front_structures

__all__ = ["find_fronts"]


@njit(cache=True, nogil=True)
def find_fronts(parent, counts, ordered, xadj, adj, always, width_limit, zero_limit, share):
    """Supernodes, their structures and children, and tasks.

    Parameters: ``parent``, ``counts``, ``ordered``: of an `Ordering`; the limits of `amalgamate`; ``share`` of
    `subtree_tasks`. Returns the columns' order and the results of these and of `front_structures` and `children`.
    """
    nodes = amalgamate(parent, counts, always, width_limit, zero_limit)
    node_ptr, node_parent, node_front, order = nodes
    perm = ordered[order]
    structures = front_structures(xadj, adj, perm, node_ptr, node_parent, node_front)
    flops = node_flops(node_ptr, node_front)
    tasks = subtree_tasks(node_parent, flops, share)
    return perm, (node_ptr, node_parent, node_front), structures, children(node_parent), flops, tasks
