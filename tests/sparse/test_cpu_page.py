"""The table of docs/sparse_cpu.md is the one its tool makes of the record."""

import gzip
import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_records_table():
    spec = importlib.util.spec_from_file_location("sparse_steps", ROOT / "tools" / "sparse_steps.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (file,) = (ROOT / "benchmarks" / "records").glob("*/sparse_cpu_steps.json.gz")
    record = json.loads(gzip.decompress(file.read_bytes()))
    assert tool.page(record, f"{file.parent.name}/{file.name}") in tool.PAGE.read_text(encoding="utf-8")
