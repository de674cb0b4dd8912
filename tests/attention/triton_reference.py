"""Attention stated key by key in float64, for the tests of the Triton kernels: shares no code with the package."""

import numpy as np


def attend(q, k, v, *, scale, visible, soft_cap=0.0, bias=None):
    """One sequence: q (n, heads, d), k and v (m, kv heads, d), visible (n, m); bias broadcasts to (heads, n, m)."""
    n, heads, d = q.shape
    group = heads // k.shape[1]
    out, lse = np.zeros((n, heads, d)), np.full((heads, n), -np.inf)
    for h in range(heads):
        for i in range(n):
            keys = np.flatnonzero(visible[i])
            scores = k[keys, h // group].astype(np.float64) @ q[i, h].astype(np.float64) * scale
            if soft_cap:
                scores = soft_cap * np.tanh(scores / soft_cap)
            if bias is not None:
                added = np.broadcast_to(bias, (heads, n, k.shape[0]))[h, i, keys].astype(np.float64)
                keys, scores = keys[added != -np.inf], (scores + added)[added != -np.inf]
            if keys.size:
                top = scores.max() if np.isfinite(scores).all() else 0.0
                weights = np.exp(scores - top)
                lse[h, i] = top + np.log(weights.sum())
                out[i, h] = weights @ v[keys, h // group].astype(np.float64) / weights.sum()
    return out, lse


def seen(n, m, left=-1, right=-1):
    """Which keys each query sees: distances from the diagonal that ends bottom right."""
    away = np.arange(m)[None, :] - np.arange(n)[:, None] - (m - n)
    return ((left < 0) | (away >= -left)) & ((right < 0) | (away <= right))
