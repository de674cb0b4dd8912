"""Where the time of one operation goes, by whatever can tell on this machine, beside what the machine can do.

On a GPU that is ncu where it is installed and allowed: time, compute and memory share, shared-memory bank conflicts
and load efficiency of every kernel, the libraries' among them. Without it the package's own launches are timed by
events, one after another, and the rest is what is left of the whole. On a CPU the operation runs on one thread in a
process of its own under Python's profiler, which sees the BLAS calls and compiled kernels that Python code makes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from warpfront.backend import capability, settings
from warpfront.bench.profile_ncu import METRICS, read_csv
from warpfront.bench.profile_work import Work, array_module, make_work
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["TOOLS", "Part", "Profile", "find_ncu", "profile"]

TOOLS = ("auto", "ncu", "events", "python")
NCU_LAUNCHES = 600  # ncu repeats every launch several times; more of them take minutes


@dataclass(frozen=True)
class Part:
    """One kernel, routine or function.

    Attributes
    ----------
    name : str
    calls : float
        In one call of the operation.
    seconds : float
        In one call of the operation.
    compute, memory : float or None
        Share of the peak rate, 0 to 1 (ncu).
    conflicts : float or None
        Shared-memory bank conflicts in one call of the operation (ncu).
    load_efficiency : float or None
        Bytes used of those a global load moves, 0 to 1 (ncu).
    """

    name: str
    calls: float
    seconds: float
    compute: float | None = None
    memory: float | None = None
    conflicts: float | None = None
    load_efficiency: float | None = None


@dataclass(frozen=True)
class Profile:
    """What was found.

    Attributes
    ----------
    operation, what, device, tool, reason : str
        What ran on which data, ``"cpu"`` or ``"cuda"``, what the parts come from, and why that.
    seconds : float
        Median of one call, not watched, all threads.
    flops, bytes : float
        At the least, of one call.
    ceilings : dict
        ``flops`` and ``bytes`` a second of this machine: a large matrix product of the type, a large copy.
    parts : list of Part
        The longest first.
    """

    operation: str
    what: str
    device: str
    tool: str
    reason: str
    seconds: float
    flops: float
    bytes: float
    ceilings: dict[str, float]
    parts: list[Part] = field(default_factory=list)


def find_ncu() -> str | None:
    """Return the path of Nsight Compute's command, or None."""
    place = Path("/usr/local/cuda/bin/ncu")
    return which("ncu") or (str(place) if place.is_file() else None)


def profile(
    operation: str,
    sizes: tuple[int, ...],
    *,
    dtype: str = "float64",
    device: str = "auto",
    tool: str = "auto",
    calls: int = 5,
) -> Profile:
    """Profile one operation.

    Parameters
    ----------
    operation : str
        One of `warpfront.bench.profile_work.OPERATIONS`.
    sizes : tuple of int
        Its sizes.
    dtype : {"float64", "float32"}
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: a GPU where there is one.
    tool : {"auto", "ncu", "events", "python"}
        ``"auto"``: the first of them that this machine has for the device, and ``reason`` says why.
    calls : int
        Timed calls.

    Raises
    ------
    InvalidValueError, NotSupportedError
        Arguments that do not fit; a device or a tool that was asked for and is not there.
    """
    if device not in ("auto", "cpu", "cuda") or tool not in TOOLS or calls < 1:
        raise InvalidValueError(
            f"device is {device!r}, tool {tool!r}, calls {calls}; allowed are auto, cpu or cuda; {', '.join(TOOLS)}; "
            "at least 1"
        )
    missing = capability.missing()
    if device == "cuda" and missing is not None:
        raise NotSupportedError(missing)
    place = device if device != "auto" else "cpu" if missing is not None else "cuda"
    if (tool == "python" and place == "cuda") or (tool in ("ncu", "events") and place == "cpu"):
        raise NotSupportedError(
            f"tool {tool!r} cannot look at {place!r}; python watches the CPU, ncu and events the GPU"
        )
    if tool == "ncu" and find_ncu() is None:
        raise NotSupportedError(
            "ncu is not installed (Nsight Compute of the CUDA toolkit); give --tool events"
        )
    work = make_work(operation, sizes, dtype, place)
    request = {
        "operation": operation, "sizes": list(sizes), "dtype": dtype, "device": place, "calls": calls,
    }  # fmt: skip
    used, reason, parts = _parts(work, request, place, tool)
    seconds = median(_timed(work.call, place) for _ in range(calls))
    return Profile(
        operation, what=work.what, device=place, tool=used, reason=reason, seconds=seconds, flops=work.flops,
        bytes=work.bytes, ceilings=_ceilings(np.dtype(dtype), place), parts=parts,
    )  # fmt: skip


def _parts(work: Work, request: dict[str, Any], place: str, tool: str) -> tuple[str, str, list[Part]]:
    if place == "cpu":
        rows = json.loads(_child({**request, "mode": "python"}, [], WARPFRONT_THREADS="1"))
        work.call()
        reason = "one thread, so that all of it is seen; the time above is of all threads"
        return "python", reason, [Part(**row) for row in rows]
    reason = "asked for" if tool == "events" else "ncu is not installed"
    command = find_ncu()
    if tool != "events" and command is not None:
        flags = [
            command, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--launch-count", str(NCU_LAUNCHES), "--metrics", ",".join(METRICS),
        ]  # fmt: skip
        try:
            rows = read_csv(_child({**request, "mode": "bare"}, flags))
            return "ncu", "every kernel, replayed", [Part(**row) for row in rows]
        except NotSupportedError as error:
            if tool == "ncu":
                raise
            reason = f"ncu did not work: {error}"
    return "events", reason, _launches(work.call)


def _child(request: dict[str, Any], before: list[str], **changes: str) -> str:
    """Run the operation in a process of its own, and return what it printed."""
    command = [*before, sys.executable, "-m", "warpfront.bench.profile_child", json.dumps(request)]
    environment = settings.child_environment(PYTHONPATH=str(Path(__file__).parents[2]), **changes)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing said"]
        raise NotSupportedError(
            f"{Path(command[0]).name} ended with code {done.returncode}: {said[-1][:200]}"
        )
    return done.stdout


def _timed(call: Callable[[], Any], place: str) -> float:
    if place == "cpu":
        begin = perf_counter()
        call()
        return perf_counter() - begin
    import cupy

    cupy.cuda.runtime.deviceSynchronize()
    begin = perf_counter()
    call()
    cupy.cuda.runtime.deviceSynchronize()
    return perf_counter() - begin


def _ceilings(kind: np.dtype[Any], place: str) -> dict[str, float]:
    """Operations and bytes a second of a matrix product and of a copy, the best of a few."""
    side, count = (1024, 1 << 23) if place == "cpu" else (8192, 1 << 27)
    xp = array_module(place)
    a, source, target = xp.ones((side, side), kind), xp.ones(count, kind), xp.empty(count, kind)
    product = min(_timed(lambda: a @ a, place) for _ in range(4))
    copy = min(_timed(lambda: xp.copyto(target, source), place) for _ in range(4))
    return {"flops": 2.0 * side**3 / product, "bytes": 2.0 * source.nbytes / copy}


@contextmanager
def _launches_seen(seen: Callable[[str, Callable[[], None]], None]) -> Iterator[None]:
    """Hand every launch of the package, and the rest of its cuBLAS calls, to ``seen`` instead of making it."""
    from warpfront.backend import cuda
    from warpfront.dense import _blas_cuda, _lu_graph_cuda

    def wrapped(function: Any, name: Callable[[Any], str]) -> Any:
        return lambda self, *args, **options: seen(name(self), lambda: function(self, *args, **options))

    kept = cuda.Kernel.launch, _blas_cuda.Blas.subtract_product, _blas_cuda.Blas.solve_triangle
    graphs = _lu_graph_cuda.GRAPH_BYTES
    cuda.Kernel.launch = wrapped(kept[0], lambda kernel: kernel.expression)  # type: ignore[method-assign]
    _blas_cuda.Blas.subtract_product = wrapped(kept[1], lambda _: "cuBLAS gemm")  # type: ignore[method-assign]
    _blas_cuda.Blas.solve_triangle = wrapped(kept[2], lambda _: "cuBLAS trsm")  # type: ignore[method-assign]
    _lu_graph_cuda.GRAPH_BYTES = -1
    try:
        yield
    finally:
        cuda.Kernel.launch, _blas_cuda.Blas.subtract_product = kept[:2]  # type: ignore[method-assign]
        _blas_cuda.Blas.solve_triangle = kept[2]  # type: ignore[method-assign]
        _lu_graph_cuda.GRAPH_BYTES = graphs


def _launches(call: Callable[[], Any]) -> list[Part]:
    """Time a call's launches by events, each waited for; what CuPy and other libraries queue is not among them."""
    import cupy

    for _ in range(2):
        call()
    found: dict[str, list[float]] = {}

    def seen(name: str, launch: Callable[[], None]) -> None:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch()
        end.record()
        end.synchronize()
        found.setdefault(name, []).append(1e-3 * float(cupy.cuda.get_elapsed_time(start, end)))

    with _launches_seen(seen):
        call()
    parts = [Part(name, len(times), sum(times)) for name, times in found.items()]
    return sorted(parts, key=lambda part: -part.seconds)
