"""Checks of a paged cache's arguments."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention._arrays import integers
from warpfront.attention._pages import PageBook
from warpfront.errors import InvalidValueError

__all__ = ["check_ids", "dtype_name", "positive"]


def check_ids(book: PageBook, ids: Any, *, padded: bool = False, distinct: bool = True) -> NDArray[np.int64]:
    """Return sequence numbers as int64 (batch,).

    Parameters
    ----------
    book : PageBook
    ids : int or integers (batch,)
        Host memory.
    padded : bool
        Whether -1 is allowed.
    distinct : bool
        Whether naming a sequence twice is an error.

    Raises
    ------
    InvalidValueError
        No integers, or a sequence that is not there.
    """
    if isinstance(ids, Integral) and not isinstance(ids, bool):
        ids = [int(ids)]
    if getattr(ids, "is_cuda", False):
        raise InvalidValueError("ids are in device memory; sequence numbers are kept on the host")
    rows = integers("ids", ids, "a sequence number or integers (batch,)")
    for row in rows.tolist():
        if row != -1 or not padded:
            book.entry(row)
    real = rows[rows >= 0]
    if distinct and len(np.unique(real)) < len(real):
        twice = next(int(row) for row in real if (real == row).sum() > 1)
        raise InvalidValueError(f"sequence {twice} is named twice")
    return rows


def dtype_name(dtype: Any) -> str:
    """Return an element type's name without its library: ``torch.float16``, ``np.float16`` and ``"float16"`` are alike."""
    if isinstance(dtype, str):
        return dtype
    if str(dtype).startswith("torch."):
        return str(dtype).removeprefix("torch.")
    try:
        return str(np.dtype(dtype).name)
    except TypeError as error:
        raise InvalidValueError(f"no such element type: {dtype!r}") from error


def positive(name: str, value: Any) -> int:
    """Return an integer option that must be at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidValueError(f"{name} must be an integer, at least 1, got {value!r}")
    return int(value)
