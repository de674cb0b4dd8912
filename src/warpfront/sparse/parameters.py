"""Solver parameters by their cuDSS names in lower case: one table for ``set``, ``get`` and the keywords.

Each name is either a setting, a value to read, or known and refused with its reason.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.sparse._settings_table import REFUSED, REFUSED_VALUES, SETTINGS, Setting

__all__ = ["REFUSED", "SETTINGS", "Settings"]

DOWNCAST_STEPS = 30  # refinement steps where the factor is of lower precision, unless asked otherwise


@dataclass
class Settings:
    """Checked values of every setting; what was not set has its default, which may depend on the precision.

    Attributes
    ----------
    values : dict
        What was set.
    single : bool
        The matrix is float32 or complex64.
    general : bool
        The matrix is factored by LU.
    target : str
        Where it is factored: ``cpu`` or ``cuda``.
    """

    values: dict[str, Any] = field(default_factory=dict)
    single: bool = False
    general: bool = False
    target: str = "cpu"

    def __getitem__(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        setting = SETTINGS[name]
        downcast = bool(self.values.get("downcast_factors"))
        if name == "ir_n_steps" and downcast:
            return DOWNCAST_STEPS
        single = self.single or (downcast and setting.phase == "factorization")
        if single and setting.single is not None:
            return setting.single
        return setting.general if self.general and setting.general is not None else setting.default

    def set(self, name: str, value: Any) -> str:
        """Check and store one value; returns the first phase that has to run again.

        Raises
        ------
        NotSupportedError
            A known cuDSS name, or a known value of one, that this build does not implement; the message says why.
        InvalidValueError
            An unknown name, or a value of the wrong kind or range; the message lists what is allowed.
        """
        if not isinstance(name, str):
            raise InvalidValueError(
                f"a parameter's name is a string, not {name!r}; allowed are {', '.join(sorted(SETTINGS))}"
            )
        if name in REFUSED:
            raise NotSupportedError(f"parameter {name!r} is not supported: {REFUSED[name]}")
        if name not in SETTINGS:
            close = difflib.get_close_matches(name, SETTINGS, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidValueError(
                f"unknown parameter {name!r}{hint}; allowed are {', '.join(sorted(SETTINGS))}"
            )
        setting = SETTINGS[name]
        if isinstance(value, str) and value in REFUSED_VALUES.get(name, {}):
            raise NotSupportedError(f"{name} = {value!r} is not supported: {REFUSED_VALUES[name][value]}")
        self.values[name] = _checked(name, setting, value)
        if name == "user_perm":
            self.values["reordering_alg"] = "auto" if value is None else "user"
        return setting.phase


def _checked(name: str, setting: Setting, value: Any) -> Any:
    kind, allowed = setting.kind, setting.allowed
    if kind is object:
        return _checked_array(name, setting, value)
    if kind is str:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidValueError(
                f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))} ({setting.doc})"
            )
        return value
    if kind is bool:
        if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
            raise InvalidValueError(f"{name} is {value!r}; allowed are True and False ({setting.doc})")
        return bool(value)
    whole = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, whole):
        raise InvalidValueError(f"{name} is {value!r}; allowed is a {kind.__name__} ({setting.doc})")
    low, high = allowed
    if name == "host_nthreads" and value == 0:
        raise InvalidValueError(f"host_nthreads is 0; allowed is -1 or 1 to {high} ({setting.doc})")
    if not low <= value <= high:
        raise InvalidValueError(f"{name} is {value!r}; allowed is {low} to {high} ({setting.doc})")
    return kind(value)


def _checked_array(name: str, setting: Setting, value: Any) -> Any:
    """Check an array of marks: 0 and 1, or also -1; the length is checked against the matrix later."""
    if value is None or name == "user_perm":
        return value
    marks = np.asarray(value)
    if marks.ndim != 1 or marks.dtype.kind not in "biuf" or not np.isin(marks, setting.allowed).all():
        raise InvalidValueError(
            f"{name} must be a 1-D array of {', '.join(map(str, setting.allowed))} ({setting.doc})"
        )
    return marks.astype(np.int8)
