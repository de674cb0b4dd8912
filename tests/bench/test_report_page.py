"""The report page: its text for every figure of a record, and in a headless browser that it works and loads nothing."""

import json
import re
import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from warpfront.bench import gate, record, report_charts
from warpfront.bench.collect import collected, refused
from warpfront.bench.record import Record, Row
from warpfront.cli.main import main

CHROMIUM = next(
    (found for found in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if found), None
)
BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


def row(case, n, scale=1.0, **more):
    contenders = {
        "ours": collected(
            [scale * n * 1e-6 * k for k in (1.0, 1.01, 1.02)], clock="wall", flops=2e3 * n, bytes=1e2 * n
        ),
        "peer": collected([n * 2e-6] * 3, clock="wall"),
        "liar": collected([n * 1e-9] * 3, clock="wall", right=False, detail='off by "<one>"'),
        "away": refused("absent", "away-package is not installed"),
        "copy": collected([n * 1e-7] * 3, clock="wall", bytes=1e2 * n),
    }
    return Row(
        case, "solve", {"n": n}, "float64", "made up", 0, ["ours"], contenders, reference="copy", **more
    )


def made(scale=1.0, created="2026-01-01T00:00:00Z"):
    product = Row("square", "matrix product", {"n": 9}, "float64", "normal", 0, [],
                  {"blas": collected([1e-3] * 3, clock="wall", flops=4e9 * 1e-3, bytes=1.0)})  # fmt: skip
    rows = [row("small & <b>", 10, scale), row("middle", 100, scale), row("large", 1000, scale), product]
    code = {"revision": "0123456789abcdef", "version": "1"}
    return Record(record.SCHEMA, "test", "a-cpu", created, {}, {}, {"threads": 2, "code": code}, rows)


@pytest.fixture
def folder(tmp_path):
    record.write(made(), tmp_path / "records" / "a-cpu" / "test.json")
    record.write(made(1.5, "2026-02-01T00:00:00Z"), tmp_path / "records" / "history" / "later.json")
    other = replace(made(), device="b-cpu", rows=[row("small & <b>", 10)])
    record.write(other, tmp_path / "records" / "b-cpu" / "test.json")
    (tmp_path / "records" / "notes.json").write_text('{"schema": "something else"}')
    return tmp_path


@pytest.fixture
def html(folder):
    assert main(["report", str(folder / "records"), "-o", str(folder / "page.html")]) == 0
    return (folder / "page.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Tags that are opened and closed, ids, links to them, and everything that could be loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.loads = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a" and found["href"].startswith("#"):
            self.links.append(found["href"][1:])
        self.loads += [
            v
            for k, v in found.items()
            if k in ("src", "srcset", "data", "action") or (k == "href" and v[:1] != "#")
        ]

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing(html):
    found = Reader(html)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.links) <= set(found.ids)
    assert found.loads == []
    assert not re.search(r"(?:https?:)?//[a-z]", html.replace("// ", ""))
    assert "default-src 'none'" in html


def test_every_measurement_is_in_the_table_and_text_is_escaped(html):
    lines = re.findall(r'<tr id="m\d+".*?</tr>', html)
    assert len(lines) == 3 * 5 + 1 + 5
    assert all("small &amp; &lt;b&gt;" in line or "<b>" not in line for line in lines)
    assert "off by &quot;&lt;one&gt;&quot;" in html
    (ours,) = [line for line in lines if "<td>large</td><td>ours</td>" in line]
    assert "<td>ok</td>" in ours
    assert re.search(r'data-value="0\.001515">1\.5[12] ms', ours)  # of the later record
    assert 'class="ours"' in ours
    (away,) = [line for line in lines if "<td>large</td><td>away</td>" in line]
    assert "away-package is not installed" in away


def test_pictures_say_what_they_show_and_link_to_the_table(html):
    labels = re.findall(r'<svg [^>]*role="img" aria-label="([^"]+)"', html)
    for text in ("Roofline of a-cpu", "Roofline of b-cpu", "solve, float64, a-cpu: time over n",
                 "how many times faster than the fastest right peer", "our time in each record"):  # fmt: skip
        assert any(text in label for label in labels), (text, labels)
    assert "copy 1 GB/s" in html
    assert "float64 product 4 GFLOP/s" in html
    assert "revision 0123456789ab" in html
    bar = re.search(r'<rect class="(\w+)"[^>]*><title>large, solve, ours: 1\.5[12] ms.*?</title>', html)
    assert bar
    assert bar[1] == "faster"  # 1.5 ms beside 2 ms


def test_the_gate_judges_the_last_two_records(html):
    part = html[html.index('id="gate"') : html.index('id="table"')]
    assert '<span class="v-ambiguous">ambiguous</span> test, a-cpu' in part
    assert "fewer than 5 samples" in part


def test_verdicts_given_are_shown_and_other_files_refused(folder, capsys):
    verdict = folder / "verdict.json"
    verdict.write_text(json.dumps({"base": "a", "new": "b", **gate.gate(made(), made(3.0)).plain()}))
    page = folder / "page.html"
    (folder / "binary.json").write_bytes(b"\xff\xfe")
    assert main(["report", str(folder / "records"), str(verdict), "-o", str(page)]) == 0
    assert "3 records, 1 verdicts" in capsys.readouterr().out
    for words, text in (
        ([str(folder / "records" / "notes.json")], "neither a record"),
        ([str(folder / "nothing")], "No such file"),
        ([str(folder / "binary.json")], "not JSON"),
        ([str(verdict)], "no records below"),
        ([str(folder), "-o", "page.pdf"], "a .html file"),
    ):
        assert main(["report", *words]) == 2
        assert text in capsys.readouterr().err


def test_a_time_has_three_digits_and_ticks_are_few():
    assert [report_charts.duration(v) for v in (12.3456, 1.5e-5, 2e-9)] == ["12.3 s", "15 µs", "2 ns"]
    assert report_charts._ticks(0.9, 2500.0) == [1.0, 10.0, 100.0, 1000.0]
    assert report_charts._ticks(1.5, 30.0) == [2.0, 5.0, 10.0, 20.0]


PROBE = """
const out = {errors: [], network: performance.getEntriesByType("resource").length};
addEventListener("error", (e) => out.errors.push(e.message));
const shown = () => [...document.querySelectorAll("#measurements tbody tr:not([hidden])")];
const cells = (k) => shown().map((row) => row.cells[k].textContent);
const button = (k) => document.querySelector(`button[data-column="${k}"]`);
const set = (selector, value) => { const e = document.querySelector(selector); e.value = value;
  e.dispatchEvent(new Event("input", {bubbles: true})); };
out.all = document.getElementById("count").textContent;
button(6).click(); out.up = cells(6); out.sort = button(6).parentElement.getAttribute("aria-sort");
button(6).click(); out.down = cells(6);
button(3).click(); out.names = cells(3);
set('select[data-filter="0"]', "b-cpu"); out.device = cells(0);
set('select[data-filter="5"]', "wrong"); out.wrong = cells(4); out.count = document.getElementById("count").textContent;
document.querySelector("#filters button[type=reset]").click();
document.getElementById("theme").click();
setTimeout(() => {
  out.reset = document.getElementById("count").textContent;
  set("#text", "LARGE"); out.text = cells(3);
  document.getElementById("ours").click(); out.ours = cells(4);
  out.colors = [getComputedStyle(document.body).backgroundColor];
  document.getElementById("theme").click();
  out.colors.push(getComputedStyle(document.body).backgroundColor);
  const seen = [...document.querySelectorAll("a, button, select, input, [tabindex='0']")].every((e) => e.tabIndex >= 0);
  out.keyboard = seen;
  out.unnamed = [...document.querySelectorAll("button, select, input")].filter(
    (e) => !(e.textContent.trim() || e.closest("label") || e.ariaLabel)).length;
  document.documentElement.setAttribute("data-probe", JSON.stringify(out));
}, 50);
"""


def browse(page, *options):
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


@BROWSER
def test_in_a_browser_it_sorts_filters_and_logs_nothing(folder, html):
    page = folder / "probe.html"
    page.write_text(html.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    done = browse(page, "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom")
    assert "CONSOLE" not in done.stderr
    text = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert text, done.stdout[-500:]
    found = json.loads(
        text[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    assert found["errors"] == []
    assert found["network"] == 0
    assert found["all"] == found["reset"] == "21 of 21 rows"
    timed = [value for value in found["up"] if value]
    assert timed[0] == "10 ns"
    assert timed[-1] == "2 ms"
    assert found["up"][-1] == found["down"][-1] == ""  # what has no time is last either way
    assert next(value for value in found["down"] if value) == "2 ms"
    assert found["sort"] == "ascending"
    assert found["names"] == sorted(found["names"], key=str.lower)
    assert set(found["device"]) == {"b-cpu"}
    assert found["wrong"] == ["liar"]
    assert found["count"] == "1 of 21 rows"
    assert set(found["text"]) == {"large"}
    assert found["ours"] == ["ours"]
    assert len(set(found["colors"])) == 2
    assert found["keyboard"] is True
    assert found["unnamed"] == 0


def pixels(path):
    """Width, height and the colours of a PNG's first row of each 40, without a library that reads pictures."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
    assert depth == 8
    at, packed = 8, b""
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, step = zlib.decompress(packed), 4 if kind == 6 else 3
    stride = width * step + 1
    return width, height, {raw[y * stride + 1 : y * stride + 1 + width * step] for y in range(0, height, 40)}


@BROWSER
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_screenshot_shows_a_full_page(folder, html, theme):
    page = folder / f"{theme}.html"
    page.write_text(
        html.replace('<html lang="en">', f'<html lang="en" data-theme="{theme}">'), encoding="utf-8"
    )
    shot = folder / f"{theme}.png"
    browse(page, "--hide-scrollbars", "--window-size=1300,1600", f"--screenshot={shot}")
    width, height, lines = pixels(shot)
    assert (width, height) == (1300, 1600)
    assert len(lines) > 15  # a page that stayed empty has one


@BROWSER
def test_a_link_to_a_filtered_row_and_to_a_fingerprint_shows_it(folder, html):
    probe = """
    const by = (id) => document.getElementById(id), text = by("text");
    text.value = "nothing has this";
    text.dispatchEvent(new Event("input", {bubbles: true}));
    location.hash = "m3";
    const last = (row) => document.documentElement.setAttribute("data-probe", `${row} ${by("f0").open}`);
    setTimeout(() => {
      const row = !by("m3").hidden;
      location.hash = "f0";
      setTimeout(() => last(row), 50);
    }, 100);
    """
    page = folder / "links.html"
    page.write_text(html.replace("</body>", f"<script>{probe}</script></body>"), encoding="utf-8")
    done = browse(page, "--virtual-time-budget=2000", "--dump-dom")
    assert 'data-probe="true true"' in done.stdout
