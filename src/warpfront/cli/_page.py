"""The report as one HTML page: no script, nothing from elsewhere, for light and dark, keyboard and reader."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from warpfront.cli._machine import machine_rows, software_rows
from warpfront.cli._rows import Section, duration, phase_times, sections
from warpfront.cli._run import Outcome, status_name
from warpfront.cli._svg import spy

__all__ = ["page", "write_html"]

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;--ink:#1f4e8c;
--pale:#9db8d9;--good:#116329;--bad:#a40e26}
@media(prefers-color-scheme:dark){:root{--paper:#12161b;--text:#e6e9ed;--soft:#a3acb8;--line:#39424e;--ink:#8fb8f2;
--pale:#3d5f8f;--good:#6fdd8b;--bad:#ff9492}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--text);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:68rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.25rem 0 .5rem;padding-bottom:.25rem;border-bottom:1px solid var(--line)}
.verdict{font-size:1.1rem;margin:.25rem 0}.ok{color:var(--good)}.refused{color:var(--bad)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;margin:1rem 0 0;padding:0}
a{color:var(--ink)}
:focus-visible{outline:3px solid var(--ink);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:.25rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .75rem .3rem 0;border-bottom:1px solid var(--line)}
thead th{color:var(--soft);font-weight:600}
thead th:nth-child(2),thead th:nth-child(3){text-align:right}
tbody th{font-weight:600;width:17rem}
td{overflow-wrap:anywhere}
td.number{text-align:right;white-space:nowrap;width:7rem}
.narrow tbody th{width:11rem}
.pictures{display:flex;flex-wrap:wrap;gap:1.5rem}
figure{margin:0;flex:1 1 16rem;max-width:32rem}figcaption{color:var(--soft);font-size:.9rem;margin-top:.35rem}
.spy{display:block;width:100%;height:auto;border:1px solid var(--line);
color:var(--ink);shape-rendering:crispEdges}
.bar{display:block;height:1.1rem;min-width:1px;background:var(--ink)}
.bar.pale{background:var(--pale)}.bars{display:flex;align-items:center;height:1.6rem}
.key{display:inline-block;width:.9rem;height:.9rem;margin-right:.3rem;vertical-align:-.1rem}
@media(max-width:40rem){tbody th{width:auto}}
@media print{nav{display:none}.bar,.key{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media(forced-colors:active){.bar,.key{background:CanvasText;forced-color-adjust:none}.spy{color:CanvasText}}
"""


def write_html(path: Path, outcome: Outcome) -> None:
    """Write `page` to a file."""
    path.write_text(page(outcome), encoding="utf-8")


def page(outcome: Outcome) -> str:
    """Return the whole page."""
    name = escape(outcome.request.matrix.name)
    parts: list[tuple[str, str]] = []
    if outcome.solver is not None:
        parts += [(section.title, _rows(section)) for section in sections(outcome) if section.title != "Time"]
        if outcome.solver.report.analysis is not None:
            parts += _pictures(outcome)
    parts.append(("Time", _phases(outcome)))
    parts.append(("Files and versions", _provenance(outcome)))
    links = "".join(f'<li><a href="#{_anchor(title)}">{escape(title)}</a></li>' for title, _ in parts)
    body = "".join(
        f'<section aria-labelledby="{_anchor(title)}">'
        f'<h2 id="{_anchor(title)}">{escape(title)}</h2>{content}</section>\n'
        for title, content in parts
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{name}: {escape(status_name(outcome.error))}, warpfront solve</title>"
        f"<style>{STYLE}</style></head>\n"
        f"<body><main><h1>{name}</h1>{_verdict(outcome)}"
        f'<nav aria-label="Parts of this report"><ul>{links}</ul></nav>\n{body}</main></body></html>\n'
    )


def _anchor(title: str) -> str:
    return "-".join(title.lower().split())


def _verdict(outcome: Outcome) -> str:
    if outcome.error is None:
        report = outcome.solver.report
        text = f"Solved by {report.factor.method}: backward error {outcome.backward_error:.1e} normwise, "
        text += f"{outcome.componentwise_error:.1e} componentwise."
        return f'<p class="verdict ok">{escape(text)}</p>'
    kind = status_name(outcome.error).replace("_", " ")
    return f'<p class="verdict refused">Refused ({kind}): {escape(" ".join(str(outcome.error).split()))}</p>'


def _rows(section: Section) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{"<br>".join(escape(value).splitlines())}</td></tr>'
        for label, value in section.rows
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _pictures(outcome: Outcome) -> list[tuple[str, str]]:
    from warpfront.sparse.plots import portrait

    picture = portrait(outcome.solver._symbolic, 160)
    entries = 2 * picture.nnz_lower - picture.n
    spies = (
        ("given", "A as given", picture.matrix, f"{entries:,} entries"),
        ("permuted", "A in elimination order", picture.permuted, f"{entries:,} entries"),
        (
            "factor",
            "L, as predicted",
            picture.factor,
            f"{picture.nnz_factor:,} entries, in {picture.front_rows.size:,} fronts",
        ),
    )
    figures = "".join(
        f"<figure>{spy(name, f'Entries of {title}', share)}<figcaption>{title}: {what}</figcaption></figure>"
        for name, title, share, what in spies
    )
    shape = f"{picture.n:,} x {picture.n:,}"
    side = picture.matrix.shape[0]
    note = (
        f"<p>Each picture is {shape}, in {side} x {side} cells; a cell's colour grows with its entries.</p>"
    )
    return [("Entries", f'{note}<div class="pictures">{figures}</div>'), ("Fronts", _fronts(picture))]


def _fronts(picture: Any) -> str:
    from warpfront.sparse.plots import front_classes

    rows = ""
    total = max(1, picture.front_rows.size)
    for c in front_classes(picture):
        label = f"{c.low:,}" if c.low == c.high else f"{c.low:,} to {c.high:,}"
        count, flops = 100 * c.count / total, 100 * c.flops_share
        rows += (
            f'<tr><th scope="row">{label}</th><td class="number">{c.count:,}</td>'
            f'<td class="number">{flops:.1f} %</td>'
            f'<td aria-hidden="true"><span class="bar pale" style="width:{count:.1f}%"></span>'
            f'<span class="bar" style="width:{flops:.1f}%"></span></td></tr>'
        )
    key = '<span class="key bar pale"></span>of all fronts, <span class="key bar"></span>of all flops'
    return (
        '<table class="narrow"><caption>Fronts by their number of rows</caption><thead><tr>'
        '<th scope="col">Rows</th><th scope="col">Fronts</th><th scope="col">Flops</th>'
        f'<th scope="col" aria-hidden="true">{key}</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _phases(outcome: Outcome) -> str:
    times = phase_times(outcome)
    longest = max((work + jit for work, jit in times.values()), default=0.0) or 1.0
    rows = ""
    for name, (work, jit) in times.items():
        widths = 100 * work / longest, 100 * jit / longest
        compiled = duration(jit) if jit else "none"
        rows += (
            f'<tr><th scope="row">{escape(name)}</th><td class="number">{duration(work)}</td>'
            f'<td class="number">{compiled}</td><td aria-hidden="true"><span class="bars">'
            f'<span class="bar" style="width:{widths[0]:.1f}%"></span>'
            + (f'<span class="bar pale" style="width:{widths[1]:.1f}%"></span>' if jit else "")
            + "</span></td></tr>"
        )
    key = '<span class="key bar"></span>work, <span class="key bar pale"></span>compiling kernels (once)'
    return (
        f'<table class="narrow"><caption>Wall time, {duration(outcome.wall_seconds)} in all</caption>'
        "<thead><tr>"
        '<th scope="col">Phase</th><th scope="col">Work</th><th scope="col">Compiling</th>'
        f'<th scope="col" aria-hidden="true">{key}</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _provenance(outcome: Outcome) -> str:
    rows = [
        (
            "matrix" if kind == "matrix" else "right-hand side",
            f"{f.path}, {f.bytes:,} bytes\nSHA-256 {f.sha256}",
        )
        for kind, f in outcome.files.items()
    ]
    rows.append(("software", "\n".join(f"{name}: {version}" for name, version in software_rows())))
    rows.append(("machine", "\n".join(f"{name}: {what}" for name, what in machine_rows())))
    return _rows(Section("", tuple(rows)))
