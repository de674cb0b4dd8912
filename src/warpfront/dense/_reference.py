"""Plain statements of the room's mathematics, shared by its tests; no code in common with what they test."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["transpose"]


def transpose(a: NDArray[Any]) -> NDArray[Any]:
    """Return the C-ordered transpose of the last two axes, ``b[..., c, r] = a[..., r, c]``."""
    return np.array(np.swapaxes(a, -1, -2), order="C", copy=True)
