"""Where a chain of strips spends its time: the strips kernel with time stamps, on one launch of a factorisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

STAMP = """
__device__ unsigned long long wf_probe[1 << 16];
__device__ __forceinline__ void stamp(int at, int k) {
  if (threadIdx.x == 0 && blockIdx.x < 64) {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    wf_probe[(blockIdx.x * 64 + at) * 8 + k] = t;
  }
}
"""
PLACES = (  # text of strips.cu and of strip_block.cuh, the stamp behind it, and what follows
    ("signal_wait(x.block_done + p, x.base + 1);\n    __syncthreads();", "stamp(p, 0);", ""),
    ("static_cast<int>(from[2 * kPanel + lane]));\n    }\n    __syncthreads();", "stamp(p, 1);", ""),
    ("form_rows(x, p);\n    __syncthreads();", "stamp(p, 2);", ""),
    ("update_columns<Paired>(x, p, q, min_of(kNeighbours, owned - q + 1), d);\n    }", "stamp(p, 3);", ""),
    ("T* block = x.s + index * kBlockSize;", "stamp(63, 0);", ""),
    ("const int bad = direct_block<false, false>(block, kPitch, 0, size, T(0), s);", "stamp(63, 1);", ""),
    ("if (verdict != kTaken) return verdict;", "stamp(63, 1);", ""),
    (
        "to.announce();",
        "stamp(63, 2);",
        "\n  write_direct(s, 0, size, to.diagonal, to.pivots);\n  const int k",
    ),
    ("to.announce();", "stamp(63, 2);", "\n  settle_blocked(block, size, s, to);"),
)
NAMES = ("block seen", "block loaded", "rows formed", "columns updated")


def probed_text(source):
    """The kernel's text with stamps, and that of the file that holds its diagonal blocks."""
    include = '#include "strip_block.cuh"\n'
    block = (source.parent / "strip_block.cuh").read_text().replace("#pragma once\n", "")
    text = source.read_text().replace(include, STAMP + block)
    for place, call, tail in PLACES:
        if text.count(place + tail) != 1:
            raise AssertionError(f"the strips have changed: {place + tail!r}")
        text = text.replace(place + tail, f"{place}\n    {call}{tail}")
    return text


def probe(factor, rows, pick=-1, way=None):
    """Stamps of a strips launch, by one of the kernel's ways: the ``pick``-th with at most ``rows`` strips. Microseconds."""
    import cupy

    from warpfront.backend import compile as compiling
    from warpfront.sparse.gpu.kernels import KERNELS

    runner = factor.runner
    steps = runner.sequence("factor")
    at = [k for k, s in enumerate(steps) if s.kernel == "strips" and s.blocks <= rows][pick]
    source = KERNELS["strips"].source
    include = Path(compiling.__file__).parent / "device"
    name = steps[at].expression if way is None else f"eliminate_strips<double, false, {way}>"
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


def table(factor, rows, pick=-1, way=None):
    """Lines: for each panel when its block was there, and the legs to the next; then the last strip's panels."""
    blocks, t = probe(factor, rows, pick, way)
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
