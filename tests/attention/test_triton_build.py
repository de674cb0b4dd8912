"""Every Triton kernel of attention compiled ahead of time, for devices that are not there."""

import os
import re
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None or find_spec("triton") is None:
    pytest.skip("needs torch and triton (extra test, on Linux x86-64)", allow_module_level=True)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from warpfront.attention import _triton_cache as caching
from warpfront.attention import _triton_decode as decoding
from warpfront.attention import _triton_prefill as prefilling
from warpfront.attention._problem import AppendProblem, DecodeProblem, PrefillProblem

ARCHITECTURES = (80, 90, 100, 120)


class Target:
    """What Triton asks of a driver to compile. Nothing is loaded or launched."""

    def __init__(self, cc):
        self.target = GPUTarget("cuda", cc, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.target.arch  # kernels in memory are kept by device alone

    def get_current_stream(self, _device=None):
        return 0


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Compile a launch for an architecture; return registers and bytes of stack of a thread."""
    if triton.knobs.runtime.interpret:
        pytest.skip("kernels are interpreted in this process (TRITON_INTERPRET)")
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "cache"))
    monkeypatch.setattr(driver, "_active", driver._active)  # put back afterwards
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

    def compiled(cc, kernel, grid, arguments, **options):
        driver.set_active(Target(cc))
        made = kernel.warmup(*arguments, grid=grid, **options)
        compiled.text[kernel.fn.__name__] = made.asm["ttgir"]
        cubin = tmp_path / f"{kernel.fn.__name__}.{cc}.cubin"
        cubin.write_bytes(made.asm["cubin"])
        text = subprocess.run(
            [tools / "cuobjdump", "-res-usage", cubin], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"REG:(\d+) STACK:(\d+)", text)
        return int(found[1]), int(found[2]), made.metadata.shared

    compiled.text = {}
    return compiled


def meta(*shape, dtype):
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def build_prefill(
    build, cc, tile, *, d=128, dtype="bfloat16", varlen=False, bias=False, n=512, m=640, repair=False, **more
):
    b, h, g = 2, 8, 4
    shape = (b, h, n, m) if bias else None
    problem = PrefillProblem(
        b, n, m, b * n, b * m, h, g, d, dtype, varlen=varlen, scale=0.1, bias_shape=shape,
        bias_dtype=dtype if bias else None, return_lse=not repair, **more,
    )  # fmt: skip
    lead = ((b * n,), (b * m,)) if varlen else ((b, n), (b, m))
    q, k, v = (
        meta(*rows, heads, d, dtype=dtype) for rows, heads in ((lead[0], h), (lead[1], g), (lead[1], g))
    )
    extra = meta(*shape, dtype=dtype) if bias else None
    marks = [meta(b + 1, dtype="int32") if varlen else None for _ in range(2)]
    strides = prefilling.tensor_strides(problem, q, k, v, q, extra)
    spec = prefilling.prefill_spec(problem, tile, strides, repair=repair)
    lse = meta(b, h, n, dtype="float32")
    grid, arguments = prefilling.launch_arguments(problem, spec, strides, (q, k, v, extra, q, lse, *marks))
    if repair:
        from warpfront.attention._triton_repair_kernels import repair_kernel

        return build(cc, repair_kernel, (9,), arguments, num_warps=tile.warps, num_stages=tile.stages)
    from warpfront.attention._triton_prefill_kernels import prefill_kernel

    return build(cc, prefill_kernel, grid, arguments, num_warps=tile.warps, num_stages=tile.stages)


def build_decode(build, cc, tile, *, d=128, dtype="bfloat16", page=16, t=1, length=4096, **more):
    b, h, g = 4, 32, 8
    problem = DecodeProblem(
        b, t, h, g, d, dtype, page, length // page, 999, length, scale=0.1, return_lse=True, **more
    )
    q, pages = meta(b, t, h, d, dtype=dtype), meta(999, page, g, d, dtype=dtype)
    work = tuple(meta(*shape, dtype="float32") for shape in problem.workspace_shapes)
    lse = meta(b, t, h, dtype="float32")
    tensors = (q, pages, pages, meta(b, length // page, dtype="int32"), meta(b, dtype="int32"), q, lse, work)
    return [
        build(cc, decoding.kernel_of(item.kernel), item.grid, item.arguments, **item.options)
        for item in decoding.decode_launches(problem, tensors, tile)
    ]


def build_cache(build, cc, *, dtype="bfloat16", d=128, rotary=128, interleaved=False):
    from warpfront.attention import _triton_cache_kernels as kernels

    tokens, g, page = 5, 8, 16
    spec = caching.append_spec(AppendProblem(tokens, g, d, dtype, page, 99, rotary, interleaved))
    rows, pages, where = (
        meta(tokens, g, d, dtype=dtype),
        meta(99, page, g, d, dtype=dtype),
        meta(tokens, dtype="int64"),
    )
    table = meta(4096, max(1, rotary // 2), dtype="float32") if rotary else None
    steps = rows.stride()[:2] * 2
    arguments = (rows, rows, where, where, table, table, pages, pages, steps, spec)
    found = [build(cc, kernels.append_kernel, (tokens, 2), arguments, num_warps=4)]
    whole = replace(spec, block=1024)
    if rotary:
        arguments = (rows, where, table, table, rows, rows.stride()[:2], whole)
        found.append(build(cc, kernels.rotate_kernel, (tokens,), arguments, num_warps=8))
    arguments = (where, where, pages, pages, replace(spec, width=page * g * d))
    return [*found, build(cc, kernels.copy_kernel, (tokens, 2, 8), arguments, num_warps=4)]


def test_prefill_for_hopper_by_descriptors_spills_nothing(build):
    tile = prefilling.Tile(64, 64, 4, 3, True)
    registers, stack, shared = build_prefill(build, 90, tile, right=0)
    assert registers <= 255
    assert stack == 0
    assert 3 * 2 * 64 * 128 * 2 <= shared <= 227 << 10  # three buffers of keys and values at least


@pytest.mark.parametrize("d", [64, pytest.param(256, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "cc", [90, pytest.param(100, marks=pytest.mark.slow), pytest.param(120, marks=pytest.mark.slow)]
)
def test_repair(build, cc, d):
    problem = PrefillProblem(2, 640, 640, 1280, 1280, 8, 4, d, "bfloat16", right=0)
    optin = {90: 227, 100: 227, 120: 99}[cc] << 10
    tile = prefilling.default_tile(problem, optin, narrow=cc == 100)
    assert build_prefill(build, cc, tile, d=d, n=640, right=0, repair=True)[2] <= optin


@pytest.mark.parametrize("d", [64, 128, 256])
def test_float32_for_hopper_hardly_spills(build, d):
    """Tiles of 16 keys: wider ones spilled by kilobytes, and took minutes to compile."""
    tile = prefilling.default_tile(PrefillProblem(1, 1, 1, 1, 1, 1, 1, d, "float32"))
    stack = build_prefill(build, 90, tile, d=d, dtype="float32", right=0)[1]
    assert stack <= 128  # of the repeat for values that are not finite


def test_float32_adds_a_tile_to_the_accumulator_after_it_is_summed(build):
    """Triton folds ``acc + dot(...)`` into one chain of sums over all keys unless it is kept from that."""
    build_decode(build, 90, decoding.DecodeTile(16, 4, 2), d=64, dtype="float32")
    sums = [line for line in build.text["decode_kernel"].splitlines() if " tt.dot " in line]
    assert sums
    assert all("%cst" in line.split(" tt.dot ")[1].split(":")[0].split(", ")[2] for line in sums)


def test_other_lengths_take_the_kernel_that_is_there(build):
    """Prompts of other lengths, other batches and more pages compile nothing: that would stall a server for seconds."""
    from warpfront.attention import _triton_decode_kernels, _triton_merge_kernels, _triton_prefill_kernels

    tile = prefilling.Tile(32, 32, 4, 1)
    decode = decoding.DecodeTile(64, 4, 3, "", True, True)

    def built():
        kernels = (
            _triton_prefill_kernels.prefill_kernel,
            _triton_decode_kernels.decode_kernel,
            _triton_merge_kernels.merge_kernel,
        )
        return sum(len(kernel.device_caches[90][0]) for kernel in kernels)

    build_prefill(build, 90, tile, d=64, n=512, m=512, right=0)
    build_prefill(build, 90, tile, d=64, n=30, m=30, bias=True)
    build_decode(build, 90, decode, d=64, length=4096)
    before = built()
    for n, m in ((1, 1), (1, 16), (17, 33), (1000, 1024)):
        build_prefill(build, 90, tile, d=64, n=n, m=m, right=0)
    build_prefill(build, 90, tile, d=64, n=7, m=33, bias=True)
    for length in (2064, 3008, 4080):
        build_decode(build, 90, decode, d=64, length=length)
    assert built() == before


def test_prefill_for_ampere_with_every_option(build):
    tile = prefilling.Tile(64, 32, 4, 2)
    _, stack, shared = build_prefill(
        build, 80, tile, d=80, bias=True, left=64, right=3, soft_cap=10.0, dtype="float16"
    )
    assert shared <= 163 << 10
    assert stack <= 512  # of the repeat for values that are not finite; the usual walk has room


def test_decode_and_merge_for_hopper_spill_nothing(build):
    for tile in (decoding.DecodeTile(64, 4, 2), decoding.DecodeTile(32, 1, 2, "evict_first", True)):
        for registers, stack, shared in build_decode(build, 90, tile):
            assert registers <= 255
            assert stack <= 16
            assert shared <= 100 << 10


@pytest.mark.parametrize("cc", [80, 120])
def test_decode_of_several_tokens_elsewhere(build, cc):
    for _, _, shared in build_decode(
        build, cc, decoding.DecodeTile(32, 4, 2), t=4, left=100, splits=3, page=8
    ):
        assert shared <= 99 << 10


def test_append_rotate_and_copy(build):
    for registers, stack, _ in build_cache(build, 90):
        assert registers <= 128
        assert stack == 0


@pytest.mark.slow
@pytest.mark.parametrize("cc", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("d", [64, 80, 96, 128, 256])
def test_default_tiles_everywhere(build, cc, dtype, d):
    optin = {80: 163, 90: 227, 100: 227, 120: 99}[cc] << 10
    for more in ({}, {"right": 0}, {"right": 0, "varlen": True}, {"left": 5, "right": 5, "soft_cap": 3.0}):
        problem = PrefillProblem(2, 512, 640, 1024, 1280, 8, 4, d, dtype, **more)
        tile = prefilling.default_tile(problem, optin, narrow=cc == 100)
        assert build_prefill(build, cc, tile, d=d, dtype=dtype, **more)[2] <= optin, more
    decode = DecodeProblem(4, 1, 32, 8, d, dtype, 16, 8, 99, 128)
    for _, _, shared in build_decode(build, cc, decoding.default_tile(decode), d=d, dtype=dtype):
        assert shared <= optin


@pytest.mark.slow
@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_cache_kernels_everywhere(build, cc):
    for dtype in ("float16", "float32"):
        for rotary, interleaved in ((0, False), (64, True), (128, False)):
            assert build_cache(build, cc, dtype=dtype, rotary=rotary, interleaved=interleaved)


@pytest.mark.slow
def test_tiles_of_the_measured_table(build):
    from warpfront.attention import _dispatch

    for row in _dispatch._rows():
        cc = 10 * row.cc[0] + row.cc[1]
        right = 0 if row.kind != "full" else -1
        build_prefill(build, cc, row.tile, d=row.head_dim, dtype=row.dtype, right=right)


def test_the_environment_is_not_what_chose(build):
    assert os.environ.get("TRITON_INTERPRET", "0") != "1"
