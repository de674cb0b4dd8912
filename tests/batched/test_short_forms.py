"""Roots, reciprocals and quotients of the packed kernels equal IEEE's wherever the kernels rely on them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from warpfront.batched import _batched_cuda as plans


@pytest.fixture
def source(tmp_path):
    for file in (Path(__file__).parent / "short_forms.cu", *plans.FOLDER.glob("*.cuh")):
        shutil.copy(file, tmp_path)
    return tmp_path / "short_forms.cu"


@pytest.mark.simt
def test_on_the_host(source):
    """A sample of all patterns, and a run of mantissas around the one divisor that is left out."""
    from warpfront.backend.simt import Simt

    kernel = Simt.build(source, ["short_forms", "short_forms_double"])
    runs = [
        ("short_forms", 0, 1048573, 500),
        ("short_forms", 0x407FF000, 1, 2000),
        ("short_forms_double", 0, 1, 2000),
    ]
    for name, first, step, least in runs:
        counts = np.zeros(3, np.uint64)
        kernel.launch(name, 2, 32, [np.uint32(first), np.uint32(step), 4096, counts]).check()
        assert counts[2] == 0
        assert min(counts[:2]) >= least


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "count", "least"), [("short_forms", 1 << 32, 1 << 29), ("short_forms_double", 1 << 29, 1 << 28)]
)
def test_on_the_device(source, name, count, least):
    """All 2**32 patterns of float32: the device's approximations are what they are, and are corrected whatever they are."""
    import cupy

    from warpfront.backend import cuda

    kernel = cuda.load(source, name, "iiqp", 0, plans.OPTIONS)
    counts = cupy.zeros(3, "u8")
    kernel.launch(cupy.cuda.get_current_stream().ptr, 132 * 8, 256, (0, 1, count, counts.data.ptr))
    sure, also, wrong = cupy.asnumpy(counts)
    assert wrong == 0
    assert min(sure, also) > least
