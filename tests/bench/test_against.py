"""Two revisions measured in turn: the order, the merged samples, the worktree, and a slowdown that is real."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from warpfront.bench import against as module
from warpfront.bench import gate, record, turns
from warpfront.bench.collect import collected
from warpfront.bench.record import Record, Row
from warpfront.bench.turns import Pair
from warpfront.errors import InvalidValueError, NotSupportedError


def made(seconds, status=True):
    found = collected(seconds, clock="wall", right=status, detail="" if status else "off")
    row = Row("a", "b", {"n": 1}, "float64", "made up", None, ["ours"], {"ours": found})
    return Record(record.SCHEMA, "test", "a-cpu", record.stamp(), {"rounds": 2}, {}, {}, [row])


def test_who_begins_alternates():
    assert [module.order(k)[0] for k in range(4)] == ["base", "new", "base", "new"]


def test_two_processes_work_in_turn_and_one_goes_on_alone(tmp_path):
    """Each appends its name while it works; the file shows that they alternate, and that an end frees the other."""
    log = tmp_path / "log"
    program = (
        "import sys; from warpfront.bench import turns; turns.begin()\n"
        "for _ in range(int(sys.argv[2])):\n"
        "    open(sys.argv[3], 'a').write(sys.argv[1]); turns.change()\n"
        "assert turns.taken() == int(sys.argv[2])"
    )
    pair, started = Pair(["a", "b"]), []
    for name, count in (("a", 3), ("b", 5)):
        environment = {**os.environ, "_WARPFRONT_BENCH_TURNS": pair.environment(name)}
        command = [sys.executable, "-c", program, name, str(count), str(log)]
        started.append(subprocess.Popen(command, env=environment, pass_fds=pair.descriptors(name)))
        pair.close(name)
    assert [process.wait(timeout=60) for process in started] == [0, 0]
    assert log.read_text() == "abababbb"
    assert turns.taken() == 0  # nobody gave this process a partner


def test_only_samples_that_were_taken_in_turn_are_pairs():
    def with_turns(seconds, turns=2):
        return replace(made(seconds), options={"turns": turns})

    sides = [with_turns([1.0, 2.0]), with_turns([3.0, 4.0])], [with_turns([1.5, 2.5]), with_turns([3.5, 4.5])]
    tokens = [side.rows[0].contenders["ours"].values.get("pairing") for side in module.paired(*sides)]
    assert tokens[0] is not None
    assert tokens[0] == tokens[1]
    for other in ([with_turns([1.5, 2.5]), with_turns([3.5])], [made([1.5, 2.5]), with_turns([3.5, 4.5])]):
        found = module.paired(sides[0], other)
        assert all("pairing" not in side.rows[0].contenders["ours"].values for side in found)


def test_merging_keeps_every_sample_and_each_process_apart():
    one = module.merge([made([1.0, 3.0]), made([2.0, 4.0])])
    found = one.rows[0].contenders["ours"]
    assert found.seconds == [1.0, 3.0, 2.0, 4.0]
    assert (found.median, found.minimum, found.repeats) == (2.5, 1.0, 4)
    assert found.values["processes"] == [2.0, 3.0]
    assert one.options == {"rounds": 2, "processes": 2}
    assert gate.spread(found) >= 1 / 2.5
    wrong = module.merge([made([1.0]), made([1.0], status=False)])
    assert wrong.rows[0].contenders["ours"].status == "wrong"
    with pytest.raises(InvalidValueError, match="different rows"):
        module.merge([made([1.0]), replace(made([1.0]), rows=[])])


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with a package that measures a busy loop; its second revision does half as much again."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path / "clone"
    package = root / "src" / "warpfront"
    package.mkdir(parents=True)

    def git(*words):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(root), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    real = Path(module.__file__).resolve().parents[2]
    program = f"""
import sys, time
work = WORK
sys.path[:] = [p for p in sys.path if p != {str(package.parent)!r} and "base" not in p]
sys.path.insert(0, {str(real)!r})
for name in [m for m in sys.modules if m.split(".")[0] == "warpfront"]: del sys.modules[name]
from warpfront.bench import turns
from warpfront.bench.collect import collected, cpu_record
from warpfront.bench.record import Row, write
from pathlib import Path
def once():
    start = time.thread_time(); total = 0
    for k in range(work): total += k * k
    return time.thread_time() - start
def sample():
    found = min(once() for _ in range(3)); turns.change()
    return found
turns.begin()
once()
found = collected([sample() for _ in range(7)], clock="wall")
row = Row("loop", "run", {{"n": 1}}, "int", "none", None, ["ours"], {{"ours": found}})
write(cpu_record("loop", [row], {{"turns": turns.taken()}}), Path(sys.argv[sys.argv.index("-o") + 1]))
"""
    (package / "__init__.py").write_text("")
    git("init", "-q")
    for work in (200_000, 300_000):
        (package / "__main__.py").write_text(program.replace("WORK", str(work)))
        git("add", "-A")
        git("commit", "-q", "-m", str(work))
    monkeypatch.setattr(module, "PACKAGE", package)
    return git


def test_a_slower_revision_is_found_and_the_worktree_is_gone(clone):
    told = []
    base, new = module.against("loop", "HEAD~1", ["--rounds", "3"], processes=2, report=told.append)
    assert told == ["base and new, process 1 of 2", "base and new, process 2 of 2"]
    samples = [side.rows[0].contenders["ours"] for side in (base, new)]
    assert [len(side.seconds) for side in samples] == [14, 14]
    assert samples[0].values["pairing"] == samples[1].values["pairing"]
    found = gate.gate(base, new)
    assert found.reasons == []
    assert found.rows[0].ratio > 1.2, found
    assert found.verdict in ("slow", "ambiguous")
    assert len(clone("worktree", "list").splitlines()) == 1


def test_what_does_not_tell_is_measured_again(clone):
    told = []
    base, _ = module.against(
        "loop", "HEAD~1", [], processes=1, report=told.append, enough=lambda base, new: len(told) > 2
    )
    assert told.count("the verdict is ambiguous: measuring again") == 1
    assert len(base.rows[0].contenders["ours"].seconds) == 14


def test_what_cannot_be_compared_is_refused(clone, monkeypatch, tmp_path):
    with pytest.raises(InvalidValueError, match="git knows no revision 'nothing'"):
        module.against("loop", "nothing", [])
    with pytest.raises(InvalidValueError, match="processes is 0"):
        module.against("loop", "HEAD", [], processes=0)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "elsewhere" / "src" / "warpfront")
    with pytest.raises(NotSupportedError, match="needs a clone"):
        module.against("loop", "HEAD", [])


def test_a_side_that_fails_says_so(clone):
    (module.PACKAGE / "__main__.py").write_text("import sys; sys.exit('no such benchmark')")
    clone("commit", "-q", "-a", "-m", "broken")
    with pytest.raises(NotSupportedError, match="ended with 1: no such benchmark"):
        module.against("loop", "HEAD~1", [], processes=1)
