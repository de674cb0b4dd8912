"""Refinement of one right-hand side, best iterate kept: by residual correction, or by flexible GMRES.

Residual correction after Skeel (1980) with the error measure of Arioli, Demmel and Duff (1989). FGMRES (Saad 1993) takes
the factor as its preconditioner: it still converges where the factor is of a perturbed matrix, or of lower precision.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import run_jobs
from warpfront.formats.canonical import Canonical
from warpfront.sparse.plan import Many, Matrix
from warpfront.sparse.solve.triangular import Sweeper

__all__ = ["Operator", "Refinement", "Refiner", "SymmetricOperator"]

Vector = NDArray[Any]
GOOD_ENOUGH = 16  # componentwise error in units of eps at which nothing is corrected; as in _refined_kernels


class Refinement(NamedTuple):
    """Result of one refined solve: steps taken, componentwise and normwise backward error of the solution kept."""

    steps: int
    componentwise: float
    normwise: float


class Operator(Protocol):
    """What refinement needs to know of the matrix.

    Attributes
    ----------
    n : int
    dtype : dtype
        Of its values and of every vector.
    sums : float64[n]
        Row sums of |A|.
    row_entries : int
        Entries of the fullest row, or a few more.
    """

    n: int
    dtype: np.dtype[Any]
    sums: NDArray[np.float64]

    @property
    def row_entries(self) -> int:
        """See above."""

    def residual(self, b: Vector, x: Vector, residual: Vector, size: Vector) -> None:
        """``residual = b - A x`` and ``size = |A| |x| + |b|``."""


class SymmetricOperator:
    """A symmetric or Hermitian matrix by its lower triangle.

    Parameters
    ----------
    pattern : Canonical
        Lower triangle.
    values : [nnz]
        Unscaled canonical values.
    hermitian : bool
    """

    def __init__(self, pattern: Canonical, values: Vector, hermitian: bool = False) -> None:
        from warpfront.sparse.solve import _residual_kernels as kernels

        self.n = pattern.n_cols
        self.dtype = values.dtype
        self._pattern, self._values, self._hermitian = pattern, values, hermitian
        self.sums = kernels.row_sums(pattern.ptr, pattern.ind, values)
        self.matrix = Matrix(
            pattern.ptr, pattern.ind, values, self.sums, int(hermitian), float(np.finfo(values.dtype).eps)
        )

    @cached_property
    def row_entries(self) -> int:
        """Entries of the fullest row, or one more."""
        pattern = self._pattern
        return int((np.bincount(pattern.ind, minlength=self.n) + np.diff(pattern.ptr)).max(initial=0))

    def residual(self, b: Vector, x: Vector, residual: Vector, size: Vector) -> None:
        """``residual = b - A x`` and ``size = |A| |x| + |b|``."""
        from warpfront.sparse.solve import _residual_kernels as kernels

        p = self._pattern
        kernels.symmetric_residual(p.ptr, p.ind, self._values, self._hermitian, x, b, residual, size)


class Refiner:
    """Solve, then correct by the residual while that helps.

    Parameters
    ----------
    sweeper : Sweeper
        Of the factor, which may have a lower precision than the operator.
    operator : Operator
        Of op(A): transposed already, where ``trans`` says so.
    fgmres : bool
        Correct by flexible GMRES instead.
    trans : {"N", "T", "H"}
        Passed to the sweeper.
    """

    def __init__(self, sweeper: Sweeper, operator: Operator, fgmres: bool = False, trans: str = "N") -> None:
        self.sweeper = self._sweeper = sweeper
        self._trans = trans
        self.operator = operator
        self._fgmres = fgmres
        n, dtype = operator.n, operator.dtype
        self.eps = float(np.finfo(dtype).eps)
        self._good_enough = GOOD_ENOUGH * self.eps
        self._narrow = sweeper.dtype != dtype
        self.residual, self._next = np.empty((2, n), dtype)
        self.size = np.empty(n, np.finfo(dtype).dtype)
        self._work = None
        self._blocks: list[Many] = []
        self._matrix: Any = getattr(operator, "matrix", None)
        self._nothing = np.empty(0, dtype)
        if isinstance(operator, SymmetricOperator) and not (fgmres or self._narrow):
            self._work = sweeper.work(self.residual, self.size, self._next)

    def solve(self, b: Vector, x: Vector, steps: int) -> Refinement:
        """Write the solution of ``A x = b`` to ``x`` (both contiguous, [n]), after at most ``steps`` corrections.

        Stops early at a componentwise error of a few units in the last place, or when a step gains less than half.
        """
        if self._alone:
            return self._solve_at_once(b, x, steps)
        self.solve_unrefined(b, x)
        return self.improve(b, x, steps)

    @property
    def takes_blocks(self) -> bool:
        """Whether `solve_block` is there: a real symmetric matrix, refined by its residual, a factor of its type."""
        return isinstance(self.operator, SymmetricOperator) and not (
            self._fgmres
            or self._narrow
            or self.operator.dtype.kind == "c"
            or self._sweeper is not self.sweeper
        )

    def solve_block(self, rhs: Vector, x: Vector, steps: int) -> Refinement:
        """Write the solutions for the columns of ``rhs`` to ``x``, both [n, k], with the bits each has alone.

        Threads take blocks of columns. The worst errors and the most steps are returned.
        """
        from warpfront.sparse.solve._lanes_kernels import LANES
        from warpfront.sparse.solve._many_kernels import refined_many

        sweeper, n, count = self._sweeper, self.operator.n, rhs.shape[1]
        blocks = -(-count // LANES)
        threads = min(max(1, sweeper.factor.options.threads), blocks)
        while len(self._blocks) < threads:
            self._blocks.append(sweeper.many(LANES))
        plan, sides, matrix = sweeper.factor.symbolic.plan, sweeper.sides(), self._matrix
        found = np.zeros((3, blocks * LANES))

        def solve(begin: int) -> None:
            width = min(LANES, count - begin)
            work = self._blocks.pop()  # each thread takes one, for one block
            b, y = np.zeros((n, LANES), x.dtype), np.empty((n, LANES), x.dtype)
            b[:, :width] = rhs[:, begin : begin + width]
            mine = found[:, begin : begin + LANES]
            refined_many(
                plan, sides, matrix, work, b.reshape(-1), y.reshape(-1), steps, mine[0], mine[1], mine[2]
            )
            x[:, begin : begin + width] = y[:, :width]
            self._blocks.append(work)

        run_jobs(threads, [partial(solve, block * LANES) for block in range(blocks)])
        taken, component, whole = found.max(axis=1)
        return Refinement(int(taken), float(component), float(whole))

    @property
    def _alone(self) -> bool:
        return self._work is not None and self._sweeper is self.sweeper

    def _solve_at_once(self, b: Vector, x: Vector, steps: int) -> Refinement:
        """The same in one compiled call."""
        from warpfront.sparse.solve._refined_kernels import refined_solve

        sweeper = self._sweeper
        taken, component, whole = refined_solve(
            sweeper.factor.symbolic.plan,
            sweeper.sides(),
            self._matrix,
            self._work,
            b,
            self._nothing,
            x,
            steps,
        )
        return Refinement(taken, component, whole)

    def solve_unrefined(self, b: Vector, x: Vector) -> None:
        """Write the plain solution to ``x``; no residual is computed."""
        if self._alone:
            self._solve_at_once(b, x, 0)
            return
        self._correct(b, np.empty(0, x.dtype), x)

    def improve(self, b: Vector, x: Vector, steps: int) -> Refinement:
        """Refine a given ``x`` in place."""
        if self._fgmres:
            return self._improve_by_fgmres(b, x, steps)
        error = self.measure(b, x)
        for step in range(steps):
            if error[0] <= self._good_enough:
                return Refinement(step, *error)
            self._correct(self.residual, x, self._next)
            previous, error_next = error, self.measure(b, self._next)
            if error_next[0] < error[0]:
                x[:] = self._next
                error = error_next
            if not error_next[0] < 0.5 * previous[0]:
                return Refinement(step + 1, *error)
        return Refinement(steps, *error)

    def measure(self, b: Vector, x: Vector) -> tuple[float, float]:
        """Componentwise and normwise backward error of ``x``; leaves the residual and its size behind."""
        from warpfront.sparse.solve import _residual_kernels as kernels

        operator = self.operator
        operator.residual(b, x, self.residual, self.size)
        component, whole = kernels.backward_errors(self.residual, self.size, x, b, operator.sums, self.eps)
        return float(component), float(whole)

    def _correct(self, r: Vector, base: Vector, x: Vector) -> None:
        """``x = base + A^-1 r`` by the factor."""
        if self._narrow:
            self._correct_narrow(r, base, x)
        else:
            self._sweeper.solve_into(r, base, x, self._trans)

    def _correct_narrow(self, r: Vector, base: Vector, x: Vector) -> None:
        """The same with a factor of lower precision: scaled vectors are brought to 1 first, so that they fit its range."""
        sweeper, trans = self._sweeper, self._trans
        wide = np.empty_like(x)
        sweeper.permute_in(r, wide, trans)
        top = float(np.abs(wide).max(initial=0.0))
        size = np.ldexp(1.0, int(np.frexp(top)[1])) if 0.0 < top < np.inf else 1.0
        start = (wide / size).astype(sweeper.dtype)
        found = np.empty_like(start)
        sweeper.apply(7, start, found, trans)
        sweeper.permute_out(found.astype(x.dtype) * size, x, trans)
        if base.size:
            x += base

    def _improve_by_fgmres(self, b: Vector, x: Vector, steps: int) -> Refinement:
        """Cycles of at most ten steps, each from the residual of the best solution so far."""
        from warpfront.backend.cpu import single_threaded_blas

        error = self.measure(b, x)
        taken = 0
        with single_threaded_blas():
            while taken < steps and error[0] > self._good_enough:
                used = self._fgmres_cycle(x, self._next, min(10, steps - taken))
                taken += used
                previous, error_next = error, self.measure(b, self._next)
                if error_next[0] < error[0]:
                    x[:] = self._next
                    error = error_next
                if used == 0 or not error_next[0] < 0.5 * previous[0]:
                    break
        return Refinement(taken, *error)

    def _fgmres_cycle(self, x: Vector, out: Vector, steps: int) -> int:
        """One cycle from the residual at hand; writes ``x`` plus the correction to ``out``; returns the steps taken."""
        n, dtype = self.operator.n, self.operator.dtype
        start = self.residual.copy()
        beta = float(np.linalg.norm(start))
        out[:] = x
        if not 0.0 < beta < np.inf:
            return 0
        basis, directions = np.empty((steps + 1, n), dtype), np.empty((steps, n), dtype)
        hessenberg = np.zeros((steps + 1, steps), dtype)
        basis[0] = start / beta
        zero, product, size = np.zeros(n, dtype), np.empty(n, dtype), np.empty_like(self.size)
        used, y = 0, np.zeros(0, dtype)
        for j in range(steps):
            self._correct(basis[j], np.empty(0, dtype), directions[j])
            self.operator.residual(zero, directions[j], product, size)
            w = -product
            for i in range(j + 1):
                hessenberg[i, j] = np.vdot(basis[i], w)
                w -= hessenberg[i, j] * basis[i]
            norm = float(np.linalg.norm(w))
            hessenberg[j + 1, j] = norm
            if not np.isfinite(norm):
                break
            used = j + 1
            right = np.zeros(used + 1, dtype)
            right[0] = beta
            h = hessenberg[: used + 1, :used]
            y = np.linalg.lstsq(h, right, rcond=None)[0]
            left = float(np.linalg.norm(right - h @ y))
            if norm == 0.0 or left <= self.eps * beta:
                break
            basis[used] = w / norm
        out += y @ directions[:used]
        return used
