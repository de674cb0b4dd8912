"""The worked example of docs/lu.md prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_worked_example_prints_what_the_page_says():
    page = (ROOT / "docs" / "lu.md").read_text(encoding="utf-8")
    code, said = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", page, re.DOTALL).groups()
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == said
