"""A cached kernel is compiled again when any source it is made of changes, and only then."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warpfront.backend  # noqa: F401  (the package must be imported for its files to be found)
from warpfront.backend import jit

SOURCE = Path(__file__).resolve().parents[2] / "src" / "warpfront"
KERNELS = """
from warpfront.backend.jit import njit
from kernels.low import f

@njit(cache=True)
def g(x):
    return f(x) * 10
"""
LOW = """
from warpfront.backend.jit import njit

@njit(cache=True)
def f(x):
    return x + 1
"""
CALL = """
import sys
from kernels.high import g
sys.stdout.write(f"{g(1)} {sum(g.stats.cache_hits.values())} {g.stats.cache_path}")
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    for name, text in {"__init__": "", "high": KERNELS, "low": LOW, "other": "a = 1\n"}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")

    def call(**environment):
        path = os.pathsep.join([str(tmp_path), str(Path(jit.__file__).parents[2])])
        done = subprocess.run(
            [sys.executable, "-c", CALL],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        value, hits, place = done.stdout.split(maxsplit=2)
        return int(value), int(hits), Path(place)

    return folder, call


def edit(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_change_in_a_called_module_is_noticed(package):
    folder, call = package
    value, hits, first = call()
    assert (value, hits) == (20, 0)
    assert call() == (20, 1, first)
    edit(folder / "other.py", "1", "2")
    assert call() == (20, 1, first)
    edit(folder / "low.py", "x + 1", "x + 2")
    value, hits, second = call()
    assert (value, hits) == (30, 0)
    assert second != first
    assert not first.exists()
    assert folder / "__pycache__" in second.parents


def test_the_users_own_cache_folder_is_respected(package, tmp_path):
    _, call = package
    place = call(NUMBA_CACHE_DIR=str(tmp_path / "mine"))[2]
    assert tmp_path / "mine" in place.parents


def test_a_read_only_installation_uses_the_packages_cache_folder(package, tmp_path):
    folder, call = package
    # A file where the folder should be: refused even to an administrator, whom permissions do not stop.
    (folder / "__pycache__").write_text("", encoding="utf-8")
    environment = {"WARPFRONT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["NUMBA_CACHE_DIR"] = ""
    value, hits, place = call(**environment)
    assert (value, hits) == (20, 0)
    assert tmp_path / "cache" / "cpu" in place.parents
    assert call(**environment) == (20, 1, place)


class FakeDispatcher:
    def compile(self, signature):
        return signature


def test_other_packages_keep_their_cache(monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", "before")
    monkeypatch.setattr(jit, "_folder", lambda module, chosen: f"{module} {chosen}")
    seen = []
    monkeypatch.setattr(
        numba, "njit", lambda **_: lambda function: seen.append(numba.config.CACHE_DIR) or FakeDispatcher()
    )
    jit.njit(cache=True)(test_lists_of_imports)
    jit.njit()(test_lists_of_imports)
    assert seen == [f"{__name__} before", "before"]
    assert numba.config.CACHE_DIR == "before"


def test_lists_of_imports():
    text = "import a.b as c, d\nfrom e.f import (\n    g,  # why\n    h as i,\n)\n    from j import k  # l\n"
    assert set(jit._imported_names(text)) == {"a.b", "d", "e.f", "e.f.g", "e.f.h", "j", "j.k"}


def imports_by_syntax(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_import_of_the_package_is_missed():
    for file in SOURCE.rglob("*.py"):
        needed = {name for name in imports_by_syntax(file) if name.startswith("warpfront.")}
        assert needed <= set(jit._imports(file)), file


def test_every_kernel_module_takes_njit_from_here():
    elsewhere = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if "numba.njit" in set(imports_by_syntax(file)) and file.name != "jit.py"
    ]
    assert elsewhere == []
