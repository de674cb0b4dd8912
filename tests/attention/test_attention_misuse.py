"""Wrong calls of prefill and decode raise a typed error that says what is wrong; imports stay light."""

import subprocess
import sys

import numpy as np
import pytest
from attention_arrays import TORCH

from warpfront.attention import PagedKVCache, decode, prefill
from warpfront.errors import InvalidValueError, NotSupportedError

Q = np.zeros((2, 5, 4, 8), np.float32)
K = np.zeros((2, 7, 2, 8), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prefill(Q[0], K, K), r"q must have 4 axes, \(batch, length, heads, head_dim\)"),
        (lambda: prefill(Q, K, K[:, :6]), "k and v must have the same shape"),
        (lambda: prefill(Q, K[:1], K[:1]), "the same batch"),
        (lambda: prefill(Q, K[..., :4].copy(), K[..., :4].copy()), "the same head_dim"),
        (lambda: prefill(Q[:, :, :3], K, K), "3 query heads cannot share 2 key heads"),
        (lambda: prefill(Q, K.astype(np.float16), K), "must be the same"),
        (lambda: prefill(*(x.astype(np.float64) for x in (Q, K, K))), "got float64; convert to float32"),
        (
            lambda: prefill(*(np.repeat(x, 40, axis=3) for x in (Q, K, K))),
            "head_dim must be 1 to 256, got 320",
        ),
        (lambda: prefill(Q[..., ::2], K[..., ::2], K[..., ::2]), "last axis must be contiguous"),
        (lambda: prefill(Q, K, K, window=3), r"window must be \(left, right\)"),
        (lambda: prefill(Q, K, K, window=(-1, 0)), "None for no limit"),
        (lambda: prefill(Q, K, K, soft_cap=0.0), "soft_cap must be positive, or None"),
        (lambda: prefill(Q, K, K, scale=float("nan")), "scale must be a finite number"),
        (lambda: prefill(Q, K, K, causal=1), "causal must be True or False"),
        (
            lambda: prefill(Q, K, K, bias=np.zeros((2, 4, 5, 6), np.float32)),
            r"bias must have shape \(2 or 1, 4 or 1, 5, 7\)",
        ),
        (lambda: prefill(Q, K, K, bias=np.zeros((1, 1, 5, 7), bool)), "bias must be float32, got bool"),
        (lambda: prefill(Q, K, K, cu_seqlens_q=[0, 2]), "give both"),
        (
            lambda: prefill(Q[0], K[0], K[0], cu_seqlens_q=[0, 5], cu_seqlens_k=[0, 6]),
            "end with 7, the rows of k",
        ),
        (lambda: prefill(Q[0], K[0], K[0], cu_seqlens_q=[0, 5], cu_seqlens_k=[0, 3, 7]), "of the same"),
        (
            lambda: prefill(Q[0], K[0], K[0], cu_seqlens_q=[0.0, 5.0], cu_seqlens_k=[0, 7]),
            "cu_seqlens_q must be integers",
        ),
        (lambda: prefill(Q, K, K, out=Q), "out shares memory with q"),
        (lambda: prefill(Q, K, K, out=np.zeros((2, 5, 4, 9), np.float32)), "out must have the shape of q"),
        (lambda: prefill(Q, K, K, algorithm="fast"), "algorithm must be one of"),
        (lambda: prefill(Q, np.ma.array(K), K), "k is a masked array"),
        (lambda: prefill(Q.tolist(), K, K), "NumPy array or a PyTorch tensor, got list"),
    ],
)
def test_prefill(call, message):
    with pytest.raises(InvalidValueError, match=message):
        call()


def test_a_gpu_path_for_host_data():
    with pytest.raises(NotSupportedError, match="runs on a GPU, and q is in host memory"):
        prefill(Q, K, K, algorithm="triton")


def test_read_only_out():
    out = np.zeros_like(Q)
    out.flags.writeable = False
    with pytest.raises(InvalidValueError, match="read-only"):
        prefill(Q, K, K, out=out)


def test_decode():
    cache = PagedKVCache(8, 8, 2, 8, "float32")
    a, b = cache.allocate(2)
    cache.append(a, *(np.zeros((1, 3, 2, 8), np.float32),) * 2)
    q = np.zeros((2, 4, 8), np.float32)
    for call, message in (
        (lambda: decode(q, [], [a, b]), "cache must be a PagedKVCache"),
        (lambda: decode(q, cache, [a]), r"q must have shape \(1, heads, 8\)"),
        (lambda: decode(q.astype(np.float16), cache, [a, b]), "the cache holds float32, and q is float16"),
        (lambda: decode(q, cache, [a, 9]), "sequence 9 was never allocated"),
        (lambda: decode(q[:, :3], cache, [a, b]), "3 query heads cannot share 2 key heads"),
        (
            lambda: decode(np.zeros((1, 4, 4, 8), np.float32), cache, [a]),
            f"sequence {a} holds 3 tokens, fewer than the 4",
        ),
        (lambda: decode(q, cache, [a, b], splits=0), "splits must be"),
        (lambda: decode(q, cache, [a, b], splits="many"), "splits must be"),
        (lambda: decode(q, cache, [a, b], window=(3, 1)), "no keys after a token"),
        (lambda: decode(q, cache, [a, b], out=q), "out shares memory with q"),
        (lambda: decode(q, cache, [a, b], out=np.zeros((2, 4, 16), np.float32)[..., ::2]), "C-ordered"),
    ):
        with pytest.raises(InvalidValueError, match=message):
            call()


@TORCH
def test_tensors():
    import torch

    q, k = torch.zeros(2, 5, 4, 8), torch.zeros(2, 7, 2, 8)
    with pytest.raises(InvalidValueError, match=r"pass q.detach\(\)"):
        prefill(q.requires_grad_(), k, k)
    q = q.detach()
    with pytest.raises(InvalidValueError, match=r"layout torch.sparse_coo"):
        prefill(q.to_sparse(), k, k)
    with pytest.raises(NotSupportedError, match="q is on meta"):
        prefill(q.to("meta"), k, k)
    with pytest.raises(InvalidValueError, match="k is numpy and q is torch"):
        prefill(q, k.numpy(), k)
    whole = torch.zeros(2, 12, 4, 8)
    with pytest.raises(InvalidValueError, match="out shares memory with k"):
        prefill(q, whole[:, :7, :2], k, out=whole[:, 7:])


def test_imports_are_light():
    """Neither ``import warpfront`` nor the room imports PyTorch, Triton, CuPy or Numba."""
    code = (
        "import sys, warpfront, warpfront.attention;"
        "print([m for m in ('torch', 'triton', 'cupy', 'numba', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
