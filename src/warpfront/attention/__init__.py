"""Attention for inference: prefill, decoding from a paged key-value cache, merging of partial results."""
