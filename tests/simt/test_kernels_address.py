"""The kernels under the second build: valid addresses, nothing undefined, the right result."""

from __future__ import annotations

import numpy as np
import pytest

from warpfront.backend import simt
from warpfront.backend.simt import In, Out
from warpfront.dense import _transpose_cuda as plans

pytestmark = pytest.mark.simt


def problem(m, n, size, batch=1, in_place=False):
    align = (16 if n * size % 16 == 0 else 1, 16 if m * size % 16 == 0 else 1)
    pitches = (n * size, m * size, m * n * size, m * n * size)
    return plans.TransposeProblem(m, n, batch, size, "bytes", True, *pitches, *align, in_place=in_place)


# Aligned and not, several tiles, edges; the persistent kernels on fewer blocks than tiles.
CASES = [
    (problem(80, 144, 4), "portable"),
    (problem(45, 67, 2), "portable"),
    (problem(70, 5, 8, batch=3), "portable"),
    (problem(70, 70, 1, in_place=True), "portable"),
    (problem(48, 80, 8), "sm_80"),
    (problem(80, 48, 16), "sm_90"),
]


@pytest.mark.parametrize(
    ("p", "path"), CASES, ids=lambda v: v if isinstance(v, str) else f"{v.m}x{v.n}x{v.itemsize}"
)
def test_transpose(p, path):
    made = plans.plan(p, path)
    source = np.random.default_rng(0).integers(0, 256, p.batch * p.m * p.n * p.itemsize, np.uint8)
    expected = source.reshape(p.batch, p.m, p.n, p.itemsize).swapaxes(1, 2)
    target = source.copy() if p.in_place else np.empty_like(source)
    arrays = [target] if p.in_place else [Out(target), In(source)]
    kernel = simt.AddressSimt(made.source, [made.expression])
    blocks = min(made.blocks, 2) if made.persistent else made.blocks
    kernel.launch(
        made.expression, blocks, made.threads, [*arrays, *made.tail], shared_bytes=made.shared_bytes
    ).check()
    np.testing.assert_array_equal(target.reshape(expected.shape), expected)
