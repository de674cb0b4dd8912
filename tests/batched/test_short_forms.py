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

    kernel = Simt.build(source, ["short_forms"])
    for first, step, least in ((0, 1048573, 500), (0x407FF000, 1, 2000)):
        counts = np.zeros(2, np.uint64)
        kernel.launch("short_forms", 2, 32, [np.uint32(first), np.uint32(step), 4096, counts]).check()
        assert counts[1] == 0
        assert counts[0] >= least


@pytest.mark.cuda
def test_on_the_device(source):
    """All 2**32 patterns: the device's approximate root is what it is, and is corrected whatever it is."""
    import cupy

    from warpfront.backend import cuda

    kernel = cuda.load(source, "short_forms", "iiqp", 0, plans.OPTIONS)
    counts = cupy.zeros(2, "u8")
    kernel.launch(cupy.cuda.get_current_stream().ptr, 132 * 8, 256, (0, 1, 1 << 32, counts.data.ptr))
    sure, wrong = cupy.asnumpy(counts)
    assert wrong == 0
    assert sure > 1 << 29
