"""What `prefill` and `decode` have in common: options in words to the numbers of a problem."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from warpfront.attention._problem import SPLITS_LIMIT
from warpfront.errors import InvalidValueError

__all__ = ["flag", "scale_of", "sides", "soft_cap_of", "splits_of"]


def flag(name: str, value: Any) -> bool:
    """Return a boolean option, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def scale_of(scale: Any, head_dim: int) -> float:
    """Return the factor of the products q k: ``1 / sqrt(head_dim)`` where ``scale`` is None."""
    if scale is None:
        return 1.0 / math.sqrt(max(1, head_dim))
    return _float32("scale", _number("scale", scale))


def soft_cap_of(soft_cap: Any) -> float:
    """Return the soft cap, 0 where there is none."""
    if soft_cap is None:
        return 0.0
    value = _number("soft_cap", soft_cap)
    if value <= 0.0:
        raise InvalidValueError(f"soft_cap must be positive, or None for no cap, got {soft_cap!r}")
    return _float32("soft_cap", value)


def sides(window: Any, *, causal: bool) -> tuple[int, int]:
    """Return the window's sides as a problem has them, -1 for no limit."""
    if window is None:
        return -1, 0 if causal else -1
    if not (isinstance(window, tuple | list) and len(window) == 2):
        raise InvalidValueError(
            f"window must be (left, right), each a number of keys or None, got {window!r}"
        )
    left, right = (_side(side, window) for side in window)
    return left, 0 if causal else right


def splits_of(splits: Any) -> int:
    """Return the parts of a sequence, 0 for ``"auto"``."""
    if isinstance(splits, str) and splits == "auto":
        return 0
    if isinstance(splits, bool) or not isinstance(splits, Integral) or not 1 <= int(splits) <= SPLITS_LIMIT:
        raise InvalidValueError(
            f'splits must be "auto" or an integer from 1 to {SPLITS_LIMIT}, got {splits!r}'
        )
    return int(splits)


def _side(side: Any, window: Any) -> int:
    if side is None:
        return -1
    if isinstance(side, bool) or not isinstance(side, Integral) or side < 0:
        raise InvalidValueError(
            f"a window's sides are numbers of keys, at least 0, or None for no limit; got {tuple(window)!r}"
        )
    return int(side)


def _number(name: str, value: Any) -> float:
    try:
        found = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidValueError(f"{name} must be a finite number, got {value!r}")
    return found


def _float32(name: str, value: float) -> float:
    """Return a number that kernels take as float32, where it must stay what it is."""
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    if value != 0.0 and not least <= abs(value) <= most:
        raise InvalidValueError(
            f"{name} is used as float32 and must be {least:.8g} to {most:.8g} in size, got {value!r}"
        )
    return value
