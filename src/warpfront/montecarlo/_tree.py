"""Sums of chunks, added in one binary tree whatever the order and the pieces in which they arrive.

The tree is that over the chunk numbers: node ``(level, index)`` is the sum of chunks ``index 2^level`` to
``(index + 1) 2^level - 1``, and two siblings are added as soon as both are there. What is left of chunks 0 to C
are the nodes of C's binary digits; the total adds them from the right. So any partition of the chunks gives the
same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SumTree"]

Block = NDArray[np.float64]


class SumTree:
    """The sums that have arrived, as few nodes as possible.

    Attributes
    ----------
    nodes : dict of (level, index) to array (series, channels)
    """

    def __init__(self, nodes: dict[tuple[int, int], Block] | None = None) -> None:
        self.nodes: dict[tuple[int, int], Block] = dict(nodes or {})

    def add(self, level: int, first: int, block: Block) -> None:
        """Add consecutive nodes of one level.

        Parameters
        ----------
        level, first : int
            Level, and index of the first node.
        block : (count, series, channels) float64
            Read only.
        """
        while len(block):
            if first % 2:
                left = self.nodes.pop((level, first - 1), None)
                if left is None:
                    self.nodes[level, first] = block[0]
                    first, block = first + 1, block[1:]
                else:
                    first, block = first - 1, np.concatenate([left[None], block])
            if len(block) % 2:
                last = first + len(block) - 1
                right = self.nodes.pop((level, last + 1), None)
                if right is None:
                    self.nodes[level, last] = block[-1]
                    block = block[:-1]
                else:
                    block = np.concatenate([block, right[None]])
            block = block[0::2] + block[1::2]
            level, first = level + 1, first // 2

    def spans(self) -> list[tuple[int, int, tuple[int, int]]]:
        """Return first chunk, chunk after the last, and key of every node, in the order of the chunks."""
        found = [(index << level, (index + 1) << level, (level, index)) for level, index in self.nodes]
        return sorted(found)

    def total(self, chunks: int) -> Block:
        """Return the sum of chunks 0 to ``chunks - 1``.

        Raises
        ------
        ValueError
            The nodes do not cover exactly these chunks.
        """
        at = 0
        for start, end, _ in self.spans():
            if start != at:
                raise ValueError(f"chunks {at} to {start - 1} are missing")
            at = end
        if at != chunks:
            raise ValueError(f"chunks {at} to {chunks - 1} are missing")
        parts: list[Any] = [self.nodes[key] for _, _, key in self.spans()]
        result: Block = parts.pop()
        while parts:
            result = parts.pop() + result
        return result
