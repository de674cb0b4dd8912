"""Merging of states and rotary embedding, against their definitions."""

import numpy as np
import pytest
from attention_arrays import BACKENDS, KINDS, bits, give, take
from hypothesis import given
from hypothesis import strategies as st

from warpfront.attention import RotaryEmbedding, apply_rope, merge_states
from warpfront.attention import _reference as reference
from warpfront.errors import InvalidValueError


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_merge(backend, kind):
    random = np.random.default_rng(0)
    outs = give(backend, random.standard_normal((5, 3, 4, 64)), kind)
    logs = random.standard_normal((5, 3, 4)).astype(np.float32) * 20
    logs[1, 0] = logs[:, 2, 3] = -np.inf
    lses = give(backend, logs)
    out, lse = merge_states(outs, lses)
    wanted, wanted_lse = reference.merge(take(outs), logs)
    rounding = np.abs(reference.round_to(wanted, kind) - wanted).max()
    assert np.abs(take(out) - wanted).max() <= 2 * rounding + 4e-7
    assert (take(out)[2, 3] == 0).all()
    assert np.isneginf(take(lse)[2, 3])
    real = np.isfinite(wanted_lse)
    assert np.abs(take(lse)[real] - wanted_lse[real]).max() < 1e-5
    assert out.dtype == outs.dtype
    assert all(bits(merge_states(outs, lses)[0]) == bits(out) for _ in range(20))


@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_parts(backend):
    """Case 39: two empty parts merge to 0 and -inf, and what an empty part's output holds is not looked at."""
    outs = np.full((2, 3, 64), np.nan, np.float32)
    lses = np.full((2, 3), -np.inf, np.float32)
    out, lse = merge_states(give(backend, outs), give(backend, lses))
    assert (take(out) == 0).all()
    assert np.isneginf(take(lse)).all()
    outs[1], lses[1] = 7.0, 2.5
    out, lse = merge_states(give(backend, outs), give(backend, lses))
    assert (take(out) == 7.0).all()
    assert (take(lse) == 2.5).all()


@given(parts=st.integers(1, 9), rows=st.integers(0, 20), d=st.integers(0, 70), seed=st.integers(0, 99))
def test_any_merge(parts, rows, d, seed):
    random = np.random.default_rng(seed)
    outs = random.standard_normal((parts, rows, d)).astype(np.float32)
    logs = np.where(random.random((parts, rows)) < 0.3, -np.inf, random.standard_normal((parts, rows)) * 5)
    out, lse = merge_states(outs, logs.astype(np.float32))
    wanted, _ = reference.merge(outs, logs.astype(np.float32))
    assert np.abs(out - wanted).max(initial=0.0) < 1e-6
    assert lse.shape == (rows,)


def test_merge_misuse():
    outs, lses = np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.float32)
    for arguments, message in (
        ((outs, lses[:, :2]), r"outputs must be \(parts, ..., head_dim\)"),
        ((outs.astype(np.float64), lses), "outputs must be float16"),
        ((outs, lses.astype(np.float64)), "lses must be float32"),
        ((outs[:0], lses[:0]), "at least one part"),
        ((outs[:, ::2], np.zeros((2, 2), np.float32)), "C-ordered"),
        ((outs.tolist(), lses), "NumPy array or a PyTorch tensor"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            merge_states(*arguments)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_rope(backend, kind, interleaved):
    random = np.random.default_rng(0)
    x = give(backend, random.standard_normal((2, 5, 3, 64)), kind)
    positions = np.array([[0, 1, 7, 4000, 100_000], [3, 3, 2, 1, 0]])
    rope = RotaryEmbedding(32, 10000.0, interleaved)
    out = apply_rope(x, positions, rope)
    wanted = reference.rotate(
        take(x).reshape(10, 3, 64), positions.reshape(-1), 10000.0, 32, interleaved=interleaved
    )
    rounding = np.abs(reference.round_to(wanted, kind) - wanted).max()
    assert np.abs(take(out).reshape(10, 3, 64) - wanted).max() <= 2 * rounding + 1e-6
    assert np.array_equal(take(out)[..., 32:], take(x)[..., 32:])
    same = apply_rope(x, positions, rope, out=x)
    assert same is x
    assert bits(x) == bits(out)


def test_rope_by_tables():
    rope = RotaryEmbedding(8)
    x = np.random.default_rng(0).standard_normal((4, 2, 8)).astype(np.float32)
    tables = rope.tables(10)
    assert np.array_equal(apply_rope(x, [1, 2, 3, 9], tables), apply_rope(x, [1, 2, 3, 9], rope))
    for positions, message in (
        ([1, 2, 3, 10], "position 10 is beyond the tables"),
        ([0, 1, 2, -1], "at least 0"),
        ([1], "one for each"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            apply_rope(x, positions, tables)
    with pytest.raises(InvalidValueError, match="float32"):
        apply_rope(x, [1, 2, 3, 4], tuple(table.astype(np.float64) for table in tables))
