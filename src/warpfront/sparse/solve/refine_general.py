"""What refinement needs to know of a matrix that is not symmetric: A, A^T and A^H for one LU factor."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.solve.refine import Refinement, Refiner
from warpfront.sparse.solve.triangular import Sweeper

__all__ = ["GeneralOperator", "GeneralRefiner"]

_KIND = {"N": 0, "T": 1, "H": 2}  # as in _general_residual_kernels


class GeneralOperator:
    """A matrix stored by columns; see `refine.Operator`.

    Parameters
    ----------
    pattern : Canonical
        The whole matrix.
    values : [nnz]
        Unscaled canonical values.
    trans : {"N", "T", "H"}
        The system is ``A x = b``, ``A^T x = b`` or ``A^H x = b``.
    """

    def __init__(self, pattern: Canonical, values: NDArray[Any], trans: str = "N") -> None:
        from warpfront.sparse.solve import _general_residual_kernels as kernels

        self.n = pattern.n_cols
        self.dtype = values.dtype
        self.pattern, self.values, self.kind = pattern, values, _KIND[trans]
        self.sums = kernels.general_sums(pattern.ptr, pattern.ind, values, self.kind)

    @cached_property
    def row_entries(self) -> int:
        """Entries of the fullest row."""
        counts = np.diff(self.pattern.ptr) if self.kind else np.bincount(self.pattern.ind, minlength=self.n)
        return int(counts.max(initial=0))

    def residual(self, b: NDArray[Any], x: NDArray[Any], residual: NDArray[Any], size: NDArray[Any]) -> None:
        """``residual = b - op(A) x`` and ``size = |op(A)| |x| + |b|``."""
        from warpfront.sparse.solve import _general_residual_kernels as kernels

        p = self.pattern
        kernels.general_residual(p.ptr, p.ind, self.values, self.kind, x, b, residual, size)


class GeneralRefiner(Refiner):
    """`Refiner` of an LU factor: one compiled call where one thread solves alone."""

    operator: GeneralOperator

    def __init__(self, sweeper: Sweeper, operator: GeneralOperator, fgmres: bool, trans: str) -> None:
        super().__init__(sweeper, operator, fgmres, trans)
        if not fgmres:
            self._work: Any = sweeper.general_work(operator, trans, (self.residual, self.size, self._next))

    def _solve_at_once(self, b: NDArray[Any], x: NDArray[Any], steps: int) -> Refinement:
        from warpfront.sparse.solve._refined_general_kernels import refined_solve_general

        return Refinement(*refined_solve_general(self._work, b, self._nothing, x, steps))
