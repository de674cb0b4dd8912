"""How far to simulate: to a number of samples, or in stages until a tolerance is met."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from types import ModuleType
from typing import Any

from warpfront.montecarlo._estimate import estimate_all
from warpfront.montecarlo._run import CHUNK, Run, chunk_count
from warpfront.montecarlo._tree import SumTree
from warpfront.montecarlo.results import Estimate, Progress

__all__ = ["Search"]

# Chunks of the first look.
_FIRST_CHUNKS = 16


class Search:
    """Simulate to the limit, or until every interval is short enough.

    Parameters
    ----------
    run : Run
    engine : module
        ``_host`` or ``_cuda``.
    limit : int
        Samples of each series at most.
    tolerance : float or None
        For half of every interval.
    level : float
        Of the intervals.
    progress : callable or None

    Attributes
    ----------
    estimates : tuple of Estimate
    converged : bool or None
    """

    def __init__(
        self,
        run: Run,
        engine: ModuleType,
        limit: int,
        tolerance: float | None,
        level: float,
        progress: Callable[[Progress], Any] | None,
    ) -> None:
        self.run, self.engine, self.limit = run, engine, limit
        self.tolerance, self.level, self.progress = tolerance, level, progress
        self.tree, self.chunks = SumTree(), 0
        self.estimates: tuple[Estimate, ...] = ()
        self.converged: bool | None = None

    def go(self) -> None:
        """Run to the end."""
        target = self.limit if self.tolerance is None else min(self.limit, self._first())
        while True:
            self._advance(target)
            self.estimates = self._estimates(target)
            if self.tolerance is None:
                return
            self.converged = all(self._meets(estimate) for estimate in self.estimates)
            if self.converged or target == self.limit:
                return
            target = min(self.limit, self._next(target))

    def _advance(self, target: int) -> None:
        end = chunk_count(target)
        while self.chunks < end:
            last = min(end, self.chunks + self._slab(end))
            self.engine.add_chunks(self.run, target, self.chunks, last, self.tree)
            self.chunks = last
            if self.progress is not None:
                done, each = min(last * CHUNK, target), self.run.paths_per_sample
                self.progress(Progress(done * each, target * each, self._estimates(done)))

    def _slab(self, end: int) -> int:
        """Chunks until the next look: with a listener a quarter more than so far, but not above 1/32 of the work."""
        most: int = self.engine.slab_chunks(self.run)
        if self.progress is None:
            return most
        slab = min(most, max(1, self.chunks // 4), max(1, ceil(end / 32)))
        # Past the first ones, whole groups for the GPU's tree.
        return slab & ~63 if slab >= 64 and self.chunks % 64 == 0 else min(slab, 64 - self.chunks % 64)

    def _estimates(self, samples: int) -> tuple[Estimate, ...]:
        total = self.tree.total(chunk_count(samples))
        return estimate_all(self.run, samples, total, self.level)

    def _meets(self, estimate: Estimate) -> bool:
        return estimate.half_width <= (self.tolerance or 0.0) and not estimate.few_payers

    def _first(self) -> int:
        return CHUNK if self.run.settings.sobol else _FIRST_CHUNKS * CHUNK

    def _next(self, samples: int) -> int:
        if self.run.settings.sobol:
            return 2 * samples
        need = 1.25
        for estimate in self.estimates:
            if not self._meets(estimate):
                ratio = (
                    8.0 if estimate.few_payers else 1.1 * (estimate.half_width / (self.tolerance or inf)) ** 2
                )
                need = max(need, min(ratio, 16.0))
        return ceil(need * samples / CHUNK) * CHUNK
