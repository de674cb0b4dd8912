"""Monte Carlo prices on the CPU: all threads and one thread, beside NumPy's generator and QuantLib's engines.

What counts as an answer: within five standard errors of the known price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites.generic import Comparison, installed, suite

__all__ = ["run"]

MARKET: dict[str, Any] = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
# Paths NumPy holds at a time: its arrays stay in cache.
_PIECE = 1 << 16


def _compare(entry: dict[str, Any]) -> list[Comparison]:
    from warpfront.montecarlo import European, price
    from warpfront.montecarlo.closed_form import black_scholes

    n, steps = entry["paths"], entry["steps"]
    option = European(**MARKET, n_steps=steps)
    exact = black_scholes(option)

    def judge(_: Any, found: float) -> Verdict:
        # 14.72: the deviation of the discounted payoff.
        z = abs(found - exact) / (14.72 / math.sqrt(n))
        return Verdict(z < 5, z, 5.0, "" if z < 5 else f"off by {z:.1f} standard errors", {"price": found})

    def case(work: Callable[[], float], algorithm: str) -> Case:
        return Case(lambda: None, lambda _: work(), judge, algorithm=algorithm)

    cases = {
        "warpfront": case(lambda: float(price(option, n, device="cpu").price), "Philox4x32-10, all threads"),
        "warpfront, one thread": case(lambda: _one_thread(option, n), "Philox4x32-10"),
        "numpy": case(lambda: _numpy(n, steps), "PCG64, ziggurat, one thread"),
    }
    packages = {"numpy": "numpy", "QuantLib": "QuantLib"}
    if installed("QuantLib"):
        cases["QuantLib"] = case(lambda: _quantlib(n, steps), "MCEuropeanEngine, PseudoRandom, one thread")
    ours = ["warpfront", "warpfront, one thread"]
    shapes = {"paths": n, "steps": steps}
    return [
        Comparison("European call", shapes, "float64", "geometric Brownian motion", ours, cases, 0, packages)
    ]


def _one_thread(option: Any, n: int) -> float:
    from warpfront.montecarlo import _host
    from warpfront.montecarlo._estimate import estimate_all
    from warpfront.montecarlo._run import Run, Settings, chunk_count
    from warpfront.montecarlo._tree import SumTree

    run, tree = Run.of((option,), Settings()), SumTree()
    _host.add_chunks(run, n, 0, chunk_count(n), tree, threads=1)
    return estimate_all(run, n, tree.total(chunk_count(n)), 0.95)[0].price


def _numpy(n: int, steps: int) -> float:
    rng, total = np.random.default_rng(0), 0.0
    step = MARKET["maturity"] / steps
    drift = (MARKET["rate"] - 0.5 * MARKET["volatility"] ** 2) * MARKET["maturity"]
    scale = MARKET["volatility"] * math.sqrt(step)
    for first in range(0, n, _PIECE):
        count = min(_PIECE, n - first)
        z = rng.standard_normal(count)
        for _ in range(steps - 1):
            z += rng.standard_normal(count)
        z *= scale
        z += drift
        np.exp(z, out=z)
        z *= MARKET["spot"]
        z -= MARKET["strike"]
        np.maximum(z, 0.0, out=z)
        total += float(z.sum())
    return math.exp(-MARKET["rate"] * MARKET["maturity"]) * total / n


def _quantlib(n: int, steps: int) -> float:
    import QuantLib as ql

    today, days = ql.Date(1, 1, 2026), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    flat = [ql.YieldTermStructureHandle(ql.FlatForward(today, r, days)) for r in (0.0, MARKET["rate"])]
    vol = ql.BlackConstantVol(today, ql.NullCalendar(), MARKET["volatility"], days)
    spot = ql.QuoteHandle(ql.SimpleQuote(MARKET["spot"]))
    process = ql.BlackScholesMertonProcess(spot, *flat, ql.BlackVolTermStructureHandle(vol))
    option = ql.VanillaOption(
        ql.PlainVanillaPayoff(ql.Option.Call, MARKET["strike"]), ql.EuropeanExercise(today + 365)
    )
    option.setPricingEngine(
        ql.MCEuropeanEngine(process, "PseudoRandom", timeSteps=steps, requiredSamples=n, seed=42)
    )
    return float(option.NPV())


run = suite("montecarlo_cpu", "montecarlo_cpu", _compare)
