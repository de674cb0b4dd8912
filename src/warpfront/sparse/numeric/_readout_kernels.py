"""Columns of U above the diagonal blocks: the coupling brought through the blocks' L."""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = ["count_upper", "fill_upper"]


@njit(cache=True, nogil=True)
def _column(l_ptr, l_ind, l_data, c_ptr, c_ind, c_data, j, x, mark, found):
    """``x = L^-1 C[:, j]`` on the rows it reaches, which are listed in ``found``; returns their number.

    Rows are met in ascending order only once sorted; L is unit lower triangular with sorted columns, so a row's value
    is final when all smaller rows are done.
    """
    count = 0
    for k in range(c_ptr[j], c_ptr[j + 1]):
        i = c_ind[k]
        x[i] = c_data[k]
        mark[i] = True
        found[count] = i
        count += 1
    at = 0
    while at < count:  # reach
        i = found[at]
        at += 1
        for k in range(l_ptr[i], l_ptr[i + 1]):
            r = l_ind[k]
            if r != i and not mark[r]:
                mark[r] = True
                x[r] = 0
                found[count] = r
                count += 1
    order = np.sort(found[:count])
    for at in range(count):
        i = order[at]
        found[at] = i
        for k in range(l_ptr[i], l_ptr[i + 1]):
            r = l_ind[k]
            if r != i:
                x[r] -= l_data[k] * x[i]
    for at in range(count):
        mark[order[at]] = False
    return count


@njit(cache=True, nogil=True)
def count_upper(l_ptr, l_ind, l_data, c_ptr, c_ind, c_data):
    """Number of rows of every column of ``L^-1 C``, as pointers."""
    n = l_ptr.size - 1
    x = np.zeros(n, l_data.dtype)
    mark = np.zeros(n, np.bool_)
    found = np.empty(n, np.int64)
    ptr = np.zeros(n + 1, np.int64)
    for j in range(n):
        ptr[j + 1] = ptr[j] + _column(l_ptr, l_ind, l_data, c_ptr, c_ind, c_data, j, x, mark, found)
    return ptr


@njit(cache=True, nogil=True)
def fill_upper(l_ptr, l_ind, l_data, c_ptr, c_ind, c_data, ptr, ind, data):
    """Write ``L^-1 C``, rows ascending, to the CSC arrays ``ind``, ``data`` planned by `count_upper`."""
    n = l_ptr.size - 1
    x = np.zeros(n, l_data.dtype)
    mark = np.zeros(n, np.bool_)
    found = np.empty(n, np.int64)
    for j in range(n):
        count = _column(l_ptr, l_ind, l_data, c_ptr, c_ind, c_data, j, x, mark, found)
        for at in range(count):
            ind[ptr[j] + at] = found[at]
            data[ptr[j] + at] = x[found[at]]
