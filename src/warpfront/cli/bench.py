"""``warpfront bench``: measure ours beside the peers, or this source beside another revision of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["bench"]


def bench(
    name: Annotated[
        str | None, typer.Argument(help="Benchmark; without one they are listed.", show_default=False)
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows to run, comma-separated; may be repeated. Default: all but the large ones.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Samples of each contender. Default: 7; --against: 21."),
    ] = None,
    budget: Annotated[
        float, typer.Option(min=0.0, help="Seconds of calls after which a contender takes no more samples.")
    ] = 20.0,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the matrix files (it has kkt/).", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the record, a .json.", show_default=False)
    ] = None,
    list_rows: Annotated[bool, typer.Option("--list", help="List the rows and exit.")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REV",
            help="Measure this source and a git revision of it in turn, and give the gate's verdict.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=99, help="Processes of each side of --against.")] = 3,
) -> None:
    """Measure beside the peers, in one process, every output verified.

    Peers are in the extra named bench; one that is not installed is named. With --against the exit code is the gate's:
    0 same or faster, 1 slow, 3 incomparable, 4 ambiguous.
    """
    from rich.console import Console

    from warpfront.bench import suites, turns

    console, notes = Console(), Console(stderr=True)
    _check(name, output, rows, against, data)
    if name is None or list_rows:
        for line in _listed(name):
            console.print(line, highlight=False)
        return
    table, run = suites.find(name)
    names = _names(rows or [], list(suites.read_cases(table)))
    rounds = rounds or (21 if against else 7)
    report = partial(notes.print, highlight=False, markup=False)
    if against is not None:
        raise typer.Exit(_against(name, against, names, rounds, budget, data, processes, output, report))

    turns.begin()
    record = run(
        names, data=data, rounds=rounds, budget=budget, report=report, keep=lambda r: _keep(r, output)
    )
    for shown in tables(record):
        console.print(shown)


def _check(name: str | None, output: Path | None, *others: Any) -> None:
    """Refuse options that belong to no run, and a record that is no .json."""
    from warpfront.errors import InvalidValueError

    if name is None and any(option is not None for option in (output, *others)):
        raise InvalidValueError("options of a run need the benchmark's name; `warpfront bench` lists them")
    if output is not None and output.suffix != ".json":
        raise InvalidValueError(f"--output is {str(output)!r}; a record is a .json file")


def _keep(record: Any, output: Path | None) -> None:
    from dataclasses import replace

    from warpfront.bench import turns
    from warpfront.bench.record import write

    if turns.taken():
        record = replace(record, options={**record.options, "turns": turns.taken()})
    if output is not None:
        write(record, output)


def _listed(name: str | None) -> list[str]:
    """Return a line for each benchmark, or for each row of one."""
    from warpfront.bench import suites

    if name is None:
        return [f"{known.replace('_', '-'):16} {text}" for known, (text, _, _) in suites.SUITES.items()]
    cases = suites.read_cases(suites.find(name)[0])
    return [f"{case}{' (large)' if entry.get('large') else ''}" for case, entry in cases.items()]


def _names(asked: list[str], known: list[str]) -> list[str]:
    """Split lists at commas, but take a row whose own name has one as it stands."""
    found: list[str] = []
    for text in asked:
        found += [text] if text in known else [part.strip() for part in text.split(",") if part.strip()]
    return found


def _against(
    name: str,
    revision: str,
    names: list[str],
    rounds: int,
    budget: float,
    data: Path | None,
    processes: int,
    output: Path | None,
    report: Any,
) -> int:
    """Run both sides, show the verdict, write the two records beside each other; return the exit code."""
    from warpfront.bench.against import against
    from warpfront.bench.gate import gate
    from warpfront.bench.record import write
    from warpfront.cli.gate import show

    options = [word for row in names for word in ("--rows", row)]
    options += ["--rounds", str(rounds), "--budget", str(budget)]
    options += ["--data", str(data.resolve())] if data is not None else []
    base, new = against(name, revision, options, processes=processes, report=report, enough=_certain)
    if output is not None:
        write(base, output.with_name(f"{output.stem}_base.json"))
        write(new, output)
    outcome = gate(base, new)
    show(outcome)
    return outcome.exit_code


def _certain(base: Any, new: Any) -> bool:
    from warpfront.bench.gate import AMBIGUOUS, gate

    return gate(base, new).verdict != AMBIGUOUS


def tables(record: Any) -> list[Any]:
    """Return a table of times for each operation, and one of accuracy."""
    from rich.table import Table

    found = []
    for operation in dict.fromkeys(row.operation for row in record.rows):
        rows = [row for row in record.rows if row.operation == operation]
        names = list(dict.fromkeys(name for row in rows for name in row.contenders))
        table = Table(title=f"{operation}: median, ms (P95 in brackets)")
        for column in ("case", *names, "ours / fastest peer", "/ fastest right one"):
            table.add_column(column, justify="left" if column == "case" else "right")
        for row in rows:
            cells = [_time(row.contenders.get(name)) for name in names]
            table.add_row(row.case, *cells, *(_ratio(row, right) for right in (False, True)))
        found.append(table)
    solves = [row for row in record.rows if row.operation == "solve" and _has_errors(row)]
    if not solves:
        return found
    accuracy = Table(title="accuracy of the solve: normwise, componentwise backward error; inertia")
    names = list(dict.fromkeys(name for row in solves for name in row.contenders))
    for column in ("case", *names):
        accuracy.add_column(column)
    for row in solves:
        accuracy.add_row(row.case, *(_accuracy(row.contenders.get(name)) for name in names))
    return [*found, accuracy]


def _has_errors(row: Any) -> bool:
    return any("normwise" in found.values for found in row.contenders.values())


def _time(found: Any) -> str:
    if found is None:
        return ""
    if found.median is None:
        return str(found.status)
    mark = " wrong" if found.status == "wrong" else ""
    return f"{1e3 * found.median:.3g} ({1e3 * found.p95:.3g}){mark}"


def _ratio(row: Any, right: bool) -> str:
    """Return the first of ours over the fastest peer: of all that answered, or of those that verified."""
    from warpfront.bench.record import fastest_peer

    name = fastest_peer(row, right=right)
    ours = row.contenders[row.ours[0]].median if row.ours else None
    if name is None or ours is None:
        return "–"
    return f"{ours / row.contenders[name].median:.2f} ({name})"


def _accuracy(found: Any) -> str:
    if found is None:
        return ""
    values = found.values
    if values.get("normwise") is None:
        return str(found.detail or found.status)[:40]
    inertia = values.get("inertia")
    text = f"{values['normwise']:.0e}, {values['componentwise']:.0e}"
    return f"{text}; {', '.join(map(str, inertia))}" if inertia else text
