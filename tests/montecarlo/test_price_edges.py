"""What is refused and how, payoffs that are known beforehand, too few payers, tolerance, progress."""

import json
import math

import numpy as np
import pytest

from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.montecarlo import (
    AsianArithmetic,
    Barrier,
    European,
    FewPayersWarning,
    Settings,
    ToleranceNotReachedWarning,
    explain_price,
    merge,
    price,
)
from warpfront.montecarlo.options import Option

ATM = {"spot": 100.0, "strike": 100.0, "rate": 0.05, "volatility": 0.2, "maturity": 1.0}
FIELDS = ("spot", "strike", "rate", "volatility", "maturity", "dividend_yield")


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "100", None, 1j, [1.0], np.ones(2), True, 10**400]
)
def test_numbers_that_are_none(field, value):
    with pytest.raises(InvalidValueError, match=field):
        European(**{**ATM, field: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spot": 0.0}, "spot must be greater than 0"),
        ({"spot": -1.0}, "spot must be greater than 0"),
        ({"strike": -1.0}, "strike must be at least 0"),
        ({"volatility": -0.2}, "volatility must be at least 0"),
        ({"maturity": -1.0}, "maturity must be at least 0"),
        ({"kind": "straddle"}, 'kind must be "call" or "put"'),
        ({"n_steps": 0}, "n_steps must be from 1"),
        ({"n_steps": 2.5}, "n_steps must be an integer"),
        ({"n_steps": "3"}, "n_steps must be an integer"),
        ({"volatility": 100.0}, "leave the range of float64"),
        ({"volatility": 1e200}, "leave the range of float64"),
        ({"volatility": 1e200, "maturity": 0.0}, "leave the range of float64"),
        ({"rate": 900.0}, "leave the range of float64"),
        ({"spot": 1e300}, "leave the range of float64"),
        ({"strike": 1e-300}, "leave the range of float64"),
    ],
)
def test_options_that_are_none(changes, message):
    with pytest.raises(InvalidValueError, match=message):
        European(**{**ATM, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knock": "up"}, "knock must be one of up-and-out"),
        ({"monitoring": "weekly"}, "monitoring must be"),
        ({"barrier": -5}, "barrier must be greater than 0"),
        ({"barrier": math.nan}, "barrier must be finite"),
        ({"barrier": 100.0}, "must lie above the spot"),
        ({"barrier": 110.0, "knock": "down-and-in"}, "must lie below the spot"),
    ],
)
def test_barriers_that_are_none(changes, message):
    with pytest.raises(InvalidValueError, match=message):
        Barrier(**{**ATM, "barrier": 120.0, "knock": "up-and-out", **changes})


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ([], {"n_paths": 10}, "at least one payoff"),
        (3, {"n_paths": 10}, "sequence of them, got int"),
        ("call", {"n_paths": 10}, "options\\[0\\] must be European"),
        ([Option(**ATM)], {"n_paths": 10}, "got Option"),
        (European(**ATM), {}, "n_paths, or a tolerance"),
        (European(**ATM), {"n_paths": 0}, "n_paths must be from 1"),
        (European(**ATM), {"n_paths": -5}, "n_paths must be from 1"),
        (European(**ATM), {"n_paths": 1e12}, "n_paths must be from 1"),
        (European(**ATM), {"n_paths": 10.5}, "n_paths must be an integer"),
        (European(**ATM), {"n_paths": math.nan}, "n_paths must be an integer"),
        (European(**ATM), {"n_paths": math.inf}, "n_paths must be an integer"),
        (European(**ATM), {"n_paths": "many"}, "n_paths must be an integer"),
        (European(**ATM), {"n_paths": 11, "antithetic": True}, "even"),
        (European(**ATM), {"n_paths": 1000, "sobol": True}, "for example 1024"),
        (European(**ATM), {"tolerance": 0.0}, "tolerance must be greater than 0"),
        (European(**ATM), {"tolerance": "small"}, "tolerance must be a real number"),
        (European(**ATM), {"n_paths": 10, "level": 95}, "95% is 0.95"),
        (European(**ATM), {"n_paths": 10, "level": 0}, "level must be greater"),
        (European(**ATM), {"n_paths": 10, "seed": -1}, "seed must be from 0"),
        (European(**ATM), {"n_paths": 10, "seed": "x"}, "seed must be an integer"),
        (European(**ATM), {"n_paths": 10, "seed": 2**64}, "seed must be from 0"),
        (European(**ATM), {"n_paths": 10, "replicates": 4}, "replicates must be from 16"),
        (European(**ATM), {"n_paths": 10, "antithetic": 1}, "antithetic must be True or False"),
        (European(**ATM), {"n_paths": 10, "streams": "own"}, "streams must be"),
        (European(**ATM), {"n_paths": 10, "precision": "half"}, "precision must be"),
        (
            European(**ATM),
            {"n_paths": 10, "antithetc": True},
            "no option antithetc; there are seed, antithetic",
        ),
        (European(**ATM), {"n_paths": 10, "device": "gpu"}, "device must be"),
        (European(**ATM), {"n_paths": 10, "path": "sm_90"}, "path must be"),
    ],
)
def test_calls_that_are_refused(options, arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        price(options, **arguments)


def test_combinations_without_a_kernel():
    with pytest.raises(NotSupportedError, match="sobol points are not combined"):
        price(European(**ATM), 1024, sobol=True, antithetic=True)
    with pytest.raises(NotSupportedError, match="payoff jumps"):
        price(Barrier(**ATM, barrier=120, knock="up-and-in"), 1024, greeks=True)
    with pytest.raises(NotSupportedError, match="leave control_variate out"):
        price(
            Barrier(**{**ATM, "volatility": 1e-8}, barrier=120, knock="up-and-in"), 1024, control_variate=True
        )
    with pytest.raises(NotSupportedError, match="float64, not for float32"):
        price(European(**ATM), 1024, precision="float32", device="cpu")


def test_a_gpu_asked_for_and_absent_says_what_to_install():
    from warpfront.backend import capability

    if capability.missing() is None:
        pytest.skip("this machine has a GPU")
    for options in ({"device": "cuda"}, {"path": "portable"}):
        with pytest.raises(NotSupportedError, match="install"):
            price(European(**ATM), 1024, **options)
    assert [d.path for d in explain_price() if d.taken] == ["cpu"]
    found = price(European(**ATM), 1024)
    assert (found.device, found.path) == ("cpu", "cpu")
    assert "install" in found.decisions[0].reason


@pytest.mark.parametrize(
    "method", [{}, {"antithetic": True}, {"control_variate": True}, {"greeks": True}], ids=str
)
@pytest.mark.parametrize(
    "change", [{"maturity": 0.0}, {"volatility": 0.0}, {"maturity": 0.0, "volatility": 0.0}], ids=str
)
@pytest.mark.parametrize("strike", [90.0, 100.0, 120.0, 0.0])
@pytest.mark.parametrize("kind", ["call", "put"])
def test_payoffs_known_beforehand(kind, strike, change, method):
    """T = 0 and sigma = 0: the discounted payoff of the forward, no error, no warning, z 0."""
    market = {**ATM, "strike": strike, "kind": kind, "dividend_yield": 0.01, **change}
    time = market["maturity"]
    forward = 100 * np.exp((0.05 - 0.01) * time)
    expected = np.exp(-0.05 * time) * max((1 if kind == "call" else -1) * (forward - strike), 0.0)
    for n_steps in (1, 3):
        found = price(European(**market, n_steps=n_steps), 2000, **method)[0]
        assert found.price == pytest.approx(expected, abs=1e-11)
        assert found.standard_error == 0.0
        assert found.confidence == (found.price, found.price)
        assert found.z == 0.0
        assert not found.few_payers
        if method.get("greeks") and abs(forward - strike) > 1:
            pays = expected > 0
            assert found.delta == pytest.approx(
                (1 if kind == "call" else -1) * np.exp(-0.01 * time) * pays, abs=1e-12
            )


@pytest.mark.parametrize("monitoring", ["discrete", "continuous"])
@pytest.mark.parametrize(
    ("knock", "barrier"),
    [("up-and-out", 104.0), ("up-and-in", 104.0), ("up-and-out", 120.0), ("down-and-in", 90.0)],
)
def test_barriers_known_beforehand(monitoring, knock, barrier):
    """Without volatility the forward drifts to 105.1: it touches 104 and nothing else."""
    option = Barrier(
        **{**ATM, "strike": 100.0, "volatility": 0.0},
        barrier=barrier,
        knock=knock,
        monitoring=monitoring,
        n_steps=4,
    )
    touched = barrier == 104.0
    in_force = touched if option.knock_in else not touched
    found = price(option, 3000)[0]
    assert found.price == pytest.approx((100 - 100 * np.exp(-0.05)) * in_force, abs=1e-11)
    assert found.standard_error == 0.0
    assert found.z == 0.0


def test_average_known_beforehand():
    option = AsianArithmetic(**{**ATM, "volatility": 0.0}, n_steps=5)
    mean = 100 * np.mean(np.exp(0.05 * np.arange(1, 6) / 5))
    found = price(option, 100, control_variate=True)[0]
    assert found.price == pytest.approx(np.exp(-0.05) * (mean - 100), abs=1e-11)
    assert found.z == 0.0


def test_deep_out_of_the_money_warns():
    """Research case: at K = 250 some 3 of 2^20 paths pay."""
    with pytest.warns(FewPayersWarning, match="fewer than 30"):
        found = price(European(**{**ATM, "strike": 250.0}), 1 << 20)[0]
    assert 0 <= found.paying_paths < 30
    assert found.few_payers
    with pytest.warns(FewPayersWarning, match="only 0 of"):
        nothing = price(European(**{**ATM, "strike": 600.0}), 1 << 16)[0]
    assert (nothing.price, nothing.standard_error, nothing.z) == (pytest.approx(0.0, abs=1e-12), 0.0, None)


def test_few_payers_never_meet_a_tolerance():
    """An error of 0 because nothing was seen is no convergence."""
    with pytest.warns() as caught:
        found = price(European(**{**ATM, "strike": 600.0}), 1 << 20, tolerance=1e-6)
    assert {w.category for w in caught} == {FewPayersWarning, ToleranceNotReachedWarning}
    assert found.converged is False
    assert found.n_paths == 1 << 20


@pytest.mark.parametrize(
    "method", [{}, {"antithetic": True}, {"control_variate": True}, {"sobol": True}], ids=str
)
def test_tolerance(method):
    found = price([European(**ATM), European(kind="put", **ATM)], tolerance=0.01, **method)
    assert found.converged
    assert all(e.half_width <= 0.01 for e in found)
    fixed = price([European(**ATM), European(kind="put", **ATM)], found.n_paths, **method)
    assert fixed.estimates == found.estimates  # the same bits as asking for that number of paths
    assert found.n_paths < 40_000_000


def test_tolerance_that_cannot_be_met_says_so():
    with pytest.warns(ToleranceNotReachedWarning, match="100000 paths did not reach the tolerance 0.0001"):
        found = price(European(**ATM), 100_000, tolerance=1e-4)
    assert found.converged is False
    assert found.n_paths == 100_000


def test_a_single_sample_has_no_known_error():
    for method in ({}, {"control_variate": True}, {"greeks": True}):
        with pytest.warns(FewPayersWarning):
            found = price(European(**ATM), 1, **method)[0]
        assert math.isnan(found.standard_error)
        assert found.degrees_of_freedom == 0
        assert not found.confidence[0] > -math.inf


def test_progress_tells_and_changes_nothing():
    steps = []
    option = European(**ATM)
    with_progress = price(option, 3_000_000, progress=steps.append)
    assert with_progress.estimates == price(option, 3_000_000).estimates
    assert [s.paths_done for s in steps] == sorted({s.paths_done for s in steps})
    assert steps[-1].paths_done == steps[-1].paths_total == 3_000_000
    assert steps[-1].estimates == with_progress.estimates
    assert len(steps) >= 10
    early = price(option, steps[3].paths_done)
    assert early.estimates == steps[3].estimates


@pytest.mark.parametrize("scale", [1e-130, 1e-20, 1e20, 1e130])
def test_prices_of_any_size(scale):
    """Price and error scale with spot and strike to the ends of the range: no square overflows or vanishes."""
    one = price(European(**ATM), 50_000, greeks=True)[0]
    big = price(European(**{**ATM, "spot": 100 * scale, "strike": 100 * scale}), 50_000, greeks=True)[0]
    assert big.price == pytest.approx(one.price * scale, rel=1e-12)
    assert big.standard_error == pytest.approx(one.standard_error * scale, rel=1e-9)
    assert big.delta == pytest.approx(one.delta, rel=1e-12)
    assert big.z == pytest.approx(one.z, rel=1e-6)


def test_float32_has_its_own_range():
    with pytest.raises(InvalidValueError, match="float32 holds 80"):
        price(European(**{**ATM, "spot": 1e37}), 1000, precision="float32")


def test_shape_of_the_result():
    one, many = price(European(**ATM), 5000), price([European(**ATM)] * 3, 5000, greeks=True)
    assert isinstance(one.price, float)
    assert many.price.shape == many.delta.shape == (3,)
    assert many.confidence.shape == (3, 2)
    assert len(many) == 3
    assert list(many) == [many[0], many[1], many[2]]
    assert one[0].price == many[0].price
    text = json.dumps(many.to_dict())
    assert json.loads(text)["estimates"][0]["option"]["payoff"] == "European"


def test_settings_are_checked_when_made():
    assert Settings(seed=np.int64(5)).seed == 5
    with pytest.raises(InvalidValueError, match="something else"):
        merge([])
