"""Is the new record slower than the base? `gate` answers row by row, and admits when it cannot tell.

The rule, for the median m and the 95th percentile p of two sets of samples of the same call:

- noise floor n = max(3%, 3 x A/A spread, 1.5 us / m of the base). The A/A spread is how far the *same* code was from
  itself: the medians of parts of one set (halves in order, samples in turn, or the processes it was taken in)
  relative to its median, the larger of base and new;
- pairs: where samples of both were taken in turn (``values["pairing"]``), a sample's ratio to its partner is free of
  what the machine did to both. The ratio is then the median of those, its interval is theirs, and the A/A spread is
  half of what parts of them are apart (halves, or the processes' medians): the deviation from 1 that the median of all
  has by chance;
- slow: m and p of the new one both exceed 1 + n times the base's, and the 95% intervals of the medians (by order
  statistics, which assume no distribution) do not overlap;
- ambiguous: m exceeds 1 + n, and one of the other two does not agree, or there are fewer than five samples, or a peer
  of the same row moved along, which tells of the machine; or m exceeds 1.05, the intervals do not overlap, and only a
  noise floor above that hides it: the machine was too loud to say;
- faster: m is below 1 / (1 + n) and the intervals do not overlap; same: anything else;
- incomparable: machine or software differ (`warpfront.bench.fingerprint.COMPARED`), or the row is another problem.
  That is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from warpfront.bench.fingerprint import differences
from warpfront.bench.record import Measurement, Record, Row
from warpfront.bench.timing import OK, WRONG, percentile

__all__ = [
    "AMBIGUOUS",
    "EXIT",
    "FASTER",
    "INCOMPARABLE",
    "SAME",
    "SCHEMA",
    "SLOW",
    "Finding",
    "Outcome",
    "gate",
    "judge",
    "median_interval",
    "spread",
]

SCHEMA = "warpfront.gate/1"
SAME, FASTER, SLOW, AMBIGUOUS, INCOMPARABLE = "same", "faster", "slow", "ambiguous", "incomparable"
EXIT = {SAME: 0, FASTER: 0, SLOW: 1, INCOMPARABLE: 3, AMBIGUOUS: 4}
LEAST, SPREADS, RESOLUTION = 0.03, 3.0, 1.5e-6
FEWEST, HIDDEN = 5, 0.05


@dataclass(frozen=True)
class Finding:
    """One row's verdict.

    Attributes
    ----------
    case, operation, contender : str
        The row, and which of ours.
    verdict : str
        ``same``, ``faster``, ``slow``, ``ambiguous`` or ``incomparable``.
    reason : str
        In words; empty for ``same``.
    ratio, p95_ratio : float or None
        New over base, of the medians and of the 95th percentiles.
    floor : float or None
        Noise floor n; 0.03 is 3%.
    base_seconds, new_seconds : float or None
        The medians.
    base_interval, new_interval : tuple of float or None
        95% intervals of the medians, seconds.
    """

    case: str
    operation: str
    contender: str
    verdict: str
    reason: str = ""
    ratio: float | None = None
    p95_ratio: float | None = None
    floor: float | None = None
    base_seconds: float | None = None
    new_seconds: float | None = None
    base_interval: tuple[float, float] | None = None
    new_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Outcome:
    """The verdict on a record: ``slow`` before ``incomparable`` before ``ambiguous`` before the rest."""

    verdict: str
    rows: list[Finding]
    reasons: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 same or faster, 1 slow, 3 incomparable, 4 ambiguous."""
        return EXIT[self.verdict]

    def plain(self) -> dict[str, Any]:
        """Return the outcome as the JSON of ``warpfront gate --json`` has it."""
        rows = [asdict(row) for row in self.rows]
        return {"schema": SCHEMA, "verdict": self.verdict, "exit_code": self.exit_code, "reasons": self.reasons,
                "rows": rows}  # fmt: skip


def gate(base: Record, new: Record) -> Outcome:
    """Compare each of ours in each row of ``base`` with the same in ``new``.

    Rows that only ``new`` has are no concern of the gate. One that is gone, or whose output is no longer right, is.
    """
    reasons = [f"{name} differs" for name in differences(base.fingerprint, new.fingerprint)]
    for name in ("name", "device", "compile_options"):
        if getattr(base, name) != getattr(new, name):
            reasons.append(f"{name} is {getattr(base, name)!r} and {getattr(new, name)!r}")
    if reasons:
        return Outcome(INCOMPARABLE, [], reasons)
    found: list[Finding] = []
    latest = {(row.case, row.operation, row.dtype): row for row in new.rows}
    for row in base.rows:
        other = latest.get((row.case, row.operation, row.dtype))
        for name in row.ours:
            found.append(_row(row, other, name))
    order = (SLOW, INCOMPARABLE, AMBIGUOUS)
    verdict = next((v for v in order if any(one.verdict == v for one in found)), SAME)
    if verdict == SAME and not found:
        return Outcome(INCOMPARABLE, [], ["the base has no row with a measurement of ours"])
    if verdict == SAME and all(one.verdict == FASTER for one in found):
        verdict = FASTER
    return Outcome(verdict, found)


def _row(base: Row, new: Row | None, name: str) -> Finding:
    def finding(verdict: str, reason: str) -> Finding:
        return Finding(base.case, base.operation, name, verdict, reason)

    if new is None:
        return finding(INCOMPARABLE, "the new record has no such row")
    for part in ("shapes", "distribution", "seed"):
        if getattr(base, part) != getattr(new, part):
            return finding(INCOMPARABLE, f"{part} is {getattr(base, part)} and {getattr(new, part)}")
    before, after = base.contenders[name], new.contenders.get(name)
    if not before.timed or before.status != OK:
        return finding(INCOMPARABLE, f"the base did not measure it: {before.status} {before.detail}".strip())
    if after is None:
        return finding(INCOMPARABLE, "the new record did not run it")
    if after.status != OK:
        return finding(SLOW, f"no right output any more: {after.status} {after.detail}".strip())
    if before.clock != after.clock:
        return finding(INCOMPARABLE, f"the clock is {before.clock} and {after.clock}")
    return judge(before, after, where=(base.case, base.operation, name), moved=_moved(base, new))


def judge(
    base: Measurement,
    new: Measurement,
    *,
    where: tuple[str, str, str] = ("", "", ""),
    moved: tuple[str, float] | None = None,
) -> Finding:
    """Compare two measurements of one call.

    Parameters
    ----------
    base, new : Measurement
        With samples.
    where : (case, operation, contender)
        For the finding.
    moved : (name, ratio), optional
        A peer that became slower in the same row, beyond its own noise.
    """
    first, second = tuple(base.seconds), tuple(new.seconds)
    before, after = median(first), median(second)
    left, right = median_interval(first), median_interval(second)
    ratios = _pairs(base, new)
    if ratios is None:
        floor = _floor(base, new)
        ratio, above, below = after / before, right[0] > left[1], right[1] < left[0]
    else:
        # Halves differ by twice the standard deviation of the whole's median, and that is how far it is from 1.
        apart = max(_apart(ratios), _processes_apart(base, new)) / 2
        floor = max(LEAST, SPREADS * apart, RESOLUTION / before)
        ratio, (low, high) = median(ratios), median_interval(ratios)
        above, below = low > 1, high < 1
    tail = percentile(second, 95) / percentile(first, 95)
    verdict, reason = SAME, ""
    if ratio > 1 + floor:
        doubts = []
        if tail <= 1 + floor:
            doubts.append(f"P95 only {_times(tail)}")
        if not above:
            doubts.append("the intervals of the medians overlap")
        if min(len(first), len(second)) < FEWEST:
            doubts.append(f"fewer than {FEWEST} samples")
        if moved is not None and moved[1] - 1 > (ratio - 1) / 2:
            doubts.append(f"{moved[0]} became {_times(moved[1])} in the same run: the machine")
        verdict, reason = (AMBIGUOUS, "; ".join(doubts)) if doubts else (SLOW, f"{_times(ratio)} the time")
    elif ratio > 1 + HIDDEN and (ratio - 1) * before > RESOLUTION and above:
        verdict, reason = AMBIGUOUS, f"{_times(ratio)} the time, within a noise floor of {100 * floor:.0f}%"
    elif ratio < 1 / (1 + floor) and below:
        verdict, reason = FASTER, f"{_times(ratio)} the time"
    return Finding(*where, verdict, reason, ratio, tail, floor, before, after, left, right)


def _pairs(base: Measurement, new: Measurement) -> list[float] | None:
    """Return new over base of each pair of samples, or ``None`` where they were not taken in turn."""
    token = base.values.get("pairing")
    if token is None or token != new.values.get("pairing") or len(base.seconds) != len(new.seconds):
        return None
    return [after / before for before, after in zip(base.seconds, new.seconds, strict=True)]


def _processes_apart(base: Measurement, new: Measurement) -> float:
    """Return how far the ratios of the processes' medians are from each other; 0 for one process."""
    before, after = base.values.get("processes"), new.values.get("processes")
    if not isinstance(before, list) or not isinstance(after, list):
        return 0.0
    ratios = [float(late) / float(early) for early, late in zip(before, after, strict=True)]
    return (max(ratios) - min(ratios)) / median(ratios) if ratios else 0.0


def _floor(base: Measurement, new: Measurement) -> float:
    return max(LEAST, SPREADS * max(spread(base), spread(new)), RESOLUTION / median(base.seconds))


def _moved(base: Row, new: Row) -> tuple[str, float] | None:
    """Return the peer that slowed down the most, of those beyond their own noise floor."""
    found = {}
    for name, before in base.contenders.items():
        after = new.contenders.get(name)
        # A peer of another version has a reason of its own to be slower.
        if name in base.ours or after is None or not before.timed or not after.timed:
            continue
        if before.version != after.version or WRONG in (before.status, after.status):
            continue
        ratio = median(after.seconds) / median(before.seconds)
        if ratio > 1 + _floor(before, after):
            found[name] = ratio
    return max(found.items(), key=lambda pair: pair[1]) if found else None


def spread(found: Measurement) -> float:
    """Return how far parts of one measurement are from each other, relative to its median."""
    runs = found.values.get("processes")
    if not isinstance(runs, list) or len(runs) < 2:
        return _apart(found.seconds)
    medians = [float(value) for value in runs]
    return max(_apart(found.seconds), (max(medians) - min(medians)) / median(found.seconds))


def _apart(samples: Sequence[float]) -> float:
    """Return how far halves of a set are from each other, in order and in turn, relative to its median."""
    half = len(samples) // 2
    if not half:
        return 0.0
    parts = [(samples[:half], samples[-half:]), (samples[::2], samples[1::2])]
    return max(abs(median(one) - median(other)) for one, other in parts) / median(samples)


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return an interval that holds the median with at least ``confidence``, or all samples when they are few.

    The k-th smallest and k-th largest of n samples enclose the median unless fewer than k lie on one side of it,
    which has the binomial probability of fewer than k heads in n throws, twice (David and Nagaraja, Order
    Statistics, 7.1).
    """
    ordered = sorted(samples)
    n, tail, k = len(ordered), 0.0, 0
    while k < n // 2:
        tail += math.comb(n, k) / 2.0**n
        if 2 * tail > 1 - confidence:
            break
        k += 1
    place = max(k - 1, 0)
    return ordered[place], ordered[n - 1 - place]


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x"
