"""Scaled values of a lower CSC matrix."""

from __future__ import annotations

from warpfront.backend.jit import njit

__all__ = ["scale_values"]


@njit(cache=True, nogil=True)
def scale_values(ptr, ind, values, scale, out):
    """``out = S A S`` entry by entry; an empty ``scale`` means a plain copy."""
    if scale.size == 0:
        for k in range(values.size):
            out[k] = values[k]
        return
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            out[k] = values[k] * scale[j] * scale[ind[k]]
