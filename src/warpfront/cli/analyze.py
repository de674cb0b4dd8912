"""``warpfront analyze``: order a matrix and predict what its factorisation costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpfront.cli._options import PLOT_SUFFIXES, Matrix, Ordering, Plot, Structure, View

__all__ = ["analyze"]


def analyze(
    matrix: Matrix,
    structure: Structure = "auto",
    ordering: Ordering = "auto",
    view: View = "full",
    report: Annotated[Path | None, typer.Option(help="Write the record: .json.", show_default=False)] = None,
    plot: Plot = None,
) -> None:
    """Order a matrix and predict its fill, flops, fronts and memory; nothing is factored."""
    from warpfront.cli._files import check_output
    from warpfront.cli._rows import Section, print_sections, sections
    from warpfront.cli._run import Request, analyze_file

    check_output(report, "--report", (".json",), [matrix])
    check_output(plot, "--plot", PLOT_SUFFIXES, [matrix])
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
