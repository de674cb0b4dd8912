"""Where the time of our LU on the GPU goes: device time by kind of launch, for `tools/device/dense.py`."""

from __future__ import annotations

import json

import numpy as np


def profile(out):
    """Print and write milliseconds by kind for one factorisation of each size."""
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusolver

    from warpfront.dense import _lu_block_cuda as blocks

    table = []
    for dtype, n in (("float32", 512), ("float32", 2048), ("float64", 2048), ("float32", 8192)):
        a = cupy.asarray(np.random.default_rng(0).standard_normal((n, n)).astype(dtype))
        pivots, zero = cupy.zeros(n, np.int32), cupy.zeros(1, np.int32)
        events, real_load, real_update = [], blocks.cuda_load, blocks._update

        def mark(name, events=events):
            event = cupy.cuda.Event()
            event.record()
            events.append((name, event))

        class Timed:
            def __init__(self, kernel, name):
                self.kernel, self.name = kernel, name

            def launch(self, *args, **options):
                mark("")
                self.kernel.launch(*args, **options)
                mark(self.name)

        def load(source, expression, *rest, real_load=real_load):
            return Timed(real_load(source, expression, *rest), expression.partition("<")[0])

        def update(lu, first, wide, real_update=real_update):
            mark("")
            real_update(lu, first, wide)
            mark("trsm + gemm")

        letter = "s" if dtype == "float32" else "d"
        blocks.factor_blocks(a.copy(), pivots, zero)
        whole = []
        for _ in range(3):
            work = a.copy()
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            blocks.factor_blocks(work, pivots, zero)
            end.record()
            end.synchronize()
            whole.append(cupy.cuda.get_elapsed_time(start, end))
        handle = device.get_cusolver_handle()
        words = getattr(cusolver, letter + "getrf_bufferSize")(handle, n, n, work.data.ptr, n)
        room, info, library = cupy.empty(words, dtype), cupy.zeros(1, np.int32), []
        for _ in range(3):
            work = a.copy()
            start, end = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            getattr(cusolver, letter + "getrf")(
                handle, n, n, work.data.ptr, n, room.data.ptr, pivots.data.ptr, info.data.ptr
            )
            end.record()
            end.synchronize()
            library.append(cupy.cuda.get_elapsed_time(start, end))
        blocks.cuda_load, blocks._update = load, update
        try:
            blocks.factor_blocks(a.copy(), pivots, zero)
            cupy.cuda.runtime.deviceSynchronize()
        finally:
            blocks.cuda_load, blocks._update = real_load, real_update
        parts = {}
        for (_, before), (name, after) in zip(events[::2], events[1::2], strict=True):
            parts[name] = parts.get(name, 0.0) + cupy.cuda.get_elapsed_time(before, after)
        row = {"dtype": dtype, "n": n, "ours_ms": min(whole), "cusolver_ms": min(library), "parts_ms": parts}
        table.append(row)
        print(json.dumps({**row, "parts_ms": {k: round(v, 3) for k, v in parts.items()}}), flush=True)
    (out / "lu_profile.json").write_text(json.dumps(table, indent=1))
