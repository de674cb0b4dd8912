"""Substitution with a sparse triangular matrix stored by sorted columns, all right-hand sides at a time."""

from __future__ import annotations

from warpfront.backend.jit import njit

__all__ = ["substitute"]


@njit(cache=True, nogil=True)
def substitute(ptr, ind, values, lower, unit, x):
    """Solve in place for ``x`` (n, k), C order. The matrix is triangular with a full diagonal, unless ``unit``."""
    n, count = x.shape
    for step in range(n):
        j = step if lower == 1 else n - 1 - step
        begin, end = ptr[j], ptr[j + 1]
        if unit == 0:
            pivot = values[begin] if lower == 1 else values[end - 1]
            for c in range(count):
                x[j, c] /= pivot
        for k in range(begin, end):
            i = ind[k]
            if i != j:
                a = values[k]
                for c in range(count):
                    x[i, c] -= a * x[j, c]
