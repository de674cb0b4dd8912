"""From the runtime's records to findings a person can act on: thread names, memory names, source lines."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from warpfront.backend.simt.arguments import Buffer
from warpfront.backend.simt.build import Build
from warpfront.backend.simt.findings import KINDS, Finding, Place, resolve

__all__ = ["Addresses", "Raw", "Seen", "merge"]

_SHARED, _LOCAL = 1, 2
_WRITE, _ATOMIC = 1, 2


class Raw(ctypes.Structure):
    """``rt::Finding`` of runtime/state.hpp."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("space", ctypes.c_int32),
        ("pc", ctypes.c_uint32),
        ("other_pc", ctypes.c_uint32),
        ("thread", ctypes.c_int32),
        ("other_thread", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("other_flags", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("mask", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("text", ctypes.c_char * 64),
    )


@dataclass(frozen=True)
class Addresses:
    """Where the memory of one schedule's run lay: buffers, static and dynamic shared storage."""

    buffers: tuple[int, ...]
    shared: int
    dynamic: int


@dataclass(frozen=True)
class Seen:
    """A record copied out of the library, with the addresses it speaks of."""

    kind: int
    space: int
    pc: int
    other_pc: int
    thread: int
    other_thread: int
    flags: int
    other_flags: int
    size: int
    mask: int
    address: int
    text: str
    places: Addresses
    schedule: int

    @staticmethod
    def of(raw: Raw, places: Addresses, schedule: int) -> Seen:
        """Copy one record."""
        numbers = {name: getattr(raw, name) for name, _ in Raw._fields_ if name != "text"}
        return Seen(**numbers, text=raw.text.decode("latin1"), places=places, schedule=schedule)


def merge(
    seen: Sequence[Seen],
    built: Build,
    buffers: Sequence[Buffer],
    shape: tuple[tuple[int, ...], tuple[int, ...]],
) -> tuple[Finding, ...]:
    """Return each distinct finding once, with the first schedule that showed it.

    Two barriers on the same source line (copies the compiler made) are one barrier.
    """
    places = resolve(built.library, (pc for s in seen for pc in (s.pc, s.other_pc)), built.source)
    words = _Words(built, buffers, shape)
    out: dict[tuple[object, ...], Finding] = {}
    for s in seen:
        where, other = places.get(s.pc), places.get(s.other_pc)
        kind = KINDS[s.kind]
        if kind == "divergent barrier" and where is not None and where == other:
            continue
        key = (kind, where, other)
        if key not in out:
            out[key] = Finding(kind, where, other, words.message(s, kind, where, other), s.schedule)
    return tuple(out.values())


class _Words:
    def __init__(
        self, built: Build, buffers: Sequence[Buffer], shape: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> None:
        self.built, self.buffers = built, buffers
        threads = shape[1][0] * shape[1][1] * shape[1][2]
        self.slot = -(-threads // 32) * 32

    def thread(self, number: int) -> str:
        block, k = divmod(number, self.slot)
        return f"block {block} thread {k} (warp {k // 32} lane {k % 32})"

    def memory(self, s: Seen) -> str:
        if s.space == _SHARED:
            return self._shared(s)
        for buffer, at in zip(self.buffers, s.places.buffers, strict=True):
            offset = s.address - at
            if -1024 <= offset < buffer.array.nbytes + 1024:
                item = offset // buffer.array.dtype.itemsize
                return (
                    f"global memory, {buffer.label} item {item} of {buffer.array.size} ({buffer.array.dtype})"
                )
        return "another thread's local memory" if s.space == _LOCAL else "memory that no argument owns"

    def _shared(self, s: Seen) -> str:
        dynamic = s.address - s.places.dynamic
        if 0 <= dynamic < 262144:
            return f"dynamic shared memory, byte {dynamic}"
        offset = s.address - s.places.shared
        near = [v for v in self.built.shared if v[1] - 64 <= offset < v[1] + v[2] + 64]
        if not near:
            return "shared memory"
        name, at, size = min(near, key=lambda v: 0 if v[1] <= offset < v[1] + v[2] else 1)
        return f"shared {_plain(name)}, byte {offset - at} of {size}"

    def message(self, s: Seen, kind: str, where: Place | None, other: Place | None) -> str:
        one, two = self.thread(s.thread), self.thread(s.other_thread)
        if kind == "race":
            first = f"{_access(s.flags)} of {s.size} bytes at {where} by {one}"
            second = f"{_access(s.other_flags)} at {other} by {two}"
            return f"{first} and {second}: nothing orders them; {self.memory(s)}"
        if kind == "divergent barrier":
            return f"{one} is at the barrier of {where}, {two} at {other}"
        if kind == "exit before barrier":
            return (f"{one} waits at the barrier of {where}; {s.mask} thread(s) have returned, "
                    f"{two}{_last(other)}")  # fmt: skip
        if kind == "missing lane":
            return self._missing(s, where, other)
        if kind == "shuffle from absent lane":
            return f"{one} at {where} reads lane {s.size}, which does not take part (mask {s.mask:#010x})"
        if kind == "deadlock":
            return f"{one} waits for ever at {where}"
        if kind == "trap":
            return f"{s.text} at {where} by {one}"
        return f"{_access(s.flags)} of {s.size} bytes at {where} by {one}; {self.memory(s)}"

    def _missing(self, s: Seen, where: Place | None, other: Place | None) -> str:
        one = self.thread(s.thread)
        if s.other_flags == 2:
            return f"{one} at {where} is not in its own mask {s.flags:#010x}"
        two = self.thread(s.other_thread) + (
            f" has returned{_last(other)}" if s.other_flags else f" is at {other}"
        )
        return f"{one} at {where} waits for lanes {s.mask:#010x} of mask {s.flags:#010x}; {two}"


def _last(place: Place | None) -> str:
    return f", last seen at {place}" if place else " before it touched memory"


def _access(flags: int) -> str:
    return ("atomic " if flags & _ATOMIC else "") + ("write" if flags & _WRITE else "read")


def _plain(symbol: str) -> str:
    """Return the variable's own name from a mangled local static (``_ZZ...E4tile`` -> ``tile``)."""
    tail = symbol.rsplit("E", 1)[-1]
    digits = len(tail) - len(tail.lstrip("0123456789"))
    if digits:
        length = int(tail[:digits])
        return tail[digits : digits + length]
    return symbol
