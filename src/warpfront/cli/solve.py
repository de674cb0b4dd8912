"""``warpfront solve``: solve a sparse system from files, and say how well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpfront.cli._options import PLOT_SUFFIXES, Matrix, Ordering, Plot, Rhs, Solution, Structure, View

__all__ = ["solve"]

REPORT_SUFFIXES = (".json", ".html")


def solve(
    matrix: Matrix,
    rhs: Rhs = None,
    output: Solution = None,
    structure: Structure = "auto",
    ordering: Ordering = "auto",
    view: View = "full",
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="CPU threads. Default: all it may use.", show_default=False),
    ] = None,
    refine: Annotated[
        int | None,
        typer.Option(min=0, max=100, help="Refinement steps at most. Default: 2.", show_default=False),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(help="Write a report: .json or .html. May be repeated.", show_default=False),
    ] = None,
    plot: Plot = None,
) -> None:
    """Solve A x = b for a sparse matrix from a file, and say how well it went.

    Exit codes: 0 solved, 2 wrong file or option, 3 refused (singular, ...), 4 not supported by this build.
    """
    from warpfront.cli import _files as files
    from warpfront.cli._run import Request, solve_files

    reports = report or []
    inputs = [path for path in (matrix, rhs) if path is not None]
    files.check_output(output, "--output", files.SOLUTION_SUFFIXES, inputs)
    files.check_output(plot, "--plot", PLOT_SUFFIXES, inputs)
    for path in reports:
        files.check_output(path, "--report", REPORT_SUFFIXES, inputs)
    outcome = solve_files(Request(matrix, rhs, structure, ordering, view, threads, refine))
    if outcome.x is not None and outcome.error is None and output is not None:
        files.write_solution(output, outcome.x)
    for path in reports:
        if path.suffix.lower() == ".json":
            from warpfront.cli._record import write_json

            write_json(path, outcome)
        else:
            from warpfront.cli._page import write_html

            write_html(path, outcome)
    if outcome.error is not None:
        raise outcome.error
    if plot is not None:
        from warpfront.cli._rows import phase_times
        from warpfront.sparse.plots import plot_solver

        title = f"{matrix.name}: backward error {outcome.backward_error:.1e}"
        plot_solver(outcome.solver, title, phase_times(outcome)).savefig(plot)
    _show(outcome, [path for path in (output, *reports, plot) if path is not None])


def _show(outcome: object, written: list[Path]) -> None:
    from warpfront.cli._rows import Section, print_sections, sections

    found = sections(outcome)  # type: ignore[arg-type]
    if written:
        found.append(Section("Written", tuple(("", str(path)) for path in written)))
    print_sections(found)
