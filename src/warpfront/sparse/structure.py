"""Which structure a matrix has, what was asked for, and the canonical pattern the solver works on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError
from warpfront.formats.canonical import Canonical, canonicalize, symmetry
from warpfront.formats.operand import Operand, first_nonfinite, flat_values, read_operand

__all__ = ["STRUCTURES", "VIEWS", "System", "read_system"]

STRUCTURES = ("auto", "SPD", "S", "HPD", "H", "G")
VIEWS = ("full", "lower", "upper")


@dataclass(frozen=True, eq=False)
class System:
    """A matrix as the solver sees it.

    Attributes
    ----------
    operand : Operand
        The caller's matrix.
    structure : str
        ``SPD`` or ``S``: what holds, or was asked for.
    reason : str
        Why.
    open_choice : bool
        ``auto``: Cholesky is tried where the diagonal is positive, LDL^T follows when it stops.
    pattern : Canonical
        Lower triangle.
    upper : Canonical or None
        Same slots read from the upper triangle, when both triangles are given and their patterns agree.
    """

    operand: Operand
    structure: str
    reason: str
    open_choice: bool
    pattern: Canonical
    upper: Canonical | None

    def gather(self, values: Any) -> NDArray[np.float64]:
        """Canonical values of new values in the caller's order; both triangles must still agree.

        Raises
        ------
        PatternChangedError
            Values of another length or pattern.
        NonFiniteError
            NaN or infinity, with its position in the caller's order.
        InvalidValueError
            The two triangles differ by more than 8 units in the last place.
        """
        flat = flat_values(self.operand, values)
        if flat.dtype != np.float64:
            flat = flat.astype(np.float64)
        bad = first_nonfinite(flat)
        if bad >= 0:
            raise NonFiniteError(f"the matrix has {flat[bad]} at entry {bad} (caller's order)", bad)
        lower = self.pattern.gather(flat)
        if self.upper is not None:
            upper = self.upper.gather(flat)
            if not np.array_equal(lower, upper):
                _check_equal(self.pattern, lower, upper)
        return lower


def _check_equal(pattern: Canonical, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> None:
    difference = np.abs(lower - upper)
    limit = 8 * np.finfo(np.float64).eps * np.maximum(np.abs(lower), np.abs(upper))
    wrong = np.flatnonzero(difference > limit)
    if wrong.size:
        k = int(wrong[0])
        j = int(np.searchsorted(pattern.ptr, k, side="right")) - 1
        i = int(pattern.ind[k])
        raise InvalidValueError(
            f"the matrix is not symmetric: a[{i}, {j}] = {lower[k]!r} but a[{j}, {i}] = {upper[k]!r}; "
            "give one triangle with view='lower' or view='upper' if the other is not meant"
        )


def read_system(matrix: Any, structure: str, view: str) -> System:
    """Check a matrix and settle its structure.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array, dense array, or CSR triple
    structure : {"auto", "SPD", "S", "HPD", "H", "G"}
    view : {"full", "lower", "upper"}
        Which triangle holds the entries; the other one is ignored unless "full".
    """
    if structure not in STRUCTURES:
        raise InvalidValueError(f"structure is {structure!r}; allowed are {', '.join(STRUCTURES)}")
    if view not in VIEWS:
        raise InvalidValueError(f"view is {view!r}; allowed are {', '.join(VIEWS)}")
    operand = read_operand(matrix)
    rows, columns = operand.shape
    if rows != columns:
        raise InvalidValueError(f"the matrix is {rows} x {columns}; a direct solve needs a square one")
    if operand.data.dtype.kind == "c":
        raise NotSupportedError("complex matrices are not supported yet; this build solves real symmetric systems")
    bad = first_nonfinite(operand.data)
    if bad >= 0:
        raise NonFiniteError(f"the matrix has {operand.data[bad]} at entry {bad} (caller's order)", bad)
    if view != "full":
        pattern = canonicalize(operand, "lower_as_lower" if view == "lower" else "upper_as_lower")
        return _settled(operand, structure, f"its {view} triangle was given", pattern, None)
    evidence = symmetry(operand)
    if structure == "G" or (structure == "auto" and not evidence.symmetric):
        raise NotSupportedError(
            "unsymmetric matrices (structure 'G') are not supported yet; the largest relative difference between "
            f"a[i, j] and a[j, i] is {evidence.max_relative_difference:.1e}"
        )
    pattern = canonicalize(operand, "lower")
    upper = canonicalize(operand, "upper_as_lower") if evidence.pattern_symmetric else None
    if not evidence.symmetric:
        values = operand.data.astype(np.float64)
        if upper is not None:
            _check_equal(pattern, pattern.gather(values), upper.gather(values))
        raise InvalidValueError(
            f"structure {structure!r} was asked for, but the matrix is not symmetric: the largest relative difference "
            f"is {evidence.max_relative_difference:.1e}"
        )
    return _settled(operand, structure, "a[i, j] equals a[j, i] everywhere", pattern, upper)


def _settled(operand: Operand, structure: str, why: str, pattern: Canonical, upper: Canonical | None) -> System:
    if structure in ("HPD", "H"):  # the same thing for a real matrix
        structure, why = {"HPD": "SPD", "H": "S"}[structure], "a real Hermitian matrix is symmetric"
        return System(operand, structure, why, False, pattern, upper)
    if structure != "auto":
        return System(operand, structure, "asked for", False, pattern, upper)
    values = pattern.gather(operand.data.astype(np.float64))
    positive = bool(positive_diagonal(pattern, values))
    if positive:
        return System(operand, "SPD", f"{why} and the diagonal is positive: Cholesky is tried first", True, pattern, upper)
    return System(operand, "S", f"{why}; the diagonal is not all positive", True, pattern, upper)


def positive_diagonal(pattern: Canonical, values: NDArray[np.float64]) -> bool:
    """Whether every diagonal entry of a lower triangle is stored and positive."""
    if pattern.n_cols == 0:
        return True
    begin = pattern.ptr[:-1]
    if bool(np.any(begin == pattern.ptr[1:])):
        return False
    return bool(np.all((pattern.ind[begin] == np.arange(pattern.n_cols)) & (values[begin] > 0)))
