"""``warpfront price``: price options by simulation, with the error, the progress and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warpfront.cli._options import PLOT_SUFFIXES

if TYPE_CHECKING:
    from warpfront.montecarlo import Estimate, Pricing, Progress

__all__ = ["price"]

METHODS = ("antithetic", "control", "sobol", "greeks")


def price(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="OPTION...",
            help="An option in words (call spot=100 strike=105 rate=0.05 volatility=0.2 maturity=1), or a CSV file "
            "with an option in each row.",
        ),
    ],
    paths: Annotated[
        float | None,
        typer.Option(help="Paths of each option, for example 1e7. Default: 2^22.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Stop when half of the interval is this; --paths is then the limit.", show_default=False
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="antithetic, control, sobol or greeks. May be repeated.", show_default=False),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the confidence interval.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the random stream.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="Of the paths: float64, or float32 on a GPU.")] = "float64",
    report: Annotated[Path | None, typer.Option(help="Write a report: .json.", show_default=False)] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a convergence plot: .png, .svg or .pdf.", show_default=False),
    ] = None,
) -> None:
    """Price European, Asian and barrier options, and say how well each price is known.

    Words: call or put; european, asian, or up-and-out, up-and-in, down-and-out, down-and-in; discrete or continuous;
    spot=, strike=, rate=, volatility=, maturity=, dividend_yield=, n_steps=, barrier=.
    """
    from warpfront.cli._files import check_output

    inputs = [Path(words[0])] if len(words) == 1 else []
    check_output(report, "--report", (".json",), inputs)
    check_output(plot, "--plot", PLOT_SUFFIXES, inputs)
    options = _options(words)
    if paths is None and tolerance is None:
        # A multiple of what every method asks for: even, and replicates times a power of two.
        paths = float(1 << 22)
    sampling = {"seed": seed, "precision": precision, **_flags(method or [])}
    result, history, notes = _run(options, paths, sampling, tolerance=tolerance, level=level, device=device)
    written = [path for path in (report, plot) if path is not None]
    if report is not None:
        _write_report(report, result)
    if plot is not None:
        from warpfront.montecarlo.plots import plot_convergence

        plot_convergence(history, 0, f"{_name(result[0])}: {_terms(result[0])}").savefig(plot)
    _show(result, notes, written)


def _flags(methods: list[str]) -> dict[str, bool]:
    from warpfront.errors import InvalidValueError

    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise InvalidValueError(f"no method {unknown[0]!r}; there are {', '.join(METHODS)}")
    return {"control_variate" if name == "control" else name: True for name in methods}


def _options(words: list[str]) -> list[Any]:
    from warpfront.montecarlo.text import option_of_words, read_options

    if len(words) == 1 and (words[0].lower().endswith(".csv") or Path(words[0]).is_file()):
        return list(read_options(Path(words[0])))
    return [option_of_words(words)]


def _run(
    options: list[Any], paths: float | None, sampling: dict[str, Any], **rest: Any
) -> tuple[Pricing, list[Progress], list[str]]:
    """Price with a progress bar; return the result, its history, and what was warned of."""
    import warnings

    from warpfront.montecarlo import FewPayersWarning, ToleranceNotReachedWarning
    from warpfront.montecarlo import price as run

    history: list[Progress] = []
    with warnings.catch_warnings(record=True) as caught, _Bar() as bar:
        warnings.simplefilter("always", FewPayersWarning)
        warnings.simplefilter("always", ToleranceNotReachedWarning)

        def tell(step: Progress) -> None:
            history.append(step)
            bar.show(step)

        result = run(options, paths, progress=tell, **rest, **sampling)
    notes = [
        str(w.message)
        for w in caught
        if issubclass(w.category, (FewPayersWarning, ToleranceNotReachedWarning))
    ]
    return result, history, notes


class _Bar:
    """Progress: a live bar on a terminal, else a line for each quarter of the work."""

    def __enter__(self) -> _Bar:
        import sys

        self._live: Any = None
        self._said = 0
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
            self._live = Progress(
                *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True
            )
            self._live.start()
            self._task = self._live.add_task("simulating (the first run compiles)", total=None)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, step: Progress) -> None:
        widest = max(step.estimates, key=lambda estimate: estimate.half_width)
        text = f"{step.paths_done:,} of {step.paths_total:,} paths, widest interval +-{widest.half_width:.3g}"
        if self._live is not None:
            done, total = step.paths_done, step.paths_total
            self._live.update(self._task, description=text, completed=done, total=total)
            return
        quarter = 4 * step.paths_done // step.paths_total
        if step.paths_total > 1 << 22 and quarter > self._said:
            typer.echo(f"simulating: {text}")
        self._said = quarter % 4


def _name(estimate: Estimate) -> str:
    option = estimate.option
    name = getattr(option, "knock", {"AsianArithmetic": "Asian"}.get(type(option).__name__, "European"))
    return f"{name} {option.kind}"


def _terms(estimate: Estimate) -> str:
    option = estimate.option
    market = f"spot {option.spot:g}, strike {option.strike:g}, rate {option.rate:g}, volatility {option.volatility:g}"
    more = f", dividend yield {option.dividend_yield:g}" if option.dividend_yield else ""
    barrier = f", barrier {option.barrier:g} watched {_watched(option)}" if hasattr(option, "barrier") else ""
    steps = f", {option.n_steps} steps" if option.n_steps > 1 else ""
    return f"{market}, maturity {option.maturity:g}{more}{barrier}{steps}"


def _watched(option: Any) -> str:
    return "at every moment" if option.monitoring == "continuous" else "at the dates"


def _show(result: Pricing, notes: list[str], written: list[Path]) -> None:
    from warpfront.cli._rows import Section, duration, print_sections

    if len(result) <= 3:
        found = [Section(_name(estimate), tuple(_rows(estimate))) for estimate in result]
    else:
        found = [Section(f"{len(result)} options", tuple(_table(result)))]
    rate = result.n_paths * len(result) / max(result.seconds, 1e-9)
    work = [("paths", f"{result.n_paths:,} of each option, {rate / 1e6:,.0f} million a second")]
    work += [
        (
            "time",
            f"{duration(result.seconds)}, and {duration(result.jit_seconds)} to load or compile the kernels",
        )
    ]
    work += [
        ("ran on", f"{result.device}, {result.precision} paths, float64 sums"),
        ("method", _method(result)),
    ]
    found.append(Section("Work", tuple(work)))
    if notes:
        found.append(Section("Warning", tuple(("", note) for note in notes)))
    if written:
        found.append(Section("Written", tuple(("", str(path)) for path in written)))
    print_sections(found)


def _rows(e: Estimate) -> list[tuple[str, str]]:
    low, high = e.confidence
    rows = [
        ("terms", _terms(e)),
        ("price", f"{e.price:.8g}"),
        ("standard error", f"{e.standard_error:.3g}"),
        (f"{100 * e.level:g}% interval", f"{low:.8g} to {high:.8g}"),
    ]
    if e.exact is not None:
        score = "" if e.z is None else f", z = {e.z:.2f}"
        rows.append(("closed form", f"{e.exact:.8g}{score}"))
    if e.delta is not None:
        rows.append(("delta", f"{e.delta:.6g} +- {e.delta_error:.1g} (standard error)"))
        rows.append(("vega", f"{e.vega:.6g} +- {e.vega_error:.1g} (standard error)"))
    if e.variance_ratio is not None:
        rows.append(("control variate", f"divides the variance by {e.variance_ratio:.3g}"))
    rows.append(("paying paths", f"{e.paying_paths:,} of {e.n_paths:,}"))
    return rows


def _table(result: Pricing) -> list[tuple[str, str]]:
    rows = [("row", f"{'price':>14} {'std error':>11} {'closed form':>14} {'z':>7}  option")]
    for k, e in enumerate(result):
        exact = "" if e.exact is None else f"{e.exact:.8g}"
        score = "" if e.z is None else f"{e.z:.2f}"
        rows.append(
            (
                str(k),
                f"{e.price:14.8g} {e.standard_error:11.3g} {exact:>14} {score:>7}  {_name(e)}: {_terms(e)}",
            )
        )
    return rows


def _method(result: Pricing) -> str:
    settings = result.settings
    words = f"{settings['replicates']} scrambles of Sobol points" if settings["sobol"] else "Philox4x32-10"
    extra = [name.replace("_", " ") for name in ("antithetic", "control_variate", "greeks") if settings[name]]
    return ", ".join([words, f"seed {settings['seed']}", *extra])


def _write_report(path: Path, result: Pricing) -> None:
    import json

    from warpfront.cli._machine import fingerprint
    from warpfront.cli._record import plain

    found = plain({**result.to_dict(), "machine": fingerprint()})
    path.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n", encoding="utf-8")
