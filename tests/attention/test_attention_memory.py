"""What is refused before anything is written: arrays that share memory, are not stored as they read, or cannot be read."""

import warnings

import numpy as np
import pytest
from attention_arrays import TORCH, give, take

from warpfront.attention import (
    PagedKVCache,
    RotaryEmbedding,
    apply_rope,
    decode,
    explain_prefill,
    prefill,
)
from warpfront.attention import _reference as reference
from warpfront.errors import InvalidValueError

HOST = ("numpy", pytest.param("torch", marks=TORCH))


def arrays(backend="numpy"):
    random = np.random.default_rng(0)
    shapes = ((2, 5, 4, 16), (2, 7, 2, 16), (2, 7, 2, 16))
    return tuple(give(backend, random.standard_normal(shape), "float32") for shape in shapes)


def refused(call, message):
    with pytest.raises(InvalidValueError, match=message):
        call()


@pytest.mark.parametrize("backend", HOST)
def test_an_append_that_is_refused_changes_nothing(backend):
    cache = PagedKVCache(4, 8, 2, 16, "float32")
    row = cache.allocate()[0]
    good = give(backend, np.ones((1, 3, 2, 16)), "float32")
    gaps = give(backend, np.ones((1, 3, 2, 32)), "float32")[..., ::2]
    cache.append(row, good, good)
    for k, v in ((gaps, gaps), (good, gaps), (gaps, good)):
        refused(lambda k=k, v=v: cache.append(row, k, v), "last axis must be contiguous")
    for rope in ("a", RotaryEmbedding(32), (np.ones((2, 4), np.float32),) * 2):
        refused(lambda rope=rope: cache.append(row, good, good, rope=rope), "rope|RoPE|beyond the tables")
    assert cache.lengths(row)[0] == 3
    assert cache.free_pages == 3
    assert (decode(good[:, 0], cache, row) == 1.0).all()


@pytest.mark.parametrize("backend", HOST)
def test_prefill_into_memory_of_an_input(backend):
    q, k, v = arrays(backend)
    flat = give(backend, np.zeros(1280), "float32")
    out, bias = flat[:640].reshape(q.shape), flat[600:880].reshape(2, 4, 5, 7)
    refused(lambda: prefill(q, k, v, bias=bias, out=out), "out shares memory with bias")
    refused(lambda: prefill(q, k, v, out=q), "out shares memory with q")
    flat[640:] = q.reshape(-1)
    inside = flat[640:].reshape(q.shape)
    found = prefill(inside, k, v, out=out)  # beside q in one storage, and apart from it
    assert found is out
    assert np.array_equal(take(found), take(prefill(q, k, v)))


def test_an_output_whose_elements_share_memory():
    q, k, v = arrays()
    one = np.zeros((1, 5, 4, 16), np.float32)
    many = np.lib.stride_tricks.as_strided(one, q.shape, (0, *one.strides[1:]), writeable=True)
    backwards = np.zeros(q.shape, np.float32)[:, ::-1]
    for out in (many, backwards):
        refused(lambda out=out: prefill(q, k, v, out=out), "a place for each")
    turned = np.zeros((5, 2, 4, 16), np.float32).transpose(1, 0, 2, 3)
    assert np.array_equal(prefill(q, k, v, out=turned), prefill(q, k, v))


@TORCH
def test_an_expanded_output():
    import torch

    q, k, v = arrays("torch")
    refused(lambda: prefill(q, k, v, out=torch.zeros(1, 5, 4, 16).expand(2, -1, -1, -1)), "a place for each")


@pytest.mark.parametrize("backend", HOST)
def test_decode_into_memory_of_an_input(backend):
    cache = PagedKVCache(8, 8, 2, 16, "float32")
    ids = cache.allocate(2)
    _, k, v = arrays(backend)
    cache.append(ids, k, v)
    flat = give(backend, np.random.default_rng(1).standard_normal(256), "float32")
    q = flat[:128].reshape(2, 4, 16)
    wanted = take(decode(q, cache, ids))
    refused(lambda: decode(q, cache, ids, out=q), "out shares memory with q")
    refused(lambda: decode(q, cache, ids, out=flat[64:192].reshape(2, 4, 16)), "out shares memory with q")
    pages = cache.v_pages.reshape(-1)[:128].reshape(2, 4, 16)
    refused(lambda: decode(q, cache, ids, out=give_view(backend, pages)), "out shares memory with v_pages")
    assert np.array_equal(take(decode(q, cache, ids, out=flat[128:].reshape(2, 4, 16))), wanted)


def give_view(backend, array):
    """Return an array of NumPy as one of the backend, of the same memory."""
    if backend == "numpy":
        return array
    import torch

    return torch.from_numpy(array)


@pytest.mark.parametrize("backend", HOST)
def test_rope_into_memory_of_an_input(backend):
    rope = RotaryEmbedding(16)
    whole = give(backend, np.random.default_rng(2).standard_normal((3, 2, 16)), "float32")
    wanted = take(apply_rope(whole[:2], [1, 2], rope))
    refused(lambda: apply_rope(whole[:2], [1, 2], rope, out=whole[1:]), "out shares memory with x")
    tables = tuple(give(backend, x.copy()) for x in rope.tables(8))
    shared = tables[0].reshape(-1)[:64].reshape(2, 2, 16)
    refused(lambda: apply_rope(whole[:2], [1, 2], tables, out=shared), "out shares memory with cos")
    assert np.array_equal(take(apply_rope(whole[:2], [1, 2], rope, out=whole[:2])), wanted)


def test_rope_into_read_only_memory():
    x, out = np.ones((2, 2, 16), np.float32), np.ones((2, 2, 16), np.float32)
    out.flags.writeable = False
    refused(lambda: apply_rope(x, [1, 2], RotaryEmbedding(16), out=out), "out is read-only")


@TORCH
def test_tensors_that_are_not_stored_as_they_read():
    import torch

    q, k, v = arrays("torch")
    for turn in range(3):
        given = [q, k, v]
        given[turn] = torch._neg_view(given[turn])
        refused(lambda given=given: prefill(*given), r"negative bit set.*pass [qkv].resolve_neg\(\)")
    bias = torch._neg_view(torch.ones(1, 1, 5, 7))
    refused(lambda: prefill(q, k, v, bias=bias), "bias has its negative bit set")
    refused(lambda: prefill(torch.ones(2, 5, 4, 16, dtype=torch.complex64).conj(), k, v), "conjugate bit")
    refused(lambda: apply_rope(torch._neg_view(q[0]), range(5), RotaryEmbedding(16)), "negative bit")
    cache = PagedKVCache(4, 8, 2, 16, "float32")
    row = cache.allocate()
    for pair in ((torch._neg_view(k[:1]), v[:1]), (k[:1], torch._neg_view(v[:1]))):
        refused(lambda pair=pair: cache.append(row, *pair), "negative bit")
    assert cache.lengths(row)[0] == 0
    assert cache.free_pages == 4


def test_strides_between_elements():
    """A field of a packed record: its strides are no whole numbers of elements."""
    packed = np.zeros((2, 5, 4, 16), np.dtype([("x", "<f4"), ("mark", "u1")]))["x"]
    _, k, v = arrays()
    refused(lambda: prefill(packed, k, v), "make a contiguous copy")


@pytest.mark.parametrize("name", ["soft_cap", "scale"])
@pytest.mark.parametrize("value", [1e-50, 1e-39, 1e39, 1e300, np.inf, np.nan, 10**400, "1", True])
def test_numbers_that_float32_does_not_hold(name, value):
    q, k, v = arrays()
    cache = PagedKVCache(4, 8, 2, 16, "float32")
    calls = (
        lambda: prefill(q, k, v, **{name: value}),
        lambda: decode(q[:, 0], cache, cache.allocate(2), **{name: value}),
        lambda: explain_prefill(1, 64, 4, **{name: value}),
    )
    for call in calls:
        refused(call, f"{name} (is used as float32 and must be 1.1754944e-38 to 3.4028235e|must be a finite)")


@pytest.mark.parametrize("options", [{"soft_cap": 2e-38}, {"soft_cap": 3e38}, {"scale": 2e-38}, {"scale": 0}])
def test_numbers_at_the_edge_of_float32(options):
    q, k, v = arrays()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = prefill(q, k, v, **options)
    scale = options.get("scale", 0.25)
    scores = np.einsum("bihd,bjhd->bhij", q.astype(float), np.repeat(k, 2, axis=2)) * scale
    if "soft_cap" in options:
        scores = options["soft_cap"] * np.tanh(scores / options["soft_cap"])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    wanted = np.einsum("bhij,bjhd->bihd", weights, np.repeat(v, 2, axis=2))
    assert np.abs(found - wanted).max() < 2e-6


def test_booleans_of_numpy():
    q, k, v = arrays()
    out, lse = prefill(q, k, v, causal=np.True_, return_lse=np.True_)
    wanted, wanted_lse = prefill(q, k, v, causal=True, return_lse=True)
    assert np.array_equal(out, wanted)
    assert np.array_equal(lse, wanted_lse)
    rope = RotaryEmbedding(np.int64(16), np.float64(1e4), np.True_)
    assert rope == RotaryEmbedding(16, 1e4, interleaved=True)
    assert np.array_equal(
        apply_rope(q[0], range(5), rope), apply_rope(q[0], range(5), RotaryEmbedding(16, 1e4, True))
    )
    refused(lambda: RotaryEmbedding(16, interleaved="no"), "interleaved must be True or False")


@pytest.mark.parametrize("backend", HOST)
def test_rope_at_large_positions(backend):
    """Tables are made of the positions there are: one for every smaller position would take gigabytes here."""
    positions = np.array([10**9, 3, 2**31 + 7, 10**9])
    x = give(backend, np.random.default_rng(3).standard_normal((4, 2, 24)), "float32")
    for interleaved in (False, True):
        found = apply_rope(x, positions, RotaryEmbedding(16, interleaved=interleaved))
        wanted = reference.rotate(take(x), positions, 10000.0, 16, interleaved=interleaved)
        assert np.abs(take(found) - wanted).max() < 1e-6
    small = apply_rope(x, [3, 3, 3, 3], RotaryEmbedding(16, interleaved=True))
    assert np.array_equal(take(found)[1], take(small)[1])


def test_keys_appended_beyond_the_kept_tables(monkeypatch):
    from warpfront.attention import rope as module

    _, k, v = arrays()
    rope = RotaryEmbedding(16)
    pages = []
    for kept in (1 << 16, 0):
        monkeypatch.setattr(module, "KEPT_POSITIONS", kept)
        cache = PagedKVCache(8, 8, 2, 16, "float32")
        first, second = cache.allocate(2)
        cache.append([first, -1], k, v, rope=rope)
        cache.append([second, first], k[:, :3], v[:, :3], rope=rope)
        pages.append(cache.k_pages[:3].copy())
    assert np.array_equal(*pages)
