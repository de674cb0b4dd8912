"""Where the time of our LU on the GPU goes: device time by kind of launch, for `tools/device/dense.py`."""

from __future__ import annotations

import json

import numpy as np

SIZES = (("float32", 512), ("float32", 1024), ("float32", 2048))


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
    """A kernel whose launches are timed, one after another."""

    def __init__(self, kernel, name, parts):
        self.kernel, self.name, self.parts = kernel, name, parts

    def launch(self, *args, **options):
        spent = best(lambda: self.kernel.launch(*args, **options), 1)
        self.parts[self.name] = self.parts.get(self.name, 0.0) + spent


def parts_of(a, pivots, zero):
    """Milliseconds by kind of launch; each is waited for."""
    from warpfront.dense import _lu_block_cuda as blocks

    parts, load, update = {}, blocks.cuda_load, blocks._update

    def timed_load(source, expression, *rest):
        return Timed(load(source, expression, *rest), expression.partition("<")[0], parts)

    def timed_update(*args):
        parts["trsm + gemm"] = parts.get("trsm + gemm", 0.0) + best(lambda: update(*args), 1)

    blocks.cuda_load, blocks._update = timed_load, timed_update
    try:
        blocks.factor_blocks(a.copy(), pivots, zero)
    finally:
        blocks.cuda_load, blocks._update = load, update
    return parts


def profile(out):
    """Print and write milliseconds, whole and by kind, beside cuSOLVER."""
    import cupy

    from warpfront.dense import _lu_block_cuda as blocks

    table = []
    for dtype, n in SIZES:
        a = cupy.asarray(np.random.default_rng(0).standard_normal((n, n)).astype(dtype))
        pivots, zero = cupy.zeros(n, np.int32), cupy.zeros(1, np.int32)
        blocks.factor_blocks(a.copy(), pivots, zero)
        ours = best(lambda a=a, p=pivots, z=zero: blocks.factor_blocks(a.copy(), p, z))
        peer = library_call(a)
        peer()
        row = {"dtype": dtype, "n": n, "ours_ms": ours, "cusolver_ms": best(peer)}
        row["parts_ms"] = {name: round(value, 3) for name, value in parts_of(a, pivots, zero).items()}
        table.append(row)
        print(json.dumps(row), flush=True)
    (out / "lu_profile.json").write_text(json.dumps(table, indent=1))
