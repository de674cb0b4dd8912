"""Measurement of transpose on a GPU, for transpose.py beside it: variants, contenders, tuning."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from warpfront.backend import compile as compiling
from warpfront.dense import _transpose_cuda as plans

ROOT = Path(__file__).resolve().parents[2]
SIZES = (4096, 16384)
ODD = ((4097, 4099), (10007, 10009))
LOADS = {"plain": "wf::load16", "once": "wf::load16_stream", "first": "wf::load16_first"}
STORES = {"plain": "wf::store16", "stream": "wf::store16_stream", "first": "wf::store16_first"}
COLUMN = 1 << 20
GROUPS = (COLUMN, 1)
COPY = r"""
template <int Each, bool Stream>
__global__ void __launch_bounds__(512) copy16(uint4* dst, const uint4* src, long long count) {
  const long long first = (long long)blockIdx.x * (512 * Each) + threadIdx.x;
  uint4 v[Each];
  #pragma unroll
  for (int e = 0; e < Each; ++e) {
    const long long k = first + e * 512;
    if (k < count) v[e] = Stream ? __ldcs(src + k) : src[k];
  }
  #pragma unroll
  for (int e = 0; e < Each; ++e) {
    const long long k = first + e * 512;
    if (k < count && Stream) __stcs(dst + k, v[e]);
    if (k < count && !Stream) dst[k] = v[e];
  }
}
"""


def _tiles(text):
    """Tiles written as rows x columns x threads (x stages)."""
    return [tuple(int(part) for part in word.split("x")) for word in text.split()]


PORTABLE = {
    1: _tiles("128x128x256 64x128x128 128x256x256 64x256x256 64x64x64 128x64x128"),
    2: _tiles("64x64x128 128x64x256 64x128x256 128x128x512 64x64x256 64x128x128"),
    4: _tiles("64x64x256 64x32x128 128x32x256"),
    8: _tiles("32x32x256 32x32x128 64x32x256"),
    16: _tiles("16x16x128 32x16x256 32x16x128"),
}  # fmt: skip
STREAMED = {
    1: _tiles("128x256x256x2"),
    2: _tiles("128x128x256x2 64x64x128x3"),
    4: _tiles("64x64x256x2 128x64x256x2"),
    8: _tiles("64x64x256x2 64x32x256x2"),
    16: _tiles("64x32x256x2"),
}
BULK = {1: _tiles("128x256x256x2"), 2: _tiles("64x64x128x3"), 4: _tiles("64x64x128x3"), 8: _tiles("64x32x256x3"),
        16: _tiles("32x32x128x3")}  # fmt: skip
SHIFT = {
    1: _tiles("128x128x256 64x128x128 128x64x128 256x64x256 128x128x128"),
    2: _tiles("64x64x256 64x128x256 128x64x256 128x32x256 64x32x128"),
    4: _tiles("64x64x256 128x32x256 64x32x128 128x16x128 32x32x128"),
    8: _tiles("64x32x256 64x16x128 64x32x128 128x16x256"),
}


def defines(load="plain", store="plain", blocks=1):
    """Macros of a variant: cache policies, and the least number of blocks an SM should hold."""
    chosen = []
    if load != "plain":
        chosen.append(("WF_LOAD16", LOADS[load]))
    if store != "plain":
        chosen.append(("WF_STORE16", STORES[store]))
    if blocks != 1:
        chosen.append(("WF_LEAST_BLOCKS", str(blocks)))
    return tuple(chosen)


def least_blocks(path, tile):
    """Occupancies worth trying: threads of an SM filled to a half, three quarters, all."""
    if path == "sm_90":
        return ()
    most = 2048 // tile[2]
    return tuple(sorted({most // 2, 3 * most // 4, most} - {1, 0}))


def policies():
    return [("once", "plain"), ("once", "stream"), ("plain", "stream"), ("first", "first")]


def problem_for(size, m, n, batch=1, in_place=False):
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
        src_align=plans_align(n * size, m * n * size),
        dst_align=plans_align(m * size, m * n * size),
        in_place=in_place,
    )


def plans_align(*values):
    bits = 16
    for value in values:
        bits |= value
    return bits & -bits


class Variant(tuple):
    """(path, tile, group, load, store, blocks); prints as one word for each."""

    def __str__(self):
        path, tile, group, load, store, blocks = self
        if tile is None:
            return f"{path} as tuned {load}/{store}"
        order = {COLUMN: "columns", 1: "rows"}.get(group, f"g{group}")
        return f"{path} {'x'.join(map(str, tile))} {order} {load}/{store} b{blocks}"

    @property
    def defines(self):
        return defines(*self[3:])


def first_round(size, odd):
    """Every tile in both orders."""
    tiles = [("portable", t) for t in (SHIFT.get(size, PORTABLE[size]) if odd else PORTABLE[size])]
    if not odd:
        tiles += [("sm_80", t) for t in STREAMED[size]] + [("sm_90", t) for t in BULK[size]]
    return [Variant((path, tile, group, "plain", "plain", 1)) for path, tile in tiles for group in GROUPS]


def second_round(best):
    """Cache policies and occupancies for the best of the first round."""
    found = []
    for path, tile, group, *_ in best:
        if path == "portable":
            found += [Variant((path, tile, group, a, b, 1)) for a, b in policies()]
        found += [Variant((path, tile, group, "plain", "plain", k)) for k in least_blocks(path, tile)]
        found += [Variant((path, tile, g, "plain", "plain", 1)) for g in (8, 32)]
    return found


def third_round(best):
    """The best cache policy with every occupancy: what each gave alone may add up."""
    policy = next((v for v in best if v[0] == "portable" and v[3:5] != ("plain", "plain")), None)
    if policy is None:
        return []
    return [Variant((*policy[:5], blocks)) for blocks in least_blocks(policy[0], policy[1])]


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
        cupy.get_default_memory_pool().free_all_blocks()
        pairs = []
        for k in range(gpu.buffer_sets(2 * nbytes, most=8)):
            words = -(-nbytes // 16) * 2
            source = cupy.empty(words, cupy.uint64)
            fill(k * words + 1, source)
            pairs.append((cupy.zeros(words, cupy.uint64), source))
        return pairs

    def ours(self, problem, variant, pairs):
        from warpfront.backend import cuda

        path, tile, group, *_ = variant
        options = {} if tile is None else {"tile": tile}
        made = plans.plan(problem, path, **options, **({} if group is None else {"group": group}))
        chosen = compiling.CompileOptions(defines=variant.defines)
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
        shape = (problem.batch, problem.m, problem.n)
        count = problem.batch * problem.m * problem.n
        dst, src = pairs[0]

        def array(raw, sizes):
            flat = raw.view(cupy.uint8)[: count * problem.itemsize]
            if problem.itemsize == 16:
                return flat.view("u8").reshape(*sizes, 2)
            return flat.view(carrier).reshape(sizes)

        if problem.in_place:
            expected = array(src, shape).swapaxes(1, 2).copy()
        else:
            dst.fill(0xA5A5A5A5A5A5A5A5)
            expected = array(src, shape).swapaxes(1, 2)
        calls[0](cupy.cuda.get_current_stream().ptr)
        found = array(src if problem.in_place else dst, (shape[0], shape[2], shape[1]))
        same = bool((expected == found).all())
        if not same:
            print("  WRONG RESULT", problem, flush=True)
        return same

    def peers(self, problem, pairs):
        """Device copies of the same bytes, by the driver and by a kernel, and other libraries' transposes."""
        import cupy

        nbytes = problem.batch * problem.m * problem.n * problem.itemsize
        copy = cupy.cuda.runtime.memcpyAsync
        result = {
            "cudaMemcpyAsync": [
                lambda s, d=d, a=a: copy(d.data.ptr, a.data.ptr, nbytes, 3, s) for d, a in pairs
            ]
        }
        module = cupy.RawModule(code=COPY, options=("-std=c++17",), name_expressions=COPIES.values())
        count = -(-nbytes // 16)
        for name, expression in COPIES.items():
            kernel, each = module.get_function(expression), int(expression[7])
            result[name] = [self._copy(kernel, -(-count // (512 * each)), d, a, count) for d, a in pairs]
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

        def torch_call(d, a):
            source = torch.as_tensor(as_array(a, shape), device="cuda").transpose(1, 2)
            target = torch.as_tensor(as_array(d, (shape[0], shape[2], shape[1])), device="cuda")

            def call(stream):
                with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                    target.copy_(source)

            return call

        if problem.itemsize != 2:
            result["torch"] = [torch_call(d, a) for d, a in pairs]
        return result

    @staticmethod
    def _copy(kernel, blocks, dst, src, count):
        import cupy

        def call(stream):
            with cupy.cuda.ExternalStream(stream):
                kernel((blocks,), (512,), (dst, src, count))

        return call

    def time(self, contenders, samples, target=1e-3):
        from warpfront.bench import gpu

        return gpu.time_interleaved(contenders, samples=samples, target_seconds=target)


COPIES = {"copy kernel x4": "copy16<4, false>", "copy kernel x4 streaming": "copy16<4, true>"}
COPY_NAMES = ("cudaMemcpyAsync", *COPIES)


class DryBench(Bench):
    """Plans everything, launches nothing; the times are made up, so that flow and tables can be seen."""

    def buffers(self, nbytes):
        return [(None, None)]

    def ours(self, problem, variant, pairs):
        path, tile, *_ = variant
        plans.plan(problem, path, **({} if tile is None else {"tile": tile}))
        return [None]

    def right(self, problem, calls, pairs):
        return True

    def peers(self, problem, pairs):
        return {name: [None] for name in (*COPY_NAMES, "cupy", "torch")}

    def time(self, contenders, samples, target=1e-3):
        from warpfront.bench import gpu

        return {
            str(name): gpu.Samples(tuple(1e-6 * (len(str(name)) + k) for k in range(samples)), 1, 0.1)
            for name in contenders
        }


def tune(bench, size, m, n, deadline):
    """Time tiles, then policies and occupancies of the best, then both together; return a table, best first.

    Each entry: name, median (us), share of the fastest device copy in the same round.
    """
    problem, odd = problem_for(size, m, n), m % 16 != 0
    pairs = bench.buffers(m * n * size)
    copies = {k: v for k, v in bench.peers(problem, pairs).items() if k in COPY_NAMES}
    table, known, failed = {}, {}, []

    def measure(chosen, samples=5):
        calls = {}
        for variant in chosen:
            try:
                if str(variant) not in table or samples > 5:
                    calls[str(variant)] = bench.ours(problem, variant, pairs)
                    known[str(variant)] = variant
            except Exception as error:  # a variant that cannot run is a finding, not the end of the run
                failed.append(f"{variant}: {type(error).__name__}: {str(error)[:120]}")
        if not calls or perf_counter() > deadline:
            return
        times = bench.time({**copies, **calls}, samples, 8e-4)
        copy = min(times[name].median for name in copies)
        for name in (*copies, *calls):
            table[name] = {"name": name, "us": times[name].median * 1e6, "of_copy": copy / times[name].median}

    def ranked(path=None):
        order = sorted((e for e in table.values() if e["name"] in known), key=lambda e: -e["of_copy"])
        return [known[e["name"]] for e in order if path is None or known[e["name"]][0] == path]

    measure(first_round(size, odd))
    measure(second_round(ranked("portable")[:3] + ranked("sm_80")[:1]))
    measure(third_round(ranked("portable")))
    best = ranked()[:3]
    for name in [str(v) for v in best]:
        if not bench.right(problem, bench.ours(problem, known[name], pairs), pairs):
            failed.append(f"WRONG {name}")
    measure(best, samples=11)
    rows = sorted(table.values(), key=lambda e: -e["of_copy"])
    return {"itemsize": size, "m": m, "n": n, "rows": rows, "failed": failed}
