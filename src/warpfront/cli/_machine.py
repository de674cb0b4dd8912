"""The machine and the software a result was computed with."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["blas", "cpu_caches", "cpu_model", "describe_machine", "peak_memory_bytes", "versions"]

_PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "pymetis", "matplotlib")
_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of what the numbers depend on; "absent" for one that is not installed."""
    import warpfront

    found = {"warpfront": str(warpfront.__version__), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def blas() -> dict[str, str]:
    """Name, version and kernel of the BLAS inside SciPy, which the solver calls."""
    from warpfront.backend.cpu import _blas_controller

    libraries = _blas_controller().info()
    # NumPy brings another copy; in a wheel the folder's name tells them apart
    own = [library for library in libraries if "scipy" in str(library["filepath"]).lower()]
    library = (own or libraries or [{}])[0]
    return {
        "name": str(library.get("internal_api", "unknown")),
        "version": str(library.get("version", "unknown")),
        "kernel": str(library.get("architecture", "unknown")),
    }


def cpu_model() -> str:
    """Name of the processor, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu"):
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def cpu_caches() -> dict[str, str]:
    """Size of each cache of the first CPU, e.g. ``{"L1 data": "48K"}``; empty where the system does not say."""
    caches = {}
    for folder in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        caches[f"L{level}" if kind == "Unified" else f"L{level} {kind.lower()}"] = size
    return caches


def describe_machine() -> dict[str, Any]:
    """Processor, CPUs and system; nothing that names the computer or its user."""
    from warpfront.backend import settings

    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count() or 1,
        "threads": settings.threads(),
        "caches": cpu_caches(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }


def peak_memory_bytes() -> int | None:
    """Largest resident size this process has had; ``None`` where the system keeps no record of it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else 1024 * int(peak)
