"""Batched solvers on the GPU: what the host decides, and the launch.

`plan` is a pure function of the problem, the variant and the device's limits, testable without a GPU.

| variant | kernel | work of a warp |
|---|---|---|
| ``serial`` | ``cholesky_serial``, ``lu_serial`` (baseline.cu) | 32 systems, a thread each, in global memory |
| ``warp`` | ``cholesky_warp``, ``lu_warp`` with 32 lanes a system | one system |
| ``packed`` | ``cholesky_packed``, ``lu_packed`` | 32 / lanes systems |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from warpfront.backend import compile as compiling
from warpfront.backend import cuda
from warpfront.batched._layout import WARP, packed_layout, warp_layout
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = [
    "DTYPES",
    "EXPERIMENTAL",
    "MAX_N",
    "MAX_NRHS",
    "METHODS",
    "VARIANTS",
    "BatchedProblem",
    "Limits",
    "Plan",
    "instantiations",
    "launch",
    "limits_of",
    "plan",
    "prepared",
    "subset",
]

FOLDER = FilePath(__file__).parent
METHODS = ("cholesky", "lu")
VARIANTS = ("serial", "warp", "packed")
DTYPES = {"float32": ("float", 4, "f"), "float64": ("double", 8, "d")}
MAX_N, MAX_NRHS = 32, 8
SERIAL_THREADS = 128
# Variants whose sanitizer suite has not passed on a device yet.
EXPERIMENTAL: frozenset[str] = frozenset()
# No contraction, whatever a kernel's author forgot: status and pivots must agree with the CPU.
OPTIONS = compiling.CompileOptions(fma=False)

# Lanes for a system of the packed variant, by method and element bytes: ((largest n, largest nrhs, lanes), …),
# from the record of the H200.
PACKED_LANES = {
    ("cholesky", 4): ((8, 4, 4), (32, 8, 8)),
    ("cholesky", 8): ((8, 2, 4), (16, 8, 8), (32, 8, 16)),
    ("lu", 4): ((8, 8, 4), (16, 4, 4), (32, 8, 8)),
    ("lu", 8): ((8, 8, 4), (16, 8, 8), (32, 8, 16)),
}
# Blocks to fit a multiprocessor where bounding registers pays: (method, element bytes, lanes) -> ((smallest n, largest n,
# largest nrhs, blocks), ...), from the record: with several right-hand sides more registers are worth more than blocks.
RESIDENT = {("cholesky", 4, 8): ((21, 24, 1, 16), (21, 32, 1, 12), (32, 32, 8, 8), (21, 31, 8, 12))}


@dataclass(frozen=True)
class BatchedProblem:
    """One batch, as dispatch and the plan see it.

    Attributes
    ----------
    method : {"cholesky", "lu"}
    n, nrhs, batch : int
    dtype : str
        ``"float32"`` or ``"float64"``.
    on_device : bool
        Whether the arrays are in device memory.
    aligned : bool
        Whether every array starts at a multiple of 16 bytes.
    """

    method: str
    n: int
    nrhs: int
    batch: int
    dtype: str
    on_device: bool = True
    aligned: bool = True


@dataclass(frozen=True)
class Limits:
    """What a launch may ask of a device.

    Attributes
    ----------
    warp : int
        Lanes of a warp.
    threads_x : int
        Threads of a block in x.
    blocks_x : int
        Blocks of a one-dimensional grid.
    shared_bytes : int
        Static shared memory of a block.
    """

    warp: int = 32
    threads_x: int = 1024
    blocks_x: int = 2**31 - 1
    shared_bytes: int = 48 * 1024


@dataclass(frozen=True)
class Plan:
    """One launch.

    Attributes
    ----------
    source : pathlib.Path
    expression, signature : str
    blocks, threads : int
    shared_bytes : int
        Declared by the kernel (static).
    lanes : int
        Lanes that work on one system; 1 for the serial baseline.
    systems : int
        Systems of a block.
    tail : tuple of int
        Integer arguments after the pointers.
    """

    source: FilePath
    expression: str
    signature: str
    blocks: int
    threads: int
    shared_bytes: int
    lanes: int
    systems: int
    tail: tuple[int, ...]


def packed_lanes(method: str, n: int, nrhs: int, itemsize: int) -> int:
    """Return the lanes the packed variant gives a system."""
    table = PACKED_LANES[method, itemsize]
    return next(lanes for most_n, most_nrhs, lanes in table if n <= most_n and nrhs <= most_nrhs)


def resident_blocks(method: str, n: int, nrhs: int, itemsize: int, lanes: int) -> int:
    """Return how many blocks are to fit a multiprocessor: the compiler keeps a lane's registers within that."""
    table = RESIDENT.get((method, itemsize, lanes), ())
    return next((blocks for least, most, sides, blocks in table if least <= n <= most and nrhs <= sides), 1)


def plan(
    problem: BatchedProblem,
    variant: str,
    limits: Limits | None = None,
    *,
    lanes: int | None = None,
    resident: int | None = None,
    stage: int | None = None,
) -> Plan:
    """Return the launch that solves a batch with a variant.

    Parameters
    ----------
    problem : BatchedProblem
        At least one system.
    variant : {"serial", "warp", "packed"}
    limits : Limits, optional
        Default: what every supported device has.
    lanes : int, optional
        Lanes of a system for ``packed``; a power of two. Default: the tuned ones.
    resident : int, optional
        Blocks that are to fit a multiprocessor, which bounds registers. Default: the tuned ones.
    stage : int, optional
        Columns that the factorisation of ``packed`` takes in a loop. Default: eight, or the lanes of a system.

    Raises
    ------
    InvalidValueError
        An unknown variant.
    NotSupportedError
        Size, element type or device cannot be served; the message names the requirement and the baseline.
    """
    limits = limits or Limits()
    if variant not in VARIANTS:
        raise InvalidValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    baseline = f"{problem.method}_solve_batched"
    if problem.dtype not in DTYPES:
        raise NotSupportedError(f"the kernels are written for float32 and float64, not for {problem.dtype}")
    if limits.warp != WARP:
        raise NotSupportedError(f"the kernels need warps of 32 lanes, the device has {limits.warp}")
    made = _serial(problem) if variant == "serial" else _warp(problem, variant, (lanes, resident, stage))
    if made.threads > limits.threads_x:
        raise NotSupportedError(
            f"a block of {made.threads} threads in x is needed, the device gives {limits.threads_x}"
        )
    if made.shared_bytes > limits.shared_bytes:
        raise NotSupportedError(
            f"{made.expression} declares {made.shared_bytes} bytes of shared memory a block, the device gives "
            f"{limits.shared_bytes}; {baseline} (the serial baseline) needs none"
        )
    if made.blocks > limits.blocks_x:
        raise NotSupportedError(
            f"a batch of {problem.batch} needs {made.blocks} blocks, a launch has at most {limits.blocks_x}: "
            "split the batch"
        )
    return made


def _serial(p: BatchedProblem) -> Plan:
    kind, _, letter = DTYPES[p.dtype]
    blocks = -(-p.batch // SERIAL_THREADS)
    signature = "pppppqii" + 3 * letter if p.method == "cholesky" else "ppppppqii"
    return Plan(
        FOLDER / "baseline.cu",
        f"{p.method}_serial<{kind}>",
        signature,
        blocks,
        SERIAL_THREADS,
        0,
        1,
        SERIAL_THREADS,
        (p.batch, p.n, p.nrhs),
    )


def _warp(p: BatchedProblem, variant: str, asked: tuple[Any, ...]) -> Plan:
    lanes, resident, stage = asked
    baseline = f"{p.method}_solve_batched"
    kind, itemsize, letter = DTYPES[p.dtype]
    if not (1 <= p.n <= MAX_N and 0 <= p.nrhs <= MAX_NRHS):
        raise NotSupportedError(
            f"the {variant} kernels are for n = 1 to {MAX_N} and nrhs = 0 to {MAX_NRHS}, got n = {p.n}, "
            f"nrhs = {p.nrhs}; {baseline} (the serial baseline) takes any size"
        )
    if variant == "warp" and lanes not in (None, WARP):
        raise InvalidValueError("the warp variant gives a system 32 lanes; ask for packed")
    lanes = WARP if variant == "warp" else lanes or packed_lanes(p.method, p.n, p.nrhs, itemsize)
    systems = WARP // lanes
    aligned = "true" if p.aligned else "false"
    blocks = resident or resident_blocks(p.method, p.n, p.nrhs, itemsize, lanes)
    if variant == "packed":
        layout = packed_layout(p.method, p.n, p.nrhs, itemsize, lanes)
        tail = f"{aligned}, {blocks}, {stage or min(lanes, 8)}"
        name = f"{p.method}_packed"
    else:
        layout = warp_layout(p.method, p.n, p.nrhs, itemsize)
        name, tail = f"{p.method}_warp", f"{aligned}, {blocks}"
    expression = f"{name}<{kind}, {p.n}, {p.nrhs}, {lanes}, {layout.pitch}, {layout.stride}, {tail}>"
    return Plan(
        FOLDER / (f"{p.method}_packed.cu" if name.endswith("packed") else f"{p.method}.cu"),
        expression,
        "pppppq" + 3 * letter if p.method == "cholesky" else "ppppppq",
        -(-p.batch // systems),
        WARP,
        layout.shared_bytes,
        lanes,
        systems,
        (p.batch,),
    )


def instantiations(
    sizes: tuple[int, ...] = tuple(range(1, MAX_N + 1)), rights: tuple[int, ...] = tuple(range(MAX_NRHS + 1))
) -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return all that `plan` can ask for, one entry per instantiation: (file, expressions, least architecture)."""
    names: dict[FilePath, list[str]] = {}
    for method in METHODS:
        for dtype in DTYPES:
            problems = [BatchedProblem(method, n, r, 1, dtype) for n in sizes for r in rights]
            plans = [plan(p, variant) for p in problems for variant in ("warp", "packed")]
            plans += [plan(problems[0], "serial")]
            for made in plans:
                names.setdefault(made.source, []).append(made.expression)
    return [(file, (name,), 80) for file, all_of in names.items() for name in dict.fromkeys(all_of)]


def subset() -> list[tuple[FilePath, tuple[str, ...], int]]:
    """Return the covering part of `instantiations`: n in {1, 3, 8, 16, 17, 32} and nrhs in {1, 3, 8}."""
    return instantiations((1, 3, 8, 16, 17, 32), (1, 3, 8))


@lru_cache(maxsize=64)
def limits_of(device: int) -> Limits:
    """Ask the driver for a device's limits, once."""
    import cupy

    have = cupy.cuda.Device(device).attributes
    return Limits(
        warp=int(have["WarpSize"]),
        threads_x=int(have["MaxBlockDimX"]),
        blocks_x=int(have["MaxGridDimX"]),
        shared_bytes=int(have["MaxSharedMemoryPerBlock"]),
    )


@lru_cache(maxsize=4096)
def prepared(problem: BatchedProblem, variant: str, device: int) -> tuple[cuda.Kernel, Plan]:
    """Return kernel and plan; kept, so that a repeated call goes straight to the launch.

    Errors as `plan`, and those of the compiler.
    """
    made = plan(problem, variant, limits_of(device))
    return cuda.load(made.source, made.expression, made.signature, device, OPTIONS), made


def launch(
    problem: BatchedProblem,
    variant: str,
    pointers: tuple[int, ...],
    numbers: tuple[float, ...],
    device: int,
    stream: int,
) -> None:
    """Queue one launch: ``pointers`` in the kernel's order, then sizes, then ``numbers``."""
    kernel, made = prepared(problem, variant, device)
    arguments: tuple[Any, ...] = pointers + made.tail + numbers
    kernel.launch(stream, made.blocks, made.threads, arguments)
