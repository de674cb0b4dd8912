"""The book of a paged cache: which pages are whose, how often each is used, which are free. Host memory only.

Pages are handed out lowest number first, so that what is in use gathers at the front and whole blocks become free. A
sequence's pages before its last are full and are never written again; only a last page that is not full and that more than
one sequence uses has to be copied before one of them writes to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError, OutOfPagesError

__all__ = ["Growth", "PageBook"]


class _Entry:
    """One sequence: its pages in order, in an array that grows by doubling, and its tokens."""

    def __init__(self, pages: NDArray[np.int32] | None = None, length: int = 0) -> None:
        self.length = length
        self.used = 0 if pages is None else len(pages)
        self._room = np.empty(4, np.int32) if pages is None else pages.copy()

    @property
    def pages(self) -> NDArray[np.int32]:
        """The pages, int32; a view."""
        return self._room[: self.used]

    def push(self, page: int) -> None:
        """Add a page at the end."""
        if self.used == len(self._room):
            self._room = np.concatenate([self._room, np.empty(max(4, self.used), np.int32)])
        self._room[self.used] = page
        self.used += 1


@dataclass(frozen=True)
class Growth:
    """What an append will do, before any of it is done.

    Attributes
    ----------
    counts : list of (id, tokens)
    new_pages : list of int
        Pages that will be taken, copies first; in the order of use.
    copies : list of (id, source page)
        Shared last pages that are copied first, each into the next of ``new_pages``.
    """

    counts: list[tuple[int, int]]
    new_pages: list[int]
    copies: list[tuple[int, int]]


class PageBook:
    """See the module.

    Parameters
    ----------
    num_pages, page_size, block_pages : int
    """

    def __init__(self, num_pages: int, page_size: int, block_pages: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.block_pages = block_pages
        self.users = np.zeros(num_pages, np.int32)
        self.block_use = np.zeros(-(-num_pages // block_pages), np.int64)
        self.entries: dict[int, _Entry] = {}
        self._returned: list[int] = []  # a heap
        self._fresh = 0  # pages from here on were never used
        self._next_id = 0

    @property
    def free_pages(self) -> int:
        """Pages that nobody uses."""
        return self.num_pages - self._fresh + len(self._returned)

    def new(self) -> int:
        """Open an empty sequence; numbers are never used again."""
        self.entries[self._next_id] = _Entry()
        self._next_id += 1
        return self._next_id - 1

    def entry(self, sequence: int) -> _Entry:
        """Return a sequence.

        Raises
        ------
        InvalidValueError
            There is none of this number (any more).
        """
        found = self.entries.get(sequence)
        if found is None:
            was = "was freed" if 0 <= sequence < self._next_id else "was never allocated"
            raise InvalidValueError(f"sequence {sequence} {was}")
        return found

    def plan(self, counts: Sequence[tuple[int, int]]) -> Growth:
        """Return what adding tokens takes; the book stays as it is.

        Parameters
        ----------
        counts : sequence of (id, tokens)
            Different sequences.

        Raises
        ------
        OutOfPagesError
            Too few pages are free.
        """
        copies: list[tuple[int, int]] = []
        left: dict[int, int] = {}  # users of shared pages, as copies take some of them away
        needed = 0
        for sequence, tokens in counts:
            entry = self.entry(sequence)
            needed += -(-(entry.length + tokens) // self.page_size) - entry.used
            if tokens and entry.length % self.page_size:
                last = int(entry.pages[-1])
                users = left.get(last, int(self.users[last]))
                if users > 1:
                    copies.append((sequence, last))
                    left[last] = users - 1
        needed += len(copies)
        if needed > self.free_pages:
            raise OutOfPagesError(
                f"{needed} pages of {self.page_size} tokens are needed, and {self.free_pages} of {self.num_pages} are free; "
                "free a sequence, or make a larger cache. Nothing was changed",
                needed,
                self.free_pages,
            )
        return Growth(list(counts), self._peek(needed), copies)

    def _peek(self, count: int) -> list[int]:
        """Return the pages that will be handed out next."""
        lowest = heapq.nsmallest(min(count, len(self._returned)), self._returned)
        return lowest + list(range(self._fresh, self._fresh + count - len(lowest)))

    def blocks_to_commit(self, growth: Growth) -> list[int]:
        """Return the blocks of an append in which no page is used yet."""
        return sorted(
            {page // self.block_pages for page in growth.new_pages} - set(np.flatnonzero(self.block_use))
        )

    def positions(self, growth: Growth) -> NDArray[np.int64]:
        """Return the position of each token of an append in its sequence, int64 (tokens,); the book stays as it is."""
        begins = [(self.entries[sequence].length, tokens) for sequence, tokens in growth.counts]
        nothing = np.zeros(0, np.int64)
        return np.concatenate([nothing, *(np.arange(at, at + n, dtype=np.int64) for at, n in begins)])

    def carry_out(self, growth: Growth) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
        """Make an append true.

        Returns
        -------
        slots : int64 (tokens,)
            ``page * page_size + place`` of each token, sequence after sequence.
        copies : list of (source page, target page)
            To be copied before tokens are written.
        """
        for _ in growth.new_pages:
            self._take()
        pages = iter(growth.new_pages)
        copies = []
        for sequence, source in growth.copies:
            target = next(pages)
            self.users[source] -= 1
            self.entries[sequence].pages[-1] = target
            copies.append((source, target))
        slots = []
        for sequence, tokens in growth.counts:
            entry = self.entries[sequence]
            place = np.arange(entry.length, entry.length + tokens, dtype=np.int64)
            while entry.used * self.page_size < entry.length + tokens:
                entry.push(next(pages))
            entry.length += tokens
            mine = entry.pages[place // self.page_size].astype(np.int64)
            slots.append(mine * self.page_size + place % self.page_size)
        return np.concatenate([np.zeros(0, np.int64), *slots]), copies

    def _take(self) -> None:
        """Take the next page into use."""
        if self._returned:
            page = heapq.heappop(self._returned)
        else:
            page = self._fresh
            self._fresh += 1
        self.users[page] = 1
        self.block_use[page // self.block_pages] += 1

    def fork(self, sequence: int) -> int:
        """Open a sequence that shares all pages of another."""
        entry = self.entry(sequence)
        twin = self.new()
        self.entries[twin] = _Entry(entry.pages, entry.length)
        self.users[entry.pages] += 1
        return twin

    def close(self, sequence: int) -> list[int]:
        """Forget a sequence; return the blocks of which the last used page became free."""
        emptied = []
        for page in self.entries.pop(sequence).pages.tolist():
            self.users[page] -= 1
            if self.users[page]:
                continue
            heapq.heappush(self._returned, page)
            block = page // self.block_pages
            self.block_use[block] -= 1
            if self.block_use[block] == 0:
                emptied.append(block)
        return emptied
