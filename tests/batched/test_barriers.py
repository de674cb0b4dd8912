"""Every barrier of the warp kernels is needed: the runner reports each one that is taken out."""

import re

import numpy as np
import pytest
from batched_systems import matrices, right

from warpfront.backend.simt import Out, Simt
from warpfront.batched import _batched_cuda as plans

pytestmark = pytest.mark.simt
BARRIER = re.compile(r"__syncwarp\(\)")


def sites():
    return [
        (method, k)
        for method in plans.METHODS
        for k in range(len(BARRIER.findall((plans.FOLDER / f"{method}.cu").read_text(encoding="utf-8"))))
    ]


def findings(method, source):
    """Run small systems with one and with two right-hand sides; return what the runner says."""
    made = [plans.plan(plans.BatchedProblem(method, 9, nrhs, 3, "float32"), "packed") for nrhs in (1, 2)]
    kernel = Simt.build(source, [p.expression for p in made], include=[plans.FOLDER])
    found = []
    for nrhs, p in zip((1, 2), made, strict=True):
        a, b = matrices(method, 3, 9, np.float32), right(3, 9, nrhs, np.float32)
        outputs = [Out(np.empty_like(a)), Out(np.empty_like(b))]
        outputs += [Out(np.empty((3, 9), np.int32))] * (method == "lu") + [Out(np.empty(3, np.int32))]
        numbers = (0.0, 1e-5, 0.0) if method == "cholesky" else ()
        found += kernel.launch(p.expression, p.blocks, 32, [a, b, *outputs, *p.tail, *numbers]).findings
    return found


@pytest.mark.parametrize(("method", "k"), sites())
def test_a_kernel_without_one_of_its_barriers_is_reported(method, k, tmp_path):
    source = plans.FOLDER / f"{method}.cu"
    text = source.read_text(encoding="utf-8")
    begin, end = [m.span() for m in BARRIER.finditer(text)][k]
    mutant = tmp_path / source.name
    mutant.write_text(text[:begin] + "(void)0" + text[end:], encoding="utf-8")
    line = text.count("\n", 0, begin) + 1
    assert findings(method, mutant), f"{source.name}:{line}: the barrier can be removed and nobody notices"


@pytest.mark.parametrize("method", plans.METHODS)
def test_the_kernel_as_it_is_passes(method):
    assert not findings(method, plans.FOLDER / f"{method}.cu")
