"""Make the parts of a record from plain samples: for benchmarks that time by themselves, on a CPU or a GPU.

A room's benchmark ends like this::

    rows = [
        Row("4096 x 4096", "transpose", {"m": 4096, "n": 4096}, "float32", "hashed bits", None, ["warpfront"],
            {"warpfront": collected(ours.seconds, algorithm="portable", bytes=2 * 4 * 4096**2),
             "torch": collected(peer.seconds, version=torch.__version__),
             "jax": refused("absent", "jax is not installed"),
             "copy": collected(copy.seconds)},
            reference="copy"),
    ]
    write(gpu_record("transpose", rows, {"samples": 15}), out / "transpose.json")
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

from warpfront.bench.fingerprint import cpu_fingerprint
from warpfront.bench.record import ABSENT, DEVICE, SCHEMA, Measurement, Record, Row, stamp
from warpfront.bench.timing import FAILED, NOT_OFFERED, OK, WRONG, percentile
from warpfront.errors import InvalidValueError

__all__ = ["collected", "cpu_record", "device_folder", "gpu_record", "refused"]


def collected(
    seconds: Sequence[float],
    *,
    right: bool = True,
    clock: str = DEVICE,
    algorithm: str = "",
    detail: str = "",
    **more: Any,
) -> Measurement:
    """Return a measurement from the samples of one contender.

    Parameters
    ----------
    seconds : sequence of float
        Every sample, seconds of one call.
    right : bool
        Whether the output verified. When not, ``detail`` must say what was wrong.
    clock : {"device", "wall"}
        What the samples are; see `Measurement`.
    algorithm, detail : str
    **more
        Further entries of `Measurement`: ``version``, ``bytes``, ``flops``, ``error``, ``error_limit``,
        ``values``, ``calls_per_sample``, ``warmup``, ``first_call_seconds``, ``workspace_bytes``, …

    Raises
    ------
    InvalidValueError
        No samples, or a wrong output without its reason.
    """
    # No clock has more digits, and files of all samples stay small.
    samples = tuple(float(f"{value:.6g}") for value in seconds)
    if not samples:
        raise InvalidValueError(
            "a measurement needs at least one sample; one that failed is made by refused()"
        )
    if not right and not detail:
        raise InvalidValueError("a wrong output needs a detail that says what was wrong")
    return Measurement(
        status=OK if right else WRONG,
        detail=detail,
        algorithm=algorithm,
        seconds=list(samples),
        median=median(samples),
        p95=percentile(samples, 95),
        minimum=min(samples),
        repeats=len(samples),
        clock=clock,
        **more,
    )


def refused(status: str, detail: str, *, algorithm: str = "", version: str | None = None) -> Measurement:
    """Return the measurement of a contender without samples: ``absent``, ``failed`` or ``not offered``."""
    if status not in (ABSENT, FAILED, NOT_OFFERED) or not detail:
        raise InvalidValueError(
            f"status is {status!r}; allowed are {ABSENT!r}, {FAILED!r} and {NOT_OFFERED!r}, each with a detail"
        )
    return Measurement(status=status, detail=detail[:300], algorithm=algorithm, version=version)


def cpu_record(
    name: str,
    rows: Sequence[Row],
    options: dict[str, Any],
    *,
    packages: tuple[str, ...] = (),
    compile_options: dict[str, Any] | None = None,
) -> Record:
    """Return a record of this machine's CPU. ``packages``: the peers' distributions, for their versions."""
    compiled = {"numba": "njit(cache=True, nogil=True), host instruction set"}
    found = cpu_fingerprint(packages)
    return Record(
        SCHEMA, name, device_folder(found), stamp(), options, compile_options or compiled, found, list(rows)
    )


def gpu_record(
    name: str,
    rows: Sequence[Row],
    options: dict[str, Any],
    *,
    device: int = 0,
    packages: tuple[str, ...] = (),
    compile_options: dict[str, Any] | None = None,
) -> Record:
    """Return a record of a GPU of this machine; its fingerprint is the host's with ``gpu`` added."""
    from warpfront.bench.gpu_fingerprint import gpu_fingerprint

    found = {**cpu_fingerprint(packages), "gpu": gpu_fingerprint(device)}
    compiled = {"nvrtc": "C++17, device's own architecture"}
    return Record(
        SCHEMA, name, device_folder(found), stamp(), options, compile_options or compiled, found, list(rows)
    )


def device_folder(fingerprint: dict[str, Any]) -> str:
    """Return the folder of records that a fingerprint belongs to: the GPU's model, or the CPU's and its cores."""
    gpu = fingerprint.get("gpu")
    if gpu:
        have = gpu.get("capability", {})
        text = gpu.get("board", {}).get("model") or f"cuda {have.get('cc_major')}.{have.get('cc_minor')}"
        text = re.sub(r"\b\d+gb\b.*", "", text.lower())
    else:
        cpu = fingerprint["cpu"]
        text = f"{cpu.get('model') or 'cpu'} {cpu.get('cores') or cpu.get('logical')} cores"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
