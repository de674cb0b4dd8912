"""Exceptions (misuse and refusals) and `Status` (outcome as data).

Outcome is data: kernels write an int32 ``info``, the host turns it into a `Status`. Misuse raises at once.
With ``check="raise"`` an unsuccessful `Status` becomes the exception of the same name below; with
``check="status"`` it stays in the record.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BatchFailedError",
    "CompileError",
    "DeterminantRangeWarning",
    "FormatError",
    "IllConditionedWarning",
    "InvalidValueError",
    "NonFiniteError",
    "NotAnalyzedError",
    "NotFactorizedError",
    "NotPositiveDefiniteError",
    "NotSupportedError",
    "OrderingFailedError",
    "OutOfPagesError",
    "PatternChangedError",
    "RefinementFailedError",
    "SingularMatrixError",
    "Status",
    "UnstablePivotError",
    "WarpfrontError",
]


class Status(IntEnum):
    """Outcome of one phase. ``OK`` is 0; every other value says what went wrong."""

    OK = 0
    SINGULAR = 1
    NOT_POSITIVE_DEFINITE = 2
    NON_FINITE = 3
    REFINEMENT_FAILED = 4
    UNSTABLE = 5


class WarpfrontError(Exception):
    """Base of every exception this package raises on purpose."""


class InvalidValueError(WarpfrontError, ValueError):
    """An argument has a wrong value, shape, dtype or kind; the message says which and what is allowed."""


class FormatError(InvalidValueError):
    """A file or a sparse structure is malformed; the message says where."""


class NotSupportedError(WarpfrontError, NotImplementedError):
    """A known request this build cannot carry out; the message names the requirement."""


class CompileError(WarpfrontError, RuntimeError):
    """A kernel did not compile, or compiled with a warning.

    Attributes
    ----------
    log : str
        Everything the compiler said.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(f"{message}\n{log}" if log else message)
        self.log = log


class OrderingFailedError(WarpfrontError, RuntimeError):
    """An external ordering package returned an error or something that is no permutation."""


class OutOfPagesError(WarpfrontError, RuntimeError):
    """A paged cache has too few free pages for what was to be added; nothing was changed.

    Attributes
    ----------
    needed, free : int
        Pages that the request takes, and pages that there are for it.
    """

    def __init__(self, message: str, needed: int = 0, free: int = 0) -> None:
        super().__init__(message)
        self.needed = needed
        self.free = free


class NotAnalyzedError(WarpfrontError, RuntimeError):
    """A phase or a value was asked for before ``analyze()`` ran."""


class NotFactorizedError(WarpfrontError, RuntimeError):
    """A phase or a value was asked for before ``factorize()`` ran."""


class PatternChangedError(WarpfrontError, ValueError):
    """``refactorize`` was given values that do not belong to the analysed pattern."""


class NumericalError(WarpfrontError, ArithmeticError):
    """Base of the numerical refusals."""


class SingularMatrixError(NumericalError):
    """The matrix is singular, structurally or to working precision.

    Attributes
    ----------
    column : int
        First failing column, in the caller's numbering.
    """

    def __init__(self, message: str, column: int = -1) -> None:
        super().__init__(message)
        self.column = column


class NotPositiveDefiniteError(NumericalError):
    """A Cholesky factorisation met a pivot that is not positive.

    Attributes
    ----------
    column : int
        Column of the failing pivot, in the caller's numbering.
    """

    def __init__(self, message: str, column: int = -1) -> None:
        super().__init__(message)
        self.column = column


class NonFiniteError(NumericalError):
    """The input holds NaN or infinity.

    Attributes
    ----------
    entry : int
        Position of the first such entry in the caller's array (flat index).
    """

    def __init__(self, message: str, entry: int = -1) -> None:
        super().__init__(message)
        self.entry = entry


class UnstablePivotError(NumericalError):
    """A front had no stable pivot for one of its columns, and ``on_unstable="error"`` forbids a way around.

    Also: pivots were perturbed, and what was asked for, a determinant, would be another matrix's.

    Attributes
    ----------
    column : int
        First such column, in the caller's numbering; -1 where it was perturbed at a root.
    """

    def __init__(self, message: str, column: int = -1) -> None:
        super().__init__(message)
        self.column = column


class RefinementFailedError(NumericalError):
    """Iterative refinement did not reach the requested backward error.

    Attributes
    ----------
    backward_error : float
        Best componentwise backward error reached.
    """

    def __init__(self, message: str, backward_error: float = float("nan")) -> None:
        super().__init__(message)
        self.backward_error = backward_error


class IllConditionedWarning(UserWarning):
    """A result was computed, but the condition estimate says that few or none of its digits are right."""


class DeterminantRangeWarning(UserWarning):
    """A determinant underflowed to 0 or overflowed in its type; its logarithm did not."""


class BatchFailedError(NumericalError):
    """Some systems of a batch failed.

    Attributes
    ----------
    indices : list of int
        Which, ascending.
    statuses : list of int
        The status of each of them.
    """

    def __init__(
        self, message: str, indices: list[int] | None = None, statuses: list[int] | None = None
    ) -> None:
        super().__init__(message)
        self.indices = indices or []
        self.statuses = statuses or []
