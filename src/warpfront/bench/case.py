"""`Case`: one thing that is measured, with what makes its input and what judges its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Case", "NotOffered", "Verdict"]


class NotOffered(Exception):
    """Raised by ``make`` or ``run`` when the contender has no such operation; the message is the reason."""


@dataclass(frozen=True)
class Verdict:
    """What verifying one output found.

    Attributes
    ----------
    ok : bool
        Whether the output may be counted as an answer.
    error : float or None
        The figure judged, e.g. a normwise backward error.
    limit : float or None
        What ``error`` was held against.
    detail : str
        Why not, in a line; empty when ok.
    values : dict
        Whatever else was measured on the way, as plain JSON values (other errors, inertia).
    """

    ok: bool
    error: float | None = None
    limit: float | None = None
    detail: str = ""
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One contender's way of doing one operation on one input.

    Attributes
    ----------
    make : callable ``() -> state``
        Builds the input; never timed.
    run : callable ``state -> output``
        The timed call. It must do its whole work before it returns.
    verify : callable ``(state, output) -> Verdict``
        Judges an output; never timed.
    flops, bytes : float or None
        Operations and memory traffic of one run, where they are known.
    algorithm : str
        What is run, with its options, as text for the record.
    reset : callable ``state -> None``, optional
        Untimed, before each call but the first; a sample is then a single call.
    release : callable ``state -> None``, optional
        Frees what ``make`` and ``run`` hold outside Python.
    """

    make: Callable[[], Any]
    run: Callable[[Any], Any]
    verify: Callable[[Any, Any], Verdict]
    flops: float | None = None
    bytes: float | None = None
    algorithm: str = ""
    reset: Callable[[Any], None] | None = None
    release: Callable[[Any], None] | None = None
