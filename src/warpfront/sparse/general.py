"""What the phases do with a general matrix (structure G): LU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import SingularMatrixError, Status
from warpfront.formats.canonical import Canonical
from warpfront.sparse.parameters import Settings

if TYPE_CHECKING:
    from warpfront.sparse.analysis.steps import Steps
    from warpfront.sparse.analysis.symbolic import Symbolic
    from warpfront.sparse.numeric.factorize import Factor, FactorOptions
    from warpfront.sparse.numeric.factorize_lu import Scaling

__all__ = [
    "LuFactored",
    "analyze_lu",
    "factor_lu",
    "raise_singular",
    "singular_message",
]


def analyze_lu(
    pattern: Canonical,
    values: NDArray[Any],
    settings: Settings,
    block_triangular: bool | None = None,
    steps: Steps | None = None,
) -> Symbolic:
    """Match, scale, order, plan."""
    from warpfront.sparse.analysis.general import analyze_general

    return analyze_general(
        pattern,
        values,
        ordering=settings["reordering_alg"],
        user_perm=settings["user_perm"],
        matching=settings["matching_alg"] != "none",
        block_triangular=settings["block_triangular"] if block_triangular is None else block_triangular,
        target=settings.target,
        steps=steps,
    )


class LuFactored:
    """A factor, the scaling it was made with, and the analysis (a new one where the old matching was given up)."""

    def __init__(self, factor: Factor, scaling: Scaling, symbolic: Symbolic) -> None:
        self.factor, self.scaling, self.symbolic = factor, scaling, symbolic


def factor_lu(
    symbolic: Symbolic,
    values: NDArray[Any],
    settings: Settings,
    threads: int,
    buffers: Any,
) -> LuFactored:
    """Scale and factor; where the matching no longer fits and ``stale_matching`` is "analyze", match anew first."""
    from warpfront.sparse.numeric.factorize_lu import choose_scaling, factorize_lu

    scaling = choose_scaling(symbolic, values, settings["scaling"])
    if scaling.stale and settings["stale_matching"] == "analyze":
        symbolic, buffers = analyze_lu(symbolic.pattern, values, settings), None
        scaling = choose_scaling(symbolic, values, settings["scaling"])
        scaling = scaling._replace(
            how=f"{scaling.how} (matched anew: the old matching did not fit these values)"
        )
    options = _options(values, settings, threads)
    factor = factorize_lu(symbolic, values, scaling, options, buffers)
    general = symbolic.general
    if factor.status == Status.SINGULAR and general is not None and general.n_blocks > 1:
        # The rank of a matrix may be more than those of its blocks together.
        symbolic = analyze_lu(symbolic.pattern, values, settings, block_triangular=False)
        scaling = choose_scaling(symbolic, values, settings["scaling"])
        factor = factorize_lu(symbolic, values, scaling, options)
    return LuFactored(factor, scaling, symbolic)


def _options(values: NDArray[Any], settings: Settings, threads: int) -> FactorOptions:
    from warpfront.sparse.numeric.factorize import FactorOptions

    eps = float(np.finfo(values.dtype).eps)
    return FactorOptions(
        cholesky=False,
        threads=threads,
        pivot_threshold=settings["pivot_threshold"],
        diagonal_share=settings["diag_pivot_thresh"],
        zero_pivot=max(settings["zero_pivot_tol"], 8 * eps if eps > 1e-10 else 0.0),
        pivot_epsilon=max(settings["pivot_epsilon"], 8 * eps if settings["pivot_epsilon"] else 0.0),
        perturb=settings["on_unstable"] == "perturb" and settings["pivot_epsilon"] > 0,
    )


def _some(indices: NDArray[Any]) -> str:
    shown = ", ".join(map(str, indices[:8].tolist()))
    return shown + (f", ... ({indices.size} in all)" if indices.size > 8 else "")


def singular_message(factor: Factor) -> str:
    """Say which rows and columns have no pivot, and whether the pattern alone says so."""
    from warpfront.sparse.numeric.factorize_lu import zero_pivots

    general = factor.symbolic.general
    assert general is not None
    on_device = getattr(factor, "zero_pivots", None)
    rows, cols = zero_pivots(factor) if on_device is None else on_device()
    text = (
        f"the matrix is singular to working precision: column {factor.column} has no pivot "
        f"(columns {_some(cols)}; rows {_some(rows)})"
    )
    if general.unmatched_columns.size:
        text = (
            f"the matrix is structurally singular: its structural rank is {general.structural_rank} of "
            f"{factor.symbolic.n}; no entries can be matched for columns {_some(general.unmatched_columns)} and "
            f"rows {_some(general.unmatched_rows)}; without a pivot are columns {_some(cols)} and rows {_some(rows)}"
        )
    return text


def raise_singular(factor: Factor) -> None:
    """Raise the error of a singular LU."""
    raise SingularMatrixError(singular_message(factor), factor.column)
