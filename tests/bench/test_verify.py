"""`warpfront verify` on made-up rooms: what passed, failed and not run mean, and the exit code."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from warpfront.backend import compile as compilers
from warpfront.bench import verify as bench
from warpfront.bench import verify_suites
from warpfront.bench.verify import FAILED, NOT_RUN, PASSED, Check, NotRun, Options, Room
from warpfront.errors import InvalidValueError, NotSupportedError

TESTS = """
import pytest

def test_good():
    pass

def test_bad():
    assert 1 + 1 == 3, "arithmetic"

@pytest.mark.skip(reason="no such device")
def test_absent():
    pass

@pytest.mark.slow
def test_slow():
    raise RuntimeError("only with --all")
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree with one test file."""
    (tmp_path / "src" / "warpfront").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_fake.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: slow\n", encoding="utf-8")
    monkeypatch.setattr(verify_suites, "source_tree", lambda: tmp_path)
    return tmp_path


def room(select, suite="plan", **more):
    return Room("fake", {suite: ("tests", "-k", select)}, **more)


def run_one(chosen, suite="plan", **options):
    (result,) = bench.verify([chosen], [suite], Options(**options)).results
    return result


def test_passing_tests_pass_and_are_listed(tree):
    result = run_one(room("good"))
    assert (result.status, result.reason) == (PASSED, "")
    assert [(c.name.rsplit("::", 1)[1], c.status) for c in result.checks] == [("test_good", PASSED)]


def test_a_failing_test_is_a_finding_with_its_message(tree):
    result = run_one(room("good or bad"))
    assert result.status == FAILED
    assert (result.count(PASSED), result.count(FAILED)) == (1, 1)
    assert "arithmetic" in result.reason


def test_a_skipped_test_does_not_count_as_passed(tree):
    result = run_one(room("good or absent"))
    assert result.status == NOT_RUN
    assert "no such device" in result.reason


def test_selecting_nothing_is_a_failure(tree):
    result = run_one(room("nothing_is_called_this"))
    assert result.status == FAILED
    assert "no test is selected" in result.reason


def test_slow_tests_run_only_under_all(tree):
    assert run_one(room("good or slow")).status == PASSED
    assert "only with --all" in run_one(room("good or slow"), everything=True).reason


def test_a_child_that_dies_is_a_finding(tree):
    (tree / "tests" / "test_fake.py").write_text(
        "import os\ndef test_good():\n    os._exit(3)\n", encoding="utf-8"
    )
    result = run_one(room("good"))
    assert result.status == FAILED
    assert "exit code 3" in result.reason


@dataclass
class Resources:
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass
class Cubin:
    names: dict
    resources: dict


def fake_kernels():
    return [("a.cu", ("k<1>", "k<2>"), 75), ("b.cu", ("q",), 90)]


class _Path(str):
    name = property(str)


@pytest.fixture
def compiler(monkeypatch):
    """Records what is compiled; ``say`` decides how a compilation ends."""
    seen = []

    def compile_one(source, names, arch, *, compiler):
        seen.append((str(source), arch, compiler))
        answer = compile_one.say(source, arch)
        if isinstance(answer, Exception):
            raise answer
        return Cubin({n: n for n in answer}, {n: Resources(32, 0, 8) for n in answer})

    compile_one.say = lambda source, arch: next(n for s, n, _ in fake_kernels() if s == source)
    compile_one.seen = seen
    monkeypatch.setattr(compilers, "build", compile_one)
    return compile_one


def checks(options):
    kernels = [(_Path(s), names, least) for s, names, least in fake_kernels()]
    return [c for name in options.compilers for c in verify_suites.build_checks(kernels, options, name)]


def test_build_covers_every_architecture_that_can_run_the_file(compiler):
    done = checks(Options(compilers=("nvrtc", "nvcc"), architectures=("sm_80", "sm_90")))
    assert {c.status for c in done} == {PASSED}
    assert sorted(compiler.seen) == sorted(
        (file, arch, name)
        for name in ("nvrtc", "nvcc")
        for file, arch in (("a.cu", "sm_80"), ("a.cu", "sm_90"), ("b.cu", "sm_90"))
    )
    assert done[0].data == {name: {"registers": 32, "spill_bytes": 8} for name in ("k<1>", "k<2>")}


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (compilers.CompileError("it warns", "line 3: unused"), FAILED, "unused"),
        (NotSupportedError("there is no compiler here"), NOT_RUN, "no compiler"),
        (("k<1>",), FAILED, "not in the cubin: k<2>"),
    ],
)
def test_build_says_what_went_wrong(compiler, answer, status, text):
    compiler.say = lambda source, arch: answer
    first = checks(Options(architectures=("sm_80",)))[0]
    assert first.status == status
    assert text in first.detail


def test_device_suites_are_not_run_without_a_gpu(tree, monkeypatch):
    def absent():
        raise NotRun("no GPU: made up")

    monkeypatch.setattr(verify_suites, "_need_gpu", absent)
    record = bench.verify([room("good", "cuda")], ["cuda", "sanitizer"], Options())
    assert [(r.suite, r.status, r.reason) for r in record.results] == [
        ("cuda", NOT_RUN, "no GPU: made up"),
        ("sanitizer", NOT_RUN, "no GPU: made up"),
    ]
    assert record.exit_code == 4


def test_sanitizer_runs_its_four_tools_and_keeps_their_exit_codes(tree, tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    script = tools / "compute-sanitizer"
    log = tmp_path / "log"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\ntool=$2\nshift 6\n'
        '[ "$tool" != memcheck ] || shift 2\n"$@" || exit $?\n'
        '[ "$tool" != racecheck ] || exit 1\n',
        encoding="utf-8",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(verify_suites, "_need_gpu", lambda: None)
    result = run_one(room("good", "cuda"), "sanitizer")
    assert [(c.name, c.status) for c in result.checks] == [
        ("memcheck", PASSED),
        ("racecheck", FAILED),
        ("synccheck", PASSED),
        ("initcheck", PASSED),
    ]
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all("--error-exitcode 1 --target-processes all" in line for line in lines)
    assert ["--report-api-errors no" in line for line in lines] == [
        "--tool memcheck" in line for line in lines
    ]


def test_a_finding_outweighs_what_was_not_run():
    def record(*statuses):
        results = tuple(bench.SuiteResult("r", "plan", s, "", 0.0) for s in statuses)
        return bench.VerifyRecord(results, {}, {}, 0.0).exit_code

    assert [record(PASSED), record(PASSED, NOT_RUN), record(NOT_RUN, FAILED)] == [0, 4, 1]


def test_asking_for_nothing_is_refused():
    with pytest.raises(InvalidValueError, match="no suite speed"):
        bench.verify([room("good")], ["speed"], Options())
    with pytest.raises(InvalidValueError, match="nothing to run"):
        bench.verify([room("good")], ["oracle"], Options())


def test_every_registered_room_names_only_known_suites():
    for name, registered in bench.ROOMS.items():
        assert registered.name == name
        assert set(registered.tests) <= set(bench.SUITES)
        assert registered.suites()


@pytest.fixture
def command():
    from warpfront.cli.verify import verify

    app = typer.Typer()
    app.command()(verify)

    def call(*words):
        return CliRunner().invoke(app, list(words))

    return call


def test_command_shows_a_table_and_writes_the_record(command, tree, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOMS", {"fake": room("good or bad")})
    out = tmp_path / "record.json"
    done = command("--suite", "plan", "--json", str(out))
    assert done.exit_code == 1
    assert "fake" in done.stdout
    assert "arithmetic" in done.stdout
    record = json.loads(out.read_text(encoding="utf-8"))
    assert record["exit_code"] == 1
    assert [c["status"] for c in record["results"][0]["checks"]] == [PASSED, FAILED]
    assert record["environment"]["gpu"]


def test_command_distinguishes_not_run(command, monkeypatch):
    def absent(chosen, options):
        raise NotRun("no GPU: made up")

    monkeypatch.setattr(bench, "ROOMS", {"fake": room("good", "cuda"), "other": room("good", "oracle")})
    monkeypatch.setitem(verify_suites.RUNNERS, "cuda", absent)
    monkeypatch.setitem(verify_suites.RUNNERS, "sanitizer", absent)
    monkeypatch.setitem(verify_suites.RUNNERS, "oracle", lambda chosen, options: [Check("one", PASSED)])
    done = command()
    assert done.exit_code == 4
    assert "fake cuda: not run: no GPU: made up" in done.stdout
    assert command("--room", "other").exit_code == 0


@pytest.mark.parametrize("words", [("--compiler", "gcc"), ("--room", "attic"), ("--suite", "speed")])
def test_command_refuses_what_it_does_not_know(command, words):
    done = command(*words)
    assert isinstance(done.exception, InvalidValueError)
    assert words[1] in str(done.exception)
