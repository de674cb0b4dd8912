"""The mathematics of this room in float64 NumPy, and the same in the precision of a type: what kernels are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "attention",
    "merge",
    "rotate",
    "round_to",
    "same_precision",
    "tolerance",
    "visible",
    "widen",
]

F64 = NDArray[np.float64]


def widen(x: Any) -> F64:
    """Return an array or CPU tensor as float64."""
    if hasattr(x, "detach"):
        return np.asarray(x.detach().double().numpy())
    return np.asarray(x).astype(np.float64)


def visible(
    q_len: int, k_len: int, *, causal: bool = False, window: tuple[int | None, int | None] | None = None
) -> NDArray[np.bool_]:
    """Return which keys each query sees, (q_len, k_len); the diagonal ends in the bottom right corner."""
    behind = np.arange(k_len)[None, :] - (np.arange(q_len)[:, None] + k_len - q_len)
    seen = np.ones((q_len, k_len), bool)
    left, right = window or (None, None)
    if left is not None:
        seen &= behind >= -left
    if right is not None:
        seen &= behind <= right
    return seen & (behind <= 0) if causal else seen


def attention(
    q: Any,
    k: Any,
    v: Any,
    seen: NDArray[np.bool_],
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Any = None,
) -> tuple[F64, F64]:
    """Return output and LSE of one sequence, row by row over the keys it sees and no others.

    Parameters
    ----------
    q : (q_len, heads, head_dim)
    k, v : (k_len, kv_heads, head_dim)
    seen : bool (q_len, k_len)
    scale, soft_cap : float, optional
    bias : (heads, q_len, k_len), optional

    Returns
    -------
    out : float64 (q_len, heads, head_dim)
    lse : float64 (heads, q_len)
    """
    q, k, v = widen(q), widen(k), widen(v)
    group = q.shape[1] // k.shape[1]
    factor = q.shape[2] ** -0.5 if scale is None else scale
    out, lse = np.zeros(q.shape), np.full((q.shape[1], q.shape[0]), -np.inf)
    extra = None if bias is None else widen(bias)
    for h in range(q.shape[1]):
        for i in range(q.shape[0]):
            keys = seen[i].copy()
            if extra is not None:
                keys &= extra[h, i] != -np.inf
            if not keys.any():
                continue
            s = factor * (k[keys, h // group] @ q[i, h])
            if soft_cap is not None:
                s = soft_cap * np.tanh(s / soft_cap)
            if extra is not None:
                s = s + extra[h, i, keys]
            top = s.max()
            p = np.exp(s - top)
            out[i, h] = (p / p.sum()) @ v[keys, h // group]
            lse[h, i] = top + np.log(p.sum())
    return out, lse


def round_to(x: Any, dtype: str) -> NDArray[np.float32]:
    """Round to a type, and return the rounded numbers in float32."""
    y = np.asarray(x, np.float32)
    if dtype == "bfloat16":
        bits = y.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
        return np.where(np.isfinite(y), rounded.astype(np.uint32).view(np.float32), y)
    with np.errstate(over="ignore"):
        return y.astype(dtype).astype(np.float32)


def same_precision(
    q: Any,
    k: Any,
    v: Any,
    seen: NDArray[np.bool_],
    dtype: str,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    bias: Any = None,
) -> NDArray[np.float32]:
    """Return what plain code in ``dtype`` gives: every intermediate result rounded to it, sums in float32.

    Arguments and result as `attention`.
    """
    q, k, v = (widen(x).astype(np.float32) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    factor = np.float32(q.shape[2] ** -0.5 if scale is None else scale)
    out = np.zeros(q.shape, np.float32)
    for h in range(q.shape[1]):
        s = round_to(round_to(q[:, h] * factor, dtype) @ k[:, h // group].T, dtype)
        if soft_cap is not None:
            s = round_to(np.float32(soft_cap) * round_to(np.tanh(s / np.float32(soft_cap)), dtype), dtype)
        if bias is not None:
            s = round_to(s + widen(bias)[h].astype(np.float32), dtype)
        s = np.where(seen, s, np.float32(-np.inf))
        top = s.max(axis=1, keepdims=True, initial=np.float32(-np.inf))
        p = round_to(np.exp(s - np.where(np.isfinite(top), top, 0)), dtype)
        total = p.sum(axis=1, keepdims=True)
        out[:, h] = round_to(round_to(p / np.where(total == 0, 1, total), dtype) @ v[:, h // group], dtype)
    return out


def tolerance(exact: F64, plain: NDArray[np.float32], dtype: str) -> float:
    """Return the largest error allowed: twice that of plain code of the same type, plus twice the rounding of the result.

    Parameters
    ----------
    exact : float64
    plain : float32
        See `same_precision`.
    dtype : str
    """
    if exact.size == 0:
        return 0.0
    rounding = np.abs(round_to(exact, dtype) - exact).max()
    return float(2.0 * np.abs(plain - exact).max() + 2.0 * rounding + 1e-30)


def merge(outputs: Any, lses: Any) -> tuple[F64, F64]:
    """Return ``(sum_p e^(lse_p - lse) out_p, log sum_p e^lse_p)`` over the first axis; parts of LSE -inf are left out."""
    outs, logs = widen(outputs), widen(lses)
    top = logs.max(axis=0)
    weights = np.where(logs == -np.inf, 0.0, np.exp(logs - np.where(top == -np.inf, 0.0, top)))
    total = weights.sum(axis=0)
    used = np.where(weights[..., None] == 0.0, 0.0, outs)
    out = (weights[..., None] * used).sum(axis=0) / np.where(total == 0.0, 1.0, total)[..., None]
    with np.errstate(divide="ignore"):
        return out, np.where(total == 0.0, -np.inf, top + np.log(total))


def rotate(x: Any, positions: Any, theta: float, dim: int, *, interleaved: bool = False) -> F64:
    """Return rotary position embedding as multiplication by complex numbers ``e^(i position theta^(-2 c / dim))``.

    Parameters
    ----------
    x : (tokens, heads, head_dim)
    positions : (tokens,)
    theta, dim, interleaved
        See `warpfront.attention.RotaryEmbedding`.
    """
    out = widen(x).copy()
    half = dim // 2
    real, imag = (slice(0, dim, 2), slice(1, dim, 2)) if interleaved else (slice(0, half), slice(half, dim))
    angles = np.asarray(positions, np.float64)[:, None] * theta ** (-2.0 * np.arange(half) / dim)
    turned = (out[..., real] + 1j * out[..., imag]) * np.exp(1j * angles)[:, None, :]
    out[..., real], out[..., imag] = turned.real, turned.imag
    return out
