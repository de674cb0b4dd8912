"""Runs sequences of launches on a device: eagerly once, from a CUDA graph afterwards. Nothing here synchronises."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability, compile, cuda
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.memory import Need
from warpfront.sparse.gpu.schedule import ITEM
from warpfront.sparse.gpu.steps import Step

__all__ = ["Runner", "assign_branches", "early_launches"]

BRANCHES = 4
ASIDE = ("invert", "update_rest")  # nothing that is urgent waits for these
# kernels that wait for the launch before them themselves (`grid_wait`), and read what only older work wrote until then
WAITING = frozenset(
    {"forward", "backward", "forward_strips", "backward_strips", "sweep_forest", "permute_in", "permute_out"}
    | {"measure", "judge", "keep_better", "start_solve", "start_tree"}
)
EARLY_CC, EARLY_DRIVER = (9, 0), (12, 3)  # what captures them


def assign_branches(steps: Sequence[Step], branches: int) -> list[int]:
    """Stream for each step so that independent steps can overlap: that of the latest predecessor if nobody followed it.

    Kinds of launches that nothing urgent waits for (`ASIDE`) have streams of their own, ``branches`` and on.

    Pure; a step without a free predecessor takes the stream whose last step is oldest.
    """
    last = [-1] * branches
    where: list[int] = []
    for k, step in enumerate(steps):
        if step.kernel in ASIDE:
            where.append(branches + ASIDE.index(step.kernel))
            continue
        free = [b for b in range(branches) if last[b] in step.after]
        pick = max(free, key=lambda b: last[b]) if free else min(range(branches), key=lambda b: last[b])
        last[pick] = k
        where.append(pick)
    return where


def early_launches(steps: Sequence[Step], where: Sequence[int]) -> list[bool]:
    """Whether a step's launch may begin before its predecessor has ended: the only one, and the one before on its stream.

    Both kernels wait themselves: when the predecessor has ended, everything before it has too.
    """
    last: dict[int, int] = {}
    early = []
    for k, step in enumerate(steps):
        before = last.get(where[k], -1)
        waiting = step.kernel in WAITING and before >= 0 and steps[before].kernel in WAITING
        early.append(waiting and step.after == (before,))
        last[where[k]] = k
    return early


class Runner:
    """Device buffers by name, and sequences that use them.

    Parameters
    ----------
    uploaded : dict
        Host arrays copied to the device.
    written : dict
        Buffers to allocate; those named ``*flags`` start at zero.
    device : int
    branches : int
        Streams of a captured graph.
    """

    def __init__(
        self,
        uploaded: dict[str, NDArray[Any]],
        written: dict[str, Need],
        device: int,
        branches: int = BRANCHES,
    ) -> None:
        import cupy

        self.device = device
        self.branches = branches
        self.buffers: dict[str, Any] = {}
        with cupy.cuda.Device(device):
            for name, array in uploaded.items():
                self.buffers[name] = cupy.asarray(array.view(np.uint8).reshape(-1))
            for name, need in written.items():
                make = cupy.zeros if name.endswith("flags") else cupy.empty
                self.buffers[name] = make(need.size, need.dtype)
            self._streams = [
                cupy.cuda.Stream(non_blocking=True, priority=-1 if k < branches else 0)
                for k in range(branches + len(ASIDE))
            ]
        self._prepared: dict[str, list[tuple[Any, ...]]] = {}
        self._graphs: dict[str, Any] = {}
        self._steps: dict[str, Sequence[Step]] = {}
        self._last: Any = None
        self._captured = False
        self._kept: list[Any] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(int(b.nbytes) for b in self.buffers.values())

    def define(self, key: str, steps: Sequence[Step]) -> None:
        """Name a sequence; compiles what it needs, several kernels at a time."""
        arch = capability.probe(self.device).arch
        wanted = {(KERNELS[s.kernel].source, s.expression) for s in steps}
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda job: compile.build(job[0], (job[1],), arch), sorted(wanted, key=str)))
        prepared = []
        for step in steps:
            spec = KERNELS[step.kernel]
            kernel = cuda.load(spec.source, step.expression, spec.signature, self.device)
            grid = step.blocks if step.groups == 1 else (step.blocks, step.groups)
            pointers = [0 if name is None else int(self.buffers[name].data.ptr) for name in step.buffers()]
            if step.items >= 0:
                pointers[spec.arguments.index("items")] += step.items * ITEM.itemsize
            prepared.append((kernel, grid, step.threads, (*pointers, *step.numbers), step.shared_bytes))
        self._prepared[key], self._steps[key] = prepared, steps

    def grow(self, written: dict[str, Need]) -> None:
        """Replace buffers by larger ones, and forget the sequences that used them; waits for what is queued.

        All or nothing: where memory runs out, everything is as before. What a caller's graph has captured is kept for it.
        """
        import cupy

        if self._last is not None:
            self._last.synchronize()
        made = {}
        with cupy.cuda.Device(self.device):
            for name, need in written.items():
                make = cupy.zeros if name.endswith("flags") else cupy.empty
                made[name] = make(need.size, need.dtype)
        if self._captured:
            self._kept += [self.buffers[name] for name in written if name in self.buffers]
        self.buffers |= made
        used = [
            key for key, steps in self._steps.items() if any(set(s.buffers()) & set(written) for s in steps)
        ]
        for key in used:
            self._graphs.pop(key, None)
            del self._prepared[key], self._steps[key]

    def sequence(self, key: str) -> Sequence[Step]:
        """Return the steps of a named sequence."""
        return self._steps[key]

    def defined(self, key: str) -> bool:
        """Whether a sequence has this name."""
        return key in self._prepared

    def run(self, key: str) -> None:
        """Queue a sequence on CuPy's current stream: launch by launch the first time and in a stream's capture."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        capturing = stream.is_capturing()
        self._captured = self._captured or capturing
        if not capturing:
            self.follow(stream)
        if not capturing and key in self._graphs:
            self._graphs[key].launch(stream)
            return
        for kernel, blocks, threads, arguments, shared in self._prepared[key]:
            kernel.launch(stream.ptr, blocks, threads, arguments, shared)
        if not capturing:
            self._graphs[key] = self._capture(key)

    def follow(self, stream: Any) -> None:
        """Make ``stream`` wait for what this runner queued on another one."""
        if self._last is not None and self._last.ptr != stream.ptr:
            import cupy

            stream.wait_event(self._last.record(cupy.cuda.Event(disable_timing=True)))
        self._last = stream

    def _capture(self, key: str) -> Any:
        import cupy

        steps, prepared = self._steps[key], self._prepared[key]
        where = assign_branches(steps, self.branches)
        probed = capability.probe(self.device)
        able = probed.cc >= EARLY_CC and probed.driver_version >= EARLY_DRIVER
        early = early_launches(steps, where) if able else [False] * len(steps)
        consumers = {d for k, s in enumerate(steps) for d in s.after if where[d] != where[k]}
        with cupy.cuda.Device(self.device):
            streams = self._streams
            streams[0].begin_capture()
            try:
                started = {0}
                events: dict[int, Any] = {}
                fork = streams[0].record(cupy.cuda.Event(disable_timing=True))
                for k, (step, (kernel, blocks, threads, arguments, shared)) in enumerate(
                    zip(steps, prepared, strict=True)
                ):
                    stream = streams[where[k]]
                    if where[k] not in started:
                        started.add(where[k])
                        stream.wait_event(fork)
                    for d in step.after:
                        if where[d] != where[k]:
                            stream.wait_event(events[d])
                    kernel.launch(stream.ptr, blocks, threads, arguments, shared, early=early[k])
                    if k in consumers:
                        events[k] = stream.record(cupy.cuda.Event(disable_timing=True))
                for b in sorted(started - {0}):
                    streams[0].wait_event(streams[b].record(cupy.cuda.Event(disable_timing=True)))
            finally:
                graph = streams[0].end_capture()
        return graph
