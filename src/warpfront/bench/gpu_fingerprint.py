"""What identifies a GPU run: two records with different fingerprints are not compared."""

from __future__ import annotations

import subprocess
from shutil import which
from typing import Any

from warpfront.backend import capability

__all__ = ["gpu_fingerprint"]

_QUERY = {
    "uuid": "uuid",
    "model": "name",
    "driver": "driver_version",
    "power_limit_w": "power.limit",
    "power_draw_w": "power.draw",
    "sm_clock_mhz": "clocks.sm",
    "sm_clock_max_mhz": "clocks.max.sm",
    "memory_clock_mhz": "clocks.mem",
    "persistence": "persistence_mode",
    "mig_mode": "mig.mode.current",
    "ecc": "ecc.mode.current",
}


def gpu_fingerprint(device: int = 0) -> dict[str, Any]:
    """Return what identifies the device and its software, in plain containers.

    Returns
    -------
    dict
        ``capability`` (every field of `Capability`), ``packages`` (name -> version or None), ``nvcc``
        (version or None), and ``board``: UUID, model, driver, power and clock policy as ``nvidia-smi``
        reports them (empty where it is absent).

    Raises
    ------
    NotSupportedError
        There is no such device.
    """
    from dataclasses import asdict

    from warpfront.backend import nvcc

    found = capability.probe(device)
    return {
        "capability": {**asdict(found), "arch": found.arch},
        "packages": capability.package_versions(),
        "nvcc": nvcc.version() if nvcc.missing() is None else None,
        "board": _board(device),
    }


def _board(device: int) -> dict[str, str]:
    tool = which("nvidia-smi")
    if tool is None:
        return {}
    # The driver's own order of devices can differ from CUDA's; the bus address is the same in both.
    address = _bus_address(device)
    command = [
        tool,
        f"--query-gpu={','.join(_QUERY.values())}",
        "--format=csv,noheader,nounits",
        f"--id={address}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    values = [text.strip() for text in done.stdout.strip().split(",")]
    return (
        dict(zip(_QUERY, values, strict=True)) if done.returncode == 0 and len(values) == len(_QUERY) else {}
    )


def _bus_address(device: int) -> str:
    from cuda.bindings import driver

    handle = capability._call(driver.cuDeviceGet, device)
    text = capability._call(driver.cuDeviceGetPCIBusId, 32, handle)
    return text.split(b"\0")[0].decode() if isinstance(text, bytes) else str(text)
