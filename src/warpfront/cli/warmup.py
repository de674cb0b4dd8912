"""``warpfront warmup``: compile CPU kernels into the cache before they are needed, for images and CI."""

from __future__ import annotations

from typing import Annotated

import typer

from warpfront.cli._warm import DTYPES, JOBS
from warpfront.errors import CompileError, InvalidValueError

__all__ = ["warmup"]


def warmup(
    room: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Room: {', '.join(JOBS)} or all. May be repeated. Default: sparse.", show_default=False
        ),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Type: {', '.join(DTYPES)}. May be repeated. Default: float64.", show_default=False
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Processes at a time. Default: one a core.", show_default=False),
    ] = None,
) -> None:
    """Compile the CPU kernels of rooms and types into the cache, and say how long each took.

    Afterwards the first solve starts as fast as any other. What is cached already costs only a start.
    """
    from time import perf_counter

    from warpfront.backend import settings
    from warpfront.cli._warm import jobs_of, warm

    rooms = list(JOBS) if room and "all" in room else (room or ["sparse"])
    dtypes = dtype or ["float64"]
    for kind, given, allowed in (("room", rooms, [*JOBS, "all"]), ("dtype", dtypes, list(DTYPES))):
        for name in given:
            if name not in allowed:
                raise InvalidValueError(f"--{kind} is {name!r}; allowed are {', '.join(allowed)}")
    jobs = jobs_of(list(dict.fromkeys(rooms)), list(dict.fromkeys(dtypes)))
    if not jobs:
        raise InvalidValueError(
            f"nothing to compile: {', '.join(rooms)} has no kernels for {', '.join(dtypes)}"
        )
    start, failed = perf_counter(), []
    for done in warm(jobs, processes or settings.threads()):
        name = f"{done.room} {done.what}"
        typer.echo(f"{name:<20} {done.dtype:<10} {done.seconds:6.1f} s{'  failed' if done.error else ''}")
        if done.error:
            failed.append(f"{name} {done.dtype}: {done.error}")
    typer.echo(f"{len(jobs)} of {len(jobs)} in {perf_counter() - start:.1f} s" if not failed else "")
    if failed:
        raise CompileError("; ".join(failed))
