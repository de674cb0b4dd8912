"""Runs `interpreted_cases.py`: Triton's interpreter is chosen at import, so it has a process of its own."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None,
    reason="needs torch and triton (extra test, on Linux x86-64)",
)


def run(marks):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    # Products of what is not finite are NumPy's warnings there, and meant.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", marks, "-p", "no:cacheprovider", "-W", "default",
               str(HERE / "interpreted_cases.py")]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=550, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout


def test_a_covering_part():
    run("not slow")


@pytest.mark.slow
def test_the_rest():
    run("slow")
