"""Checks shared by the dense functions: shapes, element types, finite entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays, dispatch
from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError

__all__ = [
    "WORKING",
    "check_choice",
    "check_finite",
    "first_bad",
    "on_gpu",
    "own_type",
    "right_hand_sides",
    "working_dtype",
    "working_matrix",
]

WORKING = ("float32", "float64", "complex64", "complex128")


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type a matrix is factored in; integers become float64."""
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    if dtype.name in WORKING:
        return dtype.newbyteorder("=")
    hint = "; cast it to float32 first" if dtype == np.float16 else ""
    raise InvalidValueError(f"elements are {dtype}; allowed are {', '.join(WORKING)} and integers{hint}")


def working_matrix(a: Any, *axes: int, finite: bool = True) -> NDArray[Any]:
    """Return ``a`` as an array of square matrices with one of ``axes`` numbers of axes, in a working type.

    Raises
    ------
    InvalidValueError, NonFiniteError
    """
    array = np.asarray(a)
    if array.dtype == object:
        raise InvalidValueError(
            f"a is {type(a).__name__}; it must be an array of numbers (for a sparse matrix see DirectSolver)"
        )
    if array.ndim not in axes or array.shape[-1] != array.shape[-2]:
        wanted = " or ".join("[n, n]" if k == 2 else "[batch, n, n]" for k in axes)
        raise InvalidValueError(f"a has shape {array.shape}; it must be {wanted}")
    array = array.astype(working_dtype(array.dtype), copy=False)
    if finite:
        check_finite(array, "a")
    return array


def first_bad(array: NDArray[Any]) -> int:
    """Return the flat index of the first entry that is not finite, or -1."""
    with np.errstate(all="ignore"):
        total = array.sum()
    if np.isfinite(total):  # a sum hides no NaN and no infinity
        return -1
    bad = np.flatnonzero(~np.isfinite(array))
    return int(bad[0]) if bad.size else -1


def check_finite(array: NDArray[Any], name: str) -> None:
    """Raise NonFiniteError for NaN or infinity."""
    entry = first_bad(array)
    if entry >= 0:
        at = ", ".join(str(int(i)) for i in np.unravel_index(entry, array.shape))
        raise NonFiniteError(f"{name}[{at}] is {array.flat[entry]}", entry)


def right_hand_sides(matrices: Any, rhs: Any, xp: Any) -> tuple[Any, tuple[int, ...]]:
    """Return right-hand sides by matrix, [batch, n, ...], and the shape of the answer."""
    rhs = rhs.astype(working_dtype(rhs.dtype), copy=False)
    n, batched = matrices.shape[-1], matrices.ndim == 3
    count = len(matrices) if batched else 1
    own = batched and rhs.ndim >= 2 and rhs.shape[:2] == (count, n) and not (rhs.ndim == 2 and n == count)
    if batched and rhs.ndim == 2 and n == count and rhs.shape == (n, n):
        raise InvalidValueError(
            f"b of shape {rhs.shape} is one matrix or a vector for each of {count} matrices: give it three axes"
        )
    if not own and (rhs.ndim not in (1, 2) or rhs.shape[0] != n):
        wanted = f"[{n}] or [{n}, k]" + (f", [{count}, {n}] or [{count}, {n}, k]" if batched else "")
        raise InvalidValueError(f"b has shape {rhs.shape}; it must be {wanted}")
    each = rhs if own else xp.broadcast_to(rhs, (count, *rhs.shape))
    return each, each.shape if batched else rhs.shape


def own_type(matrix: np.dtype[Any], both: np.dtype[Any]) -> np.dtype[Any]:
    """Type a matrix is factored in: the wider precision of the two; a real matrix stays real."""
    if matrix.kind == "c":
        return both
    return np.dtype(np.float64 if both in (np.float64, np.complex128) else np.float32)


def on_gpu(a: Any, device: dispatch.Device, precision: str) -> bool:
    check_choice("device", device, ("auto", "cpu", "cuda"))
    there = arrays.is_device_array(a)
    if device == "cpu" and there:
        raise InvalidValueError("a is in device memory and device='cpu': copy it to the host first")
    if precision in ("tf32", "float16") and not there and device != "cuda":
        raise NotSupportedError(
            f"precision={precision!r} runs on a GPU only: give device='cuda' or device arrays"
        )
    return there or device == "cuda"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValueError(f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))}")
