"""Refined solves with A, A^T and A^H for one LU factor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.solve.refine import Refinement, Refiner
from warpfront.sparse.solve.triangular import Sweeper

__all__ = ["GeneralRefiner"]


class _Directed:
    """A `Sweeper` that solves with A or with A^T."""

    def __init__(self, sweeper: Sweeper, trans: str) -> None:
        self._sweeper, self._trans = sweeper, trans

    def solve_into(self, b: NDArray[Any], base: NDArray[Any], x: NDArray[Any]) -> None:
        self._sweeper.solve_into(b, base, x, self._trans)

    def permute_in(self, b: NDArray[Any], y: NDArray[Any]) -> None:
        self._sweeper.permute_in(b, y, self._trans)

    def permute_out(self, y: NDArray[Any], x: NDArray[Any]) -> None:
        self._sweeper.permute_out(y, x, self._trans)

    def apply(self, parts: int, x: NDArray[Any], y: NDArray[Any]) -> None:
        self._sweeper.apply(parts, x, y, self._trans)


class GeneralRefiner(Refiner):
    """`Refiner` for a matrix that is not symmetric.

    Parameters
    ----------
    sweeper : Sweeper
    pattern : Canonical
        The whole matrix.
    values : [nnz]
        Unscaled canonical values.
    trans : {"N", "T", "H"}
        The system is ``A x = b``, ``A^T x = b`` or ``A^H x = b``; the last is solved as the conjugate of the second.
    """

    def __init__(self, sweeper: Sweeper, pattern: Canonical, values: NDArray[Any], trans: str) -> None:
        from warpfront.sparse.solve import _general_residual_kernels as kernels

        self._transposed = int(trans != "N")
        self._conjugate = trans == "H" and values.dtype.kind == "c"
        self.sweeper = self._sweeper = _Directed(sweeper, "T" if self._transposed else "N")  # type: ignore[assignment]
        self._pattern, self._values = pattern, values
        self._sums = kernels.general_sums(pattern.ptr, pattern.ind, values, self._transposed)
        self._residual, self._next = np.empty((2, pattern.n_cols), values.dtype)
        self._size = np.empty(pattern.n_cols, values.real.dtype)

    def solve(self, b: NDArray[Any], x: NDArray[Any], steps: int) -> Refinement:
        """Write the solution to ``x`` after at most ``steps`` corrections."""
        if not self._conjugate:
            return super().solve(b, x, steps)
        result = super().solve(np.conj(b), x, steps)
        np.conjugate(x, out=x)
        return result

    def solve_unrefined(self, b: NDArray[Any], x: NDArray[Any]) -> None:
        """Write the plain solution to ``x``; no residual is computed."""
        self._sweeper.solve_into(b, np.empty(0, x.dtype), x)

    def _measure(self, b: NDArray[Any], x: NDArray[Any]) -> tuple[float, float]:
        from warpfront.sparse.solve import _general_residual_kernels as general
        from warpfront.sparse.solve import _residual_kernels as kernels

        p = self._pattern
        general.general_residual(
            p.ptr, p.ind, self._values, self._transposed, x, b, self._residual, self._size
        )
        component, whole = kernels.backward_errors(self._residual, self._size, x, b, self._sums)
        return float(component), float(whole)
