"""Analysis for LU: rows are matched with columns, diagonal blocks found, and each block ordered symmetrically."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError
from warpfront.formats.canonical import Canonical
from warpfront.sparse.analysis.steps import Steps
from warpfront.sparse.analysis.symbolic import Coupling, Entries, General, Symbolic, build_symbolic

__all__ = ["analyze_general", "equilibrate_matched"]

Floats = NDArray[np.float64]
LU_WORK = 2.5  # cost of an LU as a multiple of LL^T's on the same pattern


class _Rows(NamedTuple):
    """Row of each column, scales, and what could not be matched."""

    row_of: NDArray[np.int32]
    row_scale: Floats
    col_scale: Floats
    rank: int
    free_rows: NDArray[np.int32]
    free_columns: NDArray[np.int32]
    how: str


def analyze_general(
    pattern: Canonical,
    values: NDArray[Any],
    *,
    ordering: str = "auto",
    user_perm: NDArray[Any] | None = None,
    matching: bool = True,
    block_triangular: bool = True,
    target: str = "cpu",
    steps: Steps | None = None,
) -> Symbolic:
    """Analyse a square matrix for LU.

    Rows are permuted so that the matched entries stand on the diagonal. The rest is symmetric: an ordering of the
    pattern of ``B + B^T`` of each diagonal block of the row-permuted matrix B, and fronts on that pattern.

    Parameters
    ----------
    pattern : Canonical
        The whole matrix.
    values : [nnz]
        Canonical values, real or complex; their sizes decide the matching and the scaling.
    ordering, user_perm
        See `ordering.choose`; ``user_perm`` orders the columns.
    matching : bool
        Maximum-product matching; without it rows stay where they are.
    block_triangular : bool
        Factor only the diagonal blocks of the block triangular form, and use the entries above them as they are. Not
        where the pattern is singular: the rank of a matrix may be more than those of its blocks together.
    target, steps
        As in `warpfront.sparse.analysis.analyze`.

    Raises
    ------
    InvalidValueError
        Every value is zero: they say nothing about a matching or a scaling.

    References
    ----------
    I. S. Duff and J. Koster, SIAM J. Matrix Anal. Appl. 22 (2001); block triangular form as in T. A. Davis and
    E. Palamadai Natarajan, ACM TOMS 37 (2010), algorithm 907.
    """
    from warpfront.sparse.analysis._block_kernels import lay_out_blocks, permute_and_split
    from warpfront.sparse.analysis.ordering import choose

    n = pattern.n_cols
    if pattern.nnz and not np.any(values):
        raise InvalidValueError(
            "every value of the matrix is zero: rows cannot be matched nor scaled; analyse with the first real values"
        )
    steps = Steps() if steps is None else steps
    found = _match(pattern, np.abs(values).astype(np.float64, copy=False), matching)
    steps.done("matching and scaling")
    split = permute_and_split(pattern.ptr, pattern.ind, found.row_of, block_triangular and found.rank == n)
    component, count, inside, xadj, adj, above, matched = split
    entries = Entries(*inside)
    steps.done("graph")
    chosen = choose(n, xadj, adj, ordering, user_perm, None, LU_WORK, target)
    steps.done("ordering")
    symbolic = build_symbolic(pattern, xadj, adj, chosen, 0, entries)
    rows, blocks, *coupling = lay_out_blocks(
        symbolic.perm, found.row_of, symbolic.plan.node_ptr, component, count, above
    )
    matched[found.free_columns] = -1
    general = General(
        rows=rows,
        row_scale=found.row_scale,
        col_scale=found.col_scale,
        structural_rank=found.rank,
        unmatched_rows=found.free_rows,
        unmatched_columns=found.free_columns,
        matched=matched,
        blocks=blocks,
        coupling=Coupling(*coupling),
        matching=found.how,
    )
    steps.done("fronts")
    return replace(symbolic, general=general)


def equilibrate_matched(pattern: Canonical, values: NDArray[Any]) -> tuple[Floats, Floats]:
    """Power-of-two scales of rows and columns that bring their largest entries near 1."""
    from warpfront.sparse.analysis.scaling import equilibrate_general

    n = pattern.n_cols
    return equilibrate_general(n, n, pattern.ptr, pattern.ind, np.abs(values), iterations=3)


def _match(pattern: Canonical, sizes: Floats, matching: bool) -> _Rows:
    from warpfront.sparse.analysis.matching import maximum_product_matching

    n = pattern.n_cols
    nothing = np.empty(0, np.int32)
    if not matching:
        rows, cols = equilibrate_matched(pattern, sizes)
        how = "none: rows stay where they are, rows and columns equilibrated"
        return _Rows(np.arange(n, dtype=np.int32), rows, cols, n, nothing, nothing, how)
    found = maximum_product_matching(n, n, pattern.ptr, pattern.ind, sizes, exact=True)
    row_of = found.row_of_column.copy()
    row_of[found.unmatched_columns] = found.unmatched_rows  # any pairing will do: there is no entry for it
    how = "maximum product, scaled so that matched entries are near 1"
    if found.unmatched_rows.size:
        how += f"; structural rank {found.structural_rank} of {n}"
    return _Rows(
        row_of, found.row_scale, found.col_scale, found.structural_rank,
        found.unmatched_rows, found.unmatched_columns, how,
    )  # fmt: skip
