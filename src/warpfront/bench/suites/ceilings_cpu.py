"""What bounds every other benchmark on a CPU: a copy far larger than the caches, a matrix product by the BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, suite

__all__ = ["run"]


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    n, kind = entry["n"], np.dtype(entry["dtype"])
    if entry["kind"] == "copy":

        def make_copy() -> tuple[Any, Any]:
            return np.ones(n, kind), np.zeros(n, kind)

        def copy(state: tuple[Any, Any]) -> Any:
            np.copyto(state[1], state[0])
            return state[1]

        case = Case(make_copy, copy, lambda s, o: Verdict(bool(o[-1] == 1)), bytes=2.0 * n * kind.itemsize)
        return [
            Comparison(
                "copy",
                {"n": n},
                kind.name,
                "ones",
                [],
                {"numpy copyto": case},
                None,
                {"numpy copyto": "numpy"},
            )
        ]

    def make_product() -> tuple[Any, Any]:
        rng = np.random.default_rng(0)
        return rng.standard_normal((n, n)).astype(kind), rng.standard_normal((n, n)).astype(kind)

    product = Case(
        make_product,
        lambda s: s[0] @ s[1],
        lambda s, o: Verdict(bool(np.isfinite(o).all())),
        flops=2.0 * n**3,
        bytes=3.0 * n * n * kind.itemsize,
    )
    names = {"numpy matmul": "numpy"}
    cases = {"numpy matmul": product}
    return [Comparison("matrix product", {"n": n}, kind.name, "normal", [], cases, 0, names)]


run = suite("ceilings_cpu", "ceilings_cpu", _compare)
