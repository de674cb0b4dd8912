"""`.ci/run` runs README's commands in an environment of its own, and a failure of either is its failure."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path):
    """Two commands of README's form, and a machine with just what CI needs."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")

    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "grep", "mktemp", "rm", "echo", "true", "false", "python3"):
        (tools / name).symlink_to(sys.executable if name == "python3" else shutil.which(name))

    def run(first, second, compiler="g++"):
        if compiler:
            (tools / compiler).symlink_to(shutil.which("true"))
        lines = [f"python3 -m venv --help >.venv.log && {command}" for command in (first, second)]
        (tmp_path / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return subprocess.run(
            ["bash", str(tmp_path / ".ci" / "run")],
            cwd=tmp_path,
            env={"PATH": str(tools)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [("true", "true", 0), ("false", "true", 1), ("true", "false", 1), ("false", "false", 1)],
)
def test_either_failure_fails_the_run(project, first, second, code):
    done = project(f"{first} # warpfront solve", f"echo tests ran; {second} # pytest")
    assert done.returncode == code
    assert "tests ran" in done.stdout


def test_the_environment_is_elsewhere_and_removed(project, tmp_path):
    done = project("echo at=.venv. # warpfront solve", "true # pytest")
    place = Path(done.stdout.split("at=")[-1].split(".\n")[0])
    assert place.name == "venv"
    assert tmp_path not in place.parents
    assert not place.parent.exists()


def test_a_readme_without_the_commands_fails(project):
    assert project("true", "true").returncode != 0


def test_a_machine_without_a_compiler_fails(project):
    done = project("true # warpfront solve", "echo tests ran # pytest", compiler="")
    assert done.returncode == 1
    assert "g++" in done.stderr
    assert "tests ran" not in done.stdout
