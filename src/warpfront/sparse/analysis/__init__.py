"""Analysis of a symmetric matrix: pattern and (for pairs) values in, a frozen `Symbolic` out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError
from warpfront.formats.canonical import Canonical
from warpfront.sparse.analysis.symbolic import Symbolic, build_symbolic

__all__ = ["Symbolic", "analyze", "equilibrate"]


def equilibrate(pattern: Canonical, values: NDArray[Any]) -> NDArray[np.float64]:
    """Symmetric power-of-two scaling that brings the largest entry of every row near 1."""
    from warpfront.sparse.analysis.scaling import equilibrate_symmetric

    size = np.abs(values).astype(np.float64, copy=False)
    return equilibrate_symmetric(pattern.n_cols, pattern.ptr, pattern.ind, size, iterations=2)


def analyze(
    pattern: Canonical,
    values: NDArray[Any],
    *,
    indefinite: bool,
    ordering: str = "auto",
    user_perm: NDArray[Any] | None = None,
) -> Symbolic:
    """Analyse the lower triangle of a symmetric matrix.

    Parameters
    ----------
    pattern : Canonical
        Lower triangle.
    values : [nnz]
        Canonical values, of any dtype; for an indefinite matrix they decide which rows are paired.
    indefinite : bool
        Pair rows that have a zero or tiny diagonal before ordering, so that their 2x2 pivot lies in one front.
    ordering : str
        See `ordering.choose`.
    user_perm : int[n], optional
        With ``ordering="user"``.

    Raises
    ------
    InvalidValueError
        An indefinite matrix whose values are all zero: they say nothing about pairs or scaling.
    """
    from warpfront.sparse.analysis.graph import adjacency, pairs_to_groups
    from warpfront.sparse.analysis.ordering import choose
    from warpfront.sparse.analysis.pairing import zero_diagonal_pairs

    n = pattern.n_cols
    groups, pairs = None, 0
    if indefinite and pattern.nnz:
        if not np.any(values):
            raise InvalidValueError(
                "every value of the matrix is zero: pairs and scaling cannot be chosen; analyse with the first real values"
            )
        scale = equilibrate(pattern, values)
        scaled = np.abs(values) * scale[pattern.ind] * np.repeat(scale, np.diff(pattern.ptr))
        mate = zero_diagonal_pairs(n, pattern.ptr, pattern.ind, scaled)
        pairs = int(np.count_nonzero(mate >= 0)) // 2
        if pairs:
            groups = pairs_to_groups(mate)
    xadj, adj = adjacency(n, pattern.ptr, pattern.ind)
    return build_symbolic(pattern, xadj, adj, choose(n, xadj, adj, ordering, user_perm, groups), pairs)
