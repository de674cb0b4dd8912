"""Compile one kernel file to a cubin with either compiler, asking the disk cache first: `build`.

A kernel file is a ``.cu`` inside the package. It includes house headers only (``backend/device`` and its own
folder), so its text, the text of every header it reaches, the options, the architecture and the compiler's
version determine the cubin: that is the cache key.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Protocol

from warpfront.backend import cache as cache_module
from warpfront.backend.cache import Cache
from warpfront.backend.compiled import Compiled, CompileOptions, KernelResources, device_folder
from warpfront.errors import CompileError, InvalidValueError, NotSupportedError

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


class _Compiler(Protocol):
    def missing(self) -> str | None: ...

    def version(self) -> str: ...

    def compile(
        self, source: Path, expressions: tuple[str, ...], arch: str, options: CompileOptions
    ) -> Compiled: ...


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


def _compiler(name: str) -> _Compiler:
    from warpfront.backend import nvcc, nvrtc

    if name not in COMPILERS:
        raise InvalidValueError(f"compiler must be one of {COMPILERS}, got {name!r}")
    return nvrtc if name == "nvrtc" else nvcc
