"""Every barrier and wait of the package's kernels is needed, and the runner says so when it is taken out."""

from __future__ import annotations

import re

import numpy as np
import pytest

from warpfront.backend.simt import In, Out, Simt
from warpfront.dense import _transpose_cuda as plans

pytestmark = pytest.mark.simt
ORDERING = re.compile(
    r"^\s*(__syncthreads\(\)|(?:wf::)?(?:cp_async_wait<\w+>|mbar_wait)\([^;]*\));", re.MULTILINE
)


def problem(m, n, size, in_place=False, align=16):
    pitches = (n * size, m * size, m * n * size, m * n * size)
    return plans.TransposeProblem(m, n, 1, size, "bytes", True, *pitches, align, align, in_place=in_place)


# Whole tiles and edge tiles, and several tiles per block: a stage is reused while others may still read it.
KERNELS = {
    "transpose_tile": (problem(72, 136, 4), "portable"),
    "transpose_shift": (problem(70, 131, 4, align=4), "portable"),
    "transpose_in_place": (problem(128, 128, 4, in_place=True), "portable"),
    "transpose_async": (problem(128, 320, 4), "sm_80"),
    "transpose_bulk": (problem(128, 320, 4), "sm_90"),
}


def sites(name):
    """Ordering calls within one kernel's definition."""
    text = plans.plan(*KERNELS[name]).source.read_text(encoding="utf-8")
    start = text.index(f"{name}(")
    end = text.find("__global__", start)
    return [m.span(1) for m in ORDERING.finditer(text, start, end if end > 0 else len(text))]


def mutants():
    return [(name, k) for name in KERNELS for k in range(len(sites(name)))]


def run(name, source):
    p, path = KERNELS[name]
    made = plans.plan(p, path)
    data = np.random.default_rng(0).integers(0, 256, p.m * p.n * p.itemsize, np.uint8)
    arrays = [data] if p.in_place else [Out(np.empty_like(data)), In(data)]
    kernel = Simt.build(source, [made.expression], include=[plans.FOLDER])
    blocks = 1 if made.persistent else made.blocks
    return kernel.launch(
        made.expression, blocks, made.threads, [*arrays, *made.tail], shared_bytes=made.shared_bytes
    )


@pytest.mark.parametrize(("name", "k"), mutants())
def test_a_kernel_without_one_of_its_barriers_is_reported(name, k, tmp_path):
    source = plans.plan(*KERNELS[name]).source
    text = source.read_text(encoding="utf-8")
    begin, end = sites(name)[k]
    mutant = tmp_path / source.name
    mutant.write_text(text[:begin] + "(void)0" + text[end:], encoding="utf-8")
    line = text.count("\n", 0, begin) + 1
    report = run(name, mutant)
    assert not report.ok, f"{source.name}:{line}: {text[begin:end]} can be removed and nobody notices"


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_kernel_as_it_is_passes(name):
    run(name, plans.plan(*KERNELS[name]).source).check()


def test_every_kernel_has_an_ordering_call():
    assert {name for name, _ in mutants()} == set(KERNELS)
