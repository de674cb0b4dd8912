"""Partners for rows whose diagonal is zero or tiny, chosen before the ordering."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["zero_diagonal_pairs"]

# A partner's entry must reach this share of the row's largest: a smaller one makes a 2x2 pivot that fails the
# threshold test anyhow.
_STRONG = 0.03
# The threshold of the numeric phase: a singleton neighbour whose diagonal passes it is eliminated alone
# and safely.
_STABLE = 0.01


def zero_diagonal_pairs(
    n: int,
    ptr: npt.NDArray[Any],
    ind: npt.NDArray[Any],
    values_abs_scaled: npt.NDArray[np.float64],
    tiny: float = 1e-6,
) -> npt.NDArray[np.int32]:
    """Pair each row that has a zero or tiny diagonal with a strong partner, as far as partners go.

    Parameters
    ----------
    n : int
        Order.
    ptr, ind : int64[n+1], int32[nnz]
        CSC pattern of the lower triangle, no duplicates, columns ascending. Not modified.
    values_abs_scaled : float64[nnz]
        Absolute values of the symmetrically scaled matrix (largest entry of a row about 1), finite. Not
        modified.
    tiny : float
        A row is in need when its diagonal is at most ``tiny`` times its largest other entry. A neighbour
        that has no other neighbour and passes the pivot threshold is eliminated first and adds ``a_ij^2 /
        |a_jj|`` to the diagonal; it counts (slack variables of an interior-point system).

    Returns
    -------
    int32[n]
        ``mate[i]`` is the partner of row i (``mate[mate[i]] == i``), -1 when it stays alone. Rows not in
        need are only taken as partners. Deterministic.

    Notes
    -----
    Greedy, rows with the fewest free choices first (the rule of R. M. Karp, M. Sipser, FOCS 1981), which
    leaves few rows without partner. Among a row's choices (entries of at least 0.03 of its largest) it
    takes the largest ``|a_ij| / degree(j)``; a partner itself in need counts half. Time linear in the
    number of entries.
    """
    from warpfront.sparse.analysis._pairing_kernels import pair_rows

    mate: npt.NDArray[np.int32] = pair_rows(
        n,
        np.ascontiguousarray(ptr, dtype=np.int64),
        np.ascontiguousarray(ind, dtype=np.int32),
        np.ascontiguousarray(values_abs_scaled, dtype=np.float64),
        float(tiny),
        _STRONG,
        _STABLE,
    )
    return mate
