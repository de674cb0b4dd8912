"""``warpfront gate``: whether a new record is slower than the base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["gate", "show"]


def gate(
    base: Annotated[Path, typer.Argument(help="Record to compare with, a .json.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The new record.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the JSON, a .json.", show_default=False)
    ] = None,
) -> None:
    """Compare two records of one benchmark and say: same, faster, slow, ambiguous, or incomparable.

    Exit codes: 0 same or faster, 1 slow, 3 incomparable (other machine or software, other problem), 4 ambiguous: run
    both again, or `warpfront bench NAME --against REV`.
    """
    import json

    from warpfront.bench.gate import gate as decide
    from warpfront.bench.record import read
    from warpfront.errors import InvalidValueError

    if output is not None and output.suffix != ".json":
        raise InvalidValueError(f"--output is {str(output)!r}; the verdict is a .json file")
    outcome = decide(read(base), read(new))
    text = json.dumps({"base": base.name, "new": new.name, **outcome.plain()}, indent=1)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
    else:
        show(outcome)
    raise typer.Exit(outcome.exit_code)


def show(outcome: Any) -> None:
    """Print an outcome as a table with a line that sums it up."""
    from rich.console import Console

    console = Console()
    if outcome.rows:
        console.print(_table(outcome.rows))
    for reason in outcome.reasons:
        console.print(reason, highlight=False, markup=False)
    counts: dict[str, int] = {}
    for row in outcome.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    console.print(f"verdict: {outcome.verdict}{f' ({parts})' if parts else ''}", highlight=False)


def _table(rows: Any) -> Any:
    """Return the rows as a table; columns that say nothing are left out, so that the others fit a narrow terminal."""
    from rich.markup import escape
    from rich.table import Table

    columns: dict[str, list[str]] = {
        "case": [row.case for row in rows],
        "operation": [row.operation for row in rows],
        "contender": [row.contender for row in rows],
        "base ms": [_milliseconds(row.base_seconds) for row in rows],
        "new ms": [_milliseconds(row.new_seconds) for row in rows],
        "ratio": [_number(row.ratio, ".3f") for row in rows],
        "noise": ["" if row.floor is None else f"{100 * row.floor:.1f}%" for row in rows],
        "verdict": [row.verdict for row in rows],
        "why": [row.reason for row in rows],
    }
    if len(set(columns["contender"])) == 1:
        del columns["contender"]
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(box=None)
    for name in shown:
        words = name in ("case", "operation", "contender", "why")
        table.add_column(name, overflow="fold", no_wrap=not words, min_width=9 if words else None)
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*(escape(cell) for cell in cells))
    return table


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.4g}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
