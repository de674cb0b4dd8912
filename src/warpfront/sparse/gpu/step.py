"""One launch of a sequence, and the numbers that kernels and sequences share."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.tree import TreePlan

__all__ = ["Step", "clear_cells", "grid"]

THREADS, ROW_LANES = 256, 8
SWEEP_THREADS = INVERT_THREADS = 128
# one launch for the whole solve: its blocks, parts of the residual, shared memory (tree_sweeps.cuh: kTreeWords)
TREE_WARPS, TREE_THREADS, TREE_BLOCKS, TREE_PARTS, TREE_RESIDUAL_ROWS, TREE_BYTES = (
    4,
    128,
    528,
    264,
    16,
    8 * 32 * 162,
)
FEW = 1024  # small fronts of a level that one launch takes, whatever their rows
SCALING_SWEEPS = 3
STATE = 16


@dataclass(frozen=True)
class Step:
    """One launch.

    Attributes
    ----------
    kernel : str
        Key of `KERNELS`.
    expression : str
    blocks, threads, shared_bytes : int
    items : int
        First item; -1 where the kernel has none.
    numbers : tuple
        Arguments behind the buffers.
    rename : dict
        Argument name -> buffer name, where they differ; ``None`` is a null pointer.
    after : tuple of int
        Steps of the same sequence that come before.
    groups : int
        The grid's second extent: groups of right-hand sides.
    """

    kernel: str
    expression: str
    blocks: int
    threads: int
    shared_bytes: int = 0
    items: int = -1
    numbers: tuple[float, ...] = ()
    rename: dict[str, str | None] = field(default_factory=dict)
    after: tuple[int, ...] = ()
    groups: int = 1

    def buffers(self) -> list[str | None]:
        """Buffer behind each pointer argument."""
        return [self.rename.get(name, name) for name in KERNELS[self.kernel].arguments]


def grid(count: int) -> int:
    """Blocks of THREADS threads for `count` of them."""
    return max(1, -(-count // THREADS))


def clear_cells(tree: TreePlan, words: int, groups: int = 1) -> Step:
    """Step that clears the cells of a tree, for each group of right-hand sides, and ``words`` words of refinement state."""
    cells = tree.cells * groups
    return Step("start_tree", "start_tree", grid(max(cells, words)), THREADS, 0, -1, (cells, words))
