"""Try the batched solvers on this machine: verdicts of known systems, and throughput against the batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability
from warpfront.batched import cholesky, lu, results

__all__ = ["Throughput", "Trial", "throughput", "trials"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """One system whose verdict is known.

    Attributes
    ----------
    name, method, path : str
    expected, status : int
    error : float or None
        Largest error of the solution relative to NumPy's float64 one, where there is one.
    """

    name: str
    method: str
    path: str
    expected: int
    status: int
    error: float | None

    @property
    def ok(self) -> bool:
        """Whether verdict and solution are right."""
        return self.status == self.expected and (self.error is None or self.error < 1e-3)

    @property
    def verdict(self) -> str:
        """The status in words."""
        return results.describe_status(self.status, self.method)


@dataclass(frozen=True)
class Throughput:
    """Systems per second of one contender at one batch size; the median of the samples."""

    contender: str
    batch: int
    seconds: tuple[float, ...]

    @property
    def systems_per_second(self) -> float:
        """Of the median sample."""
        return self.batch / median(self.seconds)


def paths() -> tuple[str, ...]:
    """Return what this machine can run: the GPU's variants if there is a GPU, and the CPU."""
    return (("serial", "warp", "packed") if capability.missing() is None else ()) + ("cpu",)


def _solve(method: str, path: str, a: Any, b: Any) -> Any:
    module = cholesky if method == "cholesky" else lu
    suffix = "" if path in ("serial", "cpu") else f"_{path}"
    return getattr(module, f"{method}_solve_batched{suffix}")(a, b)


def _known() -> list[tuple[str, str, Array, int]]:
    spd = np.array([[4, 1, 2], [1, 3, 0], [2, 0, 5]], np.float32)
    nan = spd.copy()
    nan[2, 1] = np.nan
    skew = spd.copy()
    skew[0, 1] = 7
    tie = np.array([[2, 1, 1], [2, -1, 3], [-2, 1, 5]], np.float32)
    return [
        ("positive definite", "cholesky", spd, 0),
        ("semidefinite: rank one", "cholesky", np.ones((3, 3), np.float32), 2),
        ("indefinite", "cholesky", spd - 4 * np.eye(3, dtype=np.float32), 1),
        ("not symmetric", "cholesky", skew, -2),
        ("NaN below the diagonal", "cholesky", nan, -1),
        ("overflow on the way", "cholesky", np.array([[1e-30, 1e20], [1e20, 1]], np.float32), -3),
        ("general, equal candidates", "lu", tie, 0),
        ("needs a row exchange", "lu", np.array([[0, 1], [1, 0]], np.float32), 0),
        ("[[4, 4], [12, 12]]", "lu", np.array([[4, 4], [12, 12]], np.float32), 2),
        ("rows 1 2 3, 2 5 6, 3 6 9", "lu", np.array([[1, 2, 3], [2, 5, 6], [3, 6, 9]], np.float32), 3),
        ("entries of 1e-40", "lu", np.array([[1e-40, 1e-40], [0, 0]], np.float32), 2),
        ("entries of 1e30", "lu", np.float32(1e30) * tie, 0),
        ("infinity", "lu", np.array([[np.inf, 1], [1, 1]], np.float32), -1),
    ]


def trials() -> Iterator[Trial]:
    """Solve every known system on every path of this machine."""
    for path in paths():
        for name, method, matrix, expected in _known():
            a, b = matrix[None], np.ones((1, len(matrix), 1), np.float32)
            made = _solve(method, path, *_moved(path, a, b))
            status, x = (_host(v) for v in (made.status, made.solution))
            error = None
            if expected == 0:
                exact = np.linalg.solve(a.astype(np.float64), b.astype(np.float64))
                error = float(np.abs(x - exact).max() / np.abs(exact).max())
            yield Trial(name, method, path, expected, int(status[0]), error)


def _moved(path: str, a: Array, b: Array) -> tuple[Any, Any]:
    if path == "cpu":
        return a, b
    import cupy

    return cupy.asarray(a), cupy.asarray(b)


def _host(x: Any) -> Array:
    return x if isinstance(x, np.ndarray) else np.asarray(x.get())


def _inputs(method: str, n: int, nrhs: int, batch: int, dtype: Any) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    kinds = min(batch, 4096)  # repeated: making more random numbers would take longer than the test
    a = random.standard_normal((kinds, n, n)).astype(dtype)
    if method == "cholesky":
        a = a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=dtype)
        a = np.tril(a) + np.tril(a, -1).transpose(0, 2, 1)
    b = random.standard_normal((kinds, n, nrhs)).astype(dtype)
    take = np.arange(batch) % kinds
    return np.ascontiguousarray(a[take]), np.ascontiguousarray(b[take])


def throughput(
    method: str,
    n: int,
    nrhs: int,
    batches: tuple[int, ...],
    dtype: Any = "float32",
    samples: int = 5,
    started: Callable[[str, int], None] = lambda contender, batch: None,
) -> Iterator[Throughput]:
    """Time whole calls of every path and of NumPy's stacked solve, in turn, order swapped every sample.

    Parameters
    ----------
    method : {"cholesky", "lu"}
    n, nrhs : int
    batches : tuple of int
    dtype : dtype
    samples : int
        After one call that is not counted.
    started : callable
        Told of each contender and batch.

    Yields
    ------
    Throughput
    """
    for batch in batches:
        a, b = _inputs(method, n, nrhs, batch, dtype)
        contenders: dict[str, Callable[[], Any]] = {}
        for path in paths():
            contenders[path] = partial(_timed_call, method, path, *_moved(path, a, b))
        contenders["numpy"] = partial(np.linalg.solve, a, b)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for sample in range(samples + 1):
            for name in list(contenders) if sample % 2 else reversed(list(contenders)):
                started(name, batch)
                begin = perf_counter()
                contenders[name]()
                if sample:
                    times[name].append(perf_counter() - begin)
        for name, seconds in times.items():
            yield Throughput(name, batch, tuple(seconds))


def _timed_call(method: str, path: str, a: Any, b: Any) -> None:
    made = _solve(method, path, a, b)
    if path != "cpu":
        made.check_status()  # waits
