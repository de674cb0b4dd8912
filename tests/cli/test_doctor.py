"""``warpfront doctor``: each check by itself, what is missing with one command, and nothing that stops at a failure."""

import json
import shutil

import pytest

from warpfront.cli import doctor
from warpfront.cli.main import main


def test_this_machine_can_solve(capsys):
    assert main(["doctor", "--json"]) == 0
    found = {check["what"]: check for check in json.loads(capsys.readouterr().out)}
    assert set(found) == set(doctor.CHECKS)
    assert found["solver on the CPU"]["status"] == "works"
    assert {check["status"] for check in found.values()} <= {"works", "missing"}
    for check in found.values():
        assert check["detail"]
        assert check["adds"] == "" or check["status"] == "missing"
        assert "\n" not in check["adds"]


def test_what_is_missing_comes_with_its_command(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor, "_there", lambda module: False)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "host compiler: sudo apt-get install g++",
        "browser: sudo apt-get install chromium",
        'PyTorch: pip install "warpfront[torch]"',
        'benchmark peers: pip install "warpfront[bench]"',
        "orderings: pip install pymetis",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("reason", "adds"),
    [
        ("the GPU needs cupy, not installed here: pip install x", 'pip install "warpfront[cuda13]"'),
        ("no NVIDIA driver on this machine (libcuda did not load)", "sudo apt-get install nvidia-driver-580"),
        ("the NVIDIA driver reports no CUDA device", ""),
    ],
)
def test_a_gpu_that_is_not_there(monkeypatch, reason, adds):
    from warpfront.backend import capability

    monkeypatch.setattr(capability, "missing", lambda: reason)
    found = doctor._gpu("GPU")
    assert (found.status, found.adds) == ("missing", adds)


def test_a_check_that_raises_is_broken_and_the_others_still_run(monkeypatch, capsys):
    def broken(what):
        raise ImportError("no\nlibrary")

    monkeypatch.setitem(doctor.CHECKS, "solver on the CPU", broken)
    assert main(["doctor", "--json"]) == 1
    found = {check["what"]: check for check in json.loads(capsys.readouterr().out)}
    assert found["solver on the CPU"] == {
        "what": "solver on the CPU", "status": "broken", "detail": "ImportError: no library", "adds": "",
    }  # fmt: skip
    assert found["CPU threads"]["status"] == "works"


def test_a_cache_folder_that_cannot_be_written(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("WARPFRONT_CACHE_DIR", str(file / "below"))
    found = doctor._cache("kernel cache")
    assert found.status == "missing"
    assert "WARPFRONT_CACHE_DIR" in found.adds
