"""Timing on the CPU: first call apart, warm-up, contenders in turn, every sample kept, every output judged.

Contenders that are compared are timed round-robin in one process, so that a slow minute of the machine
falls on all of them. The order is shuffled each round, by a fixed seed: nobody always runs behind the same
neighbour. OpenMP's threads spin for a while after their work is done (0.2 s by default), so a sample begins
only when the process has come to rest. Where a call is short, a sample holds several. Compilation inside a
sample is taken out and counted.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import median
from time import monotonic, process_time, sleep
from typing import Any

from warpfront.backend.cpu import Clock
from warpfront.bench import turns
from warpfront.bench.case import Case, NotOffered, Verdict
from warpfront.errors import InvalidValueError

__all__ = ["FAILED", "NOT_OFFERED", "OK", "WRONG", "Timing", "percentile", "time_round_robin"]

OK, WRONG, FAILED, NOT_OFFERED = "ok", "wrong", "failed", "not offered"


@dataclass(frozen=True)
class Timing:
    """Samples of one contender.

    Attributes
    ----------
    status : str
        ``ok``; ``wrong``: an output did not verify (the times are kept); ``failed``: it raised;
        ``not offered``: the contender has no such operation.
    detail : str
        Why, unless ok.
    seconds : tuple of float
        Wall time of one call, per sample, in the order taken, without compilation.
    cpu_seconds : tuple of float
        Processor time of one call over all threads of the process, per sample.
    calls_per_sample, warmup : int
        Calls timed together in a sample; untimed calls before the samples, the first call not counted.
    first_call_seconds, first_call_jit_seconds : float or None
        First call: wall time without compilation, and the compilation.
    jit_seconds : float
        Compilation that happened inside samples; 0 unless the warm-up missed a path.
    verdict : Verdict or None
        Of the first output that did not verify, else of the last one timed.
    """

    status: str
    detail: str = ""
    seconds: tuple[float, ...] = ()
    cpu_seconds: tuple[float, ...] = ()
    calls_per_sample: int = 0
    warmup: int = 0
    first_call_seconds: float | None = None
    first_call_jit_seconds: float | None = None
    jit_seconds: float = 0.0
    verdict: Verdict | None = None

    @property
    def median(self) -> float | None:
        """Median of the samples, ``None`` without any."""
        return median(self.seconds) if self.seconds else None

    @property
    def p95(self) -> float | None:
        """95th percentile of the samples."""
        return percentile(self.seconds, 95) if self.seconds else None

    @property
    def minimum(self) -> float | None:
        """Least of the samples."""
        return min(self.seconds, default=None)


def percentile(samples: tuple[float, ...], percent: float) -> float:
    """Return a percentile by linear interpolation between the two nearest ranks."""
    ordered = sorted(samples)
    position = percent / 100 * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def settle(longest: float = 1.0) -> None:
    """Wait until the other threads of this process rest, at most ``longest`` seconds."""
    end = monotonic() + longest
    while monotonic() < end:
        before = process_time()
        sleep(0.005)
        if process_time() - before < 0.001:
            return


@dataclass
class _Contender:
    case: Case
    state: Any = None
    made: bool = False
    status: str = OK
    detail: str = ""
    verdict: Verdict | None = None
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    calls: int = 1
    first: Clock | None = None
    first_cpu: float = 0.0
    jit: float = 0.0
    output: Any = None
    warmup: int = 0

    def attempt(self, step: Any) -> None:
        """Run a step; an exception ends this contender, not the comparison."""
        try:
            step()
        except NotOffered as reason:
            self.status, self.detail = NOT_OFFERED, str(reason)
        except Exception as error:
            # A contender may raise anything; it is reported, never dropped.
            self.status, self.detail = FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]

    @property
    def alive(self) -> bool:
        return self.status in (OK, WRONG)

    @property
    def spent(self) -> float:
        return sum(self.seconds) * self.calls

    def judge(self) -> None:
        verdict = self.case.verify(self.state, self.output)
        if self.status == OK:
            self.verdict = verdict
            if not verdict.ok:
                self.status, self.detail = WRONG, verdict.detail

    def begin(self) -> None:
        self.state = self.case.make()
        self.made = True
        first, cpu = Clock(), process_time()
        with first:
            self.output = self.case.run(self.state)
        self.first, self.first_cpu = first, process_time() - cpu
        self.judge()

    def keep_first(self) -> None:
        """Take the first call as the only sample."""
        assert self.first is not None
        self.seconds.append(self.first.seconds)
        self.cpu.append(self.first_cpu)

    def warm(self, warmup: int, shortest: float) -> None:
        clock = self.first
        assert clock is not None
        for _ in range(warmup):
            self.reset()
            clock = Clock()
            with clock:
                self.output = self.case.run(self.state)
            self.warmup += 1
        if self.case.reset is None:
            self.calls = max(1, min(10_000, round(shortest / max(clock.seconds, 1e-9))))

    def reset(self) -> None:
        if self.case.reset is not None:
            self.output = None
            self.case.reset(self.state)

    def sample(self) -> None:
        self.reset()
        state, run = self.state, self.case.run
        clock, cpu = Clock(), process_time()
        with clock:
            for _ in range(self.calls):
                self.output = run(state)
        self.cpu.append((process_time() - cpu) / self.calls)
        self.seconds.append(clock.seconds / self.calls)
        self.jit += clock.jit_seconds

    def release(self) -> None:
        if self.made and self.case.release is not None:
            self.case.release(self.state)
        self.state = self.output = None

    def result(self) -> Timing:
        first = self.first
        return Timing(
            status=self.status,
            detail=self.detail,
            seconds=tuple(self.seconds),
            cpu_seconds=tuple(self.cpu),
            calls_per_sample=self.calls if self.seconds else 0,
            warmup=self.warmup,
            first_call_seconds=None if first is None else first.seconds,
            first_call_jit_seconds=None if first is None else first.jit_seconds,
            jit_seconds=self.jit,
            verdict=self.verdict,
        )


def time_round_robin(
    cases: Mapping[str, Case],
    *,
    rounds: int = 7,
    warmup: int = 1,
    shortest_sample: float = 1e-3,
    budget: float | None = None,
) -> dict[str, Timing]:
    """Time contenders against one another.

    Parameters
    ----------
    cases : mapping of name to Case
        The contenders; the order is that of the first round.
    rounds : int
        Samples of each contender.
    warmup : int
        Untimed calls after the first.
    shortest_sample : float
        Seconds: calls faster than this are timed several together.
    budget : float, optional
        Seconds of calls after which a contender takes no more samples. One whose first call alone took longer
        is not called again: that call, without its compilation, is the sample, and ``warmup`` is 0.

    Returns
    -------
    dict
        Name -> `Timing`, for every contender given. The first output and the last timed one are verified.

    Raises
    ------
    InvalidValueError
        No contenders, or ``rounds`` or ``warmup`` out of range.
    """
    if not cases:
        raise InvalidValueError("nothing to time")
    if rounds < 1 or warmup < 0:
        raise InvalidValueError(f"rounds is {rounds} and warmup {warmup}; allowed are >= 1 and >= 0")
    limit = float("inf") if budget is None else budget
    entrants = {name: _Contender(case) for name, case in cases.items()}
    try:
        for one in entrants.values():
            one.attempt(one.begin)
            if one.alive and one.first is not None:
                if one.first.seconds > limit:
                    one.keep_first()
                else:
                    one.attempt(partial(one.warm, warmup, shortest_sample))
        _samples(list(entrants.values()), rounds, limit)
        for one in entrants.values():
            if one.alive:
                one.attempt(one.judge)
        return {name: one.result() for name, one in entrants.items()}
    finally:
        for one in entrants.values():
            one.release()


def _samples(contenders: list[_Contender], rounds: int, limit: float) -> None:
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        order, shuffle = list(contenders), Random(0).shuffle
        for _ in range(rounds):
            waiting = [one for one in order if one.alive and (not one.seconds or one.spent < limit)]
            if not waiting:
                break
            for one in waiting:
                settle()
                one.attempt(one.sample)
                turns.change()
            shuffle(order)
            gc.collect()
    finally:
        if collecting:
            gc.enable()
