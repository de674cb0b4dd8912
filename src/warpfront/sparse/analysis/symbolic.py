"""`Symbolic`: everything the analysis found, frozen; and the two steps from an ordering to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.analysis.ordering import Ordering
from warpfront.sparse.plan import FrontPlan

__all__ = ["Coupling", "Entries", "General", "Symbolic", "build_symbolic"]

# A child is merged into its parent when the merged node has at most ALWAYS columns, or at most WIDTH[t] columns with a
# share of stored zeros below ZEROS[t].
ALWAYS = 8
WIDTH = np.array([32, 64, 1 << 40], np.int64)
ZEROS = np.array([0.5, 0.2, 0.05])
TASK_SHARE = 1.0 / 12.0


class Coupling(NamedTuple):
    """Entries of A outside the diagonal blocks, by rows of the permuted matrix.

    Attributes
    ----------
    ptr : int64[n+1]
        Start of each row.
    col : int32
        Permuted column.
    slot : int64
        Slot in the canonical values.
    """

    ptr: NDArray[np.int64]
    col: NDArray[np.int32]
    slot: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class General:
    """What LU needs besides: which row goes with which column, scaling, diagonal blocks.

    Attributes
    ----------
    rows : int32[n]
        ``rows[k]`` is the caller's row at the k-th place; its column is ``Symbolic.perm[k]``.
    row_scale, col_scale : float64[n]
        Powers of two that bring the matched entries near 1 and none far above, for the analysed values.
    structural_rank : int
        Entries that could be matched.
    unmatched_rows, unmatched_columns : int32[...]
        Caller's numbering, ascending; empty unless structurally singular.
    matched : int64[n]
        Slot of the entry matched with the caller's column k, -1 where there is none.
    blocks : int64[n_blocks, 2]
        First and last front of each diagonal block; with these blocks the permuted matrix is block upper triangular.
    coupling : Coupling
        The entries above the blocks.
    matching : str
        How rows and columns were matched, in words.
    """

    rows: NDArray[np.int32]
    row_scale: NDArray[np.float64]
    col_scale: NDArray[np.float64]
    structural_rank: int
    unmatched_rows: NDArray[np.int32]
    unmatched_columns: NDArray[np.int32]
    matched: NDArray[np.int64]
    blocks: NDArray[np.int64]
    coupling: Coupling
    matching: str

    @property
    def n_blocks(self) -> int:
        """Number of diagonal blocks."""
        return int(self.blocks.shape[0])


class Entries(NamedTuple):
    """Which slots of the canonical pattern are factored, by permutable row and column.

    Attributes
    ----------
    row, col, slot : int32, int32, int64
        Place of each entry in the row-permuted matrix.
    """

    row: NDArray[np.int32]
    col: NDArray[np.int32]
    slot: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Symbolic:
    """The analysed structure of a factorisation.

    Attributes
    ----------
    n : int
        Order of the matrix.
    pattern : Canonical
        Lower triangle (LU: all of it), compressed columns, with the map from the caller's entries.
    perm : int32[n]
        ``perm[k]`` is the caller's index of the k-th column in the elimination order.
    ordering : Ordering
        The fill-reducing ordering this came from.
    pairs : int
        Zero-diagonal pairs kept together.
    plan : FrontPlan
        Fronts, maps, panels and tasks.
    max_front : int
        Rows of the largest front.
    nnz_factor : int
        Entries of L that are stored, relaxed zeros included; LU: of L, U and the coupling, without L's unit diagonal.
    flops : float
        Sum of squared column lengths of the stored L; twice that for LU.
    stack_words, root_words : int
        Words of contribution blocks: a thread's stacks, and the roots of subtrees.
    general : General or None
        LU only.
    scale : float64[n] or None
        Symmetric scaling by powers of two that came with the pairs of a symmetrised matching.
    """

    n: int
    pattern: Canonical
    perm: NDArray[np.int32]
    ordering: Ordering
    pairs: int
    plan: FrontPlan
    max_front: int
    nnz_factor: int
    flops: float
    stack_words: int
    root_words: int
    general: General | None = None
    scale: NDArray[np.float64] | None = None

    def save(self, path: str | Path) -> None:
        """Write the analysis to a file; `load` reads it, for `DirectSolver.analyze`."""
        from warpfront.sparse.analysis.storage import save_symbolic

        save_symbolic(self, path)

    @staticmethod
    def load(path: str | Path) -> Symbolic:
        """Read an analysis that `save` wrote."""
        from warpfront.sparse.analysis.storage import load_symbolic

        return load_symbolic(path)

    def plot(self, title: str = "") -> Any:
        """Draw A, A in elimination order, L, and the sizes of the fronts; a ``matplotlib.figure.Figure``."""
        from warpfront.sparse.plots import plot_symbolic

        return plot_symbolic(self, title)

    @property
    def n_supernodes(self) -> int:
        """Number of fronts."""
        return int(self.plan.node_ptr.size - 1)

    @property
    def tree_depth(self) -> int:
        """Levels of the supernodal tree."""
        return int(self.plan.depth.max(initial=-1)) + 1


def build_symbolic(
    pattern: Canonical,
    xadj: NDArray[np.int64],
    adj: NDArray[np.int32],
    ordering: Ordering,
    pairs: int,
    entries: Entries | None = None,
) -> Symbolic:
    """Turn an ordering into fronts: supernodes, row structures, assembly maps, tasks, memory plan.

    Without ``entries`` the pattern is the lower triangle of a symmetric matrix; with them, which are LU's, the
    pattern ``xadj, adj`` is that of the sum of these entries and their transposes.
    """
    from warpfront.sparse.analysis import _schedule_kernels as schedule
    from warpfront.sparse.analysis._fronts_kernels import find_fronts

    n = pattern.n_cols
    perm, nodes, structures, (child_ptr, child_ind), flops, tasks = find_fronts(
        ordering.parent, ordering.counts, ordering.perm, xadj, adj, ALWAYS, WIDTH, ZEROS, TASK_SHARE
    )
    (node_ptr, _, node_front), (front_ptr, front_ind, asm_map) = nodes, structures
    begin, end, weight, trunk, depth = tasks
    if entries is None:
        from warpfront.sparse.analysis._supernode_kernels import assembly_lists

        a_ptr, a_slot, a_row, a_col = assembly_lists(
            pattern.ptr, pattern.ind, perm, node_ptr, front_ptr, front_ind
        )
    else:
        from warpfront.sparse.analysis._block_kernels import general_lists

        a_ptr, a_slot, a_row, a_col = general_lists(*entries, perm, node_ptr, front_ptr, front_ind)
    longest_first = np.argsort(-weight, kind="stable")
    begin, end = begin[longest_first], end[longest_first]
    panel_ptr, stack_words, root_words = schedule.memory_plan(
        node_ptr, node_front, child_ptr, child_ind, depth, begin, end, trunk
    )
    width = np.diff(node_ptr)
    stored = int((width * node_front - width * (width - 1) // 2).sum())
    plan = FrontPlan(
        node_ptr, front_ptr, front_ind, asm_map, child_ptr, child_ind, a_ptr, a_slot, a_row, a_col, panel_ptr, depth,
        begin, end, trunk.copy(),
    )  # fmt: skip
    return Symbolic(
        n=n,
        pattern=pattern,
        perm=perm,
        ordering=ordering,
        pairs=pairs,
        plan=plan,
        max_front=int(node_front.max(initial=0)),
        nnz_factor=stored if entries is None else 2 * stored - n + pattern.nnz - entries.slot.size,
        flops=float(flops.sum()) * (1 if entries is None else 2),
        stack_words=int(stack_words),
        root_words=int(root_words),
    )
