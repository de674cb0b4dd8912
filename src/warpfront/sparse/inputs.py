"""Checks of what a caller passes besides the matrix: right-hand sides and diagonal shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError
from warpfront.formats.canonical import Canonical
from warpfront.formats.operand import first_nonfinite
from warpfront.sparse.general import shift_general_diagonal

__all__ = ["check_out", "right_hand_side", "shift_diagonal"]


def right_hand_side(b: Any, n: int) -> NDArray[np.float64]:
    """Return ``b`` as a new float64 array of shape (n,) or (n, k), or say what is wrong with it."""
    if isinstance(b, np.ma.MaskedArray):
        raise InvalidValueError("b is a masked array; fill it first")
    try:
        rhs = np.asarray(b)
    except ValueError as error:
        raise InvalidValueError(f"b is not an array: {error}") from error
    if rhs.ndim not in (1, 2) or rhs.shape[0] != n:
        raise InvalidValueError(f"b has shape {rhs.shape}; it must be ({n},) or ({n}, k)")
    if rhs.dtype.kind not in "fiub" or rhs.dtype == np.float16 or rhs.dtype.itemsize > 8:
        raise InvalidValueError(
            f"b is {rhs.dtype}; allowed are real numbers of 4 or 8 bytes, integers and booleans"
        )
    rhs = rhs.astype(np.float64, order="C")  # a copy: the solution may be written over b
    bad = first_nonfinite(rhs)
    if bad >= 0:
        raise NonFiniteError(f"b has {rhs.ravel()[bad]} at entry {bad}", bad)
    return rhs


def check_out(out: Any, shape: tuple[int, ...]) -> None:
    """Refuse an ``out`` that cannot take the solution of shape ``shape``."""
    if not isinstance(out, np.ndarray):
        raise InvalidValueError(
            f"out is a {type(out).__name__}; it must be a writable float64 array of shape {shape}"
        )
    if out.shape != shape or out.dtype != np.float64 or not out.flags.writeable:
        raise InvalidValueError(
            f"out is {out.dtype}{list(out.shape)}; it must be writable float64{list(shape)}"
        )


def shift_diagonal(
    pattern: Canonical, values: NDArray[np.float64], shift: Any, general: bool = False
) -> NDArray[np.float64]:
    """Add ``dw`` to the diagonal entries >= 0 of a lower triangle and subtract ``dc`` from the negative ones.

    ``shift`` is ``(dw, dc)``, two finite numbers. ``general``: the pattern is that of a whole matrix.
    """
    try:
        dw, dc = (float(part) for part in shift)
    except (TypeError, ValueError):
        raise InvalidValueError(f"diagonal_shift is {shift!r}; allowed are two numbers (dw, dc)") from None
    if not (np.isfinite(dw) and np.isfinite(dc)):
        raise InvalidValueError(f"diagonal_shift is {(dw, dc)}; both must be finite")
    if general:
        return shift_general_diagonal(pattern, values, dw, dc)
    begin = pattern.ptr[:-1]
    stored = begin < pattern.ptr[1:]
    stored[stored] = pattern.ind[begin[stored]] == np.flatnonzero(stored)
    if not stored.all():
        missing = int(np.flatnonzero(~stored)[0])
        raise InvalidValueError(f"diagonal_shift: entry ({missing}, {missing}) is not stored")
    values = values.copy()
    values[begin] += np.where(values[begin] >= 0, dw, -dc)
    return values
