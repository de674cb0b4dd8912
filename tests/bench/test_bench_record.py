"""Records: round trip, and what is none is refused with its place. Fingerprints: fields and comparison."""

import copy
import hashlib
import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import warpfront
from warpfront.bench import fingerprint, record
from warpfront.bench.case import Case, Verdict
from warpfront.bench.timing import Timing
from warpfront.errors import FormatError

JUDGED = Verdict(True, 1e-17, 1e-8, "", {"normwise": 1e-17, "inertia": [2, 1, 0]})
TIMING = Timing("ok", "", (2e-3, 1e-3, 4e-3), (1e-3,) * 3, 1, 1, 0.5, 12.0, 0.0, JUDGED)
CASE = Case(lambda: None, lambda s: s, lambda s, o: JUDGED, flops=10.0, bytes=80.0, algorithm="LDL^T")


@pytest.fixture
def made():
    contenders = {
        "ours": record.measurement(TIMING, CASE, "1.0", 4096),
        "slow": record.measurement(replace(TIMING, seconds=(5e-3,) * 3), CASE),
        "quick but wrong": record.measurement(replace(TIMING, status="wrong", seconds=(1e-4,) * 3), CASE),
        "away": record.absent("some-package"),
    }
    row = record.Row("tiny", "solve", {"n": 3, "nnz": 5}, "float64", "made up", 0, ["ours"], contenders)
    return record.Record(
        record.SCHEMA, "test", "a-cpu", record.stamp(), {"rounds": 3}, {}, {"cpu": {"cores": 2}}, [row]
    )


def test_measurement_keeps_samples_and_their_statistics(made):
    ours = made.rows[0].contenders["ours"]
    assert ours.seconds == [2e-3, 1e-3, 4e-3]
    assert (ours.median, ours.minimum, ours.repeats) == (2e-3, 1e-3, 3)
    assert ours.p95 == pytest.approx(3.8e-3)
    assert (ours.first_call_seconds, ours.first_call_jit_seconds) == (0.5, 12.0)
    assert (ours.flops, ours.bytes, ours.workspace_bytes, ours.algorithm) == (10.0, 80.0, 4096, "LDL^T")
    assert (ours.error, ours.error_limit, ours.values["inertia"]) == (1e-17, 1e-8, [2, 1, 0])


def test_round_trip(tmp_path, made):
    path = tmp_path / "deep" / "test.json"
    record.write(made, path)
    assert record.read(path) == made
    assert json.loads(path.read_text())["schema"] == "warpfront.bench/1"


def test_not_finite_becomes_null(tmp_path, made):
    row = made.rows[0]
    bad = replace(row.contenders["ours"], error=math.inf, values={"componentwise": math.nan})
    path = tmp_path / "r.json"
    record.write(replace(made, rows=[replace(row, contenders={"ours": bad})]), path)
    back = record.read(path).rows[0].contenders["ours"]
    assert (back.error, back.values) == (None, {"componentwise": None})


def test_fastest_peer_counts_right_outputs_only_when_asked(made):
    assert record.fastest_peer(made.rows[0]) == "slow"
    assert record.fastest_peer(made.rows[0], right=False) == "quick but wrong"
    alone = replace(made.rows[0], ours=["ours", "slow", "quick but wrong"])
    assert record.fastest_peer(alone) is None


def change(path, *keys, value=None, drop=False):
    data = json.loads(path.read_text())
    target = data
    for key in keys[:-1]:
        target = target[key]
    if drop:
        del target[keys[-1]]
    else:
        target[keys[-1]] = value
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("keys", "value", "text"),
    [
        (("schema",), "warpfront.bench/0", r"'warpfront.bench/0'"),
        (("rows",), {}, r"\.rows: found dict"),
        (("rows", 0, "case"), 3, r"\.rows\[0\]\.case: found int, expected str"),
        (("rows", 0, "extra"), 3, r"\.rows\[0\]: has the unknown entry 'extra'"),
        (("rows", 0, "shapes", "n"), True, r"shapes\.n: found bool"),
        (("rows", 0, "ours"), ["nobody"], r"'nobody', which is no contender"),
        (("rows", 0, "contenders", "ours", "seconds"), [1.0], r"repeats is 3, of 1"),
        (("rows", 0, "contenders", "away", "status"), "ok", r"ok without a sample"),
        (("rows", 0, "contenders", "ours", "median"), "fast", r"median: found str"),
        (("device",), "../elsewhere", r"plain file names"),
    ],
)
def test_a_wrong_record_is_refused_with_the_place(tmp_path, made, keys, value, text):
    path = tmp_path / "r.json"
    record.write(made, path)
    change(path, *keys, value=value)
    with pytest.raises(FormatError, match=text) as caught:
        record.read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "keys", [("fingerprint",), ("rows", 0, "seed"), ("rows", 0, "contenders", "ours", "p95")]
)
def test_a_missing_entry_is_refused(tmp_path, made, keys):
    path = tmp_path / "r.json"
    record.write(made, path)
    change(path, *keys, drop=True)
    with pytest.raises(FormatError, match=f"lacks '{keys[-1]}'"):
        record.read(path)


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "{}"])
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(FormatError):
        record.read(path)


@pytest.fixture(scope="module")
def taken():
    return fingerprint.cpu_fingerprint(("numpy", "no-such-package-at-all"))


def test_fingerprint_says_what_delivery_asks(taken):
    assert set(taken) == {
        "cpu", "memory_bytes", "threads", "system", "python", "packages", "blas", "environment", "code",
    }  # fmt: skip
    assert {"model", "cores", "affinity", "caches", "frequency", "isa"} <= set(taken["cpu"])
    assert taken["packages"]["no-such-package-at-all"] is None
    import numpy

    assert taken["packages"]["numpy"] == numpy.__version__
    assert taken["threads"] >= 1
    libraries = [pool for pool in taken["blas"] if pool["user_api"] == "blas"]
    assert libraries
    assert all({"version", "num_threads", "architecture"} <= set(pool) for pool in libraries)
    json.dumps(taken, allow_nan=False)


def test_fingerprint_names_no_computer_and_no_folder(taken):
    text = json.dumps(taken)
    assert str(Path.home()) not in text
    assert str(Path(warpfront.__file__).parent) not in text
    assert f'"{os.uname().nodename}"' not in text


def test_source_hash_notices_one_byte(monkeypatch, tmp_path):
    package = tmp_path / "warpfront"
    (package / "bench").mkdir(parents=True)
    (package / "bench" / "fingerprint.py").write_text("x = 1\n")
    (package / "kernel.cu").write_text("int x;\n")
    monkeypatch.setattr(fingerprint, "__file__", str(package / "bench" / "fingerprint.py"))
    first = fingerprint.source_hash()
    assert first == fingerprint.source_hash()
    (package / "kernel.cu").write_text("int y;\n")
    assert fingerprint.source_hash() != first
    assert len(first) == len(hashlib.sha256().hexdigest())


def test_revision_and_dirty_are_those_of_the_repository_that_tracks_the_source(tmp_path):
    def git(*words):
        done = subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(tmp_path), *words],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    source = tmp_path / "pkg"
    source.mkdir()
    (source / "__init__.py").write_text("")
    git("init", "-q")
    assert fingerprint._revision(source) == (None, None)  # not tracked: an installed copy inside a clone
    git("add", "pkg/__init__.py")
    git("commit", "-q", "-m", "x")
    assert fingerprint._revision(source) == (git("rev-parse", "HEAD"), False)
    (source / "new.py").write_text("")
    assert fingerprint._revision(source) == (git("rev-parse", "HEAD"), True)


def test_variables_that_change_blas_are_kept_and_paths_are_not():
    kept = fingerprint._environment(
        {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "2", "HOME": "/h", "NUMBA_CACHE_DIR": "/h/c"}
    )
    assert kept == {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "2", "NUMBA_CACHE_DIR": "(a path)"}


def test_differences_name_what_makes_two_records_incomparable(taken):
    other = copy.deepcopy(taken)
    other["code"]["revision"] = "another"
    assert fingerprint.differences(taken, other) == []
    other["environment"]["OPENBLAS_CORETYPE"] = "Haswell"
    other["cpu"]["model"] = "another"
    assert fingerprint.differences(taken, other) == ["cpu.model", "environment"]
