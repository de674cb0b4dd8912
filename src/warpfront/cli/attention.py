"""``warpfront attention``: try attention on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from warpfront.cli._options import PLOT_SUFFIXES

__all__ = ["app"]

app = typer.Typer(help="Attention for LLM inference.", no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """Attention for LLM inference: prefill, and decoding from a paged cache."""


@app.command()
def bench(
    length: Annotated[int, typer.Option("--length", "-n", min=1, help="Tokens of each sequence.")] = 1024,
    batch: Annotated[int, typer.Option(min=1, help="Sequences.")] = 1,
    heads: Annotated[int, typer.Option(min=1, help="Query heads.")] = 8,
    kv_heads: Annotated[
        int | None, typer.Option(min=1, help="Key heads. Default: as many.", show_default=False)
    ] = None,
    head_dim: Annotated[int, typer.Option("--head-dim", "-d", min=1, help="Elements of a head.")] = 128,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="float32, float16 or bfloat16. Default: float32, on a GPU bfloat16.", show_default=False
        ),
    ] = None,
    causal: Annotated[bool, typer.Option("--causal/--full", help="Whether prefill hides later keys.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Timed calls of each contender.")] = 5,
    plot: Annotated[
        Path | None, typer.Option(help="Write the picture to a file: .png, .svg or .pdf.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Time prefill and decode beside NumPy and PyTorch, where it is installed; some rows are checked against float64.

    Exit code 0: every result is right. 1: one is wrong.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from warpfront.attention import selftest
    from warpfront.cli._files import check_output
    from warpfront.errors import InvalidValueError

    check_output(plot, "--plot", PLOT_SUFFIXES, [])
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidValueError(f"--device is auto, cpu or cuda, got {device!r}")
    where = _device(device)
    kind = dtype or ("bfloat16" if where == "cuda" else "float32")
    if kind not in ("float32", "float16", "bfloat16"):
        raise InvalidValueError(f"--dtype is float32, float16 or bfloat16, got {kind!r}")
    shape = selftest.Shape(batch, length, heads, kv_heads or heads, head_dim, kind, causal)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    notes = Console(stderr=True)
    with Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal) as progress:
        task = progress.add_task("kernels are compiled once, and kept", total=None)
        found = list(
            selftest.bench(shape, where, samples, lambda text: progress.update(task, description=text))
        )
    title = (
        f"{batch} x {length} tokens, {heads} heads on {shape.kv_heads} of {head_dim}, {kind}, "
        f"{'causal' if causal else 'full'}, {where}"
    )
    if as_json:
        _print_json(title, found)
    else:
        _show(title, found)
    if plot is not None:
        _draw(plot, title, found)
    raise typer.Exit(0 if all(timed.ok for timed in found) else 1)


def _device(device: str) -> str:
    """Return where to run: a GPU that PyTorch finds, with ``auto``."""
    if device != "auto":
        return device
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _print_json(title: str, found: list[Any]) -> None:
    import json
    from dataclasses import asdict

    rows = [{**asdict(timed), "ok": timed.ok} for timed in found]
    typer.echo(json.dumps({"title": title, "results": rows}, indent=1))


def _show(title: str, found: list[Any]) -> None:
    from statistics import median

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(title, highlight=False)
    table = Table("", "contender", "median", "rate", "error", "allowed", "", box=None)
    before = ""
    for timed in found:
        operation = timed.operation if timed.operation != before else ""
        before = timed.operation
        if not timed.seconds:
            table.add_row(
                operation, timed.contender, "", "", "", "", f"[dim]not run: {escape(timed.reason)}[/]"
            )
            continue
        mark = "[green]right[/]" if timed.ok else "[bold red]wrong[/]"
        numbers = (f"{timed.error:.1e}", f"{timed.allowed:.1e}")
        table.add_row(operation, timed.contender, _time(median(timed.seconds)), _rate(timed), *numbers, mark)
    console.print(table)


def _time(seconds: float) -> str:
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * factor:.3g} {unit}"


def _rate(timed: Any) -> str:
    unit = "FLOP/s" if timed.operation == "prefill" else "B/s"
    prefix, factor = ("T", 1e-12) if timed.rate >= 1e12 else ("G", 1e-9)
    return f"{timed.rate * factor:.3g} {prefix}{unit}"


def _draw(path: Path, title: str, found: list[Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axes, operation, unit in zip(both, ("prefill", "decode"), ("GFLOP/s", "GB/s"), strict=True):
        rows = [timed for timed in found if timed.operation == operation and timed.seconds]
        axes.barh([timed.contender for timed in rows], [timed.rate * 1e-9 for timed in rows])
        axes.invert_yaxis()
        axes.set(title=operation, xlabel=unit)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path)
    pyplot.close(figure)
