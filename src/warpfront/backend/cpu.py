"""CPU threads, BLAS addresses, and the clock that keeps JIT compilation apart."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

__all__ = ["Clock", "blas_address", "routine_address", "run_jobs", "run_threads", "single_threaded_blas"]

_PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


@cache
def routine_address(name: str, *, lapack: bool = False) -> int:
    """Address of a routine inside SciPy's own BLAS or LAPACK, by its full name, e.g. ``"dgetrf"``."""
    from scipy.linalg import cython_blas, cython_lapack

    capsule = (cython_lapack if lapack else cython_blas).__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


def blas_address(routine: str, dtype: str) -> int:
    """Address of a BLAS routine for an element type, e.g. ``blas_address("gemm", "float64")``."""
    return routine_address(_PREFIX[np.dtype(dtype).name] + routine)


@cache
def _blas_controller() -> Any:
    from scipy.linalg import cython_blas  # noqa: F401 - loads the library the controller has to find
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(internal_api="openblas")


class _Held:
    """How many are inside `single_threaded_blas`, and what the libraries had before the first of them."""

    lock = threading.Lock()
    inside = 0
    before: tuple[int, ...] = ()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Hold OpenBLAS at one thread: it gives other bits with two, and we bring our own threads.

    The number is the whole process's: of several threads inside at once, the first sets it and the last gives it back.
    """
    libraries = _blas_controller().lib_controllers
    with _Held.lock:
        if not _Held.inside:
            _Held.before = tuple(library.get_num_threads() for library in libraries)
            for library in libraries:  # threadpoolctl's own context asks much more of each library
                library.set_num_threads(1)
        _Held.inside += 1
    try:
        yield
    finally:
        with _Held.lock:
            _Held.inside -= 1
            if not _Held.inside:
                for library, threads in zip(libraries, _Held.before, strict=True):
                    library.set_num_threads(threads)


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="warpfront")


def run_threads(threads: int, body: Callable[[int], None]) -> None:
    """Call ``body(0) .. body(threads - 1)`` at the same time; 0 runs on this thread. Exceptions are passed on.

    The bodies must not depend on all of them running at once: the pool may be busy with another caller's work.
    """
    if threads <= 1:
        body(0)
        return
    futures = [_pool(threads - 1).submit(body, tid) for tid in range(1, threads)]
    try:
        body(0)
    finally:
        for future in futures:
            if not future.cancel():
                future.result()


def run_jobs(threads: int, jobs: Iterable[Callable[[], None]]) -> None:
    """Run every job once, on up to ``threads`` threads; they are taken in order. Exceptions are passed on."""
    waiting = iter(jobs)
    lock = threading.Lock()

    def body(tid: int) -> None:
        while True:
            with lock:
                job = next(waiting, None)
            if job is None:
                return
            job()

    run_threads(threads, body)


class Clock:
    """Wall time of a phase and, apart from it, the JIT compilation that happened inside.

    Attributes
    ----------
    seconds, jit_seconds : float
        Wall time without compilation; time spent compiling (on any thread).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.jit_seconds = 0.0

    def __enter__(self) -> Clock:
        self._compiled = _compile_seconds()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        wall = time.perf_counter() - self._start
        self.jit_seconds = min(wall, _compile_seconds() - self._compiled)
        self.seconds = wall - self.jit_seconds


@cache
def _compile_timer() -> Any:
    from numba.core import event

    class Total(event.Listener):  # type: ignore[misc]
        """Sum of the outermost compilations."""

        def __init__(self) -> None:
            self.seconds = 0.0
            self.depth = 0
            self.begin = 0.0

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                self.begin = time.perf_counter()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                self.seconds += time.perf_counter() - self.begin

    listener = Total()
    event.register("numba:compile", listener)
    return listener


def _compile_seconds() -> float:
    return float(_compile_timer().seconds)
