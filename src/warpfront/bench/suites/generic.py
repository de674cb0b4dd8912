"""Run a benchmark whose rows are independent: each entry of the list gives its contenders, timed in turn."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from warpfront.bench.case import Case
from warpfront.bench.collect import cpu_record
from warpfront.bench.record import Measurement, Record, Row, absent, measurement
from warpfront.bench.suites import choose, read_cases
from warpfront.bench.timing import time_round_robin

__all__ = ["Comparison", "installed", "suite"]


@dataclass(frozen=True)
class Comparison:
    """One row of a record before it is timed.

    Attributes
    ----------
    operation, shapes, dtype, distribution, seed
        As in `warpfront.bench.record.Row`.
    ours : list of str
        Contenders that are this package's.
    cases : dict
        Name -> `Case`.
    packages : dict
        Contender -> distribution, for versions; those whose distribution is absent need no case.
    reference : str or None
        A contender that is a ceiling.
    """

    operation: str
    shapes: dict[str, int]
    dtype: str
    distribution: str
    ours: list[str]
    cases: dict[str, Case]
    seed: int | None = None
    packages: dict[str, str] = field(default_factory=dict)
    reference: str | None = None


def installed(package: str) -> str | None:
    """Return the version of a distribution, or None."""
    if package == "warpfront":
        import warpfront as ours

        return str(ours.__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def suite(
    name: str, table: str, compare: Callable[[dict[str, Any]], list[Comparison]]
) -> Callable[..., Record]:
    """Return the ``run`` of a CPU benchmark (see `warpfront.bench.suites.Run`).

    Parameters
    ----------
    name, table : str
        Of the record; of the list in ``cases.toml``.
    compare : callable
        From an entry of the list to its comparisons.
    """

    def run(
        names: list[str],
        *,
        data: Path | None = None,
        rounds: int = 7,
        budget: float = 20.0,
        report: Callable[[str], None] = lambda text: None,
        keep: Callable[[Record], None] = lambda record: None,
    ) -> Record:
        """Run rows and return the record."""
        entries = choose(names, read_cases(table))
        rows: list[Row] = []
        options = {"rounds": rounds, "budget_seconds": budget, "rows": [entry["name"] for entry in entries]}
        packages: set[str] = set()
        for entry in entries:
            report(f"{name}: {entry['name']}")
            for one in compare(entry):
                rows.append(_row(entry["name"], one, rounds, budget))
                packages |= set(one.packages.values()) - {"warpfront"}
            keep(cpu_record(name, rows, options, packages=tuple(sorted(packages))))
            gc.collect()
        return cpu_record(name, rows, options, packages=tuple(sorted(packages)))

    return run


def _row(case: str, one: Comparison, rounds: int, budget: float) -> Row:
    timings = time_round_robin(one.cases, rounds=rounds, budget=budget)
    found: dict[str, Measurement] = {
        name: measurement(timings[name], one.cases[name], installed(one.packages.get(name, "warpfront")))
        for name in one.cases
    }
    found |= {name: absent(package) for name, package in one.packages.items() if name not in one.cases}
    return Row(
        case, one.operation, one.shapes, one.dtype, one.distribution, one.seed, one.ours, found, one.reference
    )
