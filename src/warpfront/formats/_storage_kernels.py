"""Conversions among compressed rows, compressed columns and ELLPACK: linear time, entries in a fixed order."""

from __future__ import annotations

from warpfront.backend.jit import njit

__all__ = ["drain_ell", "fill_ell", "turn"]


@njit(cache=True, nogil=True)
def turn(ptr, ind, values, out_ptr, out_ind, out_values):  # type: ignore[no-untyped-def]
    """Compress by the other index: a stable counting sort. ``out_ptr`` comes as zeros[lines + 1]."""
    lines = out_ptr.shape[0] - 1
    for e in range(ind.shape[0]):
        out_ptr[ind[e] + 1] += 1
    for j in range(lines):
        out_ptr[j + 1] += out_ptr[j]
    for i in range(ptr.shape[0] - 1):
        for e in range(ptr[i], ptr[i + 1]):
            j = ind[e]
            place = out_ptr[j]
            out_ind[place] = i
            out_values[place] = values[e]
            out_ptr[j] = place + 1
    for j in range(lines, 0, -1):
        out_ptr[j] = out_ptr[j - 1]
    out_ptr[0] = 0


@njit(cache=True, nogil=True)
def fill_ell(ptr, ind, values, out_ind, out_values):  # type: ignore[no-untyped-def]
    """Write rows into slots; slot k of row i is at ``k * rows + i``."""
    rows = ptr.shape[0] - 1
    for i in range(rows):
        for k in range(ptr[i + 1] - ptr[i]):
            out_ind[k * rows + i] = ind[ptr[i] + k]
            out_values[k * rows + i] = values[ptr[i] + k]


@njit(cache=True, nogil=True)
def drain_ell(ptr, ind, values, ell_ind, ell_values):  # type: ignore[no-untyped-def]
    """Write slots back into compressed rows."""
    rows = ptr.shape[0] - 1
    for i in range(rows):
        for k in range(ptr[i + 1] - ptr[i]):
            ind[ptr[i] + k] = ell_ind[k * rows + i]
            values[ptr[i] + k] = ell_values[k * rows + i]
