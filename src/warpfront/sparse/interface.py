"""SciPy-like entry points: ``spsolve``, ``factorized``, and factor objects from ``cholesky`` and ``ldlt``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.report import Inertia
from warpfront.sparse.differentiable import DifferentiableSolver, library_of_matrix
from warpfront.sparse.solver import DirectSolver

__all__ = ["SymmetricFactor", "cholesky", "factorized", "ldlt", "spsolve"]


def spsolve(A: Any, b: Any, structure: str = "auto", **options: Any) -> Any:
    """Solve ``A x = b`` once.

    Parameters
    ----------
    A : sparse matrix or array, n x n
        Real or complex. Sparse tensors of PyTorch (``sparse_coo``, ``sparse_csr``, ``sparse_csc``) and of JAX
        (``BCOO``, ``BCSR``) are differentiated through, see `DifferentiableSolver`, which keeps the analysis.
    b : [n] or [n, k], dense or sparse
        Right-hand sides; a dense tensor or array of A's library.
    structure : {"auto", "SPD", "S", "HPD", "H", "G"}
        See `DirectSolver`.
    **options
        Keywords of `DirectSolver`.

    Returns
    -------
    array, shape of b
        Of A's type, complex where b is; sparse where b is; a tensor where A is one.

    Raises
    ------
    SingularMatrixError, NotPositiveDefiniteError, RefinementFailedError
        Never NaN with a warning.
    """
    library = library_of_matrix(A)
    if library is None:
        return DirectSolver(A, structure=structure, **options).solve(b)
    A, values = import_module(f"warpfront.sparse._{library}_solve").with_values(A)
    return DifferentiableSolver(A, structure=structure, **options)(values, b)


def factorized(A: Any, structure: str = "auto", **options: Any) -> Callable[[Any], NDArray[np.float64]]:
    """Return a function that solves ``A x = b`` for any b, with A factored once."""
    return DirectSolver(A, structure=structure, **options).factorize().solve


def cholesky(A: Any, **options: Any) -> SymmetricFactor:
    """LL^T of a symmetric positive definite matrix, LL^H of a Hermitian positive definite one.

    Raises
    ------
    NotPositiveDefiniteError
        With the failing column.
    """
    return SymmetricFactor(DirectSolver(A, structure="HPD", **options).factorize())


def ldlt(A: Any, hermitian: bool = False, **options: Any) -> SymmetricFactor:
    """LDL^T of a symmetric matrix, with exact inertia where it is real.

    Parameters
    ----------
    A : sparse matrix or array
    hermitian : bool
        LDL^H of a complex Hermitian matrix, with exact inertia.
    **options
        Keywords of `DirectSolver`.

    Raises
    ------
    SingularMatrixError
        With the column that has no pivot.
    """
    return SymmetricFactor(DirectSolver(A, structure="H" if hermitian else "S", **options).factorize())


class SymmetricFactor:
    """A factor that can be called: ``factor(b)`` solves. Made by `cholesky` and `ldlt`."""

    def __init__(self, solver: DirectSolver) -> None:
        self.solver = solver
        self.shape = (solver._symbolic.n, solver._symbolic.n)
        self.dtype = solver._system.dtype

    def __call__(self, b: Any) -> Any:
        """Solve ``A x = b``."""
        return self.solver.solve(b)

    def solve(self, b: Any, trans: str = "N") -> Any:
        """Solve ``A x = b``, or with the transpose ("T") or conjugate transpose ("H") of A."""
        return self.solver.solve(b, trans)

    def as_linear_operator(self) -> Any:
        """Inverse of A as a ``scipy.sparse.linalg.LinearOperator``, e.g. for ``eigsh(OPinv=)``."""
        from scipy.sparse.linalg import LinearOperator

        solve = self.solver.solve

        def adjoint(b: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(solve(b, "H"))

        return LinearOperator(
            self.shape, matvec=solve, rmatvec=adjoint, matmat=solve, rmatmat=adjoint, dtype=self.dtype
        )

    @property
    def perm(self) -> NDArray[np.int64]:
        """``perm[k]``: row of A eliminated k-th."""
        from warpfront.sparse.numeric.readout import elimination_order

        return elimination_order(self.solver._usable())

    @property
    def L(self) -> Any:
        """L in elimination order, ``csc_array``; of the scaled matrix where `scale` is not 1."""
        from warpfront.sparse.numeric.readout import lower_factor

        return lower_factor(self.solver._usable())

    @property
    def scale(self) -> NDArray[np.float64]:
        """Symmetric scaling s: ``diag(s) A diag(s)`` was factored."""
        scale: NDArray[np.float64] = self.solver.get("scale_row")
        return scale

    @property
    def nnz(self) -> int:
        """Stored entries of L."""
        return int(self.solver.get("lu_nnz"))

    @property
    def inertia(self) -> Inertia:
        """Numbers of positive, negative and zero eigenvalues of A."""
        return self.solver.inertia

    def diagonal(self) -> NDArray[Any]:
        """Diagonal of D (LL^T: squared diagonal of L) in the caller's numbering."""
        diagonal: NDArray[Any] = self.solver.get("diag")
        return diagonal

    def slogdet(self) -> tuple[complex, float]:
        """Sign (complex A: phase) and logarithm of the absolute determinant of A."""
        from warpfront.sparse.numeric.readout import slogdet

        return slogdet(self.solver._usable())

    def logdet(self) -> float:
        """Logarithm of the determinant; NaN when that is negative or not real."""
        sign, logarithm = self.slogdet()
        return logarithm if sign in (0, 1) else float("nan")

    def rcond(self) -> float:
        """Reciprocal 1-norm condition estimate."""
        return self.solver.rcond()
