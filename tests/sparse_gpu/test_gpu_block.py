"""A strip's diagonal block, alone: the ways to eliminate it against dense arithmetic, and when they refuse."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from warpfront.backend.simt import Simt

TOOL = Path(__file__).resolve().parents[2] / "tools" / "device" / "sparse_gpu_block.py"
spec = importlib.util.spec_from_file_location("sparse_gpu_block", TOOL)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

TWOS, EIGHTS = 0, 1
TAKEN = -1


def run(way, indefinite, a, size=32, dtype=np.float64, schedules=2):
    name = tool.expression(way, indefinite, "double" if dtype is np.float64 else "float")
    made = tool.buffers(size, 1, dtype)
    report = Simt.build(tool.SOURCE, [name]).launch(
        name, (1, 1), 256,
        [a.astype(dtype).reshape(-1).copy(), np.int32(size), dtype(1e-10), np.int32(1), *made.values()],
        shared_bytes=0, resident=1, schedules=schedules, seed=0,
    )  # fmt: skip
    report.check()
    return made


@pytest.mark.simt
@pytest.mark.parametrize("indefinite", [False, True])
@pytest.mark.parametrize("size", [32, 31, 20, 8, 1])
@pytest.mark.parametrize("way", range(len(tool.WAYS)))
def test_factor_inverse_and_what_is_published(way, indefinite, size):
    a = tool.block(indefinite)
    made = run(way, indefinite, a, size)
    assert made["times"][-1] == TAKEN
    assert max(tool.errors(a, size, made)) <= 2e-15


@pytest.mark.simt
def test_float32():
    a = tool.block(False).astype(np.float32)
    made = run(EIGHTS, False, a, dtype=np.float32)
    assert max(tool.errors(a, 32, made)) <= 1e-6


@pytest.mark.simt
@pytest.mark.parametrize("row", [1, 5, 12, 30])
@pytest.mark.parametrize("column", [0, 3, 4, 9, 29])
def test_the_same_column_is_refused(column, row):
    """An entry too large for a pivot, in the pivot's eight columns or behind them."""
    if row <= column:
        pytest.skip("above the diagonal")
    a = tool.block(True)
    a[row, column] = a[column, row] = 40.0
    found = [run(way, True, a, schedules=1) for way in (TWOS, EIGHTS)]
    assert found[0]["times"][-1] == found[1]["times"][-1] == column
    for made in found:
        assert np.array_equal(np.tril(made["out"].reshape(32, 32).T), np.tril(a)), "the block has changed"


@pytest.mark.simt
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 7, 18])
def test_the_same_pivot_fails(column, value):
    for indefinite in (False, True):
        a = tool.block(indefinite)
        a[column, column] = value
        found = [run(way, indefinite, a, schedules=1)["times"][-1] for way in (TWOS, EIGHTS)]
        assert found[0] == found[1]
        assert found[0] == column or (indefinite and value == -1.0)


@pytest.mark.simt
@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("indefinite", [False, True])
def test_products_out_of_range_are_done_again(scale, indefinite):
    """Two pivots' product underflows or overflows: the eight columns are done again without it."""
    a = tool.block(indefinite)
    made, scaled = run(EIGHTS, indefinite, a), run(EIGHTS, indefinite, a * scale)
    if indefinite and scale < 1:
        assert scaled["times"][-1] == 0, "every pivot is below the least"
        return
    assert scaled["times"][-1] == TAKEN
    np.testing.assert_allclose(scaled["diagonal"][::2], made["diagonal"][::2] * scale, rtol=1e-13)
    np.testing.assert_allclose(
        scaled["out"], np.where(made["out"] == 0, 0, made["out"]), rtol=1e-10, atol=1e-13
    )
