"""``warpfront explain`` and ``warpfront cache``."""

import json

import pytest

from warpfront.backend import capability
from warpfront.backend.cache import default
from warpfront.cli.main import main


def test_explain_lists_every_path_with_its_reason(capsys):
    assert main(["explain", "transpose", "4096", "4096", "--json"]) == 0
    decisions = json.loads(capsys.readouterr().out)
    assert [d["path"] for d in decisions][-1] == "cpu"
    assert sum(d["taken"] for d in decisions) == 1
    assert all(d["reason"] and d["summary"] for d in decisions)
    if capability.missing() is not None:
        assert all("install" in d["reason"] for d in decisions[:-1])


def test_explain_as_a_table(capsys):
    assert main(["explain", "transpose", "8", "4096", "3", "--dtype", "complex128", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    for word in ("runs", "cpu", "portable", "sm_80", "sm_90"):
        assert word in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["explain", "rotate", "3", "3"], "no such operation"),
        (["explain", "transpose", "3"], "M N [BATCH]"),
        (["explain", "transpose", "3", "3", "--dtype", "float33"], "no such element type"),
        (["explain", "transpose", "3", "3", "--device", "gpu"], "device must be"),
        (
            ["explain", "transpose", "3", "3", "--path", "sm_1"],
            "transpose has no path 'sm_1'; there are portable",
        ),
    ],
)
def test_wrong_requests_exit_with_2(line, message, capsys):
    assert main(line) == 2
    assert message in capsys.readouterr().err


def test_prices_are_explained_in_the_type_they_are_computed_in(capsys):
    assert main(["explain", "price", "--device", "cpu", "--json"]) == 0
    assert [path["path"] for path in json.loads(capsys.readouterr().out) if path["taken"]] == ["cpu"]


def test_cache(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("WARPFRONT_CACHE_DIR", str(tmp_path))
    default().store("ab" * 32, b"x" * 5000)
    assert main(["cache", "info"]) == 0
    assert "entries  1" in capsys.readouterr().out
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "cubin")
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "removed 1 entries\n"
    assert default().info().entries == 0


@pytest.mark.parametrize("group", ["attention", "batched", "cache"])
def test_a_group_without_a_command_lists_its_commands(group, capsys):
    assert main([group]) == 2
    found = capsys.readouterr()
    assert "Commands" in found.out
    assert found.err == "error: name one of these commands\n"
