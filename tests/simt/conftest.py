"""The runner's own tests: kernels built once per session, skipped by name where there is no g++."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warpfront.backend import simt

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture(scope="session", autouse=True)
def toolchain():
    reason = simt.available()
    if reason:
        pytest.skip(reason)


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
