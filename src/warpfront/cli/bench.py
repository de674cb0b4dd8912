"""``warpfront bench``: measure ours beside the peers. The benchmarks themselves lie in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["bench"]

bench = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure beside the peers, in one process, every output verified.",
)


@bench.callback()
def _group() -> None:
    """Measure beside the peers, in one process, every output verified."""


@bench.command("sparse-cpu")
def sparse_cpu(
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows to run, comma-separated; may be repeated. Default: all but the large ones.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Samples of each contender.")] = 7,
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
) -> None:
    """Sparse solvers on the CPU: first factorisation, refactorisation, solve.

    Needs a clone of the repository and, for the peers, the extra [bench]; a peer that is not there is named.
    """
    from rich.console import Console

    from warpfront.errors import InvalidValueError

    if output is not None and output.suffix != ".json":
        raise InvalidValueError(f"--output is {str(output)!r}; a record is a .json file")
    benchmark = load_benchmark("sparse_cpu")
    console, notes = Console(), Console(stderr=True)
    if list_rows:
        for name, entry in benchmark.read_cases().items():
            console.print(f"{name}{' (large)' if entry.get('large') else ''}", highlight=False)
        return
    names = [name for text in rows or [] for name in text.replace(",", " ").split()]

    def keep(record: Any) -> None:
        from warpfront.bench.record import write

        if output is not None:
            write(record, output)

    def report(text: str) -> None:
        notes.print(text, highlight=False, markup=False)

    record = benchmark.run(names, data=data, rounds=rounds, budget=budget, report=report, keep=keep)
    for table in tables(record):
        console.print(table)


def load_benchmark(name: str) -> Any:
    """Import a module of the repository's ``benchmarks`` folder.

    Raises
    ------
    NotSupportedError
        The package is installed without its repository, and the current folder is not a clone either.
    """
    import sys
    from importlib import import_module

    from warpfront.errors import NotSupportedError

    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "benchmarks" / f"{name}.py").is_file() and (root / "pyproject.toml").is_file():
            if str(root) not in sys.path:
                sys.path.append(str(root))
            return import_module(f"benchmarks.{name}")
    raise NotSupportedError(
        "the benchmarks are not part of the installed package: run this in a clone of the repository"
    )


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
    accuracy = Table(title="accuracy of the solve: normwise, componentwise backward error; inertia")
    solves = [row for row in record.rows if row.operation == "solve"]
    names = list(dict.fromkeys(name for row in solves for name in row.contenders))
    for column in ("case", *names):
        accuracy.add_column(column)
    for row in solves:
        accuracy.add_row(row.case, *(_accuracy(row.contenders.get(name)) for name in names))
    return [*found, accuracy]


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
