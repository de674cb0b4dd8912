"""Which structure a matrix has, what was asked for, and the canonical pattern the solver works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError, NotSupportedError
from warpfront.formats.canonical import Canonical, SymmetryEvidence, canonicalize, symmetry
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
        The caller's matrix, with index arrays of its own: SciPy sorts a matrix's in place.
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
    whole : bool
        Both triangles are given; otherwise one is ignored, whatever it holds.
    """

    operand: Operand
    structure: str
    reason: str
    open_choice: bool
    pattern: Canonical
    upper: Canonical | None
    whole: bool

    def gather(self, values: Any) -> NDArray[np.float64]:
        """Canonical values of new values in the caller's order; both triangles must still agree.

        Raises
        ------
        PatternChangedError
            Values of another length or pattern.
        NonFiniteError
            NaN or infinity, or duplicates whose sum overflows, with the position in the caller's order.
        NotSupportedError
            Complex values.
        InvalidValueError
            The two triangles differ by more than 8 units in the last place.
        """
        flat = flat_values(self.operand, values)
        if self.structure == "G":
            return _finite_gather(self.pattern, flat.astype(self.operand.data.dtype, copy=False), True)
        if flat.dtype.kind == "c":
            raise NotSupportedError(_NO_COMPLEX)
        flat = flat.astype(np.float64, copy=False)
        lower = _finite_gather(self.pattern, flat, self.whole)
        if self.upper is not None:
            upper = self.upper.gather(flat)
            if not np.array_equal(lower, upper):
                _check_equal(self.pattern, lower, upper)
        elif self.whole:
            _refuse_unsymmetric(symmetry(replace(self.operand, data=flat)), "S")
        return lower


_NO_COMPLEX = "complex matrices are not supported yet; this build solves real symmetric systems"


def _finite_gather(pattern: Canonical, flat: NDArray[np.float64], whole: bool) -> NDArray[np.float64]:
    """Gather; raise naming the first entry of the caller that is, or sums to, NaN or infinity."""
    bad = first_nonfinite(flat)
    if bad >= 0 and not whole:
        bad = first_nonfinite(np.where(pattern.value_map >= 0, flat, 0.0))
    if bad >= 0:
        raise NonFiniteError(f"the matrix has {flat[bad]} at entry {bad} (caller's order)", bad)
    lower = pattern.gather(flat)
    slot = first_nonfinite(lower)
    if slot >= 0:
        entry = int(np.flatnonzero(pattern.value_map == slot)[0])
        raise NonFiniteError(f"the sum of the duplicates of entry {entry} (caller's order) overflows", entry)
    return lower


def _refuse_unsymmetric(evidence: SymmetryEvidence, structure: str) -> None:
    if not evidence.symmetric:
        raise InvalidValueError(
            f"structure {structure!r} was asked for, but the matrix is not symmetric: the largest relative "
            f"difference is {evidence.max_relative_difference:.1e}"
        )


def _check_equal(pattern: Canonical, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> None:
    difference = np.abs(lower - upper)
    limit = 8 * np.finfo(np.float64).eps * np.maximum(np.abs(lower), np.abs(upper))
    wrong = np.flatnonzero(difference > limit)
    if wrong.size:
        k = int(wrong[0])
        j = int(np.searchsorted(pattern.ptr, k, side="right")) - 1
        i = int(pattern.ind[k])
        raise InvalidValueError(
            f"the matrix is not symmetric: a[{i}, {j}] = {float(lower[k])!r} but "
            f"a[{j}, {i}] = {float(upper[k])!r}; give one triangle with view='lower' or "
            "view='upper' if the other is not meant"
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
    if not isinstance(structure, str) or structure not in STRUCTURES:
        raise InvalidValueError(f"structure is {structure!r}; allowed are {', '.join(STRUCTURES)}")
    if not isinstance(view, str) or view not in VIEWS:
        raise InvalidValueError(f"view is {view!r}; allowed are {', '.join(VIEWS)}")
    operand = read_operand(matrix)
    rows, columns = operand.shape
    if rows != columns:
        raise InvalidValueError(f"the matrix is {rows} x {columns}; a direct solve needs a square one")
    if operand.data.dtype.kind == "c" and structure not in ("auto", "G"):
        raise NotSupportedError(_NO_COMPLEX)
    if structure == "G" and view != "full":
        raise InvalidValueError(f"view is {view!r}, but structure 'G' needs every entry: view='full'")
    if operand.kind != "dense":
        shared = {name: getattr(operand, name) for name in ("ptr", "ind", "row", "col")}
        operand = replace(
            operand, **{name: array.copy() for name, array in shared.items() if array is not None}
        )
    if structure == "G":
        return _general(operand, "asked for")
    if operand.data.dtype.kind == "c":
        return _general(operand, "it is complex")
    values = operand.data.astype(np.float64, copy=False)
    if view != "full":
        pattern = canonicalize(operand, "lower_as_lower" if view == "lower" else "upper_as_lower")
        lower = _finite_gather(pattern, values, False)
        return _settled(
            System(operand, structure, f"its {view} triangle was given", False, pattern, None, False), lower
        )
    pattern = canonicalize(operand, "lower")
    lower = _finite_gather(pattern, values, True)
    evidence = symmetry(operand)
    if structure == "auto" and not evidence.symmetric:
        return _general(
            operand,
            "it is not symmetric: the largest relative difference between a[i, j] and a[j, i] is "
            f"{evidence.max_relative_difference:.1e}",
        )
    upper = canonicalize(operand, "upper_as_lower") if evidence.pattern_symmetric else None
    if not evidence.symmetric and upper is not None:
        _check_equal(pattern, lower, upper.gather(values))
    _refuse_unsymmetric(evidence, structure)
    why = "a[i, j] equals a[j, i] everywhere"
    return _settled(System(operand, structure, why, False, pattern, upper, True), lower)


def _general(operand: Operand, reason: str) -> System:
    """A matrix for LU, in its own dtype."""
    pattern = canonicalize(operand, "all")
    _finite_gather(pattern, operand.data, True)
    return System(operand, "G", reason, False, pattern, None, True)


def _settled(system: System, values: NDArray[np.float64]) -> System:
    """Turn the structure asked for into the one that holds."""
    structure, why = system.structure, system.reason
    if structure in ("HPD", "H"):  # the same thing for a real matrix
        return replace(
            system,
            structure={"HPD": "SPD", "H": "S"}[structure],
            reason="a real Hermitian matrix is symmetric",
        )
    if structure != "auto":
        return replace(system, reason="asked for")
    if positive_diagonal(system.pattern, values):
        why += " and the diagonal is positive: Cholesky is tried first"
        return replace(system, structure="SPD", reason=why, open_choice=True)
    return replace(system, structure="S", reason=f"{why}; the diagonal is not all positive", open_choice=True)


def positive_diagonal(pattern: Canonical, values: NDArray[np.float64]) -> bool:
    """Whether every diagonal entry of a lower triangle is stored and positive."""
    if pattern.n_cols == 0:
        return True
    begin = pattern.ptr[:-1]
    if bool(np.any(begin == pattern.ptr[1:])):
        return False
    return bool(np.all((pattern.ind[begin] == np.arange(pattern.n_cols)) & (values[begin] > 0)))
