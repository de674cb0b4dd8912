"""Every barrier of the warp kernels is needed: the runner reports each one that is taken out."""

import re

import numpy as np
import pytest
from batched_systems import matrices, right

from warpfront.backend.simt import Out, Simt
from warpfront.batched import _batched_cuda as plans

pytestmark = pytest.mark.simt
BARRIER = re.compile(r"__syncwarp\(\)")


# Kernel file -> (method, the variant that launches it), and the headers with barriers, by the kernel that runs them.
KERNELS = {
    "cholesky.cu": ("cholesky", "warp"),
    "cholesky_packed.cu": ("cholesky", "packed"),
    "lu.cu": ("lu", "warp"),
    "lu_packed.cu": ("lu", "packed"),
}
HEADERS = [
    ("lu_packed.cu", "plain.cuh"),
    ("cholesky_packed.cu", "plain.cuh"),
    ("lu_packed.cu", "lu_sweeps.cuh"),
]
# Of a header's barriers: functions that the other method calls.
OTHERS = {"lu_packed.cu": "plain_cholesky", "cholesky_packed.cu": "plain_lu"}


def sites():
    found = []
    for kernel, file in [(name, name) for name in KERNELS] + HEADERS:
        text = (plans.FOLDER / file).read_text(encoding="utf-8")
        for k, match in enumerate(BARRIER.finditer(text)):
            functions = re.findall(r"^WF_DEVICE .*?(\w+)\(", text[: match.start()], flags=re.MULTILINE)
            if file == kernel or functions[-1] != OTHERS[kernel]:
                found.append((kernel, file, k))
    return found


def findings(name, source):
    """Run small systems, one that fails and one far out of range, with one and with two right-hand sides."""
    method, variant = KERNELS[name]
    made = [plans.plan(plans.BatchedProblem(method, 9, nrhs, 5, "float32"), variant) for nrhs in (1, 2)]
    kernel = Simt.build(source, [p.expression for p in made], include=[plans.FOLDER])
    found = []
    for nrhs, p in zip((1, 2), made, strict=True):
        a, b = matrices(method, 5, 9, np.float32), right(5, 9, nrhs, np.float32)
        a[3] = 0
        a[4] *= np.float32(1e-30)
        outputs = [Out(np.empty_like(a)), Out(np.empty_like(b))]
        outputs += [Out(np.empty((5, 9), np.int32))] * (method == "lu") + [Out(np.empty(5, np.int32))]
        numbers = (0.0, 1e-5, 0.0) if method == "cholesky" else ()
        found += kernel.launch(p.expression, p.blocks, 32, [a, b, *outputs, *p.tail, *numbers]).findings
    return found


@pytest.mark.parametrize(("kernel", "file", "k"), sites())
def test_a_kernel_without_one_of_its_barriers_is_reported(kernel, file, k, tmp_path):
    text = (plans.FOLDER / file).read_text(encoding="utf-8")
    begin, end = [m.span() for m in BARRIER.finditer(text)][k]
    (tmp_path / kernel).write_text((plans.FOLDER / kernel).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / file).write_text(text[:begin] + "(void)0" + text[end:], encoding="utf-8")
    line = text.count("\n", 0, begin) + 1
    assert findings(kernel, tmp_path / kernel), (
        f"{file}:{line}: the barrier can be removed and nobody notices"
    )


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_as_it_is_passes(name):
    assert not findings(name, plans.FOLDER / name)
