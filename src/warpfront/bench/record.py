"""The JSON record of a benchmark: what was run, where, every sample, and whether the outputs were right.

One file is one run of one benchmark on one device: ``benchmarks/records/<device>/<name>.json``. ``rows`` are
operations on inputs; each row holds its contenders, ours and the peers, timed in turn in one process. A
contender that could not run stands there with its reason. `warpfront.bench.collect` makes the parts from
plain samples, on a CPU or a GPU; the generated pages, the report and the gate read nothing else.
"""

from __future__ import annotations

import json
import math
import re
import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from warpfront.bench.case import Case, Verdict
from warpfront.bench.timing import OK, WRONG, Timing
from warpfront.errors import FormatError

__all__ = [
    "ABSENT",
    "CLOCKS",
    "DEVICE",
    "SCHEMA",
    "WALL",
    "Measurement",
    "Record",
    "Row",
    "absent",
    "fastest_peer",
    "measurement",
    "read",
    "stamp",
    "write",
]

SCHEMA = "warpfront.bench/1"
ABSENT = "absent"
WALL, DEVICE = CLOCKS = ("wall", "device")
# Entries that came after the first records: a file without one means its default.
_ADDED = {"added": True}


@dataclass(frozen=True)
class Measurement:
    """One contender in one row. Seconds are those of one call; ``None``: not measured, or not defined here.

    Attributes
    ----------
    status : str
        ``ok``, ``wrong``, ``failed``, ``not offered`` or ``absent`` (not installed); ``detail`` says why.
    algorithm : str
        Algorithm and options.
    version : str or None
        Version of the contender's package.
    clock : str
        What ``seconds`` are: ``wall``, end to end on the host; ``device``, between two events around queued work.
    seconds, cpu_seconds : list of float
        Every sample of one call, by ``clock``; and processor time over all threads.
    median, p95, minimum : float or None
        Of ``seconds``.
    kernel_seconds : list of float
        Device time of each sample where ``seconds`` are wall time on a GPU; else empty.
    first_call_seconds, first_call_jit_seconds : float or None
        The first call without compilation; the compilation.
    jit_seconds : float
        Compilation taken out of the samples.
    error, error_limit : float or None
        What was judged and against what; ``values`` holds the further figures.
    """

    status: str
    detail: str = ""
    algorithm: str = ""
    version: str | None = None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    kernel_seconds: list[float] = field(default_factory=list)
    median: float | None = None
    p95: float | None = None
    minimum: float | None = None
    calls_per_sample: int = 0
    warmup: int = 0
    repeats: int = 0
    first_call_seconds: float | None = None
    first_call_jit_seconds: float | None = None
    jit_seconds: float = 0.0
    error: float | None = None
    error_limit: float | None = None
    values: dict[str, Any] = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    workspace_bytes: int | None = None
    clock: str = field(default=WALL, metadata=_ADDED)

    @property
    def timed(self) -> bool:
        """Whether it has samples of an output that came back, right or wrong."""
        return self.status in (OK, WRONG) and bool(self.seconds)


@dataclass(frozen=True)
class Row:
    """One operation on one input.

    Attributes
    ----------
    case, operation : str
        Name of the input and of what is done with it.
    shapes : dict
        Sizes, e.g. ``{"n": 90000, "nnz": 448800}``.
    dtype, distribution : str
        Of the values; the distribution names the generator or the source.
    seed : int or None
        Of the generator, where it draws.
    ours : list of str
        Contenders that are this package's.
    contenders : dict
        Name -> `Measurement`.
    reference : str or None
        The contender that is no peer but a ceiling (a device copy, a matrix product): shares of it are shown.
    """

    case: str
    operation: str
    shapes: dict[str, int]
    dtype: str
    distribution: str
    seed: int | None
    ours: list[str]
    contenders: dict[str, Measurement]
    reference: str | None = field(default=None, metadata=_ADDED)


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes
    ----------
    schema : str
        `SCHEMA`; another version is refused.
    name, device, created : str
        The benchmark; its kind of device, a folder name; UTC time.
    options : dict
        What the run was asked for: rounds, warm-up, budgets.
    compile_options : dict
        How kernels were compiled, where that can differ.
    fingerprint : dict
        See `warpfront.bench.fingerprint`; a GPU run adds ``gpu``.
    """

    schema: str
    name: str
    device: str
    created: str
    options: dict[str, Any]
    compile_options: dict[str, Any]
    fingerprint: dict[str, Any]
    rows: list[Row]


def measurement(
    timing: Timing, case: Case, version: str | None = None, workspace_bytes: int | None = None
) -> Measurement:
    """Return what `time_round_robin` found about a contender, as the record keeps it."""
    verdict = timing.verdict or Verdict(False)
    return Measurement(
        status=timing.status,
        detail=timing.detail,
        algorithm=case.algorithm,
        version=version,
        seconds=list(timing.seconds),
        cpu_seconds=list(timing.cpu_seconds),
        median=timing.median,
        p95=timing.p95,
        minimum=timing.minimum,
        calls_per_sample=timing.calls_per_sample,
        warmup=timing.warmup,
        repeats=len(timing.seconds),
        first_call_seconds=timing.first_call_seconds,
        first_call_jit_seconds=timing.first_call_jit_seconds,
        jit_seconds=timing.jit_seconds,
        error=verdict.error,
        error_limit=verdict.limit,
        values=dict(verdict.values),
        flops=case.flops,
        bytes=case.bytes,
        workspace_bytes=workspace_bytes,
    )


def absent(package: str) -> Measurement:
    """Return the measurement of a contender whose package is not installed."""
    return Measurement(status=ABSENT, detail=f"{package} is not installed")


def stamp() -> str:
    """Return the UTC time to the second, ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(record: Record, path: Path) -> None:
    """Write a record; folders are made. Numbers that are not finite become null."""
    _check(record, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(asdict(record)), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read(path: Path) -> Record:
    """Read and check a record.

    Raises
    ------
    FormatError
        Not JSON, another schema, or an entry missing, unknown or of the wrong type: one line with the place.
    OSError
        The file cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise FormatError(f"{path}: the schema is {found!r}; this build reads {SCHEMA!r}")
    record: Record = _build(Record, data, str(path))
    _check(record, str(path))
    return record


def _check(record: Record, where: str) -> None:
    """Check what types cannot say."""
    if not re.fullmatch(r"[\w.-]+", record.device) or not re.fullmatch(r"[\w.-]+", record.name):
        raise FormatError(
            f"{where}: device {record.device!r} and name {record.name!r} must be plain file names"
        )
    for row in record.rows:
        place = f"{where}: {row.case}, {row.operation}"
        if unknown := [name for name in row.ours if name not in row.contenders]:
            raise FormatError(f"{place}: ours names {unknown[0]!r}, which is no contender")
        if row.reference is not None and (row.reference not in row.contenders or row.reference in row.ours):
            raise FormatError(
                f"{place}: reference names {row.reference!r}, which must be a contender and not ours"
            )
        for name, found in row.contenders.items():
            samples = len(found.seconds)
            if found.clock not in CLOCKS:
                raise FormatError(f"{place}: {name}: clock is {found.clock!r}, allowed are {CLOCKS}")
            if found.repeats != samples:
                raise FormatError(f"{place}: {name}: repeats is {found.repeats}, of {samples} samples")
            if found.status == OK and not samples:
                raise FormatError(f"{place}: {name}: ok without a sample")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _build(kind: Any, data: Any, where: str) -> Any:
    """Return ``data`` as ``kind``: dataclasses, list[...], dict[str, ...], unions with None and scalars."""
    if kind is Any:
        return data
    if is_dataclass(kind):
        return _build_record(kind, data, where)
    origin = get_origin(kind)
    if origin is types.UnionType:
        inner = next(option for option in get_args(kind) if option is not type(None))
        return None if data is None else _build(inner, data, where)
    if origin is list and isinstance(data, list):
        return [_build(get_args(kind)[0], item, f"{where}[{k}]") for k, item in enumerate(data)]
    if origin is dict and isinstance(data, dict):
        return {name: _build(get_args(kind)[1], item, f"{where}.{name}") for name, item in data.items()}
    allowed = (int, float) if kind is float else (kind if origin is None else ())
    if not isinstance(data, allowed) or (isinstance(data, bool) and kind is not bool):
        raise FormatError(f"{where}: found {type(data).__name__}, expected {getattr(kind, '__name__', kind)}")
    return float(data) if kind is float else data


def _build_record(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise FormatError(f"{where}: found {type(data).__name__}, expected an object")
    names, hints = [item.name for item in fields(kind)], get_type_hints(kind)
    needed = {item.name for item in fields(kind) if not item.metadata.get("added")}
    for wrong, what in ((needed - set(data), "lacks"), (set(data) - set(names), "has the unknown entry")):
        if wrong:
            raise FormatError(f"{where}: {what} {min(wrong)!r}")
    given = [name for name in names if name in data]
    return kind(**{name: _build(hints[name], data[name], f"{where}.{name}") for name in given})


def fastest_peer(row: Row, *, right: bool = True) -> str | None:
    """Return the peer of least median, of those that verified or (``right=False``) of all that answered."""
    medians = {
        name: found.median
        for name, found in row.contenders.items()
        if name not in row.ours
        and name != row.reference
        and found.median is not None
        and (found.status == OK if right else found.timed)
    }
    return min(medians, key=lambda name: medians[name]) if medians else None
