"""What the host does with device arrays, on a stand-in for CuPy: no GPU, no launch, every decision."""

import sys
import types
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from warpfront import batched
from warpfront.backend import capability, cuda
from warpfront.batched import _batched_cuda as plans
from warpfront.batched import _device
from warpfront.errors import InvalidValueError, NotSupportedError

SEEN = capability.Capability(
    **{f: 0 for f in capability.Capability.__dataclass_fields__}
    | {"cc_major": 9, "driver_version": (13, 0), "runtime_version": (13, 0), "nvrtc_version": (13, 0)}
)


class FakeArray:
    """Host memory that answers like a CuPy array."""

    def __init__(self, host, memory=None, device=0):
        self.host = host
        self.shape, self.strides, self.dtype, self.itemsize = (
            host.shape,
            host.strides,
            host.dtype,
            host.itemsize,
        )
        whole = host if memory is None else memory
        at = host.__array_interface__["data"][0]
        pool = types.SimpleNamespace(ptr=whole.__array_interface__["data"][0], size=whole.nbytes)
        self.data = types.SimpleNamespace(ptr=at, device_id=device, mem=pool)

    def __setitem__(self, where, value):
        self.host[where] = value

    def get(self):
        return self.host


FakeArray.__module__ = "cupy"


@pytest.fixture
def launches(monkeypatch):
    """Stand-ins for CuPy, the device and the kernels; yields the list of launches."""
    made = []
    fake = types.ModuleType("cupy")
    fake.empty = lambda shape, dtype: FakeArray(np.empty(shape, dtype))
    fake.cuda = types.SimpleNamespace(
        Device=lambda device: nullcontext(),
        get_current_stream=lambda: types.SimpleNamespace(ptr=7),
        runtime=types.SimpleNamespace(getDevice=lambda: 0),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(capability, "probe", lambda device: SEEN)
    monkeypatch.setattr(plans, "limits_of", lambda device: plans.Limits())

    def load(source, expression, signature, device, options):
        assert options.fma is False

        def launch(stream, grid, block, args):
            assert len(args) == len(signature)
            assert stream == 7
            made.append((source.name, expression, grid, block, args))

        return types.SimpleNamespace(launch=launch)

    monkeypatch.setattr(cuda, "load", load)
    for cached in (plans.prepared, _device._check_device):
        cached.cache_clear()
    yield made
    for cached in (plans.prepared, _device._check_device):
        cached.cache_clear()


def arrays(batch=5, n=8, nrhs=2, dtype="f4", **options):
    return FakeArray(np.zeros((batch, n, n), dtype), **options), FakeArray(
        np.zeros((batch, n, nrhs), dtype), **options
    )


@pytest.mark.parametrize("method", plans.METHODS)
def test_one_launch_for_a_call_and_none_for_nothing(launches, method):
    for variant in plans.VARIANTS:
        solve = getattr(batched, f"{method}_solve_batched" + ("" if variant == "serial" else f"_{variant}"))
        a, b = arrays()
        result = solve(a, b)
        assert len(launches) == 1
        source, expression, grid, _, args = launches.pop()
        assert (source == "baseline.cu") == (variant == "serial")
        assert "true" in expression or variant == "serial"
        assert grid >= 1
        factor = result.factor if method == "cholesky" else result.lu
        assert args[:4] == (a.data.ptr, b.data.ptr, factor.data.ptr, result.solution.data.ptr)
        for empty in ((0, 8, 2), (4, 0, 2)):
            nothing = solve(*arrays(*empty))
            assert nothing.solution.shape == empty
            assert nothing.status.get().tolist() == [0] * empty[0]
        assert launches == []


def test_a_base_off_16_bytes_takes_single_accesses(launches):
    memory = np.zeros(1000, "f4")
    first = -(memory.__array_interface__["data"][0] // 4) % 4 + 1
    a = FakeArray(memory[first : first + 320].reshape(5, 8, 8), memory)
    batched.lu_solve_batched_warp(a, arrays()[1])
    assert ", false, " in launches[0][1]


def test_out_is_written_and_returned(launches):
    a, b = arrays()
    out = batched.lu_solve_batched_packed(a, b)
    again = batched.lu_solve_batched_packed(a, b, out=out)
    assert again.solution is out.solution
    assert again.pivots is out.pivots
    assert launches[0][4] == launches[1][4]


def test_refusals_launch_nothing(launches):
    a, b = arrays()
    memory = np.zeros(400, "f4")
    beyond = FakeArray(np.zeros((5, 8, 8), "f4"), memory)
    wide = np.zeros((5, 8, 16), "f4")
    for change, kind, message in [
        ({"a": a.host}, InvalidValueError, "same memory"),
        ({"b": b.host}, InvalidValueError, "same memory"),
        ({"b": arrays(device=1)[1]}, InvalidValueError, "a is on device 0, b on device 1"),
        ({"a": FakeArray(wide[:, :, ::2], wide)}, InvalidValueError, "row-major contiguous"),
        ({"a": beyond}, InvalidValueError, "beyond the memory"),
        ({"a": arrays(dtype="f2")[0]}, InvalidValueError, "float16; convert"),
        ({"out": (b, arrays()[0], FakeArray(np.zeros(5, "i4")))}, InvalidValueError, "solution overlaps b"),
        (
            {"out": (arrays()[1], arrays()[0], np.zeros(5, "i4"))},
            InvalidValueError,
            "status must be a device array",
        ),
        ({"diagonal_shift": float("nan")}, InvalidValueError, "finite"),
        ({"a": arrays(n=40)[0], "b": arrays(n=40)[1]}, NotSupportedError, "n = 1 to 32"),
    ]:
        with pytest.raises(kind, match=message):
            batched.cholesky_solve_batched_warp(**({"a": a, "b": b} | change))
    assert launches == []


def test_an_old_device_is_refused_by_what_it_lacks(launches, monkeypatch):
    monkeypatch.setattr(capability, "probe", lambda device: replace(SEEN, cc_major=7, cc_minor=5))
    with pytest.raises(NotSupportedError, match=r"compute capability 8\.0 or newer, device 0 has 7\.5"):
        batched.cholesky_solve_batched(*arrays())
    assert launches == []
