"""The benchmarks of ``warpfront bench``: what runs, in modules; on which inputs, in ``cases.toml``.

A suite is a module with ``run`` (see `Run`). One that compares contenders on independent inputs needs only a function
from an entry of the list to a `Comparison`; `warpfront.bench.suites.generic` does the rest. A line in `SUITES` and a
table in ``cases.toml`` make it a benchmark.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from warpfront.bench.record import Record
from warpfront.errors import InvalidValueError

__all__ = ["CASES", "SUITES", "Run", "choose", "find", "read_cases"]

CASES = Path(__file__).with_name("cases.toml")

# Benchmark -> what it measures, its table in cases.toml, and its module here.
SUITES: dict[str, tuple[str, str, str]] = {
    "attention_cpu": ("attention beside PyTorch's and NumPy's", "attention_cpu", "attention_cpu"),
    "batched_cpu": ("many tiny systems beside NumPy", "batched_cpu", "batched_cpu"),
    "bfs_cpu": ("breadth-first search beside SciPy, igraph, NetworKit and networkx", "bfs_cpu", "bfs_cpu"),
    "ceilings_cpu": ("what bounds the others: a copy, a matrix product", "ceilings_cpu", "ceilings_cpu"),
    "dense_cpu": ("inverse, solve and determinant beside NumPy and SciPy", "dense_cpu", "dense_cpu"),
    "edges_cpu": ("image edges beside OpenCV's chain", "edges_cpu", "edges_cpu"),
    "lu_cpu": ("LU of general matrices beside SuperLU and PARDISO", "lu", "lu_cpu"),
    "sparse_cpu": (
        "sparse direct solvers: first factorisation, refactorisation, solve",
        "sparse",
        "sparse_cpu",
    ),
    "montecarlo_cpu": (
        "Monte Carlo prices: one step, twelve steps",
        "montecarlo_cpu",
        "montecarlo_cpu",
    ),
    "transpose_cpu": ("transpose beside NumPy's copy", "transpose_cpu", "transpose_cpu"),
}


class Run(Protocol):
    """What a suite's ``run`` takes: rows by name (none: all but the large ones), folder of files, sampling."""

    def __call__(
        self,
        names: list[str],
        *,
        data: Path | None = None,
        rounds: int = 7,
        budget: float = 20.0,
        report: Callable[[str], None] = lambda text: None,
        keep: Callable[[Record], None] = lambda record: None,
    ) -> Record:
        """Run rows and return the record; ``keep`` is given the record so far after every input."""
        ...


def find(name: str) -> tuple[str, Run]:
    """Return a suite's table name and its ``run``; hyphens and underscores are the same.

    Raises
    ------
    InvalidValueError
        There is no such benchmark; the message lists them.
    """
    key = name.replace("-", "_")
    if key not in SUITES:
        raise InvalidValueError(f"no benchmark {name!r}; there are {', '.join(SUITES)}")
    _, table, module = SUITES[key]
    run: Run = import_module(f"warpfront.bench.suites.{module}").run
    return table, run


def read_cases(table: str, path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the listed inputs of one table by name, in their order."""
    with (path or CASES).open("rb") as stream:
        return {entry["name"]: entry for entry in tomllib.load(stream).get(table, [])}


def choose(names: list[str], cases: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the named inputs; without names, all that are not large."""
    unknown = [name for name in names if name not in cases]
    if unknown:
        raise InvalidValueError(f"no row {unknown[0]!r}; allowed are {', '.join(cases)}")
    return [cases[name] for name in names] if names else [c for c in cases.values() if not c.get("large")]
