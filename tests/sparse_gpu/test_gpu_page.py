"""The measured part of docs/sparse_gpu.md is what the record says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_measured_part_is_what_the_record_says():
    tool = ROOT / "tools" / "device" / "sparse_gpu_page.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
