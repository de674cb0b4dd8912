"""``warpfront bfs``: search a graph breadth first, with its levels, its rate, the five rules and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpfront.cli._options import PLOT_SUFFIXES

if TYPE_CHECKING:
    from warpfront.graph import BfsRecord, BfsResult, Graph, TepsRecord, Verification

__all__ = ["bfs"]

# Levels shown: these many of the first, and of the last.
_HEAD, _TAIL = 12, 4


GraphText = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A file (.mtx, edge list .txt .csv .el, .npz; see the docs), or kronecker:SCALE[:EDGE_FACTOR], "
        "uniform:VERTICES:EDGES, grid:ROWS:COLUMNS[:KEEP].",
    ),
]
Source = Annotated[
    list[int] | None,
    typer.Option(
        "--source",
        "-s",
        help="Vertex to start at, from 0. Repeat for several. Default: one with most arcs.",
        show_default=False,
    ),
]
MaxDepth = Annotated[int | None, typer.Option(help="Levels at most.", show_default=False)]
Direction = Annotated[str, typer.Option(help="auto, push or pull.")]
Alpha = Annotated[float, typer.Option(help="When to begin pulling.")]
Beta = Annotated[float, typer.Option(help="When to stop pulling.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Variant = Annotated[str, typer.Option(help="A step of the GPU's ladder; see the docs.")]
Directed = Annotated[
    bool | None,
    typer.Option("--directed/--undirected", help="Default: the file says.", show_default=False),
]
Transpose = Annotated[
    bool,
    typer.Option("--transpose", help="Build the transpose of a directed graph, so that it may be pulled."),
]
ByDegree = Annotated[bool, typer.Option("--by-degree", help="Renumber inside, vertices of many arcs first.")]
Teps = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Search from N drawn sources and report Graph500's rate.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Of a made graph and of the drawn sources.")]
Trace = Annotated[bool, typer.Option("--trace", help="On a GPU: count arcs and atomics in each level.")]
Check = Annotated[bool, typer.Option("--verify", help="Check the tree by Graph500's five rules.")]
Results = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write distances and parents: .csv or .npz.", show_default=False),
]
Report = Annotated[Path | None, typer.Option(help="Write the record: .json.", show_default=False)]
Picture = Annotated[
    Path | None,
    typer.Option(help="Write a picture of the levels: .png, .svg or .pdf.", show_default=False),
]


def bfs(
    graph: GraphText,
    source: Source = None,
    max_depth: MaxDepth = None,
    direction: Direction = "auto",
    alpha: Alpha = 15.0,
    beta: Beta = 18.0,
    device: Device = "auto",
    variant: Variant = "auto",
    directed: Directed = None,
    transpose: Transpose = False,
    by_degree: ByDegree = False,
    teps: Teps = None,
    seed: Seed = 1,
    trace: Trace = False,
    check: Check = False,
    output: Results = None,
    report: Report = None,
    plot: Picture = None,
) -> None:
    """Search a graph breadth first: distances, parents, levels, rate.

    Exit codes: 0 done, 1 the tree broke a rule (--verify), 2 wrong file or option, 4 not supported here.
    """
    from warpfront.cli._files import check_output
    from warpfront.cli._progress import Phases

    inputs = [Path(graph)] if _is_file(graph) else []
    check_output(output, "--output", (".csv", ".npz"), inputs)
    check_output(report, "--report", (".json",), inputs)
    check_output(plot, "--plot", PLOT_SUFFIXES, inputs)
    options: dict[str, Any] = {"max_depth": max_depth, "direction": direction, "alpha": alpha, "beta": beta}
    options |= {"device": device, "variant": variant, "trace": trace}
    with Phases() as phases:
        made = _make(graph, (directed, transpose, by_degree, device, seed), phases)
        phases.watch_compiler()
        starts, said = _sources(made, source)
        result, checked = _search(made, starts, options, check, phases)
        rates = _rates(made, (teps, seed, check), options, phases) if teps is not None else None
    if output is not None:
        _write(output, result)
    if report is not None:
        _write_report(report, result.record, checked, rates)
    if plot is not None:
        from warpfront.graph import plot_levels

        plot_levels(result, plot)
    _show(made, result.record, said, (checked, rates), [p for p in (output, report, plot) if p is not None])
    if (checked is not None and not checked.ok) or (rates is not None and rates.verified is False):
        raise typer.Exit(1)


def _is_file(text: str) -> bool:
    return ":" not in text or Path(text).exists()


def _make(text: str, how: tuple[Any, ...], phases: Any) -> Graph:
    """Read or make the graph."""
    from warpfront.errors import InvalidValueError
    from warpfront.graph import read_graph
    from warpfront.graph.loaders import made_graph

    directed, transpose, by_degree, device, seed = how
    phases.announce()
    if _is_file(text):
        with phases.phase("reading", text):
            graph = read_graph(text, directed=directed)
    else:
        if directed:
            raise InvalidValueError("the graphs that are made here are undirected; --directed is for files")
        with phases.phase("making", text):
            graph = made_graph(text, seed=seed, device="cuda" if device == "cuda" else "cpu")
    if transpose or by_degree:
        with phases.phase("preparing"):
            graph = graph.with_transpose() if transpose else graph
            graph = graph.by_degree() if by_degree else graph
    return graph


def _sources(graph: Graph, given: list[int] | None) -> tuple[list[int], str]:
    """Return where to start, and how that came about."""
    from warpfront.errors import InvalidValueError

    if given:
        return given, ", ".join(str(s) for s in given[:8]) + (
            f" and {len(given) - 8} more" if len(given) > 8 else ""
        )
    if graph.n == 0:
        raise InvalidValueError("the graph has no vertices, so there is nothing to search")
    found = int(graph.degrees().argmax())
    if graph.order is not None:
        found = int(graph.order[found])
    return [found], f"{found}, which has most arcs (--source chooses another)"


def _search(
    graph: Graph, starts: list[int], options: dict[str, Any], check: bool, phases: Any
) -> tuple[BfsResult, Verification | None]:
    from warpfront.graph import bfs as run
    from warpfront.graph import grid, verify

    if options["device"] != "cuda" and not graph.on_device:
        with phases.phase("loading kernels"):
            run(grid(1, 2), 0)  # so that the time below is the search's
    with phases.phase("searching"):
        result = run(graph, starts, **options)
    if not check:
        return result, None
    with phases.phase("checking the five rules"):
        return result, verify(graph, starts, result, max_depth=options["max_depth"])


def _rates(graph: Graph, how: tuple[int, int, bool], options: dict[str, Any], phases: Any) -> TepsRecord:
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from warpfront.graph import teps

    count, seed, check = how
    with phases.phase(f"searching from {count} sources"):
        if not sys.stderr.isatty():
            return teps(graph, count=count, seed=seed, verify=check, **options)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("sources", total=count)

            def tell(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            return teps(graph, count=count, seed=seed, verify=check, progress=tell, **options)


def _write(path: Path, result: BfsResult) -> None:
    import numpy as np

    distances, parents = (a.get() if hasattr(a, "get") else a for a in (result.distances, result.parents))
    if path.suffix == ".npz":
        np.savez_compressed(path, distances=distances, parents=parents)
        return
    table = np.column_stack([np.arange(len(distances)), distances, parents])
    np.savetxt(path, table, fmt="%d", delimiter=",", header="vertex,distance,parent", comments="")


def _write_report(
    path: Path, record: BfsRecord, checked: Verification | None, rates: TepsRecord | None
) -> None:
    import json

    from warpfront import __version__

    found: dict[str, Any] = {"warpfront": __version__, "search": record.to_dict()}
    if checked is not None:
        rules = zip(checked.rules, checked.findings, strict=True)
        found["rules"] = [{"rule": rule, "broken": broken or None} for rule, broken in rules]
    if rates is not None:
        found["teps"] = rates.to_dict()
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _show(graph: Graph, record: BfsRecord, said: str, more: tuple[Any, Any], written: list[Path]) -> None:
    from warpfront.cli._rows import Section, print_sections

    checked, rates = more
    kind = "directed" if graph.directed else "undirected"
    dropped = (
        f"; {graph.loops} loops and {graph.repeated} repetitions left out"
        if graph.loops + graph.repeated
        else ""
    )
    share = record.reached / max(record.n, 1)
    rows = [
        ("graph", f"{record.n} vertices, {record.arcs} arcs, {kind}{dropped}"),
        ("from", said),
        ("reached", f"{record.reached} vertices ({share:.1%}), the furthest at distance {record.depth}"),
        ("path", f"{record.path} ({record.reason})"),
        ("pulling", record.pull),
        ("time", f"{_time(record.seconds)}, {_rate(record.teps)} over {record.edges} edges"),
    ]
    if record.jit_seconds:
        rows.append(("compilation", f"{_time(record.jit_seconds)}, once on this machine"))
    sections = [Section("Breadth-first search", tuple(rows)), Section("Levels", tuple(_level_rows(record)))]
    if checked is not None:
        lines = zip(checked.rules, checked.findings, strict=True)
        found = tuple(
            ("holds" if not broken else "BROKEN", f"{rule}{': ' + broken if broken else ''}")
            for rule, broken in lines
        )
        sections.append(Section("Five rules", found))
    if rates is not None:
        rates_rows = [
            ("harmonic mean", f"{_rate(rates.harmonic_mean)} over {len(rates.sources)} sources"),
            (
                "least, median, most",
                ", ".join(_rate(r) for r in (rates.minimum, rates.median, rates.maximum)),
            ),
        ]
        if rates.verified is not None:
            rates_rows.append(("five rules", "hold for every source" if rates.verified else "BROKEN"))
        sections.append(Section("Rate", tuple(rates_rows)))
    if written:
        sections.append(Section("Written", tuple(("", str(path)) for path in written)))
    print_sections(sections)


def _level_rows(record: BfsRecord) -> list[tuple[str, str]]:
    count = len(record.levels)
    shown = (
        list(range(count)) if count <= _HEAD + _TAIL else [*range(_HEAD), -1, *range(count - _TAIL, count)]
    )
    rows = []
    for k in shown:
        if k < 0:
            rows.append(("…", f"{count - _HEAD - _TAIL} levels more (--report has all)"))
            continue
        level = record.levels[k]
        words = [level.direction, f"frontier {level.frontier}", f"found {level.found}"]
        for name, value in (("arcs", level.examined), ("duplicates", level.duplicates)):
            if value >= 0:
                words.append(f"{name} {value}")
        if level.atomics_tried > 0:
            words.append(f"atomics {level.atomics_won} of {level.atomics_tried}")
        if level.seconds == level.seconds:
            words.append(_time(level.seconds))
        rows.append((str(level.level), ", ".join(words)))
    return rows or [("none", "the search ended at its sources")]


def _time(seconds: float) -> str:
    return (
        f"{seconds * 1e6:.3g} µs"
        if seconds < 1e-3
        else f"{seconds * 1e3:.3g} ms"
        if seconds < 1
        else f"{seconds:.3g} s"
    )


def _rate(teps: float) -> str:
    return f"{teps / 1e9:.3g} GTEPS" if teps >= 1e9 else f"{teps / 1e6:.3g} MTEPS"
