"""The JSON record of a run."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from warpfront.cli._machine import fingerprint, peak_memory_bytes
from warpfront.cli._rows import phase_times
from warpfront.cli._run import Outcome, status_name

__all__ = ["SCHEMA", "plain", "record", "write_json"]

SCHEMA = "warpfront.solve/1"


def plain(value: Any) -> Any:
    """Return containers and scalars that JSON has; a number that is not finite becomes ``None``."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value


def record(outcome: Outcome) -> dict[str, Any]:
    """Return everything about a run: what is asked first at the top level, then the records as they are."""
    solver, error = outcome.solver, outcome.error
    report = None if solver is None else solver.report
    factor = None if report is None else report.factor
    times = phase_times(outcome)
    column = getattr(error, "column", -1)
    entry = getattr(error, "entry", -1)
    machine = fingerprint()
    found = {
        "schema": SCHEMA,
        "status": status_name(error),
        "message": None if error is None else " ".join(str(error).split()),
        "column": column if column >= 0 else None,
        "entry": entry if entry >= 0 else None,
        "backward_error": outcome.backward_error,
        "componentwise_error": outcome.componentwise_error,
        "forward_error": outcome.forward_error,
        "condition_estimate": outcome.condition,
        "inertia": None if factor is None else factor.inertia,
        "known_solution": None if solver is None else outcome.request.rhs is None,
        "seconds": {name: work for name, (work, _) in times.items()},
        "jit_seconds": sum(jit for _, jit in times.values()),
        "wall_seconds": outcome.wall_seconds,
        "memory": {
            "factor_bytes": None if factor is None else factor.factor_bytes,
            "factorization_bytes": None if factor is None else factor.peak_bytes,
            "process_peak_bytes": peak_memory_bytes(),
        },
        "records": None if report is None else report.to_dict(),
        "request": outcome.request,
        "files": outcome.files,
        "versions": {
            "warpfront": machine["code"]["version"],
            "python": machine["python"]["version"],
            **machine["packages"],
        },
        "machine": machine,
    }
    result: dict[str, Any] = plain(found)
    return result


def write_json(path: Path, outcome: Outcome) -> None:
    """Write `record` to a file."""
    path.write_text(json.dumps(record(outcome), indent=2, allow_nan=False) + "\n", encoding="utf-8")
