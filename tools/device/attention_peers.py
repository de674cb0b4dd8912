"""Contenders of ``attention.py`` that are not own kernels, and the public function, as calls on the same tensors."""

from __future__ import annotations


def sdpa(case, tensors, backend):
    """Torch's SDPA on one backend, the same memory, heads and tokens exchanged by strides."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor.transpose(1, 2) for tensor in tensors[:3])
    more = {"enable_gqa": True} if case.heads != case.kv_heads else {}

    def call():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case.causal, **more)

    return call


def dense_decode(case, tensors, backend):
    """Torch's SDPA over contiguous keys and values of the same size: no torch backend reads pages."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = tensors[:3]
    k, v = (t.view(case.batch, -1, case.kv_heads, case.head_dim).transpose(1, 2) for t in (k, v))
    q = q.transpose(1, 2)

    def call():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return call


def public(case, tensors):
    """The public function, which chooses by itself."""
    from warpfront.attention import prefill

    q, k, v = tensors[:3]
    window = (case.left, 0) if case.left >= 0 else None
    return lambda: prefill(q, k, v, causal=case.causal, window=window)


def flex(case, tensors):
    """Torch's FlexAttention, compiled."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (tensor.transpose(1, 2) for tensor in tensors[:3])
    mask = None
    if case.causal:
        mask = create_block_mask(
            lambda _b, _h, i, j: i >= j, None, None, case.length, case.length, device=q.device
        )
    compiled = torch.compile(flex_attention)
    return lambda: compiled(q, k, v, block_mask=mask)
