"""Condition estimate: Hager's 1-norm estimator of the inverse, with Higham's safeguard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["inverse_norm_estimate"]

Floats = NDArray[np.float64]


def inverse_norm_estimate(n: int, solve: Callable[[Floats], Floats]) -> float:
    """Estimate the 1-norm of the inverse of a symmetric matrix: a lower bound, rarely off by more than 3.

    Parameters
    ----------
    n : int
        Order, at least 1.
    solve : callable
        ``solve(b)`` returns ``A^-1 b`` for float64[n].

    References
    ----------
    Hager (1984), SIAM J. Sci. Stat. Comput. 5; Higham (1988), ACM TOMS 14, algorithm 674.
    """
    x = np.full(n, 1.0 / n)
    y = solve(x)
    estimate = float(np.abs(y).sum())
    last = -1
    for _ in range(5):
        z = solve(np.where(y >= 0, 1.0, -1.0))
        j = int(np.argmax(np.abs(z)))
        if j == last or not np.abs(z[j]) > z @ x:
            break
        last = j
        x = np.zeros(n)
        x[j] = 1.0
        y = solve(x)
        size = float(np.abs(y).sum())
        if not size > estimate:
            break
        estimate = size
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    alternating = solve(signs * (1.0 + np.arange(n) / max(1, n - 1)))
    return max(estimate, 2.0 * float(np.abs(alternating).sum()) / (3.0 * n))
