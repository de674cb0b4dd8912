"""Proof of kernels, suite by suite: what `warpfront verify` runs.

Each algorithm room that has kernels is one entry of `ROOMS`, which says what suites it has. A suite ends in
one of three ways: ``passed`` (every check ran and found nothing), ``failed`` (a finding), ``not run`` with
the reason (no GPU, no compiler). Nothing that was not run counts as passed, and a suite without a single
check is a failure.

plan
    Host tests of the launch plan.
oracle
    Reference recurrences and host paths against libraries that share no code with them.
build
    Every listed instantiation for every architecture, warnings as errors; registers and spills are kept.
simt
    The kernel sources on the host: races, barriers, bounds, unwritten memory (``docs/proof.md``).
cuda
    The device tests.
sanitizer
    compute-sanitizer over the device tests: memcheck, racecheck, synccheck, initcheck; child processes too.
bench
    Timed paths, every timed output verified.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from warpfront.errors import InvalidValueError

__all__ = [
    "ARCHITECTURES",
    "FAILED",
    "NOT_RUN",
    "PASSED",
    "ROOMS",
    "SUITES",
    "Check",
    "NotRun",
    "Options",
    "Room",
    "SuiteResult",
    "VerifyRecord",
    "verify",
]

SUITES = ("plan", "oracle", "build", "simt", "cuda", "sanitizer", "bench")
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class NotRun(Exception):
    """Raised by a suite that this machine cannot run; the message is the reason."""


@dataclass(frozen=True)
class Room:
    """What one algorithm room brings to be verified.

    Attributes
    ----------
    name : str
        As ``--room`` takes it.
    tests : dict of str to tuple of str
        Suite -> pytest arguments, paths relative to the source tree. For ``plan``, ``oracle``, ``simt``,
        ``cuda`` (the ``sanitizer`` suite runs the arguments of ``cuda`` unless it has its own).
    kernels : str
        ``module:function`` that returns ``[(file, name expressions, least architecture), …]``, every
        instantiation; ``""``: the room has none to build.
    subset : str
        The same for the covering subset that is built without ``--all``; ``""``: all are.
    bench : str
        ``module:function`` that takes `Options` and returns a list of `Check`; ``""``: the room has none.
    """

    name: str
    tests: dict[str, tuple[str, ...]]
    kernels: str = ""
    subset: str = ""
    bench: str = ""

    def suites(self) -> tuple[str, ...]:
        """Return the suites this room has, in the order of `SUITES`."""
        have = set(self.tests) | ({"build"} if self.kernels else set()) | ({"bench"} if self.bench else set())
        if "cuda" in have:
            have.add("sanitizer")
        return tuple(suite for suite in SUITES if suite in have)


# Adding a room is one entry here.
ROOMS: dict[str, Room] = {
    "runner": Room("runner", {"simt": ("tests/simt", "-m", "simt")}),
    "device": Room(
        "device", {"simt": ("tests/backend", "-m", "simt"), "cuda": ("tests/backend", "-m", "cuda")}
    ),
    "transpose": Room(
        "transpose",
        {
            "oracle": ("tests/dense", "-k", "transpose", "-m", "not cuda and not simt"),
            "simt": ("tests/dense", "-k", "transpose", "-m", "simt"),
            "cuda": ("tests/dense", "-k", "transpose", "-m", "cuda"),
        },
        kernels="warpfront.dense._transpose_cuda:instantiations",
    ),
    "montecarlo": Room(
        "montecarlo",
        {
            "oracle": ("tests/montecarlo", "-m", "not cuda and not simt"),
            "simt": ("tests/montecarlo", "-m", "simt"),
            "cuda": ("tests/montecarlo", "-m", "cuda"),
            # The others simulate millions of paths, which a sanitizer makes hundreds of times slower.
            "sanitizer": (
                "tests/montecarlo/test_price_kernels.py",
                "-k",
                "plain_paths or every_backend",
                "-m",
                "cuda",
            ),
        },
        kernels="warpfront.montecarlo._cuda:instantiations",
        subset="warpfront.montecarlo._cuda:subset",
    ),
    "bfs": Room(
        "bfs",
        {
            "oracle": ("tests/graph", "-m", "not cuda and not simt"),
            "simt": ("tests/graph", "-m", "simt"),
            "cuda": ("tests/graph", "-m", "cuda"),
        },
        kernels="warpfront.graph._bfs_cuda:instantiations",
        subset="warpfront.graph._bfs_cuda:subset",
    ),
    "edges": Room(
        "edges",
        {
            "oracle": ("tests/image", "-m", "not cuda and not simt"),
            "simt": ("tests/image", "-m", "simt"),
            "cuda": ("tests/image", "-m", "cuda"),
        },
        kernels="warpfront.image._edges_cuda:instantiations",
        subset="warpfront.image._edges_cuda:subset",
    ),
    "attention": Room(
        "attention",
        {
            "oracle": ("tests/attention", "-m", "not cuda and not simt"),
            "cuda": ("tests/attention", "-m", "cuda"),
        },
    ),
    "batched": Room(
        "batched",
        {
            "plan": ("tests/batched/test_plan.py", "tests/batched/test_device_calls.py"),
            "oracle": (
                "tests/batched/test_oracle.py",
                "tests/batched/test_batched.py",
                "-m",
                "not cuda and not simt",
            ),
            "simt": ("tests/batched", "-m", "simt"),
            "cuda": ("tests/batched", "-m", "cuda"),
        },
        kernels="warpfront.batched._batched_cuda:instantiations",
        subset="warpfront.batched._batched_cuda:subset",
        bench="warpfront.bench.suites.batched_gpu:checks",
    ),
    "linalg": Room(
        "linalg",
        {
            "oracle": ("tests/dense", "-k", "linalg", "-m", "not cuda and not simt"),
            "simt": ("tests/dense", "-k", "lu_small or lu_panel", "-m", "simt"),
            "cuda": ("tests/dense", "-k", "linalg or lu_panel", "-m", "cuda"),
        },
        kernels="warpfront.dense._lu_panel_cuda:all_instantiations",
        subset="warpfront.dense._lu_panel_cuda:subset",
    ),
    "sparse_gpu": Room(
        "sparse_gpu",
        {
            "oracle": ("tests/sparse_gpu", "-m", "not cuda and not simt"),
            "simt": ("tests/sparse_gpu", "-m", "simt"),
            "cuda": ("tests/sparse_gpu", "-m", "cuda"),
        },
        kernels="warpfront.sparse.gpu.kernels:instantiations",
        subset="warpfront.sparse.gpu.kernels:subset",
    ),
}


@dataclass(frozen=True)
class Options:
    """How the suites run.

    Attributes
    ----------
    compilers : tuple of str
        ``"nvrtc"``, ``"nvcc"``.
    everything : bool
        All instantiations and the tests marked slow.
    architectures : tuple of str
        Targets of ``build``.
    """

    compilers: tuple[str, ...] = ("nvrtc",)
    everything: bool = False
    architectures: tuple[str, ...] = ARCHITECTURES


@dataclass(frozen=True)
class Check:
    """One check: a test, a compiled instantiation, a sanitizer tool, a timed case."""

    name: str
    status: str
    detail: str = ""
    seconds: float = 0.0
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteResult:
    """Outcome of one suite of one room. ``reason`` says why it was not run, or sums up the failures."""

    room: str
    suite: str
    status: str
    reason: str
    seconds: float
    checks: tuple[Check, ...] = ()

    def count(self, status: str) -> int:
        """Return the number of checks with this status."""
        return sum(check.status == status for check in self.checks)


@dataclass(frozen=True)
class VerifyRecord:
    """Outcome of a whole run."""

    results: tuple[SuiteResult, ...]
    environment: dict[str, Any]
    options: dict[str, Any]
    seconds: float

    @property
    def exit_code(self) -> int:
        """Return 1 with a finding, else 4 when something asked for was not run, else 0."""
        statuses = {result.status for result in self.results}
        if FAILED in statuses:
            return 1
        return 4 if NOT_RUN in statuses else 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain containers, ready for JSON."""
        return {"schema": "warpfront-verify-1", "exit_code": self.exit_code, **asdict(self)}


def verify(
    rooms: Sequence[Room],
    suites: Sequence[str],
    options: Options,
    started: Callable[[Room, str], None] = lambda room, suite: None,
    ended: Callable[[SuiteResult], None] = lambda result: None,
) -> VerifyRecord:
    """Run suites of rooms, in that order, and never stop at a failure.

    Parameters
    ----------
    rooms : sequence of Room
    suites : sequence of str
        Some of `SUITES`.
    options : Options
    started, ended : callable
        Told of each suite, for a progress display.

    Returns
    -------
    VerifyRecord

    Raises
    ------
    InvalidValueError
        An unknown suite, or none of the rooms has any of the suites.
    """
    from warpfront.bench import verify_suites

    unknown = [suite for suite in suites if suite not in SUITES]
    if unknown:
        raise InvalidValueError(f"no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    todo = [(room, suite) for room in rooms for suite in room.suites() if suite in suites]
    if not todo:
        names = ", ".join(room.name for room in rooms) or "none"
        raise InvalidValueError(
            f"nothing to run: rooms {names} have no suite {', '.join(suites) or 'at all'}"
        )
    begin = perf_counter()
    results = []
    for room, suite in todo:
        started(room, suite)
        result = _one(room, suite, options, verify_suites.RUNNERS[suite])
        ended(result)
        results.append(result)
    shown = {"suites": list(suites), "rooms": [room.name for room in rooms], **asdict(options)}
    return VerifyRecord(tuple(results), _environment(), shown, perf_counter() - begin)


def _one(
    room: Room, suite: str, options: Options, runner: Callable[[Room, Options], list[Check]]
) -> SuiteResult:
    begin = perf_counter()
    try:
        checks = tuple(runner(room, options))
    except NotRun as reason:
        return SuiteResult(room.name, suite, NOT_RUN, str(reason), perf_counter() - begin)
    seconds = perf_counter() - begin
    failed = [check for check in checks if check.status == FAILED]
    if failed:
        return SuiteResult(room.name, suite, FAILED, f"{failed[0].name}: {failed[0].detail}", seconds, checks)
    left = [check for check in checks if check.status == NOT_RUN]
    if not checks:
        return SuiteResult(room.name, suite, FAILED, "the suite holds no check", seconds)
    if left:
        reason_text = f"{len(left)} of {len(checks)}: {left[0].detail}"
        return SuiteResult(room.name, suite, NOT_RUN, reason_text, seconds, checks)
    return SuiteResult(room.name, suite, PASSED, "", seconds, checks)


def _environment() -> dict[str, Any]:
    from warpfront import __version__
    from warpfront.backend import capability

    host = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    return {"warpfront": __version__, **host, "gpu": capability.describe()}
