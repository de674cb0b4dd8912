"""Sparse direct solvers on the CPU: first factorisation, refactorisation and solve, beside the peers.

Each row of ``cases.toml`` gives three rows of the record, one for each operation; all contenders of a row run
in turn in one process. What counts as an answer: a normwise backward error of at most 1e-8 and, where the
contender tells an inertia and it is known, the right one; of ours refined, also 1e-12 componentwise.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.collect import cpu_record
from warpfront.bench.record import Measurement, Record, Row, absent, measurement
from warpfront.bench.suites import choose, read_cases
from warpfront.bench.suites.sparse_inputs import Problem, build
from warpfront.bench.suites.sparse_peers import LU_PEERS, OURS, PEERS, Contender, Make, installed
from warpfront.bench.timing import time_round_robin

NAME = "sparse_cpu"
LIMIT, COMPONENT_LIMIT = 1e-8, 1e-12
OPERATIONS = ("first", "refactor", "solve")
Report = Callable[[str], None]


def run(
    names: list[str],
    *,
    data: Path | None = None,
    rounds: int = 7,
    budget: float = 20.0,
    report: Report = lambda text: None,
    keep: Callable[[Record], None] = lambda record: None,
) -> Record:
    """Run rows and return the record.

    Parameters
    ----------
    names : list of str
        Rows of ``cases.toml``; empty: all that are not large.
    data : path, optional
        Folder of the matrix files.
    rounds, budget : int, float
        See `time_round_robin`.
    report : callable
        Told what begins.
    keep : callable
        Given the record so far after every input.
    """
    return run_suite(NAME, "sparse", names, data, rounds, budget, report, keep)


def run_suite(
    suite: str,
    table: str,
    names: list[str],
    data: Path | None,
    rounds: int,
    budget: float,
    report: Report,
    keep: Callable[[Record], None],
) -> Record:
    """Run rows of one table of ``cases.toml`` and return the record of that suite."""
    entries = choose(names, read_cases(table))
    rows: list[Row] = []
    for entry in entries:
        report(f"{entry['name']}: making the matrix")
        problem = build(entry, data)
        rows += measure(problem, rounds, budget, report)
        record = _record(
            suite, rows, {"rounds": rounds, "budget_seconds": budget, "rows": [e["name"] for e in entries]}
        )
        keep(record)
        gc.collect()
    return record


def _record(suite: str, rows: list[Row], options: dict[str, Any]) -> Record:
    return cpu_record(suite, rows, options, packages=tuple(package for package, _ in PEERS.values()))


def measure(problem: Problem, rounds: int, budget: float, report: Report = lambda text: None) -> list[Row]:
    """Time each contender's operations on one problem; one that is not installed is named in each row."""
    everyone = {**OURS, **(LU_PEERS if problem.structure == "G" else PEERS)}
    present = {name: _Held(problem, make) for name, (package, make) in everyone.items() if installed(package)}
    rows = []
    try:
        for operation in OPERATIONS:
            report(f"{problem.name}: {operation}")
            # The second of ours differs in the solve alone.
            names = [name for name in present if operation == "solve" or name in PEERS or name == "warpfront"]
            cases = {name: _case(present[name], operation) for name in names}
            timings = time_round_robin(cases, rounds=rounds, budget=budget)
            found: dict[str, Measurement] = {}
            for name in names:
                one, case = present[name].contender, cases[name]
                if one is not None:
                    case = replace(case, algorithm=one.algorithm)
                memory = one.workspace_bytes() if one is not None and one.factored else None
                found[name] = measurement(timings[name], case, installed(everyone[name][0]), memory)
            found |= {name: absent(everyone[name][0]) for name in everyone if name not in present}
            rows.append(_row(problem, operation, found))
    finally:
        for held in present.values():
            if held.contender is not None and held.contender.factored:
                held.contender.forget()
    return rows


def _row(problem: Problem, operation: str, found: dict[str, Measurement]) -> Row:
    shapes = {"n": int(problem.matrix.shape[0]), "nnz": int(problem.matrix.nnz), "nrhs": 1}
    ours = [name for name in OURS if name in found]
    return Row(problem.name, operation, shapes, "float64", problem.distribution, problem.seed, ours, found)


class _Held:
    """A contender, made when it is first needed so that a failure to make it is its own."""

    def __init__(self, problem: Problem, make: Make) -> None:
        self.problem, self.make = problem, make
        self.contender: Contender | None = None

    def get(self, factored: bool) -> Contender:
        if self.contender is None:
            self.contender = self.make(self.problem)
        if factored and not self.contender.factored:
            self.contender.factor_anew()
        return self.contender


def _case(held: _Held, operation: str) -> Case:
    if operation == "first":
        forget: Callable[[Contender], None] = lambda one: one.forget()  # noqa: E731
        return Case(lambda: held.get(factored=False), Contender.factor_anew, _judged, reset=forget)
    run = Contender.factor_again if operation == "refactor" else _solve
    return Case(lambda: held.get(factored=True), run, _judged)


def _solve(one: Contender) -> Any:
    return one.solve()


def _judged(one: Contender, output: Any) -> Verdict:
    """Judge a solution, or the factor that ``output`` None stands for by a solution with it."""
    problem = one.problem
    x = one.solve() if output is None else output
    norm, component = backward_errors(problem.matrix, x, problem.b)
    inertia = one.inertia()
    values = {"normwise": norm, "componentwise": component, "inertia": inertia and list(inertia)}
    wrong = []
    if not norm <= LIMIT:
        wrong.append(f"normwise backward error {norm:.1e}")
    if one.componentwise and not component <= COMPONENT_LIMIT:
        wrong.append(f"componentwise backward error {component:.1e}")
    if inertia and problem.inertia and tuple(inertia) != problem.inertia:
        wrong.append(f"inertia {tuple(inertia)} is not {problem.inertia}")
    return Verdict(not wrong, norm, LIMIT, "; ".join(wrong), values)


def backward_errors(matrix: Any, x: Any, b: Any) -> tuple[float, float]:
    """Return normwise (infinity norms) and componentwise backward error, by SciPy's product."""
    residual, size = np.abs(b - matrix @ x), abs(matrix) @ np.abs(x) + np.abs(b)
    if not np.all(np.isfinite(residual)):
        return float("inf"), float("inf")
    scale = abs(matrix).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
    quotient = np.divide(residual, size, out=np.zeros_like(residual), where=size > 0)
    return float(residual.max() / scale), float(quotient.max())
