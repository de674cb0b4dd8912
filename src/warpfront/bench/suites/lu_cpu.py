"""LU of general matrices on the CPU beside SuperLU and PARDISO: the rows ``lu`` of ``cases.toml``.

Measured as in `sparse_cpu`. SciPy offers no refactorisation on a kept analysis: SuperLU's is a whole new ``splu``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from warpfront.bench.record import Record
from warpfront.bench.suites.sparse_cpu import Report, run_suite

NAME = "lu_cpu"


def run(
    names: list[str],
    *,
    data: Path | None = None,
    rounds: int = 7,
    budget: float = 20.0,
    report: Report = lambda text: None,
    keep: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Run rows and return the record; see `sparse_cpu.run`."""
    return run_suite(NAME, "lu", names, data, rounds, budget, report, keep)
