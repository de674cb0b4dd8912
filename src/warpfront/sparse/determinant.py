"""Determinant of a sparse matrix from its factorisation: `sparse_slogdet`."""

from __future__ import annotations

from typing import Any

from warpfront.errors import Status
from warpfront.sparse.interface import SymmetricFactor
from warpfront.sparse.lu import LuFactor
from warpfront.sparse.results import raise_outcome
from warpfront.sparse.solver import DirectSolver

__all__ = ["sparse_slogdet"]


def sparse_slogdet(A: Any, structure: str = "auto", **options: Any) -> tuple[Any, float, str]:
    """Sign, logarithm of the absolute determinant, and the method that found them.

    Parameters
    ----------
    A : sparse matrix or array, n x n
    structure : str
        As for `DirectSolver`.
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
    """
    solver = DirectSolver(A, structure=structure, check="status", **options).factorize()
    record = solver.report.factor
    method = record.method if record is not None else ""
    if solver.status == Status.NON_FINITE and solver._nonfinite is not None:
        raise solver._nonfinite  # it names the entry
    if solver.status == Status.SINGULAR:
        return 0.0, float("-inf"), method
    raise_outcome(solver._factor)
    general = solver._symbolic.general is not None
    sign, logarithm = (LuFactor(solver) if general else SymmetricFactor(solver)).slogdet()
    return sign, float(logarithm), method
