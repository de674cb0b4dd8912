"""The examples of docs/montecarlo.md run, in order, and print what the page says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "montecarlo.md"


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
