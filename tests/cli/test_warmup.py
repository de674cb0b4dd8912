"""``warpfront warmup``: what it compiles is in the cache afterwards, failures are named, wrong options refused."""

import os
import subprocess
import sys

import pytest

from warpfront.cli import _warm


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "warpfront", "warmup", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_one_room_is_compiled_into_the_cache_and_is_there_the_second_time(tmp_path):
    first = run("--room", "graph", NUMBA_CACHE_DIR=str(tmp_path))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("graph bfs")
    assert "1 of 1" in first.stdout
    made = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbi")}
    assert made
    assert run("--room", "graph", NUMBA_CACHE_DIR=str(tmp_path)).returncode == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nbi")} == made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--room", "attic"), "--room is 'attic'; allowed are sparse"),
        (("--dtype", "float16"), "--dtype is 'float16'; allowed are float32"),
        (("--room", "batched", "--dtype", "complex64"), "nothing to compile"),
    ],
)
def test_wrong_options(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_asked_for():
    jobs = _warm.jobs_of(["sparse", "image"], ["float64", "complex64"])
    assert len(jobs) == 8
    assert ("image", "edges", "float64") in jobs
    assert {job[2] for job in jobs if job[0] == "sparse"} == {"float64", "complex64"}


def test_a_failure_is_named(monkeypatch):
    monkeypatch.setitem(_warm.JOBS["sparse"], "ldlt", (_warm.ANY, lambda dtype: None))
    (done,) = _warm.warm([("sparse", "nothing", "float64")], 1)
    assert "KeyError" in done.error


@pytest.mark.parametrize("room", ["sparse", "dense", "batched", "image", "montecarlo"])
def test_every_call_works(room):
    for known, call in _warm.JOBS[room].values():
        call(known[0])
