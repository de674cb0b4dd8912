"""Compile one kernel file to a cubin: what the two compilers share, and `build`, which asks the cache first.

A kernel file is a ``.cu`` inside the package. It includes house headers only (``backend/device`` and its own
folder), so its text, the text of every header it reaches, the options, the architecture and the compiler's
version determine the cubin: that is the cache key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from warpfront.errors import CompileError, InvalidValueError, NotSupportedError

if TYPE_CHECKING:
    from warpfront.backend.cache import Cache

__all__ = [
    "COMPILERS",
    "CompileError",
    "CompileOptions",
    "Compiled",
    "KernelResources",
    "build",
    "device_folder",
    "source_closure",
]

COMPILERS = ("nvrtc", "nvcc")


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


class _Compiler(Protocol):
    def missing(self) -> str | None: ...

    def version(self) -> str: ...

    def compile(
        self, source: Path, expressions: tuple[str, ...], arch: str, options: CompileOptions
    ) -> Compiled: ...


def device_folder() -> Path:
    """Return the folder of the device headers."""
    return Path(__file__).parent / "device"


def build(
    source: Path,
    expressions: tuple[str, ...],
    arch: str,
    *,
    options: CompileOptions | None = None,
    compiler: str = "nvrtc",
    cache: Cache | None = None,
) -> Compiled:
    """Return the cubin of some instantiations of one kernel file, from the disk cache or freshly compiled.

    Parameters
    ----------
    source : pathlib.Path
        The ``.cu`` file.
    expressions : tuple of str
        Kernels to instantiate, as C++ name expressions.
    arch : str
        ``"sm_80"``, ``"sm_90"``, …
    options : CompileOptions, optional
    compiler : {"nvrtc", "nvcc"}
    cache : Cache, optional
        Default: the user's cache (`warpfront.backend.cache.default`).

    Returns
    -------
    Compiled

    Raises
    ------
    CompileError
        The compiler reports an error or a warning.
    NotSupportedError
        The compiler is not installed; the message says what to install.
    """
    if not expressions:
        raise InvalidValueError("build needs at least one kernel name expression")
    from warpfront.backend import cache as cache_module

    started = perf_counter()
    chosen = options or CompileOptions()
    tool = _compiler(compiler)
    reason = tool.missing()
    if reason is not None:
        raise NotSupportedError(reason)
    store = cache if cache is not None else cache_module.default()
    key = cache_key(source, expressions, arch, chosen, f"{compiler} {tool.version()}")
    found = store.load(key)
    if found is not None:
        return cache_module.unpack(found, perf_counter() - started)
    compiled = tool.compile(source, expressions, arch, chosen)
    store.store(key, cache_module.pack(compiled))
    return compiled


def cache_key(
    source: Path, expressions: tuple[str, ...], arch: str, options: CompileOptions, compiler: str
) -> str:
    """Return the content hash that names one compilation (hexadecimal SHA-256)."""
    digest = sha256()
    for part in ("warpfront-cubin-1", compiler, arch, repr(options), repr(expressions)):
        digest.update(part.encode() + b"\0")
    for path in source_closure(source):
        text = path.read_bytes()
        digest.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def source_closure(source: Path) -> list[Path]:
    """Return a kernel file and every house header it reaches through quoted includes, in the order first met.

    Raises
    ------
    CompileError
        An included file is in neither its includer's folder nor ``backend/device``.
    """
    found: list[Path] = []
    waiting = [source.resolve()]
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        found.append(path)
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            places = (path.parent / name, device_folder() / name)
            header = next((place for place in places if place.is_file()), None)
            if header is None:
                raise CompileError(f'{path.name} includes "{name}", which is not a house header')
            waiting.append(header.resolve())
    return found


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
    from warpfront.backend import elf

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


def _compiler(name: str) -> _Compiler:
    from warpfront.backend import nvcc, nvrtc

    if name not in COMPILERS:
        raise InvalidValueError(f"compiler must be one of {COMPILERS}, got {name!r}")
    return nvrtc if name == "nvrtc" else nvcc
