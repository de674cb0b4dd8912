"""The docs build without warnings, point at code that exists, and README's commands are the real ones."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHERE = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
ENTRIES = sorted(set(re.findall(r"`([^`\s]+)`", WHERE.split("\n## ", 1)[1])))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def defined_in_python(text):
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def resolves(entry):
    path, _, symbol = entry.partition("::")
    file = ROOT / path
    if not symbol:
        return file.exists()
    if not file.is_file():
        return False
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return symbol in defined_in_python(text)
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return (
        re.search(rf"(?:#define\s+|struct\s+|class\s+|[\w>&*)]\s+[&*]*){re.escape(symbol)}\b", code)
        is not None
    )


def test_docs_build_without_warnings(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-d", tmp_path / "trees"]
    done = subprocess.run(
        [*command, ROOT / "docs", tmp_path / "html"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "html" / "api.html").read_text(encoding="utf-8")
    assert "SingularMatrixError" in page


@pytest.mark.parametrize("entry", ENTRIES)
def test_where_points_at_something(entry):
    assert resolves(entry), f"docs/where.md: {entry} is not there"


def test_where_has_an_entry_for_every_room():
    rooms = {file.parent.name for file in (ROOT / "src" / "warpfront").glob("*/__init__.py")}
    assert {room for room in rooms if f"`src/warpfront/{room}/" not in WHERE} == set()


@pytest.mark.parametrize(
    "entry", ["src/warpfront/errors.py::Stat", "src/warpfront/none.py", "docs/none.md::x"]
)
def test_where_would_notice_what_is_gone(entry):
    assert not resolves(entry)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_to_files_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_begins_with_two_commands_of_one_line_each():
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    for block, end in zip(blocks, ("warpfront solve ", "python -m pytest "), strict=True):
        assert block.count("\n") == 1
        assert block.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
        assert end in block
    data = ROOT / blocks[0].split()[-1]
    assert data.is_file(), f"{data} is not bundled"


def test_readme_example_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Inertia(" in done.stdout


def test_ci_runs_the_commands_of_readme():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "README.md" in text
    assert "pip install" not in text
