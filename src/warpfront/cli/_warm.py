"""What ``warpfront warmup`` runs: small calls of every kind, each in a process of its own, to have their kernels cached.

Numba compiles on one core and keeps what it made on disk; two processes on two cores share that cache.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

__all__ = ["DTYPES", "JOBS", "Warmed", "jobs_of", "warm"]

DTYPES = ("float32", "float64", "complex64", "complex128")


def _solver(structure: str, dtype: str) -> None:
    """A solver through every phase, for one and for many right-hand sides."""
    import numpy as np
    from scipy import sparse

    from warpfront import DirectSolver

    line = sparse.diags_array([[-1.0] * 4, [2.5] * 5, [-1.0] * 4], offsets=[-1, 0, 1])
    a = sparse.csr_array(sparse.kron(line, sparse.eye_array(5)) + sparse.kron(sparse.eye_array(5), line))
    if structure == "S":
        a = sparse.csr_array(sparse.block_array([[a, sparse.eye_array(25)], [sparse.eye_array(25), None]]))
    if structure == "G":
        a = sparse.csr_array(a + sparse.triu(a, 1))
    a = a.astype(dtype)
    solver = DirectSolver(a)
    b = np.ones((a.shape[0], 5), dtype)
    solver.solve(b[:, 0])
    solver.refactorize(a.data)
    solver.solve(b)


def _orderings(_: str) -> None:
    """Those that only larger systems try."""
    import numpy as np

    from warpfront.sparse.analysis.dissection import level_set, multilevel

    for ordering in (level_set, multilevel):
        ordering(1, np.zeros(2, np.int64), np.zeros(0, np.int32))


def _dense(dtype: str) -> None:
    import numpy as np

    from warpfront import dense

    for n in (3, 100, 300):
        a = np.eye(n, dtype=dtype) * 2
        dense.solve(a, np.ones(n, dtype))
        dense.inv(a)


def _batched(dtype: str) -> None:
    import numpy as np

    from warpfront import batched

    a, b = np.stack([np.eye(4, dtype=dtype)] * 20), np.ones((20, 4, 1), dtype)
    batched.cholesky_solve_batched(a, b)
    batched.lu_solve_batched(a, b)


def _graph(_: str) -> None:
    from warpfront.graph import bfs, kronecker

    bfs(kronecker(8), 0)


def _image(_: str) -> None:
    import numpy as np

    from warpfront.image import edges

    edges(np.zeros((32, 32, 3), np.uint8))


def _montecarlo(_: str) -> None:
    from warpfront.montecarlo import European, price

    price(European(strike=100, spot=100, rate=0.05, volatility=0.2, maturity=1), 2**12)


def _attention(_: str) -> None:
    """Prefill, pages, decode and RoPE; float16 and bfloat16 are one, as their bits."""
    import numpy as np

    from warpfront.attention import PagedKVCache, RotaryEmbedding, apply_rope, decode, merge_states, prefill

    for dtype in ("float32", "float16"):
        q = np.ones((1, 2, 2, 8), dtype)
        rope = RotaryEmbedding(8)
        prefill(q, q, q)
        cache = PagedKVCache(2, 8, 2, 8, dtype)
        one = cache.allocate()
        cache.append(one, q, q, rope=rope)
        cache.append(cache.fork(one[0]), q[:, 0], q[:, 0])
        decode(apply_rope(q, np.zeros((1, 2), np.int64), rope)[:, -1], cache, one)
        merge_states(q, np.zeros((1, 2, 2), np.float32))


REAL, ANY, NONE = DTYPES[:2], DTYPES, ("float64",)
# room -> what is compiled -> (its dtypes, the call)
JOBS: dict[str, dict[str, tuple[tuple[str, ...], Callable[[str], None]]]] = {
    "sparse": {
        "ldlt": (ANY, lambda dtype: _solver("S", dtype)),
        "cholesky": (ANY, lambda dtype: _solver("SPD", dtype)),
        "lu": (ANY, lambda dtype: _solver("G", dtype)),
        "orderings": (NONE, _orderings),
    },
    "dense": {"lu": (ANY, _dense)},
    "attention": {"all": (NONE, _attention)},
    "batched": {"solve": (REAL, _batched)},
    "graph": {"bfs": (NONE, _graph)},
    "image": {"edges": (NONE, _image)},
    "montecarlo": {"price": (NONE, _montecarlo)},
}


class Warmed(NamedTuple):
    """One job that has run: what it was, how long it took, and what its process said where it failed."""

    room: str
    what: str
    dtype: str
    seconds: float
    error: str


def jobs_of(rooms: list[str], dtypes: list[str]) -> list[tuple[str, str, str]]:
    """Room, what and dtype of every job; a job that knows one dtype only runs whatever was asked for."""
    return [
        (room, what, dtype)
        for room in rooms
        for what, (known, _) in JOBS[room].items()
        for dtype in (known if known is NONE else [one for one in dtypes if one in known])
    ]


def warm(jobs: list[tuple[str, str, str]], processes: int) -> Iterator[Warmed]:
    """Run the jobs, each in a process of its own; yields them as they end, in order."""
    with ThreadPoolExecutor(processes) as pool:
        yield from pool.map(_in_process, jobs)


def _in_process(job: tuple[str, str, str]) -> Warmed:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "warpfront.cli._warm", *job],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.strip().splitlines()
    error = "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")
    return Warmed(*job, time.perf_counter() - start, error)


def _main(arguments: list[str]) -> Any:
    room, what, dtype = arguments
    JOBS[room][what][1](dtype)


if __name__ == "__main__":
    _main(sys.argv[1:])
