"""The paged cache: what goes in comes out; forks, copies on write, growth, bytes; nothing is ever half done."""

import numpy as np
import pytest
from attention_arrays import BACKENDS, TORCH, give, take
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront.attention import PagedKVCache, RotaryEmbedding
from warpfront.attention import _reference as reference
from warpfront.attention._storage import HostStorage
from warpfront.errors import InvalidValueError, NotSupportedError, OutOfPagesError


def tokens(seed, *shape):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for _ in "kv"]


def read_back(cache, sequence):
    """Return keys and values of a sequence, through its block table."""
    n, table = int(cache.lengths(sequence)[0]), cache.block_table(sequence)[0]
    place = np.arange(n)
    page, within = table[place // cache.page_size].astype(np.int64), place % cache.page_size
    if cache.device == "cuda":  # only resident pages may be read
        page, within = give("cuda", page), give("cuda", within)
    return [take(pages[page, within]) for pages in (cache.k_pages, cache.v_pages)]


def small(backend="numpy", **options):
    device = "cuda" if backend == "cuda" else "cpu"
    return PagedKVCache(options.pop("num_pages", 32), 8, 2, 64, "float32", device=device, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_three_ways_to_append(backend):
    cache = small(backend)
    ids = cache.allocate(3)
    k, v = tokens(0, 3, 2, 64)
    cache.append(ids, give(backend, k), give(backend, v))
    more_k, more_v = tokens(1, 3, 10, 2, 64)
    cache.append(ids, give(backend, more_k), give(backend, more_v))
    last_k, last_v = tokens(2, 9, 2, 64)
    cu = np.array([0, 4, 4, 9])
    cache.append(ids, give(backend, last_k), give(backend, last_v), cu_seqlens=cu)
    assert cache.lengths(ids).tolist() == [15, 11, 16]
    for b, one in enumerate(ids):
        wanted = [
            np.concatenate([first[b : b + 1], more[b], last[cu[b] : cu[b + 1]]])
            for first, more, last in ((k, more_k, last_k), (v, more_v, last_v))
        ]
        assert all(np.array_equal(*pair) for pair in zip(read_back(cache, one), wanted, strict=True))


@TORCH
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_sixteen_bits_are_kept_as_they_are(kind):
    cache = PagedKVCache(4, 8, 1, 3, kind)
    one = cache.allocate()[0]
    k, v = (give("torch", x, kind) for x in tokens(0, 1, 5, 1, 3))
    cache.append(one, k, v)
    import torch

    stored = torch.from_numpy(np.array(cache.k_pages).view(np.int16)).view(getattr(torch, kind))
    assert torch.equal(stored[cache.block_table(one)[0][0], :5], k[0])


def test_strided_tokens():
    cache = small()
    one = cache.allocate()[0]
    k, v = tokens(0, 1, 2, 5, 64)
    cache.append(one, k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3))
    assert np.array_equal(read_back(cache, one)[0], k[0].transpose(1, 0, 2))


def test_padded_rows_are_skipped():
    cache = small()
    a, b = cache.allocate(2)
    k, v = tokens(0, 4, 2, 64)
    cache.append([b, -1, a, -1], k, v)
    assert np.array_equal(read_back(cache, a)[0], k[2:3])
    assert np.array_equal(read_back(cache, b)[1], v[0:1])
    assert cache.lengths([-1, a]).tolist() == [0, 1]
    assert cache.block_table([-1, a])[0].tolist() == [-1]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dim", [64, 20])
@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_are_turned_as_they_enter(backend, dim, interleaved):
    cache = small(backend)
    ids = cache.allocate(2)
    rope = RotaryEmbedding(dim, 500.0, interleaved)
    k, v = tokens(0, 2, 11, 2, 64)
    cache.append(ids, give(backend, k[:, :10]), give(backend, v[:, :10]), rope=rope)
    cache.append(ids, give(backend, k[:, 10]), give(backend, v[:, 10]), rope=rope)
    for b, one in enumerate(ids):
        turned = reference.rotate(k[b], np.arange(11), 500.0, dim, interleaved=interleaved)
        assert np.abs(read_back(cache, one)[0] - turned).max() < 1e-6
        assert np.array_equal(read_back(cache, one)[1], v[b])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fork_shares_pages_until_one_writes(backend):
    cache = small(backend)
    parent = cache.allocate()[0]
    k, v = tokens(0, 1, 19, 2, 64)
    cache.append(parent, give(backend, k), give(backend, v))
    child = cache.fork(parent)
    assert cache.block_table(child).tolist() == cache.block_table(parent).tolist()
    used = cache.num_pages - cache.free_pages
    assert used == 3
    new = [tokens(seed, 1, 2, 64) for seed in (1, 2)]
    cache.append(child, *(give(backend, x) for x in new[0]))
    assert cache.num_pages - cache.free_pages == used + 1
    assert cache.block_table(child)[0, :2].tolist() == cache.block_table(parent)[0, :2].tolist()
    cache.append(parent, *(give(backend, x) for x in new[1]))
    assert cache.num_pages - cache.free_pages == used + 1  # nobody shares its last page any more
    assert np.array_equal(read_back(cache, child)[0], np.concatenate([k[0], new[0][0]]))
    assert np.array_equal(read_back(cache, parent)[1], np.concatenate([v[0], new[1][1]]))
    cache.free(parent)
    assert np.array_equal(read_back(cache, child)[0], np.concatenate([k[0], new[0][0]]))
    cache.free(child)
    assert cache.free_pages == cache.num_pages


def test_two_forks_that_append_in_one_call():
    cache = small(num_pages=4)
    parent = cache.allocate()[0]
    k, v = tokens(0, 1, 10, 2, 64)
    cache.append(parent, k, v)
    child = cache.fork(parent)
    new_k, new_v = tokens(1, 2, 2, 64)
    cache.append([parent, child], new_k, new_v)
    assert cache.free_pages == 1
    for row, one in enumerate((parent, child)):
        assert np.array_equal(read_back(cache, one)[0], np.concatenate([k[0], new_k[row : row + 1]]))


def test_a_full_last_page_is_shared_on():
    cache = small()
    parent = cache.allocate()[0]
    cache.append(parent, *tokens(0, 1, 16, 2, 64))
    child = cache.fork(parent)
    cache.append(child, *tokens(1, 1, 2, 64))
    assert cache.num_pages - cache.free_pages == 3


def state(cache):
    ids = list(cache.sequences)
    data = [take(cache.k_pages).tobytes(), take(cache.v_pages).tobytes()]
    return (
        ids,
        cache.lengths(ids).tolist(),
        cache.block_table(ids).tolist(),
        cache.free_pages,
        cache.resident_bytes,
        data,
    )


def test_too_few_pages_change_nothing():
    cache = small(num_pages=5, block_pages=2)
    a, b = cache.allocate(2)
    cache.append([a, b], *tokens(0, 2, 12, 2, 64))
    before = state(cache)
    with pytest.raises(
        OutOfPagesError, match="2 pages of 8 tokens are needed, and 1 of 5 are free"
    ) as caught:
        cache.append([a, b], *tokens(1, 2, 5, 2, 64))
    assert (caught.value.needed, caught.value.free) == (2, 1)
    assert state(cache) == before
    cache.append(a, *tokens(1, 1, 5, 2, 64))
    assert cache.free_pages == 0


def test_no_memory_for_a_block_changes_nothing(monkeypatch):
    cache = small(num_pages=8, block_pages=1)
    a = cache.allocate()[0]
    cache.append(a, *tokens(0, 1, 3, 2, 64))
    before = state(cache)
    commit = HostStorage.commit

    def no_more(self, block):
        if block >= 3:
            raise NotSupportedError("out of memory")
        commit(self, block)

    monkeypatch.setattr(HostStorage, "commit", no_more)
    with pytest.raises(NotSupportedError):
        cache.append(a, *tokens(1, 1, 40, 2, 64))
    assert state(cache) == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_pool_grows_and_shrinks(backend):
    cache = small(backend, num_pages=2048)
    assert cache.block_pages == 512
    least = cache.resident_bytes  # a GPU's launches want memory behind the first page at all times
    assert least == (512 * cache.page_bytes if backend == "cuda" else 0)
    ids = cache.allocate(4)
    seen = []
    for one in ids:
        cache.append(one, *(give(backend, x) for x in tokens(one, 1, 4096, 2, 64)))
        seen.append(cache.resident_bytes)
    block = 512 * cache.page_bytes
    assert seen == [block, 2 * block, 3 * block, 4 * block]
    assert cache.capacity_bytes == 2048 * cache.page_bytes
    assert cache.logical_bytes == 4 * 4096 * cache.page_bytes // 8
    twin = cache.fork(ids[0])
    assert cache.logical_bytes == 5 * 4096 * cache.page_bytes // 8
    assert cache.resident_bytes == 4 * block
    cache.free(ids[1:3])
    assert cache.resident_bytes == 3 * block  # one free block is kept
    cache.trim()
    assert cache.resident_bytes == 2 * block
    cache.free(ids[0])
    cache.trim()
    assert cache.resident_bytes == 2 * block  # the fork still uses it
    cache.free([twin, ids[3]])
    cache.trim()
    assert (cache.resident_bytes, cache.logical_bytes) == (least, 0)
    again = cache.allocate()[0]
    k, v = tokens(9, 1, 500, 2, 64)
    cache.append(again, give(backend, k), give(backend, v))
    assert np.array_equal(read_back(cache, again)[0], k[0])


def test_released_memory_goes_back_to_the_system():
    resource_file = "/proc/self/statm"
    try:
        open(resource_file).close()
    except OSError:
        pytest.skip("no /proc on this system")

    def resident():
        with open(resource_file) as file:
            return int(file.read().split()[1]) * 4096

    cache = PagedKVCache(1024, 16, 4, 64, "float32")
    one = cache.allocate()[0]
    before = resident()
    k = np.ones((1, 4096, 4, 64), np.float32)
    cache.append(one, k, k)
    grown = resident() - before
    assert cache.resident_bytes == 8 << 20
    assert grown > 7 << 20
    cache.free(one)
    cache.trim()
    assert resident() - before < grown - (7 << 20)


def outcome(append, cache):
    """Carry out an append; tell whether there was room for it."""
    try:
        append()
    except OutOfPagesError as refusal:
        said = refusal
    else:
        return True
    assert said.needed > said.free == cache.free_pages
    return False


@given(data=st.data())
@settings(max_examples=60)
def test_any_history(data):
    """Random appends, forks and frees against plain lists."""
    cache = PagedKVCache(12, 8, 1, 2, "float32", block_pages=data.draw(st.integers(1, 5)))
    lists, counter = {}, 0
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(("new", "append", "append", "append", "fork", "free", "trim")))
        if action == "new" or not lists:
            lists[cache.allocate()[0]] = []
        elif action == "append":
            rows = data.draw(st.lists(st.sampled_from(sorted(lists)), min_size=1, max_size=3, unique=True))
            counts = [data.draw(st.integers(0, 20)) for _ in rows]
            cu = np.cumsum([0, *counts])
            values = np.arange(counter, counter + cu[-1], dtype=np.float32)
            counter += int(cu[-1])
            k = np.repeat(values, 2).reshape(-1, 1, 2)
            if outcome(lambda: cache.append(rows, k, -k, cu_seqlens=cu), cache):  # noqa: B023
                for row, first, end in zip(rows, cu[:-1], cu[1:], strict=True):
                    lists[row] = lists[row] + values[first:end].tolist()
        elif action == "fork":
            source = data.draw(st.sampled_from(sorted(lists)))
            lists[cache.fork(source)] = list(lists[source])
        elif action == "free":
            cache.free(gone := data.draw(st.sampled_from(sorted(lists))))
            del lists[gone]
        else:
            cache.trim()
        for row, wanted in lists.items():
            k, v = read_back(cache, row)
            assert k[:, 0, 0].tolist() == wanted
            assert (-v[:, 0, 1]).tolist() == wanted
        pages = {int(p) for row in lists for p in cache.block_table(row).ravel() if p >= 0}
        assert cache.free_pages == cache.num_pages - len(pages)


def test_misuse():
    cache = small()
    a, b = cache.allocate(2)
    k, v = tokens(0, 1, 2, 64)
    wrong = [
        (lambda: cache.append(7, k, v), "sequence 7 was never allocated"),
        (lambda: cache.append([a, a], *tokens(0, 2, 2, 64)), f"sequence {a} is named twice"),
        (lambda: cache.append(a, k.astype(np.float16), v.astype(np.float16)), "the cache holds float32"),
        (lambda: cache.append(a, k, v[:, :1]), "same shape"),
        (lambda: cache.append(a, k[:, :1], v[:, :1]), "must have shape"),
        (lambda: cache.append([a, b], k, v, cu_seqlens=[0, 1]), "cu_seqlens must be 3 numbers"),
        (lambda: cache.append([a, b], k, v, cu_seqlens=[0, 1, 2]), r"must have shape \(2, 2, 64\)"),
        (lambda: cache.append("a", k, v), "ids must be"),
        (lambda: cache.append(a, k.tolist(), v), "NumPy array or a PyTorch tensor"),
        (lambda: cache.append(a, k, v, rope=3), "RotaryEmbedding or tables"),
        (lambda: cache.append(a, k, v, rope=RotaryEmbedding(66)), "at most head_dim = 64"),
        (lambda: cache.fork([a, b]), "fork takes one sequence"),
        (lambda: cache.free(-1), "never allocated"),
        (lambda: cache.allocate(0), "n_sequences must be an integer, at least 1"),
        (lambda: PagedKVCache(4, 12, 1, 64, "float32"), "page_size must be one of 8, 16, 32, 64, 128"),
        (lambda: PagedKVCache(4, 8, 1, 257, "float32"), "head_dim must be 1 to 256"),
        (lambda: PagedKVCache(0, 8, 1, 64, "float32"), "num_pages"),
        (lambda: PagedKVCache(4, 8, 1, 64, "float64"), "got float64"),
        (lambda: PagedKVCache(4, 8, 1, 64, "float32", device="tpu"), "device must be"),
        (lambda: PagedKVCache(4, 8, 1, 64, "nonsense"), "element type"),
        (lambda: RotaryEmbedding(3), "even integer"),
    ]
    before = state(cache)
    for call, message in wrong:
        with pytest.raises(InvalidValueError, match=message):
            call()
    with pytest.raises(NotSupportedError, match="quantised"):
        PagedKVCache(4, 8, 1, 64, "int8")
    assert state(cache) == before
    cache.free(a)
    with pytest.raises(InvalidValueError, match=f"sequence {a} was freed"):
        cache.append(a, k, v)
