"""Launch compiled kernels on the caller's stream; workspaces; graph capture.

Nothing here synchronises: work is queued on the stream it is given, which for an array is the one its own
library regards as current (`warpfront.backend.arrays`). Importing this module imports no GPU package.

Kernel arguments are 8-byte integers, pointers and doubles, or 4-byte integers and floats; a kernel's
signature says which, one letter each: ``p`` pointer, ``q`` 64-bit integer, ``d`` double, ``i`` 32-bit
integer, ``f`` float.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from warpfront.backend import capability, compile
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["Graph", "Kernel", "Workspaces", "capture", "load"]

_SIZES = {"p": 8, "q": 8, "d": 8, "i": 4, "f": 4}
# Launch shapes a kernel remembers; a caller that varies sizes without end starts over.
_MAX_CONFIGS = 512


class Kernel:
    """One kernel, loaded and ready to launch on one device.

    Parameters
    ----------
    compiled : Compiled
    expression : str
        Which of its kernels.
    signature : str
        One letter per argument (module docstring).
    device : int
    """

    def __init__(self, compiled: compile.Compiled, expression: str, signature: str, device: int) -> None:
        from cuda.core import ObjectCode

        self.expression = expression
        self.signature = signature
        self.device = device
        self.resources = compiled.resources[expression]
        self.compile_seconds = compiled.seconds
        self.from_cache = compiled.cached
        _activate(device)
        # The driver takes symbols as bytes, and cuda.core hands the mapping's values on as they are.
        symbols: dict[str, Any] = {name: symbol.encode() for name, symbol in compiled.names.items()}
        self._code = ObjectCode.from_cubin(compiled.cubin, symbol_mapping=symbols)
        self._kernel = self._code.get_kernel(expression)
        sizes = [info.size for info in self._kernel.arguments_info]
        if sizes != [_SIZES[letter] for letter in signature]:
            raise InvalidValueError(
                f"{expression} takes arguments of {sizes} bytes, its signature says {signature!r}"
            )
        self._convert: tuple[Any, ...] | None = None
        if set(signature) & {"i", "f"}:
            self._convert = tuple(
                {"i": c_int, "f": c_float, "d": float}.get(letter, int) for letter in signature
            )
        self._configs: dict[tuple[Any, ...], Any] = {}
        self._shared_limit = 48 * 1024 - self.resources.shared_bytes

    def launch(
        self,
        stream: int,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[Any],
        shared_bytes: int = 0,
        *,
        cooperative: bool = False,
        cluster: int = 1,
        early: bool = False,
    ) -> None:
        """Queue one launch.

        Parameters
        ----------
        stream : int
            Stream handle (`DeviceView.stream`).
        grid, block : int or tuple of int
            Blocks, and threads of a block.
        args : sequence
            As many as the signature has letters; pointers as integers.
        shared_bytes : int
            Dynamic shared memory; above 48 KB (with the static part) the kernel opts in at the first such
            launch.
        cooperative : bool
            All blocks resident together.
        cluster : int
            Blocks along the first axis that form a cluster (compute capability 9.0); the grid's first entry is a
            multiple of it.
        early : bool
            The launch may begin before the one before it on the stream has ended (programmatic dependent launch,
            compute capability 9.0): the kernel waits for it by `grid_wait` (``signal.cuh``) in every block.
        """
        if len(args) != len(self.signature):
            raise InvalidValueError(
                f"{self.expression} takes {len(self.signature)} arguments, got {len(args)}"
            )
        if self._convert is not None:
            args = [convert(value) for convert, value in zip(self._convert, args, strict=True)]
        key = (grid, block, shared_bytes, cooperative, cluster, early)
        config = self._configs.get(key) or self._configure(key)
        _activate(self.device)
        _launch()(_stream(stream), config, self._kernel, *args)

    def blocks_per_sm(self, block: int, shared_bytes: int = 0) -> int:
        """Return how many blocks of this shape run on one multiprocessor at a time."""
        self._opt_in(shared_bytes)
        return int(self._kernel.occupancy.max_active_blocks_per_multiprocessor(block, shared_bytes))

    def _configure(self, key: tuple[Any, ...]) -> Any:
        from cuda.core import LaunchConfig

        grid, block, shared_bytes, cooperative, cluster, early = key
        self._opt_in(shared_bytes)
        if len(self._configs) >= _MAX_CONFIGS:
            self._configs.clear()
        more: dict[str, Any] = {}
        if cluster > 1:  # cuda.core counts a grid with clusters in clusters
            first, *rest = (grid,) if isinstance(grid, int) else grid
            grid, more = (first // cluster, *rest), {"cluster": cluster}
        if early:
            more["programmatic_stream_serialization"] = True
        config = LaunchConfig(
            grid=grid, block=block, shmem_size=shared_bytes, is_cooperative=cooperative, **more
        )
        self._configs[key] = config
        return config

    def _opt_in(self, shared_bytes: int) -> None:
        if shared_bytes <= self._shared_limit:
            return
        have = capability.probe(self.device).shared_bytes_optin
        if shared_bytes + self.resources.shared_bytes > have:
            raise NotSupportedError(
                f"{self.expression} needs {shared_bytes + self.resources.shared_bytes} bytes of shared "
                f"memory a block, the device gives {have}"
            )
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _activate(self.device)
        (code,) = driver.cuKernelSetAttribute(attribute, shared_bytes, self._kernel.handle, self.device)
        if int(code) != 0:
            raise NotSupportedError(
                f"{self.expression}: the driver refused {shared_bytes} bytes of shared memory ({code.name})"
            )
        self._shared_limit = shared_bytes


@cache
def load(
    source: Path,
    expression: str,
    signature: str,
    device: int,
    options: compile.CompileOptions | None = None,
    compiler: str = "nvrtc",
) -> Kernel:
    """Return a kernel of a file, compiled for the device (or found in the disk cache) once per process.

    Parameters
    ----------
    source : pathlib.Path
        The ``.cu`` file.
    expression : str
        Name expression, for example ``"transpose_tile<4, 64, 64, 256, true, true>"``.
    signature : str
        Argument letters.
    device : int
    options, compiler
        As `warpfront.backend.compile.build`.
    """
    arch = capability.probe(device).arch
    built = compile.build(source, (expression,), arch, options=options, compiler=compiler)
    return Kernel(built, expression, signature, device)


class Workspaces:
    """Scratch memory that is used again: a free list for each device, stream and size class.

    Work on one stream runs in order, so a buffer given back may be handed out again on the same stream at
    once.

    Parameters
    ----------
    allocate : callable, optional
        ``allocate(nbytes, device, stream)`` returns an object with the address in ``.ptr``. Default: CuPy's
        pool.
    """

    def __init__(self, allocate: Callable[[int, int, int], Any] | None = None) -> None:
        self._allocate = allocate or _cupy_allocate
        self._free: dict[tuple[int, int, int], list[Any]] = {}
        self._lock = threading.Lock()

    def take(self, nbytes: int, device: int, stream: int) -> Workspace:
        """Return a context manager that lends a buffer of at least ``nbytes`` and yields its address."""
        size = max(256, 1 << (int(nbytes) - 1).bit_length()) if nbytes > 0 else 256
        key = (device, stream, size)
        with self._lock:
            waiting = self._free.setdefault(key, [])
            memory = waiting.pop() if waiting else None
        return Workspace(self, key, memory if memory is not None else self._allocate(size, device, stream))

    def give_back(self, key: tuple[int, int, int], memory: Any) -> None:
        """Return a buffer to its free list (`Workspace` calls this)."""
        with self._lock:
            self._free.setdefault(key, []).append(memory)

    def clear(self) -> None:
        """Drop every free buffer."""
        with self._lock:
            self._free.clear()


class Workspace:
    """One buffer on loan from `Workspaces`."""

    def __init__(self, pool: Workspaces, key: tuple[int, int, int], memory: Any) -> None:
        self._pool = pool
        self._key = key
        self._memory = memory

    @property
    def nbytes(self) -> int:
        """Size of the buffer."""
        return self._key[2]

    def __enter__(self) -> int:
        return int(self._memory.ptr)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self._key, self._memory)


class Graph:
    """A captured sequence of launches; replaying it costs one launch."""

    def __init__(self, graph: Any, stream: Any) -> None:
        self._graph = graph
        self._stream = stream

    @property
    def stream(self) -> Any:
        """The CuPy stream the graph was captured on."""
        return self._stream

    def replay(self) -> None:
        """Queue the graph on the stream it was captured on."""
        self._graph.launch(self._stream)


def capture(work: Callable[[], Any], device: int = 0) -> Graph:
    """Capture what ``work()`` queues on CuPy's current stream into a graph.

    ``work`` has run once before (nothing may be compiled or loaded while capturing) and allocates nothing
    new.
    """
    import cupy

    with cupy.cuda.Device(device):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                work()
            finally:
                graph = stream.end_capture()
    return Graph(graph, stream)


def _cupy_allocate(nbytes: int, device: int, stream: int) -> Any:
    import cupy

    # Under the caller's stream, so that CuPy's pool files the block under it.
    with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
        return cupy.cuda.alloc(nbytes)


@cache
def _launch() -> Callable[..., None]:
    from cuda.core import launch

    function: Callable[..., None] = launch
    return function


@cache
def _stream(handle: int) -> Any:
    from cuda.core import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM, Stream

    if handle in (0, 1):
        return LEGACY_DEFAULT_STREAM
    return PER_THREAD_DEFAULT_STREAM if handle == 2 else Stream.from_handle(handle)


_active = threading.local()


def _activate(device: int) -> None:
    """Make the device's primary context current in this thread, unless it is already."""
    import cupy

    if getattr(_active, "device", None) != device or cupy.cuda.runtime.getDevice() != device:
        from cuda.core import Device

        cupy.cuda.runtime.setDevice(device)
        Device(device).set_current()
        _active.device = device
