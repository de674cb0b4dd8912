"""CPU threads, BLAS addresses, and the clock that keeps JIT compilation apart."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import cache
from itertools import product
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


@cache
def blas_address(routine: str, dtype: str | np.dtype[Any]) -> int:
    """Address of a BLAS routine for an element type, e.g. ``blas_address("gemm", "float64")``."""
    return routine_address(_PREFIX[np.dtype(dtype).name] + routine)


@cache
def _blas_threads() -> list[tuple[Callable[[], int], Callable[[int], None]]]:
    """How each OpenBLAS in the process is asked for its number of threads, and told it.

    threadpoolctl finds the libraries. Its own calls look every symbol up again, which takes longer than a small
    factorisation, and do nothing in any thread but the first that used them.
    """
    from scipy.linalg import cython_blas  # noqa: F401 - loads the library that has to be found
    from threadpoolctl import ThreadpoolController

    found: list[tuple[Any, Any]] = []
    for library in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        openmp = getattr(library, "threading_layer", "") == "openmp"
        names = ("omp_get_max_threads", "omp_set_num_threads") if openmp else (
            "openblas_get_num_threads", "openblas_set_num_threads")  # fmt: skip
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            calls = [getattr(library.dynlib, f"{prefix}{name}{suffix}", None) for name in names]
            if None not in calls:
                found.append((calls[0], calls[1]))
                break
    return found


class _SingleThreaded:
    """How many are inside `single_threaded_blas`, and what the libraries had before the first of them."""

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.before: tuple[int, ...] = ()

    def __enter__(self) -> None:
        calls = _blas_threads()
        with self.lock:
            if not self.inside:
                self.before = tuple([ask() for ask, _ in calls])
                for _, tell in calls:
                    tell(1)
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside = max(0, self.inside - 1)  # 0 already: entered before a fork
            if not self.inside:
                for (_, tell), threads in zip(_blas_threads(), self.before, strict=True):
                    tell(threads)


_SINGLE_THREADED = _SingleThreaded()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Hold OpenBLAS at one thread: it gives other bits with two, and we bring our own threads.

    The number is the whole process's: of several threads inside at once, the first sets it and the last gives it back.
    """
    return _SINGLE_THREADED


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="warpfront")


def run_threads(threads: int, body: Callable[[int], None]) -> None:
    """Call ``body(0) .. body(threads - 1)`` at the same time; 0 runs on this thread. Exceptions are passed on.

    The bodies must not depend on all of them running at once: the pool may be busy with another caller's work.
    None of them runs any more when this returns or raises, Ctrl-C included: they write into the caller's buffers.
    """
    if threads <= 1:
        body(0)
        return
    futures = [_pool(threads - 1).submit(body, tid) for tid in range(1, threads)]
    try:
        body(0)
    finally:
        _finish(futures)


def _finish(futures: list[Future[None]]) -> None:
    """Take back what has not begun and wait for the rest; then raise what interrupted the wait, or the first failure.

    The third Ctrl-C is not waited for any more.
    """
    interrupts: list[BaseException] = []
    waiting = True
    while waiting and len(interrupts) < 3:
        try:
            wait([future for future in futures if not future.cancel()])
            waiting = False
        except BaseException as error:
            interrupts.append(error)
    if interrupts:
        raise interrupts[0]
    for future in futures:
        if not future.cancelled():
            future.result()


def _in_child() -> None:
    """A forked process has the pools and the lock of its parent, but none of the threads that serve and free them."""
    _pool.cache_clear()
    _SINGLE_THREADED.lock = threading.Lock()
    if _SINGLE_THREADED.inside:
        _SINGLE_THREADED.inside = 1
        _SINGLE_THREADED.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


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
