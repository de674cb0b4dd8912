"""The runner's own tests: kernels built once per session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warpfront.backend import simt

KERNELS = Path(__file__).parent / "kernels"


def pytest_collection_modifyitems(items):
    """Skip by name where a tool of the runner is missing (``test_toolchain.py`` fails there in CI)."""
    reason = simt.available()
    for item in items if reason else ():
        if item.get_closest_marker("simt"):
            item.add_marker(pytest.mark.skip(reason=reason))


def fault_names():
    text = (KERNELS / "faults.cu").read_text()
    return re.findall(r"template <bool Faulty> __global__ void (\w+)\(", text)


@pytest.fixture(scope="session")
def faults():
    names = [f"{n}<{flag}>" for n in fault_names() for flag in ("true", "false")]
    return simt.Simt.build(KERNELS / "faults.cu", names)


@pytest.fixture(scope="session")
def patterns():
    text = (KERNELS / "patterns.cu").read_text()
    return simt.Simt.build(KERNELS / "patterns.cu", re.findall(r"__global__ void (\w+)\(", text))
