"""Every environment variable of the package, read here and nowhere else.

``WARPFRONT_THREADS``
    Number of CPU threads, an integer >= 1. Default: the CPUs this process may run on.
``WARPFRONT_CACHE_DIR``
    Folder for what the package compiles or measures and wants to keep. Default: ``warpfront`` in the user's
    cache folder.

``_WARPFRONT_BENCH_TURNS``
    Set by ``warpfront bench --against`` for the processes that it starts (`warpfront.bench.turns`); not for users.

They are read at the call, so a change within a running process takes effect. Results do not depend on any.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from warpfront.errors import InvalidValueError

__all__ = ["bench_turns", "cache_dir", "child_environment", "threads"]


def threads() -> int:
    """Return the number of CPU threads to use.

    Returns
    -------
    int
        ``WARPFRONT_THREADS`` when set, else the number of CPUs in this process's affinity mask.

    Raises
    ------
    InvalidValueError
        ``WARPFRONT_THREADS`` is set and is not an integer >= 1.
    """
    text = os.environ.get("WARPFRONT_THREADS", "")
    if not text:
        return _available_cpus()
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise InvalidValueError(f"WARPFRONT_THREADS must be an integer >= 1, got {text!r}")
    return count


def cache_dir() -> Path:
    """Return the cache folder, as an absolute path. The folder is not created here.

    Returns
    -------
    pathlib.Path
        ``WARPFRONT_CACHE_DIR`` when set (``~`` expanded), else the platform's user cache folder.

    Raises
    ------
    InvalidValueError
        ``WARPFRONT_CACHE_DIR`` names something that exists and is not a folder.
    """
    text = os.environ.get("WARPFRONT_CACHE_DIR", "")
    path = Path(text).expanduser().absolute() if text else _user_cache() / "warpfront"
    if path.exists() and not path.is_dir():
        raise InvalidValueError(f"the cache folder {str(path)!r} exists and is not a folder")
    return path


def bench_turns() -> tuple[int, int] | None:
    """Return the pipe ends of a process that samples in turn with another: reads from, writes to; else ``None``."""
    text = os.environ.get("_WARPFRONT_BENCH_TURNS", "")
    if not text:
        return None
    try:
        reads, writes = (int(part) for part in text.split(","))
    except ValueError:
        raise InvalidValueError(
            f"_WARPFRONT_BENCH_TURNS is for the package's own use, and is {text!r}: unset it"
        ) from None
    return reads, writes


def child_environment(**changes: str) -> dict[str, str]:
    """Return a copy of this process's environment with some variables set, for a program that we start."""
    return {**os.environ, **changes}


def _available_cpus() -> int:
    # The affinity mask is what taskset and most batch systems set; cpu_count() ignores it. macOS and Windows
    # have no mask.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path.home() / "AppData" / "Local"
    return Path.home() / ".cache"
