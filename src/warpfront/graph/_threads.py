"""`share_out`: pieces of work taken by whichever thread comes next."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from warpfront.backend.cpu import run_threads

__all__ = ["share_out"]


def share_out(threads: int, pieces: int, body: Callable[[int], None]) -> None:
    """Call ``body(0) .. body(pieces - 1)``, each once, from up to ``threads`` threads."""
    following = count()  # handing out its next number is one step of the interpreter

    def part(_: int) -> None:
        while (piece := next(following)) < pieces:
            body(piece)

    run_threads(max(1, min(threads, pieces)), part)
