"""One phase of a solver at a time: its buffers are kept between calls, and several Python threads may call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

__all__ = ["exclusive"]

Method = TypeVar("Method", bound=Callable[..., Any])


def exclusive(method: Method) -> Method:
    """Let a method run only while no other exclusive one of the same object does, but for those that it calls itself.

    The object's ``_lock`` is a ``threading.RLock``.
    """

    @wraps(method)
    def one_at_a_time(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return one_at_a_time  # type: ignore[return-value]
