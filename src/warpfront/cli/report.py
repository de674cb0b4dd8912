"""``warpfront report``: records and gate verdicts as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Records and gate verdicts, .json, or folders of them.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page, a .html.")] = Path("report.html"),
) -> None:
    """Write one self-contained page: a table that sorts and filters, rooflines, peers, scaling, history, verdicts."""
    from warpfront.bench.report_page import gather, page
    from warpfront.errors import InvalidValueError

    if output.suffix != ".html":
        raise InvalidValueError(f"--output is {str(output)!r}; the page is a .html file")
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))
    records, verdicts = gather(paths)
    if not records:
        raise InvalidValueError(
            f"no records below {', '.join(map(str, paths))}; warpfront bench NAME -o FILE makes one"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(records, verdicts), encoding="utf-8")
    typer.echo(f"{output}: {len(records)} records, {len(verdicts)} verdicts")
