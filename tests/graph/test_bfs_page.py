"""The example of docs/bfs.md is run, and prints what the page shows."""

import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "bfs.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = PAGE[PAGE.index(code) :].split("```text\n")[1].split("```")[0]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "docs/bfs.md", "exec"), {})
    assert said.getvalue() == shown


def test_every_file_of_the_room_is_on_the_page():
    room = ROOT / "src" / "warpfront" / "graph"
    files = {f.name for f in room.iterdir() if f.suffix in (".py", ".cu", ".cuh")} - {"__init__.py"}
    assert {name for name in files if f"`{name}`" not in PAGE} == set()


def test_the_figures_are_those_of_the_record():
    """`python tools/device/graph_report.py` writes them."""
    path, shown = re.search(r"<!-- bfs figures: (\S+) -->\n(.*?)<!-- end", PAGE, re.DOTALL).groups()
    record = ROOT / "benchmarks" / "records" / path
    if not record.is_file():
        assert shown == ""
        pytest.skip(f"there is no record {path} yet, and the page shows no figures")
    spec = importlib.util.spec_from_file_location(
        "graph_report", ROOT / "tools" / "device" / "graph_report.py"
    )
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    assert shown == report.page_tables(json.loads(record.read_text(encoding="utf-8")))
