"""Elimination tree, postorder and column counts of a permuted symmetric pattern."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["EliminationTree", "elimination_tree"]

_ONE_LEVEL_SUBTREE = 32
_FRONT_ZEROS = 0.1


@dataclass(frozen=True, eq=False)
class EliminationTree:
    """Postordered elimination tree and the size of the factor it predicts.

    Attributes
    ----------
    perm : int32[n]
        The given permutation composed with the postorder: ``perm[k]`` is the original index of the k-th
        pivot.
    parent : int32[n]
        Parent of each column in that numbering (always larger), -1 at a root.
    counts : int64[n]
        Entries of each column of L, with the diagonal.
    nnz_factor : int
        Sum of ``counts``.
    flops : float
        Sum of ``counts**2``: multiplications and additions of a Cholesky factorisation, to leading order.
    depth : int
        Estimated levels of fronts on the longest path of the supernodal schedule.
    """

    perm: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    nnz_factor: int
    flops: float
    depth: int


def elimination_tree(
    n: int, xadj: npt.NDArray[np.int64], adj: npt.NDArray[np.int32], perm: npt.NDArray[np.int32]
) -> EliminationTree:
    """Analyse ``A[perm][:, perm]`` without forming it.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern; not modified.
    perm : int32[n]
        A permutation (not checked).

    Returns
    -------
    EliminationTree
        Children are visited in ascending order, so columns k and k + 1 stay next to each other wherever
        k + 1 is the parent of k.

    Notes
    -----
    Tree: J. W. H. Liu, SIAM J. Matrix Anal. Appl. 11 (1990). Counts: J. R. Gilbert, E. G. Ng, B. W.
    Peyton, SIAM J. Matrix Anal. Appl. 15 (1994). Time almost linear in the number of entries of A.
    """
    from warpfront.sparse.analysis._etree_kernels import tree_and_sizes

    order, parent, counts, depth = tree_and_sizes(n, xadj, adj, perm, _ONE_LEVEL_SUBTREE, _FRONT_ZEROS)
    return EliminationTree(
        perm=order,
        parent=parent,
        counts=counts,
        nnz_factor=int(counts.sum()),
        flops=float(np.square(counts, dtype=np.float64).sum()),
        depth=int(depth),
    )
