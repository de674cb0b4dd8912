"""The report: records and gate verdicts as one HTML file that needs nothing else.

What it shows is a table of every measurement, with pictures whose points link into it, and the fingerprint behind
each. Style and script are the files beside this module, put into the page; a content security policy forbids it to
load anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from warpfront.bench import gate
from warpfront.bench.record import SCHEMA, Measurement, Record, Row, fastest_peer, read
from warpfront.bench.report_charts import Bar, Point, Series, bars, curves, duration, roofline
from warpfront.errors import FormatError

__all__ = ["Entry", "gather", "page"]

FOLDER = Path(__file__).parent
COLUMNS = ("device", "benchmark", "operation", "case", "contender", "status", "median", "P95", "ours / it",
           "GB/s", "GFLOP/s", "error", "record")  # fmt: skip
NUMBERS = COLUMNS[6:12]


@dataclass(frozen=True)
class Entry:
    """One measurement of one row of one record, with the anchors of its table row and its fingerprint."""

    record: Record
    row: Row
    name: str
    found: Measurement
    link: str
    source: str

    @property
    def ours(self) -> bool:
        """Whether it is this package's."""
        return self.name in self.row.ours

    @property
    def says(self) -> str:
        """Its figures in words, for the title of a point."""
        code = self.record.fingerprint.get("code", {})
        time = duration(self.found.median) if self.found.median is not None else self.found.status
        return (
            f"{self.row.case}, {self.row.operation}, {self.name}: {time}; {self.record.device}, "
            f"revision {str(code.get('revision'))[:12]}, {self.record.created}"
        )


def gather(paths: Sequence[Path]) -> tuple[list[Record], list[dict[str, Any]]]:
    """Read records and gate verdicts from files and folders (every ``.json`` below them), oldest first.

    Raises
    ------
    FormatError
        A file given by name is neither; below a folder, only files that are damaged records are refused.
    """
    records, verdicts = [], []
    for path in paths:
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            try:
                data = json.loads(file.read_text(encoding="utf-8"))
            except json.JSONDecodeError as error:
                raise FormatError(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
            except UnicodeDecodeError as error:
                raise FormatError(f"{file}: not JSON: {error}") from None
            schema = data.get("schema") if isinstance(data, dict) else None
            if schema == SCHEMA:
                records.append(read(file))
            elif schema == gate.SCHEMA:
                verdicts.append(data)
            elif not path.is_dir():
                raise FormatError(f"{file}: neither a record ({SCHEMA}) nor a verdict ({gate.SCHEMA})")
    return sorted(records, key=lambda r: (r.device, r.name, r.created)), verdicts


def page(records: Sequence[Record], verdicts: Sequence[dict[str, Any]] = ()) -> str:
    """Return the page.

    Of a benchmark with several records on a device, the last is in the table and the pictures; all are in the
    history, and the gate judges the last two.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.device, record.name), []).append(record)
    latest = [group[-1] for group in groups.values()]
    entries = list(_entries(latest))
    parts = [
        _head(),
        f"<p>{len(entries)} measurements in {len(latest)} records of {len({r.device for r in latest})} devices.</p>",
        _section("gate", "Gate verdicts", _verdicts(groups, verdicts)),
        _section("table", "Measurements", _table(entries)),
        _section("roofline", "Rooflines", _rooflines(entries)),
        _section("peers", "Against the fastest right peer", _against(entries)),
        _section("scaling", "Scaling", _scaling(entries)),
        _section("history", "History", _history(groups)),
        _section("fingerprints", "Fingerprints", _fingerprints(latest)),
        f"</main><script>{(FOLDER / 'report_page.js').read_text(encoding='utf-8')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _head() -> str:
    style = (FOLDER / "report_page.css").read_text(encoding="utf-8")
    links = "".join(
        f'<a href="#{name}">{name}</a> '
        for name in ("gate", "table", "roofline", "peers", "scaling", "history", "fingerprints")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>warpfront: performance</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<style>{style}</style></head><body><header><h1>warpfront: performance</h1><nav aria-label="Sections">{links}</nav>'
        '<button id="theme" type="button">dark or light</button></header><main>'
    )


def _section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{title}</h2>{body}</section>'


def _entries(records: Sequence[Record]) -> Iterator[Entry]:
    count = 0
    for k, record in enumerate(records):
        for row in record.rows:
            for name, found in row.contenders.items():
                yield Entry(record, row, name, found, f"m{count}", f"f{k}")
                count += 1


# ------------------------------------------------------------------ the table


def _table(entries: Sequence[Entry]) -> str:
    heads = "".join(
        f'<th scope="col" aria-sort="none"{" class=number" if name in NUMBERS else ""}>'
        f'<button type="button" data-column="{k}">{escape(name)}</button></th>'
        for k, name in enumerate(COLUMNS)
    )
    options = {
        "device": sorted({e.record.device for e in entries}),
        "benchmark": sorted({e.record.name for e in entries}),
        "operation": sorted({e.row.operation for e in entries}),
        "status": sorted({e.found.status for e in entries}),
    }
    chosen = "".join(
        f'<label>{name} <select data-filter="{COLUMNS.index(name)}"><option value="">all</option>'
        + "".join(f"<option>{escape(value)}</option>" for value in values)
        + "</select></label> "
        for name, values in options.items()
    )
    return (
        f'<form id="filters">{chosen}<label>text <input type="search" id="text"></label> '
        '<label><input type="checkbox" id="ours"> ours only</label> <button type="reset">all rows</button></form>'
        '<p id="count" role="status" aria-live="polite"></p><div class="wide" tabindex="0" role="region" '
        f'aria-label="Measurements"><table id="measurements"><thead><tr>{heads}</tr></thead><tbody>'
        + "".join(map(_line, entries))
        + "</tbody></table></div>"
    )


def _line(entry: Entry) -> str:
    found, ratio = entry.found, _ratio(entry)
    figures: list[tuple[str, float | None]] = [
        ("" if found.median is None else duration(found.median), found.median),
        ("" if found.p95 is None else duration(found.p95), found.p95),
        ("" if ratio is None else f"{ratio:.2f}", ratio),
        *(_rate(amount, found.median) for amount in (found.bytes, found.flops)),
        ("" if found.error is None else f"{found.error:.0e}", found.error),
    ]
    texts = (
        entry.record.device,
        entry.record.name,
        entry.row.operation,
        entry.row.case,
        entry.name,
        found.status,
    )
    cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
    if found.detail:
        cells = cells[: -len("</td>")] + f'<span class="note"> {escape(found.detail)}</span></td>'
    cells += "".join(
        f'<td class="number" data-value="{"" if value is None else format(value, ".7g")}">{text}</td>'
        for text, value in figures
    )
    style = " ".join(
        word for word, true in (("ours", entry.ours), ("wrong", found.status == "wrong")) if true
    )
    return (
        f'<tr id="{entry.link}" class="{style}">{cells}<td><a href="#{entry.source}">'
        f"{escape(entry.record.created)}</a></td></tr>"
    )


def _rate(amount: float | None, seconds: float | None) -> tuple[str, float | None]:
    if not amount or not seconds:
        return "", None
    return f"{1e-9 * amount / seconds:.4g}", 1e-9 * amount / seconds


def _ratio(entry: Entry) -> float | None:
    """Our first contender's time over this one's."""
    best = entry.row.contenders[entry.row.ours[0]].median if entry.row.ours else None
    return None if best is None or not entry.found.median else best / entry.found.median


# ------------------------------------------------------------------ the pictures


def _rooflines(entries: Sequence[Entry]) -> str:
    parts = []
    for device in sorted({e.record.device for e in entries}):
        here = [e for e in entries if e.record.device == device and e.found.status == "ok" and e.found.median]
        copies = [e for e in here if e.row.operation == "copy" or e.name == e.row.reference]
        speeds = [e.found.bytes / e.found.median for e in copies if e.found.bytes and e.found.median]
        peaks: dict[str, float] = {}
        for e in here:
            if e.row.operation == "matrix product" and e.found.flops and e.found.median:
                peaks[e.row.dtype] = max(peaks.get(e.row.dtype, 0.0), e.found.flops / e.found.median)
        series: dict[str, list[Point]] = {}
        for e in here:
            if e.ours and e.found.flops and e.found.bytes and e.found.median:
                at = Point(e.found.flops / e.found.bytes, e.found.flops / e.found.median, e.says, e.link)
                series.setdefault(f"{e.record.name}: {e.row.operation}", []).append(at)
        if not series:
            parts.append(f"<h3>{escape(device)}</h3><p>No record of ours holds operations and bytes.</p>")
            continue
        band = (max(speeds), f"copy {max(speeds) * 1e-9:.3g} GB/s") if speeds else None
        roofs = [(value, f"{name} product {value * 1e-9:.3g} GFLOP/s") for name, value in peaks.items()]
        drawn = roofline(
            f"Roofline of {device}", [Series(n, tuple(p)) for n, p in series.items()], band, roofs
        )
        missing = (
            "" if band and roofs else "<p>Ceilings that are not drawn were not measured on this device.</p>"
        )
        parts.append(f"<h3>{escape(device)}</h3><figure>{drawn}</figure>{missing}")
    return "".join(parts) or "<p>No records.</p>"


def _against(entries: Sequence[Entry]) -> str:
    groups: dict[tuple[str, str, str], list[Bar]] = {}
    for e in entries:
        peer = fastest_peer(e.row)
        if not e.row.ours or e.name != e.row.ours[0] or e.found.status != "ok" or peer is None:
            continue
        theirs = e.row.contenders[peer].median
        if theirs and e.found.median:
            factor = theirs / e.found.median
            text = f"{e.says}; {peer}: {duration(theirs)}"
            key = (e.record.device, e.record.name, e.row.operation)
            # Rows of one name differ in their type.
            same = [
                one for one in e.record.rows if (one.case, one.operation) == (e.row.case, e.row.operation)
            ]
            label = f"{e.row.case}, {e.row.dtype}" if len(same) > 1 else e.row.case
            groups.setdefault(key, []).append(Bar(f"{label} ({peer})", factor, text, e.link))
    parts = []
    for (device, name, operation), found in groups.items():
        title = f"{name}, {operation}, {device}: how many times faster than the fastest right peer"
        parts.append(f"<figure><figcaption>{escape(title)}</figcaption>{bars(title, found)}</figure>")
    return "".join(parts) or "<p>No row has both a right result of ours and a right peer.</p>"


def _scaling(entries: Sequence[Entry]) -> str:
    groups: dict[tuple[str, str, str, str], dict[str, list[Point]]] = {}
    for e in entries:
        size = e.row.shapes.get("n")
        if size and e.found.status == "ok" and e.found.median:
            key = (e.record.device, e.record.name, e.row.operation, e.row.dtype)
            groups.setdefault(key, {}).setdefault(e.name, []).append(
                Point(size, e.found.median, e.says, e.link)
            )
    parts = []
    for (device, name, operation, dtype), found in groups.items():
        if len({p.x for points in found.values() for p in points}) < 3:
            continue
        title = f"{name}, {operation}, {dtype}, {device}: time over n"
        drawn = curves(title, [Series(n, tuple(p)) for n, p in found.items()], "n")
        parts.append(f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>")
    return "".join(parts) or "<p>No operation was measured at three sizes.</p>"


def _history(groups: dict[tuple[str, str], list[Record]]) -> str:
    parts = []
    for (device, name), records in groups.items():
        if len(records) < 2:
            continue
        series: dict[str, list[Point]] = {}
        for k, record in enumerate(records):
            for row in record.rows:
                for who in row.ours[:1]:
                    found = row.contenders[who]
                    if found.status == "ok" and found.median:
                        text = f"{row.case}, {row.operation}: {duration(found.median)}, {record.created}"
                        points = series.setdefault(f"{row.case}, {row.operation}, {row.dtype}", [])
                        points.append(Point(k + 1, found.median, text, "history"))
        title = f"{name}, {device}: our time in each record"
        labels = [f"{k + 1}: {record.created}" for k, record in enumerate(records)]
        if series:
            drawn = curves(title, [Series(n, tuple(p)) for n, p in series.items()], "record", labels)
            parts.append(f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>")
    return "".join(parts) or "<p>No benchmark has two records on one device.</p>"


# ------------------------------------------------------------------ verdicts and fingerprints


def _verdicts(groups: dict[tuple[str, str], list[Record]], given: Sequence[dict[str, Any]]) -> str:
    judged = [
        (
            f"{name}, {device}: {group[-2].created} and {group[-1].created}",
            gate.gate(group[-2], group[-1]).plain(),
        )
        for (device, name), group in groups.items()
        if len(group) > 1
    ]
    judged += [(f"{one.get('base')} and {one.get('new')}", one) for one in given]
    parts = []
    for title, outcome in judged:
        rows = "".join(
            f"<tr><td>{escape(str(r['case']))}</td><td>{escape(str(r['operation']))}</td><td>{escape(str(r['contender']))}</td>"
            f'<td class="number">{"" if r["ratio"] is None else format(r["ratio"], ".3f")}</td>'
            f'<td class="v-{r["verdict"]}">{r["verdict"]}</td><td>{escape(str(r["reason"]))}</td></tr>'
            for r in outcome["rows"]
        )
        reasons = "; ".join(map(str, outcome["reasons"]))
        parts.append(
            f'<details><summary><span class="v-{outcome["verdict"]}">{outcome["verdict"]}</span> {escape(title)}</summary>'
            f"<p>{escape(reasons)}</p><table><thead><tr><th>case</th><th>operation</th><th>contender</th><th>ratio</th>"
            f"<th>verdict</th><th>why</th></tr></thead><tbody>{rows}</tbody></table></details>"
        )
    return "".join(parts) or "<p>No verdict was given, and no benchmark has two records on one device.</p>"


def _fingerprints(records: Sequence[Record]) -> str:
    return "".join(
        f'<details id="f{k}"><summary>{escape(record.name)}, {escape(record.device)}, {escape(record.created)}</summary>'
        f"<pre>{escape(json.dumps({**record.fingerprint, 'options': record.options}, indent=1, ensure_ascii=False))}</pre>"
        "</details>"
        for k, record in enumerate(records)
    )
