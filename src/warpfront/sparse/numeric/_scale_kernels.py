"""Scaled values of a lower CSC matrix."""

from __future__ import annotations

from warpfront.backend.jit import njit

__all__ = ["scale_values"]


@njit(cache=True, nogil=True)
def scale_values(ptr, ind, values, scale, out):
    """``out = S A S`` entry by entry, and the largest size; an empty ``scale`` means a plain copy."""
    largest = 0.0
    if scale.size == 0:
        for k in range(values.size):
            out[k] = values[k]
            largest = max(largest, abs(values[k]))
        return largest
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            value = values[k] * scale[j] * scale[ind[k]]
            out[k] = value
            largest = max(largest, abs(value))
    return largest
