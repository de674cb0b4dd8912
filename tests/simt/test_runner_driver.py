"""The Python side: build cache, argument checks, launch checks, reports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import warpfront
from warpfront.backend import simt
from warpfront.backend.simt import In, Out, Struct
from warpfront.backend.simt.findings import SimtError
from warpfront.errors import InvalidValueError, NotSupportedError

pytestmark = pytest.mark.simt

SOURCE = """
#include "part.cuh"
struct Pair { float a; double b; };
template <typename T> __global__ void scale(const T *x, T *y, int n, T factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = PART(x[i]) * factor;
}
__global__ void by_value(Pair p, double *out) { out[0] = p.a + p.b; }
__global__ void stop(int n) { assert(n < 3); }
__global__ void forever(const int *flag) { while (simt::relaxed_load(flag) == 0) {} }
__global__ void outside(const float *p, float *q) { q[0] = p[1 << 28]; }
__global__ void pointers(const float *p, float *q) { q[0] = p ? 1.0f : 0.0f; }
"""
NAMES = ["scale<float>", "scale<double>", "by_value", "stop", "forever", "outside", "pointers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("driver")
    (path / "small.cu").write_text(SOURCE, encoding="utf-8")
    (path / "part.cuh").write_text("#define PART(v) (v)\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def small(folder):
    return simt.Simt.build(folder / "small.cu", NAMES)


def test_launch_computes_and_reports(small):
    x = np.arange(70, dtype=np.float32)
    y = np.zeros_like(x)
    report = small.launch("scale<float>", 3, 32, [x, Out(y), 70, 2.5])
    assert report.ok
    assert report.check() is report
    assert report.accesses == 4 * 2 * 70
    np.testing.assert_array_equal(y, x * np.float32(2.5))


def test_cache_is_keyed_by_everything_that_enters_the_build(folder, tmp_path):
    source, names = folder / "small.cu", ["scale<float>"]

    def at(**options):
        return simt.build(source, names, folder=tmp_path / "cache", **options).library

    first = at()
    stamp = first.stat().st_mtime_ns
    assert at() == first
    assert first.stat().st_mtime_ns == stamp, "a second request compiles nothing"
    assert at(defines=[("SPEED", "2")]) != first
    (folder / "part.cuh").write_text("#define PART(v) (v + 0)\n", encoding="utf-8")
    try:
        assert at() != first, "a header's text is part of the key"
    finally:
        (folder / "part.cuh").write_text("#define PART(v) (v)\n", encoding="utf-8")
    assert not list((tmp_path / "cache").glob(".new-*"))


def test_cache_drops_what_was_unused_for_longest(folder, tmp_path):
    kept = [
        simt.build(folder / "small.cu", ["stop"], folder=tmp_path, defines=[("N", str(k))]) for k in range(3)
    ]
    week = 7 * 24 * 3600
    for age, built in enumerate(kept):
        os.utime(built.library.parent, (time.time() - (10 - age) * week,) * 2)
    evict = import_module("warpfront.backend.simt.build")._evict
    evict(tmp_path, 2)  # three builds and the runtime, which is new
    assert [built.library.exists() for built in kept] == [False, False, True]
    evict(tmp_path, 0)
    assert len(list(tmp_path.iterdir())) == 1, "what was used today stays"


def test_a_damaged_entry_is_built_again(folder, tmp_path):
    built = simt.build(folder / "small.cu", ["stop"], folder=tmp_path)
    (built.library.parent / "build.json").unlink()
    again = simt.build(folder / "small.cu", ["stop"], folder=tmp_path)
    assert again == built
    assert again.library.exists()


def test_several_files_are_built_at_once(folder, tmp_path):
    requests = [(folder / "small.cu", ["stop"]), (folder / "small.cu", ["by_value"])]
    assert [b.names for b in simt.build_many(requests, folder=tmp_path)] == [("stop",), ("by_value",)]


def test_two_processes_may_build_the_same_file_at_once(folder, tmp_path):
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(Path(warpfront.__file__).parents[1])!r});"
        "from warpfront.backend import simt;"
        f"print(simt.build(pathlib.Path({str(folder / 'small.cu')!r}), ['stop'], "
        f"folder=pathlib.Path({str(tmp_path)!r})).library)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = {child.communicate(timeout=300)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0]
    assert len(said) == 1


def test_a_file_that_does_not_compile_says_where(tmp_path):
    bad = tmp_path / "bad.cu"
    bad.write_text("__global__ void k(int *p) { p[0] = nothing; }\n", encoding="utf-8")
    with pytest.raises(simt.BuildError, match=r"bad\.cu:1.*nothing"):
        simt.build(bad, ["k"], folder=tmp_path / "cache")


def test_missing_compiler_is_named(monkeypatch, folder):
    monkeypatch.setattr(import_module("warpfront.backend.simt.build"), "_missing", lambda: ("g++",))
    assert "g++" in simt.available()
    with pytest.raises(NotSupportedError, match=r"g\+\+"):
        simt.build(folder / "small.cu", ["stop"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (lambda x, y: [x, y, 70], "takes 4 arguments, got 3"),
        (lambda x, y: [x.astype(np.float64), y, 70, 1.0], "argument 0 points to 4-byte items"),
        (lambda x, y: [x[::2], y, 35, 1.0], "argument 0 must be a C-contiguous array"),
        (lambda x, y: [x, y, 70.5, 1.0], "argument 2 must be a number"),
        (lambda x, y: [x, y, "70", 1.0], "argument 2 must be a number"),
        (lambda x, y: [x, x.data, 70, 1.0], "argument 1 must be a C-contiguous array"),
    ],
)
def test_wrong_arguments_are_refused(small, args, message):
    x = np.arange(70, dtype=np.float32)
    with pytest.raises(InvalidValueError, match=message):
        small.launch("scale<float>", 3, 32, args(x, np.zeros_like(x)))


def test_an_array_that_may_not_be_written_is_refused(small):
    x = np.arange(4, dtype=np.float32)
    y = np.zeros_like(x)
    y.flags.writeable = False
    with pytest.raises(InvalidValueError, match="argument 1 is written"):
        small.launch("scale<float>", 1, 4, [x, y, 4, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 0}, "grid must be"),
        ({"block": (32, 64)}, "at most 1024 threads"),
        ({"block": (1, 1, 1, 1)}, "block must be"),
        ({"grid": 1 << 20, "block": 32}, "threads in a grid"),
        ({"shared_bytes": 1 << 20}, "shared_bytes must be"),
        ({"schedules": 0}, "schedules and resident"),
        ({"name": "scale<int>"}, "was not built"),
    ],
)
def test_wrong_launches_are_refused(small, options, message):
    with pytest.raises(InvalidValueError, match=message):
        small.launch(**{"name": "stop", "grid": 1, "block": 1, "args": [1], **options})


def test_structures_follow_the_layout_of_c(small):
    out = np.zeros(1)
    small.launch("by_value", 1, 1, [Struct(np.float32(1.5), np.float64(2.25)), Out(out)]).check()
    assert out[0] == 3.75
    record = np.zeros((), np.dtype([("a", "f4"), ("b", "f8")], align=True))[()]
    small.launch("by_value", 1, 1, [record, Out(out)]).check()
    assert out[0] == 0.0
    with pytest.raises(InvalidValueError, match="structure of 16 bytes"):
        small.launch("by_value", 1, 1, [Struct(np.float32(1.5)), Out(out)])
    with pytest.raises(InvalidValueError, match="NumPy scalar"):
        small.launch("by_value", 1, 1, [Struct(1.5, 2.0), Out(out)])


def test_a_null_pointer_is_none(small):
    q = np.zeros(1, np.float32)
    small.launch("pointers", 1, 1, [None, Out(q)]).check()
    assert q[0] == 0.0


def test_an_input_may_be_protected_where_its_type_does_not(small):
    x = np.ones(4, np.float32)
    report = small.launch("scale<float>", 1, 4, [x, In(np.zeros(4, np.float32)), 4, 1.0])
    assert report.kinds() == {"write to read-only argument"}
    with pytest.raises(SimtError, match="write to read-only argument"):
        report.check()


def test_traps_and_wild_accesses_end_the_launch_and_not_the_process(small):
    report = small.launch("stop", 2, 32, [7])
    assert report.kinds() == {"trap"}
    assert "assert(n < 3)" in report.findings[0].message
    report = small.launch("outside", 1, 1, [np.zeros(4, np.float32), Out(np.zeros(1, np.float32))])
    assert report.kinds() == {"wild access"}
    assert report.findings[0].where.file == "small.cu"
    small.launch("stop", 2, 32, [1]).check()


def test_a_wait_without_end_is_reported(small):
    report = small.launch("forever", 1, 2, [np.zeros(1, np.int32)], schedules=2)
    assert report.kinds() == {"deadlock"}


def test_inputs_are_unchanged_and_first_schedule_is_returned(small):
    x = np.random.default_rng(3).standard_normal(64)
    before = x.copy()
    y = np.full(64, -1.0)
    small.launch("scale<double>", 2, 32, [x, y, 64, 3.0], schedules=6).check()
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(y, x * 3.0)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of a process's mappings")
def test_a_launch_leaves_no_mappings_behind(tmp_path):
    """A process has room for some 65,000: stacks with their guards, kept for every kernel file, once used them up."""
    source = tmp_path / "many.cu"
    source.write_text("__global__ void many(int* x) { if (threadIdx.x == 0) x[blockIdx.x] = 1; }\n")
    runner = simt.Simt.build(source, ("many",))

    def mappings():
        return len(Path("/proc/self/maps").read_text().splitlines())

    runner.launch("many", 1, 32, [np.zeros(1, np.int32)], schedules=1)
    before = mappings()
    report = runner.launch("many", 2, 512, [np.zeros(2, np.int32)], schedules=1)
    assert not report.findings
    assert mappings() < before + 200
