"""Where a chain of strips spends its time: the strips kernel with time stamps, on one launch of a factorisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

STAMP = """
__device__ unsigned long long wf_probe[1 << 16];
__device__ __forceinline__ void stamp(int at, int k, int by = 0) {
  if (threadIdx.x == by && blockIdx.x < 64) {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    wf_probe[(blockIdx.x * 64 + at) * 8 + k] = t;
  }
}
"""
PLACES = (  # text of strips.cu and what it includes, the stamp behind it, and what follows
    ("tagged_wait(from + k * kPanel + c, kSub, least, epoch, m);\n    }", "stamp(p, 0);", ""),
    ("epoch, m, 2 * (n + 1));", "if (n == 0) stamp(p, 0); if (n == 3) stamp(p, 1);", ""),
    ("receive_block<Paired, Tags>(x, p, d);", "stamp(p, 1);", ""),
    ("form_rows(x, p);\n      __syncthreads();", "stamp(p, 2);", ""),
    ("const int to = x.item.row + kSub * warp + g;", "if (n == 3) stamp(p, 2);", ""),
    ("follow_closely(x, p);", "stamp(p, 3);", ""),
    ("update_behind<Paired>(x, p, owned, d);", "stamp(p, 3);", ""),
    ("const i64 at = static_cast<i64>(index) * kPublished;", "stamp(63, 0);", ""),
    ("if (Indefinite && bad >= 0) return false;", "stamp(63, 1);", ""),
    ("if (!Indefinite) publish_eight(n, part, of, size, s, to);", "stamp(63, 2, 64);", ""),
)
NAMES = ("block (its first eight columns) seen", "block loaded", "rows formed", "columns updated")


def probed_text(source):
    """The kernel's text with stamps, and those of the files that it includes for its blocks and rows."""
    text = source.read_text()
    for name in ("strip_rows.cuh", "strip_block.cuh"):
        part = (source.parent / name).read_text().replace("#pragma once\n", "")
        text = text.replace(f'#include "{name}"\n', STAMP + part if name == "strip_rows.cuh" else part)
    for place, call, tail in PLACES:
        if text.count(place + tail) != 1:
            raise AssertionError(f"the strips have changed: {place + tail!r}")
        text = text.replace(place + tail, f"{place}\n    {call}{tail}")
    return text


def probe(factor, rows, pick=-1):
    """Stamps of a strips launch, of blocks by eights: the ``pick``-th with at most ``rows`` strips. Microseconds."""
    import cupy

    from warpfront.backend import compile as compiling
    from warpfront.sparse.gpu.kernels import KERNELS

    runner = factor.runner
    steps = runner.sequence("factor")
    at = [k for k, s in enumerate(steps) if s.kernel == "strips" and s.blocks <= rows][pick]
    source = KERNELS["strips"].source
    include = Path(compiling.__file__).parent / "device"
    name = "eliminate_strips<double, false, true>"
    module = cupy.RawModule(
        code=probed_text(source), options=("-std=c++17", f"-I{include}", f"-I{source.parent}", "-arch=sm_90"),
        name_expressions=(name,), backend="nvrtc",
    )  # fmt: skip
    kernel = module.get_function(name)
    kernel.max_dynamic_shared_size_bytes = steps[at].shared_bytes
    stream = cupy.cuda.get_current_stream()
    for k, (compiled, grid, threads, arguments, shared) in enumerate(runner._prepared["factor"][: at + 1]):
        if k < at:
            compiled.launch(stream.ptr, grid, threads, arguments, shared)
        else:
            kernel((grid,), (threads,), tuple(np.uint64(p) for p in arguments), shared_mem=shared)
    cupy.cuda.runtime.deviceSynchronize()
    pointer = module.get_global("wf_probe")
    stamps = cupy.ndarray((64, 64, 8), cupy.uint64, pointer).get().astype(np.int64)
    start = stamps[stamps > 0].min()
    return steps[at].blocks, np.where(stamps > 0, (stamps - start) / 1e3, np.nan)


def table(factor, rows, pick=-1):
    """Lines: for each panel when its block was there, and the legs to the next; then the last strip's panels."""
    blocks, t = probe(factor, rows, pick)
    lines = [
        f"strips launch of {blocks} blocks; panel: begun, eliminated, published | next: {', '.join(NAMES)}"
    ]
    panels = int(np.isfinite(t[:, 63, 0]).sum())
    for p in range(panels):
        own, follow = t[p, 63, :3], t[p + 1, p, :4] if p + 1 < min(blocks, 64) else np.full(4, np.nan)
        lines.append(
            f"  {p:2d}: " + " ".join(f"{v:7.2f}" for v in own) + " | " + " ".join(f"{v:7.2f}" for v in follow)
        )
    last = min(blocks, 64) - 1
    lines += [
        f"  strip {last}, panel {p:2d}: " + " ".join(f"{v:7.2f}" for v in t[last, p, :4])
        for p in range(panels)
    ]
    return lines
