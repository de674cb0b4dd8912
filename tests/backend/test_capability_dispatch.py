"""Capability and dispatch, on made-up devices from sm_75 to sm_120 and on the machine as it is."""

import json
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from warpfront.backend import capability, dispatch
from warpfront.backend.capability import Capability
from warpfront.dense import explain_transpose
from warpfront.errors import InvalidValueError, NotSupportedError


def device(major, minor, **changes):
    """A made-up device with round figures of its generation."""
    optin = {(7, 5): 65536, (8, 0): 166912, (8, 6): 101376, (8, 9): 101376, (12, 0): 101376}
    base = Capability(
        device=0,
        cc_major=major,
        cc_minor=minor,
        sm_count=100,
        shared_bytes=49152,
        shared_bytes_optin=optin.get((major, minor), 232448),
        shared_bytes_per_sm=optin.get((major, minor), 232448) + 1024,
        registers_per_sm=65536,
        threads_per_sm=2048,
        l2_bytes=50 << 20,
        cooperative_launch=True,
        clusters=major >= 9,
        memory_pools=True,
        managed=True,
        concurrent_managed=True,
        vmm=True,
        graphs=True,
        mig=False,
        driver_version=(13, 0),
        runtime_version=(13, 0),
        nvrtc_version=(13, 0),
        total_bytes=80 << 30,
        free_bytes=79 << 30,
    )
    return replace(base, **changes)


@dataclass(frozen=True)
class Problem:
    dtype: str = "float64"
    on_device: bool = True
    width: int = 64


def path(name, **needs):
    @dispatch.requires(**needs)
    def run():
        return name

    return dispatch.Path(name, run)


PATHS = (
    path("sm_100", cc_min=(10, 0), clusters=True),
    path("sm_90", cc_min=(9, 0), cc_below=(10, 0), clusters=True, shared_bytes=lambda p: 1024 * p.width),
    path("sm_80", cc_min=(8, 0), dtypes=("float64",), shared_bytes=100_000),
    path("persistent", cooperative=True, when=lambda p: "is for narrow problems" if p.width > 32 else None),
    path("atomic", deterministic=False),
    path("portable", precisions=("native", "float32")),
    path("cpu", device="cpu"),
)  # fmt: skip


def taken(have, problem=None, **policy):
    return dispatch.choose(PATHS, problem or Problem(), dispatch.Policy(**policy), have).path.name


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        (device(7, 5), "portable"),
        (device(8, 0), "sm_80"),
        (device(8, 6), "sm_80"),
        (device(8, 9), "sm_80"),
        (device(9, 0), "sm_90"),
        (device(10, 0), "sm_100"),
        (device(12, 0), "sm_100"),
        (device(12, 0, clusters=False), "sm_80"),
        (device(9, 0, mig=True, sm_count=16, shared_bytes_optin=65536), "sm_90"),
        (device(9, 0, shared_bytes_optin=49152), "portable"),
        (device(8, 0, shared_bytes_optin=65536), "portable"),
    ],
)
def test_the_best_path_of_a_device(have, expected):
    assert taken(have) == expected


def test_each_requirement_is_named():
    reasons = {
        d.path: d.reason
        for d in dispatch.explain(
            PATHS,
            Problem("float32", width=64),
            dispatch.Policy(),
            device(9, 0, cooperative_launch=False, shared_bytes_optin=49152),
        )
    }
    assert "10.0" in reasons["sm_100"]
    assert "65536 bytes of shared memory" in reasons["sm_90"]
    assert "49152" in reasons["sm_90"]
    assert "100000 bytes" in reasons["sm_80"]
    assert reasons["persistent"] == "needs cooperative launch, which the device lacks"
    assert "same bits" in reasons["atomic"]
    assert reasons["portable"] == "first that can run"
    assert "device memory" in reasons["cpu"]


def test_problem_and_policy_decide():
    assert taken(device(8, 0), Problem("float32")) == "portable"
    assert taken(device(8, 0), Problem("float32", width=8)) == "persistent"
    assert taken(device(7, 5), deterministic=False) == "atomic"
    assert taken(device(9, 0), precision="float32") == "portable"
    assert taken(device(9, 0), Problem(on_device=False)) == "cpu"
    assert taken(device(9, 0), Problem(on_device=False), device="cuda") == "sm_90"
    assert taken(None, Problem(on_device=False)) == "cpu"
    assert taken(device(9, 0), path="sm_80") == "sm_80"
    below = dispatch.explain(PATHS, Problem(), dispatch.Policy(path="sm_80"), device(9, 0))
    assert next(d.reason for d in below if d.path == "sm_90") == "could run, and path='sm_80' was asked for"


@pytest.mark.parametrize(
    ("have", "problem", "policy", "message"),
    [
        (device(8, 0), Problem(), {"path": "sm_90"}, "compute capability 9.0 or newer, the device has 8.0"),
        (device(9, 0), Problem("float32"), {"path": "sm_80"}, "written for float64, not for float32"),
        (device(9, 0), Problem(), {"path": "cpu"}, "device memory"),
        (
            device(9, 0),
            Problem(on_device=False),
            {"device": "cuda", "path": "cpu"},
            'device="cuda" was asked',
        ),
        (device(9, 0), Problem(), {"device": "cpu"}, "device memory"),
        (device(9, 0), Problem(), {"precision": "float16"}, "no path can run"),
        (None, Problem(on_device=False), {"device": "cuda"}, "there is no GPU"),
    ],
)
def test_asked_for_and_impossible_is_an_error(have, problem, policy, message):
    with pytest.raises(NotSupportedError, match=message):
        dispatch.choose(PATHS, problem, dispatch.Policy(**policy), have)


def test_a_wrong_name_is_an_error():
    with pytest.raises(InvalidValueError, match="sm_100, sm_90"):
        dispatch.choose(PATHS, Problem(), dispatch.Policy(path="sm_70"), device(9, 0))
    with pytest.raises(InvalidValueError, match="device must be"):
        dispatch.Policy(device="gpu")
    with pytest.raises(TypeError, match="requires"):
        _ = dispatch.Path("bare", lambda: None).requirement


def test_a_capability_is_frozen_and_names_its_target():
    have = device(12, 0)
    assert (have.cc, have.arch) == ((12, 0), "sm_120")
    with pytest.raises(FrozenInstanceError):
        have.sm_count = 1


@pytest.mark.parametrize(
    ("have", "options", "expected"),
    [
        (device(7, 5), {}, "portable"),
        (device(7, 5), {"dtype": "uint8"}, "portable"),
        (device(8, 0, shared_bytes_optin=16384), {"device": "auto"}, None),
        (device(9, 0), {"n": 4097}, "portable"),
        (device(9, 0), {"n": 8}, "portable"),
        (device(9, 0), {"device": "cpu"}, "cpu"),
        (device(9, 0), {"on_device": False}, "cpu"),
    ],
)
def test_transpose_on_made_up_devices(have, options, expected):
    decisions = explain_transpose(4096, options.pop("n", 4096), capability_=have, **options)
    assert [d.path for d in decisions if d.taken] == ([expected] if expected else [])
    assert all(d.reason for d in decisions)


def test_every_streamed_path_can_be_asked_for_where_it_exists():
    for name, have in (("sm_80", device(8, 0)), ("sm_90", device(9, 0)), ("sm_90", device(10, 0))):
        assert [d.path for d in explain_transpose(4096, 4096, path=name, capability_=have) if d.taken] == [
            name
        ]


def test_describe_is_plain_and_says_what_is_absent():
    found = capability.describe()
    json.dumps(found)
    assert set(found) == {"available", "reason", "packages", "nvrtc", "nvcc", "devices"}
    assert found["available"] == (found["reason"] is None) == bool(found["devices"])
    if not found["available"]:
        assert "install" in found["reason"] or "device" in found["reason"]
        assert capability.device_count() == 0
        with pytest.raises(NotSupportedError, match=r"GPU|driver|device"):
            capability.probe(0)


def test_a_missing_package_is_named(monkeypatch):
    capability.missing.cache_clear()
    monkeypatch.setattr(capability, "_importable", lambda name: name != "cuda.core")
    try:
        assert "cuda.core" in capability.missing()
        assert "pip install" in capability.missing()
    finally:
        capability.missing.cache_clear()


@pytest.mark.cuda
def test_probe_on_a_gpu():
    have = capability.probe(0)
    assert have is capability.probe(0)
    assert all(value is not None for name, value in asdict(have).items() if name != "mig")
    assert have.cc >= (7, 5)
    assert 49152 <= have.shared_bytes <= have.shared_bytes_optin <= have.shared_bytes_per_sm
    assert 0 < have.free_bytes <= have.total_bytes
    with pytest.raises(NotSupportedError, match="does not exist"):
        capability.probe(capability.device_count())
