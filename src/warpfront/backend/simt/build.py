"""Compile a kernel file with g++ for the SIMT runner; keep the result by content hash.

Two builds of the same source: ``race`` (a shared library; g++'s thread instrumentation calls the runner's own
callbacks, no sanitizer library is linked) and ``address`` (a program under AddressSanitizer and
UndefinedBehaviorSanitizer).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import time

from warpfront.backend import settings
from warpfront.errors import InvalidValueError, NotSupportedError, WarpfrontError

__all__ = ["Build", "BuildError", "available", "build", "build_many"]

_HERE = Path(__file__).parent
_INCLUDE = _HERE / "include"
_RUNTIME = _HERE / "runtime"
_DEVICE = _HERE.parent / "device"
_TOOLS = ("g++", "addr2line", "readelf")
# -ffp-contract=off: a fused multiply-add happens where the source says so.
# -fno-gnu-unique: a template's static shared array belongs to its own library, not to the first one loaded.
# -fno-extern-tls-init: `extern __shared__` is storage only.
# DWARF 4: some versions of addr2line read the file names of DWARF 5 line tables wrongly.
_COMMON = (
    "-std=c++17",
    "-g",
    "-gdwarf-4",
    "-fPIC",
    "-fno-exceptions",
    "-fno-rtti",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-gnu-unique",
    "-fno-extern-tls-init",
)
# Kernel files only. Inlining nearly without limit: the caller's line is then part of every access's place.
_INLINE = (
    "-finline-functions",
    "--param=max-inline-insns-single=4000",
    "--param=max-inline-insns-auto=4000",
    "--param=inline-unit-growth=4000",
    "--param=large-function-growth=4000",
    "--param=large-function-insns=100000",
)
_RACE = (
    "-O1",
    "-fsanitize=thread",
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
)
_ADDRESS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-omit-frame-pointer")
_REDZONE_BYTES = 64
_KEPT_ENTRIES = 256  # of one to two megabytes each
_INCLUDE_LINE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_TBSS_VARIABLE = re.compile(r"(\t\.section\t\.tbss[^\n]*\n(?:(?!\t\.section)[^\n]*\n)*?\t\.zero\t\d+\n)")
_LIBRARY_CALL = re.compile(r"(\t(?:call|jmp|bl|b)\t)(memcpy|memmove|memset)\b")


class BuildError(WarpfrontError, RuntimeError):
    """g++ refused the kernel file; the message holds what it said."""


@dataclass(frozen=True)
class Build:
    """One compiled kernel file.

    Attributes
    ----------
    source : pathlib.Path
        The kernel file.
    names : tuple of str
        The instantiations, as they were asked for; the order is that of the library's table.
    library : pathlib.Path
        Shared library (``race``) or program (``address``).
    shared : tuple of (str, int, int)
        Static shared arrays: symbol, offset in the block's shared storage, bytes.
    kind : str
        ``"race"`` or ``"address"``.
    """

    source: Path
    names: tuple[str, ...]
    library: Path
    shared: tuple[tuple[str, int, int], ...]
    kind: str


@lru_cache(maxsize=1)
def _missing() -> tuple[str, ...]:
    return tuple(tool for tool in _TOOLS if shutil.which(tool) is None)


def available() -> str:
    """Return ``""`` when kernels can be run on this host, else the reason why not."""
    return f"the SIMT runner needs {', '.join(_missing())}" if _missing() else ""


def build(
    source: Path,
    names: Sequence[str],
    *,
    kind: str = "race",
    defines: Sequence[tuple[str, str]] = (),
    include: Sequence[Path] = (),
    folder: Path | None = None,
) -> Build:
    """Compile the instantiations ``names`` of one kernel file, or take them from the cache.

    Parameters
    ----------
    source : pathlib.Path
        A ``.cu`` file.
    names : sequence of str
        Kernels as C++ names them, template arguments spelled out: ``"transpose<double, 32>"``.
    kind : str
        ``"race"`` or ``"address"``.
    defines : sequence of (name, value)
        Macros; part of the key.
    include : sequence of pathlib.Path
        More include folders, after the device headers and the kernel's own folder.
    folder : pathlib.Path, optional
        Cache folder; default: ``simt`` in the package's cache folder.

    Returns
    -------
    Build

    Raises
    ------
    NotSupportedError
        There is no g++ (or no binutils) on this machine.
    BuildError
        The file does not compile.
    """
    if _missing():
        raise NotSupportedError(available())
    if kind not in ("race", "address"):
        raise InvalidValueError(f"kind must be 'race' or 'address', got {kind!r}")
    if not names:
        raise InvalidValueError("names is empty: there is nothing to build")
    source = Path(source).resolve()
    if not source.is_file():
        raise InvalidValueError(f"no kernel file {source}")
    root = Path(folder) if folder is not None else settings.cache_dir() / "simt"
    folders = (_DEVICE, source.parent, *map(Path, include))
    flags = (
        *_COMMON,
        *(_RACE if kind == "race" else _ADDRESS),
        *(f"-D{name}={value}" for name, value in defines),
    )
    key = _key((*_closure(source, folders), *_runtime_files()), (*flags, *names, str(source), kind))
    target = root / key
    if not (target / "build.json").is_file():
        _publish(
            target,
            "build.json",
            lambda work: _compile(source, tuple(names), kind, flags, folders, root, work),
        )
    with suppress(OSError):  # a cache that cannot be written still serves; it just cannot record the use
        os.utime(target)
    shared = tuple((str(n), int(a), int(s)) for n, a, s in json.loads((target / "build.json").read_text()))
    return Build(source, tuple(names), target / "kernel", shared, kind)


def build_many(
    requests: Iterable[tuple[Path, Sequence[str]]], *, kind: str = "race", folder: Path | None = None
) -> list[Build]:
    """Build several kernel files at once, as many as `warpfront.backend.settings.threads` says."""
    with ThreadPoolExecutor(settings.threads()) as pool:
        return list(pool.map(lambda r: build(r[0], r[1], kind=kind, folder=folder), requests))


def _runtime_files() -> tuple[Path, ...]:
    return tuple(sorted((*_INCLUDE.glob("*.hpp"), *_RUNTIME.glob("*.[ch]pp"), Path(__file__))))


def _closure(source: Path, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the file and every header it reaches through ``#include "..."``."""
    found: list[Path] = []
    todo = [source]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.append(path)
        for name in _INCLUDE_LINE.findall(path.read_text()):
            hits = [f / name for f in (path.parent, *folders) if (f / name).is_file()]
            todo.extend(h.resolve() for h in hits[:1])
    return tuple(sorted(found))


@lru_cache(maxsize=1)
def _compiler_version() -> str:
    return subprocess.run(
        ["g++", "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]


def _key(files: Sequence[Path], words: Sequence[str]) -> str:
    digest = sha256(_compiler_version().encode())
    for word in words:
        digest.update(word.encode() + b"\0")
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def _publish(target: Path, marker: str, make: Callable[[Path], None]) -> None:
    """Fill a folder beside ``target`` and rename it into place; another process may get there first.

    A folder without the file ``marker`` is a damaged entry and is replaced.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        make(work)
        if target.is_dir() and not (target / marker).is_file():
            shutil.rmtree(target, ignore_errors=True)
        try:
            work.rename(target)
        except OSError:
            if not (target / marker).is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _evict(target.parent, _KEPT_ENTRIES)


def _evict(root: Path, kept: int) -> None:
    """Remove the entries unused for longest, beyond ``kept``; never one used within a day."""
    ages = []
    for entry in root.iterdir():
        with suppress(OSError):  # another process may have removed it
            ages.append((entry.stat().st_mtime, entry))
    old = time() - 24 * 3600
    for used, entry in sorted(ages)[: max(len(ages) - kept, 0)]:
        if used < old:
            shutil.rmtree(entry, ignore_errors=True)


def _run(command: Sequence[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{what} failed:\n{done.stderr[-8000:]}")
    return done.stdout


def _runtime_object(kind: str, root: Path) -> Path:
    flags = (*_COMMON, "-O2", "-Wall", "-Wextra", *(("-DSIMT_ASAN",) if kind == "address" else ()))
    target = root / ("runtime-" + _key(_runtime_files(), flags))

    def make(work: Path) -> None:
        _run(
            [
                "g++",
                *flags,
                f"-I{_INCLUDE}",
                "-c",
                str(_RUNTIME / "runtime.cpp"),
                "-o",
                str(work / "runtime.o"),
            ],
            "the runtime",
        )

    if not (target / "runtime.o").is_file():
        _publish(target, "runtime.o", make)
    return target / "runtime.o"


def _compile(
    source: Path,
    names: tuple[str, ...],
    kind: str,
    flags: Sequence[str],
    folders: Sequence[Path],
    root: Path,
    work: Path,
) -> None:
    runtime = _runtime_object(kind, root)
    table = ",\n".join(f"  simt::entry<&{name}>({json.dumps(name)})" for name in names)
    (work / "unit.cpp").write_text(
        f'#include "simt.hpp"\n#include "{source}"\n#include "simt_launch.hpp"\n'
        'extern "C" {\nextern const simt::Entry simt_table[];\nextern const unsigned simt_table_size;\n'
        f"const simt::Entry simt_table[] = {{\n{table}\n}};\n"
        f"const unsigned simt_table_size = {len(names)};\n}}\n"
    )
    search = [f"-I{_INCLUDE}", *(f"-I{f}" for f in folders)]
    what = f"{source.name} for the SIMT runner"
    assembly = work / "unit.s"
    _run(
        ["g++", *flags, "-Wno-unknown-pragmas", *search, "-S", str(work / "unit.cpp"), "-o", str(assembly)],
        what,
    )
    text = _TBSS_VARIABLE.sub(rf"\1\t.zero\t{_REDZONE_BYTES}\n", assembly.read_text())
    if kind == "race":
        text = _LIBRARY_CALL.sub(r"\1simt_\2", text)
    assembly.write_text(text)
    _run(["g++", "-c", str(assembly), "-o", str(work / "unit.o")], what)
    _dynamic_shared(work)
    link = ["-shared", "-Wl,-Bsymbolic"] if kind == "race" else ["-fsanitize=address,undefined"]
    objects = [str(work / "unit.o"), str(work / "dynamic.o"), str(runtime)]
    _run(["g++", *link, *objects, "-o", str(work / "kernel"), "-ldl", "-lm"], what)
    shared = [
        v
        for v in _tls_symbols(work / "kernel")
        if v[0] not in ("simt_dynamic_begin", "simt_dynamic_end") and v[2]
    ]
    for name in ("unit.cpp", "unit.s", "unit.o", "dynamic.s", "dynamic.o"):
        (work / name).unlink()
    (work / "build.json").write_text(json.dumps(shared))


def _dynamic_shared(work: Path) -> None:
    """Give all ``extern __shared__`` arrays of the file one storage: labels on one thread-local area."""
    names = [name for name, _, _ in _tls_symbols(work / "unit.o", undefined=True)]
    labels = "".join(
        f"\t.globl {n}\n\t.type {n}, %tls_object\n{n}:\n" for n in ("simt_dynamic_begin", *names)
    )
    (work / "dynamic.s").write_text(
        f'\t.section .tbss.simt_dynamic,"awT",%nobits\n\t.p2align 7\n{labels}\t.zero 262144\n'
        '\t.section .note.GNU-stack,"",%progbits\n'
    )
    _run(["g++", "-c", str(work / "dynamic.s"), "-o", str(work / "dynamic.o")], "the dynamic shared storage")


def _tls_symbols(path: Path, undefined: bool = False) -> list[tuple[str, int, int]]:
    """Return (name, offset, bytes) of the thread-local symbols of one object file."""
    found = {}
    for line in _run(["readelf", "-sW", str(path)], "readelf").splitlines():
        part = line.split()
        if len(part) >= 8 and part[3] == "TLS" and (part[6] == "UND") == undefined:
            found[part[7]] = (part[7], int(part[1], 16), int(part[2], 0))
    return sorted(found.values(), key=lambda v: v[1])
