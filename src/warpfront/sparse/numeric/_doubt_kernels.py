"""Pivots of a finished LL^T that are no more than rounding."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["rounding_pivots"]


@njit(cache=True, nogil=True)
def rounding_pivots(node, panel, perm, ptr, values, scale, limit):
    """Squared pivots relative to their scaled diagonal entries: column of the smallest, how many are at most ``limit``.

    ``node``, ``panel``: of the factor; ``perm``: caller's column of each pivot; ``ptr``, ``values``: the lower triangle,
    diagonal first; ``scale``: of each column, or empty. Of equal ones the smaller column is named.
    """
    column, count, least, k = -1, 0, np.inf, 0
    for s in range(node.shape[0]):
        at, rows = node[s, 0], node[s, 3]
        for _ in range(node[s, 5]):
            j = perm[k]
            pivot = np.float64(panel[at].real)
            diagonal = np.float64(values[ptr[j]].real)
            if scale.size > 0:
                diagonal *= scale[j] * scale[j]
            share = pivot * pivot / diagonal
            if share <= limit:
                count += 1
            if share < least or (share == least and j < column) or column < 0:
                column, least = j, share
            at += rows + 1
            k += 1
    return column, count
