"""The worked example of docs/batched.md prints what the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "batched.md").read_text(encoding="utf-8")


def test_the_example_runs_as_printed():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    expected = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == expected


def test_the_measured_part_is_what_the_record_says():
    tool = ROOT / "tools" / "device" / "batched_page.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
