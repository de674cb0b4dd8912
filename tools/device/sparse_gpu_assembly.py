"""Pull against atomic push and ordered push of contribution blocks, on the fronts of a plan, level by level."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_suffix(".cu")
PULL, ATOMIC, ORDERED = "pull by lists", "atomic push", "ordered push"


def work_lists(plan):
    """Fronts by height with their children: (parents, children, children by their number)."""
    from warpfront.sparse.gpu._schedule_kernels import levels

    height = levels(plan.parent, np.full(plan.parent.size, -1, np.int64))
    kids = [[] for _ in range(plan.parent.size)]
    for s, p in enumerate(plan.parent.tolist()):
        if p >= 0:
            kids[p].append(s)
    found = []
    for h in range(1, int(height.max()) + 1):
        parents = [
            s
            for s in np.flatnonzero(height == h).tolist()
            if not plan.wide[s] and not plan.wide[kids[s]].any()
        ]
        if not parents:
            continue
        children = [c for s in parents for c in kids[s]]
        turns = [
            [kids[s][k] for s in parents if k < len(kids[s])]
            for k in range(max(len(kids[s]) for s in parents))
        ]
        found.append((parents, children, turns))
    return found


class Fronts:
    """The plan's small fronts as padded squares in one array, and the launches of each way."""

    def __init__(self, solver):
        import cupy

        from warpfront.backend import cuda

        plan, buffers = solver._factor.plan, solver._factor.runner.buffers
        rows = plan.fronts["rows"].astype(np.int64)
        words = np.where(plan.wide, 0, -(-rows // 16) * 16 * (-(-rows // 16) * 16 + 4))
        self.words, self.largest = int(words.sum()), int(words.max()) * 8
        self.squares = cupy.asarray(np.cumsum(words) - words)
        self.parents = cupy.asarray(plan.parent.astype(np.int32))
        names = ("fronts", "gathers", "sources", "places", "blocks", "maps", "entries")
        self.at = {name: int(buffers[name].data.ptr) for name in names}
        scaled = plan.pivoting or solver._factor.scaled
        self.values = int(buffers["values" if scaled else "original"].data.ptr)
        self.load = {
            name: cuda.load(SOURCE, name, "p" * count, 0)
            for name, count in (("pull", 9), ("enter", 6), ("push<true>", 7), ("push<false>", 7))
        }
        self.lists, self.kept = work_lists(plan), []

    def device(self, items):
        """Fronts of a launch: where their numbers lie on the device, and how many there are."""
        import cupy

        self.kept.append(cupy.asarray(np.array(items, np.int32)))
        return int(self.kept[-1].data.ptr), len(items)

    def launches(self, way, out):
        """Kernel, blocks, arguments and shared memory, one after the other."""
        at, place = self.at, int(self.squares.data.ptr)
        for above, below, turns in self.lists:
            work, count = self.device(above)
            if way == PULL:
                lists = (at["gathers"], at["sources"], at["places"])
                yield (
                    self.load["pull"],
                    count,
                    (work, at["fronts"], place, *lists, self.values, at["blocks"], out),
                    self.largest,
                )
                continue
            yield self.load["enter"], count, (work, at["fronts"], place, at["entries"], self.values, out), 0
            for group in [below] if way == ATOMIC else turns:
                work, count = self.device(group)
                args = (work, at["fronts"], place, int(self.parents.data.ptr), at["maps"], at["blocks"], out)
                yield self.load["push<true>" if way == ATOMIC else "push<false>"], count, args, 0


def timed(sequence, repeats):
    """Device times of one graph of launches."""
    import cupy

    stream, seconds = cupy.cuda.Stream(non_blocking=True), []
    for kernel, blocks, args, shared in sequence:
        kernel.launch(stream.ptr, blocks, 128, args, shared)
    stream.synchronize()
    with stream:
        stream.begin_capture()
        for kernel, blocks, args, shared in sequence:
            kernel.launch(stream.ptr, blocks, 128, args, shared)
        graph = stream.end_capture()
        for _ in range(repeats + 2):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            graph.launch(stream)
            end.record(stream)
            end.synchronize()
            seconds.append(1e-3 * cupy.cuda.get_elapsed_time(begin, end))
    return seconds[2:]


def compare(solver, repeats):
    """Seconds of each way, after checking that they agree; levels; how far the atomic one is off."""
    import cupy

    fronts, results, seconds = Fronts(solver), {}, {}
    for way in (PULL, ATOMIC, ORDERED):
        out = cupy.zeros(fronts.words)
        cupy.cuda.runtime.deviceSynchronize()
        seconds[way] = timed(list(fronts.launches(way, int(out.data.ptr))), repeats)
        results[way] = out.get()
        del out
    if not np.array_equal(results[PULL], results[ORDERED]):
        raise AssertionError("pull and ordered push differ")
    gap = float(np.abs(results[PULL] - results[ATOMIC]).max() / np.abs(results[PULL]).max())
    if not gap < 1e-10:
        raise AssertionError(f"atomic push is off by {gap}")
    return seconds, len(fronts.lists), gap


def record_rows(solvers, keys, repeats):
    """Rows of the house record."""
    from warpfront.bench.collect import collected
    from warpfront.bench.record import Row

    made = []
    for key in keys:
        if key not in solvers:
            continue
        seconds, heights, gap = compare(solvers[key], repeats)
        plan = solvers[key]._factor.plan
        contenders = {
            way: collected(samples, algorithm=f"{heights} levels in one graph, fronts in global memory")
            for way, samples in seconds.items()
        }
        shapes = {"n": plan.n, "fronts": int((~plan.wide).sum())}
        made.append(
            Row(
                key.split()[0],
                "assemble",
                shapes,
                "float64",
                "as generated or read",
                None,
                [PULL],
                contenders,
            )
        )
        print(
            key,
            {way: f"{1e6 * np.median(s):.0f} us" for way, s in seconds.items()},
            f"atomic off by {gap:.0e}",
            flush=True,
        )
    return made
