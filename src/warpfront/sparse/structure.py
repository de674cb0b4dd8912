"""Which structure a matrix has, what was asked for, and the canonical pattern the solver works on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, NonFiniteError
from warpfront.formats.canonical import (
    Canonical,
    SymmetryEvidence,
    canonicalize,
    gather_if_equal,
    symmetry,
    triangles,
)
from warpfront.formats.operand import Operand, first_nonfinite, flat_values, read_operand

__all__ = ["STRUCTURES", "VIEWS", "System", "positive_diagonal", "read_system"]

STRUCTURES = ("auto", "SPD", "S", "HPD", "H", "G")
VIEWS = ("full", "lower", "upper")
_REAL_NAMES = {"HPD": "SPD", "H": "S"}


@dataclass(frozen=True, eq=False)
class System:
    """A matrix as the solver sees it.

    Attributes
    ----------
    operand : Operand
        The caller's matrix, with index arrays of its own: SciPy sorts a matrix's in place.
    structure : str
        ``SPD``, ``S``, ``HPD``, ``H`` or ``G``: what holds, or was asked for. Real matrices are never ``HPD``
        or ``H``, complex ones never ``SPD``.
    reason : str
        Why.
    open_choice : bool
        ``auto``: Cholesky is tried where the diagonal is positive, LDL^T follows when it stops.
    pattern : Canonical
        Lower triangle; the whole matrix for ``G``.
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

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the matrix, the factor and the solution."""
        return self.operand.dtype

    @property
    def hermitian(self) -> bool:
        """Complex with ``a[i, j] = conj(a[j, i])``."""
        return self.structure in ("HPD", "H")

    @property
    def positive(self) -> bool:
        """Positive definite, as far as is known."""
        return self.structure in ("SPD", "HPD")

    def gather(self, values: Any) -> NDArray[Any]:
        """Canonical values of new values in the caller's order; both triangles must still agree.

        Raises
        ------
        PatternChangedError
            Values of another length or pattern.
        NonFiniteError
            NaN or infinity, or duplicates whose sum overflows, with the position in the caller's order.
        InvalidValueError
            Complex values for a real matrix, the two triangles differ by more than 8 units in the last place,
            or the diagonal of a Hermitian matrix is not real.
        """
        flat = _in_dtype(flat_values(self.operand, values), self.dtype)
        if self.upper is not None and not self.hermitian:
            equal = gather_if_equal(self.pattern, self.upper, flat)
            if equal is not None:
                return equal
        slots = _finite_gather(self.pattern, flat, self.whole)
        if self.structure == "G":
            return slots
        if self.hermitian:
            _make_hermitian(self.pattern, slots)
        if self.upper is not None:
            upper = self.upper.gather(flat)
            if self.hermitian:
                np.conjugate(upper, out=upper)
            if not np.array_equal(slots, upper):
                _check_equal(self.pattern, slots, upper, "Hermitian" if self.hermitian else "symmetric")
        elif self.whole:
            _refuse_other(symmetry(replace(self.operand, data=flat)), self.structure)
        return slots


def _in_dtype(flat: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values in the analysed dtype: a real matrix takes no complex values, float32 no number beyond its range."""
    if flat.dtype == dtype:
        return flat
    if flat.dtype.kind == "c" and dtype.kind != "c":
        raise InvalidValueError(f"the values are {flat.dtype}, but a {dtype} matrix was analysed")
    with np.errstate(over="ignore"):
        return flat.astype(dtype)


def _finite_gather(pattern: Canonical, flat: NDArray[Any], whole: bool) -> NDArray[Any]:
    """Gather; raise naming the first entry of the caller that is, or sums to, NaN or infinity."""
    bad = first_nonfinite(flat)
    if bad >= 0 and not whole:
        bad = first_nonfinite(np.where(pattern.value_map >= 0, flat, 0.0))
    if bad >= 0:
        raise NonFiniteError(f"the matrix has {flat[bad]} at entry {bad} (caller's order)", bad)
    slots = pattern.gather(flat)
    slot = first_nonfinite(slots) if pattern.nnz < flat.size else -1  # else no duplicates are added
    if slot >= 0:
        entry = int(np.flatnonzero(pattern.value_map == slot)[0])
        raise NonFiniteError(f"the sum of the duplicates of entry {entry} (caller's order) overflows", entry)
    return slots


def _diagonal_slots(pattern: Canonical) -> NDArray[np.int64]:
    """Slots of the stored diagonal entries of a lower triangle."""
    begin = pattern.ptr[:-1]
    stored = np.flatnonzero(begin < pattern.ptr[1:])
    slots = begin[stored]
    diagonal: NDArray[np.int64] = slots[pattern.ind[slots] == stored]
    return diagonal


def _not_real(diagonal: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries have an imaginary part that is more than rounding, as products such as ``B @ B.conj().T`` leave."""
    imaginary: NDArray[np.bool_] = np.abs(diagonal.imag) > 8 * np.finfo(diagonal.dtype).eps * np.abs(diagonal)
    return imaginary


def _make_hermitian(pattern: Canonical, slots: NDArray[Any]) -> None:
    """Check that the diagonal is real, remove its rounding, and undo the transposition of a mirrored triangle."""
    at = _diagonal_slots(pattern)
    diagonal = slots[at]
    wrong = np.flatnonzero(_not_real(diagonal))
    if wrong.size:
        j = int(pattern.ind[at[wrong[0]]])
        raise InvalidValueError(
            f"the matrix is not Hermitian: a[{j}, {j}] = {complex(diagonal[wrong[0]])!r} is not real; a complex "
            "symmetric matrix is structure 'S'"
        )
    slots[at] = diagonal.real
    if pattern.mirrored:
        np.conjugate(slots, out=slots)


def _refuse_other(evidence: SymmetryEvidence, structure: str) -> None:
    hermitian = structure in ("HPD", "H")
    if not (evidence.hermitian if hermitian else evidence.symmetric):
        kind = "Hermitian" if hermitian else "symmetric"
        raise InvalidValueError(
            f"structure {structure!r} was asked for, but the matrix is not {kind}: the largest relative "
            f"difference is {evidence.max_relative_difference:.1e}"
        )


def _check_equal(pattern: Canonical, lower: NDArray[Any], upper: NDArray[Any], kind: str) -> None:
    difference = np.abs(lower - upper)
    limit = 8 * np.finfo(lower.dtype).eps * np.maximum(np.abs(lower), np.abs(upper))
    wrong = np.flatnonzero(difference > limit)
    if wrong.size:
        k = int(wrong[0])
        j = int(np.searchsorted(pattern.ptr, k, side="right")) - 1
        i = int(pattern.ind[k])
        other = "conj(a" if kind == "Hermitian" else "a"
        close = ")" if kind == "Hermitian" else ""
        raise InvalidValueError(
            f"the matrix is not {kind}: a[{i}, {j}] = {lower[k].item()!r} but "
            f"{other}[{j}, {i}]{close} = {upper[k].item()!r}; give one triangle with view='lower' or "
            "view='upper' if the other is not meant"
        )


def read_system(matrix: Any, structure: str, view: str, clean: bool = False) -> tuple[System, NDArray[Any]]:
    """Check a matrix and settle its structure.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array, dense array, or CSR triple
    structure : {"auto", "SPD", "S", "HPD", "H", "G"}
    view : {"full", "lower", "upper"}
        Which triangle holds the entries; the other one is ignored unless "full".
    clean : bool
        Read NaN and infinity as 1; the triangles are not compared.

    Returns
    -------
    system, values : System, [nnz] of its dtype
        The matrix, and its canonical values.
    """
    if not isinstance(structure, str) or structure not in STRUCTURES:
        raise InvalidValueError(f"structure is {structure!r}; allowed are {', '.join(STRUCTURES)}")
    if not isinstance(view, str) or view not in VIEWS:
        raise InvalidValueError(f"view is {view!r}; allowed are {', '.join(VIEWS)}")
    operand = read_operand(matrix)
    rows, columns = operand.shape
    if rows != columns:
        raise InvalidValueError(f"the matrix is {rows} x {columns}; a direct solve needs a square one")
    if clean:
        data = operand.data
        operand = replace(operand, data=np.where(np.isfinite(data), data, np.ones(1, data.dtype)))
    if operand.kind != "dense":
        shared = {name: getattr(operand, name) for name in ("ptr", "ind", "row", "col")}
        operand = replace(
            operand, **{name: array.copy() for name, array in shared.items() if array is not None}
        )
    asked = _checked_request(structure, view, operand.dtype)
    system = _one_triangle(operand, asked, view) if view != "full" else _both_triangles(operand, asked)
    values = system.pattern.gather(operand.data) if clean else system.gather(operand.data)
    return (_settled(system, values) if structure == "auto" else system), values


def _checked_request(structure: str, view: str, dtype: np.dtype[Any]) -> str:
    if structure == "G" and view != "full":
        raise InvalidValueError(f"view is {view!r}; a general matrix (structure 'G') is given in full")
    if dtype.kind != "c":
        return _REAL_NAMES.get(structure, structure)
    if structure == "SPD":
        raise InvalidValueError(
            "structure 'SPD' was asked for, but the matrix is complex; a positive definite one is 'HPD'"
        )
    return structure


def _one_triangle(operand: Operand, structure: str, view: str) -> System:
    """Return a system of which one triangle is read."""
    pattern = canonicalize(operand, "lower_as_lower" if view == "lower" else "upper_as_lower")
    reason = f"its {view} triangle was given"
    if structure == "auto" and operand.dtype.kind == "c":
        slots = pattern.gather(operand.data)
        if not np.any(_not_real(slots[_diagonal_slots(pattern)])):
            raise InvalidValueError(
                f"one triangle of a complex matrix does not say what the other holds: give structure='H' or 'HPD' "
                f"(Hermitian) or 'S' (complex symmetric) with view={view!r}"
            )
        structure, reason = "S", f"{reason} and its diagonal is not real: complex symmetric"
    return System(operand, structure, reason, False, pattern, None, False)


def _both_triangles(operand: Operand, structure: str) -> System:
    """Return a system of a matrix given in full, once both triangles have been compared."""
    if structure == "G":
        return System(operand, "G", "asked for", False, canonicalize(operand, "all"), None, True)
    full = canonicalize(operand, "all")
    bad = first_nonfinite(operand.data)
    if bad >= 0:
        raise NonFiniteError(f"the matrix has {operand.data[bad]} at entry {bad} (caller's order)", bad)
    evidence = symmetry(operand, full)
    reason = "asked for"
    if structure == "auto":
        structure, reason = _found(evidence, operand.dtype)
        if structure == "G":
            return System(operand, "G", reason, False, full, None, True)
    pattern, upper = triangles(full, evidence.pattern_symmetric)
    return System(operand, structure, reason, False, pattern, upper, True)


def _found(evidence: SymmetryEvidence, dtype: np.dtype[Any]) -> tuple[str, str]:
    """Structure by evidence, and the sentence that says so."""
    if dtype.kind != "c":
        if evidence.symmetric:
            return "auto", "a[i, j] equals a[j, i] everywhere"
    elif evidence.hermitian:
        return "H", "a[i, j] equals conj(a[j, i]) everywhere"
    elif evidence.symmetric:
        return "S", "a[i, j] equals a[j, i] everywhere and the matrix is complex: complex symmetric"
    difference = evidence.max_relative_difference
    if evidence.pattern_symmetric:
        return "G", f"the pattern is symmetric but the values are not: they differ by up to {difference:.1e}"
    return "G", "the pattern is not symmetric"


def _settled(system: System, values: NDArray[Any]) -> System:
    """Turn ``auto`` into what the values allow: Cholesky is worth a try where the diagonal is positive."""
    if system.structure == "G" or (system.structure == "S" and system.dtype.kind == "c"):
        return system
    definite, indefinite = ("HPD", "H") if system.dtype.kind == "c" else ("SPD", "S")
    if positive_diagonal(system.pattern, values):
        reason = f"{system.reason} and the diagonal is positive: Cholesky is tried first"
        return replace(system, structure=definite, reason=reason, open_choice=True)
    reason = f"{system.reason}; the diagonal is not all positive"
    return replace(system, structure=indefinite, reason=reason, open_choice=True)


def positive_diagonal(pattern: Canonical, values: NDArray[Any]) -> bool:
    """Whether every diagonal entry of a lower triangle is stored and positive."""
    if pattern.n_cols == 0:
        return True
    if pattern.diagonal is None:
        return False
    diagonal = values[pattern.diagonal]
    return bool(diagonal.real.min() > 0 and not (values.dtype.kind == "c" and np.any(diagonal.imag)))
