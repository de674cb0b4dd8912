"""The environment variables: defaults, values, refusals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warpfront.backend import settings
from warpfront.errors import InvalidValueError


def test_threads_follow_the_affinity_mask(monkeypatch):
    monkeypatch.delenv("WARPFRONT_THREADS", raising=False)
    if not hasattr(os, "sched_getaffinity"):
        assert settings.threads() == os.cpu_count()
        return
    assert settings.threads() == len(os.sched_getaffinity(0))
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from warpfront.backend.settings import threads; assert threads() == 1"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_threads_can_be_set(monkeypatch):
    monkeypatch.setenv("WARPFRONT_THREADS", "3")
    assert settings.threads() == 3


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_threads_refuse_what_is_no_count(monkeypatch, text):
    monkeypatch.setenv("WARPFRONT_THREADS", text)
    with pytest.raises(InvalidValueError, match=f"WARPFRONT_THREADS.*{text}"):
        settings.threads()


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("linux", ".cache"), ("darwin", "Library/Caches"), ("win32", "AppData/Local")],
)
def test_cache_is_in_the_users_cache_folder(monkeypatch, tmp_path, platform, folder):
    monkeypatch.delenv("WARPFRONT_CACHE_DIR", raising=False)
    monkeypatch.setattr(settings.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert settings.cache_dir() == tmp_path / folder / "warpfront"
    assert list(tmp_path.iterdir()) == []


def test_a_child_gets_this_environment_with_changes(monkeypatch):
    monkeypatch.setenv("WARPFRONT_THREADS", "3")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    environment = settings.child_environment(LC_ALL="C")
    assert (environment["WARPFRONT_THREADS"], environment["LC_ALL"]) == ("3", "C")
    assert os.environ["LC_ALL"] == "de_DE.UTF-8"


def test_cache_can_be_set_and_must_be_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPFRONT_CACHE_DIR", str(tmp_path / "new"))
    assert settings.cache_dir() == tmp_path / "new"
    (tmp_path / "new").write_text("", encoding="utf-8")
    with pytest.raises(InvalidValueError, match="not a folder"):
        settings.cache_dir()
