"""The example of docs/bfs.md is run, and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "bfs.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = PAGE[PAGE.index(code) :].split("```text\n")[1].split("```")[0]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "docs/bfs.md", "exec"), {})
    assert said.getvalue() == shown


def test_every_file_of_the_room_is_on_the_page():
    room = Path(__file__).resolve().parents[2] / "src" / "warpfront" / "graph"
    files = {f.name for f in room.iterdir() if f.suffix in (".py", ".cu", ".cuh")} - {"__init__.py"}
    assert {name for name in files if f"`{name}`" not in PAGE} == set()
