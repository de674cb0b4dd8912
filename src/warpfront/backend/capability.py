"""What one CUDA device can do, probed once and frozen.

Decisions are taken from these fields, never from a product's name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from warpfront.errors import NotSupportedError

__all__ = ["Capability", "describe", "device_count", "missing", "package_versions", "probe"]

_INSTALL = 'pip install "warpfront[cuda13]" (or [cuda12] with a CUDA 12 driver)'

# Import name -> distribution names that provide it, for versions.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda.core": ("cuda-core",),
    "cuda.bindings": ("cuda-bindings",),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "torch": ("torch",),
    "triton": ("triton",),
    "jax": ("jax",),
}


@dataclass(frozen=True)
class Capability:
    """One device, as dispatch sees it.

    Attributes
    ----------
    device : int
        Ordinal in this process.
    cc_major, cc_minor : int
        Compute capability.
    sm_count : int
        Multiprocessors (of this MIG slice, where there is one).
    shared_bytes : int
        Shared memory a block gets without asking.
    shared_bytes_optin : int
        Shared memory a block can get by opting in.
    shared_bytes_per_sm, registers_per_sm, threads_per_sm, l2_bytes : int
        Per multiprocessor, and the L2 of the device.
    cooperative_launch, clusters, memory_pools, managed, concurrent_managed, vmm, graphs : bool
        Launch and memory features, as the driver reports them.
    mig : bool or None
        Whether the device is a MIG slice; ``None`` where NVML cannot say.
    driver_version, runtime_version, nvrtc_version : tuple of int
        ``(major, minor)`` of the CUDA version that the driver supports, of the bindings, and of NVRTC; ``(0,
        0)`` for one that is absent.
    total_bytes, free_bytes : int
        Device memory, in all and free at the time of the probe.
    """

    device: int
    cc_major: int
    cc_minor: int
    sm_count: int
    shared_bytes: int
    shared_bytes_optin: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    threads_per_sm: int
    l2_bytes: int
    cooperative_launch: bool
    clusters: bool
    memory_pools: bool
    managed: bool
    concurrent_managed: bool
    vmm: bool
    graphs: bool
    mig: bool | None
    driver_version: tuple[int, int]
    runtime_version: tuple[int, int]
    nvrtc_version: tuple[int, int]
    total_bytes: int
    free_bytes: int

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability as a pair that compares."""
        return (self.cc_major, self.cc_minor)

    @property
    def arch(self) -> str:
        """Compiler target, for example ``"sm_90"``."""
        return f"sm_{self.cc_major}{self.cc_minor}"


@cache
def missing() -> str | None:
    """Return why this process cannot use a GPU and what to install, or ``None`` when it can.

    The first obstacle is named: a package, the driver, or a device. The answer is kept for the process.
    """
    absent = [name for name in ("cuda.bindings", "cuda.core", "cupy") if not _importable(name)]
    if absent:
        return f"the GPU needs {', '.join(absent)}, not installed here: {_INSTALL}"
    try:
        count = _driver_device_count()
    except NotSupportedError as error:
        return str(error)
    return None if count else "the NVIDIA driver reports no CUDA device (is one visible to this process?)"


def device_count() -> int:
    """Return the number of usable CUDA devices; 0 where there is no driver or a package is absent."""
    return 0 if missing() is not None else _driver_device_count()


@cache
def probe(device: int = 0) -> Capability:
    """Probe one device, once per process.

    Parameters
    ----------
    device : int
        Ordinal, from 0.

    Returns
    -------
    Capability

    Raises
    ------
    NotSupportedError
        There is no such device, no driver, or a package is absent; the message says what to install.
    """
    reason = missing()
    if reason is not None:
        raise NotSupportedError(reason)
    count = _driver_device_count()
    if not 0 <= device < count:
        raise NotSupportedError(f"CUDA device {device} does not exist: this process sees {count}")
    from cuda.bindings import driver

    handle = _call(driver.cuDeviceGet, device)
    attribute = driver.CUdevice_attribute

    def read(name: str) -> int:
        return int(
            _call(driver.cuDeviceGetAttribute, getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), handle)
        )

    driver_number = int(_call(driver.cuDriverGetVersion))
    free, total = _memory(handle)
    return Capability(
        device=device,
        cc_major=read("COMPUTE_CAPABILITY_MAJOR"),
        cc_minor=read("COMPUTE_CAPABILITY_MINOR"),
        sm_count=read("MULTIPROCESSOR_COUNT"),
        shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared_bytes_optin=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_bytes_per_sm=read("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers_per_sm=read("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        threads_per_sm=read("MAX_THREADS_PER_MULTIPROCESSOR"),
        l2_bytes=read("L2_CACHE_SIZE"),
        cooperative_launch=bool(read("COOPERATIVE_LAUNCH")),
        clusters=bool(read("CLUSTER_LAUNCH")),
        memory_pools=bool(read("MEMORY_POOLS_SUPPORTED")),
        managed=bool(read("MANAGED_MEMORY")),
        concurrent_managed=bool(read("CONCURRENT_MANAGED_ACCESS")),
        vmm=bool(read("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")),
        graphs=driver_number >= 10010,
        mig=_is_mig(handle),
        driver_version=_pair(driver_number),
        runtime_version=_bindings_version(),
        nvrtc_version=nvrtc_version(),
        total_bytes=total,
        free_bytes=free,
    )


def nvrtc_version() -> tuple[int, int]:
    """Return the version of the NVRTC library that would compile, ``(0, 0)`` when there is none."""
    if not _importable("cuda.bindings"):
        return (0, 0)
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception:  # the loader's own error types differ between versions; each means there is no NVRTC
        return (0, 0)
    return (int(major), int(minor))


def package_versions() -> dict[str, str | None]:
    """Return the installed version of every package that GPU work may use, ``None`` for an absent one."""
    return {name: _version(distributions) for name, distributions in _PACKAGES.items()}


def describe() -> dict[str, Any]:
    """Return everything ``warpfront info`` shows about GPUs, in plain containers.

    Returns
    -------
    dict
        ``available`` (bool), ``reason`` (str or None: what is absent and what to install), ``packages`` (name
        -> version or None), ``nvrtc`` and ``nvcc`` (version string or None), ``devices`` (one dict of
        `Capability` fields each).
    """
    from warpfront.backend import nvcc

    reason = missing()
    compiler = nvrtc_version()
    return {
        "available": reason is None,
        "reason": reason,
        "packages": package_versions(),
        "nvrtc": f"{compiler[0]}.{compiler[1]}" if compiler != (0, 0) else None,
        "nvcc": nvcc.version() if nvcc.missing() is None else None,
        "devices": [asdict(probe(index)) for index in range(device_count())],
    }


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is absent
        return False


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _call(function: Any, *args: Any) -> Any:
    """Call a driver function and return its value; a failure names the function and the driver's code."""
    code, *values = function(*args)
    if int(code) != 0:
        raise NotSupportedError(f"CUDA driver: {function.__name__} failed with {code.name}")
    return values[0] if len(values) == 1 else tuple(values)


def _driver_device_count() -> int:
    from cuda.bindings import driver

    try:
        code = driver.cuInit(0)[0]
    except Exception as error:  # a missing libcuda surfaces as one of several loader errors
        raise NotSupportedError(
            "no NVIDIA driver on this machine (libcuda did not load: "
            f"{type(error).__name__}); install the driver"
        ) from error
    if code == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        return 0
    if int(code) != 0:
        raise NotSupportedError(f"the NVIDIA driver did not start: cuInit failed with {code.name}")
    return int(_call(driver.cuDeviceGetCount))


def _memory(handle: Any) -> tuple[int, int]:
    """Free and total bytes, through the primary context that CuPy and PyTorch share."""
    from cuda.bindings import driver

    # Retained for the life of the process: releasing it here would destroy it when nobody else holds it yet,
    # and making it again costs the first launch a few tenths of a second.
    context = _call(driver.cuDevicePrimaryCtxRetain, handle)
    _call(driver.cuCtxPushCurrent, context)
    try:
        free, total = _call(driver.cuMemGetInfo)
    finally:
        _call(driver.cuCtxPopCurrent)
    return int(free), int(total)


def _is_mig(handle: Any) -> bool | None:
    """Whether the device is a MIG slice: its UUID is then none of the whole devices that NVML lists."""
    from cuda.bindings import driver

    # CUDA 12 bindings keep the MIG-aware call under its versioned name.
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
    uuid = bytes(_call(get_uuid, handle).bytes).hex()
    try:
        from cuda.core import system

        devices = [system.Device(index=index) for index in range(system.Device.get_device_count())]
        known = {str(device.uuid_without_prefix).replace("-", "").lower() for device in devices}
    except Exception:  # NVML is absent in some containers; then nobody can tell
        return None
    return uuid not in known if known else None


def _bindings_version() -> tuple[int, int]:
    text = _version(("cuda-bindings",)) or "0.0"
    major, minor = text.split(".")[:2]
    return (int(major), int(minor))


def _pair(number: int) -> tuple[int, int]:
    return (number // 1000, number % 1000 // 10)
