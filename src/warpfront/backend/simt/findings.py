"""What a run found, in words, with the source line of both sides."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warpfront.errors import WarpfrontError

__all__ = ["KINDS", "Finding", "Place", "Report", "SimtError", "resolve", "short_path"]

_HERE = Path(__file__).parent
_PACKAGE = _HERE.parent.parent

# The numbers are those of `rt::Kind` in runtime/state.hpp.
KINDS = {
    1: "race",
    2: "out of bounds",
    3: "uninitialised read",
    4: "divergent barrier",
    5: "exit before barrier",
    6: "missing lane",
    7: "shuffle from absent lane",
    8: "deadlock",
    9: "misaligned access",
    10: "write to read-only argument",
    11: "wild access",
    12: "access to another thread's local memory",
    13: "trap",
    14: "read before asynchronous copy was waited for",
}


class SimtError(WarpfrontError, AssertionError):
    """A kernel run under the SIMT runner has findings; the message is the whole report."""


@dataclass(frozen=True)
class Place:
    """A source line; ``stack`` holds the inlined calls that led there, innermost first, as ``file:line``."""

    file: str
    line: int
    function: str
    stack: tuple[str, ...] = ()

    def __str__(self) -> str:
        via = f" (from {' <- '.join(self.stack[1:])})" if len(self.stack) > 1 else ""
        return f"{self.file}:{self.line}{via}"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes
    ----------
    kind : str
        One of the values of ``KINDS``, ``"address"`` or ``"undefined behaviour"`` (second build), or
        ``"schedule dependent"``.
    where, other : Place or None
        The access or call, and the one it conflicts with.
    message : str
        The finding in words, threads and memory named.
    schedule : int
        Seed of the schedule under which it was seen first.
    """

    kind: str
    where: Place | None
    other: Place | None
    message: str
    schedule: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} [schedule {self.schedule}]"


@dataclass(frozen=True)
class Report:
    """Outcome of a launch under all its schedules.

    Attributes
    ----------
    kernel : str
    findings : tuple of Finding
        Empty when nothing is wrong.
    schedules : tuple of int
        Seeds that were run.
    accesses : int
        Checked memory accesses, over all schedules.
    digests : tuple of int
        Fingerprint of the order of threads, per schedule: equal seeds give equal digests.
    seconds : float
    """

    kernel: str
    findings: tuple[Finding, ...]
    schedules: tuple[int, ...]
    accesses: int
    digests: tuple[int, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """True when there is no finding."""
        return not self.findings

    def kinds(self) -> set[str]:
        """Return the kinds of the findings."""
        return {f.kind for f in self.findings}

    def check(self) -> Report:
        """Return the report, or raise `SimtError` when it has findings."""
        if self.findings:
            raise SimtError(str(self))
        return self

    def __str__(self) -> str:
        size = f"{len(self.schedules)} schedule(s), {self.accesses} accesses"
        head = f"{self.kernel}: {len(self.findings)} finding(s) in {size}"
        return "\n".join([head, *(f"  {f}" for f in self.findings)])


def resolve(library: Path, addresses: Iterable[int], source: Path) -> dict[int, Place]:
    """Map offsets in a library to source lines; frames of the runner's own headers are left out.

    Parameters
    ----------
    library : pathlib.Path
        Built with debug information.
    addresses : iterable of int
        Offsets from the load address.
    source : pathlib.Path
        The kernel file; names in reports are relative to the package, or to its folder.
    """
    wanted = sorted({a for a in addresses if a})
    if not wanted:
        return {}
    command = ["addr2line", "-a", "-i", "-f", "-C", "-e", str(library)]
    text = subprocess.run(
        command, input="\n".join(map(hex, wanted)) + "\n", capture_output=True, text=True, check=True
    ).stdout.splitlines()
    frames: dict[int, list[tuple[str, str]]] = {}
    current = 0
    k = 0
    while k < len(text):
        if text[k].startswith("0x"):
            current = int(text[k], 16)
            frames[current] = []
            k += 1
        else:
            frames[current].append((text[k], text[k + 1].split(" (")[0]))
            k += 2
    return {a: _place(f, source) for a, f in frames.items()}


def _place(frames: list[tuple[str, str]], source: Path) -> Place:
    runner = str(_HERE / "include")
    own = [f for f in frames if not f[1].startswith(runner)] or frames
    spots = [(short_path(where.rsplit(":", 1)[0], source), where.rsplit(":", 1)[1]) for _, where in own]
    line = int(spots[0][1]) if spots[0][1].isdigit() else 0
    return Place(spots[0][0], line, own[0][0], tuple(f"{name}:{number}" for name, number in spots))


def short_path(path: str, source: Path) -> str:
    """Return a path as reports show it: relative to package or kernel folder, else the bare name."""
    for root in (_PACKAGE, source.parent):
        if Path(path).is_relative_to(root):
            return str(Path(path).relative_to(root))
    return Path(path).name
