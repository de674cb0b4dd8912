"""Schur complement of chosen rows, dense, with the two partial solves around it.

With the chosen rows and columns last, A = [[A11, A12], [A21, A22]] and S = A22 - A21 A11^-1 A12. A11 is factored as any
matrix is; S costs one solve for each chosen column, some at a time, and one sparse product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError
from warpfront.report import Inertia
from warpfront.sparse.inputs import right_hand_side
from warpfront.sparse.solver import DirectSolver
from warpfront.sparse.structure import System, read_system

__all__ = ["SchurComplement", "schur_complement"]

BLOCK = 64  # columns of A12 that are dense at a time


def schur_complement(
    A: Any, indices: Any, structure: str = "auto", view: str = "full", **options: Any
) -> SchurComplement:
    """Eliminate every row but ``indices``.

    Parameters
    ----------
    A : sparse matrix or array, n x n
        As in `DirectSolver`.
    indices : int[k] or bool[n]
        Rows that stay, by number (each once) or by mark.
    structure, view, **options
        As in `DirectSolver`; the structure is A's.

    Returns
    -------
    SchurComplement

    Raises
    ------
    SingularMatrixError, NotPositiveDefiniteError
        The block of the eliminated rows cannot be factored; its column is in the numbering of that block.
    """
    return SchurComplement(A, indices, structure, view, **options)


class SchurComplement:
    """``S = A22 - A21 A11^-1 A12`` and solves with its parts. Made by `schur_complement`.

    Attributes
    ----------
    indices, eliminated : int64[k], int64[n - k]
        Rows of S in its order, which is the caller's; the other rows, ascending.
    matrix : [k, k]
        S, dense, of A's type.
    """

    def __init__(
        self, A: Any, indices: Any, structure: str = "auto", view: str = "full", **options: Any
    ) -> None:
        self._system, values = read_system(A, structure, view)
        n = self._system.pattern.n_cols
        self.indices = _checked(indices, n)
        left = np.ones(n, bool)
        left[self.indices] = False
        self.eliminated = np.flatnonzero(left)
        self._split(values)
        inner = "auto" if self._system.open_choice else self._system.structure
        self.solver = DirectSolver(self._a11, structure=inner, **options).factorize()
        self._complete()

    def refactorize(self, values: Any) -> SchurComplement:
        """Take new values of A, in the caller's own entry order, on the same pattern."""
        self._split(self._system.gather(values))
        self.solver.refactorize(self._a11)
        self._complete()
        return self

    @property
    def inertia(self) -> Inertia:
        """Inertia of A: that of A11 and that of S together (Haynsworth 1968)."""
        outer = self.solver.inertia
        values = np.linalg.eigvalsh(self.matrix) if self.indices.size else np.zeros(0)
        limit = 1e-13 * np.abs(values).max(initial=0.0)
        return Inertia(
            outer.positive + int((values > limit).sum()),
            outer.negative + int((values < -limit).sum()),
            outer.zero + int((np.abs(values) <= limit).sum()),
        )

    def forward(self, b: Any) -> NDArray[Any]:
        """Right-hand side of S: ``b2 - A21 A11^-1 b1``, [k] or [k, m]."""
        rhs = self._rhs(b)
        return np.asarray(rhs[self.indices] - self._a21 @ self.solver.solve(rhs[self.eliminated]))

    def backward(self, b: Any, x2: NDArray[Any]) -> NDArray[Any]:
        """Whole solution from its part ``x2``: ``x1 = A11^-1 (b1 - A12 x2)``, in A's order."""
        rhs = self._rhs(b)
        x2 = np.asarray(x2)
        if x2.shape != (self.indices.size, *rhs.shape[1:]):
            raise InvalidValueError(
                f"x2 has shape {x2.shape}; it must be {(self.indices.size, *rhs.shape[1:])}"
            )
        x = np.empty(rhs.shape, np.result_type(rhs, x2))
        x[self.indices] = x2
        x[self.eliminated] = self.solver.solve(rhs[self.eliminated] - self._a12 @ x2)
        return x

    def solve(self, b: Any) -> NDArray[Any]:
        """Solve ``A x = b`` through S (LAPACK's LU of S)."""
        return self.backward(b, np.linalg.solve(self.matrix, self.forward(b)))

    def _rhs(self, b: Any) -> NDArray[Any]:
        return right_hand_side(b, self._system.pattern.n_cols, self._system.dtype)

    def _split(self, values: NDArray[Any]) -> None:
        whole = _whole(self._system, values)
        rows = whole[self.eliminated]
        self._a11, self._a12 = rows[:, self.eliminated].tocsc(), rows[:, self.indices].tocsc()
        rows = whole[self.indices]
        self._a21, self._a22 = rows[:, self.eliminated].tocsr(), rows[:, self.indices]

    def _complete(self) -> None:
        self.matrix = self._a22.toarray()
        for begin in range(0, self.indices.size, BLOCK):
            part = slice(begin, min(begin + BLOCK, self.indices.size))
            self.matrix[:, part] -= self._a21 @ self.solver.solve(self._a12[:, part].toarray())


def _checked(indices: Any, n: int) -> NDArray[np.int64]:
    chosen = np.asarray(indices)
    if chosen.dtype.kind == "b" and chosen.shape == (n,):
        return np.flatnonzero(chosen).astype(np.int64)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise InvalidValueError("indices must be row numbers, int[k], or marks, bool[n]")
    chosen = chosen.astype(np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= n):
        raise InvalidValueError(f"indices reach from {chosen.min()} to {chosen.max()}; rows are 0 to {n - 1}")
    if np.unique(chosen).size != chosen.size:
        raise InvalidValueError("indices names a row twice")
    return chosen


def _whole(system: System, values: NDArray[Any]) -> Any:
    """Both triangles as a ``csr_array``, stored zeros included: other values may not be zero there."""
    from scipy import sparse

    pattern = system.pattern
    given = sparse.csc_array((values, pattern.ind, pattern.ptr), shape=(pattern.n_rows, pattern.n_cols))
    if system.structure == "G":
        return given.tocsr()
    lower = given.tocoo()
    row, col = lower.coords
    off = row != col
    mirrored = lower.data[off].conj() if system.hermitian else lower.data[off]
    rows, cols = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
    return sparse.coo_array((np.concatenate([lower.data, mirrored]), (rows, cols)), shape=given.shape).tocsr()
