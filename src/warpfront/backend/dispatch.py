"""Which code path a call takes: a pure function of the problem, the policy and the device's capability.

A path is one way to run an operation (``sm_100``, ``sm_90``, ``sm_80``, ``portable`` on a GPU, ``cpu``). What
it needs is declared beside it with `requires`; an operation lists its paths, the preferred one first.
`choose` takes the first that can run, and reports on every path, the ones it never reached included. A path
that the caller names and that cannot run is an error: nothing else runs in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from warpfront.backend.capability import Capability
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["Choice", "Decision", "Path", "Policy", "Problem", "Requirement", "choose", "explain", "requires"]

Device = Literal["auto", "cpu", "cuda"]
F = TypeVar("F", bound=Callable[..., Any])


class Problem(Protocol):
    """What dispatch reads of a problem; an operation's own problem record has more."""

    @property
    def dtype(self) -> str:
        """Name of the element type."""

    @property
    def on_device(self) -> bool:
        """Whether the data is in device memory already."""


@dataclass(frozen=True)
class Policy:
    """What the caller asked for.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
        ``"auto"`` runs where the data is.
    path : str
        A path's name, or ``"auto"``.
    deterministic : bool
        Only paths whose bits do not vary from run to run.
    precision : str
        Working precision by name; ``"native"`` is that of the input.
    """

    device: Device = "auto"
    path: str = "auto"
    deterministic: bool = True
    precision: str = "native"

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise InvalidValueError(f'device must be "auto", "cpu" or "cuda", got {self.device!r}')


@dataclass(frozen=True)
class Requirement:
    """What a path needs. A field left at its default asks for nothing.

    Attributes
    ----------
    device : {"cpu", "cuda"}
    cc_min, cc_below : (major, minor)
        Compute capability: at least the first, below the second.
    shared_bytes : int, or callable of the problem
        Dynamic plus static shared memory of one block.
    dtypes : frozenset of str, or None
        Element types the path is written for.
    precisions : frozenset of str
        Values of ``Policy.precision`` it honours.
    cooperative, clusters, memory_pools : bool
        Launch features.
    deterministic : bool
        Whether the path gives the same bits every time.
    when : callable or None
        ``when(problem)`` returns why the path does not fit this problem, or ``None``.
    """

    device: Literal["cpu", "cuda"] = "cuda"
    cc_min: tuple[int, int] = (0, 0)
    cc_below: tuple[int, int] = (999, 0)
    shared_bytes: int | Callable[[Any], int] = 0
    dtypes: frozenset[str] | None = None
    precisions: frozenset[str] = frozenset({"native"})
    cooperative: bool = False
    clusters: bool = False
    memory_pools: bool = False
    deterministic: bool = True
    when: Callable[[Any], str | None] | None = None

    def unmet(
        self, problem: Problem, policy: Policy, capability: Capability | None, absent: str | None
    ) -> str | None:
        """Return the first requirement that does not hold, in words, or ``None`` when the path can run.

        ``absent`` says why there is no device; it is used when ``capability`` is ``None``.
        """
        if self.device == "cuda":
            if policy.device == "cpu":
                return 'needs a GPU, and device="cpu" was asked for'
            if capability is None:
                return absent or "needs a GPU, and there is none"
            reason = self._unmet_by_device(problem, capability)
            if reason is not None:
                return reason
            if policy.device == "auto" and not problem.on_device:
                return 'the data is in host memory; device="cuda" copies it to the GPU and back'
        else:
            if policy.device == "cuda":
                return 'runs on the CPU, and device="cuda" was asked for'
            if problem.on_device:
                return "the data is in device memory; copy it to the host first to run on the CPU"
        return self._unmet_by_problem(problem, policy)

    def _unmet_by_device(self, problem: Problem, capability: Capability) -> str | None:
        have = capability.cc
        if have < self.cc_min:
            return f"needs compute capability {_dotted(self.cc_min)} or newer, the device has {_dotted(have)}"
        if have >= self.cc_below:
            return f"is for compute capability below {_dotted(self.cc_below)}, the device has {_dotted(have)}"
        shared = self.shared_bytes(problem) if callable(self.shared_bytes) else self.shared_bytes
        if shared > capability.shared_bytes_optin:
            have_bytes = capability.shared_bytes_optin
            return f"needs {shared} bytes of shared memory a block, the device gives {have_bytes}"
        features = (
            (self.cooperative, capability.cooperative_launch, "cooperative launch"),
            (self.clusters, capability.clusters, "thread block clusters"),
            (self.memory_pools, capability.memory_pools, "stream-ordered memory pools"),
        )
        return next(
            (f"needs {name}, which the device lacks" for need, has, name in features if need and not has),
            None,
        )

    def _unmet_by_problem(self, problem: Problem, policy: Policy) -> str | None:
        if self.dtypes is not None and problem.dtype not in self.dtypes:
            return f"is written for {', '.join(sorted(self.dtypes))}, not for {problem.dtype}"
        if policy.precision not in self.precisions:
            have = ", ".join(sorted(self.precisions))
            return f"works in {have} precision, and {policy.precision!r} was asked for"
        if policy.deterministic and not self.deterministic:
            return "does not give the same bits every time, and a deterministic path was asked for"
        return self.when(problem) if self.when is not None else None


def requires(**needs: Any) -> Callable[[F], F]:
    """Declare what a path needs, beside its code. Keywords are the fields of `Requirement`."""
    if needs.get("dtypes") is not None:
        needs["dtypes"] = frozenset(needs["dtypes"])
    if "precisions" in needs:
        needs["precisions"] = frozenset(needs["precisions"])
    requirement = Requirement(**needs)

    def mark(function: F) -> F:
        function.requirement = requirement  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True)
class Path:
    """One way to run an operation: its name, its function (under `requires`), a line on what it does."""

    name: str
    run: Callable[..., Any]
    summary: str = ""

    @property
    def requirement(self) -> Requirement:
        """What the path needs."""
        found = getattr(self.run, "requirement", None)
        if not isinstance(found, Requirement):
            raise TypeError(f"path {self.name!r}: its function carries no @requires")
        return found


@dataclass(frozen=True)
class Decision:
    """What was decided about one path, and why."""

    path: str
    taken: bool
    reason: str
    summary: str = ""


@dataclass(frozen=True)
class Choice:
    """The path that runs, and the decision about every path of the operation, in order of preference."""

    path: Path
    decisions: tuple[Decision, ...]

    @property
    def reason(self) -> str:
        """Why the chosen path was taken."""
        return next(decision.reason for decision in self.decisions if decision.taken)


def explain(
    paths: Sequence[Path],
    problem: Problem,
    policy: Policy,
    capability: Capability | None,
    absent: str | None = None,
) -> tuple[Decision, ...]:
    """Return the decision about every path; never raises for a path that cannot run.

    Parameters
    ----------
    paths : sequence of Path
        In order of preference.
    problem : Problem
    policy : Policy
    capability : Capability or None
        ``None`` where there is no usable device; ``absent`` then says why.

    Returns
    -------
    tuple of Decision
        One each, in the order of ``paths``; at most one is taken.
    """
    result: list[Decision] = []
    taken: str | None = None
    for path in paths:
        unmet = path.requirement.unmet(problem, policy, capability, absent)
        if unmet is not None:
            verdict, reason = False, unmet
        elif policy.path not in ("auto", path.name):
            verdict, reason = False, f"could run, and path={policy.path!r} was asked for"
        elif taken is not None:
            verdict, reason = False, f"could run, and {taken} comes first"
        else:
            verdict, reason = True, "asked for by name" if policy.path == path.name else "first that can run"
            taken = path.name
        result.append(Decision(path.name, verdict, reason, path.summary))
    return tuple(result)


def choose(
    paths: Sequence[Path],
    problem: Problem,
    policy: Policy,
    capability: Capability | None,
    absent: str | None = None,
) -> Choice:
    """Return the path that runs.

    Parameters
    ----------
    paths, problem, policy, capability, absent
        As `explain`.

    Raises
    ------
    InvalidValueError
        ``policy.path`` names no path of this operation.
    NotSupportedError
        No path can run, or the one asked for cannot; the message names the requirement.
    """
    names = [path.name for path in paths]
    if policy.path != "auto" and policy.path not in names:
        raise InvalidValueError(f'path must be "auto" or one of {", ".join(names)}, got {policy.path!r}')
    decisions = explain(paths, problem, policy, capability, absent)
    for path, decision in zip(paths, decisions, strict=True):
        if decision.taken:
            return Choice(path, decisions)
    if policy.path != "auto":
        reason = next(decision.reason for decision in decisions if decision.path == policy.path)
        raise NotSupportedError(f"path {policy.path!r} cannot run: {reason}")
    if policy.device == "cuda" and capability is None:
        raise NotSupportedError(absent or 'device="cuda" was asked for, and there is no GPU')
    wanted = [
        d for d, p in zip(decisions, paths, strict=True) if policy.device in ("auto", p.requirement.device)
    ]
    raise NotSupportedError("no path can run: " + "; ".join(f"{d.path} {d.reason}" for d in wanted))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
