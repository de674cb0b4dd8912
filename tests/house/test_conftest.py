"""The suite refuses to run against an installed copy that differs from the source beside it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("change", "code"), [(b"", 0), (b"# older\n", 4)])
def test_a_stale_installation_is_refused(tmp_path, change, code):
    copy = tmp_path / "warpfront"
    shutil.copytree(ROOT / "src" / "warpfront", copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "report.py").open("ab") as file:
        file.write(change)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", __file__],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("install it again" in done.stderr) == bool(change)
