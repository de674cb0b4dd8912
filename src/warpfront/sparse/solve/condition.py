"""Condition and forward error: Hager's 1-norm estimator of the inverse, with Higham's safeguard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["inverse_norm_estimate", "weighted_inverse_norm"]

Vector = NDArray[Any]
Solve = Callable[[Vector], Vector]


def inverse_norm_estimate(
    n: int, solve: Solve, adjoint: Solve | None = None, dtype: DTypeLike = np.float64
) -> float:
    """Estimate the 1-norm of the inverse of a matrix: a lower bound, rarely off by more than 3.

    Parameters
    ----------
    n : int
        Order, at least 1.
    solve : callable
        ``solve(b)`` returns ``A^-1 b`` for b of ``dtype``, [n].
    adjoint : callable, optional
        ``A^-H b``; by default ``solve`` itself, as for a real symmetric or a Hermitian matrix.
    dtype : dtype
        Of the vectors.

    References
    ----------
    Hager (1984), SIAM J. Sci. Stat. Comput. 5; Higham (1988), ACM TOMS 14, algorithm 674.
    """
    dtype = np.dtype(dtype)
    adjoint = solve if adjoint is None else adjoint
    x = np.full(n, 1.0 / n, dtype)
    y = solve(x)
    estimate = float(np.abs(y).sum())
    last = -1
    for _ in range(5):
        z = adjoint(_signs(y))
        j = int(np.argmax(np.abs(z)))
        if j == last or not np.abs(z[j]) > np.vdot(x, z).real:
            break
        last = j
        x = np.zeros(n, dtype)
        x[j] = 1.0
        y = solve(x)
        size = float(np.abs(y).sum())
        if not size > estimate:
            break
        estimate = size
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    alternating = solve((signs * (1.0 + np.arange(n) / max(1, n - 1))).astype(dtype))
    return max(estimate, 2.0 * float(np.abs(alternating).sum()) / (3.0 * n))


def weighted_inverse_norm(weights: NDArray[Any], solve: Solve, adjoint: Solve, dtype: DTypeLike) -> float:
    """Estimate ``max_i (|A^-1| w)_i``, the infinity norm of ``A^-1 diag(w)``.

    That is the 1-norm of its adjoint ``diag(w) A^-H``, for which `inverse_norm_estimate` does the search.

    Parameters
    ----------
    weights : float[n]
        Nonnegative.
    solve, adjoint : callable
        ``A^-1 b`` and ``A^-H b``.
    dtype : dtype
        Of the vectors.
    """
    weights = weights.astype(np.finfo(np.dtype(dtype)).dtype)
    return inverse_norm_estimate(
        weights.size, lambda b: weights * adjoint(b), lambda b: solve(weights * b), dtype
    )


def _signs(y: Vector) -> Vector:
    """``y / |y|``, 1 where y is zero."""
    if y.dtype.kind != "c":
        return np.where(y >= 0, 1.0, -1.0).astype(y.dtype)
    size = np.abs(y)
    return np.where(size > 0, y / np.where(size > 0, size, 1), 1).astype(y.dtype)
