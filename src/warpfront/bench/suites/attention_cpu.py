"""Attention on the CPU beside PyTorch's SDPA and plain NumPy.

What counts as an answer: on a few of the rows, twice what the room's rule allows whole arrays (twice the error of plain
code of the same type, and twice the rounding): the largest error of a few rows of plain code may be small by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, installed, suite

__all__ = ["compare", "plain", "run"]

# Rows of the last sequence that are checked.
_CHECKED = 16


def plain(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], *, causal: bool) -> NDArray[np.float32]:
    """Return attention with the matrix of scores written down, in float32, by NumPy."""
    q, k, v = (x.astype(np.float32).transpose(0, 2, 1, 3) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x, group, axis=1) for x in (k, v))
    s = q @ k.swapaxes(-1, -2)
    s *= np.float32(q.shape[-1] ** -0.5)
    if causal:
        rows, keys = s.shape[-2:]
        s[..., np.arange(keys)[None, :] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return np.asarray((s @ v).transpose(0, 2, 1, 3))


def _judge(arrays: tuple[Any, Any, Any], out: Any, *, causal: bool) -> Verdict:
    """Compare some rows of the last sequence with float64."""
    q, k, v = arrays
    from warpfront.attention import _reference as reference

    kind = str(q.dtype)
    rows = np.linspace(0, q.shape[1] - 1, min(_CHECKED, q.shape[1])).astype(int)
    seen = reference.visible(q.shape[1], k.shape[1], causal=causal)[rows]
    exact, _ = reference.attention(q[-1, rows], k[-1], v[-1], seen)
    same = reference.same_precision(q[-1, rows], k[-1], v[-1], seen, kind)
    error, limit = float(np.abs(out[-1, rows] - exact).max()), 2.0 * reference.tolerance(exact, same, kind)
    return Verdict(error <= limit, error, limit, "" if error <= limit else "error above what the rule allows")


def compare(entry: dict[str, Any]) -> list[Comparison]:
    """Return the comparison of one entry of ``cases.toml``."""
    return [_decode(entry) if entry["operation"] == "decode" else _prefill(entry)]


def _prefill(entry: dict[str, Any]) -> Comparison:
    from warpfront.attention import prefill

    batch, length, heads, kv_heads, d = (
        entry[key] for key in ("batch", "length", "heads", "kv_heads", "head_dim")
    )
    causal, kind = entry["causal"], np.dtype(entry["dtype"])

    def make() -> tuple[Any, Any, Any]:
        random = np.random.default_rng(0)
        shapes = ((batch, length, heads, d), *((batch, length, kv_heads, d),) * 2)
        return tuple(random.standard_normal(shape).astype(kind) for shape in shapes)  # type: ignore[return-value]

    def verify(state: Any, out: Any) -> Verdict:
        return _judge(state, np.asarray(out), causal=causal)

    flops = 4.0 * batch * heads * length * length * d * (0.5 if causal else 1.0)
    cases = {
        "warpfront": Case(
            make, lambda s: prefill(*s, causal=causal), verify, flops=flops, algorithm="prefill"
        ),
        "numpy": Case(
            make, lambda s: plain(*s, causal=causal), verify, flops=flops, algorithm="scores written down"
        ),
    }
    if installed("torch"):
        cases["torch"] = Case(
            make,
            lambda s: _torch(*s, causal=causal),
            verify,
            flops=flops,
            algorithm="scaled_dot_product_attention, all threads",
        )
    shapes = {"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "head_dim": d}
    name = "causal prefill" if causal else "prefill"
    packages = {"numpy": "numpy", "torch": "torch"}
    return Comparison(name, shapes, kind.name, "standard normal", ["warpfront"], cases, 0, packages)


def _torch(q: Any, k: Any, v: Any, *, causal: bool) -> Any:
    import torch

    a, b, c = (torch.from_numpy(x).transpose(1, 2) for x in (q, k, v))
    done = torch.nn.functional.scaled_dot_product_attention(
        a, b, c, is_causal=causal, enable_gqa=a.shape[1] != b.shape[1]
    )
    return done.transpose(1, 2).numpy()


def _decode(entry: dict[str, Any]) -> Comparison:
    """One token of each sequence. Peers get the keys contiguous, not in pages."""
    from warpfront.attention import PagedKVCache, decode

    batch, length, heads, kv_heads, d = (
        entry[key] for key in ("batch", "length", "heads", "kv_heads", "head_dim")
    )
    kind = np.dtype(entry["dtype"])

    def arrays() -> tuple[Any, Any, Any]:
        random = np.random.default_rng(0)
        shapes = ((batch, 1, heads, d), *((batch, length, kv_heads, d),) * 2)
        return tuple(random.standard_normal(shape).astype(kind) for shape in shapes)  # type: ignore[return-value]

    def paged() -> tuple[Any, Any, Any, Any]:
        q, k, v = arrays()
        page = entry["page_size"]
        cache = PagedKVCache(batch * -(-length // page), page, kv_heads, d, kind.name)
        ids = cache.allocate(batch)
        cache.append(ids, k, v)
        return (q, k, v), cache, ids, q[:, 0]

    def verify(state: Any, out: Any) -> Verdict:
        found = np.asarray(out).reshape(batch, 1, heads, d)
        return _judge(state[0] if len(state) == 4 else state, found, causal=True)

    moved = 2.0 * batch * length * kv_heads * d * kind.itemsize
    cases = {
        "warpfront": Case(
            paged, lambda s: decode(s[3], s[1], s[2]), verify, bytes=moved, algorithm="decode, paged"
        ),
        "numpy": Case(
            arrays, lambda s: plain(*s, causal=False), verify, bytes=moved, algorithm="contiguous keys"
        ),
    }
    if installed("torch"):
        cases["torch"] = Case(
            arrays,
            lambda s: _torch(*s, causal=False),
            verify,
            bytes=moved,
            algorithm="scaled_dot_product_attention, contiguous keys",
        )
    shapes = {"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "head_dim": d}
    packages = {"numpy": "numpy", "torch": "torch"}
    return Comparison("decode", shapes, kind.name, "standard normal", ["warpfront"], cases, 0, packages)


run = suite("attention_cpu", "attention_cpu", compare)
