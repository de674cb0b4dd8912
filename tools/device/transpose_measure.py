"""Measurement of transpose on a GPU, for transpose.py beside it: variants, contenders, tables."""

from __future__ import annotations

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


def _tiles(text):
    """Tiles written as rows x columns x threads (x stages)."""
    return [tuple(int(part) for part in word.split("x")) for word in text.split()]


PORTABLE = {
    1: _tiles("128x128x256 128x128x128 64x64x64 256x128x256 128x256x256 64x128x128"),
    2: _tiles("64x64x256 64x64x128 128x64x256 64x128x256 128x128x256 128x128x512"),
    4: _tiles(
        "64x64x256 64x64x128 64x64x512 32x32x128 32x32x256 32x64x256 64x32x256 128x32x256 "
        "32x128x256 64x128x256 128x64x256"
    ),
    8: _tiles("32x32x256 32x32x128 64x32x256 32x64x256 16x64x256 64x16x256 64x64x256 64x64x512"),
    16: _tiles("32x32x256 32x32x128 32x32x512 16x16x128 16x32x256 32x16x256 64x32x256 32x64x256"),
}
STREAMED = {
    1: _tiles("128x128x256x2 128x128x256x3 128x256x256x2 256x128x256x2"),
    2: _tiles("64x64x256x2 64x64x256x3 64x64x128x3 128x64x256x2 64x128x256x2 128x128x256x2"),
    4: _tiles("64x64x256x2 64x64x256x3 64x64x128x3 128x64x256x2 64x128x256x2 32x32x128x4"),
    8: _tiles("32x64x256x2 32x64x256x3 32x32x128x3 32x32x128x4 64x64x256x2 64x32x256x2 64x32x256x3"),
    16: _tiles("32x32x256x2 32x32x256x3 32x16x128x3 32x32x128x3 32x64x256x2 64x32x256x2"),
}


def problem_for(size, m, n, batch=1, in_place=False):
    align = plans_align(n * size, m * n * size), plans_align(m * size, m * n * size)
    return plans.TransposeProblem(
        m=m,
        n=n,
        batch=batch,
        itemsize=size,
        dtype=f"{size} bytes",
        on_device=True,
        src_pitch=n * size,
        dst_pitch=m * size,
        src_batch=m * n * size,
        dst_batch=m * n * size,
        src_align=align[0],
        dst_align=align[1],
        in_place=in_place,
    )


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

        fill = cupy.ElementwiseKernel(
            "uint64 seed",
            "uint64 x",
            "unsigned long long z = (i + seed) * 0x9E3779B97F4A7C15ull; "
            "z ^= z >> 29; z *= 0xBF58476D1CE4E5B9ull; x = z ^ (z >> 32)",
            "wf_fill",
        )
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
    """Plans everything, launches nothing; the times are made up, so that flow and tables can be seen."""

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
        "name": name,
        "bytes": moved,
        "median_us": samples.median * 1e6,
        "p95_us": samples.p95 * 1e6,
        "min_us": samples.minimum * 1e6,
        "tb_per_s": moved / samples.median * 1e-12,
        "share_of_copy": copy / samples.median,
        "samples_us": [round(s * 1e6, 3) for s in samples.seconds],
        "first_call_s": samples.first_call_seconds,
    }


def _more_groups(bench, problem, pairs, best, calls):
    """More panel heights and cache hints for the best tiles of each path."""
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
    return more


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
    more = _more_groups(bench, problem, pairs, best, calls)
    if perf_counter() < deadline:
        rows |= bench.time(
            {**{k: v for k, v in peers.items() if "copy" in k}, **more}, samples=5, target=1e-3
        )
    everything = {**{n: c[0] for n, c in calls.items()}, **more}
    ranked = sorted((n for n in rows if n in everything), key=lambda n: rows[n].median)
    finalists = [
        n for path in ("portable", "sm_80", "sm_90") for n in [r for r in ranked if r.startswith(path)][:2]
    ]
    finalists += [
        f"{p} {t} g{plans.GROUP} default"
        for p, t in (
            ("portable", plans.TILES[size]),
            ("sm_80", plans.STREAMED_TILES[size]),
            ("sm_90", plans.STREAMED_TILES[size]),
        )
    ]
    last = bench.time(
        {**peers, **{n: everything[n] for n in dict.fromkeys(finalists) if n in everything}}, samples=15
    )
    rows |= last
    copy = min(s.median for n, s in last.items() if n.startswith("copy"))
    return {
        "itemsize": size,
        "m": side,
        "n": side,
        "wrong": wrong,
        "finalists": list(last),
        "rows": [
            table_row(problem, n, s, copy) for n, s in sorted(rows.items(), key=lambda kv: kv[1].median)
        ],
    }


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
        result.append(
            {
                "itemsize": size,
                "m": m,
                "n": n,
                "batch": batch,
                "in_place": in_place,
                "right": ok,
                "rows": [table_row(problem, k, s, copy) for k, s in times.items()],
            }
        )
        del pairs
    return result
