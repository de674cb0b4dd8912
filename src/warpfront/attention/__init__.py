"""Attention for inference: prefill, decoding from a paged key-value cache, merging of partial results."""

from warpfront.attention._graphs import DecodeGraphs
from warpfront.attention.cache import PagedKVCache
from warpfront.attention.decode import decode
from warpfront.attention.explain import explain_prefill
from warpfront.attention.merge import merge_states
from warpfront.attention.prefill import prefill
from warpfront.attention.rope import RotaryEmbedding, apply_rope

__all__ = [
    "DecodeGraphs",
    "PagedKVCache",
    "RotaryEmbedding",
    "apply_rope",
    "decode",
    "explain_prefill",
    "merge_states",
    "prefill",
]
