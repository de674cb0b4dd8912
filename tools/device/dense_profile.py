"""Where the time of our LU on the GPU goes, and which blocking is fastest, for `tools/device/dense.py`.

Milliseconds between device events, each the least of a few. ``parts``: every launch waited for and summed by kind, which
leaves out what launches cost one another.
"""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np

OUTER = {512: (512,), 2048: (2048,), 4096: (256,), 8192: (256,)}
AHEAD = {512: (32,), 2048: (32, 64), 8192: (64, 128, 256)}


def best(work, repeats=3):
    """Least milliseconds between two events around a call."""
    import cupy

    times = []
    for _ in range(repeats):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return min(times)


def library_call(a):
    """The same factorisation by cuSOLVER, as a call."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusolver

    letter, n = ("s" if a.dtype == np.float32 else "d"), len(a)
    handle, work = device.get_cusolver_handle(), a.copy()
    words = getattr(cusolver, letter + "getrf_bufferSize")(handle, n, n, work.data.ptr, n)
    room, info, pivots = cupy.empty(words, a.dtype), cupy.zeros(1, np.int32), cupy.zeros(n, np.int32)
    run = getattr(cusolver, letter + "getrf")
    return lambda: run(handle, n, n, work.data.ptr, n, room.data.ptr, pivots.data.ptr, info.data.ptr)


class Timed:
    """Stands for a kernel or for `Blas`; each call is timed by itself."""

    def __init__(self, inner, name, parts):
        self.inner, self.name, self.parts = inner, name, parts

    def _timed(self, name, call):
        self.parts[name] = self.parts.get(name, 0.0) + best(call, 1)

    def launch(self, *args, **options):
        self._timed(self.name, lambda: self.inner.launch(*args, **options))

    def solve_triangle(self, *args):
        self._timed("trsm", lambda: self.inner.solve_triangle(*args))

    def subtract_product(self, *args):
        self._timed("gemm", lambda: self.inner.subtract_product(*args))


class Run:
    """One factorisation of a batch, ready to be queued again."""

    def __init__(self, a, outer, ahead=False):
        import cupy

        from warpfront.dense import _lu_panel_cuda as panels
        from warpfront.dense._blas_cuda import blas

        self.a, self.outer, self.panels, self.ahead = a, outer, panels, ahead
        batch, n = a.shape[:2]
        self.lu, self.pivots = a.copy(), cupy.zeros((batch, n), np.int32)
        entries, mail = panels.scratch(n, batch, a.dtype.name, outer)
        cupy.cuda.runtime.deviceSynchronize()  # the stream below does not wait for what made the matrix
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.routines = blas(a.dtype.name, self.stream.ptr, 0)
        self.room = (
            cupy.empty(entries, np.int32), cupy.empty(mail, np.uint8), cupy.zeros(entries // 128, np.uint32),
        )  # fmt: skip

    def queue(self, routines=None):
        if self.ahead:
            from warpfront.dense._lu_graph_cuda import queue_ahead

            queue_ahead(self.lu, self.pivots, self.room, self.stream.ptr, self.outer)
            return
        self.panels.factor_on(
            self.lu, self.pivots, self.room, routines or self.routines, self.stream.ptr, self.outer
        )

    def direct(self):
        import cupy

        with self.stream:
            cupy.copyto(self.lu, self.a)
            self.queue()
            self.stream.synchronize()
            return best(self.queue, 2)

    def graph(self):
        with self.stream:
            self.stream.begin_capture()
            try:
                self.queue()
            finally:
                graph = self.stream.end_capture()
            graph.launch(self.stream)
            return best(lambda: graph.launch(self.stream))

    def parts(self):
        found, load = {}, self.panels.cuda_load
        self.panels.cuda_load = lambda name, device: Timed(load(name, device), name.partition("<")[0], found)
        try:
            with self.stream:
                self.queue(Timed(self.routines, "", found))
        finally:
            self.panels.cuda_load = load
        return {name: round(value, 4) for name, value in found.items()}

    def error(self):
        """Largest entry of L U - P A over the largest of A, for one matrix."""
        import cupy

        with self.stream:
            cupy.copyto(self.lu, self.a)
            self.queue()
            self.stream.synchronize()
        lu, a = self.lu[0].T, self.a[0].T
        order = np.arange(len(a))
        for i, other in enumerate(cupy.asnumpy(self.pivots[0]) - 1):
            order[i], order[other] = order[other], order[i]
        lower = cupy.tril(lu, -1) + cupy.eye(len(a), dtype=a.dtype)
        wrong = lower.astype(np.float64) @ cupy.triu(lu).astype(np.float64) - a[cupy.asarray(order)]
        return float(abs(wrong).max() / abs(a).max())


def triangles(n, dtype):
    """Milliseconds of the two triangular solves of an inverse, the first in blocks of columns that leave out zeros."""
    import cupy

    from warpfront.dense._blas_cuda import blas

    lu = cupy.asarray(np.random.default_rng(0).standard_normal((n, n)).astype(dtype)) / n + cupy.eye(
        n, dtype=dtype
    )
    x, item = cupy.eye(n, dtype=dtype), lu.itemsize
    found = {}
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        routines = blas(dtype, stream.ptr, 0)
        for parts in (1, 2, 4, 8):
            wide = n // parts

            def lower(wide=wide):
                for first in range(0, n, wide):
                    at = first * (n + 1) * item
                    routines.solve_triangle(False, n - first, wide, lu.data.ptr + at, n, x.data.ptr + at, n)

            lower()
            found[f"lower/{parts}"] = round(best(lower), 4)
        found["upper"] = round(
            best(lambda: routines.solve_triangle(True, n, n, lu.data.ptr, n, x.data.ptr, n)), 4
        )
    return found


def ahead(out, seconds):
    """Block columns ahead of the rest, of several widths, beside one stream: milliseconds and errors."""
    from time import perf_counter

    import cupy

    from warpfront.dense._lu_panel_cuda import outer_width

    end, table = perf_counter() + seconds, []
    for n, outers in AHEAD.items():
        for dtype in ("float32", "float64"):
            if perf_counter() > end:
                print(f"out of time before ahead {n} {dtype}", flush=True)
                continue
            a = cupy.asarray(np.random.default_rng(0).standard_normal((1, n, n)).astype(dtype))
            row = {"n": n, "dtype": dtype}
            for outer, way in [(outer_width(n), False), *((outer, True) for outer in outers)]:
                name = f"{'ahead' if way else 'one stream'}, {outer}"
                try:
                    run = Run(a, outer, way)
                    found, again = {"error": run.error()}, run.lu.copy()
                    run.error()
                    found["same_bits"] = bool((again == run.lu).all())
                    found |= {"direct": round(run.direct(), 4), "graph": round(run.graph(), 4)}
                except Exception as error:
                    found = {"failed": f"{type(error).__name__}: {error}"[:200]}
                row[name] = found
                short = " ".join(f"{k} {v}" for k, v in found.items())
                print(f"{n} {dtype} {name}: {short}", flush=True)
            table.append(row)
            (out / "lu_ahead.json").write_text(json.dumps(table, indent=1))
            cupy.get_default_memory_pool().free_all_blocks()


def stages(out):
    """Milliseconds of the host in the parts of a call, and of the device between events around them."""
    from time import perf_counter

    import cupy

    from warpfront.dense import _device_lu, _lu_cuda

    table, sync = [], cupy.cuda.runtime.deviceSynchronize
    for n in (512, 2048):
        a = cupy.random.default_rng(0).standard_normal((n, n), dtype=np.float32)
        for _ in range(3):
            _lu_cuda.inv(a, "partial", "working", "raise")
            _lu_cuda.determinant(a)
        rows = []
        for _ in range(9):
            events, times = [cupy.cuda.Event() for _ in range(4)], []

            def mark(k, events=events, times=times):
                events[k].record()
                times.append(perf_counter())

            sync()
            mark(0)
            found = _device_lu.factor(_lu_cuda._read(a).matrices)
            mark(1)
            found.inverse()
            mark(2)
            found.facts  # noqa: B018 - waits
            mark(3)
            sync()
            begin = perf_counter()
            queued = _lu_cuda._queue_inverse(a, "working", "raise")
            middle = perf_counter()
            queued.finish("raise")
            final = perf_counter()
            host = [1e3 * (y - x) for x, y in pairwise(times)]
            spans = pairwise(events)
            device = [cupy.cuda.get_elapsed_time(x, y) for x, y in spans]
            begin_det = perf_counter()
            _lu_cuda.determinant(a)
            rows.append([*host, *device, 1e3 * (middle - begin), 1e3 * (final - middle),
                         1e3 * (perf_counter() - begin_det)])  # fmt: skip
        names = ("host factor", "host inverse", "host facts", "device factor", "device inverse", "device facts",
                 "inv queue", "inv finish", "determinant")  # fmt: skip
        row = {"n": n} | {k: round(float(v), 4) for k, v in zip(names, np.median(rows, axis=0), strict=True)}
        table.append(row)
        print(json.dumps(row), flush=True)
        (out / "lu_stages.json").write_text(json.dumps(table, indent=1))


def mixed_parts(out):
    """Milliseconds of the parts of a solve by lower precision, each waited for."""
    import cupy

    from warpfront.dense import _device_lu
    from warpfront.dense._lu_graph_cuda import solve_triangles
    from warpfront.dense._lu_low_cuda import LowFactor
    from warpfront.dense.mixed import power_of_two, refine_solve

    table = []
    for n in (8192, 16384):
        a = cupy.random.default_rng(0).standard_normal((n, n)) + 2 * n**0.5 * cupy.eye(n)
        b, row = a @ cupy.ones((n, 1)), {"n": n}

        def timed(name, work, row=row):
            work()
            row[name] = round(best(work, 2), 3)

        timed("float64 factor", lambda a=a: _device_lu.factor(a[None]))
        timed("scale", lambda a=a: power_of_two(a))
        timed("convert", lambda a=a: (a * 2.0).astype(np.float32))
        timed("residual", lambda a=a, b=b: b - a @ b)
        for name in ("float32", "tf32", "float16"):
            timed(f"{name} factor", lambda a=a, name=name: LowFactor.of(a, name))
            low = LowFactor.of(a, name)
            right = b.astype(np.float32)
            timed(f"{name} solve", lambda low=low, right=right: low.solve(right))
            if name == "float32":
                for block in (512, 1024, 2048):
                    timed(f"float32 solve by {block}",
                          lambda low=low, right=right, block=block: solve_triangles(
                              low._factors.lu[0], low._factors.pivots[0], right.T, block))  # fmt: skip
            timed(f"{name} refine",
                  lambda a=a, b=b, low=low: refine_solve(a, b, low, np.float64, cupy, estimate=False))  # fmt: skip
            outcome = refine_solve(a, b, low, np.float64, cupy, estimate=False)
            row[f"{name} steps"] = int(outcome.refinement_steps)
        table.append(row)
        print(json.dumps(row), flush=True)
        (out / "mixed_parts.json").write_text(json.dumps(table, indent=1))
        cupy.get_default_memory_pool().free_all_blocks()


def profile(out, seconds):
    """Print and write milliseconds, whole and by kind, beside cuSOLVER; nothing is begun after ``seconds``."""
    from time import perf_counter

    import cupy

    end = perf_counter() + seconds
    table = []

    def keep(row):
        table.append(row)
        print(json.dumps(row), flush=True)
        (out / "lu_profile.json").write_text(json.dumps(table, indent=1))

    for n, outers in OUTER.items():
        for dtype in ("float32", "float64"):
            if perf_counter() > end:
                continue
            a = cupy.asarray(np.random.default_rng(0).standard_normal((1, n, n)).astype(dtype))
            row = {"dtype": dtype, "n": n}
            for outer in outers:
                run = Run(a, outer)
                if outer == outers[0]:
                    row["error"] = run.error()
                    again = run.lu.copy()
                    run.error()
                    row["same_bits"] = bool((again == run.lu).all())
                row[f"direct_{outer}"] = round(run.direct(), 4)
                row[f"graph_{outer}"] = round(run.graph(), 4)
                row[f"parts_{outer}"] = run.parts()
            peer = library_call(a[0])
            peer()
            row["cusolver"] = round(best(peer), 4)
            if n >= 512:
                row["inverse"] = triangles(n, dtype)
            keep(row)
            cupy.get_default_memory_pool().free_all_blocks()
    for dtype in ("float32", "float64"):
        if perf_counter() > end:
            continue
        a = cupy.random.default_rng(0).standard_normal((1000, 512, 512), dtype=np.dtype(dtype))
        run = Run(a, 512)
        row = {"dtype": dtype, "n": 512, "batch": 1000, "error": run.error()}
        row["direct"], row["graph"] = round(run.direct(), 4), round(run.graph(), 4)
        row["parts"] = run.parts()
        keep(row)
        del a, run
        cupy.get_default_memory_pool().free_all_blocks()
