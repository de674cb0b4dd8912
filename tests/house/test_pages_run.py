"""Examples of the pages on the CUDA foundation and on measuring are run, and print what the pages show."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def blocks(page, language):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_a_record_is_made_from_plain_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("measurement.md", "python")
    exec(compile(code, "docs/measurement.md", "exec"), {})
    assert capsys.readouterr().out == "7 samples\n"
    assert (tmp_path / "sorting.json").is_file()


def test_explain_for_a_device_that_is_not_here(capsys):
    code = next(block for block in blocks("cuda.md", "python") if "Capability(" in block)
    exec(compile(code, "docs/cuda.md", "exec"), {})
    shown = capsys.readouterr().out
    assert shown in blocks("cuda.md", "text")


def test_the_page_lists_every_exit_code_of_the_gate():
    from warpfront.bench.gate import EXIT

    text = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")
    assert {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)} == set(EXIT.values())
