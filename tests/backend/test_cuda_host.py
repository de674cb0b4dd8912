"""What of launching can be known without a GPU; and launching itself, where there is one."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warpfront.backend import arrays, cuda
from warpfront.errors import InvalidValueError


class Memory:
    """Stands for device memory."""

    count = 0

    def __init__(self, nbytes, device, stream):
        Memory.count += 1
        self.nbytes, self.ptr = nbytes, 0x1000 * Memory.count


def test_workspaces_are_used_again_on_their_stream_only():
    pool = cuda.Workspaces(Memory)
    with pool.take(1000, 0, 7) as first:
        with pool.take(1000, 0, 7) as second:
            assert first != second
        with pool.take(600, 0, 7) as third:  # same size class
            assert third == second
    with pool.take(1000, 0, 8) as other_stream, pool.take(1000, 1, 7) as other_device:
        assert len({first, second, other_stream, other_device}) == 4
    lent = pool.take(5000, 0, 7)
    assert lent.nbytes == 8192
    assert pool.take(0, 0, 7).nbytes == 256
    pool.clear()
    with pool.take(1000, 0, 7) as fresh:
        assert fresh not in (first, second)


def test_a_workspace_comes_back_after_an_error():
    pool = cuda.Workspaces(Memory)
    with pytest.raises(ZeroDivisionError), pool.take(10, 0, 0) as first:
        _ = 1 / 0
    with pool.take(10, 0, 0) as again:
        assert again == first


def test_host_arrays_are_no_device_arrays():
    for x in (np.zeros(3), [1, 2], 3.0, None):
        assert not arrays.is_device_array(x)
    with pytest.raises(InvalidValueError, match="not an array in device memory"):
        arrays.view(np.zeros(3))
    with pytest.raises(InvalidValueError, match="not an array in device memory"):
        arrays.as_device_array(np.zeros(3))


def test_importing_brings_in_no_gpu_package():
    code = (
        "import sys; import warpfront.dense, warpfront.backend.cuda, warpfront.backend.nvrtc;"
        "import warpfront.bench.gpu;"
        "print([n for n in ('cupy', 'cuda.core', 'torch', 'numba', 'scipy') if n in sys.modules])"
    )
    source = str(Path(cuda.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert done.stdout == "[]\n"


@pytest.mark.cuda
class TestOnAGpu:
    SOURCE = """
extern "C" __global__ void fill(double* x, long long n, double value, int step, float extra) {
  extern __shared__ double s[];
  for (long long k = threadIdx.x; k < n; k += blockDim.x) s[k] = value + step * k + extra;
  __syncthreads();
  for (long long k = threadIdx.x; k < n; k += blockDim.x) x[k] = s[n - 1 - k];
}
"""

    @pytest.fixture
    def fill(self, tmp_path):
        file = tmp_path / "fill.cu"
        file.write_text(self.SOURCE)
        return cuda.load(file, "fill", "pqdif", 0)

    @pytest.mark.parametrize("n", [100, 6144, 8000, 12000])  # 48 KB, and above it by opting in
    def test_launch_and_shared_memory(self, fill, n):
        import cupy

        x = cupy.zeros(n)
        fill.launch(arrays.view(x).stream, 1, 256, (x.data.ptr, n, 0.5, 3, 0.25), 8 * n)
        np.testing.assert_array_equal(cupy.asnumpy(x), (0.75 + 3.0 * np.arange(n))[::-1])

    def test_refusals(self, fill):
        from warpfront.errors import NotSupportedError

        with pytest.raises(InvalidValueError, match="takes 5 arguments"):
            fill.launch(0, 1, 32, (0, 1))
        with pytest.raises(NotSupportedError, match="shared memory"):
            fill.launch(0, 1, 32, (0, 1, 0.0, 1, 0.0), 10_000_000)

    def test_a_wrong_signature_is_refused(self, tmp_path):
        file = tmp_path / "fill.cu"
        file.write_text(self.SOURCE)
        with pytest.raises(InvalidValueError, match="signature"):
            cuda.load(file, "fill", "pqddd", 0)

    def test_workspace_of_the_real_pool(self):
        import cupy

        with cuda.Workspaces().take(1000, 0, cupy.cuda.get_current_stream().ptr) as address:
            assert address % 256 == 0

    def test_interchange(self):
        import cupy

        x = cupy.arange(12.0).reshape(3, 4)
        seen = arrays.view(x)
        assert (seen.pointer, seen.shape, seen.strides) == (x.data.ptr, (3, 4), (32, 8))
        assert (seen.dtype, seen.itemsize, seen.device, seen.library) == ("float64", 8, 0, "cupy")
        assert arrays.as_device_array(x) is x

        class Foreign:
            __cuda_array_interface__ = x.__cuda_array_interface__

        assert arrays.library_of(Foreign()) == "interface"
        assert arrays.view(Foreign()).pointer == x.data.ptr

    def test_torch_interchange(self):
        import cupy

        torch = pytest.importorskip("torch")
        t = torch.arange(12.0, device="cuda").reshape(3, 4).t()
        seen = arrays.view(t)
        assert (seen.pointer, seen.shape, seen.strides) == (t.data_ptr(), (4, 3), (4, 16))
        assert arrays.as_device_array(t).data.ptr == t.data_ptr()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            assert arrays.view(t).stream == side.cuda_stream
        with cupy.cuda.Stream(non_blocking=True) as stream:
            assert arrays.view(cupy.zeros(1)).stream == stream.ptr
