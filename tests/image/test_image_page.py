"""The worked example of docs/image.md prints what the page says."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_worked_example_prints_what_the_page_says():
    page = (ROOT / "docs" / "image.md").read_text(encoding="utf-8")
    code, said = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", page, re.DOTALL).groups()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == said


def test_the_measured_part_is_what_the_records_give():
    spec = importlib.util.spec_from_file_location("build_image_page", ROOT / "tools" / "build_image_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(["--check"]) == 0, "run python tools/build_image_page.py"
