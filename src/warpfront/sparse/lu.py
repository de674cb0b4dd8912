"""SciPy-like entry points for LU: ``splu`` with SuperLU's attributes, and ``spsolve_triangular``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NotSupportedError, SingularMatrixError
from warpfront.formats.canonical import canonicalize
from warpfront.formats.operand import first_nonfinite, read_operand
from warpfront.sparse.solver import DirectSolver

__all__ = ["LuFactor", "splu", "spsolve_triangular"]


def splu(
    A: Any,
    permc_spec: str | None = None,
    diag_pivot_thresh: float | None = None,
    relax: int | None = None,
    panel_size: int | None = None,
    options: dict[str, Any] | None = None,
    **parameters: Any,
) -> LuFactor:
    """LU of a square matrix, with the interface of ``scipy.sparse.linalg.splu``.

    Parameters
    ----------
    A : sparse matrix or array, n x n
        float32, float64, complex64 or complex128; see `DirectSolver`.
    permc_spec : {"NATURAL"}, optional
        SuperLU's column orderings; another ordering is chosen with ``reordering_alg=``.
    diag_pivot_thresh : float in [0, 1], optional
        Share of the largest entry of its column from which the diagonal is taken without an exchange of rows.
    relax, panel_size, options
        SuperLU's own tuning; refused.
    **parameters
        Those of `DirectSolver`, e.g. ``pivot_threshold=0.5``, ``block_triangular=False``.

    Returns
    -------
    LuFactor

    Raises
    ------
    SingularMatrixError
        With the first column that has no pivot; the message names rows and columns.
    """
    if "structure" in parameters:
        raise InvalidValueError("splu is LU, structure 'G'; cholesky and ldlt factor symmetric matrices")
    if permc_spec is not None:
        if permc_spec != "NATURAL":
            raise NotSupportedError(
                f"permc_spec={permc_spec!r}: rows are matched first and orderings work on the pattern of A + A^T; "
                "choose one with reordering_alg= (auto, amd, multilevel, metis, level_set, natural, user)"
            )
        parameters.setdefault("reordering_alg", "natural")
    given = {"relax": relax, "panel_size": panel_size, "options": options}
    for name, value in given.items():
        if value is not None:
            raise NotSupportedError(
                f"{name}={value!r} tunes SuperLU; there is no such thing here, leave it out"
            )
    if diag_pivot_thresh is not None:
        parameters["diag_pivot_thresh"] = diag_pivot_thresh
    return LuFactor(DirectSolver(A, structure="G", **parameters).factorize())


class LuFactor:
    """A factored square matrix. Made by `splu`; has what ``scipy.sparse.linalg.SuperLU`` has, and can be called.

    ``Pr A Pc = L U`` with ``Pr[perm_r[i], i] = 1`` and ``Pc[j, perm_c[j]] = 1``.

    Attributes
    ----------
    solver : DirectSolver
        Its records, settings, and `refactorize`.
    shape : tuple of int
    dtype : dtype
    """

    def __init__(self, solver: DirectSolver) -> None:
        self.solver = solver
        factor = self._factor = solver._usable()
        self.shape = (factor.symbolic.n, factor.symbolic.n)
        self.dtype = factor.state.panel.dtype

    def __call__(self, b: Any) -> NDArray[Any]:
        """Solve ``A x = b``."""
        x: NDArray[Any] = self.solver.solve(b)
        return x

    def solve(self, rhs: Any, trans: str = "N") -> NDArray[Any]:
        """Solve ``A x = rhs``, ``A^T x = rhs`` ("T") or ``A^H x = rhs`` ("H"), refined."""
        x: NDArray[Any] = self.solver.solve(rhs, trans)
        return x

    def as_linear_operator(self) -> Any:
        """Inverse of A as a ``scipy.sparse.linalg.LinearOperator``."""
        from scipy.sparse.linalg import LinearOperator

        solve = self.solver.solve
        return LinearOperator(
            self.shape, matvec=solve, rmatvec=lambda b: solve(b, "H"), matmat=solve, dtype=self.dtype
        )

    @cached_property
    def _orders(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        from warpfront.sparse.numeric.readout_lu import lu_orders

        return lu_orders(self._current())

    @cached_property
    def _triangles(self) -> tuple[Any, Any]:
        from warpfront.sparse.numeric.readout_lu import lower_upper

        return lower_upper(self._current())

    def _current(self) -> Any:
        if self.solver._factor is not self._factor:
            raise InvalidValueError(
                "the solver of this factor has been refactorized since: make a new LuFactor(solver) for the new factor"
            )
        return self._factor

    @property
    def perm_r(self) -> NDArray[np.int32]:
        """``perm_r[i]``: place of row i of A among the pivots."""
        return np.argsort(self._orders[0]).astype(np.int32)

    @property
    def perm_c(self) -> NDArray[np.int32]:
        """``perm_c[j]``: place of column j of A among the pivots."""
        return np.argsort(self._orders[1]).astype(np.int32)

    @property
    def L(self) -> Any:
        """Unit lower triangle, ``csc_array``, zeros left out."""
        return self._triangles[0]

    @property
    def U(self) -> Any:
        """Upper triangle, ``csc_array``, zeros left out."""
        return self._triangles[1]

    @property
    def nnz(self) -> int:
        """Entries that are stored for L and U, L's unit diagonal and zeros inside fronts included."""
        return int(self.solver.get("lu_nnz")) + self.shape[0]

    def diagonal(self) -> NDArray[Any]:
        """Pivot of each column of A, of the scaled matrix; 0 where there is none."""
        diagonal: NDArray[Any] = self.solver.get("diag")
        return diagonal

    def slogdet(self) -> tuple[Any, float]:
        """Sign (a phase for a complex matrix) and logarithm of the absolute determinant of A."""
        from warpfront.sparse.numeric.readout_lu import lu_slogdet

        return lu_slogdet(self._current())

    def logdet(self) -> Any:
        """Logarithm of the determinant; NaN when it is negative, complex for a complex matrix."""
        sign, logarithm = self.slogdet()
        if self.dtype.kind == "c":
            return logarithm + 1j * float(np.angle(sign))
        return logarithm if sign >= 0 else float("nan")

    def rcond(self) -> float:
        """Reciprocal 1-norm condition estimate."""
        return self.solver.rcond()


def spsolve_triangular(A: Any, b: Any, lower: bool = True, unit_diagonal: bool = False) -> NDArray[Any]:
    """Solve ``A x = b`` for a triangular A by substitution.

    Parameters
    ----------
    A : sparse matrix or array, dense array, or CSR triple, n x n
        Triangular: an entry on the other side, zero or not, is an error, not ignored.
    b : [n] or [n, k]
        Right-hand sides; read.
    lower : bool
        Whether A is lower or upper triangular.
    unit_diagonal : bool
        Take the diagonal as ones, whatever is stored there.

    Returns
    -------
    shape of b, in the common dtype of A and b (at least float32)

    Raises
    ------
    SingularMatrixError
        A diagonal entry is zero or missing; ``column`` says which.
    InvalidValueError, NonFiniteError
        A is not square or not triangular, b does not fit, NaN or infinity.
    """
    from warpfront.sparse.solve._substitution_kernels import substitute

    operand = read_operand(A)
    if operand.shape[0] != operand.shape[1]:
        raise InvalidValueError(f"the matrix is {operand.shape[0]} x {operand.shape[1]}; it must be square")
    pattern = canonicalize(operand, "all")
    values = pattern.gather(operand.data)
    n = pattern.n_cols
    x = _right_hand_side(b, n, values)
    col = np.repeat(np.arange(n), np.diff(pattern.ptr))
    wrong = np.flatnonzero(pattern.ind < col if lower else pattern.ind > col)
    if wrong.size:
        i, j = int(pattern.ind[wrong[0]]), int(col[wrong[0]])
        side = "lower" if lower else "upper"
        raise InvalidValueError(f"the matrix is not {side} triangular: entry ({i}, {j}) is stored")
    if not unit_diagonal:
        pivots = np.zeros(n, values.dtype)
        on = pattern.ind == col
        pivots[col[on]] = values[on]
        zero = np.flatnonzero(pivots == 0)
        if zero.size:
            raise SingularMatrixError(f"the diagonal is zero in column {int(zero[0])}", int(zero[0]))
    if x.size == 0:
        return x
    wide = x.reshape(n, -1)
    substitute(pattern.ptr, pattern.ind, values.astype(x.dtype), int(lower), int(unit_diagonal), wide)
    return x


def _right_hand_side(b: Any, n: int, values: NDArray[Any]) -> NDArray[Any]:
    """Return b as a contiguous copy in the common dtype."""
    from warpfront.errors import NonFiniteError

    try:
        rhs = np.asarray(b)
        dtype = np.result_type(values.dtype, rhs.dtype)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"b is not a numeric array: {error}") from error
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise InvalidValueError(f"b has shape {rhs.shape}; it must be ({n},) or ({n}, k)")
    if dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise InvalidValueError(
            f"b is {rhs.dtype}; allowed are real and complex numbers, integers and booleans"
        )
    x = np.array(rhs, dtype, order="C")
    for name, array in (("the matrix", values), ("b", x)):
        bad = first_nonfinite(array)
        if bad >= 0:
            raise NonFiniteError(f"{name} has {array.ravel()[bad]} at entry {bad}", bad)
    return x
