"""What identifies a CPU run. Nothing here names the computer, its user or a folder."""

from __future__ import annotations

import os
import platform
import subprocess
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["COMPARED", "cpu_fingerprint", "differences", "source_hash"]

_PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "threadpoolctl", "pymetis")
# Variables by which BLAS, OpenMP, Numba and this package choose kernels and threads.
_LIBRARIES = ("OPENBLAS", "GOTO", "MKL", "BLIS", "OMP", "KMP", "TBB", "VECLIB", "NUMBA", "WARPFRONT")
_PREFIXES = tuple(f"{name}_" for name in _LIBRARIES)
_CPU = Path("/sys/devices/system/cpu")
_SOURCE_SUFFIXES = (".py", ".cu", ".cuh", ".hpp", ".cpp")
_ISA = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512vl", "avx512_bf16", "asimd", "sve", "sve2")

# Two records can be compared when these agree (a dot enters a section); the code may differ.
COMPARED = (
    "cpu.model",
    "cpu.architecture",
    "cpu.cores",
    "cpu.affinity",
    "cpu.frequency",
    "cpu.isa",
    "system",
    "python.version",
    "packages",
    "blas",
    "environment",
    "threads",
    "gpu.board.model",
    "gpu.board.driver",
    "gpu.board.power_limit_w",
    "gpu.board.sm_clock_max_mhz",
    "gpu.board.mig_mode",
    "gpu.packages",
)


def cpu_fingerprint(packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the machine, the software and the state of the source, in plain containers.

    Parameters
    ----------
    packages : tuple of str
        Further distributions whose versions belong in the record, e.g. the peers'.

    Returns
    -------
    dict
        ``cpu`` (model, architecture, instruction sets, cores, affinity, caches, frequency policy),
        ``memory_bytes``, ``threads``, ``system``, ``python``, ``packages`` (None where absent), ``blas``
        (every BLAS and OpenMP library loaded in this process), ``environment``, ``code`` (version, revision,
        whether the source differs from it, hash of the source). A part the system does not tell is None.
    """
    from warpfront.backend import settings

    return {
        "cpu": _cpu(),
        "memory_bytes": _memory_bytes(),
        "threads": settings.threads(),
        "system": {
            "os": platform.system(),
            "release": platform.release(),
            "libc": " ".join(platform.libc_ver()).strip() or None,
            "virtual": _is_virtual(),
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
        },
        "packages": {name: _version(name) for name in (*_PACKAGES, *packages)},
        "blas": _thread_pools(),
        "environment": _environment(settings.child_environment()),
        "code": _code(),
    }


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return the entries of `COMPARED` in which two fingerprints differ; none: times compare."""
    return [name for name in COMPARED if _entry(first, name) != _entry(second, name)]


def _entry(fingerprint: dict[str, Any], name: str) -> Any:
    found: Any = fingerprint
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def source_hash() -> str:
    """Return a SHA-256 over name and content of every source file of the installed package."""
    root = Path(__file__).resolve().parents[1]
    digest = sha256()
    for file in sorted(root.rglob("*")):
        if file.suffix in _SOURCE_SUFFIXES:
            digest.update(
                file.relative_to(root).as_posix().encode() + b"\0" + sha256(file.read_bytes()).digest()
            )
    return digest.hexdigest()


def _cpu() -> dict[str, Any]:
    info = _cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    return {
        "model": info.get("model name") or info.get("Model") or platform.processor() or None,
        "architecture": platform.machine(),
        "family": "/".join(info[key] for key in ("cpu family", "model", "stepping") if key in info) or None,
        "isa": [name for name in _ISA if name in flags],
        "cores": _physical_cores(),
        "logical": os.cpu_count(),
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "caches": _caches(),
        "frequency": _frequency(),
    }


def _cpuinfo() -> dict[str, str]:
    """Fields of the first processor."""
    found: dict[str, str] = {}
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip():
            found.setdefault(key.strip(), value.strip())
    return found


def _physical_cores() -> int | None:
    siblings = {_read(file) for file in _CPU.glob("cpu[0-9]*/topology/thread_siblings_list")}
    return len(siblings) or None


def _caches() -> dict[str, str] | None:
    """Size and sharing of each cache of the first CPU, e.g. ``{"L1 data": "32K"}``."""
    found = {}
    for folder in sorted((_CPU / "cpu0" / "cache").glob("index*")):
        level, kind, size = (_read(folder / name) for name in ("level", "type", "size"))
        if level and kind and size:
            found[f"L{level}" if kind == "Unified" else f"L{level} {kind.lower()}"] = size
    return found or None


def _frequency() -> dict[str, str | None] | None:
    """What decides the clock; None on a machine that does not tell (most virtual ones)."""
    folder = _CPU / "cpu0" / "cpufreq"
    names = (
        "scaling_driver",
        "scaling_governor",
        "energy_performance_preference",
        "cpuinfo_max_freq",
        "scaling_max_freq",
    )
    found = {name: _read(folder / name) for name in names}
    found["boost"] = _read(_CPU / "cpufreq" / "boost")
    found["no_turbo"] = _read(_CPU / "intel_pstate" / "no_turbo")
    return found if any(value is not None for value in found.values()) else None


def _is_virtual() -> bool | None:
    info = _cpuinfo()
    return "hypervisor" in info["flags"].split() if "flags" in info else None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _thread_pools() -> list[dict[str, Any]]:
    from scipy.linalg import cython_blas  # noqa: F401 - the BLAS the solver calls is loaded with it

    try:
        from threadpoolctl import threadpool_info
    except ImportError:  # run from a source folder, as on the GPU machine: then nobody tells
        return []

    names = ("user_api", "internal_api", "version", "num_threads", "architecture", "threading_layer")
    # SciPy registers its file reader's threads there, too.
    pools = [pool for pool in threadpool_info() if pool["user_api"] in ("blas", "openmp")]
    found = [{name: pool.get(name) for name in names} for pool in pools]
    return sorted(found, key=lambda pool: tuple(str(pool[name]) for name in names))


def _environment(variables: dict[str, str]) -> dict[str, str]:
    # A folder is nobody's business and changes no result.
    kept = {name: text for name, text in variables.items() if name.startswith(_PREFIXES)}
    return {name: "(a path)" if os.sep in text else text for name, text in sorted(kept.items())}


def _code() -> dict[str, Any]:
    import warpfront

    revision, dirty = _revision(Path(__file__).resolve().parents[1])
    return {
        "version": str(warpfront.__version__),
        "revision": revision,
        "dirty": dirty,
        "source_sha256": source_hash(),
    }


def _revision(folder: Path) -> tuple[str | None, bool | None]:
    """Return the revision of the repository that holds this source and whether the source differs from it."""
    tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
    if tracked is None:  # installed elsewhere, or no git
        return None, None
    revision, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--", ".")
    return revision, None if changes is None else bool(changes)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
