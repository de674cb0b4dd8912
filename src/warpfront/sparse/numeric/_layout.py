"""Where things lie in the integer arrays of a `FactorState`, the jobs of a front, and which rule is which."""

from __future__ import annotations

from numba import types

from warpfront.sparse.plan import CholeskyRule, LuRule

# columns of FactorState.node
PANEL_AT, IND_AT, PIVOT_AT, ROWS, FULL, DONE, BLOCK_AT, BLOCK_SIZE = 0, 1, 2, 3, 4, 5, 6, 7
# entries of FactorState.limits
(
    PANEL_END,
    IND_END,
    PIVOT_END,
    STACK_SPAN,
    ROOT_AT,
    ROOT_END,
    WORK_SPAN,
    WORK_ROWS,
    MAP_SPAN,
) = range(9)
# jobs
SOLVE_ROWS, TRAIL, CONTRIBUTION, ADD_COLUMNS, ADD_BLOCK, CLEAR = 0, 1, 2, 3, 4, 5
SMALL = 64  # rows of a front that is factored whole in scratch
DELAYED = 8  # column of FactorState.stats, behind the eight of the panel kernels


def is_cholesky(rule: types.Type) -> bool:
    """Tell at compile time whether a rule's type stands for LL^T."""
    return getattr(rule, "instance_class", None) is CholeskyRule


def is_lu(rule: types.Type) -> bool:
    """Tell at compile time whether a rule's type stands for LU."""
    return getattr(rule, "instance_class", None) is LuRule
