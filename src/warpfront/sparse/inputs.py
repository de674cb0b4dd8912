"""Checks of what a caller passes besides the matrix: right-hand sides and diagonal shifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError
from warpfront.formats.canonical import Canonical
from warpfront.formats.operand import first_nonfinite, host_array

__all__ = ["check_out", "is_sparse", "right_hand_side", "shift_diagonal", "solution_dtype", "solve_sparse"]

SPARSE_BLOCK = 64  # columns of a sparse right-hand side that are dense at a time


def is_sparse(b: Any) -> bool:
    """Whether ``b`` is a SciPy sparse matrix or array; SciPy is not imported for an array."""
    if isinstance(b, np.ndarray) or not hasattr(b, "tocsc"):
        return False
    from scipy import sparse

    return bool(sparse.issparse(b))


def solution_dtype(matrix: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Type of the solution: the matrix's, complex where ``b`` is."""
    if b.kind == "c" and matrix.kind != "c":
        return np.dtype(np.complex64 if matrix == np.float32 else np.complex128)
    return matrix


def right_hand_side(b: Any, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``b`` as a new array of shape (n,) or (n, k) and `solution_dtype`, or say what is wrong with it."""
    if isinstance(b, np.ma.MaskedArray):
        raise InvalidValueError("b is a masked array; fill it first")
    rhs = host_array(b, "b")
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise InvalidValueError(f"b has shape {rhs.shape}; it must be ({n},) or ({n}, k)")
    limit = 16 if rhs.dtype.kind == "c" else 8
    if rhs.dtype.kind not in "fiubc" or rhs.dtype == np.float16 or rhs.dtype.itemsize > limit:
        raise InvalidValueError(
            f"b is {rhs.dtype}; allowed are float32, float64, complex64, complex128, integers and booleans"
        )
    bad = first_nonfinite(rhs)
    if bad >= 0:
        raise NonFiniteError(f"b has {rhs.reshape(-1)[bad]} at entry {bad}", bad)
    target = solution_dtype(dtype, rhs.dtype)
    if rhs.dtype == target:
        return rhs.astype(target, order="C")  # a copy: the solution may be written over b
    with np.errstate(over="ignore"):
        rhs = rhs.astype(target, order="C")
    bad = first_nonfinite(rhs)
    if bad >= 0:
        raise NonFiniteError(f"entry {bad} of b is beyond the range of {rhs.dtype}, the matrix's type", bad)
    return rhs


def solve_sparse(b: Any, n: int, solve: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """Solve for the columns of a sparse matrix, some at a time; the solution is sparse, in b's format.

    Parameters
    ----------
    b : sparse matrix or array, n x k
    n : int
    solve : callable
        Solution of a dense [n, k].
    """
    from scipy import sparse

    if b.ndim != 2 or b.shape[0] != n:
        raise InvalidValueError(f"b has shape {b.shape}; a sparse right-hand side must be ({n}, k)")
    columns, count = b.tocsc(), b.shape[1]
    blocks = [
        sparse.csc_array(solve(columns[:, at : min(count, at + SPARSE_BLOCK)].toarray()))
        for at in range(0, max(count, 1), SPARSE_BLOCK)
    ]
    solution = sparse.hstack(blocks, format="csc")
    if not isinstance(b, sparse.sparray):
        solution = sparse.csc_matrix(solution)
    return solution.asformat(b.format)


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an ``out`` that cannot take the solution of shape ``shape``."""
    if not isinstance(out, np.ndarray):
        raise InvalidValueError(
            f"out is a {type(out).__name__}; it must be a writable {dtype} array of shape {shape}"
        )
    if out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        raise InvalidValueError(
            f"out is {out.dtype}{list(out.shape)}; it must be writable {dtype}{list(shape)}"
        )


def shift_diagonal(
    pattern: Canonical, values: NDArray[Any], shift: Any, sign: NDArray[np.int8] | None
) -> NDArray[Any]:
    """Add ``dw`` to the diagonal entries that count as positive and subtract ``dc`` from the negative ones.

    Parameters
    ----------
    pattern, values : Canonical, [nnz]
        A matrix; of a symmetric one, the lower triangle.
    shift : (float, float)
        ``(dw, dc)``, finite.
    sign : int8[n] or None
        Which entries are positive (1) and negative (-1); 0 or None: as their values say.

    Raises
    ------
    InvalidValueError
        A diagonal entry is not stored; or is zero, with no ``sign`` to tell the two blocks apart and a ``dw`` and
        ``dc`` that differ in what they would do.
    """
    try:
        dw, dc = (float(part) for part in shift)
    except (TypeError, ValueError):
        raise InvalidValueError(f"diagonal_shift is {shift!r}; allowed are two numbers (dw, dc)") from None
    if not (np.isfinite(dw) and np.isfinite(dc)):
        raise InvalidValueError(f"diagonal_shift is {(dw, dc)}; both must be finite")
    n = pattern.n_cols
    column = np.repeat(np.arange(n, dtype=np.int64), np.diff(pattern.ptr))
    at = np.full(n, -1, np.int64)
    slots = np.flatnonzero(pattern.ind == column)
    at[column[slots]] = slots
    if (at < 0).any():
        missing = int(np.flatnonzero(at < 0)[0])
        raise InvalidValueError(f"diagonal_shift: entry ({missing}, {missing}) is not stored")
    values = values.copy()
    side = np.sign(values[at].real).astype(np.int8)
    if sign is not None:
        side = np.where(sign != 0, sign, side)
    open_entries = np.flatnonzero(side == 0)
    if open_entries.size and dw != -dc:
        i = int(open_entries[0])
        raise InvalidValueError(
            f"diagonal_shift: entry ({i}, {i}) is zero, so its value does not say whether it gets +dw or -dc; set "
            "pivot_sign (1 for the rows of the Hessian, -1 for those of the constraints)"
        )
    values[at] += np.where(side >= 0, dw, -dc)
    return values
