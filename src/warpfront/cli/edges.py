"""``warpfront edges``: edges of image files, several at a time, with a summary and a contact sheet."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from warpfront.image import EdgePipeline, PipelineRecord
    from warpfront.image.files import ImageFile
    from warpfront.image.sheet import Pair

__all__ = ["edges"]

SHEET = "contact-sheet.png"


Inputs = Annotated[list[Path], typer.Argument(metavar="IN...", help="PNG or JPEG files, or folders of them.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the results (PNG).")]
Sigma = Annotated[float, typer.Option(help="Blur in pixels; 0: the 5-tap kernel 1/16 [1 4 6 4 1].")]
Taps = Annotated[
    int | None, typer.Option(help="Taps of the blur, odd, 1 to 31. Default: from sigma.", show_default=False)
]
Threshold = Annotated[
    str, typer.Option(help="An edge is a magnitude above this, 0 to 255; none: write the magnitude itself.")
]
Border = Annotated[str, typer.Option(help="clamp, reflect, reflect101, wrap or zero.")]
Norm = Annotated[str, typer.Option(help="l1: |gx| + |gy|; l2: the Euclidean length.")]
Layout = Annotated[str, typer.Option(help="In memory: packed, planar, or gray (gray files only).")]
Slots = Annotated[int, typer.Option(min=1, max=64, help="Images in flight.")]
Report = Annotated[Path | None, typer.Option(help="Write the record of the run as JSON.", show_default=False)]


def edges(
    inputs: Inputs,
    output: Output,
    sigma: Sigma = 0.0,
    taps: Taps = None,
    threshold: Threshold = "100",
    border: Border = "reflect101",
    norm: Norm = "l1",
    layout: Layout = "packed",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    slots: Slots = 4,
    sheet: Annotated[bool, typer.Option("--sheet/--no-sheet", help=f"Write {SHEET}.")] = True,
    report: Report = None,
) -> None:
    """Find edges in image files: gray, Gaussian blur, Sobel, threshold.

    A file that cannot be read is named, the others are done all the same, and the exit code is then 2.
    """
    from warpfront.cli import _files as files
    from warpfront.errors import FormatError
    from warpfront.image import EdgePipeline
    from warpfront.image.files import find

    if report is not None:
        files.check_output(report, "--report", (".json",), [p for p in inputs if p.is_file()])
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(20, "the output is a file, not a folder", str(output))
    pipeline = EdgePipeline(
        sigma=sigma,
        taps=taps,
        threshold=_level(threshold),
        border=border,
        norm=norm,
        layout=layout,
        device=device,  # type: ignore[arg-type]
        slots=slots,
    )
    found = find(inputs, output)
    _warm(pipeline)
    work = _Work(layout, _shown(len(found)) if sheet else set())
    with _progress(len(found)) as advance:
        for _ in pipeline.run(list(enumerate(found)), decode=work.decode, encode=work.encode):
            advance()
    written = [str(output)]
    if work.pairs:
        title = f"{len(found) - len(work.failed)} images, {_blur(sigma, taps)}, threshold {threshold}"
        work.write_sheet(title, output / SHEET)
        written.append(str(output / SHEET))
    record = _without_failed(pipeline.record, len(work.failed))
    if report is not None:
        _write_json(report, record, work.failed)
        written.append(str(report))
    _summary(record, len(found), work.failed, written)
    if work.failed:
        first = next(iter(work.failed.values()))
        raise FormatError(f"{len(work.failed)} of {len(found)} files could not be read; the first: {first}")


class _Work:
    """Decoding and encoding of one run, on the pipeline's threads; keeps thumbnails and failures."""

    def __init__(self, layout: str, shown: set[int]) -> None:
        self.layout = layout
        self.shown = shown
        self.pairs: dict[int, Pair] = {}
        self.failed: dict[str, str] = {}
        self._before: dict[int, Any] = {}

    def decode(self, item: tuple[int, ImageFile], place: Any) -> Any:
        """Read one file; one that cannot be read becomes a single pixel, and is not written."""
        from warpfront.errors import FormatError
        from warpfront.image import files

        number, file = item
        try:
            image = files.decode(file.source, self.layout, place)
        except (FormatError, OSError) as error:
            self.failed[str(file.source)] = str(error)
            memory = place((1, 1))
            memory[...] = 0
            return memory
        if number in self.shown:
            self._before[number] = image.copy()
        return image

    def encode(self, item: tuple[int, ImageFile], found: Any) -> None:
        """Write one result, and keep its thumbnail if it is shown."""
        from warpfront.image import files

        number, file = item
        if str(file.source) in self.failed:
            return
        files.encode(file.target, found)
        if number in self._before:
            from warpfront.image.sheet import pair_of

            self.pairs[number] = pair_of(file.source.name, self._before.pop(number), found, self.layout)

    def write_sheet(self, title: str, path: Path) -> None:
        """Write the contact sheet of what was shown."""
        from warpfront.image.sheet import contact_sheet

        contact_sheet([self.pairs[k] for k in sorted(self.pairs)], title, path)


def _level(text: str) -> int | None:
    """Return the threshold as a number, ``None`` for the magnitude itself."""
    from warpfront.errors import InvalidValueError

    if text.lower() == "none":
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidValueError(
            f"threshold must be a whole number from 0 to 255, or none, got {text!r}"
        ) from None


def _shown(count: int) -> set[int]:
    from warpfront.image.sheet import chosen

    return chosen(count)


def _warm(pipeline: EdgePipeline) -> None:
    """Compile (or load) the kernels before the clock runs."""
    import numpy as np

    from warpfront.cli._progress import Phases

    with Phases() as phases:
        with phases.phase("loading", "libraries"):
            import numba  # noqa: F401
            import PIL.Image  # noqa: F401

            phases.watch_compiler()
        with phases.phase("loading", "kernels"):
            list(pipeline.run([np.zeros((4, 4), np.uint8)]))


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """Show a bar on a terminal, elsewhere a line at the start; yields what to call for every image."""
    if not sys.stderr.isatty():
        typer.echo(f"finding edges in {total} images ...")
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("finding edges"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("edges", total=total, rate="")
        begin = perf_counter()
        done = count(1)

        def advance() -> None:
            rate = next(done) / (perf_counter() - begin)
            bar.update(task, advance=1, rate=f"{rate:.1f} images/s")

        yield advance


def _blur(sigma: float, taps: int | None) -> str:
    from warpfront.image import gaussian_weights

    count = len(gaussian_weights(float(sigma), taps))
    return f"blur of {count} taps" + (f", sigma {sigma:g}" if sigma > 0 else "")


def _without_failed(record: PipelineRecord, failed: int) -> PipelineRecord:
    """Take out the single pixels that went through in place of files that could not be read."""
    from dataclasses import replace

    images, pixels = record.images - failed, record.pixels - failed
    return replace(
        record,
        images=images,
        pixels=pixels,
        images_per_second=images / record.seconds,
        pixels_per_second=pixels / record.seconds,
    )


def _summary(record: PipelineRecord, total: int, failed: dict[str, str], written: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{record.images} of {total} images, {record.pixels / 1e6:.1f} Mpixel in {record.seconds:.2f} s: "
        f"{record.images_per_second:.1f} images/s, {record.pixels_per_second / 1e6:.1f} Mpixel/s",
        highlight=False,
    )
    console.print(
        f"on {record.device} ({record.device_reason})", highlight=False, markup=False, soft_wrap=True
    )
    table = Table("stage", "total s", "median ms", "P95 ms", box=None)
    for stage in record.stages:
        table.add_row(
            stage.stage,
            f"{stage.total_seconds:.3f}",
            f"{1e3 * stage.median_seconds:.2f}",
            f"{1e3 * stage.p95_seconds:.2f}",
        )
    console.print(table)
    late = (record.latency_p50_seconds, record.latency_p95_seconds, record.latency_p99_seconds)
    console.print(
        "an image from begin to end: P50 {:.1f} ms, P95 {:.1f} ms, P99 {:.1f} ms".format(
            *(1e3 * v for v in late)
        ),
        highlight=False,
    )
    console.print(
        f"{record.slots} slots, buffers {record.peak_bytes / 1e6:.1f} MB of at most {record.cap_bytes / 1e6:.0f} MB",
        highlight=False,
    )
    for path in written:
        console.print(f"written: {path}", highlight=False, markup=False, soft_wrap=True)
    for reason in failed.values():
        console.print(f"not done: {reason}", highlight=False, markup=False, soft_wrap=True)


def _write_json(path: Path, record: PipelineRecord, failed: dict[str, str]) -> None:
    import json

    path.write_text(json.dumps({**record.to_dict(), "failed": failed}, indent=1) + "\n", encoding="utf-8")
