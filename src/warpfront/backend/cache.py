"""Disk cache of compiled kernels, addressed by content, shared by any number of processes.

One file per entry, ``<folder>/<first two digits>/<key>.bin``: an 8-byte magic, the SHA-256 of the payload,
the payload. A file is written beside its place and renamed into it, so a reader sees a whole entry or none;
an entry whose hash does not match is removed and rebuilt. Reading an entry renews its time stamp; when the
cache grows past its cap, the entries unused for longest go first.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from warpfront.backend.compiled import Compiled, KernelResources

__all__ = ["Cache", "CacheInfo", "default", "pack", "unpack"]

_MAGIC = b"WFCUBIN1"
_DEFAULT_CAP_BYTES = 512 * 2**20
# Eviction goes on to this share of the cap, so that a full cache does not scan its folder at every new entry.
_KEEP_SHARE = 0.8


@dataclass(frozen=True)
class CacheInfo:
    """State of a cache folder."""

    path: Path
    entries: int
    bytes: int
    cap_bytes: int


class Cache:
    """Content-addressed store of byte strings in one folder.

    Parameters
    ----------
    folder : pathlib.Path
        Created at the first store.
    cap_bytes : int
        Size that eviction keeps the folder below.
    """

    def __init__(self, folder: Path, cap_bytes: int = _DEFAULT_CAP_BYTES) -> None:
        self.folder = folder
        self.cap_bytes = cap_bytes
        self._warned = False

    def load(self, key: str) -> bytes | None:
        """Return what is stored under ``key``, ``None`` when there is nothing; a damaged entry is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + 32
        payload = content[head:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : head] != sha256(payload).digest():
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):  # a read-only cache still serves; it just cannot record the use
            os.utime(path)
        return payload

    def store(self, key: str, payload: bytes) -> None:
        """Store a payload; that a folder cannot be written is said once, as a `RuntimeWarning`."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + sha256(payload).digest() + payload)
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"compiled kernels cannot be kept in {self.folder} ({error.strerror}): "
                    "every process compiles anew",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return
        self._evict(keep=path)

    def clear(self) -> int:
        """Remove every entry and every left-over temporary file; return how many entries were removed."""
        removed = 0
        for path, _, _ in list(self._entries()):
            with suppress(OSError):
                path.unlink()
                removed += 1
        for path in self.folder.glob("??/.new-*"):
            with suppress(OSError):
                path.unlink()
        for path in self.folder.glob("??"):
            with suppress(OSError):  # another process may be filling it
                path.rmdir()
        return removed

    def info(self) -> CacheInfo:
        """Count the entries and their bytes."""
        sizes = [size for _, size, _ in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.cap_bytes)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"

    def _entries(self) -> Iterator[tuple[Path, int, float]]:
        """Yield path, size and time of last use; what another process removes meanwhile is left out."""
        for path in self.folder.glob("??/*.bin"):
            with suppress(OSError):
                state = path.stat()
                yield path, state.st_size, state.st_mtime

    def _evict(self, keep: Path) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry[2])
        total = sum(size for _, size, _ in entries)
        if total <= self.cap_bytes:
            return
        for path, size, _ in entries:
            if total <= self.cap_bytes * _KEEP_SHARE:
                return
            if path != keep:
                with suppress(OSError):
                    path.unlink()
                total -= size


def default() -> Cache:
    """Return the user's cache of compiled kernels: ``cubin`` in `warpfront.backend.settings.cache_dir`."""
    from warpfront.backend import settings

    return Cache(settings.cache_dir() / "cubin")


def pack(compiled: Compiled) -> bytes:
    """Serialise a compilation."""
    head = json.dumps(
        {
            "arch": compiled.arch,
            "compiler": compiled.compiler,
            "names": compiled.names,
            "resources": {name: asdict(value) for name, value in compiled.resources.items()},
        }
    ).encode()
    return len(head).to_bytes(8, "little") + head + compiled.cubin


def unpack(payload: bytes, seconds: float) -> Compiled:
    """Restore what `pack` wrote; ``seconds`` is the time the look-up took."""
    size = int.from_bytes(payload[:8], "little")
    head = json.loads(payload[8 : 8 + size])
    return Compiled(
        cubin=payload[8 + size :],
        arch=head["arch"],
        compiler=head["compiler"],
        names=head["names"],
        resources={name: KernelResources(**value) for name, value in head["resources"].items()},
        seconds=seconds,
        cached=True,
    )
