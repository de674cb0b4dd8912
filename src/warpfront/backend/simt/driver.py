"""Launch a compiled kernel file under the SIMT runner, from Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.simt import describe
from warpfront.backend.simt.arguments import ArgumentInfo, Buffer, In, Out, Packed, Struct, pack, relocate
from warpfront.backend.simt.build import Build, build
from warpfront.backend.simt.findings import Finding, Report
from warpfront.errors import InvalidValueError, WarpfrontError

__all__ = ["DEFAULT_SCHEDULES", "In", "Out", "Shape", "Simt", "Struct", "check_launch", "describe_arguments"]

Shape = tuple[tuple[int, int, int], tuple[int, int, int]]

DEFAULT_SCHEDULES = 4
_MAX_THREADS = 16384  # resident at once; each has its own stack
_MAX_GRID_THREADS = 1 << 20  # one entry of every clock per thread
_MAX_DYNAMIC_BYTES = 232448  # what sm_90 lets a block opt in to
# A library keeps one launch's state, and is loaded once per process.
_LOCK = threading.Lock()


class _Argument(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("kind", ctypes.c_char),
        ("element_kind", ctypes.c_char),
        ("read_only", ctypes.c_uint8),
        ("pad", ctypes.c_uint8),
        ("element_size", ctypes.c_uint32),
    )


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("invoke", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("arguments", ctypes.POINTER(_Argument)),
    )


class _Result(ctypes.Structure):
    _fields_ = tuple(
        (n, ctypes.c_uint64) for n in ("accesses", "slices", "digest", "findings", "shared_at", "dynamic_at")
    )


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.simt_entries.restype = ctypes.POINTER(_Entry)
    library.simt_buffer.restype = ctypes.c_void_p
    library.simt_buffer.argtypes = (ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
    library.simt_begin.argtypes = (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint)
    library.simt_findings.restype = ctypes.POINTER(describe.Raw)
    library.simt_run.argtypes = (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_uint,
        ctypes.c_void_p,
    )
    return library


def describe_arguments(built: Build) -> list[list[ArgumentInfo]]:
    """Return what a ``race`` build says of the parameters of each of its kernels."""
    count = ctypes.c_uint32()
    table = _load(built.library).simt_entries(ctypes.byref(count))
    return [
        [
            ArgumentInfo(
                a.size, a.kind.decode(), a.element_kind.decode("latin1"), bool(a.read_only), a.element_size
            )
            for a in table[k].arguments[: table[k].count]
        ]
        for k in range(count.value)
    ]


def check_launch(
    built: Build, name: str, grid: int | Sequence[int], block: int | Sequence[int], shared_bytes: int
) -> Shape:
    """Check what does not depend on the arguments; return grid and block as three numbers each."""
    if name not in built.names:
        raise InvalidValueError(f"{name!r} was not built; there are {', '.join(built.names)}")
    shape = (_dim(grid, "grid"), _dim(block, "block"))
    threads = int(np.prod(shape[1]))
    if threads > 1024:
        raise InvalidValueError(f"a block has at most 1024 threads, got {threads}")
    if int(np.prod(shape[0])) * threads > _MAX_GRID_THREADS:
        raise InvalidValueError(
            f"the runner takes at most {_MAX_GRID_THREADS} threads in a grid; use a smaller problem"
        )
    if not 0 <= shared_bytes <= _MAX_DYNAMIC_BYTES:
        raise InvalidValueError(f"shared_bytes must be 0 to {_MAX_DYNAMIC_BYTES}, got {shared_bytes}")
    return shape


class Simt:
    """A kernel file compiled for the host, ready to launch.

    Parameters
    ----------
    built : Build
        From `build`, kind ``"race"``.
    """

    def __init__(self, built: Build) -> None:
        if built.kind != "race":
            raise InvalidValueError(f"Simt runs a 'race' build, got {built.kind!r}")
        self.built = built
        self._library = _load(built.library)
        self._infos = describe_arguments(built)

    @classmethod
    def build(cls, source: Path | str, names: Sequence[str], **options: Any) -> Simt:
        """Compile (or take from the cache) and load; arguments as `warpfront.backend.simt.build.build`."""
        return cls(build(Path(source), names, **options))

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        seed: int = 0,
        schedules: int = DEFAULT_SCHEDULES,
        resident: int = 16,
        compare: bool = True,
    ) -> Report:
        """Run one launch under several schedules.

        Parameters
        ----------
        name : str
            One of the built instantiations.
        grid, block : int or sequence of up to three int
            Launch shape.
        args : sequence
            One per parameter. Arrays (C-contiguous) for pointers: read-only behind ``const T *``, else
            read and written in place; `Out` for one that starts unwritten; ``None`` for a null pointer.
            Numbers for numbers. `Struct` or a NumPy record for a structure by value.
        shared_bytes : int
            Dynamic shared memory per block.
        seed, schedules : int
            Seeds ``seed .. seed + schedules - 1`` are run, each from the same inputs. 0: lanes and blocks in
            ascending order; 1: descending; 2 and more: drawn, with preemption between accesses.
        resident : int
            Most blocks in flight at once. A persistent kernel needs all of its grid.
        compare : bool
            Report outputs that differ between schedules.

        Returns
        -------
        Report
            Arrays hold the first schedule's results.
        """
        shape = check_launch(self.built, name, grid, block, shared_bytes)
        kernel = self.built.names.index(name)
        threads = int(np.prod(shape[1]))
        if schedules < 1 or resident < 1:
            raise InvalidValueError("schedules and resident must be at least 1")
        packed, buffers = pack(args, self._infos[kernel], name)
        inputs = [b.array.copy() for b in buffers]
        run = _Run(self, kernel, shape, packed, buffers, shared_bytes, min(resident, _MAX_THREADS // threads))
        started = perf_counter()
        with _LOCK:
            for k in range(schedules):
                run.one(seed + k, inputs, first=k == 0, compare=compare)
            findings = describe.merge(run.found, self.built, buffers, shape)
        return Report(name, findings + tuple(run.differ), tuple(range(seed, seed + schedules)), run.accesses,
                      tuple(run.digests), perf_counter() - started)  # fmt: skip


class _Run:
    """State of one `Simt.launch`: what is the same for all schedules, and what they gathered."""

    def __init__(
        self,
        simt: Simt,
        kernel: int,
        shape: Shape,
        packed: list[Packed],
        buffers: list[Buffer],
        shared_bytes: int,
        resident: int,
    ) -> None:
        self.simt, self.kernel, self.shape = simt, kernel, shape
        self.packed, self.buffers, self.shared_bytes, self.resident = packed, buffers, shared_bytes, resident
        self.found: list[describe.Seen] = []
        self.differ: list[Finding] = []
        self.digests: list[int] = []
        self.accesses = 0

    def one(self, seed: int, inputs: list[NDArray[Any]], *, first: bool, compare: bool) -> None:
        lib = self.simt._library
        variables = np.array([(a, s) for _, a, s in self.simt.built.shared], dtype=np.uint32).reshape(-1, 2)
        room = sum(a.nbytes + 2048 for a in inputs) + 8192
        if lib.simt_begin(room, variables.ctypes.data, len(variables)):
            raise WarpfrontError(
                f"the SIMT runner could not reserve {room} bytes of global memory with their shadow"
            )
        at = [
            lib.simt_buffer(a.nbytes, b.placed, a.ctypes.data)
            for a, b in zip(inputs, self.buffers, strict=True)
        ]
        values = [ctypes.create_string_buffer(relocate(p, at.__getitem__), len(p.data)) for p in self.packed]
        pointers = (ctypes.c_void_p * (len(values) + 1))(*(ctypes.addressof(v) for v in values))
        dims = [(ctypes.c_uint32 * 3)(*d) for d in self.shape]
        result = _Result()
        code = lib.simt_run(
            self.kernel,
            dims[0],
            dims[1],
            self.shared_bytes,
            pointers,
            seed,
            self.resident,
            ctypes.byref(result),
        )
        if code:
            raise WarpfrontError("the SIMT runner could not reserve the stacks of the resident threads")
        raw = lib.simt_findings()
        self.accesses += result.accesses
        self.digests.append(result.digest)
        places = describe.Addresses(tuple(at), result.shared_at, result.dynamic_at)
        self.found.extend(describe.Seen.of(raw[k], places, seed) for k in range(result.findings))
        for k, b in enumerate(self.buffers):
            if b.mode != 0:
                self._take(k, at[k], inputs[k], seed, first=first, compare=compare)

    def _take(
        self, k: int, address: int, like: NDArray[Any], seed: int, *, first: bool, compare: bool
    ) -> None:
        """Copy one written buffer back (first schedule) or compare it with what the first schedule gave."""
        target = self.buffers[k].array
        got = target if first else np.empty_like(like)
        ctypes.memmove(got.ctypes.data, address, got.nbytes)
        if first or not compare or any(f.kind == "schedule dependent" for f in self.differ):
            return
        wrong = np.flatnonzero(got.reshape(-1).view(np.uint8) != target.reshape(-1).view(np.uint8))
        if wrong.size:
            item = int(wrong[0]) // got.dtype.itemsize
            text = f"{self.buffers[k].label} differs from the first schedule's result, first at item {item}"
            self.differ.append(Finding("schedule dependent", None, None, text, seed))


def _dim(value: int | Sequence[int], what: str) -> tuple[int, int, int]:
    dims = (value,) if isinstance(value, (int, np.integer)) else tuple(value)
    if not 1 <= len(dims) <= 3 or any(int(d) < 1 for d in dims):
        raise InvalidValueError(f"{what} must be one to three positive integers, got {value!r}")
    full = [int(d) for d in dims] + [1] * (3 - len(dims))
    return full[0], full[1], full[2]
