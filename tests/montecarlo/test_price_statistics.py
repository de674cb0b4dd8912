"""Estimates are unbiased, and their errors are what they say: many seeds, known prices, cases of other libraries."""

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

from warpfront.montecarlo import AsianArithmetic, Barrier, European, _reference, closed_form, price

ATM = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
SEEDS = 200


def assert_standard_scores(z):
    """Mean within 4 deviations, variance within chi-square bounds of 1e-4, Kolmogorov-Smirnov above 1e-4."""
    z = np.asarray(z)
    n = len(z)
    assert abs(z.mean()) < 4 / np.sqrt(n)
    low, high = chi2.ppf([1e-4, 1 - 1e-4], n - 1) / (n - 1)
    assert low < z.var(ddof=1) < high
    assert kstest(z, "norm").pvalue > 1e-4


def assert_coverage(inside, count, level):
    low, high = binom.ppf([1e-4, 1 - 1e-4], count, level)
    assert low <= inside <= high, (inside, count, level)


@pytest.mark.parametrize(
    "method",
    [{}, {"antithetic": True}, {"control_variate": True}, {"antithetic": True, "control_variate": True}],
    ids=str,
)
def test_z_over_200_seeds(method):
    results = [price(European(**ATM), 1 << 15, seed=seed, **method)[0] for seed in range(SEEDS)]
    assert_standard_scores([e.z for e in results])
    inside = sum(e.confidence[0] <= e.exact <= e.confidence[1] for e in results)
    assert_coverage(inside, SEEDS, 0.95)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_confidence_intervals_cover(level):
    """2,000 independent streams of one call; put with dividends."""
    option = European(kind="put", **{**ATM, "strike": 95.0, "dividend_yield": 0.03})
    results = price([option] * 2000, 4096, streams="independent", level=level)
    assert_standard_scores(results.z)
    low, high = results.confidence.T
    assert_coverage(int(((low <= results[0].exact) & (results[0].exact <= high)).sum()), 2000, level)


@pytest.mark.parametrize("n_steps", [1, 2, 7, 12])
def test_m_steps_take_m_increments(n_steps):
    """Case 31: with M + 1 increments the price would be that of a longer maturity (8.02135 at K = 105)."""
    option = European(**{**ATM, "strike": 105.0}, n_steps=n_steps)
    assert closed_form.black_scholes(option) == pytest.approx(8.02135, abs=5e-6)
    results = price([option] * SEEDS, 1 << 15, streams="independent", seed=n_steps)
    assert_standard_scores(results.z)


def test_antithetic_error_is_that_of_pair_means():
    """Case 28: 2^20 paths; treating all of them as independent would say 0.01437."""
    found = price(European(**ATM), 1 << 20, antithetic=True)[0]
    assert found.standard_error == pytest.approx(0.01015, rel=0.01)
    assert found.n_samples == 1 << 19
    assert found.n_paths == 1 << 20
    assert price(European(**ATM), 1 << 20)[0].standard_error == pytest.approx(0.01437, rel=0.01)


def test_error_falls_with_the_square_root():
    counts = [1 << k for k in range(10, 21, 2)]
    rms = []
    for n in counts:
        z = price([European(**ATM)] * 60, n, streams="independent", seed=n)
        rms.append(np.sqrt(np.mean((np.asarray(z.price) - z[0].exact) ** 2)))
    slope = np.polyfit(np.log(counts), np.log(rms), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.05)


@pytest.mark.parametrize("sobol", [False, True])
def test_parity_on_the_same_paths(sobol):
    """call - put = S exp(-qT) - K exp(-rT), up to the error of the mean price."""
    market = {**ATM, "strike": 110.0, "dividend_yield": 0.04}
    n = 16 * 4096 if sobol else 1 << 18
    call, put = price(
        [European(**market), European(kind="put", **market)],
        n,
        sobol=sobol,
        **({"replicates": 16} if sobol else {}),
    )
    forward = 100 * np.exp(-0.04) - 110 * np.exp(-0.05)
    sd = 100 * np.exp(-0.04) * np.sqrt(np.expm1(0.04))
    assert abs(call.price - put.price - forward) < (0.01 if sobol else 4 * sd / np.sqrt(n))


def test_monotone_in_strike_and_volatility():
    strikes = price([European(**{**ATM, "strike": k}) for k in range(60, 160, 5)], 20_000).price
    assert (np.diff(strikes) < 0).all()
    vols = price(
        [European(**{**ATM, "volatility": v}) for v in np.linspace(0.05, 0.8, 16)], 20_000, antithetic=True
    )
    assert (np.diff(vols.price) > 0).all()


@pytest.mark.parametrize("kind", ["call", "put"])
@pytest.mark.parametrize("knock", ["up-and-out", "up-and-in", "down-and-out", "down-and-in"])
def test_barriers(kind, knock):
    """Discretely watched against carried densities, continuously watched against the method of images."""
    level = 125.0 if knock.startswith("up") else 85.0
    market = {**ATM, "kind": kind, "dividend_yield": 0.02, "n_steps": 4, "barrier": level, "knock": knock}
    discrete, continuous = Barrier(**market), Barrier(**market, monitoring="continuous")
    a, b = price([discrete, continuous], 1 << 19, seed=2, control_variate=True)
    expected = (
        _reference.discrete_barrier_price(discrete, 500),
        _reference.continuous_barrier_price(continuous),
    )
    assert abs(a.price - expected[0]) < 4.5 * a.standard_error
    assert abs(b.price - expected[1]) < 4.5 * b.standard_error
    assert abs(a.price - b.price) > 10 * a.standard_error  # the two really differ


@pytest.mark.parametrize("knock", ["up-and-out", "up-and-in", "down-and-out", "down-and-in"])
def test_z_of_controlled_barriers(knock):
    """Discretely watched, regressed on the same paths watched at every moment."""
    level = 125.0 if knock.startswith("up") else 90.0
    option = Barrier(**ATM, n_steps=6, barrier=level, knock=knock)
    expected = _reference.discrete_barrier_price(option)
    found = price([option] * SEEDS, 1 << 14, streams="independent", control_variate=True)
    assert_standard_scores((found.price - expected) / found.standard_error)
    assert found[0].variance_ratio > 1.5


@pytest.mark.parametrize("kind", ["call", "put"])
@pytest.mark.parametrize("n_steps", [1, 2, 12])
def test_asian_options(kind, n_steps):
    option = AsianArithmetic(**{**ATM, "strike": 103.0, "dividend_yield": 0.02}, kind=kind, n_steps=n_steps)
    expected = _reference.asian_price(option)
    plain, controlled = (price(option, 1 << 18, seed=4, control_variate=on)[0] for on in (False, True))
    assert abs(plain.price - expected) < 4.5 * plain.standard_error
    assert abs(controlled.price - expected) < 4.5 * controlled.standard_error + 1e-9
    assert controlled.variance_ratio > 500
    assert controlled.standard_error < plain.standard_error / 20


def test_z_of_controlled_averages():
    """The known mean of the geometric control is right to the error of the control, over 200 streams."""
    option = AsianArithmetic(**{**ATM, "n_steps": 5})
    expected = _reference.asian_price(option)
    results = price([option] * SEEDS, 1 << 14, streams="independent", control_variate=True, antithetic=True)
    assert_standard_scores((results.price - expected) / results.standard_error)


@pytest.mark.parametrize(
    "option",
    [European(**ATM), European(kind="put", n_steps=3, **{**ATM, "strike": 120.0})],
    ids=["call", "put"],
)
@pytest.mark.parametrize("method", [{}, {"antithetic": True}], ids=str)
def test_pathwise_greeks(option, method):
    delta, vega = closed_form.black_scholes_greeks(option)
    found = [price(option, 1 << 14, seed=seed, greeks=True, **method)[0] for seed in range(SEEDS)]
    assert_standard_scores([(e.delta - delta) / e.delta_error for e in found])
    assert_standard_scores([(e.vega - vega) / e.vega_error for e in found])


def test_greeks_of_an_average_are_those_of_bumped_prices():
    def value(**bump):
        return price(AsianArithmetic(**{**ATM, "n_steps": 6, **bump}), 1 << 19).price

    found = price(AsianArithmetic(**ATM, n_steps=6), 1 << 19, greeks=True)[0]
    assert found.delta == pytest.approx((value(spot=100.01) - value(spot=99.99)) / 0.02, abs=2e-4)
    assert found.vega == pytest.approx((value(volatility=0.2001) - value(volatility=0.1999)) / 2e-4, abs=2e-2)


def test_variance_at_a_large_mean():
    """Mean 1e6, deviation 100: sums of squares without a shift would keep no digit in float32, four in float64."""
    option = European(spot=1e6, strike=0.0, rate=0.0, volatility=1e-4, maturity=1.0)
    found = price(option, 1 << 20)[0]
    assert found.standard_error * 1024 == pytest.approx(100.0, rel=4 / np.sqrt(2 * 2**20))
    assert abs(found.z) < 4.5
    far = price(European(spot=1e9, strike=0.0, rate=0.0, volatility=1e-8, maturity=1.0), 1 << 20)[0]
    assert far.standard_error * 1024 == pytest.approx(10.0, rel=4 / np.sqrt(2 * 2**20))


@pytest.mark.parametrize("replicates", [16, 32])
def test_sobol_intervals_cover(replicates):
    """Case 32: the error comes from independent scrambles, and the interval covers."""
    found = [
        price(European(**ATM), replicates * 256, sobol=True, replicates=replicates, seed=s)[0]
        for s in range(SEEDS)
    ]
    inside = sum(e.confidence[0] <= e.exact <= e.confidence[1] for e in found)
    assert_coverage(inside, SEEDS, 0.95)
    assert {e.degrees_of_freedom for e in found} == {replicates - 1}
    assert abs(np.mean([e.z for e in found])) < 4 * np.std([e.z for e in found]) / np.sqrt(SEEDS)


def test_sobol_beats_pseudo_random_words():
    n = 16 * 8192
    option = AsianArithmetic(**ATM, n_steps=8)
    quasi, pseudo = price(option, n, sobol=True, replicates=16)[0], price(option, n)[0]
    assert quasi.standard_error < pseudo.standard_error / 10
    assert abs(quasi.price - _reference.asian_price(option)) < 5 * quasi.standard_error
