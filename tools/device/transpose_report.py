"""Records of transpose for transpose.py beside it: shapes beside the peers, host overheads, the short table."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from time import perf_counter

from transpose_measure import COPY_NAMES, ROOT, SIZES, Variant, problem_for

from warpfront.bench.collect import collected, cpu_record, gpu_record, refused
from warpfront.bench.record import Row, write
from warpfront.dense import _transpose_cuda as plans

DTYPES = {1: "uint8", 2: "uint16", 4: "float32", 8: "float64", 16: "complex128"}
SHAPES = (
    *((side, side, 1, False) for side in SIZES),
    (4097, 4099, 1, False),
    (10007, 10009, 1, False),
    (16384, 16383, 1, False),
    (512, 512, 500, False),
    *((side, side, 1, True) for side in SIZES),
    (1 << 22, 8, 1, False),
    (8, 1 << 22, 1, False),
)
PACKAGES = ("cupy-cuda13x", "torch", "cuda-core")


def as_tuned(path):
    return Variant((path, None, None, "plain", "plain", 1))


def automatic(problem):
    """The path that ``transpose`` takes for the problem on this device."""
    from warpfront.backend import capability, dispatch
    from warpfront.dense.transpose import PATHS

    if capability.missing() is not None:
        return "portable"
    return dispatch.choose(PATHS, problem, dispatch.Policy(), capability.probe(0), None).path.name


def shape_rows(bench, size, m, n, batch, in_place):
    """Return the row of a transpose with the fastest device copy as its ceiling, and the row of all copies."""
    problem = problem_for(size, m, n, batch, in_place)
    pairs = bench.buffers(m * n * batch * size)
    paths = {"warpfront": automatic(problem)}
    for path in ("portable", "sm_80", "sm_90"):
        fits = path == "portable" or plans.why_not_streamed(problem, whole_chunks=path == "sm_90") is None
        if fits and path != paths["warpfront"]:
            paths[f"warpfront {path}"] = path
    ours = {name: bench.ours(problem, as_tuned(path), pairs) for name, path in paths.items()}
    right = {name: bench.right(problem, calls, pairs) for name, calls in ours.items()}
    peers = {k: v for k, v in bench.peers(problem, pairs).items() if not in_place or k in COPY_NAMES}
    times = bench.time({**peers, **ours}, 9)
    moved, found = 2 * batch * m * n * size, {}
    for name, samples in times.items():
        wrong = "" if right.get(name, True) else "differs from CuPy's transpose"
        found[name] = collected(
            samples.seconds,
            right=not wrong,
            detail=wrong,
            algorithm=plans.plan(problem, paths[name]).expression if name in paths else name,
            bytes=moved,
            calls_per_sample=samples.calls_per_sample,
            warmup=1,
            first_call_seconds=samples.first_call_seconds,
        )
    copies = {name: found.pop(name) for name in COPY_NAMES}
    found["device copy"] = min(copies.values(), key=lambda one: one.median)
    if size == 2:
        found["torch"] = refused("not offered", "PyTorch has few operations on uint16")
    sizes = f"{m} x {n}" if batch == 1 else f"{batch} x {m} x {n}"
    case, shapes = f"{sizes}, {DTYPES[size]}", {"m": m, "n": n, "batch": batch, "itemsize": size}
    what = "transpose in place" if in_place else "transpose"
    common = (shapes, DTYPES[size], "hashed bits", 1)
    rows = [Row(case, what, *common, list(ours), found, reference="device copy")]
    return rows if in_place else [*rows, Row(case, "copy", *common, [], copies)]


def _record(name, rows, options, dry):
    if dry:
        return cpu_record(name, rows, {**options, "dry": True})
    return gpu_record(name, rows, options, packages=PACKAGES)


def shapes_record(bench, out, dry, deadline):
    """Measure the tuned launch on every shape and element size; flush the record as it grows."""
    rows = []
    for m, n, batch, in_place in SHAPES:
        for size in (4, 8, 1, 2, 16):
            if perf_counter() > deadline:
                print(f"out of time before {size} bytes {m} x {n}", flush=True)
                return rows
            rows += shape_rows(bench, size, m, n, batch, in_place)
        write(_record("transpose", rows, {"samples": 9, "target_seconds": 1e-3}, dry), out / "transpose.json")
    return rows


def launch_record(out, dry):
    """Host time of one launch at each level, and of the first launch with a cold and a warm disk cache."""
    if dry:
        return []
    import cupy

    from warpfront.backend import arrays
    from warpfront.bench import gpu
    from warpfront.dense import transpose

    a, result = cupy.zeros((64, 64), "f4"), cupy.zeros((64, 64), "f4")
    problem = replace(problem_for(4, 64, 64), src_align=16, dst_align=16)
    kernel, made, blocks = plans._prepared(problem, "portable", 0)
    stream, arguments = cupy.cuda.get_current_stream().ptr, (result.data.ptr, a.data.ptr, *made.tail)
    simple = cupy.RawKernel('extern "C" __global__ void wf_empty(float* p) {}', "wf_empty")
    levels = {
        "kernel only": {
            "warpfront": lambda: kernel.launch(stream, blocks, made.threads, arguments),
            "cupy RawKernel": lambda: simple((1,), (32,), (a,)),
        },
        "kernel planned": {
            "warpfront": lambda: plans.launch(problem, "portable", result.data.ptr, a.data.ptr, 0, stream)
        },
        "array inspected": {"warpfront": lambda: arrays.view(a)},
        "transpose(a, out=out)": {
            "warpfront": lambda: transpose(a, out=result),
            "cupy": lambda: cupy.copyto(result, a.T),
        },
    }
    try:
        import torch

        t, o = torch.zeros(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
        levels["transpose(a, out=out), torch arrays"] = {
            "warpfront": lambda: transpose(t, out=o),
            "torch": lambda: o.copy_(t.t()),
        }
    except ImportError:
        pass
    rows = []
    for case, calls in levels.items():
        found = {
            name: collected(
                [gpu.host_overhead(call, rounds=1) for _ in range(10)], clock="wall", calls_per_sample=200
            )
            for name, call in calls.items()
        }
        common = ({"m": 64, "n": 64}, "float32", "zeros", None, ["warpfront"])
        rows.append(Row(case, "host time of a launch", *common, found))
    rows += [_first_launch(case) for case in ("empty disk cache", "filled disk cache")]
    write(_record("launch", rows, {"rounds": 10, "batch": 200}, dry), out / "launch.json")
    return rows


FIRST = (
    "import time, cupy, cuda.core;"
    "from warpfront.backend import capability; from warpfront.dense import transpose;"
    "a=cupy.zeros((4096,4096),'f4');capability.probe(0);"
    "cupy.cuda.runtime.deviceSynchronize();t=time.perf_counter();"
    "transpose(a);cupy.cuda.runtime.deviceSynchronize();print(time.perf_counter()-t)"
)


def _first_launch(case):
    """New processes each: the first transpose after the context is there."""
    seconds = []
    with tempfile.TemporaryDirectory() as kept:
        for k in range(4):
            with tempfile.TemporaryDirectory() as fresh:
                folder = fresh if case.startswith("empty") else kept
                environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WARPFRONT_CACHE_DIR": folder}
                command = [sys.executable, "-c", FIRST]
                done = subprocess.run(
                    command, capture_output=True, text=True, env=environment, check=False, timeout=30
                )
            if done.returncode != 0:
                found = refused(
                    "failed", done.stderr.strip().splitlines()[-1] if done.stderr else "no message"
                )
                return Row(case, "first launch", {"m": 4096, "n": 4096}, "float32", "zeros", None, ["warpfront"],
                           {"warpfront": found})  # fmt: skip
            if k or case.startswith("empty"):
                seconds.append(float(done.stdout))
    found = collected(seconds[:3], clock="wall", calls_per_sample=1)
    return Row(
        case,
        "first launch",
        {"m": 4096, "n": 4096},
        "float32",
        "zeros",
        None,
        ["warpfront"],
        {"warpfront": found},
    )


def summary(done):
    """Return a line for each shape: our share of the fastest copy, path by path, for each element size."""
    lines, shapes = [], {}
    for row in done.get("shapes", []):
        if row.reference is None:
            continue
        copy = row.contenders[row.reference].median
        texts = [
            f"{name.removeprefix('warpfront').strip() or 'auto'} {100 * copy / row.contenders[name].median:.0f}"
            + ("WRONG" if row.contenders[name].status == "wrong" else "")
            for name in row.ours
        ]
        key = (row.case.rpartition(",")[0], row.operation)
        shapes.setdefault(key, []).append(f"{row.shapes['itemsize']}B {1e6 * copy:.1f}us " + "/".join(texts))
    lines += [f"{case} {operation}: " + "; ".join(found) for (case, operation), found in shapes.items()]
    for row in done.get("launch", []):
        texts = [
            f"{name} {1e6 * f.median:.2f} us" if f.median else f"{name} {f.detail}"
            for name, f in row.contenders.items()
        ]
        lines.append(f"{row.operation}, {row.case}: " + " ".join(texts))
    return "\n".join(lines)
