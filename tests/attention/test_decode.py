"""Decoding from pages against the float64 reference, and against prefill; batches, parts, padded rows, bits."""

import numpy as np
import pytest
from attention_arrays import BACKENDS, KINDS, bits, errors, give, heads_of, judge, settle, take
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront.attention import PagedKVCache, decode, merge_states
from warpfront.attention import _problem as problems
from warpfront.backend import settings as machine


def filled(
    backend, kind, lengths, *, page_size=16, kv_heads=2, d=32, seed=0, num_pages=None, scattered=False
):
    """Return a cache with sequences of some lengths, their numbers, and their keys and values in float64."""
    random = np.random.default_rng(seed)
    pages = sum(-(-n // page_size) for n in lengths) + 8
    device = "cuda" if backend == "cuda" else "cpu"
    cache = PagedKVCache(num_pages or pages, page_size, kv_heads, d, kind, device=device, block_pages=4)
    if scattered:  # the free list is not in order
        filler = cache.allocate(4)
        for one in filler:
            cache.append(one, *(give(backend, np.zeros((1, page_size, kv_heads, d)), kind),) * 2)
        cache.free([filler[2], filler[0]])
        cache.free([filler[1], filler[3]])
    ids = cache.allocate(len(lengths)) if lengths else []
    data = []
    for one, n in zip(ids, lengths, strict=True):
        k, v = (give(backend, random.standard_normal((1, n, kv_heads, d)), kind) for _ in "kv")
        if n:
            cache.append(one, k, v)
        data.append((take(k)[0], take(v)[0]))
    return cache, ids, data


def queries(backend, kind, *shape, seed=1):
    return give(backend, np.random.default_rng(seed).standard_normal(shape), kind)


@pytest.mark.parametrize("page_size", [8, 16, 32, 64, 128])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_options(backend, kind, page_size):
    d, lengths = heads_of(24, backend), (1, 7, 64, 300, 0, 1100)
    cache, ids, data = filled(backend, kind, lengths, page_size=page_size, d=d)
    q = queries(backend, kind, len(lengths), 6, d)
    for options in (
        {},
        {"window": (50, 0)},
        {"soft_cap": 2.0, "scale": 0.4},
        {"splits": 3},
        {"window": 0, "splits": 7},
    ):
        out, lse = (take(x) for x in decode(q, cache, ids, return_lse=True, **options))
        rules = {name: value for name, value in options.items() if name != "splits"}
        if rules.get("window") == 0:
            rules["window"] = (0, 0)
        settle(
            [
                errors(out[b][None], lse[b][:, None], (take(q)[b][None], k, v), kind, causal=True, **rules)
                for b, (k, v) in enumerate(data)
            ]
        )


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_several_new_tokens(backend, kind):
    d, lengths = heads_of(16, backend), (5, 70, 600)
    cache, ids, data = filled(backend, kind, lengths, d=d)
    q = queries(backend, kind, 3, 5, 4, d)
    out, lse = (take(x) for x in decode(q, cache, ids, return_lse=True, window=(40, 0)))
    assert lse.shape == (3, 5, 4)
    rules = {"causal": True, "window": (40, 0)}
    settle([errors(out[b], lse[b].T, (take(q)[b], k, v), kind, **rules) for b, (k, v) in enumerate(data)])


@given(
    lengths=st.lists(st.integers(0, 700), min_size=1, max_size=4),
    page_size=st.sampled_from((8, 16, 32, 64, 128)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 3), st.integers(1, 40)),
    splits=st.one_of(st.just("auto"), st.integers(1, 12)),
)
@settings(max_examples=40)
def test_any_shape(lengths, page_size, shape, splits):
    kv_heads, group, tokens, d = shape
    lengths = [n if n == 0 else max(n, tokens) for n in lengths]
    cache, ids, data = filled("numpy", "float16", lengths, page_size=page_size, kv_heads=kv_heads, d=d)
    q = queries("numpy", "float16", len(lengths), tokens, kv_heads * group, d)
    out, lse = (take(x) for x in decode(q, cache, ids, return_lse=True, splits=splits))
    settle(
        [
            errors(out[b], lse[b].T, (take(q)[b], k, v), "float16", causal=True)
            for b, (k, v) in enumerate(data)
        ]
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_padded_rows(backend):
    """Case 38: five sequences in eight rows. Padded rows give 0 and -inf, and change no bit of the others."""
    d = heads_of(16, backend)
    cache, ids, _ = filled(backend, "float16", (3, 40, 17, 200, 90), d=d)
    q = queries(backend, "float16", 8, 4, d)
    poisoned = take(q)
    poisoned[[1, 4, 7]] = np.nan
    q = give(backend, poisoned, "float16")
    rows = [ids[0], -1, ids[1], ids[2], -1, ids[3], ids[4], -1]
    out, lse = decode(q, cache, rows, return_lse=True)
    assert (take(out)[[1, 4, 7]] == 0).all()
    assert np.isneginf(take(lse)[[1, 4, 7]]).all()
    real = [0, 2, 3, 5, 6]
    alone, alone_lse = decode(q[real], cache, ids, return_lse=True)
    assert bits(out[real]) == bits(alone)
    assert bits(lse[real]) == bits(alone_lse)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bucket_of_nothing(backend):
    d = heads_of(16, backend)
    cache, _, _ = filled(backend, "float32", (), d=d)
    out, lse = decode(
        queries(backend, "float32", 3, 2, d), cache, [-1, -1, cache.allocate()[0]], return_lse=True
    )
    assert (take(out) == 0).all()
    assert np.isneginf(take(lse)).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_pages_beyond_a_length_are_never_read(backend, kind, poison):
    """Case 39: every slot that no visible token lies in is poisoned, freed pages and a page's unused rest."""
    d, lengths = heads_of(16, backend), (5, 130, 0, 700)
    cache, ids, _ = filled(backend, kind, lengths, d=d)
    q = queries(backend, kind, 4, 4, d)
    for window in (None, (30, 0)):
        clean = decode(q, cache, ids, window=window)
        keep = np.zeros((cache.num_pages, cache.page_size), bool)
        for one, n in zip(ids, lengths, strict=True):
            table = cache.block_table(one)[0]
            first = 0 if window is None else max(0, n - 1 - window[0])
            for token in range(first, n):
                keep[table[token // 16], token % 16] = True
        # Only resident pages may be written: those from the first to the last that is used.
        used = int(cache.block_table(ids).max()) + 1
        spoil(cache, ~keep[:used], poison)
        assert bits(decode(q, cache, ids, window=window)) == bits(clean)
        assert np.isfinite(take(clean)).all()


def spoil(cache, where, poison):
    for pages in (cache.k_pages, cache.v_pages):
        if hasattr(pages, "cuda"):
            import torch

            pages[: len(where)][torch.from_numpy(where).to(pages.device)] = poison
        elif cache.dtype == "bfloat16":
            pages[: len(where)][where] = np.float32(poison).view(np.uint32) >> 16
        else:
            pages[: len(where)][where] = poison


@pytest.mark.parametrize("splits", ["auto", 1, 5])
@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_bits_do_not_depend_on_the_batch(backend, kind, splits):
    """One sequence: the same bits alone, among others, in any row, on any pages, of any page size."""
    d = heads_of(32, backend)
    lengths = (900, 3, 257, 64, 2000)
    cache, ids, _ = filled(backend, kind, lengths, d=d)
    q = queries(backend, kind, 5, 8, d)
    whole = decode(q, cache, ids, splits=splits)
    for b, one in enumerate(ids):
        assert bits(decode(q[b : b + 1], cache, one, splits=splits)[0]) == bits(whole[b])
    order = [3, 0, 4, 2, 1]
    turned = decode(q[order], cache, [ids[b] for b in order], splits=splits)
    assert bits(turned) == bits(whole[order])
    for page_size in (8, 128):
        other, again, _ = filled(backend, kind, lengths, d=d, page_size=page_size, scattered=True)
        assert bits(decode(q, other, again, splits=splits)) == bits(whole)


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_the_same_bits_every_time(backend, kind, monkeypatch):
    d = heads_of(32, backend)
    cache, ids, _ = filled(backend, kind, (1500, 90), d=d)
    q = queries(backend, kind, 2, 8, d)
    wanted = bits(decode(q, cache, ids))
    for repeat in range(20):
        monkeypatch.setattr(machine, "threads", lambda count=(1, 2, 4)[repeat % 3]: count)
        assert bits(decode(q, cache, ids)) == wanted


@pytest.mark.parametrize(("backend", "kind"), KINDS)
def test_parts_merge_to_the_whole(backend, kind):
    """Two caches with halves of the keys, merged, are within the rule of one cache with all of them."""
    d = heads_of(16, backend)
    halves = [filled(backend, kind, (150,), d=d, seed=seed) for seed in (1, 2)]
    q = queries(backend, kind, 1, 4, d)
    states = [decode(q, cache, ids, return_lse=True) for cache, ids, _ in halves]
    outs, lses = zip(*states, strict=True)
    stacked = stack(outs), stack(lses)
    out, lse = (take(x) for x in merge_states(*stacked))
    k, v = (np.concatenate([data[0][side] for _, _, data in halves]) for side in (0, 1))
    # Merged outputs were rounded once more on the way.
    judge(out, lse[0][:, None], (take(q), k, v), kind)


def stack(arrays):
    if hasattr(arrays[0], "stride"):
        import torch

        return torch.stack(list(arrays))
    return np.stack(arrays)


def test_the_rule_of_parts():
    """A part is whole tiles, there are never more parts than asked for, and they cover the sequence exactly."""
    for splits in (0, 1, 2, 3, 7, 64, 1024):
        for length in (0, 1, 63, 64, 65, 255, 256, 257, 1024, 1025, 4096, 16384, 16385, 100_000, 1 << 30):
            each, count = problems.part_keys(length, splits), problems.part_count(length, splits)
            assert each % problems.KEY_TILE == 0
            assert (count - 1) * each < max(length, 1) <= max(1, count * each)
            assert count <= (splits or problems.MAX_PARTS)
            bound = problems.DecodeProblem(
                1, 1, 1, 1, 64, "float16", 16, 0, 1, max_length=length, splits=splits
            )
            assert count <= bound.max_parts


def test_offsets_past_two_to_the_31():
    """Page numbers far beyond 2^31 elements: the offset is computed in int64, without the memory behind it."""
    from warpfront.attention._decode_kernels import page_offset

    page, token, row = 3_000_000, 127, 8 * 128
    wanted = (page * 128 + token) * row
    assert wanted > 2**38
    assert page_offset(np.int32(page), np.int32(token), np.int32(row), np.int32(128)) == wanted


def test_a_far_page_is_read_where_it_lies():
    """A cache with address space for 2^32 elements; its highest pages are used, and only they are resident."""
    d, kv_heads, page_size = 256, 8, 128
    num_pages = (1 << 32) // (page_size * kv_heads * d)
    cache = PagedKVCache(num_pages, page_size, kv_heads, d, "float16", block_pages=1)
    near, near_ids, data = filled("numpy", "float16", (200,), page_size=page_size, kv_heads=kv_heads, d=d)
    one = cache.allocate()[0]
    cache._book._fresh = num_pages - 3  # as if all pages before had been used
    k, v = (x[None].astype(np.float16) for x in data[0])
    cache.append(one, k, v)
    assert int(cache.block_table(one).max()) * page_size * kv_heads * d > 2**31
    q = queries("numpy", "float16", 1, 8, d)
    assert bits(decode(q, cache, one)) == bits(decode(q, near, near_ids))
    assert cache.resident_bytes == 2 * cache.page_bytes
