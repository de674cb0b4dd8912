"""Every seeded fault is caught and located in 20 of 20 runs; its correct twin passes the same schedules."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from warpfront.backend.simt import Out

pytestmark = pytest.mark.simt
SOURCE = Path(__file__).parent / "kernels" / "faults.cu"
RUNS = 20


def lines_of(name):
    return {
        k for k, line in enumerate(SOURCE.read_text().splitlines(), 1) if re.search(rf"// @ {name}$", line)
    }


def f32(n):
    return np.arange(n, dtype=np.float32)


def zeros(n, dtype=np.float32):
    return np.zeros(n, dtype)


def ints(n):
    return np.zeros(n, np.int32)


def out(n, dtype=np.float32):
    return Out(np.empty(n, dtype))


# name: kinds of which one has to be reported, grid, block, arguments (made anew for every run), dynamic
# shared bytes, expected output of the twin (index of the argument, value).
CASES = {
    "removed_barrier": ({"race"}, 1, (32, 8), lambda: [np.arange(1024.0), out(1024, float)], 0,
                        (1, np.arange(1024.0).reshape(32, 32).T.ravel())),
    "early_exit": ({"exit before barrier"}, 1, 64, lambda: [f32(50), zeros(50), 50], 0, None),
    "unordered_signal": ({"race"}, 2, 32, lambda: [zeros(32), ints(1), out(32)], 0,
                         (2, 3 * f32(32))),
    "halo_shared": ({"out of bounds"}, 1, 32, lambda: [f32(34), out(32)], 0, (1, 3 * (f32(32) + 1))),
    "halo_global": ({"out of bounds"}, 2, 32, lambda: [f32(64), out(64), 64], 0,
                    (1, np.append(2 * f32(63) + 1, np.float32(63)))),
    "missing_lane": ({"missing lane"}, 1, 32, lambda: [np.arange(32, dtype=np.int32), ints(32)], 0,
                     (1, np.repeat(4 * np.arange(16, dtype=np.int32) + 1, 2))),
    "absent_source": ({"shuffle from absent lane"}, 1, 32,
                      lambda: [np.arange(32, dtype=np.int32), out(32, np.int32)], 0,
                      (1, np.r_[np.full(16, 15), np.arange(16, 32)].astype(np.int32))),
    "two_writers": ({"race"}, 1, 64, lambda: [ints(1)], 0, (0, np.ones(1, np.int32))),
    "stale_read": ({"race"}, 2, 1, lambda: [zeros(1), ints(1), out(1)], 0, (2, np.float32([7]))),
    "mixed_flag": ({"race"}, 2, 1, lambda: [ints(1), out(1, np.int32)], 0, (1, np.ones(1, np.int32))),
    "last_block": ({"race"}, 4, 1, lambda: [out(4), zeros(1, np.uint32), zeros(1)], 0, (2, np.float32([10]))),
    "narrow_fence": ({"race"}, 2, 1, lambda: [zeros(1), ints(1), zeros(1), out(1)], 0,
                     (3, np.float32([5]))),
    "warp_order": ({"race"}, 1, 32, lambda: [np.arange(32, dtype=np.int32), out(32, np.int32)], 0,
                   (1, np.arange(32, dtype=np.int32)[::-1])),
    "divergent_barrier": ({"divergent barrier"}, 1, 64, lambda: [out(64, np.int32)], 0,
                          (0, np.full(64, 2, np.int32))),
    "lost_signal": ({"deadlock"}, 2, 1, lambda: [ints(1), ints(1)], 0, (1, np.ones(1, np.int32))),
    "unwritten_shared": ({"uninitialised read"}, 1, 32, lambda: [f32(32), out(32)], 128, (1, f32(32)[::-1])),
    "unwritten_output": ({"uninitialised read"}, 1, 32, lambda: [out(32), 32], 0,
                         (0, np.ones(32, np.float32))),
    "early_copy": ({"read before asynchronous copy was waited for"}, 1, 32, lambda: [f32(128), out(32)], 0,
                   (1, f32(128)[:95:-1])),
    "copy_beyond": ({"out of bounds"}, 1, 32, lambda: [f32(128), out(32)], 0, (1, f32(128)[:95:-1])),
    "misaligned": ({"misaligned access"}, 1, 8, lambda: [f32(36), out(8)], 0,
                   (1, f32(32).reshape(8, 4).sum(axis=1))),
    "written_input": ({"write to read-only argument"}, 1, 32, lambda: [f32(32), out(32)], 0, (1, f32(32))),
}  # fmt: skip


def run(faults, name, faulty, seed):
    _, grid, block, make, shared, _ = CASES[name]
    args = make()
    kernel = f"{name}<{'true' if faulty else 'false'}>"
    return faults.launch(kernel, grid, block, args, shared_bytes=shared, seed=seed), args


@pytest.mark.parametrize("name", sorted(CASES))
def test_fault_is_caught_and_located_in_every_run(faults, name):
    kinds, lines = CASES[name][0], lines_of(name)
    assert lines, "the kernel file marks where the fault is"
    for k in range(RUNS):
        report, _ = run(faults, name, True, 4 * k)
        hits = [f for f in report.findings if f.kind in kinds and f.where and f.where.line in lines]
        assert hits, f"run {k}: {report}"
        assert all(f.where.file == "faults.cu" for f in hits)
        if "race" in kinds:
            assert any(f.other and f.other.line in lines for f in hits), f"run {k}: {report}"


@pytest.mark.parametrize("name", sorted(CASES))
def test_correct_twin_has_no_finding_and_the_right_output(faults, name):
    expected = CASES[name][5]
    for k in range(RUNS):
        report, args = run(faults, name, False, 4 * k)
        report.check()
        if expected is not None:
            got = args[expected[0]]
            np.testing.assert_array_equal(got.array if isinstance(got, Out) else got, expected[1])


def test_every_fault_kernel_has_a_case():
    text = SOURCE.read_text()
    kernels = set(re.findall(r"template <bool Faulty> __global__ void (\w+)\(", text))
    assert kernels - {"undefined_shift"} == set(CASES)  # that one is for the address build


@pytest.mark.parametrize("name", ["removed_barrier", "unordered_signal", "missing_lane"])
def test_runs_are_a_function_of_the_seed(faults, name):
    first, _ = run(faults, name, True, 2)
    again, _ = run(faults, name, True, 2)
    assert first.digests == again.digests
    assert first.findings == again.findings
    assert len(set(run(faults, name, False, 0)[0].digests)) > 1, (
        "the default schedules differ from one another"
    )
