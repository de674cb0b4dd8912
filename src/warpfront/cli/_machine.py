"""The machine and the software a result was computed with, in the words of the commands."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

__all__ = ["fingerprint", "machine_rows", "peak_memory_bytes", "software_rows"]


@cache
def fingerprint() -> dict[str, Any]:
    """Fingerprint of this process, as benchmark records have it."""
    from warpfront.bench.fingerprint import cpu_fingerprint

    return cpu_fingerprint(("matplotlib",))


def software_rows() -> list[tuple[str, str]]:
    """Versions of this package, of Python, of what the numbers depend on, and of the loaded BLAS."""
    found = fingerprint()
    rows = [("warpfront", found["code"]["version"]), ("Python", found["python"]["version"])]
    rows += [(name, version or "absent") for name, version in found["packages"].items()]
    for pool in found["blas"]:
        kind = {"blas": "BLAS", "openmp": "OpenMP"}.get(pool["user_api"], pool["user_api"])
        kernels = f", kernels for {pool['architecture']}" if pool["architecture"] else ""
        row = (kind, f"{pool['internal_api']} {pool['version'] or ''}".rstrip() + kernels)
        if row not in rows:
            rows.append(row)
    return rows


def machine_rows() -> list[tuple[str, str]]:
    """Processor, cores, threads, caches and system."""
    found = fingerprint()
    cpu, system = found["cpu"], found["system"]
    caches = ", ".join(f"{name} {size}" for name, size in (cpu["caches"] or {}).items())
    memory = found["memory_bytes"]
    return [
        ("model", cpu["model"] or "not known on this system"),
        ("cores", f"{cpu['cores'] or 'not known'}, logical CPUs: {cpu['logical']}"),
        ("threads used by default", str(found["threads"])),
        ("caches of a core", caches or "not known on this system"),
        ("memory", f"{memory / 2**30:.1f} GiB" if memory else "not known on this system"),
        ("system", f"{system['os']} {system['release']}, {cpu['architecture']}"),
    ]


def peak_memory_bytes() -> int | None:
    """Largest resident size this process has had; ``None`` where the system keeps no record of it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else 1024 * int(peak)
