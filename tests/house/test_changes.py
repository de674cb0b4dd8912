"""Changelog fragments are well formed and assemble."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[1-9]\d*\.(added|changed|fixed|removed)(\.\d+)?\.md")
FRAGMENTS = sorted(file for file in (ROOT / "changes").iterdir() if file.name != "README.md")


def problem_of(name, text):
    """Return what is wrong with a fragment, or an empty string."""
    if not NAME.fullmatch(name):
        return "name must be <issue>.<added|changed|fixed|removed>[.<number>].md"
    if not text.strip().endswith("."):
        return "must end with a full stop"
    if "\n\n" in text.strip() or text.startswith(("#", "-", "*")):
        return "must be one paragraph, without heading or list"
    return ""


@pytest.mark.parametrize("file", FRAGMENTS, ids=lambda file: file.name)
def test_fragment_is_well_formed(file):
    assert problem_of(file.name, file.read_text(encoding="utf-8")) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("added.md", "Text."),
        ("2.feature.md", "Text."),
        ("2.added.txt", "Text."),
        ("2.added.md", ""),
        ("2.added.md", "No full stop"),
        ("2.added.md", "- A list."),
        ("2.added.md", "One.\n\nTwo."),
    ],
)
def test_a_malformed_fragment_is_noticed(name, text):
    assert problem_of(name, text)


def test_fragments_assemble_into_the_changelog():
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--draft",
        "--version",
        "0.0.1",
        "--date",
        "2000-01-01",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assembled = " ".join(done.stdout.split())
    for file in FRAGMENTS:
        assert " ".join(file.read_text(encoding="utf-8").split()) in assembled


def test_changelog_has_its_marker():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n")
    assert text.count("<!-- towncrier release notes start -->\n") == 1
