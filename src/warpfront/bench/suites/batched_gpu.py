"""Batched tiny solves on the GPU, whole calls: the variants beside the serial baseline, every output verified."""

from __future__ import annotations

from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from warpfront.bench.suites.batched_cpu import inputs
from warpfront.bench.verify import FAILED, PASSED, Check, Options

__all__ = ["checks", "grid"]

SAMPLES = 9
BATCHES, SIZES = (1, 32, 256, 4096, 65536), ((8, 1), (8, 8), (16, 1), (16, 8), (32, 1), (32, 8))


def grid(everything: bool) -> list[tuple[str, int, int, int]]:
    """Return (method, n, nrhs, batch): a few, or the whole grid."""
    sizes = [(n, r) for n in (8, 16, 32) for r in (1, 4, 8)] if everything else SIZES
    batches = BATCHES if everything else (256, 65536)
    return [(m, n, r, batch) for m in ("cholesky", "lu") for n, r in sizes for batch in batches]


def checks(options: Options) -> list[Check]:
    """Time every case of the grid: one check each, with every sample and the ratio to the baseline."""
    return [_one(*case) for case in grid(options.everything)]


def _one(method: str, n: int, nrhs: int, batch: int) -> Check:
    import cupy

    from warpfront import batched

    begin = perf_counter()
    title = f"{method} n={n} nrhs={nrhs} batch={batch} float32"
    a, b = inputs(method, min(batch, 4096), n, nrhs, np.float32)
    take = cupy.arange(batch) % len(a)
    left, right = cupy.asarray(a)[take], cupy.asarray(b)[take]
    entries = {
        v: f"{method}_solve_batched" + ("" if v == "serial" else f"_{v}")
        for v in ("serial", "warp", "packed")
    }
    contenders = {v: partial(getattr(batched, name), left, right) for v, name in entries.items()}
    outputs = {v: call() for v, call in contenders.items()}
    errors = {v: _error(left, right, output) for v, output in outputs.items()}
    limit = 4 * n * float(np.finfo(np.float32).eps)
    times: dict[str, list[float]] = {v: [] for v in contenders}
    wait = cupy.cuda.runtime.deviceSynchronize
    for sample in range(SAMPLES):
        for v in list(contenders) if sample % 2 else reversed(list(contenders)):
            wait()
            start = perf_counter()
            contenders[v]()
            wait()
            times[v].append(perf_counter() - start)
    data = {
        "seconds": times,
        "median": {v: median(t) for v, t in times.items()},
        "speed_up": {v: median(times["serial"]) / median(t) for v, t in times.items()},
        "backward_error": errors,
    }
    bad = [v for v, error in errors.items() if not error <= limit]
    detail = f"backward error of {', '.join(bad)} above {limit:.1e}" if bad else ""
    return Check(title, FAILED if bad else PASSED, detail, perf_counter() - begin, data)


def _error(a: Any, b: Any, output: Any) -> float:
    """Worst backward error in FP64 over some of the systems; infinite if one failed."""
    if bool((output.status != 0).any()):
        return float("inf")
    a, b, x = (v[-4096:].astype("f8") for v in (a, b, output.solution))
    size = abs(a).sum(axis=2).max(axis=1) * abs(x).max(axis=(1, 2)) + abs(b).max(axis=(1, 2))
    return float((abs(b - a @ x).max(axis=(1, 2)) / size).max())
