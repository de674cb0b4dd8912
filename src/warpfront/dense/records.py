"""What the dense functions return besides numbers: outcome of a solve or an inversion, and a determinant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from warpfront.errors import Status

__all__ = ["OVERFLOWED", "DenseOutcome", "Determinant", "SignLog"]

# End of an outcome's method whose result or factors had an entry beyond their type.
OVERFLOWED = ", which overflowed"


class SignLog(NamedTuple):
    """Sign (a unit complex number for complex matrices) and natural logarithm of the absolute determinant.

    A singular matrix has sign 0 and logarithm -inf. For a batch both are arrays [batch].
    """

    sign: Any
    logabsdet: Any


@dataclass(frozen=True)
class DenseOutcome:
    """Result of ``solve`` or ``inv`` with ``check="status"``.

    Attributes
    ----------
    value : array
        Solution or inverse; NaN for a system that failed.
    status : Status, or list of Status for a batch
        OK, SINGULAR, NON_FINITE or REFINEMENT_FAILED.
    column : int, or list of int
        Column of the first zero pivot; -1 where there is none.
    rcond : float, or list of float
        Reciprocal condition estimate in the 1-norm (0 for a singular matrix, NaN where nothing was factored).
    backward_error : float, or list of float
        Normwise, ``|b - A x| / (|A| |x| + |b|)`` in the infinity norm, worst right-hand side (for an inverse: of
        ``A X = I``); NaN where there is no solution.
    refinement_steps : int, or list of int
        Steps of iterative refinement (0 in working precision).
    method : str
        What was computed, in words.
    """

    value: Any
    status: Any
    column: Any
    rcond: Any
    backward_error: Any
    refinement_steps: Any
    method: str

    @property
    def ok(self) -> bool:
        """Whether every system was solved."""
        states = self.status if isinstance(self.status, list) else [self.status]
        return all(state == Status.OK for state in states)


@dataclass(frozen=True)
class Determinant:
    """A determinant that says when it left the range of its type.

    Attributes
    ----------
    value : number, or array [batch]
        In the matrix's type: 0 after underflow, infinite after overflow.
    sign, logabsdet : number, or array [batch]
        As `SignLog`; these have no underflow or overflow.
    flag : str, or list of str
        ``"ok"``, ``"singular"``, ``"underflow"`` or ``"overflow"``.
    column : int, or list of int
        Column of the first zero pivot, or -1.
    """

    value: Any
    sign: Any
    logabsdet: Any
    flag: Any
    column: Any
