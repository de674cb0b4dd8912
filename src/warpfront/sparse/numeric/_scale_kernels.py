"""Scaled values of a CSC matrix, for every dtype."""

from __future__ import annotations

from warpfront.backend._intrinsics import conjugate_if, magnitude
from warpfront.backend.jit import njit

__all__ = ["matching_quality", "scale_general", "scale_values"]


@njit(cache=True, nogil=True)
def scale_values(ptr, ind, values, scale, place, out):
    """``out = S A S`` entry by entry, and the largest size; an empty ``scale`` means a plain copy.

    A Hermitian matrix gives ``place``, the position of each row in the elimination: entries that fall into the
    upper triangle there are conjugated. It is empty otherwise.
    """
    largest = 0.0
    if scale.size == 0 and place.size == 0:
        for k in range(values.size):
            out[k] = values[k]
            largest = max(largest, magnitude(values[k]))
        return largest
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            value = values[k]
            if scale.size > 0:
                value = value * scale[j] * scale[ind[k]]
            largest = max(largest, magnitude(value))
            out[k] = conjugate_if(place.size > 0 and place[ind[k]] < place[j], value)
    return largest


@njit(cache=True, nogil=True)
def scale_general(ptr, ind, values, row_scale, col_scale, out):
    """``out = R A C`` entry by entry, and the largest size; empty scales mean a plain copy."""
    largest = 0.0
    scaled = row_scale.size > 0
    for j in range(ptr.size - 1):
        for k in range(ptr[j], ptr[j + 1]):
            value = values[k]
            if scaled:
                value = value * row_scale[ind[k]] * col_scale[j]
            out[k] = value
            largest = max(largest, abs(value))
    return largest


@njit(cache=True, nogil=True)
def matching_quality(ptr, ind, values, row_scale, col_scale, matched, weak_share):
    """How a matching serves values: matched entries below ``weak_share`` of the largest scaled one of their column.

    Returns ``(weak, low, high)`` with the smallest and the largest of the columns' largest entries; columns of zeros
    do not count.
    """
    weak = 0
    low, high = 1.0, 1.0
    for j in range(ptr.size - 1):
        top = 0.0
        for k in range(ptr[j], ptr[j + 1]):
            top = max(top, abs(values[k]) * row_scale[ind[k]])
        if top == 0.0:
            continue
        low = min(low, top * col_scale[j])
        high = max(high, top * col_scale[j])
        at = matched[j]
        if at >= 0 and abs(values[at]) * row_scale[ind[at]] < weak_share * top:
            weak += 1
    return weak, low, high
