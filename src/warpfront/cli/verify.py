"""``warpfront verify``: prove the kernels, suite by suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["verify"]

_STYLES = {"passed": "green", "failed": "bold red", "not run": "yellow"}
_COMPILERS = {"nvrtc": ("nvrtc",), "nvcc": ("nvcc",), "both": ("nvrtc", "nvcc")}


def verify(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite", help="plan, oracle, build, simt, cuda, sanitizer, bench; repeatable. Default: all."
        ),
    ] = None,
    room: Annotated[
        list[str] | None,
        typer.Option("--room", help="An algorithm; repeatable. Default: all that have kernels."),
    ] = None,
    compiler: Annotated[str, typer.Option("--compiler", help="nvrtc, nvcc or both.")] = "nvrtc",
    arch: Annotated[
        list[str] | None,
        typer.Option(
            "--arch", help="A target of build, as sm_90; repeatable. Default: all that are supported."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every instantiation and the slow tests, not the covering subset.")
    ] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the whole record to this file.")
    ] = None,
) -> None:
    """Prove the kernels: plans, reference, builds, runs on the host, device tests, sanitizers.

    Exit code 0: everything asked for ran and found nothing. 1: a finding. 4: no finding, but something asked
    for could not run here (the lines under the table say what, and why).
    """
    from warpfront.bench import verify as bench
    from warpfront.errors import InvalidValueError

    if compiler not in _COMPILERS:
        raise InvalidValueError(f"--compiler must be nvrtc, nvcc or both, got {compiler!r}")
    unknown = [name for name in room or () if name not in bench.ROOMS]
    if unknown:
        raise InvalidValueError(f"no room {', '.join(unknown)}; there are {', '.join(bench.ROOMS)}")
    rooms = [bench.ROOMS[name] for name in (room or bench.ROOMS)]
    targets = tuple(arch) if arch else bench.ARCHITECTURES
    if not all(re.fullmatch(r"sm_\d+[a-z]?", name) for name in targets):
        raise InvalidValueError(f"--arch takes names such as sm_90, got {', '.join(targets)}")
    options = bench.Options(_COMPILERS[compiler], everything, targets)
    suites = tuple(suite) if suite else bench.SUITES
    record = _with_progress(rooms, suites, options)
    _show(record)
    if json_path is not None:
        import json

        json_path.write_text(json.dumps(record.to_dict(), indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(record.exit_code)


def _with_progress(rooms: list[Any], suites: tuple[str, ...], options: Any) -> Any:
    from warpfront.bench import verify as bench

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def started(room: Any, suite: str) -> None:
            progress.update(task, description=f"{room.name}: {suite}")

        return bench.verify(rooms, suites, options, started=started)


def _show(record: Any) -> None:
    console = Console()
    table = Table("room", "suite", "status", "passed", "failed", "not run", "seconds")
    for result in record.results:
        counts = [str(result.count(status)) for status in _STYLES]
        style = _STYLES[result.status]
        table.add_row(
            result.room, result.suite, f"[{style}]{result.status}[/]", *counts, f"{result.seconds:.1f}"
        )
    console.print(table)
    for result in record.results:
        if result.status == "not run" or not result.checks:
            typer.echo(f"{result.room} {result.suite}: {result.status}: {' '.join(result.reason.split())}")
        for check in result.checks:
            if check.status == "failed":
                typer.echo(f"{result.room} {result.suite}: {check.name}\n{check.detail}")
