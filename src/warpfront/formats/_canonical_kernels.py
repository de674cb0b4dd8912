"""Linear-time kernels behind `canonical`: counting sorts, compression, gather, comparison with the transpose.

Pointers, slots and `value_map` are int64, rows and columns int32. Sorting by row and then by column, both
stable, is the double transposition of Gustavson (ACM TOMS 4(3), 1978). The sorts move pairs in one int64,
a row or column in the high half and the caller's entry in the low one: on scattered input a cache miss costs
more than everything else, and this way an entry costs three.
"""

from __future__ import annotations

import numpy as np

from warpfront.backend.jit import njit

__all__ = [
    "ascending_columns",
    "compare_with_transpose",
    "compress",
    "gather_equal",
    "scatter_add",
    "sort_by_column",
    "sort_by_row",
    "sortedness",
    "split_triangles",
]

ENTRY_MASK = 2**32 - 1


@njit(cache=True, nogil=True)
def ascending_columns(ptr, ind):  # type: ignore[no-untyped-def]
    """Whether the rows of every column of a CSC pattern increase: sorted, none twice."""
    for j in range(ptr.shape[0] - 1):
        for k in range(ptr[j] + 1, ptr[j + 1]):
            if ind[k] <= ind[k - 1]:
                return False
    return True


@njit(cache=True, nogil=True)
def sortedness(row, col):  # type: ignore[no-untyped-def]
    """Return 2 if entries come in column-major order (ties allowed), 1 if rows never decrease, else 0."""
    by_column = True
    by_row = True
    for e in range(1, row.shape[0]):
        if row[e] < row[e - 1]:
            by_row = False
            if col[e] <= col[e - 1]:
                by_column = False
        elif col[e] < col[e - 1]:
            by_column = False
        if not (by_row or by_column):
            return 0
    return 2 if by_column else 1


@njit(cache=True, nogil=True)
def sort_by_row(row, col, entry, start, out):  # type: ignore[no-untyped-def]
    """Write (col, entry) pairs to `out`, stably sorted by `row`. `start`: zeros[n_rows + 2]."""
    for k in range(row.shape[0]):
        start[row[k] + 2] += 1
    for i in range(2, start.shape[0]):
        start[i] += start[i - 1]
    for k in range(row.shape[0]):
        i = row[k] + 1
        out[start[i]] = (np.int64(col[k]) << 32) | entry[k]
        start[i] += 1


@njit(cache=True, nogil=True)
def sort_by_column(row_ptr, pairs, start, out):  # type: ignore[no-untyped-def]
    """Turn row-major (col, entry) `pairs` into column-major (row, entry). `start`: zeros[n_cols + 2]."""
    for k in range(pairs.shape[0]):
        start[(pairs[k] >> 32) + 2] += 1
    for j in range(2, start.shape[0]):
        start[j] += start[j - 1]
    for i in range(row_ptr.shape[0] - 1):
        for k in range(row_ptr[i], row_ptr[i + 1]):
            j = (pairs[k] >> 32) + 1
            out[start[j]] = (np.int64(i) << 32) | (pairs[k] & ENTRY_MASK)
            start[j] += 1


@njit(cache=True, nogil=True)
def compress(col_start, pairs, ptr, ind, value_map):  # type: ignore[no-untyped-def]
    """Merge equal rows within each column of column-major `pairs` into slots; return the number of slots."""
    slot = -1
    ptr[0] = 0
    for j in range(ptr.shape[0] - 1):
        last = -1
        for k in range(col_start[j], col_start[j + 1]):
            i = pairs[k] >> 32
            if i != last:
                slot += 1
                ind[slot] = i
                last = i
            value_map[pairs[k] & ENTRY_MASK] = slot
        ptr[j + 1] = slot + 1
    return slot + 1


@njit(cache=True, nogil=True)
def split_triangles(ptr, ind, symmetric, lower_ptr, lower_ind, to_lower, to_upper):  # type: ignore[no-untyped-def]
    """Lower triangle of a sorted square CSC matrix, and the slot each entry of the matrix has in it; else -1.

    `to_upper` is filled where the pattern is `symmetric`: entries of the upper triangle in the slots of their partners.
    Columns come in order, so row i's entries right of the diagonal come as column i of the lower triangle stores them.
    """
    n = ptr.shape[0] - 1
    slot = 0
    for j in range(n):
        lower_ptr[j] = slot
        for p in range(ptr[j], ptr[j + 1]):
            to_lower[p] = -1
            if ind[p] >= j:
                to_lower[p] = slot
                lower_ind[slot] = ind[p]
                slot += 1
    lower_ptr[n] = slot
    if symmetric:
        cursor = lower_ptr[:n].copy()
        for j in range(n):
            for p in range(ptr[j], ptr[j + 1]):
                i = ind[p]
                to_upper[p] = -1
                if i <= j:
                    to_upper[p] = cursor[i]
                    cursor[i] += 1


@njit(cache=True, nogil=True)
def gather_equal(lower_map, upper_map, values, lower, upper):  # type: ignore[no-untyped-def]
    """`scatter_add` for both triangles; whether all sums are finite and the two agree to the bit."""
    for s in range(lower.shape[0]):
        lower[s] = 0
        upper[s] = 0
    for e in range(values.shape[0]):
        s = lower_map[e]
        if s >= 0:
            lower[s] += values[e]
        s = upper_map[e]
        if s >= 0:
            upper[s] += values[e]
    agree = True
    for s in range(lower.shape[0]):
        # the difference of an infinity or a NaN and itself is not 0
        agree = agree and lower[s] - upper[s] == 0 and lower[s] - lower[s] == 0
    return agree


@njit(cache=True, nogil=True)
def scatter_add(value_map, values, out):  # type: ignore[no-untyped-def]
    """Set `out` to the sums of `values` by slot, added in the order of `values`; slot -1 is left out."""
    for s in range(out.shape[0]):
        out[s] = 0
    for e in range(value_map.shape[0]):
        s = value_map[e]
        if s >= 0:
            out[s] += values[e]


@njit(cache=True, nogil=True)
def compare_with_transpose(ptr, ind, values, difference, diagonal):  # type: ignore[no-untyped-def]
    """Walk a square sorted CSC matrix beside its transpose; return the number of entries without a partner.

    Columns are visited in order, so the partners of row i's entries come in the order column i stores them:
    one cursor per column finds them all in one pass. `difference` (float64[3]) receives the largest of
    |a_ij - a_ji|, |a_ij - conj(a_ji)| and |a_ij + a_ji|, each over max(|a_ij|, |a_ji|); a missing partner
    counts as 0. `diagonal` receives the stored entries of the diagonal.
    """
    n = ptr.shape[0] - 1
    cursor = ptr[:n].copy()
    zero = np.zeros(1, values.dtype)[0]
    unpaired = 0
    difference[:] = 0.0
    for j in range(n):
        for p in range(ptr[j], ptr[j + 1]):
            i = ind[p]
            q = cursor[i]
            while q < ptr[i + 1] and ind[q] < j:
                q += 1
            a = values[p]
            if i == j:
                diagonal[j] = a
            b = zero
            if q < ptr[i + 1] and ind[q] == j:
                b = values[q]
                q += 1
            else:
                unpaired += 1
            cursor[i] = q
            scale = max(abs(a), abs(b))
            if scale != 0:
                for c in range(3):
                    t = b if c == 0 else (np.conj(b) if c == 1 else -b)
                    d = abs(a - t) / scale
                    if d > difference[c] or np.isnan(d):
                        difference[c] = d
    return unpaired
