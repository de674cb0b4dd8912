"""``warpfront analyze``: order a matrix and predict what its factorisation costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["analyze"]


def analyze(
    matrix: Annotated[
        Path, typer.Argument(metavar="A", help="Matrix: .mtx, .rb, .hb, .rsa (all also .gz) or .npz.")
    ],
    structure: Annotated[str, typer.Option(help="auto, SPD (Cholesky), S (LDL^T) or G.")] = "auto",
    ordering: Annotated[str, typer.Option(help="auto, amd, metis, level_set or natural.")] = "auto",
    view: Annotated[
        str, typer.Option(help="full, or the triangle that holds the entries: lower, upper.")
    ] = "full",
    report: Annotated[Path | None, typer.Option(help="Write the record: .json.", show_default=False)] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a figure of A, L and the fronts: .png, .svg or .pdf.", show_default=False),
    ] = None,
) -> None:
    """Order a matrix and predict its fill, flops, fronts and memory; nothing is factored."""
    from warpfront.cli._files import check_output
    from warpfront.cli._rows import Section, print_sections, sections
    from warpfront.cli._run import Request, analyze_file

    check_output(report, "--report", (".json",), [matrix])
    check_output(plot, "--plot", (".png", ".svg", ".pdf"), [matrix])
    outcome = analyze_file(Request(matrix, None, structure, ordering, view))
    if report is not None:
        from warpfront.cli._record import write_json

        write_json(report, outcome)
    if outcome.error is not None:
        raise outcome.error
    if plot is not None:
        from warpfront.sparse.plots import plot_symbolic

        plot_symbolic(outcome.solver._symbolic, matrix.name).savefig(plot)
    found = sections(outcome)
    written = [path for path in (report, plot) if path is not None]
    if written:
        found.append(Section("Written", tuple(("", str(path)) for path in written)))
    print_sections(found)
