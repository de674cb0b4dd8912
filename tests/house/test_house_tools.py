"""Lint, format, types and import layers, each by its own tool on the whole tree."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "warpfront"
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]


def run(*command, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_lint():
    code, output = run("-m", "ruff", "check", "--no-cache", "--output-format=concise", ".")
    assert code == 0, output


def test_format():
    code, output = run("-m", "ruff", "format", "--no-cache", "--check", ".")
    assert code == 0, output


def test_types(tmp_path):
    code, output = run("-m", "mypy", "--cache-dir", str(tmp_path))
    assert code == 0, output


def test_import_layers():
    code, output = run("-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache")
    assert "broken" in output, output
    assert code == 0, output


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("warpfront/errors.py", "import warpfront.report"),
        ("warpfront/formats/upward.py", "import warpfront.sparse"),
        ("warpfront/sparse/analysis/backward.py", "import warpfront.sparse.numeric"),
        ("warpfront/unlisted/__init__.py", ""),
        ("warpfront/graph/__init__.py", "import warpfront.sparse"),
    ],
)
def test_import_layers_are_enforced(tmp_path, module, line):
    for file in SOURCE.rglob("*.py"):
        copy = tmp_path / "warpfront" / file.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    broken = tmp_path / module
    broken.parent.mkdir(exist_ok=True)
    before = broken.read_text(encoding="utf-8") if broken.exists() else '"""Seeded."""\n'
    broken.write_text(before + line + "\n", encoding="utf-8")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from importlinter.cli import lint_imports_command as c\nc()"
    )
    code, output = run("-c", script, "--no-cache", "--config", str(ROOT / "pyproject.toml"), cwd=tmp_path)
    assert code == 1, output
    assert module.removesuffix(".py").removesuffix("/__init__").split("/")[-1] in output


def _is_jitted(node):
    return isinstance(node, ast.FunctionDef) and any(
        any(word in ast.unparse(decorator) for word in ("jit", "intrinsic", "overload"))
        for decorator in node.decorator_list
    )


def test_only_kernel_modules_are_excused_from_annotations():
    patterns = [name for name, rules in RUFF["per-file-ignores"].items() if "ANN" in rules and "src" in name]
    assert len(patterns) == 1
    stems = patterns[0].removeprefix("src/**/{").removesuffix("}.py").split(",")
    excused = {file for stem in stems for file in SOURCE.rglob(f"{stem}.py")}
    assert excused
    for file in excused:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert any(_is_jitted(node) for node in ast.walk(tree)), f"{file} holds no kernel: name it otherwise"


def test_types_are_not_switched_off_in_a_file():
    for file in SOURCE.rglob("*.py"):
        assert "# mypy: ignore-errors" not in file.read_text(encoding="utf-8"), file


def test_environment_variables_are_read_in_one_file_and_are_at_most_three():
    names = set()
    for file in SOURCE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        reads = [
            node
            for node in ast.walk(tree)
            if (isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"))
            or (isinstance(node, ast.alias) and node.name in ("environ", "environb", "getenv"))
        ]
        if file == SOURCE / "backend" / "settings.py":
            strings = [
                n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            names = {text for text in strings if text.startswith("WARPFRONT_") and text.isupper()}
        else:
            assert reads == [], f"{file} reads the environment: do it in backend/settings.py"
    assert names
    assert len(names) <= 3
