"""Measurement of transpose on a GPU, for transpose.py beside it: variants, contenders, tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from warpfront.backend import compile as compiling
from warpfront.dense import _transpose_cuda as plans

ROOT = Path(__file__).resolve().parents[2]
SIZES = (4096, 16384)
ODD = ((4097, 4099), (10007, 10009), (5000, 3001), (16384, 16383), (1 << 22, 8), (8, 1 << 22))
HINTS = {"default": (), "plain": (("WF_PLAIN_HINTS", "1"),), "stream": (("WF_STREAM_HINTS", "1"),)}
GROUPS = (1, 8)
MORE_GROUPS = (0, 2, 4, 16, 32, 1 << 20)

PORTABLE = {
    1: [(128, 128, 256), (128, 128, 128), (64, 64, 64), (256, 128, 256), (128, 256, 256), (64, 128, 128)],
    2: [(64, 64, 256), (64, 64, 128), (128, 64, 256), (64, 128, 256), (128, 128, 256), (128, 128, 512)],
    4: [(64, 64, 256), (64, 64, 128), (64, 64, 512), (32, 32, 128), (32, 32, 256), (32, 64, 256), (64, 32, 256), (128, 32, 256),
        (32, 128, 256), (64, 128, 256), (128, 64, 256)],
    8: [(32, 32, 256), (32, 32, 128), (64, 32, 256), (32, 64, 256), (16, 64, 256), (64, 16, 256), (64, 64, 256), (64, 64, 512)],
    16: [(32, 32, 256), (32, 32, 128), (32, 32, 512), (16, 16, 128), (16, 32, 256), (32, 16, 256), (64, 32, 256), (32, 64, 256)],
}  # fmt: skip
STREAMED = {
    1: [(128, 128, 256, 2), (128, 128, 256, 3), (128, 256, 256, 2), (256, 128, 256, 2)],
    2: [(64, 64, 256, 2), (64, 64, 256, 3), (64, 64, 128, 3), (128, 64, 256, 2), (64, 128, 256, 2), (128, 128, 256, 2)],
    4: [(64, 64, 256, 2), (64, 64, 256, 3), (64, 64, 128, 3), (128, 64, 256, 2), (64, 128, 256, 2), (32, 32, 128, 4)],
    8: [(32, 64, 256, 2), (32, 64, 256, 3), (32, 32, 128, 3), (32, 32, 128, 4), (64, 64, 256, 2), (64, 32, 256, 2), (64, 32, 256, 3)],
    16: [(32, 32, 256, 2), (32, 32, 256, 3), (32, 16, 128, 3), (32, 32, 128, 3), (32, 64, 256, 2), (64, 32, 256, 2)],
}  # fmt: skip


def problem_for(size, m, n, batch=1, in_place=False):
    align = plans_align(n * size, m * n * size), plans_align(m * size, m * n * size)
    return plans.TransposeProblem(
        m=m, n=n, batch=batch, itemsize=size, dtype=f"{size} bytes", on_device=True, src_pitch=n * size, dst_pitch=m * size,
        src_batch=m * n * size, dst_batch=m * n * size, src_align=align[0], dst_align=align[1], in_place=in_place,
    )  # fmt: skip


def plans_align(*values):
    bits = 16
    for value in values:
        bits |= value
    return bits & -bits


def variants(size):
    """Every (label, path, tile, hint) of the sweep."""
    for tile in PORTABLE[size]:
        yield f"portable {tile}", "portable", tile, "default"
    for path in ("sm_80", "sm_90"):
        for tile in STREAMED[size]:
            yield f"{path} {tile}", path, tile, "default"


class Bench:
    """Buffers, kernels and contenders of the measurement."""

    def buffers(self, nbytes):
        """Several (destination, source) pairs of raw memory; the sources hold hashed bits."""
        import cupy

        from warpfront.bench import gpu

        fill = cupy.ElementwiseKernel("uint64 seed", "uint64 x", "unsigned long long z = (i + seed) * 0x9E3779B97F4A7C15ull; "
                                      "z ^= z >> 29; z *= 0xBF58476D1CE4E5B9ull; x = z ^ (z >> 32)", "wf_fill")  # fmt: skip
        pairs = []
        for k in range(gpu.buffer_sets(2 * nbytes, most=8)):
            words = -(-nbytes // 8)
            source = cupy.empty(words, cupy.uint64)
            fill(k * words + 1, source)
            pairs.append((cupy.zeros(words, cupy.uint64), source))
        return pairs

    def ours(self, problem, path, tile, pairs, group=None, hint="default"):
        from warpfront.backend import cuda

        options = {} if tile is None else {"tile": tile}
        made = plans.plan(problem, path, **options, **({} if group is None else {"group": group}))
        chosen = compiling.CompileOptions(defines=HINTS[hint])
        kernel = cuda.load(made.source, made.expression, made.signature, 0, chosen)
        blocks = plans.resident(kernel, made, 0)

        def call_for(dst, src):
            arguments = ((src.data.ptr,) if problem.in_place else (dst.data.ptr, src.data.ptr)) + made.tail
            return lambda stream: kernel.launch(stream, blocks, made.threads, arguments, made.shared_bytes)

        return [call_for(dst, src) for dst, src in pairs]

    def right(self, problem, calls, pairs):
        """Run the first call on poisoned memory and compare every bit with CuPy's transpose."""
        import cupy

        carrier = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[problem.itemsize]
        count = problem.batch * problem.m * problem.n
        dst, src = pairs[0]
        dst.fill(0xA5A5A5A5A5A5A5A5)
        stream = cupy.cuda.get_current_stream()
        calls[0](stream.ptr)
        a = (
            src.view(cupy.uint8)[: count * problem.itemsize]
            .view(carrier)
            .reshape(problem.batch, problem.m, problem.n)
        )
        b = (
            dst.view(cupy.uint8)[: count * problem.itemsize]
            .view(carrier)
            .reshape(problem.batch, problem.n, problem.m)
        )
        word = "u8" if problem.itemsize == 16 else carrier
        if problem.itemsize == 16:
            a = a.view(word).reshape(problem.batch, problem.m, problem.n, 2)
            b = b.view(word).reshape(problem.batch, problem.n, problem.m, 2)
        same = bool((a.swapaxes(1, 2) == b).all())
        if not same:
            print("  WRONG RESULT", problem, flush=True)
        return same

    def peers(self, problem, pairs):
        """Device copies of the same bytes, and other libraries' transposes."""
        import cupy

        nbytes = problem.batch * problem.m * problem.n * problem.itemsize
        copy = cupy.cuda.runtime.memcpyAsync
        result = {
            "copy cudaMemcpyAsync": [
                lambda s, d=d, a=a: copy(d.data.ptr, a.data.ptr, nbytes, 3, s) for d, a in pairs
            ]
        }
        carrier = {1: "u1", 2: "u2", 4: "f4", 8: "f8", 16: "c16"}[problem.itemsize]
        shape = (problem.batch, problem.m, problem.n)

        def as_array(raw, sizes):
            return raw.view(cupy.uint8)[:nbytes].view(carrier).reshape(sizes)

        def cupy_call(d, a):
            source, target = as_array(a, shape).swapaxes(1, 2), as_array(d, (shape[0], shape[2], shape[1]))
            return lambda s: cupy.copyto(target, source)

        result["cupy"] = [cupy_call(d, a) for d, a in pairs]
        try:
            import torch
        except ImportError:
            return result

        def torch_call(d, a, transpose):
            source, target = torch.as_tensor(as_array(a, shape), device="cuda"), None
            target = torch.as_tensor(
                as_array(d, (shape[0], shape[2], shape[1]) if transpose else shape), device="cuda"
            )
            source = source.transpose(1, 2) if transpose else source

            def call(stream):
                with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                    target.copy_(source)

            return call

        if problem.itemsize != 2:
            result["copy torch"] = [torch_call(d, a, False) for d, a in pairs]
            result["torch"] = [torch_call(d, a, True) for d, a in pairs]
        return result

    def time(self, contenders, samples, target=2e-3):
        from warpfront.bench import gpu

        return gpu.time_interleaved(contenders, samples=samples, target_seconds=target)


class DryBench(Bench):
    """Plans everything, launches nothing: times are made up from the name, so that the flow and the tables can be seen."""

    def buffers(self, nbytes):
        return [(None, None)]

    def ours(self, problem, path, tile, pairs, group=None, hint="default"):
        plans.plan(problem, path, **({} if tile is None else {"tile": tile}))
        return [None]

    def right(self, problem, calls, pairs):
        return True

    def peers(self, problem, pairs):
        return {"copy cudaMemcpyAsync": [None], "copy torch": [None], "cupy": [None], "torch": [None]}

    def time(self, contenders, samples, target=2e-3):
        from warpfront.bench import gpu

        return {
            name: gpu.Samples(tuple(1e-6 * (len(name) + k) for k in range(samples)), 1, 0.1)
            for name in contenders
        }


def table_row(problem, name, samples, copy):
    moved = 2 * problem.batch * problem.m * problem.n * problem.itemsize
    return {
        "name": name, "bytes": moved, "median_us": samples.median * 1e6, "p95_us": samples.p95 * 1e6, "min_us": samples.minimum * 1e6,
        "tb_per_s": moved / samples.median * 1e-12, "share_of_copy": copy / samples.median,
        "samples_us": [round(s * 1e6, 3) for s in samples.seconds], "first_call_s": samples.first_call_seconds,
    }  # fmt: skip


def sweep(bench, size, side, deadline):
    """All tiles at two panel heights, then more panels and cache hints for the best of each path."""
    problem = problem_for(size, side, side)
    pairs = bench.buffers(side * side * size)
    calls, wrong = {}, []
    for label, path, tile, hint in variants(size):
        for group in GROUPS:
            name = f"{label} g{group} {hint}"
            try:
                calls[name] = (bench.ours(problem, path, tile, pairs, group, hint), path, tile)
                if not bench.right(problem, calls[name][0], pairs):
                    wrong.append(name)
            except Exception as error:  # a variant that cannot run is a finding, not the end of the run
                print(f"  {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                wrong.append(name)
                calls.pop(name, None)
    peers = bench.peers(problem, pairs)
    first = bench.time({**peers, **{n: c[0] for n, c in calls.items()}}, samples=5, target=1e-3)
    rows, best = dict(first), {}
    for path in ("portable", "sm_80", "sm_90"):
        best[path] = sorted((n for n in calls if calls[n][1] == path), key=lambda n: first[n].median)[:2]
    more = {}
    for path, names in best.items():
        for tile in dict.fromkeys(calls[n][2] for n in names):
            for group in MORE_GROUPS:
                more[f"{path} {tile} g{group} default"] = bench.ours(problem, path, tile, pairs, group)
            for hint in ("plain", "stream") if path == "portable" else ():
                for group in GROUPS:
                    more[f"{path} {tile} g{group} {hint}"] = bench.ours(
                        problem, path, tile, pairs, group, hint
                    )
    if perf_counter() < deadline:
        rows |= bench.time(
            {**{k: v for k, v in peers.items() if "copy" in k}, **more}, samples=5, target=1e-3
        )
    everything = {**{n: c[0] for n, c in calls.items()}, **more}
    ranked = sorted((n for n in rows if n in everything), key=lambda n: rows[n].median)
    finalists = [
        n for path in ("portable", "sm_80", "sm_90") for n in [r for r in ranked if r.startswith(path)][:2]
    ]
    finalists += [f"{p} {t} g{plans.GROUP} default" for p, t in (("portable", plans.TILES[size]), ("sm_80", plans.STREAMED_TILES[size]),
                                                               ("sm_90", plans.STREAMED_TILES[size]))]  # fmt: skip
    last = bench.time(
        {**peers, **{n: everything[n] for n in dict.fromkeys(finalists) if n in everything}}, samples=15
    )
    rows |= last
    copy = min(s.median for n, s in last.items() if n.startswith("copy"))
    return {"itemsize": size, "m": side, "n": side, "wrong": wrong, "finalists": list(last),
            "rows": [table_row(problem, n, s, copy) for n, s in sorted(rows.items(), key=lambda kv: kv[1].median)]}  # fmt: skip


def shapes(bench):
    """Odd, narrow, batched and in-place problems with the tuned launch."""
    result = []
    jobs = [(s, m, n, 1, False) for s in plans.ELEMENT_BYTES for m, n in ODD]
    jobs += [(s, 512, 512, 500, False) for s in plans.ELEMENT_BYTES] + [
        (4, 8, 8, 1_000_000, False),
        (8, 32, 32, 100_000, False),
    ]
    jobs += [(s, side, side, 1, True) for s in plans.ELEMENT_BYTES for side in SIZES]
    for size, m, n, batch, in_place in jobs:
        problem = problem_for(size, m, n, batch, in_place)
        pairs = bench.buffers(m * n * batch * size)
        ours = {}
        for path in ("portable", "sm_80", "sm_90"):
            if path == "portable" or plans.why_not_streamed(problem, whole_chunks=path == "sm_90") is None:
                ours[path] = bench.ours(problem, path, None, pairs)
        ok = in_place or all(bench.right(problem, calls, pairs) for calls in ours.values())
        peers = {k: v for k, v in bench.peers(problem, pairs).items() if "copy" in k}
        times = bench.time({**peers, **ours}, samples=7, target=1e-3)
        copy = min(s.median for k, s in times.items() if k.startswith("copy"))
        result.append({"itemsize": size, "m": m, "n": n, "batch": batch, "in_place": in_place, "right": ok,
                       "rows": [table_row(problem, k, s, copy) for k, s in times.items()]})  # fmt: skip
        del pairs
    return result


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
    code = ("import time,cupy,numpy as np;from warpfront.backend import capability;from warpfront.dense import transpose;"
            "a=cupy.zeros((4096,4096),'f4');capability.probe(0);import cuda.core;cupy.cuda.runtime.deviceSynchronize();t=time.perf_counter();"
            "transpose(a);cupy.cuda.runtime.deviceSynchronize();print(time.perf_counter()-t)")  # fmt: skip
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
        lines.append(f"{entry['itemsize']} B {entry['m']}^2 wrong: {entry['wrong'] or 'none'} | "
                     + " ".join(f"{r['name']} {r['median_us']:.1f} us ({r['share_of_copy'] * 100:.0f}%)" for r in others))  # fmt: skip
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
        kind = "in place" if entry["in_place"] else ""
        lines.append(
            f"{entry['itemsize']:2d} B {entry['batch']} x {entry['m']} x {entry['n']} {kind} {'' if entry['right'] else 'WRONG'}: {rows}"
        )
    lines += [
        f"{name}: {value if isinstance(value, str) else round(value, 3)}"
        for name, value in record["overheads"].items()
    ]
    lines += [
        f"{name}: exit {value['exit']} {value['last'][0][:100]}" for name, value in record["checks"].items()
    ]
    return "\n".join(lines)
