"""Dense inverse, solve and determinant on the CPU, beside NumPy and SciPy, which call the same LAPACK.

What counts as an answer: a residual of at most 1e-10 relative to the sizes it is made of, and for the logarithm of the
determinant the sum over the pivots of SciPy's LU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, suite

__all__ = ["run"]

LIMIT = 1e-10


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    import scipy.linalg

    from warpfront import dense

    n = entry["n"]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, n)), rng.standard_normal(n)
    factors, _ = scipy.linalg.lu_factor(a)
    logarithm = float(np.log(np.abs(np.diag(factors))).sum())
    norm = float(np.abs(a).sum(axis=1).max())

    def inverse(_: Any, x: Any) -> Verdict:
        return _judged(np.abs(a @ x - np.eye(n)).max() / (norm * np.abs(x).max()))

    def solution(_: Any, x: Any) -> Verdict:
        return _judged(np.abs(a @ x - b).max() / (norm * np.abs(x).max()))

    def determinant(_: Any, found: Any) -> Verdict:
        return _judged(abs(float(found[1]) - logarithm) / abs(logarithm))

    third, matrix = n**3 / 3.0, 8.0 * n * n
    work: dict[str, tuple[dict[str, Callable[[], Any]], Any, float, float]] = {
        "inv": (
            {
                "warpfront": lambda: dense.inv(a),
                "numpy": lambda: np.linalg.inv(a),
                "scipy": lambda: scipy.linalg.inv(a),
            },
            inverse,
            6 * third,
            2 * matrix,
        ),
        "solve": (
            {
                "warpfront": lambda: dense.solve(a, b),
                "numpy": lambda: np.linalg.solve(a, b),
                "scipy": lambda: scipy.linalg.solve(a, b),
            },
            solution,
            2 * third,
            matrix,
        ),
        "slogdet": (
            {"warpfront": lambda: dense.slogdet(a), "numpy": lambda: np.linalg.slogdet(a)},
            determinant,
            2 * third,
            matrix,
        ),
    }
    found = []
    for operation, (calls, judge, flops, moved) in work.items():
        cases = {name: _case(call, judge, flops, moved) for name, call in calls.items()}
        packages = {name: name for name in calls if name != "warpfront"}
        found.append(Comparison(operation, {"n": n}, "float64", "normal", ["warpfront"], cases, 0, packages))
    return found


def _case(call: Callable[[], Any], judge: Any, flops: float, moved: float) -> Case:
    return Case(lambda: None, lambda _: call(), judge, flops=flops, bytes=moved)


def _judged(error: float) -> Verdict:
    fine = bool(error <= LIMIT)
    return Verdict(fine, float(error), LIMIT, "" if fine else f"error {error:.1e}")


run = suite("dense_cpu", "dense_cpu", _compare)
