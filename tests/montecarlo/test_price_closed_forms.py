"""Closed forms against integrals of densities, textbook values and QuantLib."""

import numpy as np
import pytest

from warpfront.montecarlo import AsianArithmetic, Barrier, European, _reference, closed_form
from warpfront.montecarlo.options import KNOCKS

MARKETS = [
    {"spot": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0, "dividend_yield": 0.02},
    {"spot": 90.0, "rate": -0.01, "volatility": 0.6, "maturity": 0.3},
    {"spot": 110.0, "rate": 0.08, "volatility": 0.1, "maturity": 5.0, "dividend_yield": 0.12},
]
BARRIERS = [(knock, level) for knock in KNOCKS for level in ((115, 140) if knock[:2] == "up" else (70, 85))]


@pytest.mark.parametrize("kind", ["call", "put"])
@pytest.mark.parametrize("market", MARKETS, ids=str)
@pytest.mark.parametrize("strike", [80.0, 100.0, 130.0])
def test_european(kind, market, strike):
    option = European(kind=kind, strike=strike, **market)
    assert closed_form.black_scholes(option) == pytest.approx(_reference.european_price(option), abs=1e-9)


@pytest.mark.parametrize("kind", ["call", "put"])
@pytest.mark.parametrize("market", MARKETS, ids=str)
@pytest.mark.parametrize(("knock", "level"), BARRIERS)
def test_continuous_barrier(kind, market, knock, level):
    for strike in (75.0, 100.0, 145.0):
        option = Barrier(
            kind=kind, strike=strike, barrier=level, knock=knock, monitoring="continuous", **market
        )
        expected = _reference.continuous_barrier_price(option, 4001)
        assert closed_form.continuous_barrier(option) == pytest.approx(expected, abs=1e-7)


def test_textbook_values():
    """Hull, "Options, Futures, and Other Derivatives": a call at 4.76, a put at 0.81; an index call at 51.83."""
    stock = {"spot": 42.0, "strike": 40.0, "rate": 0.1, "volatility": 0.2, "maturity": 0.5}
    assert closed_form.black_scholes(European(**stock)) == pytest.approx(4.76, abs=0.005)
    assert closed_form.black_scholes(European(kind="put", **stock)) == pytest.approx(0.81, abs=0.005)
    index = European(spot=930, strike=900, rate=0.08, volatility=0.2, maturity=2 / 12, dividend_yield=0.03)
    assert closed_form.black_scholes(index) == pytest.approx(51.83, abs=0.005)


@pytest.mark.parametrize("market", MARKETS, ids=str)
def test_greeks_are_the_derivatives(market):
    for kind in ("call", "put"):
        h = 1e-4

        def value(kind=kind, **bump):
            changed = {**market, **bump}
            return closed_form.black_scholes(European(kind=kind, strike=100.0, **changed))

        delta, vega = closed_form.black_scholes_greeks(European(kind=kind, strike=100.0, **market))
        spot, vol = market["spot"], market["volatility"]
        assert delta == pytest.approx((value(spot=spot + h) - value(spot=spot - h)) / (2 * h), abs=1e-7)
        assert vega == pytest.approx(
            (value(volatility=vol + h) - value(volatility=vol - h)) / (2 * h), rel=1e-5
        )


def test_geometric_average_of_one_date_is_european():
    for market in MARKETS:
        option = AsianArithmetic(strike=100.0, **market)
        assert closed_form.geometric_asian(option) == pytest.approx(
            closed_form.black_scholes(option), rel=1e-12
        )


@pytest.mark.parametrize("vol", [1e-9, 1e-5, 1e-3, 3.0])
@pytest.mark.parametrize(("knock", "level"), BARRIERS)
def test_barriers_at_extreme_volatility(vol, knock, level):
    """No overflow, and within the bounds that hold for every model."""
    for kind in ("call", "put"):
        market = {**MARKETS[0], "volatility": vol}
        option = Barrier(
            kind=kind, strike=100.0, barrier=level, knock=knock, monitoring="continuous", **market
        )
        assert (
            0.0 <= closed_form.continuous_barrier(option) <= closed_form.black_scholes(option) * (1 + 1e-12)
        )
        assert (closed_form.exact_price(option) is None) == (vol < 1e-6)


def test_quantlib():
    ql = pytest.importorskip("QuantLib")
    today = ql.Date(1, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    days = ql.Actual365Fixed()
    for given in MARKETS:
        years = round(given["maturity"] * 365) / 365
        market = {**given, "maturity": years}
        flat = [
            ql.YieldTermStructureHandle(ql.FlatForward(today, rate, days))
            for rate in (market.get("dividend_yield", 0.0), market["rate"])
        ]
        vol = ql.BlackVolTermStructureHandle(
            ql.BlackConstantVol(today, ql.NullCalendar(), market["volatility"], days)
        )
        process = ql.BlackScholesMertonProcess(ql.QuoteHandle(ql.SimpleQuote(market["spot"])), *flat, vol)
        exercise = ql.EuropeanExercise(today + round(years * 365))
        for kind, code in (("call", ql.Option.Call), ("put", ql.Option.Put)):
            payoff = ql.PlainVanillaPayoff(code, 100.0)
            plain = ql.VanillaOption(payoff, exercise)
            plain.setPricingEngine(ql.AnalyticEuropeanEngine(process))
            option = European(kind=kind, strike=100.0, **market)
            assert closed_form.black_scholes(option) == pytest.approx(plain.NPV(), abs=1e-10)
            for knock, level in BARRIERS:
                code_of = {"up-and-out": ql.Barrier.UpOut, "up-and-in": ql.Barrier.UpIn}
                code_of |= {"down-and-out": ql.Barrier.DownOut, "down-and-in": ql.Barrier.DownIn}
                theirs = ql.BarrierOption(code_of[knock], level, 0.0, payoff, exercise)
                theirs.setPricingEngine(ql.AnalyticBarrierEngine(process))
                ours = Barrier(
                    kind=kind, strike=100.0, barrier=level, knock=knock, monitoring="continuous", **market
                )
                assert closed_form.continuous_barrier(ours) == pytest.approx(theirs.NPV(), abs=1e-8)


def test_reference_integrals_agree_with_a_second_resolution():
    market = MARKETS[0]
    barrier = Barrier(strike=100.0, barrier=130, knock="up-and-out", n_steps=6, **market)
    assert np.isclose(
        _reference.discrete_barrier_price(barrier, 300),
        _reference.discrete_barrier_price(barrier, 400),
        atol=1e-9,
    )
    asian = AsianArithmetic(strike=100.0, n_steps=6, **market)
    assert np.isclose(_reference.asian_price(asian, 400), _reference.asian_price(asian, 600), atol=1e-7)
