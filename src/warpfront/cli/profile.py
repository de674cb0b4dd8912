"""``warpfront profile``: where the time of an operation goes, beside what the machine can do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["profile"]

# As in warpfront.bench.profile_work, which is imported when the command runs.
NAMES = "solve, inv, slogdet, transpose, spmv or spmm"


def profile(
    operation: Annotated[str, typer.Argument(help=f"Operation: {NAMES}.")],
    sizes: Annotated[
        list[int], typer.Argument(help="Its sizes: N [BATCH]; transpose M N; spmv SIDE; spmm SIDE COLUMNS.")
    ],
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    tool: Annotated[str, typer.Option(help="auto, ncu, events (GPU) or python (CPU).")] = "auto",
    calls: Annotated[int, typer.Option(help="Timed calls.")] = 5,
    top: Annotated[int, typer.Option(help="Rows of the table.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Run an operation on made-up data under the profiler that this machine has.

    Prints the time of a call, what it achieves of a large copy's and a large matrix product's rate, and the time by
    kernel: with ncu also compute and memory share, shared-memory bank conflicts and global load efficiency.
    """
    from dataclasses import asdict

    from warpfront.bench import profile as engine

    found = engine.profile(operation, tuple(sizes), dtype=dtype, device=device, tool=tool, calls=calls)
    if as_json:
        import json

        typer.echo(json.dumps(asdict(found), indent=2))
        return
    from warpfront.cli._rows import Section, duration, print_sections

    print_sections(
        [
            Section(
                f"{found.operation}: {found.what}, {dtype}",
                (
                    ("runs on", found.device),
                    ("one call", f"{duration(found.seconds)} (median of {calls})"),
                    (
                        "operations",
                        _rate(found.flops, found.seconds, found.ceilings["flops"], "flop", "product"),
                    ),
                    ("bytes", _rate(found.bytes, found.seconds, found.ceilings["bytes"], "B", "copy")),
                    ("looked at by", f"{found.tool}: {found.reason}"),
                ),
            )
        ]
    )
    _table(found, top)


def _rate(amount: float, seconds: float, ceiling: float, unit: str, of: str) -> str:
    if not amount:
        return "none"
    return (
        f"{amount:.3g} at the least: {1e-9 * amount / seconds:.4g} G{unit}/s, "
        f"{amount / seconds / ceiling:.1%} of a large {of}'s {1e-9 * ceiling:.4g}"
    )


def _table(found: Any, top: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    total = sum(part.seconds for part in found.parts) or 1.0
    shares = found.tool == "ncu"
    table = Table("part", "calls", "ms", "share", box=None, title=f"{1e3 * total:.3g} ms by {found.tool}")
    if shares:
        for name in ("compute", "memory", "bank conflicts", "load efficiency"):
            table.add_column(name)
    for part in found.parts[:top]:
        row = [
            escape(part.name),
            f"{part.calls:g}",
            f"{1e3 * part.seconds:.3f}",
            f"{part.seconds / total:.1%}",
        ]
        if shares:
            row += [_percent(part.compute), _percent(part.memory)]
            row += [
                "" if part.conflicts is None else f"{part.conflicts:,.0f}",
                _percent(part.load_efficiency),
            ]
        table.add_row(*row)
    rest = found.parts[top:]
    if rest:
        left = sum(part.seconds for part in rest)
        table.add_row(f"{len(rest)} others", "", f"{1e3 * left:.3f}", f"{left / total:.1%}")
    Console().print(table)
    if found.tool == "events":
        Console().print("Launches of other libraries, CuPy's own among them, are not in the table.")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
