"""Memory of a paged cache: keys and values of all pages under one address each, resident block by block.

A cache has room for ``num_pages`` pages from the start, in address space. Memory stands behind a block of pages from
`commit` to `release`, so the pool grows and shrinks while no page moves and no kernel sees a new pointer.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any, Protocol

import numpy as np

from warpfront.attention._problem import ITEMSIZE
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["HostStorage", "PageStorage", "open_storage"]

# Elsewhere the call exists but may leave the memory where it is.
_RETURNS_MEMORY = sys.platform == "linux"
_NUMPY = {"float16": np.float16, "bfloat16": np.uint16, "float32": np.float32}


class PageStorage(Protocol):
    """What `warpfront.attention.PagedKVCache` asks of memory, on any device.

    Attributes
    ----------
    k, v : array or tensor (num_pages, page_size, kv_heads, head_dim)
        C-contiguous, over the whole capacity. Only pages of committed blocks may be touched.
    granule_bytes : int
        Memory is given and returned in multiples of this.
    """

    k: Any
    v: Any
    granule_bytes: int

    def commit(self, block: int) -> None:
        """Put memory behind pages ``block * block_pages`` and on, up to the next block (or the last page).

        Raises
        ------
        NotSupportedError
            The device has no memory left; nothing was changed.
        """

    def release(self, block: int) -> None:
        """Give the block's memory back. A device finishes the work that it has before the memory goes."""

    def resident_bytes(self) -> int:
        """Return the bytes that stand behind keys and values now."""


def open_storage(device: str, dtype: str, shape: tuple[int, int, int, int], block_pages: int) -> PageStorage:
    """Return empty storage for ``shape`` = (num_pages, page_size, kv_heads, head_dim), nothing committed.

    Parameters
    ----------
    device : {"cpu", "cuda"}
    dtype : {"float16", "bfloat16", "float32"}
    shape : tuple of int
    block_pages : int
        Pages of a block, a multiple of which need not be ``num_pages``.
    """
    if device == "cpu":
        return HostStorage(dtype, shape, block_pages)
    if device == "cuda":
        from warpfront.attention._triton_cache import DeviceStorage  # type: ignore[import-not-found, unused-ignore]

        storage: PageStorage = DeviceStorage(dtype, shape, block_pages)
        return storage
    raise InvalidValueError(f'device must be "cpu" or "cuda", got {device!r}')


class HostStorage:
    """Anonymous memory of the process. bfloat16 is kept as its bits, in uint16.

    The operating system puts memory behind a page when it is first written, and takes it back on request where it
    knows how to (``MADV_DONTNEED``; elsewhere released blocks stay resident, and are counted).
    """

    def __init__(self, dtype: str, shape: tuple[int, int, int, int], block_pages: int) -> None:
        page_bytes = shape[1] * shape[2] * shape[3] * ITEMSIZE[dtype]
        total = max(1, shape[0] * page_bytes)
        self.granule_bytes = mmap.PAGESIZE
        # A block's share of each array ends on a boundary of the system's pages only if its size is a multiple.
        self._span = (block_pages * page_bytes, shape[0] * page_bytes)
        self._maps = (_reserve(total), _reserve(total))
        count = int(np.prod(shape))
        self.k, self.v = (
            np.frombuffer(memory, dtype=_NUMPY[dtype], count=count).reshape(shape) for memory in self._maps
        )
        self._committed: set[int] = set()
        self._kept: set[int] = set()

    def commit(self, block: int) -> None:
        """See `PageStorage`."""
        self._committed.add(block)
        self._kept.discard(block)

    def release(self, block: int) -> None:
        """See `PageStorage`."""
        self._committed.discard(block)
        begin, end = self._bounds(block)
        # Whole system pages inside the block; a page shared with a neighbour stays.
        first, last = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if not _RETURNS_MEMORY:
            self._kept.add(block)
        elif first < last:
            for memory in self._maps:
                memory.madvise(mmap.MADV_DONTNEED, first, last - first)

    def resident_bytes(self) -> int:
        """See `PageStorage`."""
        bounds = (self._bounds(block) for block in self._committed | self._kept)
        return 2 * sum(end - begin for begin, end in bounds)

    def _bounds(self, block: int) -> tuple[int, int]:
        size, total = self._span
        return min(total, block * size), min(total, (block + 1) * size)


def _reserve(size: int) -> mmap.mmap:
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
            return mmap.mmap(-1, size, flags=flags)
        return mmap.mmap(-1, size)
    except (OSError, OverflowError, ValueError) as error:
        raise NotSupportedError(f"no address space for {size} bytes of pages: {error}") from error
