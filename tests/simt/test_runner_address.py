"""The second build: what AddressSanitizer and UndefinedBehaviorSanitizer say, with file and line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from warpfront.backend import simt
from warpfront.backend.simt import Out, Struct

pytestmark = pytest.mark.simt
KERNELS = Path(__file__).parent / "kernels"


def line_of(name):
    lines = (KERNELS / "faults.cu").read_text().splitlines()
    return next(k for k, line in enumerate(lines, 1) if re.search(rf"// @ {name}$", line))


@pytest.fixture(scope="module")
def checked():
    kernels = (
        "undefined_shift",
        "halo_global",
        "halo_shared",
        "removed_barrier",
        "missing_lane",
        "copy_beyond",
    )
    return simt.AddressSimt(
        KERNELS / "faults.cu", [f"{n}<{flag}>" for n in kernels for flag in ("true", "false")]
    )


def f32(n):
    return np.arange(n, dtype=np.float32)


FAULTS = {
    "undefined_shift": ("undefined behaviour", 1, 32, lambda: [Out(np.empty(32, np.int32))]),
    "halo_global": ("address", 2, 32, lambda: [f32(64), Out(np.empty(64, np.float32)), 64]),
    "halo_shared": ("undefined behaviour", 1, 32, lambda: [f32(34), Out(np.empty(32, np.float32))]),
    "copy_beyond": ("out of bounds", 1, 32, lambda: [f32(128), Out(np.empty(32, np.float32))]),
    "missing_lane": ("missing lane", 1, 32, lambda: [np.arange(32, dtype=np.int32), np.zeros(32, np.int32)]),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_fault_is_located_and_its_twin_passes(checked, name):
    kind, grid, block, make = FAULTS[name]
    report = checked.launch(f"{name}<true>", grid, block, make())
    assert {(f.kind, f.where.file, f.where.line) for f in report.findings if f.where} >= {
        (kind, "faults.cu", line_of(name))
    }
    checked.launch(f"{name}<false>", grid, block, make()).check()


def test_results_are_those_of_the_race_build(checked):
    a = np.random.default_rng(0).standard_normal(1024)
    b = np.empty(1024)
    checked.launch("removed_barrier<false>", 1, (32, 8), [a, Out(b)]).check()
    np.testing.assert_array_equal(b.reshape(32, 32), a.reshape(32, 32).T)


def test_structures_and_patterns_run_clean():
    patterns = simt.AddressSimt(KERNELS / "patterns.cu", ["by_value", "pipeline", "histogram", "bulk"])
    a = np.arange(70.0).reshape(7, 10)
    out = np.empty((10, 7))
    patterns.launch("by_value", (2, 2), (8, 4), [Struct(a, np.int32(7), np.int32(10), Out(out)), 0.5]).check()
    i, j = np.indices(a.shape)
    np.testing.assert_array_equal(out, (a * np.array([2.0, 3.0])[(i + j) % 2] * 0.5).T)
    x = f32(96)
    y = np.empty_like(x)
    patterns.launch("pipeline", 1, 64, [x, Out(y), 3]).check()
    np.testing.assert_array_equal(y.reshape(3, 32), x.reshape(3, 32)[:, ::-1])
    bins = np.zeros(16, np.int32)
    patterns.launch("histogram", 2, 32, [np.arange(80, dtype=np.int32) % 16, bins, 80]).check()
    np.testing.assert_array_equal(bins, np.full(16, 5))
    z = np.empty(128, np.float32)
    patterns.launch("bulk", 1, 64, [f32(128), Out(z)]).check()
    np.testing.assert_array_equal(z.reshape(2, 64), f32(128).reshape(2, 64)[:, ::-1])
