"""Determinant of a sparse matrix from its factorisation: `sparse_slogdet`."""

from __future__ import annotations

from typing import Any

from warpfront.errors import NotSupportedError, Status, UnstablePivotError
from warpfront.sparse.results import raise_outcome
from warpfront.sparse.solver import DirectSolver

__all__ = ["sparse_slogdet"]


def sparse_slogdet(A: Any, structure: str = "auto", **options: Any) -> tuple[Any, float, str]:
    """Sign, logarithm of the absolute determinant, and the method that found them.

    Parameters
    ----------
    A : sparse matrix or array, n x n
    structure : str
        As for `DirectSolver`. With ``device="cuda"`` the determinant is found by LU: "G", or "auto", which is "G" then.
    **options
        Keywords of `DirectSolver`.

    Returns
    -------
    (sign, log|det|, method)
        ``(0, -inf, ...)`` for a singular matrix.

    Raises
    ------
    NonFiniteError, InvalidValueError, NotPositiveDefiniteError
        As `DirectSolver`.
    UnstablePivotError
        Pivots were perturbed (``on_unstable="perturb"``, which the GPU always does): the determinant of another matrix.
    """
    from warpfront.sparse.numeric.readout import slogdet
    from warpfront.sparse.numeric.readout_lu import lu_slogdet

    if options.get("device") == "cuda":
        if structure not in ("auto", "G"):
            raise NotSupportedError(
                f"structure is {structure!r}; a determinant on the GPU is found by LU: structure='G' or 'auto'"
            )
        structure = "G"
    solver = DirectSolver(A, structure=structure, check="status", **options).factorize()
    record = solver.report.factor
    method = record.method if record is not None else ""
    if solver.status == Status.NON_FINITE and solver._nonfinite is not None:
        raise solver._nonfinite  # it names the entry
    if solver.status == Status.SINGULAR:
        return 0.0, float("-inf"), method
    raise_outcome(solver._factor)
    perturbed = solver.pivot_stats.perturbed
    if perturbed:
        raise UnstablePivotError(
            f"{perturbed} pivots were perturbed, so this would be the determinant of another matrix; on the CPU, "
            "on_unstable='delay' perturbs none"
        )
    read = slogdet if solver._symbolic.general is None else lu_slogdet
    sign, logarithm = read(solver._usable())
    return sign, float(logarithm), method
