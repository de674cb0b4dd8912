"""The examples of docs/montecarlo.md run, in order, and print what the page says."""

import contextlib
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "montecarlo.md"


def test_examples_print_what_the_page_says():
    text = PAGE.read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(examples) == text.count("```python") >= 2
    names = {}
    for code, expected in examples:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, str(PAGE), "exec"), names)
        assert said.getvalue() == expected


def test_figures_are_those_of_the_record():
    sys.path.insert(0, str(ROOT / "tools" / "device"))
    try:
        import montecarlo_page
    finally:
        sys.path.pop(0)
    assert montecarlo_page.text() in PAGE.read_text(encoding="utf-8"), "run tools/device/montecarlo_page.py"
