"""Seconds that each step of an analysis took."""

from __future__ import annotations

import time

__all__ = ["Steps"]


class Steps:
    """A stop watch.

    Attributes
    ----------
    seconds : dict
        Step -> seconds, in the order of the steps.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def done(self, step: str) -> None:
        """Say that a step has ended; it began where the one before ended."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now
