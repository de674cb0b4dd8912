"""Analysis of a symmetric matrix: pattern and (for pairs) values in, a frozen `Symbolic` out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError
from warpfront.formats.canonical import Canonical
from warpfront.sparse.analysis.steps import Steps
from warpfront.sparse.analysis.symbolic import Symbolic, build_symbolic

__all__ = ["Steps", "Symbolic", "analyze", "equilibrate"]


def equilibrate(pattern: Canonical, values: NDArray[Any]) -> NDArray[np.float64]:
    """Symmetric power-of-two scaling that brings the largest entry of every row near 1."""
    from warpfront.sparse.analysis.scaling import equilibrate_symmetric

    size = np.abs(values).astype(np.float64, copy=False)
    return equilibrate_symmetric(pattern.n_cols, pattern.ptr, pattern.ind, size, 2, pattern.col)


def analyze(
    pattern: Canonical,
    values: NDArray[Any],
    *,
    indefinite: bool,
    ordering: str = "auto",
    user_perm: NDArray[Any] | None = None,
    matching: bool = False,
    target: str = "cpu",
    steps: Steps | None = None,
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
    matching : bool
        Pairs and scaling by a symmetrised maximum-product matching (Duff and Pralet 2005) for an indefinite matrix.
    target : {"cpu", "cuda"}
        Where the factorisation will run; see `ordering.choose`.
    steps : Steps, optional
        Is told what took how long.

    Raises
    ------
    InvalidValueError
        An indefinite matrix whose values are all zero: they say nothing about pairs or scaling.
    """
    from warpfront.sparse.analysis.graph import adjacency, pairs_to_groups
    from warpfront.sparse.analysis.ordering import choose
    from warpfront.sparse.analysis.pairing import zero_diagonal_pairs

    n, steps = pattern.n_cols, Steps() if steps is None else steps
    groups, pairs, kept = None, 0, None
    if indefinite and pattern.nnz:
        if not np.any(values):
            raise InvalidValueError(
                "every value of the matrix is zero: pairs and scaling cannot be chosen; analyse with the first real values"
            )
        if matching:
            kept, mate = matched_pairs(pattern, values)
        else:
            scale = equilibrate(pattern, values)
            scaled = np.abs(values) * scale[pattern.ind] * scale[pattern.col]
            mate = zero_diagonal_pairs(n, pattern.ptr, pattern.ind, scaled)
        pairs = int(np.count_nonzero(mate >= 0)) // 2
        if pairs:
            groups = pairs_to_groups(mate)
        steps.done("scaling and pairs")
    xadj, adj = adjacency(n, pattern.ptr, pattern.ind)
    steps.done("graph")
    chosen = choose(n, xadj, adj, ordering, user_perm, groups, target=target)
    steps.done("ordering")
    symbolic = build_symbolic(pattern, xadj, adj, chosen, pairs)
    steps.done("fronts")
    return replace(symbolic, scale=kept)


def matched_pairs(pattern: Canonical, values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Scaling by powers of two and 2x2 pivots of a symmetrised matching; ``mate[i]`` is -1 for a row that stays alone."""
    from warpfront.sparse.analysis.matching import symmetric_matching

    n = pattern.n_cols
    col = pattern.col
    below = pattern.ind != col
    rows = np.concatenate([pattern.ind, col[below]])
    cols = np.concatenate([col, pattern.ind[below]])
    size = np.abs(values).astype(np.float64, copy=False)
    size = np.concatenate([size, size[below]])
    order = np.lexsort((rows, cols))
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(cols, minlength=n), out=ptr[1:])
    scale, mate = symmetric_matching(n, ptr, rows[order], size[order], exact=True)
    mate[mate == np.arange(n)] = -1
    return scale, mate
