"""What one compilation is: its options, its result, what each kernel in it needs, and what a log must not hold.

The two compilers and the disk cache share this; `warpfront.backend.compile.build` stands on all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from warpfront.backend import elf
from warpfront.errors import CompileError

__all__ = [
    "CompileOptions",
    "Compiled",
    "KernelResources",
    "device_folder",
    "kernel_resources",
    "parse_resources",
    "refuse_warnings",
]


@dataclass(frozen=True)
class CompileOptions:
    """Options that reach the compiler; every one of them is part of the cache key.

    Attributes
    ----------
    defines : tuple of (name, value)
        Macros.
    max_registers : int or None
        Register cap per thread.
    fast_math : bool
        Approximate division, square root and transcendental functions; flush subnormals.
    fma : bool
        Contract a product and a sum into one rounding.
    line_info : bool
        Source lines for the profiler and the sanitizer; costs nothing at run time.
    """

    defines: tuple[tuple[str, str], ...] = ()
    max_registers: int | None = None
    fast_math: bool = False
    fma: bool = True
    line_info: bool = True


@dataclass(frozen=True)
class KernelResources:
    """What one kernel needs: per thread, shared memory per block.

    The spills are the assembler's figures. Where its report is silent about a kernel they are an upper bound,
    the whole stack: a kernel without a stack has no spills.
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Compiled:
    """One cubin and what is in it.

    Attributes
    ----------
    cubin : bytes
        Machine code for ``arch``.
    arch, compiler : str
        Target and compiler with its version.
    names : dict
        Name expression (``"transpose<4, 64>"``) -> symbol in the cubin.
    resources : dict
        Name expression -> `KernelResources`.
    seconds : float
        Time of this compilation, or of the look-up when ``cached``.
    cached : bool
        Whether the cubin came from the disk cache.
    """

    cubin: bytes
    arch: str
    compiler: str
    names: dict[str, str]
    resources: dict[str, KernelResources]
    seconds: float
    cached: bool = field(default=False, compare=False)


def device_folder() -> Path:
    """Return the folder of the device headers."""
    return Path(__file__).parent / "device"


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> dict[str, KernelResources]:
    """Read the assembler's verbose report: symbol -> `KernelResources`."""
    result: dict[str, KernelResources] = {}
    symbol, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            symbol, frame = match[1], (0, 0, 0)
        elif match := _STACK.search(line):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif (match := _USED.search(line)) and symbol:
            shared = _SHARED.search(line)
            result[symbol] = KernelResources(
                registers=int(match[1]),
                stack_bytes=frame[0],
                spill_store_bytes=frame[1],
                spill_load_bytes=frame[2],
                shared_bytes=int(shared[1]) if shared else 0,
            )
    return result


def kernel_resources(
    names: dict[str, str], cubin: bytes, log: str, source: Path
) -> dict[str, KernelResources]:
    """Return the resources of each named kernel, from the assembler's report or else from the cubin itself.

    Parameters
    ----------
    names : dict
        Name expression -> symbol.
    cubin : bytes
    log : str
        What the compiler said; some releases leave the assembler's part out.
    source : pathlib.Path
        For the message.

    Raises
    ------
    CompileError
        A kernel is in neither: it was not instantiated.
    """
    reported = parse_resources(log)
    inside = elf.kernels(cubin) if set(names.values()) - set(reported) else {}
    absent = [text for text, symbol in names.items() if symbol not in reported and symbol not in inside]
    if absent:
        raise CompileError(f"{source.name}: the cubin holds no kernel {', '.join(absent)}", log)
    result = {}
    for text, symbol in names.items():
        if symbol in reported:
            result[text] = reported[symbol]
        else:
            own = inside[symbol]
            result[text] = KernelResources(
                own.registers, own.stack_bytes, own.stack_bytes, own.stack_bytes, own.shared_bytes
            )
    return result


def refuse_warnings(log: str, source: Path) -> None:
    """Raise `CompileError` when a compiler's log holds a warning: kernels are kept free of them."""
    if any("warning" in line.lower() and "remark" not in line.lower() for line in log.splitlines()):
        raise CompileError(f"{source.name} compiled with a warning; warnings are errors here", log)
