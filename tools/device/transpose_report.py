"""Host overheads of a launch, and the short table, for transpose.py beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace

from transpose_measure import ROOT, problem_for

from warpfront.dense import _transpose_cuda as plans


def overheads():
    """Host time of one launch at each level, and of the first launch with a cold and a warm disk cache."""
    import cupy

    from warpfront.backend import arrays
    from warpfront.bench import gpu
    from warpfront.dense import transpose

    a, out = cupy.zeros((64, 64), "f4"), cupy.zeros((64, 64), "f4")
    problem = replace(problem_for(4, 64, 64), src_align=16, dst_align=16)
    kernel, made, blocks = plans._prepared(problem, "portable", 0)
    stream, arguments = cupy.cuda.get_current_stream().ptr, (out.data.ptr, a.data.ptr, *made.tail)
    side = cupy.cuda.Stream(non_blocking=True)
    simple = cupy.RawKernel('extern "C" __global__ void wf_empty(float* p) {}', "wf_empty")
    levels = {
        "kernel.launch": lambda: kernel.launch(stream, blocks, made.threads, arguments),
        "kernel.launch on a side stream": lambda: kernel.launch(side.ptr, blocks, made.threads, arguments),
        "plans.launch": lambda: plans.launch(problem, "portable", out.data.ptr, a.data.ptr, 0, stream),
        "arrays.view": lambda: arrays.view(a),
        "transpose(cupy, out)": lambda: transpose(a, out=out),
        "transpose(cupy)": lambda: transpose(a),
        "cupy RawKernel": lambda: simple((1,), (32,), (a,)),
        "cupy copyto": lambda: cupy.copyto(out, a.T),
    }
    try:
        import torch

        t, o = torch.zeros(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
        levels |= {
            "transpose(torch, out)": lambda: transpose(t, out=o),
            "torch copy_": lambda: o.copy_(t.t()),
        }
    except ImportError:
        pass
    result = {name: gpu.host_overhead(call) * 1e6 for name, call in levels.items()}
    code = (
        "import time, cupy, cuda.core;"
        "from warpfront.backend import capability; from warpfront.dense import transpose;"
        "a=cupy.zeros((4096,4096),'f4');capability.probe(0);"
        "cupy.cuda.runtime.deviceSynchronize();t=time.perf_counter();"
        "transpose(a);cupy.cuda.runtime.deviceSynchronize();print(time.perf_counter()-t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WARPFRONT_CACHE_DIR": folder}
        for name in ("first launch, cold cache (s)", "first launch, warm cache (s)"):
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
            )
            result[name] = float(done.stdout) if done.returncode == 0 else done.stderr[-500:]
    return result


def summary(record):
    lines = []
    for entry in record["sweep"]:
        shown = [r for r in entry["rows"] if r["name"] in entry["finalists"]]
        others = [r for r in shown if not r["name"].startswith(("portable", "sm_"))]
        lines.append(
            f"{entry['itemsize']} B {entry['m']}^2 wrong: {entry['wrong'] or 'none'} | "
            + " ".join(
                f"{r['name']} {r['median_us']:.1f} us ({r['share_of_copy'] * 100:.0f}%)" for r in others
            )
        )
        lines += [
            f"  {r['share_of_copy'] * 100:6.1f}% {r['median_us']:8.1f} us {r['name']}"
            for r in shown
            if r not in others
        ]
    for entry in record["shapes"]:
        rows = "  ".join(
            f"{r['name']} {r['share_of_copy'] * 100:.0f}%"
            for r in entry["rows"]
            if not r["name"].startswith("copy")
        )
        kind = (" in place" if entry["in_place"] else "") + ("" if entry["right"] else " WRONG")
        size = f"{entry['batch']} x {entry['m']} x {entry['n']}"
        lines.append(f"{entry['itemsize']:2d} B {size}{kind}: {rows}")
    lines += [
        f"{name}: {value if isinstance(value, str) else round(value, 3)}"
        for name, value in record["overheads"].items()
    ]
    lines += [
        f"{name}: exit {value['exit']} {value['last'][0][:100]}" for name, value in record["checks"].items()
    ]
    return "\n".join(lines)
