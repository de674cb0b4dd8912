"""Decode steps as CUDA graphs, on a GPU: the same bits as `decode`, batches of any size, sequences that grow."""

import pytest

from warpfront.attention import PagedKVCache, decode
from warpfront.errors import InvalidValueError, NotSupportedError

pytestmark = pytest.mark.cuda(by="torch")


def filled(lengths, kv_heads=2, head_dim=64, page_size=16):
    import torch

    torch.manual_seed(0)
    cache = PagedKVCache(600, page_size, kv_heads, head_dim, "bfloat16", device="cuda")
    ids = cache.allocate(len(lengths))
    for row, length in zip(ids, lengths, strict=True):
        if length:
            grow(cache, row, length)
    return cache, ids


def grow(cache, row, tokens):
    import torch

    k, v = (
        torch.randn((1, tokens, cache.kv_heads, cache.head_dim), device="cuda").bfloat16() for _ in range(2)
    )
    cache.append([row], k, v)


@pytest.fixture
def graphs():
    pytest.importorskip("torch")
    from warpfront.attention import DecodeGraphs

    return DecodeGraphs


def test_batch_of_five_in_a_graph_of_eight_and_smaller_ones_after_it(graphs):
    import torch

    cache, ids = filled((37, 900, 1, 256, 600))
    step = graphs(cache, 8, batches=(1, 4, 8))
    q = torch.randn((5, 8, 64), device="cuda").bfloat16()
    assert torch.equal(step(q, ids), decode(q, cache, ids))
    assert set(step.captured) == {8}
    for batch in (2, 1, 5):  # what an earlier batch left in the bucket must not show
        assert torch.equal(step(q[:batch], ids[:batch]), decode(q[:batch], cache, ids[:batch]))
    assert set(step.captured) == {1, 4, 8}


def test_padded_and_empty_rows_give_zeros(graphs):
    import torch

    cache, ids = filled((37, 0, 50))
    step = graphs(cache, 4, batches=(4,), return_lse=True)
    q = torch.randn((4, 4, 64), device="cuda").bfloat16()
    q[1:3] = torch.nan
    out, lse = step(q, [ids[0], -1, ids[1], ids[2]])
    assert (out[1:3] == 0).all()
    assert (lse[1:3] == -torch.inf).all()
    assert torch.isfinite(out[[0, 3]]).all()


def test_sequences_that_outgrow_a_graph_have_it_captured_anew(graphs):
    import torch

    cache, ids = filled((1020, 10))
    step = graphs(cache, 4, batches=(2,), window=(700, 0))
    q = torch.randn((2, 4, 64), device="cuda").bfloat16()
    for _ in range(8):
        assert torch.equal(step(q, ids), decode(q, cache, ids, window=(700, 0)))
        grow(cache, ids[0], 1)
    assert step.captured[2] == 2048


def test_misuse(graphs):
    import torch

    cache, ids = filled((20,))
    step = graphs(cache, 4, batches=(1, 2))
    with pytest.raises(InvalidValueError, match="largest bucket"):
        step(torch.zeros((3, 4, 64), device="cuda").bfloat16(), [ids[0], -1, -1])
    with pytest.raises(InvalidValueError, match="shape"):
        step(torch.zeros((1, 8, 64), device="cuda").bfloat16(), ids)
    with pytest.raises(InvalidValueError, match="bfloat16"):
        step(torch.zeros((1, 4, 64), device="cuda"), ids)
    with pytest.raises(NotSupportedError, match="host memory"):
        graphs(PagedKVCache(4, 16, 2, 64, "float32"), 4)
