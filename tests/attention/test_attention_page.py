"""The example of docs/attention.md is run, and prints what the page shows; every file of the room is on the page."""

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = PAGE[PAGE.index(code) :].split("```text\n")[1].split("```")[0]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "docs/attention.md", "exec"), {})
    assert said.getvalue() == shown


def test_every_file_of_the_room_is_on_the_page():
    room = ROOT / "src" / "warpfront" / "attention"
    files = {f.name for f in room.iterdir() if f.suffix in (".py", ".toml")} - {"__init__.py"}
    assert {name for name in files if f"`{name}`" not in PAGE} == set()


def test_sizes_that_the_page_names():
    from warpfront.attention import _problem, _tile_kernels

    assert f"{_tile_kernels.ROWS} rows" in PAGE
    assert f"tile of {_tile_kernels.KEYS} keys" in PAGE
    assert f"up to {_tile_kernels.FEW} rows" in PAGE
    assert f"tiles of {_problem.KEY_TILE} keys" in PAGE
    assert f"{4 * _tile_kernels.scratch_size(128) / 1e6:.1f} MB for heads of 128" in PAGE
