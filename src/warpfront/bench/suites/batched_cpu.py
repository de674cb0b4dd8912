"""Batched tiny solves on the CPU beside NumPy's stacked solve."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, suite

__all__ = ["compare", "inputs", "run"]


def inputs(method: str, batch: int, n: int, nrhs: int, dtype: Any) -> tuple[Any, Any]:
    """Return (a, b): random normal matrices, or well-conditioned positive definite ones for Cholesky."""
    random = np.random.default_rng(0)
    a = random.standard_normal((batch, n, n)).astype(dtype)
    if method == "cholesky":
        a = a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=dtype)
        a = np.tril(a) + np.tril(a, -1).transpose(0, 2, 1)
    return np.ascontiguousarray(a), random.standard_normal((batch, n, nrhs)).astype(dtype)


def compare(entry: dict[str, Any]) -> list[Comparison]:
    """Return the comparison of one entry of ``cases.toml``."""
    from warpfront import batched

    method, n, nrhs, batch = entry["method"], entry["n"], entry["nrhs"], entry["batch"]
    kind = np.dtype(entry["dtype"])
    solve: Any = getattr(batched, f"{method}_solve_batched")
    limit = 4 * n * float(np.finfo(kind).eps)

    def verify(state: tuple[Any, Any], output: Any) -> Verdict:
        a, b = (x.astype(np.float64) for x in state)
        x = output.astype(np.float64)
        size = np.abs(a).sum(axis=2).max(axis=1) * np.abs(x).max(axis=(1, 2)) + np.abs(b).max(axis=(1, 2))
        error = float((np.abs(b - a @ x).max(axis=(1, 2)) / size).max())
        return Verdict(error <= limit, error, limit, "" if error <= limit else "backward error")

    flops = batch * (2.0 if method == "lu" else 1.0) * n**3 / 3 + batch * 2.0 * n * n * nrhs
    cases = {
        "warpfront": Case(
            lambda: inputs(method, batch, n, nrhs, kind),
            lambda s: solve(*s).solution,
            verify,
            flops=flops,
            algorithm=f"{method}_solve_batched",
        ),
        "numpy": Case(
            lambda: inputs(method, batch, n, nrhs, kind),
            lambda s: np.linalg.solve(*s),
            verify,
            flops=flops,
            algorithm="linalg.solve, stacked",
        ),
    }
    shapes = {"n": n, "nrhs": nrhs, "batch": batch}
    return [
        Comparison(method, shapes, kind.name, "standard normal", ["warpfront"], cases, 0, {"numpy": "numpy"})
    ]


run = suite("batched_cpu", "batched_cpu", compare)
