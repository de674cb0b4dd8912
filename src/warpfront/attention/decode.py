"""`decode`: the newest tokens of many sequences against a paged cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.attention import _host, _options
from warpfront.attention._arrays import Given, c_ordered, empty, host_view, read, same_place, writable
from warpfront.attention._cache_checks import check_ids
from warpfront.attention._problem import DecodeProblem
from warpfront.attention.cache import PagedKVCache
from warpfront.errors import InvalidValueError

__all__ = ["decode"]


def decode(
    q: Any,
    cache: PagedKVCache,
    ids: Any,
    *,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: tuple[int | None, int | None] | int | None = None,
    splits: str | int = "auto",
    return_lse: bool = False,
    out: Any = None,
) -> Any:
    """Attention of the newest tokens of sequences over all their keys in a cache.

    Append the tokens first: they are part of what they attend to.

    Parameters
    ----------
    q : array (batch, heads, head_dim), or (batch, tokens, heads, head_dim)
        Queries of the last token of each sequence, or of its last ``tokens`` tokens, each of which sees the keys up to its
        own. The cache's type, on its device. ``heads`` is a multiple of the cache's.
    cache : PagedKVCache
    ids : int or integers (batch,)
        The sequences. -1 is a padded row, and a sequence may be empty: such a row gives 0, and LSE -inf. Its queries are
        not looked at.
    scale, soft_cap
        As `prefill`.
    window : int or (left, 0), optional
        A token sees at most so many keys before its own.
    splits : "auto" or int
        Into how many parts each sequence's keys are cut, at most. Either way the cut depends on the sequence's own length
        alone.
    return_lse : bool
    out : array, optional
        Where the output is written: like ``q``, C-ordered, sharing no memory with it or the cache.

    Returns
    -------
    out : array like ``q``
    lse : float32 (batch, heads), or (batch, tokens, heads)
        Only with ``return_lse``. Natural logarithm.

    Raises
    ------
    InvalidValueError
        Wrong shapes, types, options or sequences; a sequence shorter than ``tokens`` that is not empty.

    Notes
    -----
    Parts are computed side by side and merged in the order of the keys (Flash-Decoding, 2023). The bits of a row depend
    neither on the other rows, nor on where pages lie, nor on the number of threads; another ``splits`` gives other bits.
    """
    if not isinstance(cache, PagedKVCache):
        raise InvalidValueError(f"cache must be a PagedKVCache, got {type(cache).__name__}")
    given = read("q", q)
    rows = check_ids(cache._book, ids, padded=True, distinct=False)
    shape = _shape(given, cache, rows.shape[0])
    lengths = cache.lengths(rows)
    short = (lengths > 0) & (lengths < shape[1])
    if short.any():
        row = int(np.flatnonzero(short)[0])
        raise InvalidValueError(
            f"sequence {rows[row]} holds {lengths[row]} tokens, fewer than the {shape[1]} of q; append before decode"
        )
    table = cache.block_table(rows)
    problem = DecodeProblem(
        *shape[:3],
        cache.kv_heads,
        cache.head_dim,
        cache.dtype,
        cache.page_size,
        table_pages=table.shape[1],
        num_pages=cache.num_pages,
        max_length=int(lengths.max(initial=0)),
        splits=_options.splits_of(splits),
        left=_left(window),
        soft_cap=_options.soft_cap_of(soft_cap),
        scale=_options.scale_of(scale, cache.head_dim),
        return_lse=_options.flag("return_lse", return_lse),
        on_device=given.on_device,
    )
    target = _target(given, cache, out)
    lse = empty(given, shape[:3], "float32") if return_lse or not given.on_device else None
    if 0 not in given.shape:
        run = _on_device if given.on_device else _on_host
        run(problem, given, cache, (table, lengths), target, lse, shape)
    if not return_lse:
        return target.owner
    return target.owner, lse.reshape(given.shape[:-1])  # type: ignore[union-attr]


def _shape(q: Given, cache: PagedKVCache, batch: int) -> tuple[int, int, int, int]:
    """Return (batch, tokens, heads, head_dim), after checking q against the cache."""
    if q.on_device != (cache.device == "cuda"):
        there = "on a GPU" if q.on_device else "in host memory"
        raise InvalidValueError(f"q is {there}, and the cache is on {cache.device!r}")
    if q.dtype != cache.dtype:
        raise InvalidValueError(f"the cache holds {cache.dtype}, and q is {q.dtype}; convert it")
    if len(q.shape) not in (3, 4) or q.shape[0] != batch or q.shape[-1] != cache.head_dim:
        d = cache.head_dim
        raise InvalidValueError(
            f"q must have shape ({batch}, heads, {d}) or ({batch}, tokens, heads, {d}), got {q.shape}"
        )
    tokens = q.shape[1] if len(q.shape) == 4 else 1
    if tokens == 0:
        raise InvalidValueError("q has no tokens")
    return batch, tokens, q.shape[-2], q.shape[-1]


def _left(window: Any) -> int:
    if window is None:
        return -1
    if not isinstance(window, tuple | list):
        window = (window, 0)
    left, right = _options.sides(window, causal=False)
    if right > 0:
        raise InvalidValueError(
            f"decode sees no keys after a token; window must be (left, 0), got {tuple(window)!r}"
        )
    return left


def _target(q: Given, cache: PagedKVCache, out: Any) -> Given:
    if out is None:
        return read("out", empty(q, q.shape))
    target = read("out", out)
    same_place(q, target)
    if target.shape != q.shape or not c_ordered(target):
        raise InvalidValueError(
            f"out must be C-ordered and have the shape of q, {q.shape}, got {target.shape}"
        )
    writable(target, (q, read("k_pages", cache.k_pages), read("v_pages", cache.v_pages)))
    return target


def _on_host(
    problem: DecodeProblem,
    q: Given,
    cache: PagedKVCache,
    pages: tuple[Any, Any],
    target: Given,
    lse: Any,
    shape: tuple[int, int, int, int],
) -> None:
    queries = host_view(q)
    if len(queries.strides) == 3:
        strides = (queries.strides[0], 0, *queries.strides[1:])
        queries = type(queries)(queries.flat, shape, strides)
    into = lse if q.library == "numpy" else lse.numpy()
    flat = host_view(target, written=True).flat
    storage = (cache.k_pages, cache.v_pages)
    _host.run_decode(problem, queries, storage, pages[0], pages[1].astype(np.int64), flat, into)


def _on_device(
    problem: DecodeProblem,
    q: Given,
    cache: PagedKVCache,
    pages: tuple[Any, Any],
    target: Given,
    lse: Any,
    shape: tuple[int, int, int, int],
) -> None:
    import torch

    from warpfront.attention._triton_decode import run_decode

    table, lengths = (torch.from_numpy(x).to(q.owner.device) for x in pages)
    queries = q.owner if q.owner.ndim == 4 else q.owner.unsqueeze(1)
    storage = (cache.k_pages, cache.v_pages)
    run_decode(problem, queries, *storage, table, lengths, target.owner.view(shape), lse, None)
