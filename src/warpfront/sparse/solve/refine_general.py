"""What refinement needs to know of a matrix that is not symmetric: A, A^T and A^H for one LU factor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical

__all__ = ["GeneralOperator"]

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
        self._pattern, self._values, self._kind = pattern, values, _KIND[trans]
        self.sums = kernels.general_sums(pattern.ptr, pattern.ind, values, self._kind)
        counts = np.diff(pattern.ptr) if self._kind else np.bincount(pattern.ind, minlength=self.n)
        self.row_entries = int(counts.max(initial=0))

    def residual(self, b: NDArray[Any], x: NDArray[Any], residual: NDArray[Any], size: NDArray[Any]) -> None:
        """``residual = b - op(A) x`` and ``size = |op(A)| |x| + |b|``."""
        from warpfront.sparse.solve import _general_residual_kernels as kernels

        p = self._pattern
        kernels.general_residual(p.ptr, p.ind, self._values, self._kind, x, b, residual, size)
