"""``warpfront batched``: try the batched tiny solvers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["app"]

app = typer.Typer(help="Batched tiny dense solvers.", no_args_is_help=True, add_completion=False)

_BLOCKS = " ▏▎▍▌▋▊▉█"


@app.callback()
def _group() -> None:
    """Batched tiny dense solvers: millions of small systems, each with its own verdict."""


@app.command()
def selftest(
    order: Annotated[int, typer.Option("--order", "-n", min=1, help="n of the timed systems.")] = 16,
    rhs: Annotated[int, typer.Option("--rhs", min=0, help="Right-hand sides.")] = 1,
    batch: Annotated[
        list[int] | None,
        typer.Option("--batch", min=1, help="Batch sizes to time; repeatable. Default: 16 to 65536."),
    ] = None,
    method: Annotated[str, typer.Option(help="cholesky or lu.")] = "cholesky",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    samples: Annotated[int, typer.Option(min=1, help="Timed calls of each contender.")] = 5,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write the picture to a file, .png, .svg or .pdf.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Check known verdicts on every path of this machine, then show throughput against batch size.

    Exit code 0: every verdict and solution is right. 1: one is wrong.
    """
    from warpfront.batched import selftest as room
    from warpfront.errors import InvalidValueError

    if method not in ("cholesky", "lu") or dtype not in ("float32", "float64"):
        raise InvalidValueError(
            f"--method is cholesky or lu, --dtype float32 or float64; got {method!r}, {dtype!r}"
        )
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidValueError(f"--plot is {str(plot)!r}; it must end in .png, .svg or .pdf")
    if "packed" in room.paths() and (order > 32 or rhs > 8):
        raise InvalidValueError("the GPU's warp entries take --order 1 to 32 and --rhs 0 to 8")
    batches = tuple(batch or (16, 256, 4096, 65536))
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    notes = Console(stderr=True)
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as progress:
        task = progress.add_task("verdicts (kernels are compiled once, and kept)", total=None)
        trials = list(room.trials())

        def started(contender: str, size: int) -> None:
            progress.update(task, description=f"{contender}, batch {size}")

        timed = list(room.throughput(method, order, rhs, batches, dtype, samples, started))
    title = f"{method}, n = {order}, nrhs = {rhs}, {dtype}"
    if as_json:
        _print_json(title, trials, timed)
    else:
        _show_trials(trials)
        _show_throughput(title, timed)
    if plot is not None:
        _draw(plot, title, timed)
    raise typer.Exit(0 if all(trial.ok for trial in trials) else 1)


def _print_json(title: str, trials: list[Any], timed: list[Any]) -> None:
    import json
    from dataclasses import asdict

    found = {
        "title": title,
        "verdicts": [{**asdict(trial), "ok": trial.ok} for trial in trials],
        "throughput": [{**asdict(t), "systems_per_second": t.systems_per_second} for t in timed],
    }
    typer.echo(json.dumps(found, indent=1))


def _show_trials(trials: list[Any]) -> None:
    table = Table("path", "method", "system", "status", "verdict", "error", "", box=None)
    for trial in trials:
        error = "" if trial.error is None else f"{trial.error:.1e}"
        mark = "[green]right[/]" if trial.ok else f"[bold red]wrong, expected {trial.expected}[/]"
        name = trial.name.replace("[", "\\[")
        table.add_row(trial.path, trial.method, name, str(trial.status), trial.verdict, error, mark)
    console = Console()
    console.print(table)
    right = sum(trial.ok for trial in trials)
    console.print(f"{right} of {len(trials)} right", highlight=False)


def _show_throughput(title: str, timed: list[Any]) -> None:
    console = Console()
    console.print(f"\n{title}: millions of systems a second, whole calls", highlight=False)
    most = max(t.systems_per_second for t in timed)
    beside = {t.batch: t.systems_per_second for t in timed if t.contender == "numpy"}
    table = Table("batch", "", "Msys/s", "x NumPy", "", box=None)
    for t in timed:
        eighths = round(8 * 30 * t.systems_per_second / most)
        bar = _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8].strip()
        rate, ratio = t.systems_per_second, t.systems_per_second / beside[t.batch]
        table.add_row(f"{t.batch}", t.contender, f"{rate * 1e-6:.3f}", f"{ratio:.1f}", bar)
    console.print(table)


def _draw(path: Path, title: str, timed: list[Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for contender in dict.fromkeys(t.contender for t in timed):
        line = [(t.batch, t.systems_per_second) for t in timed if t.contender == contender]
        axes.plot(*zip(*line, strict=True), marker="o", label=contender)
    axes.set(xscale="log", yscale="log", xlabel="batch", ylabel="systems per second", title=title)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
