"""Inputs, peers, variants and timers of ``attention.py``: what is measured and how, apart from when."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from statistics import median
from time import perf_counter

from warpfront.attention import _problem as problems
from warpfront.attention import _triton_decode as decoding
from warpfront.attention import _triton_prefill as prefilling
from warpfront.attention._problem import DecodeProblem, PrefillProblem


@dataclass(frozen=True)
class PrefillCase:
    name: str
    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    dtype: str = "bfloat16"
    causal: bool = False
    left: int = -1

    def problem(self) -> PrefillProblem:
        rows = self.batch * self.length
        return PrefillProblem(
            self.batch, self.length, self.length, rows, rows, self.heads, self.kv_heads, self.head_dim, self.dtype,
            on_device=True, left=self.left, right=0 if self.causal else -1, scale=self.head_dim**-0.5,
        )  # fmt: skip

    def tensors(self, device):
        """q, k, v and out: normal deviates, rows of all heads of a token next to one another."""
        import torch

        kind = getattr(torch, self.dtype)
        shapes = [
            (self.batch, self.length, h, self.head_dim) for h in (self.heads, self.kv_heads, self.kv_heads)
        ]
        if device == "meta":
            found = [torch.empty(shape, dtype=kind, device=device) for shape in shapes]
        else:
            generator = torch.Generator(device).manual_seed(0)
            found = [torch.randn(shape, dtype=kind, device=device, generator=generator) for shape in shapes]
        return (*found, torch.empty_like(found[0]))


@dataclass(frozen=True)
class DecodeCase:
    name: str
    batch: int
    length: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    page_size: int = 16
    dtype: str = "bfloat16"
    splits: int = 0
    min_part: int = problems.MIN_PART
    max_parts: int = problems.MAX_PARTS
    short_part: int = problems.SHORT_PART

    @property
    def pages(self) -> int:
        return -(-self.length // self.page_size)

    @property
    def bytes(self) -> int:
        """Keys and values, read once; queries, results and tables are below a thousandth of them."""
        return (
            2
            * self.batch
            * self.length
            * self.kv_heads
            * self.head_dim
            * (4 if self.dtype == "float32" else 2)
        )

    def problem(self) -> DecodeProblem:
        # How sequences are cut is a constant of the package; a tuning run tries others.
        problems.MIN_PART, problems.MAX_PARTS, problems.SHORT_PART = (
            self.min_part,
            self.max_parts,
            self.short_part,
        )
        return DecodeProblem(
            self.batch, 1, self.heads, self.kv_heads, self.head_dim, self.dtype, self.page_size, self.pages,
            self.batch * self.pages, self.length, splits=self.splits, scale=self.head_dim**-0.5, on_device=True,
        )  # fmt: skip

    def tensors(self, device):
        """q, keys, values, block table (a random permutation), lengths, out, lse, workspace."""
        import torch

        kind, problem = getattr(torch, self.dtype), self.problem()
        shape = (problem.num_pages, self.page_size, self.kv_heads, self.head_dim)
        q = torch.empty((self.batch, 1, self.heads, self.head_dim), dtype=kind, device=device)
        k, v = (torch.empty(shape, dtype=kind, device=device) for _ in range(2))
        table = torch.empty((self.batch, self.pages), dtype=torch.int32, device=device)
        lengths = torch.empty(self.batch, dtype=torch.int32, device=device)
        if device != "meta":
            for tensor in (q, k, v):
                tensor.normal_()
            order = torch.randperm(problem.num_pages, device=device)
            table.copy_(order.reshape(self.batch, self.pages))
            lengths.fill_(self.length)
        workspace = tuple(
            torch.empty(s, dtype=torch.float32, device=device) for s in problem.workspace_shapes
        )
        return q, k, v, table, lengths, torch.empty_like(q), None, workspace


FULL = PrefillCase("b4 h32 s4096 d128 full", 4, 32, 32, 4096, 128)
CAUSAL = PrefillCase("b4 h32 s4096 d128 causal", 4, 32, 32, 4096, 128, causal=True)
FLAGSHIP = (FULL, CAUSAL)
PREFILL = (
    *FLAGSHIP,
    PrefillCase("b1 hq32 hk8 s16384 d128 full", 1, 32, 8, 16384, 128),
    PrefillCase("b1 hq32 hk8 s16384 d128 causal", 1, 32, 8, 16384, 128, causal=True),
    PrefillCase("b4 h32 s4096 d64 full", 4, 32, 32, 4096, 64),
    PrefillCase("b4 h32 s4096 d64 causal", 4, 32, 32, 4096, 64, causal=True),
    PrefillCase("b4 h16 s4096 d256 full", 4, 16, 16, 4096, 256),
    PrefillCase("b4 h16 s4096 d256 causal", 4, 16, 16, 4096, 256, causal=True),
    PrefillCase("b4 h32 s4096 d128 fp16 causal", 4, 32, 32, 4096, 128, "float16", causal=True),
    PrefillCase("b4 h32 s4096 d96 causal", 4, 32, 32, 4096, 96, causal=True),
    PrefillCase("b4 h32 s4096 d80 causal", 4, 32, 32, 4096, 80, causal=True),
    PrefillCase("b4 h32 s4096 d128 window 1024", 4, 32, 32, 4096, 128, causal=True, left=1023),
    PrefillCase("b32 hq32 hk8 s512 d128 causal", 32, 32, 8, 512, 128, causal=True),
)
DECODE = (
    DecodeCase("b32 s4096 page 16", 32, 4096),
    DecodeCase("b1 s32768 page 16", 1, 32768),
    DecodeCase("b1 s1024 page 16", 1, 1024),
)
SMALL_PREFILL = (PrefillCase("dry", 1, 2, 1, 48, 16, "float32", causal=True),)
SMALL_DECODE = (DecodeCase("dry decode", 2, 100, 4, 2, 16, 8, "float32"),)


def prefill_tiles(case: PrefillCase) -> list[prefilling.Tile]:
    """The variants that a tuning run tries for a case."""
    tile = prefilling.Tile
    if case.head_dim == 16:
        return [tile(16, 16, 4, 1), tile(16, 32, 4, 1, True)]
    if case.dtype == "float32":
        return [tile(m, n, w, 1) for m, n, w in ((32, 32, 4), (64, 32, 4), (64, 32, 8), (64, 64, 8))]
    shapes = [(64, 64, 4, 3)]
    if case.head_dim == 64:
        shapes += [(128, 64, 8, 3)]
    elif case.head_dim == 256:
        shapes = [(64, 32, 4, 2), (128, 32, 8, 2)]
    elif case in FLAGSHIP:
        shapes += [(128, 128, 8, 3)]
    found = [tile(*shape) for shape in shapes]
    if case.head_dim in (64, 128):
        found += [tile(64, 64, 4, 3, True)]
        if case.causal and case.left < 0:
            found += [tile(64, 64, 4, 3, True, True)]
    if case in FLAGSHIP and case.causal:
        found += [tile(64, 64, 4, 3, False, True)]
    return found


def known_tiles(case: PrefillCase) -> list[prefilling.Tile]:
    """The tile that the shipped table has for a case, or else all variants."""
    from warpfront.attention import _dispatch

    return [row.tile for row in _dispatch._rows() if row.case == case.name] or prefill_tiles(case)


def decode_tiles(case: DecodeCase) -> list[decoding.DecodeTile]:
    """The variants that a tuning run tries for a case."""
    tile = decoding.DecodeTile
    if case.head_dim == 16:
        return [tile(32, 4, 1), tile(64, 4, 1)]
    shapes = (
        (64, 4, 2, False),
        (64, 4, 2, True),
        (64, 4, 3, True),
        (64, 2, 3, True),
        (32, 4, 3, True),
        (32, 4, 4, True),
        (32, 2, 3, True),
        (32, 2, 4, True),
    )
    return [tile(n, warps, stages, "", True, ahead) for n, warps, stages, ahead in shapes]


# Tried in a process apart each.
DESCRIPTOR_TILES = ((64, 64, 4, 3), (128, 128, 8, 2), (128, 64, 4, 2))


CUTS = ((128, 256), (256, 128), (512, 64), (1024, 32))
CUT_TILES = ((64, 4, 2), (64, 4, 3), (32, 4, 4))


def cut_cases() -> list[DecodeCase]:
    """The decode cases with sequences cut in other ways than the package does."""
    return [
        replace(
            case,
            name=f"{case.name}, parts of {least} or more, at most {most}",
            min_part=least,
            max_parts=most,
            short_part=least,
        )
        for least, most in CUTS
        for case in DECODE
    ]


def cut_tiles(_case: DecodeCase) -> list[decoding.DecodeTile]:
    return [decoding.DecodeTile(*shape, "", True, True) for shape in CUT_TILES]


# ------------------------------------------------------------------ compiling beside one another, without the GPU


class _Target:
    """What Triton asks of a driver to compile; nothing is loaded or launched."""

    def __init__(self, cc):
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", cc, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device=None):
        return 0


def compile_variant(job):
    """Compile one variant into Triton's cache; return (name, seconds, error or '')."""
    cc, case, tile = job
    started = perf_counter()
    try:
        from triton.runtime.driver import driver

        driver.set_active(_Target(cc))
        for kernel, grid, arguments, options in launches(case, tile, case.tensors("meta")):
            kernel.warmup(*arguments, grid=grid, **options)
    except BaseException as error:  # the compiler also exits by itself
        return (
            case.name,
            str(asdict(tile)),
            perf_counter() - started,
            f"{type(error).__name__}: {error}"[:300],
        )
    return (case.name, str(asdict(tile)), perf_counter() - started, "")


def compile_all(jobs, seconds):
    """Compile variants in processes of their own, as many as there are cores; give up after ``seconds``."""
    started, done = perf_counter(), []
    pool = ProcessPoolExecutor(min(16, os.cpu_count() or 1), mp_context=get_context("spawn"))
    futures = [pool.submit(compile_variant, job) for job in jobs]
    for future in futures:
        try:
            done.append(future.result(max(0.1, seconds - (perf_counter() - started))))
        except Exception as error:  # a crash of the compiler takes its process, and what waits behind it
            done.append(("?", "?", 0.0, f"{type(error).__name__}: {error}"[:200]))
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
    return done


def launches(case, tile, tensors):
    """Kernels with their grids, arguments and options, of either kind of case."""
    problem = case.problem()
    if isinstance(case, DecodeCase):
        return [
            (decoding.kernel_of(item.kernel), item.grid, item.arguments, item.options)
            for item in decoding.decode_launches(problem, tensors, tile)
        ]
    from warpfront.attention._triton_prefill_kernels import prefill_kernel

    q, k, v, out = tensors
    strides = prefilling.tensor_strides(problem, q, k, v, out, None)
    spec = prefilling.prefill_spec(problem, tile, strides)
    grid, arguments = prefilling.launch_arguments(
        problem, spec, strides, (q, k, v, None, out, None, None, None)
    )
    return [(prefill_kernel, grid, arguments, {"num_warps": tile.warps, "num_stages": tile.stages})]


def runner(case, tile, tensors):
    """A call that queues the case's kernels."""
    made = launches(case, tile, tensors)

    def call():
        for kernel, grid, arguments, options in made:
            kernel[grid](*arguments, **options)

    return call


# ------------------------------------------------------------------ timers


def captured(call, times=1):
    """The call, ``times`` over, in a CUDA graph."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(times):
            call()
    return graph.replay


def elapsed(call):
    """Seconds of a call on the device (by the host's clock without one)."""
    import torch

    if not torch.cuda.is_available():
        started = perf_counter()
        call()
        return perf_counter() - started
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def interleaved(calls, rounds, per_call=1):
    """Samples of every call, the order reversed every round; ``per_call`` divides (repeats within a graph)."""
    found = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            found[name].append(elapsed(calls[name]) / per_call)
    return found


def quick(call, rounds=5):
    """Median seconds of a call after a warm one."""
    elapsed(call)
    return median(elapsed(call) for _ in range(rounds))


def flops(case):
    """Operations of the visible pairs; a causal square counts exactly its triangle."""
    n = case.length
    if not case.causal:
        pairs = n * n
    elif case.left < 0:
        pairs = n * (n + 1) // 2
    else:
        reach = min(case.left + 1, n)
        pairs = reach * (reach + 1) // 2 + (n - reach) * reach
    return 4.0 * case.batch * case.heads * case.head_dim * pairs
