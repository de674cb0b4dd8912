"""The tables of docs/sparse_cpu.md are those their tools make of the records."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("name", "record"), [("sparse_steps", "sparse_cpu_steps"), ("sparse_analysis",) * 2])
def test_the_page_has_the_records_table(name, record):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (file,) = (ROOT / "benchmarks" / "records").glob(f"*/{record}.json.gz")
    made = json.loads(gzip.decompress(file.read_bytes()))
    assert tool.page(made, f"{file.parent.name}/{file.name}") in tool.PAGE.read_text(encoding="utf-8")
