"""Two processes that sample in turn: one works while the other waits, and they change over after every sample.

``warpfront bench --against`` starts base and new together, each with two pipe ends named in ``_WARPFRONT_BENCH_TURNS``.
A byte travels between them: who has read it works, on imports and warm-up too. Samples of one row are then pairs
taken a moment apart, so that what the machine does in the meantime falls on both and leaves their ratio. When one
side ends, its pipe ends close with it and the other goes on alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from warpfront.backend import settings

__all__ = ["Pair", "begin", "change", "taken"]


@dataclass
class _Side:
    reads: int
    writes: int
    changes: int = 0

    def wait(self) -> None:
        # Nothing to read but the end: the other side is gone, and this one needs no leave any more.
        os.read(self.reads, 1)

    def give(self) -> None:
        with suppress(BrokenPipeError):
            os.write(self.writes, b".")


_sides: list[_Side] = []  # this process's, if it has one


def begin() -> None:
    """Wait for the first turn, in a process that was started to take turns; elsewhere do nothing."""
    ends = settings.bench_turns()
    if ends is not None and not _sides:
        _sides.append(_Side(*ends))
        _sides[0].wait()


def change() -> None:
    """Let the other side work, until it has taken a sample or ended; nothing without another side."""
    for side in _sides:
        side.changes += 1
        side.give()
        side.wait()


def taken() -> int:
    """Return how many times this process has changed over."""
    return sum(side.changes for side in _sides)


class Pair:
    """The pipes between two processes; the first one named has the first turn.

    Parameters
    ----------
    names : sequence of two str
        Of the sides.
    """

    def __init__(self, names: Sequence[str]) -> None:
        first, second = names
        to_first, to_second = os.pipe(), os.pipe()
        self._ends: Mapping[str, tuple[int, int]] = {
            first: (to_first[0], to_second[1]),
            second: (to_second[0], to_first[1]),
        }
        os.write(to_first[1], b".")

    def descriptors(self, name: str) -> tuple[int, int]:
        """Return the descriptors that a side inherits: what it reads from, what it writes to."""
        return self._ends[name]

    def environment(self, name: str) -> str:
        """Return the value of ``_WARPFRONT_BENCH_TURNS`` for a side."""
        return "{},{}".format(*self._ends[name])

    def close(self, name: str) -> None:
        """Close this process's copies of a side's ends, once the side has been started."""
        for end in self._ends[name]:
            os.close(end)
