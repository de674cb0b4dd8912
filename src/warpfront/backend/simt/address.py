"""The second build: a launch under AddressSanitizer and UndefinedBehaviorSanitizer, in its own process.

The launch is handed over in a file (``rt::Header`` of runtime/replay.hpp, then shared variables, buffers,
parameters) and the results come back in another; both are little-endian and packed as C packs them.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from warpfront.backend.simt import describe
from warpfront.backend.simt.arguments import READ_ONLY, UNWRITTEN, ArgumentInfo, Buffer, Packed, pack
from warpfront.backend.simt.build import Build, build
from warpfront.backend.simt.driver import Shape, check_launch, describe_arguments
from warpfront.backend.simt.findings import Finding, Place, Report, short_path
from warpfront.errors import WarpfrontError

__all__ = ["AddressSimt"]

_RESULT_BYTES = 48
_UNDEFINED = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$", re.MULTILINE)
_ADDRESS = re.compile(r"^==\d+==\s*ERROR: AddressSanitizer: (?P<what>[^\n]*)", re.MULTILINE)
_FRAME = re.compile(
    r"^\s+#\d+ 0x[0-9a-f]+ in (?P<function>.*?) (?P<file>/[^\s:]+):(?P<line>\d+)", re.MULTILINE
)


class AddressSimt:
    """A kernel file compiled with both sanitizers; launched like `warpfront.backend.simt.driver.Simt`.

    Parameters
    ----------
    source : path
        The kernel file.
    names : sequence of str
        Instantiations.
    **options
        As for `warpfront.backend.simt.build.build`.
    """

    def __init__(self, source: Path | str, names: Sequence[str], **options: Any) -> None:
        self.built: Build = build(Path(source), names, kind="address", **options)
        # The parameter table is the same in both builds, and only a library can be asked for it.
        self._infos: list[list[ArgumentInfo]] = describe_arguments(build(Path(source), names, **options))

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        seeds: Sequence[int] = (0, 3),
        resident: int = 16,
        timeout: float = 120.0,
    ) -> Report:
        """Run one launch once per seed, each in a new process from the same inputs.

        Returns
        -------
        Report
            ``accesses`` is 0: this build counts none. Arrays hold the first run's results, unless it
            ended early.

        Raises
        ------
        WarpfrontError
            The program could not run the launch at all (not a finding about the kernel).
        """
        shape = check_launch(self.built, name, grid, block, shared_bytes)
        kernel = self.built.names.index(name)
        packed, buffers = pack(args, self._infos[kernel], name)
        content = _launch_file(self.built, kernel, shape, packed, buffers, shared_bytes, resident)
        started = perf_counter()
        findings: list[Finding] = []
        digests = []
        for k, seed in enumerate(seeds):
            log, out = self._run(content(seed), timeout)
            findings.extend(_sanitizer_findings(log, self.built.source, seed))
            if out:
                digests.append(struct.unpack_from("<Q", out, 16)[0])
                findings.extend(self._results(out, buffers, shape, seed, first=k == 0))
            elif not findings:
                raise WarpfrontError(f"the sanitizer build of {name} ended without a result:\n{log[-4000:]}")
        once = {(f.kind, f.where, f.other): f for f in reversed(findings)}
        return Report(
            name, tuple(once.values())[::-1], tuple(seeds), 0, tuple(digests), perf_counter() - started
        )

    def _run(self, content: bytes, timeout: float) -> tuple[str, bytes]:
        with tempfile.TemporaryDirectory(prefix="warpfront-simt-") as folder:
            launch, result = Path(folder, "launch"), Path(folder, "result")
            launch.write_bytes(content)
            done = subprocess.run(
                [str(self.built.library), str(launch), str(result)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
            return done.stderr, result.read_bytes() if done.returncode == 0 and result.exists() else b""

    def _results(
        self, out: bytes, buffers: list[Buffer], shape: Shape, seed: int, *, first: bool
    ) -> tuple[Finding, ...]:
        count, shared, dynamic = struct.unpack_from("<3Q", out, 24)
        size = _raw_size()
        places = describe.Addresses((0,) * len(buffers), shared, dynamic)
        raw = [describe.Raw.from_buffer_copy(out, _RESULT_BYTES + k * size) for k in range(count)]
        at = _RESULT_BYTES + count * size
        for buffer in buffers:
            if buffer.mode != READ_ONLY:
                if first:
                    data = np.frombuffer(out, buffer.array.dtype, buffer.array.size, at)
                    buffer.array[...] = data.reshape(buffer.array.shape)
                at += buffer.array.nbytes
        return describe.merge([describe.Seen.of(r, places, seed) for r in raw], self.built, buffers, shape)


def _raw_size() -> int:
    import ctypes

    return ctypes.sizeof(describe.Raw)


def _launch_file(
    built: Build,
    kernel: int,
    shape: Shape,
    packed: list[Packed],
    buffers: list[Buffer],
    shared_bytes: int,
    resident: int,
) -> Any:
    """Return a function from a seed to the bytes of the launch file."""
    body = bytearray()
    for _, offset, size in built.shared:
        body += struct.pack("<II", offset, size)
    for buffer in buffers:
        body += struct.pack("<QQ", buffer.array.nbytes, buffer.placed)
        body += bytes(buffer.array.nbytes) if buffer.mode == UNWRITTEN else buffer.array.tobytes()
    for p in packed:
        body += struct.pack("<II", len(p.data), len(p.pointers)) + p.data
        for offset, index in p.pointers:
            body += struct.pack("<II", offset, index)
    counts = (len(built.shared), len(buffers), len(packed))

    def content(seed: int) -> bytes:
        head = struct.pack(
            "<8s12IQ", b"SIMTRUN1", kernel, *shape[0], *shape[1], shared_bytes, resident, *counts, seed
        )
        return head + bytes(body)

    return content


def _sanitizer_findings(log: str, source: Path, seed: int) -> list[Finding]:
    found = []
    for m in _UNDEFINED.finditer(log):
        where = Place(short_path(m["file"], source), int(m["line"]), "")
        found.append(Finding("undefined behaviour", where, None, f"{m['what']} at {where}", seed))
    for m in _ADDRESS.finditer(log):
        frames = [
            f
            for f in _FRAME.finditer(log, m.end())
            if "/simt/runtime/" not in f["file"] and "/simt/include/" not in f["file"]
        ]
        where_at = (
            Place(short_path(frames[0]["file"], source), int(frames[0]["line"]), frames[0]["function"])
            if frames
            else None
        )
        found.append(Finding("address", where_at, None, f"{m['what']} at {where_at}", seed))
    return found
