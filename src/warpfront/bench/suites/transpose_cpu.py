"""Transpose of one matrix on the CPU, into memory that is there, beside NumPy's copy of the transposed view."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, suite

__all__ = ["run"]


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    from warpfront.dense import transpose

    m, n, kind = entry["m"], entry["n"], np.dtype(entry["dtype"])
    made: list[Any] = []

    def make() -> tuple[Any, Any]:
        if not made:
            bits = np.random.default_rng(0).integers(0, 256, (m, n * kind.itemsize), np.uint8)
            made.append(bits.view(kind))
        return made[0], np.empty((n, m), kind)

    def verify(state: tuple[Any, Any], output: Any) -> Verdict:
        same = np.array_equal(output.view(np.uint8), np.ascontiguousarray(state[0].T).view(np.uint8))
        return Verdict(same, detail="" if same else "bits differ")

    def numpy_copy(state: tuple[Any, Any]) -> Any:
        np.copyto(state[1], state[0].T)
        return state[1]

    def plain_copy(state: tuple[Any, Any]) -> Any:
        np.copyto(state[1].reshape(m, n), state[0])
        return state[1]

    moved = 2.0 * m * n * kind.itemsize
    cases = {
        "warpfront": Case(
            make, lambda s: transpose(s[0], out=s[1]), verify, bytes=moved, algorithm="device cpu"
        ),
        "numpy": Case(make, numpy_copy, verify, bytes=moved, algorithm="copyto(out, a.T)"),
        "copy": Case(
            make, plain_copy, lambda s, o: Verdict(True), bytes=moved, algorithm="copyto, not transposed"
        ),
    }
    shapes = {"m": m, "n": n, "itemsize": kind.itemsize}
    packages = {"numpy": "numpy", "copy": "numpy"}
    return [
        Comparison(
            "transpose", shapes, kind.name, "random bits", ["warpfront"], cases, 0, packages, reference="copy"
        )
    ]


run = suite("transpose_cpu", "transpose_cpu", _compare)
