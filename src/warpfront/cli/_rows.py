"""The rows of the table that `solve` and `analyze` show, as text, for the terminal and for the page alike."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from warpfront.cli._machine import peak_memory_bytes
from warpfront.cli._run import Outcome

__all__ = ["Section", "amount", "duration", "phase_times", "print_sections", "sections"]


@dataclass(frozen=True)
class Section:
    """Rows under one heading: (label, value) pairs; a value may have several lines."""

    title: str
    rows: tuple[tuple[str, str], ...]


def amount(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def duration(seconds: float) -> str:
    """Seconds with a unit, three digits."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def sections(outcome: Outcome) -> list[Section]:
    """Everything known about a run, in the order of its phases."""
    report = outcome.solver.report
    found = [_matrix(outcome), _analysis(outcome)]
    if report.factor is not None:
        found.append(_factor(report.factor))
    if report.solve is not None:
        found.append(_solution(outcome))
    found += [_time(outcome), _memory(outcome)]
    return [section for section in found if section.rows]


def _matrix(outcome: Outcome) -> Section:
    record = outcome.solver.report.analysis
    if record is None:
        return Section("Matrix", (("file", str(outcome.request.matrix)),))
    chosen = "chosen" if outcome.request.structure == "auto" else "asked for"
    why = f": {record.structure_reason}" if chosen == "chosen" else ""
    return Section(
        "Matrix",
        (
            ("file", str(outcome.request.matrix)),
            ("n", f"{record.n:,}"),
            ("nnz", f"{record.nnz:,}"),
            ("structure", f"{record.structure} ({chosen}{why})"),
        ),
    )


def _analysis(outcome: Outcome) -> Section:
    record = outcome.solver.report.analysis
    if record is None:
        return Section("Analysis", ())
    symbolic = outcome.solver._symbolic
    candidates = [
        f"{c.method}: nnz(L) {c.nnz_factor:,}, {c.flops:.3g} flops, {c.depth} levels, {duration(c.seconds)}"
        for c in record.candidates
    ]
    rows = [
        ("ordering", record.ordering),
        ("why", record.ordering_reason),
        ("candidates", "\n".join(candidates) or "none"),
        (
            "time",
            ", ".join(f"{step} {duration(seconds)}" for step, seconds in record.steps) or "not measured",
        ),
        *_reordering(record, symbolic.pattern.nnz),
        ("flops", f"{record.flops:.3g}"),
        ("fronts", f"{record.n_supernodes:,}, largest {record.max_front:,} rows, {record.tree_depth} levels"),
    ]
    return Section("Analysis", tuple(rows))


def _reordering(record: Any, stored: int) -> list[tuple[str, str]]:
    """What was done to rows besides the ordering, and the fill."""
    fill = f"{record.nnz_factor:,} ({_ratio(record.nnz_factor, stored)}"
    if record.structure != "G":
        return [("zero-diagonal pairs", f"{record.n_pairs:,}"), ("fill: nnz(L)", f"{fill} nnz(tril A))")]
    return [
        ("matching", record.matching),
        ("diagonal blocks", f"{record.n_blocks:,}"),
        ("structural rank", f"{record.structural_rank:,} of {record.n:,}"),
        ("fill: nnz(L + U)", f"{fill} nnz(A))"),
    ]


def _ratio(above: int, below: int) -> str:
    return f"{above / below:.2f} x" if below else "no"


def _factor(record: Any) -> Section:
    pivots = record.pivots
    certain = (
        "" if record.inertia_certain else " (not certain: pivots were perturbed or the factorisation stopped)"
    )
    rows = [
        ("method", record.method),
        ("scaling", record.scaling),
        ("status", record.status.name.lower() + (f", column {record.column}" if record.column >= 0 else "")),
        (
            "pivots",
            f"{pivots.one_by_one:,} of 1x1, {pivots.two_by_two:,} of 2x2; {pivots.perturbed:,} perturbed, "
            f"{pivots.delayed:,} delayed, {pivots.zero:,} zero",
        ),
        (
            "nnz(L + U), delayed included" if record.method == "LU" else "nnz(L), delayed included",
            f"{record.nnz_factor:,}",
        ),
    ]
    if record.inertia is not None:  # LU and complex symmetric matrices have none
        positive, negative, zero = (f"{count:,}" for count in record.inertia)
        rows.insert(3, ("inertia", f"{positive} positive, {negative} negative, {zero} zero{certain}"))
    return Section("Factorisation", tuple(rows))


def _solution(outcome: Outcome) -> Section:
    record = outcome.solver.report.solve
    known = outcome.request.rhs is None
    columns = "1 column" if record.n_rhs == 1 else f"{record.n_rhs:,} columns"
    rows = [
        (
            "right-hand side",
            "made here: b = A x with x = ones" if known else f"{outcome.request.rhs}, {columns}",
        )
    ]
    rows.append(("refinement steps", str(record.refinement_steps)))
    rows.append(("backward error, normwise", _error(outcome.backward_error)))
    rows.append(("backward error, componentwise", _error(outcome.componentwise_error)))
    if outcome.condition is not None:
        rows.append(("condition number (estimate)", f"{outcome.condition:.1e}"))
    if outcome.forward_error is not None:
        rows.append(("forward error: max |x - 1|", _error(outcome.forward_error)))
    return Section("Solution", tuple(rows))


def _error(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1e}"


def phase_times(outcome: Outcome) -> dict[str, tuple[float, float]]:
    """Work and compilation of each phase in seconds; together they are the wall time of the command."""
    report = outcome.solver.report if outcome.solver is not None else None
    compiled = {
        "analysing": getattr(report, "analysis", None),
        "factorising": getattr(report, "factor", None),
        "solving": getattr(report, "solve", None),
    }
    times = {}
    for name, wall in outcome.seconds.items():
        jit = min(wall, getattr(compiled.get(name), "jit_seconds", 0.0))
        times[name] = (wall - jit, jit)
    return times


def _time(outcome: Outcome) -> Section:
    times = phase_times(outcome)
    rows = [(name, duration(work)) for name, (work, _) in times.items()]
    jit = sum(compiling for _, compiling in times.values())
    rows.append(("compiling kernels", duration(jit) if jit else "none: kernels were in the cache"))
    rows.append(("in all", duration(outcome.wall_seconds)))
    return Section("Time", tuple(rows))


def _memory(outcome: Outcome) -> Section:
    rows = []
    report = outcome.solver.report
    if report.factor is not None:
        rows.append(("factor", amount(report.factor.factor_bytes)))
        rows.append(("factorisation, all buffers", amount(report.factor.peak_bytes)))
    elif report.analysis is not None:
        estimates = outcome.solver.memory_estimates
        rows += [(f"predicted {name.replace('_', ' ')}", amount(size)) for name, size in estimates.items()]
    peak = peak_memory_bytes()
    rows.append(
        ("process, largest resident size", "not known on this system" if peak is None else amount(peak))
    )
    return Section("Memory", tuple(rows))


def print_sections(found: list[Section]) -> None:
    """Print sections as one table of two columns: fitted to a terminal, with unbroken lines anywhere else."""
    if not sys.stdout.isatty():
        width = max((len(label) for section in found for label, _ in section.rows), default=0)
        for section in found:
            lines = [section.title]
            for label, value in section.rows:
                first, *more = value.splitlines() or [""]
                lines += [f"  {label:{width}}  {first}", *(f"  {'':{width}}  {line}" for line in more)]
            sys.stdout.write("\n".join(lines) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for section in found:
        table.add_row(Text(section.title, style="bold"), "")
        for label, value in section.rows:
            table.add_row(Text("  " + label), Text(value))
    Console(highlight=False).print(table)
