"""`DecodeGraphs`: decode steps as CUDA graphs, one for each bucket of batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpfront.attention import _options
from warpfront.attention._problem import DecodeProblem
from warpfront.attention.cache import PagedKVCache
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["DecodeGraphs", "bucket_of", "padded"]

BATCHES = (1, 2, 4, 8, 16, 32, 64)
# Tokens that the first graphs have room for, unless sequences are longer already; doubled as they grow.
LENGTH = 1024


def bucket_of(batch: int, batches: Sequence[int]) -> int:
    """Return the smallest bucket that holds a batch.

    Raises
    ------
    InvalidValueError
        None does.
    """
    found = min((size for size in batches if size >= batch), default=None)
    if found is None:
        raise InvalidValueError(
            f"the largest bucket holds {max(batches)} sequences, got {batch}; make DecodeGraphs with a larger one"
        )
    return found


def padded(table: Any, lengths: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Return block table and lengths for a bucket: pages -1 and length 0 beyond what there is, which give zeros."""
    wide = np.full((rows, columns), -1, np.int32)
    wide[: table.shape[0], : table.shape[1]] = table
    long = np.zeros(rows, np.int32)
    long[: lengths.shape[0]] = lengths
    return wide, long


@dataclass(frozen=True)
class _Bucket:
    """One captured step and the memory that it reads and writes."""

    graph: Any
    q: Any
    table: Any
    lengths: Any
    out: Any
    lse: Any
    workspace: Any
    capacity: int


class DecodeGraphs:
    """`decode` without the cost of launches: a captured graph for each bucket of batch sizes.

    A step takes the smallest bucket that holds its batch; rows beyond the batch have length 0 and give zeros, which are
    not returned. Another batch size takes another bucket; sequences that outgrow a graph's capacity have it captured anew
    with twice the room. Neither changes bits: a row's depend on its own keys alone.

    Parameters
    ----------
    cache : PagedKVCache
        On a GPU.
    heads : int
        Query heads, a multiple of the cache's.
    batches : sequence of int
        Buckets.
    tokens : int
        Newest tokens of each sequence in a step.
    scale, soft_cap, window, splits, return_lse
        As `decode`.

    Raises
    ------
    InvalidValueError
        A parameter outside what is allowed.
    NotSupportedError
        The cache is not on a GPU.
    """

    def __init__(
        self,
        cache: PagedKVCache,
        heads: int,
        *,
        batches: Sequence[int] = BATCHES,
        tokens: int = 1,
        scale: float | None = None,
        soft_cap: float | None = None,
        window: Any = None,
        splits: str | int = "auto",
        return_lse: bool = False,
    ) -> None:
        from warpfront.attention.decode import _left

        if not isinstance(cache, PagedKVCache):
            raise InvalidValueError(f"cache must be a PagedKVCache, got {type(cache).__name__}")
        if cache.device != "cuda":
            raise NotSupportedError(
                "graphs are captured on a GPU, and the cache is in host memory; use decode()"
            )
        if not batches or min(batches) < 1:
            raise InvalidValueError(f"batches must be positive sizes, got {tuple(batches)!r}")
        self.cache = cache
        self.heads = heads
        self.tokens = tokens
        self.batches = tuple(sorted(set(batches)))
        self._options = {
            "splits": _options.splits_of(splits),
            "left": _left(window),
            "soft_cap": _options.soft_cap_of(soft_cap),
            "scale": _options.scale_of(scale, cache.head_dim),
            "return_lse": _options.flag("return_lse", return_lse),
        }
        self._buckets: dict[int, _Bucket] = {}
        self._problem(1, cache.page_size)

    def __call__(self, q: Any, ids: Any) -> Any:
        """Run one step.

        Parameters
        ----------
        q : Tensor (batch, heads, head_dim), or (batch, tokens, heads, head_dim)
        ids : int or integers (batch,)
            Sequences; -1 is a padded row.

        Returns
        -------
        out : Tensor like ``q``
            Memory of the bucket: the next step of this bucket writes it again.
        lse : Tensor float32 (batch, tokens, heads)
            With ``return_lse``; likewise.
        """
        import torch

        lengths, table = self.cache.lengths(ids), self.cache.block_table(ids)
        batch = lengths.shape[0]
        self._check(q, batch, lengths)
        bucket = self._bucket(bucket_of(batch, self.batches), int(lengths.max(initial=0)))
        wide, long = padded(table, lengths, bucket.q.shape[0], bucket.table.shape[1])
        bucket.table.copy_(torch.from_numpy(wide), non_blocking=True)
        bucket.lengths.copy_(torch.from_numpy(long), non_blocking=True)
        bucket.q[:batch].copy_(q.view(batch, self.tokens, *q.shape[-2:]), non_blocking=True)
        bucket.graph.replay()
        out = bucket.out[:batch].view(q.shape)
        return (out, bucket.lse[:batch]) if self._options["return_lse"] else out

    @property
    def captured(self) -> dict[int, int]:
        """Buckets with a graph, and the tokens that each has room for."""
        return {size: bucket.capacity for size, bucket in self._buckets.items()}

    def _check(self, q: Any, batch: int, lengths: Any) -> None:
        shapes: list[tuple[int, ...]] = [(batch, self.tokens, self.heads, self.cache.head_dim)]
        if self.tokens == 1:
            shapes.append((batch, self.heads, self.cache.head_dim))
        if tuple(getattr(q, "shape", ())) not in shapes or not getattr(q, "is_cuda", False):
            raise InvalidValueError(
                f"q must be a CUDA tensor of shape {shapes[-1]}, got {getattr(q, 'shape', type(q))}"
            )
        if str(q.dtype) != f"torch.{self.cache.dtype}":
            raise InvalidValueError(f"the cache holds {self.cache.dtype}, and q is {q.dtype}; convert it")
        if ((lengths > 0) & (lengths < self.tokens)).any():
            raise InvalidValueError(
                f"a sequence holds fewer than the {self.tokens} tokens of a step; append first"
            )

    def _problem(self, rows: int, capacity: int) -> DecodeProblem:
        cache = self.cache
        return DecodeProblem(
            rows,
            self.tokens,
            self.heads,
            cache.kv_heads,
            cache.head_dim,
            cache.dtype,
            cache.page_size,
            -(-capacity // cache.page_size),
            cache.num_pages,
            capacity,
            on_device=True,
            **self._options,  # type: ignore[arg-type]
        )

    def _bucket(self, rows: int, longest: int) -> _Bucket:
        found = self._buckets.get(rows)
        if found is None or found.capacity < longest:
            capacity = LENGTH
            while capacity < longest:
                capacity *= 2
            found = self._capture(rows, capacity)
            self._buckets[rows] = found
        return found

    def _capture(self, rows: int, capacity: int) -> _Bucket:
        import torch

        from warpfront.attention._triton_decode import run_decode

        problem, pages = self._problem(rows, capacity), self.cache.k_pages
        device, kind = pages.device, pages.dtype
        shape = (rows, self.tokens, self.heads, self.cache.head_dim)
        q, out = (torch.zeros(shape, dtype=kind, device=device) for _ in range(2))
        table = torch.full((rows, problem.table_pages), -1, dtype=torch.int32, device=device)
        lengths = torch.zeros(rows, dtype=torch.int32, device=device)
        lse = torch.empty(shape[:3], dtype=torch.float32, device=device)
        workspace = tuple(
            torch.empty(s, dtype=torch.float32, device=device) for s in problem.workspace_shapes
        )

        def step() -> None:
            run_decode(problem, q, pages, self.cache.v_pages, table, lengths, out, lse, workspace)

        # Once outside a graph: kernels are compiled and loaded, which a capture does not allow.
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return _Bucket(graph, q, table, lengths, out, lse, workspace, capacity)
