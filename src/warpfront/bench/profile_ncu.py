"""Nsight Compute's table of raw metrics, added up by kernel."""

from __future__ import annotations

import csv
import io
from typing import Any

from warpfront.errors import NotSupportedError

__all__ = ["METRICS", "read_csv"]

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
EFFICIENCY = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
METRICS = (TIME, COMPUTE, MEMORY, CONFLICTS, EFFICIENCY)
_SECONDS = {
    "s": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "msecond": 1e-3,
    "us": 1e-6,
    "usecond": 1e-6,
    "ns": 1e-9,
    "nsecond": 1e-9,
}


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _name(text: str) -> str:
    """Kernel name without its arguments, which follow its template arguments, if it has any."""
    depth = 0
    for k, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            text = text[:k]
            break
    return text.removeprefix("void ").strip()


def read_csv(text: str) -> list[dict[str, Any]]:
    """Read what ``ncu --csv --page raw`` printed: a row of names, a row of units, a row for each launch.

    Returns
    -------
    list of dict
        For each kernel, the longest first: name, calls, seconds, and the shares of `METRICS` (0 to 1, weighted by
        time) with the conflicts added up; None for what was not measured.

    Raises
    ------
    NotSupportedError
        There is no table in it; the message has what ncu said instead.
    """
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = [line for line in lines if line.startswith("==")] or lines or ["nothing"]
        raise NotSupportedError(f"ncu gave no table: {said[-1].strip()[:200]}")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    if len(rows) < 2 or TIME not in rows[0]:
        raise NotSupportedError("ncu's table holds no launch")
    scale = _SECONDS.get(rows[0][TIME], 1e-9)
    kernels: dict[str, list[tuple[float, dict[str, str]]]] = {}
    for row in rows[1:]:
        seconds = scale * (_number(row[TIME]) or 0.0)
        kernels.setdefault(_name(row["Kernel Name"]), []).append((seconds, row))
    found = [_added(name, launches) for name, launches in kernels.items()]
    return sorted(found, key=lambda part: -part["seconds"])


def _added(name: str, launches: list[tuple[float, dict[str, str]]]) -> dict[str, Any]:
    def share(metric: str) -> float | None:
        known = [
            (seconds, value) for seconds, row in launches if (value := _number(row.get(metric))) is not None
        ]
        total = sum(seconds for seconds, _ in known)
        return sum(seconds * value for seconds, value in known) / (100.0 * total) if total else None

    conflicts = [value for _, row in launches if (value := _number(row.get(CONFLICTS))) is not None]
    return {
        "name": name,
        "calls": len(launches),
        "seconds": sum(seconds for seconds, _ in launches),
        "compute": share(COMPUTE),
        "memory": share(MEMORY),
        "conflicts": sum(conflicts) if conflicts else None,
        "load_efficiency": share(EFFICIENCY),
    }
