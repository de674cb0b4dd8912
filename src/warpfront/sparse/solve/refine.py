"""Iterative refinement of one right-hand side, best iterate kept (Skeel 1980; Arioli, Demmel and Duff 1989)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.formats.canonical import Canonical
from warpfront.sparse.solve.triangular import Sweeper

__all__ = ["Refinement", "Refiner"]

Floats = NDArray[np.float64]
GOOD_ENOUGH = 8 * float(np.finfo(np.float64).eps)


class Refinement(NamedTuple):
    """Result of one refined solve: steps taken, componentwise and normwise backward error of the solution kept."""

    steps: int
    componentwise: float
    normwise: float


class Refiner:
    """Solve, then correct by the residual while that helps.

    Parameters
    ----------
    sweeper : Sweeper
    pattern : Canonical
        Lower triangle of the matrix.
    values : float64[nnz]
        Unscaled canonical values.
    """

    def __init__(self, sweeper: Sweeper, pattern: Canonical, values: Floats) -> None:
        from warpfront.sparse.solve import _residual_kernels as kernels

        self.sweeper = self._sweeper = sweeper
        self._pattern = pattern
        self._values = values
        self._sums = kernels.row_sums(pattern.ptr, pattern.ind, values)
        self._residual, self._size, self._next = np.empty((3, pattern.n_cols))

    def solve(self, b: Floats, x: Floats, steps: int) -> Refinement:
        """Write the solution of ``A x = b`` to ``x`` (both contiguous float64[n]), after at most ``steps`` corrections.

        Stops early at a componentwise error of a few units in the last place, or when a step gains less than half.
        """
        self.solve_unrefined(b, x)
        return self.improve(b, x, steps)

    def solve_unrefined(self, b: Floats, x: Floats) -> None:
        """Write the plain solution to ``x``; no residual is computed."""
        self._sweeper.solve_into(b, np.empty(0), x)

    def improve(self, b: Floats, x: Floats, steps: int) -> Refinement:
        """Refine a given ``x`` in place."""
        error = self._measure(b, x)
        for step in range(steps):
            if error[0] <= GOOD_ENOUGH:
                return Refinement(step, *error)
            self._sweeper.solve_into(self._residual, x, self._next)
            previous, error_next = error, self._measure(b, self._next)
            if error_next[0] < error[0]:
                x[:] = self._next
                error = error_next
            if not error_next[0] < 0.5 * previous[0]:
                return Refinement(step + 1, *error)
        return Refinement(steps, *error)

    def _measure(self, b: Floats, x: Floats) -> tuple[float, float]:
        from warpfront.sparse.solve import _residual_kernels as kernels

        p = self._pattern
        kernels.symmetric_residual(p.ptr, p.ind, self._values, x, b, self._residual, self._size)
        component, whole = kernels.backward_errors(self._residual, self._size, x, b, self._sums)
        return float(component), float(whole)
