"""Prefill against the float64 reference, over options, layouts, types and libraries."""

from itertools import product

import numpy as np
import pytest
from attention_arrays import BACKENDS, CUDA, KINDS, TORCH, bits, errors, give, heads_of, judge, settle, take
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront.attention import PagedKVCache, decode, prefill
from warpfront.backend import settings as machine

WINDOWS = (None, (3, 0), (5, 4), (None, 2), (0, None), (0, 0))
LENGTHS = ((1, 16), (33, 40), (9, 3), (30, 300), (17, 17))


def normal(seed, *shapes):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape) for shape in shapes]


def run(backend, kind, arrays, **options):
    """Call prefill with everything on a backend; return output and LSE in float64, and q, k, v as rounded."""
    given_ = [give(backend, x, kind) for x in arrays]
    bias = options.pop("bias", None)
    if bias is not None:
        options["bias"] = give(backend, bias, "float32")
    out, lse = prefill(*given_, return_lse=True, **options)
    assert str(lse.dtype).endswith("float32")
    return take(out), take(lse), [take(x) for x in given_]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_options(backend, kind, window):
    d = heads_of(24, backend)
    cases = product((False, True), (None, 1.5), (False, True), LENGTHS)
    for number, (causal, soft_cap, biased, (q_len, k_len)) in enumerate(cases):
        heads, kv_heads = ((4, 2), (3, 1), (2, 2))[number % 3]
        arrays = normal(number, (2, q_len, heads, d), (2, k_len, kv_heads, d), (2, k_len, kv_heads, d))
        bias = None
        if biased:
            random = np.random.default_rng(number)
            shape = (1 + number % 2, (1, heads)[number // 2 % 2], q_len, k_len)
            bias = np.where(random.random(shape) < 0.3, -np.inf, random.standard_normal(shape))
        out, lse, rounded = run(
            backend, kind, arrays, causal=causal, window=window, soft_cap=soft_cap, bias=bias
        )
        full = None if bias is None else np.broadcast_to(bias, (2, heads, q_len, k_len)).astype(np.float32)
        rules = {"causal": causal, "window": window, "soft_cap": soft_cap}
        biases = (None, None) if full is None else full
        settle(
            [errors(out[b], lse[b], [x[b] for x in rounded], kind, bias=biases[b], **rules) for b in range(2)]
        )


@pytest.mark.parametrize("d", [1, 7, 64, 80, 96, 128, 256])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_head_dims(backend, kind, d):
    if heads_of(d, backend) != d:
        pytest.skip("the GPU has no kernel for this head dim")
    arrays = normal(d, (1, 130, 2, d), (1, 300, 1, d), (1, 300, 1, d))
    out, lse, rounded = run(backend, kind, arrays, causal=True, scale=0.3)
    judge(out[0], lse[0], [x[0] for x in rounded], kind, causal=True, scale=0.3)


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_varlen(backend, kind):
    q_lens, k_lens, d = (3, 0, 70, 1, 5), (3, 8, 130, 33, 0), heads_of(20, backend)
    cu_q, cu_k = (np.cumsum((0, *lens)).astype(np.int32) for lens in (q_lens, k_lens))
    arrays = normal(1, (cu_q[-1], 4, d), (cu_k[-1], 2, d), (cu_k[-1], 2, d))
    random = np.random.default_rng(2)
    bias = random.standard_normal((5, 1, 70, 130)).astype(np.float32)
    for options in ({}, {"causal": True}, {"window": (4, 1), "bias": bias}):
        out, lse, rounded = run(backend, kind, arrays, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, **options)
        assert lse.shape == (4, cu_q[-1])
        found = []
        for b in range(5):
            rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            mine = dict(options)
            if "bias" in mine:
                mine["bias"] = np.broadcast_to(
                    bias[b, :, : q_lens[b], : k_lens[b]], (4, q_lens[b], k_lens[b])
                )
            sequence = [rounded[0][rows], rounded[1][keys], rounded[2][keys]]
            found.append(errors(out[rows], lse[:, rows], sequence, kind, **mine))
        settle(found)


@given(data=st.data())
@settings(max_examples=60)
def test_any_shape(data):
    draw = data.draw
    group, kv_heads, d = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 40))
    batch, q_len, k_len = draw(st.integers(0, 2)), draw(st.integers(0, 110)), draw(st.integers(0, 600))
    side = st.one_of(st.none(), st.integers(0, 120))
    options = {
        "causal": draw(st.booleans()),
        "window": draw(st.one_of(st.none(), st.tuples(side, side))),
        "soft_cap": draw(st.sampled_from((None, 0.7, 30.0))),
    }
    heads = group * kv_heads
    arrays = normal(q_len, (batch, q_len, heads, d), (batch, k_len, kv_heads, d), (batch, k_len, kv_heads, d))
    out, lse, rounded = run("numpy", "float16", arrays, **options)
    assert out.shape == arrays[0].shape
    assert lse.shape == (batch, heads, q_len)
    settle([errors(out[b], lse[b], [x[b] for x in rounded], "float16", **options) for b in range(batch)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_query_sees_all_keys(backend):
    """Case 40: with the diagonal in the bottom right corner, one query of a causal call sees all sixteen keys."""
    d = heads_of(8, backend)
    q, k, v = (give(backend, x, "float32") for x in normal(0, (1, 1, 1, d), (1, 16, 1, d), (1, 16, 1, d)))
    assert bits(prefill(q, k, v, causal=True)) == bits(prefill(q, k, v))
    judged = prefill(q, k, v, causal=True, return_lse=True)
    judge(take(judged[0])[0], take(judged[1])[0], [take(x)[0] for x in (q, k, v)], "float32")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_that_sees_nothing(backend):
    """Case 39: output 0 and LSE -inf, not NaN, by the diagonal, the window, a bias, or no keys at all."""
    d = heads_of(16, backend)
    q, k, v = (give(backend, x, "float32") for x in normal(0, (1, 5, 2, d), (1, 2, 1, d), (1, 2, 1, d)))
    out, lse = (take(x) for x in prefill(q, k, v, causal=True, return_lse=True))
    assert (out[0, :3] == 0).all()
    assert np.isneginf(lse[0, :, :3]).all()
    assert np.isfinite(lse[0, :, 3:]).all()
    bias = np.zeros((1, 1, 5, 2), np.float32)
    bias[0, 0, 1] = -np.inf
    out, lse = (take(x) for x in prefill(q, k, v, bias=give(backend, bias), return_lse=True))
    assert (out[0, 1] == 0).all()
    assert np.isneginf(lse[0, :, 1]).all()
    assert np.isfinite(out).all()
    out, lse = (take(x) for x in prefill(q, k[:, :0], v[:, :0], return_lse=True))
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    assert out.shape == (1, 5, 2, d)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_hidden_keys_are_never_read(backend, kind, poison):
    """Everything hidden is poisoned: rows that do not see it keep the bits they had before."""
    d, q_len, k_len = heads_of(16, backend), 150, 300
    q, k, v = normal(3, (1, q_len, 4, d), (1, k_len, 2, d), (1, k_len, 2, d))
    bias = np.zeros((1, 4, q_len, k_len), np.float32)
    bias[..., 200] = -np.inf
    for options in ({"causal": True}, {"window": (20, 3)}, {"bias": bias}):
        clean, clean_lse, _ = run(backend, kind, (q, k, v), **options)
        # Key 200 is seen by some rows of causal and window calls, by none with the bias.
        dirty_k, dirty_v = k.copy(), v.copy()
        dirty_k[:, 200], dirty_v[:, 200] = poison, poison
        out, lse, _ = run(backend, kind, (q, dirty_k, dirty_v), **options)
        at = np.arange(q_len) + k_len - q_len
        if "causal" in options:
            blind = at < 200
        elif "window" in options:
            blind = (at - 20 > 200) | (at + 3 < 200)
        else:
            blind = np.ones(q_len, bool)
        assert blind.any()
        assert np.array_equal(out[0, blind], clean[0, blind])
        assert np.array_equal(lse[0][:, blind], clean_lse[0][:, blind])
        if np.isnan(poison):
            assert np.isnan(out[0, ~blind]).all()


@CUDA
@TORCH
@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (8, 2), (3, 1)])
def test_hidden_keys_spoil_nothing_where_cudnn_runs(heads, kv_heads, poison):
    """One value of one key, anywhere in a tile: rows before it are right, rows that see it say so in its column."""
    q, k, v = normal(8, (1, 300, heads, 64), (1, 300, kv_heads, 64), (1, 300, kv_heads, 64))
    right = take(prefill(*(give("cuda", x, "bfloat16") for x in (q, k, v)), causal=True, algorithm="triton"))
    for key in (0, 5, 63, 64, 100, 127, 150, 191, 255, 299):
        dirty = v.copy()
        dirty[0, key, 0, 3] = poison
        tensors = (give("cuda", x, "bfloat16") for x in (q, k, dirty))
        out = take(prefill(*tensors, causal=True, algorithm="cudnn"))
        assert np.abs(out[0, :key] - right[0, :key]).max(initial=0.0) <= 0.03
        seen = out[0, key:, : heads // kv_heads, 3]
        assert (np.isnan(seen) if np.isnan(poison) else seen == poison).all()
        rest = np.delete(out[0, key:, : heads // kv_heads], 3, axis=-1)
        assert np.isfinite(rest).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_strides(backend):
    """Any strides whose last is 1, broadcast ones too, give the bits of contiguous arrays; so does ``out``."""
    d = heads_of(12, backend)
    q, k, v = normal(5, (2, 40, 4, d), (2, 60, 2, d), (2, 60, 2, d))
    plain = [give(backend, x, "float16") for x in (q, k, v)]
    wanted = bits(prefill(*plain, causal=True))
    turned = [give(backend, np.ascontiguousarray(x.transpose(0, 2, 1, 3)), "float16") for x in (q, k, v)]
    turned = [x.transpose(1, 2) if hasattr(x, "stride") else x.transpose(0, 2, 1, 3) for x in turned]
    assert bits(prefill(*turned, causal=True)) == wanted
    wide = give(backend, np.zeros((2, 40, 4, 3 * d)), "float16")
    into = wide[..., d : 2 * d]
    got = prefill(*plain, causal=True, out=into)
    assert got is into
    assert bits(got) == wanted
    assert not take(wide)[..., :d].any()


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_the_same_bits(backend, kind, monkeypatch):
    """Twenty repeats, any number of threads, any batch: one sequence, the same bits."""
    d = heads_of(32, backend)
    arrays = normal(9, (3, 140, 4, d), (3, 310, 2, d), (3, 310, 2, d))
    q, k, v = (give(backend, x, kind) for x in arrays)
    wanted = bits(prefill(q, k, v, causal=True)[1])
    for repeat in range(20):
        monkeypatch.setattr(machine, "threads", lambda count=1 + repeat % 4: count)
        assert bits(prefill(q, k, v, causal=True)[1]) == wanted
    assert bits(prefill(q[1:2], k[1:2], v[1:2], causal=True)[0]) == wanted


@TORCH
def test_tensors_and_arrays_agree():
    q, k, v = (x.astype(np.float16) for x in normal(4, (1, 30, 2, 16), (1, 40, 1, 16), (1, 40, 1, 16)))
    out, lse = prefill(*(give("torch", x) for x in (q, k, v)), return_lse=True)
    wanted, wanted_lse = prefill(q, k, v, return_lse=True)
    assert np.array_equal(out.numpy(), wanted)
    assert np.array_equal(lse.numpy(), wanted_lse)


def test_arrays_of_ml_dtypes():
    """bfloat16 without PyTorch."""
    bfloat16 = pytest.importorskip("ml_dtypes", reason="NumPy has no bfloat16 of its own").bfloat16
    arrays = [x.astype(bfloat16) for x in normal(4, (1, 30, 2, 16), (1, 40, 1, 16), (1, 40, 1, 16))]
    out, lse = prefill(*arrays, return_lse=True)
    assert out.dtype == bfloat16
    judge(take(out)[0], take(lse)[0], [take(x)[0] for x in arrays], "bfloat16")
    cache = PagedKVCache(8, 16, 1, 16, bfloat16)
    one = cache.allocate()
    cache.append(one, *arrays[1:])
    found = decode(arrays[0][:, -1], cache, one)
    assert np.abs(take(found) - take(prefill(arrays[0][:, -1:], *arrays[1:]))[:, 0]).max() < 1e-2


def test_negative_strides_and_read_only_inputs():
    q, k, v = (x.astype(np.float32) for x in normal(6, (1, 9, 2, 8), (1, 20, 2, 8), (1, 20, 2, 8)))
    for x in (q, k, v):
        x.flags.writeable = False
    out = prefill(q[:, ::-1], k[:, ::-1], v[:, ::-1])
    assert np.allclose(out[:, ::-1], prefill(q, k, v), atol=1e-6)
