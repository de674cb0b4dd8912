"""The ring of slots of a pipeline, and the cap on what their buffers hold together.

A slot has two buffers in host memory and two on the device (one each on the CPU). It keeps them for the next image;
`Ring.lend` replaces them when an image does not fit, and never lets all slots together hold more than the cap: it
frees what idle slots keep, and waits for busy ones. Nothing here knows a GPU: an engine makes the buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from warpfront.errors import InvalidValueError

__all__ = ["Ring", "Slot", "capacity"]

_LEAST = 1 << 16


def capacity(nbytes: int) -> int:
    """Return the size a buffer is made with: at most an eighth more than asked, so that near sizes share it."""
    if nbytes <= _LEAST:
        return _LEAST
    grain = max(1 << (nbytes.bit_length() - 4), 4096)
    return -(-nbytes // grain) * grain


@dataclass
class Slot:
    """One place of the ring.

    Attributes
    ----------
    number : int
    source_bytes, result_bytes : int
        Capacity of the buffers.
    buffers : object
        The engine's buffers, ``None`` while there are none.
    state : dict
        What the engine keeps with these buffers (captured graphs); emptied when they are replaced.
    """

    number: int
    source_bytes: int = 0
    result_bytes: int = 0
    buffers: Any = None
    busy: bool = False
    state: dict[Any, Any] = field(default_factory=dict)

    @property
    def held(self) -> int:
        """Bytes of its buffers in one memory (host or device; both hold the same)."""
        return self.source_bytes + self.result_bytes


class Ring:
    """Slots under a byte cap.

    Parameters
    ----------
    slots : int
        At least 1.
    cap : int
        Bytes that all slots' buffers may hold together, in each memory.
    allocate : callable
        ``allocate(slot, source_bytes, result_bytes)`` returns buffers.
    free : callable
        ``free(slot, buffers)``; called before the replacement is made.
    """

    def __init__(
        self,
        slots: int,
        cap: int,
        allocate: Callable[[Slot, int, int], Any],
        free: Callable[[Slot, Any], None],
    ) -> None:
        self.slots = [Slot(k) for k in range(slots)]
        self.cap = cap
        self.peak_bytes = 0
        self.allocations = 0
        self._allocate = allocate
        self._free = free
        self._changed = threading.Condition()

    @property
    def held_bytes(self) -> int:
        """Bytes that all buffers hold now."""
        return sum(slot.held for slot in self.slots)

    def lend(self, source_bytes: int, result_bytes: int) -> Slot:
        """Return a slot whose buffers take an image; waits for one, and for room under the cap.

        Raises
        ------
        InvalidValueError
            The image alone needs more than the cap.
        """
        need = capacity(source_bytes) + capacity(result_bytes)
        if need > self.cap:
            raise InvalidValueError(
                f"an image needs {need} bytes of buffers and the cap is {self.cap}: raise byte_cap to at least {need}"
            )
        with self._changed:
            while (slot := self._take(source_bytes, result_bytes, need)) is None:
                self._changed.wait()
            if slot.source_bytes < source_bytes or slot.result_bytes < result_bytes:
                self._replace(slot, capacity(source_bytes), capacity(result_bytes))
            slot.busy = True  # last: a slot whose buffers could not be made is nobody's
            return slot

    def give_back(self, slot: Slot) -> None:
        """Let the next image have a slot."""
        with self._changed:
            slot.busy = False
            self._changed.notify_all()

    def clear(self) -> None:
        """Free the buffers of all idle slots."""
        with self._changed:
            for slot in self.slots:
                if not slot.busy:
                    self._drop(slot)

    def _take(self, source_bytes: int, result_bytes: int, need: int) -> Slot | None:
        """Return an idle slot that fits, or one that may grow within the cap; ``None``: wait."""
        idle = [slot for slot in self.slots if not slot.busy]
        fitting = [s for s in idle if s.source_bytes >= source_bytes and s.result_bytes >= result_bytes]
        if fitting:
            return min(fitting, key=lambda slot: slot.held)
        if not idle:
            return None
        # The smallest is replaced; if that does not make room, the others' idle buffers go, largest first.
        idle.sort(key=lambda slot: slot.held)
        slot = idle[0]
        others = idle[:0:-1]
        while self.held_bytes - slot.held + need > self.cap:
            if not others or others[0].held == 0:
                return None
            self._drop(others.pop(0))
        return slot

    def _replace(self, slot: Slot, source_bytes: int, result_bytes: int) -> None:
        self._drop(slot)
        slot.buffers = self._allocate(slot, source_bytes, result_bytes)
        slot.source_bytes, slot.result_bytes = source_bytes, result_bytes
        self.allocations += 1
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _drop(self, slot: Slot) -> None:
        if slot.buffers is not None:
            slot.state.clear()
            self._free(slot, slot.buffers)
        slot.buffers, slot.source_bytes, slot.result_bytes = None, 0, 0
