"""The worked failure of docs/proof.md is run: code, kernel and report on the page are the real ones."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from warpfront.backend.simt import Out, Simt

pytestmark = pytest.mark.simt
ROOT = Path(__file__).resolve().parents[2]
KERNEL = Path(__file__).parent / "kernels" / "worked.cu"
PAGE = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def essence(report):
    """Kinds and places; which thread is named first may differ between compiler versions."""
    places = [tuple(sorted(re.findall(r"worked\.cu:\d+", line))) for line in report.splitlines()]
    kinds = [m[1] if (m := re.match(r"  ([a-z ]+): ", line)) else "" for line in report.splitlines()]
    return sorted(set(zip(kinds, places, strict=True)))


def test_the_page_shows_the_kernel():
    assert block("cpp") == KERNEL.read_text(encoding="utf-8")


def test_the_page_shows_the_report(monkeypatch):
    monkeypatch.chdir(ROOT)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block("python"), "docs/proof.md", "exec"), {})
    assert essence(said.getvalue()) == essence(block("text"))
    assert "race" in said.getvalue()


def test_the_second_barrier_is_the_cure():
    kernel = Simt.build(KERNEL, ["nearest"], defines=[("SECOND_BARRIER", "1")])
    rng = np.random.default_rng(0)
    x, y, out = rng.random(64, np.float32), rng.random(256, np.float32), np.empty(64, np.float32)
    kernel.launch("nearest", 1, 64, [x, y, Out(out), 256], schedules=12).check()
    np.testing.assert_array_equal(out, np.abs(x[:, None] - y).min(axis=1))
