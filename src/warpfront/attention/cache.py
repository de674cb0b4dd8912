"""`PagedKVCache`: keys and values of many sequences in pages, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.attention import _host
from warpfront.attention._arrays import Given, contiguous_rows, host_view, integers, read, same_place
from warpfront.attention._cache_checks import check_ids, dtype_name, positive
from warpfront.attention._pages import Growth, PageBook
from warpfront.attention._problem import ITEMSIZE, AppendProblem
from warpfront.attention._storage import open_storage
from warpfront.attention.rope import Rotation, device_tables, host_tables, rotation_for
from warpfront.errors import InvalidValueError, WarpfrontError

__all__ = ["PagedKVCache"]

# A block is made as large as this where the caller does not say: what a GPU maps at a time.
BLOCK_BYTES = 2 << 20
_PAGE_NUMBERS = 1 << 31
Writer = Callable[[NDArray[np.int64], NDArray[np.int64]], None]


class PagedKVCache:
    """Keys and values of many sequences, in pages of a pool that grows and shrinks.

    Parameters
    ----------
    num_pages : int
        Pages the cache may use at most. Address space for all of them is reserved at once, memory is not.
    page_size : int
        Tokens of a page: 8, 16, 32, 64 or 128.
    kv_heads, head_dim : int
    dtype : str or dtype
        float16, bfloat16 or float32.
    device : {"cpu", "cuda"}
        ``"cuda"`` needs PyTorch.
    block_pages : int, optional
        Pages by which the pool grows and shrinks. Default: as many as fill 2 MiB of keys.

    Attributes
    ----------
    k_pages, v_pages : array or tensor (num_pages, page_size, kv_heads, head_dim)
        The pages. Only those in use may be read: on a GPU even printing the whole tensor would fail. On the CPU bfloat16
        is kept as its bits, in uint16.

    Raises
    ------
    InvalidValueError
        A parameter outside what is allowed.
    NotSupportedError
        No such device, no address space, or a quantised type, which has no kernel yet.

    Notes
    -----
    Sequences are numbered from 0 and a number is never used again. Every method either does all of what it was asked or
    raises and changes nothing. Not for use by several threads at once.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: Any,
        *,
        device: str = "cpu",
        block_pages: int | None = None,
    ) -> None:
        for name, value in (("num_pages", num_pages), ("page_size", page_size), ("kv_heads", kv_heads)):
            positive(name, value)
        positive("head_dim", head_dim)
        if num_pages >= _PAGE_NUMBERS:
            raise InvalidValueError(f"num_pages must be below 2^31, got {num_pages}")
        self.dtype = dtype_name(dtype)
        self.device = device
        self.page_size = int(page_size)
        self.kv_heads = int(kv_heads)
        self.head_dim = int(head_dim)
        self.num_pages = int(num_pages)
        AppendProblem(0, self.kv_heads, self.head_dim, self.dtype, self.page_size, self.num_pages)
        if block_pages is None:
            block_pages = max(1, BLOCK_BYTES // (self.page_bytes // 2))
        self.block_pages = min(positive("block_pages", block_pages), self.num_pages)
        self._book = PageBook(self.num_pages, self.page_size, self.block_pages)
        shape = (self.num_pages, self.page_size, self.kv_heads, self.head_dim)
        self._storage = open_storage(device, self.dtype, shape, self.block_pages)
        # A block without a used page that is kept, so that a sequence at its edge does not map and unmap it at every step.
        self._spare: int | None = None
        self.k_pages = self._storage.k
        self.v_pages = self._storage.v

    def __repr__(self) -> str:
        used = self.num_pages - self.free_pages
        return (
            f"PagedKVCache({used} of {self.num_pages} pages of {self.page_size} tokens used by "
            f"{len(self._book.entries)} sequences, {self.kv_heads} heads of {self.head_dim}, {self.dtype}, "
            f"{self.device}, {self.resident_bytes} bytes resident)"
        )

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, keys and values."""
        return 2 * self.page_size * self.kv_heads * self.head_dim * ITEMSIZE[self.dtype]

    @property
    def capacity_bytes(self) -> int:
        """Bytes of all pages the cache may use."""
        return self.num_pages * self.page_bytes

    @property
    def logical_bytes(self) -> int:
        """Bytes of the tokens that sequences hold, each sequence counted in full."""
        tokens = sum(entry.length for entry in self._book.entries.values())
        return tokens * (self.page_bytes // self.page_size)

    @property
    def resident_bytes(self) -> int:
        """Bytes of memory that stand behind the pages now: whole blocks, shared pages once."""
        return self._storage.resident_bytes()

    @property
    def free_pages(self) -> int:
        """Pages that no sequence uses."""
        return self._book.free_pages

    @property
    def sequences(self) -> tuple[int, ...]:
        """Numbers of the sequences there are."""
        return tuple(self._book.entries)

    def allocate(self, n_sequences: int = 1) -> list[int]:
        """Open empty sequences; they take no page until tokens are appended.

        Parameters
        ----------
        n_sequences : int

        Returns
        -------
        list of int
            Their numbers.
        """
        return [self._book.new() for _ in range(positive("n_sequences", n_sequences))]

    def append(self, ids: Any, k: Any, v: Any, *, cu_seqlens: Any = None, rope: Any = None) -> None:
        """Append tokens to sequences.

        Parameters
        ----------
        ids : int or integers (batch,)
            Different sequences; -1 is a padded row, which is skipped.
        k, v : array (batch, kv_heads, head_dim), (batch, tokens, kv_heads, head_dim), or (total, kv_heads, head_dim)
            One token for each sequence, as many for each, or with ``cu_seqlens`` any numbers of tokens. The cache's
            type, on its device; any strides whose last is one element.
        cu_seqlens : integers (batch + 1,), optional
            Where each sequence's tokens begin in ``k`` and ``v``, and the total. Host memory.
        rope : RotaryEmbedding, or (cos, sin), optional
            Keys are turned by the angles of their positions as they are written; see `apply_rope` for the tables.

        Raises
        ------
        OutOfPagesError
            Fewer pages are free than the tokens need; the message says how many of each.
        InvalidValueError
            Wrong shapes, types or numbers.
        """
        rows = check_ids(self._book, ids, padded=True)
        given = (read("k", k), read("v", v))
        shapes = self._check_tokens(rows, given, cu_seqlens)
        counts = [(int(row), int(n)) for row, n in zip(rows, shapes, strict=True) if row >= 0]
        growth = self._book.plan(counts)
        positions = self._book.positions(growth)
        rotation = None if rope is None else rotation_for(rope, positions, self.head_dim)
        write = self._writer(given, int(shapes.sum()), rotation)
        # What can be wrong was wrong before here: nothing has changed yet, and from here on everything does.
        self._commit(growth)
        slots, copies = self._book.carry_out(growth)
        turned = positions if rotation is None else rotation.rows
        if len(slots) < int(shapes.sum()):
            keep = np.repeat(rows >= 0, shapes)
            slots, turned = _spread(slots, keep, -1), _spread(turned, keep, 0)
        self._copy(copies)
        if len(slots):
            write(slots, turned)

    def free(self, ids: Any) -> None:
        """Forget sequences. Pages that nobody else uses become free, and blocks of free pages give their memory back.

        One block of free pages is kept for what comes next; `trim` returns that too.

        Parameters
        ----------
        ids : int or integers (batch,)
            Different sequences.
        """
        for row in check_ids(self._book, ids).tolist():
            for block in self._book.close(row):
                if self._spare is not None and self._spare != block:
                    self._storage.release(block)
                else:
                    self._spare = block

    def trim(self) -> None:
        """Give back the memory of every block without a used page."""
        if self._spare is not None:
            self._storage.release(self._spare)
            self._spare = None

    def fork(self, sequence: int) -> int:
        """Open a sequence that begins with all tokens of another, sharing its pages.

        A shared page that is not full is copied when one of the sequences appends to it; full pages are shared until both
        sequences are freed.

        Parameters
        ----------
        sequence : int

        Returns
        -------
        int
            Number of the new sequence.
        """
        row = check_ids(self._book, sequence)
        if row.shape[0] != 1:
            raise InvalidValueError(f"fork takes one sequence, got {row.shape[0]}")
        return self._book.fork(int(row[0]))

    def lengths(self, ids: Any) -> NDArray[np.int32]:
        """Return how many tokens sequences hold: int32 (batch,), 0 for a padded row (-1)."""
        rows = check_ids(self._book, ids, padded=True, distinct=False)
        return np.array(
            [self._book.entries[row].length if row >= 0 else 0 for row in rows.tolist()], np.int32
        )

    def block_table(self, ids: Any) -> NDArray[np.int32]:
        """Return the pages of sequences in order: int32 (batch, most pages), -1 beyond a sequence's last."""
        rows = check_ids(self._book, ids, padded=True, distinct=False).tolist()
        entries = [self._book.entries[row] if row >= 0 else None for row in rows]
        wide = max((entry.used for entry in entries if entry is not None), default=0)
        table = np.full((len(rows), wide), -1, np.int32)
        for line, entry in zip(table, entries, strict=True):
            if entry is not None:
                line[: entry.used] = entry.pages
        return table

    def _check_tokens(
        self, rows: NDArray[np.int64], given: tuple[Given, Given], cu: Any
    ) -> NDArray[np.int64]:
        """Check what is to be appended; return the tokens of each row."""
        k, v = given
        same_place(k, v)
        if k.on_device != (self.device == "cuda"):
            there = "on a GPU" if k.on_device else "in host memory"
            raise InvalidValueError(f"k and v are {there}, and the cache is on {self.device!r}")
        if k.dtype != self.dtype:
            raise InvalidValueError(f"the cache holds {self.dtype}, and k and v are {k.dtype}; convert them")
        if k.shape != v.shape:
            raise InvalidValueError(f"k and v must have the same shape, got {k.shape} and {v.shape}")
        batch, tail = rows.shape[0], (self.kv_heads, self.head_dim)
        if cu is not None:
            begins = integers("cu_seqlens", cu, "integers (batch + 1,)")
            if begins.shape[0] != batch + 1 or begins[0] != 0 or (np.diff(begins) < 0).any():
                raise InvalidValueError(
                    f"cu_seqlens must be {batch + 1} numbers that begin with 0 and never decrease"
                )
            if k.shape != (int(begins[-1]), *tail):
                raise InvalidValueError(f"k and v must have shape {(int(begins[-1]), *tail)}, got {k.shape}")
            return np.diff(begins)
        if len(k.shape) not in (3, 4) or k.shape[0] != batch or k.shape[-2:] != tail:
            raise InvalidValueError(
                f"k and v must have shape ({batch}, {tail[0]}, {tail[1]}) or "
                f"({batch}, tokens, {tail[0]}, {tail[1]}), got {k.shape}"
            )
        return np.full(batch, k.shape[1] if len(k.shape) == 4 else 1, np.int64)

    def _commit(self, growth: Growth) -> None:
        """Put memory behind the blocks an append begins; all of them, or none."""
        done: list[int] = []
        try:
            for block in self._book.blocks_to_commit(growth):
                if block == self._spare:
                    continue
                self._storage.commit(block)
                done.append(block)
        except WarpfrontError:
            for block in done:
                self._storage.release(block)
            raise
        if self._spare is not None and self._spare in {page // self.block_pages for page in growth.new_pages}:
            self._spare = None

    def _copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole pages."""
        if not copies:
            return
        sources, targets = (np.array(side, np.int64) for side in zip(*copies, strict=True))
        if self.device == "cuda":
            import torch

            from warpfront.attention import _triton_cache

            source, target = (torch.from_numpy(x).to(self.k_pages.device) for x in (sources, targets))
            _triton_cache.copy_pages(source, target, self.k_pages, self.v_pages)
            return
        _host.copy_pages((self.k_pages, self.v_pages), sources, targets)

    def _writer(self, given: tuple[Given, Given], tokens: int, rotation: Rotation | None) -> Writer:
        """Check and prepare what is to be written; return what writes it, given slots and rows of the tables."""
        for x in given:
            contiguous_rows(x)
        if self.device == "cuda":
            return self._device_writer(given, tokens, rotation)
        tables = None if rotation is None else (*host_tables(rotation), rotation.interleaved)
        views = [host_view(x) for x in given]

        def write(slots: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
            _host.write_tokens(views[0], self.k_pages, slots, rows, tables, self.dtype)
            _host.write_tokens(views[1], self.v_pages, slots, rows, None, self.dtype)

        return write

    def _device_writer(self, given: tuple[Given, Given], tokens: int, rotation: Rotation | None) -> Writer:
        import torch

        from warpfront.attention import _triton_cache

        device = self.k_pages.device
        problem = AppendProblem(
            tokens,
            self.kv_heads,
            self.head_dim,
            self.dtype,
            self.page_size,
            self.num_pages,
            rotary_dim=0 if rotation is None else rotation.dim,
            interleaved=rotation is not None and rotation.interleaved,
            on_device=True,
        )
        cos, sin = (None, None) if rotation is None else device_tables(rotation, device)
        k, v = (x.owner.reshape(tokens, self.kv_heads, self.head_dim) for x in given)

        def write(slots: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
            slot, row = (torch.from_numpy(x).to(device) for x in (slots, rows))
            _triton_cache.append_pages(problem, k, v, slot, row, cos, sin, self.k_pages, self.v_pages)

        return write


def _spread(values: NDArray[np.int64], keep: NDArray[np.bool_], filling: int) -> NDArray[np.int64]:
    out = np.full(keep.shape[0], filling, np.int64)
    out[keep] = values
    return out
