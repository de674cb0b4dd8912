"""Approximate minimum degree ordering."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from warpfront.errors import InvalidValueError

__all__ = ["amd"]


def amd(
    n: int,
    xadj: npt.NDArray[np.int64],
    adj: npt.NDArray[np.int32],
    weights: npt.NDArray[Any] | None = None,
    dense: float = 10.0,
) -> npt.NDArray[np.int32]:
    """Order a symmetric pattern by approximate minimum degree.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern; not modified.
    weights : int32[n], optional
        Rows each vertex stands for (>= 1); ones by default. Degrees are counted in rows.
    dense : float
        Vertices with more than ``max(16, dense * sqrt(n))`` neighbours are left out and ordered last,
        ascending; negative: none is.

    Returns
    -------
    int32[n]
        ``perm[k]`` is the k-th vertex to eliminate. Not postordered. The same input always gives the same
        order.

    Raises
    ------
    InvalidValueError
        ``weights`` has the wrong length or an entry below 1, or sums past 2^31 - 1.

    Notes
    -----
    P. R. Amestoy, T. A. Davis, I. S. Duff, SIAM J. Matrix Anal. Appl. 17 (1996): quotient graph,
    approximate external degrees, element absorption (aggressive too), mass elimination, supervariables
    found by hashing.
    """
    from warpfront.sparse.analysis._amd_kernels import approximate_minimum_degree

    if weights is None:
        sizes = np.ones(n, dtype=np.int32)
    else:
        if np.shape(weights) != (n,) or (
            n and (np.min(weights) < 1 or np.sum(weights, dtype=np.int64) >= 2**31)
        ):
            raise InvalidValueError(f"weights must be {n} integers >= 1 whose sum is below 2^31")
        sizes = np.array(weights, dtype=np.int32)
    limit = n if dense < 0 else max(16, math.floor(dense * math.sqrt(n)))
    perm: npt.NDArray[np.int32] = approximate_minimum_degree(n, xadj, adj, sizes, limit)
    return perm
