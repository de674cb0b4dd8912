"""Round-robin timing on made-up contenders: order, samples, first call apart, verdicts, what fails."""

import time

import pytest

from warpfront.bench.case import Case, NotOffered, Verdict
from warpfront.bench.timing import Timing, percentile, time_round_robin
from warpfront.errors import InvalidValueError


def case(run, *, make=lambda: None, ok=True, **more):
    return Case(make, run, lambda state, output: Verdict(ok, 0.5, 1.0, "" if ok else "off"), **more)


def test_every_contender_gets_every_round_and_the_order_changes():
    log = []
    cases = {name: case(lambda _, name=name: log.append(name)) for name in "abc"}
    times = time_round_robin(cases, rounds=6, warmup=0, shortest_sample=0)
    assert log[:3] == ["a", "b", "c"]  # the first calls
    rounds = [tuple(log[3 + 3 * k : 6 + 3 * k]) for k in range(6)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 2
    assert {name: (found.status, len(found.seconds)) for name, found in times.items()} == {
        name: ("ok", 6) for name in "abc"
    }


def test_samples_measure_the_call_and_nothing_else():
    def slow_make():
        time.sleep(0.05)
        return 7

    outputs = []

    def verify(state, output):
        time.sleep(0.05)
        outputs.append((state, output))
        return Verdict(True)

    def run(state):
        time.sleep(0.01)
        return state + 1

    found = time_round_robin({"a": Case(slow_make, run, verify)}, rounds=4, warmup=2)["a"]
    assert outputs == [(7, 8), (7, 8)]  # the first output and the last one timed
    assert 0.01 <= found.minimum <= found.median <= found.p95 < 0.04
    assert found.warmup == 2
    assert found.calls_per_sample == 1
    assert 0.01 <= found.first_call_seconds < 0.04
    assert len(found.cpu_seconds) == 4
    assert max(found.cpu_seconds) < 0.01  # it slept


def test_a_slow_first_call_stays_out_of_the_samples():
    calls = []

    def run(_):
        calls.append(None)
        time.sleep(0.1 if len(calls) == 1 else 0.001)

    found = time_round_robin({"a": case(run)}, rounds=5)["a"]
    assert found.first_call_seconds >= 0.1
    assert found.p95 < 0.05


def test_compilation_is_taken_out_of_the_first_call():
    numba = pytest.importorskip("numba")

    @numba.njit
    def twice(value):
        return 2 * value

    found = time_round_robin({"a": case(lambda _: twice(3))}, rounds=2)["a"]
    assert found.first_call_jit_seconds > 0.01
    assert found.first_call_seconds < found.first_call_jit_seconds
    assert found.jit_seconds == 0


def test_short_calls_are_timed_several_together():
    found = time_round_robin({"a": case(lambda _: None)}, rounds=3, shortest_sample=1e-3)["a"]
    assert found.calls_per_sample > 100
    assert found.median < 1e-4


def test_reset_runs_before_each_call_but_the_first_and_is_not_timed():
    log = []

    def reset(_):
        log.append("reset")
        time.sleep(0.02)

    found = time_round_robin(
        {"a": case(lambda _: log.append("run"), reset=reset)}, rounds=2, warmup=1, shortest_sample=1.0
    )["a"]
    assert log == ["run", "reset", "run", "reset", "run", "reset", "run"]
    assert found.calls_per_sample == 1
    assert found.p95 < 0.02


def test_what_does_not_verify_is_wrong_and_keeps_its_times():
    found = time_round_robin({"a": case(lambda _: None, ok=False), "b": case(lambda _: None)}, rounds=2)
    assert (found["a"].status, found["a"].detail, len(found["a"].seconds)) == ("wrong", "off", 2)
    assert found["a"].verdict.error == 0.5
    assert found["b"].status == "ok"


def test_an_output_that_goes_wrong_later_is_found():
    calls = []

    def run(_):
        calls.append(None)
        return len(calls)

    verdicts = Case(lambda: None, run, lambda _, output: Verdict(output == 1, detail="changed"))
    found = time_round_robin({"a": verdicts}, rounds=3)["a"]
    assert (found.status, found.detail) == ("wrong", "changed")


def failing(error, at):
    calls = []

    def run(_):
        calls.append(None)
        if len(calls) >= at:
            raise error

    return run


@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_contender_that_raises_is_reported_and_the_others_go_on(at):
    cases = {"bad": case(failing(RuntimeError("no\n pivot"), at)), "good": case(lambda _: None)}
    found = time_round_robin(cases, rounds=4, shortest_sample=0)
    assert (found["bad"].status, found["bad"].detail) == ("failed", "RuntimeError: no pivot")
    assert len(found["good"].seconds) == 4


def test_a_failure_to_make_is_the_contenders_own():
    def make():
        raise OSError("no library")

    found = time_round_robin({"a": case(lambda _: None, make=make)}, rounds=1)["a"]
    assert (found.status, found.first_call_seconds) == ("failed", None)


def test_an_operation_that_is_not_offered_is_no_failure():
    found = time_round_robin({"a": case(failing(NotOffered("no such phase"), 1))}, rounds=1)["a"]
    assert (found.status, found.detail) == ("not offered", "no such phase")


def test_budget_stops_sampling_and_a_first_call_beyond_it_is_the_sample():
    def run(_):
        time.sleep(0.02)

    few = time_round_robin({"a": case(run)}, rounds=50, budget=0.05)["a"]
    assert 1 <= len(few.seconds) <= 4
    once = time_round_robin({"a": case(run)}, rounds=50, budget=0.01)["a"]
    assert once.seconds == (once.first_call_seconds,)
    assert once.warmup == 0


def test_release_runs_even_after_a_failure():
    released = []
    cases = {
        "a": case(failing(RuntimeError("x"), 1), make=lambda: "a", release=released.append),
        "b": case(lambda _: None, make=lambda: "b", release=released.append),
    }
    time_round_robin(cases, rounds=1)
    assert released == ["a", "b"]


@pytest.mark.parametrize(("rounds", "warmup"), [(0, 1), (1, -1)])
def test_numbers_out_of_range_are_refused(rounds, warmup):
    with pytest.raises(InvalidValueError, match="allowed"):
        time_round_robin({"a": case(lambda _: None)}, rounds=rounds, warmup=warmup)


def test_nothing_to_time_is_refused():
    with pytest.raises(InvalidValueError, match="nothing"):
        time_round_robin({})


def test_percentile_agrees_with_numpy():
    numpy = pytest.importorskip("numpy")
    samples = tuple(numpy.random.default_rng(1).random(23))
    for percent in (0, 5, 50, 95, 100):
        assert percentile(samples, percent) == pytest.approx(numpy.percentile(samples, percent), rel=1e-12)
    assert percentile((3.0,), 95) == 3.0


def test_statistics_of_no_samples_are_none():
    empty = Timing("failed")
    assert (empty.median, empty.p95, empty.minimum) == (None, None, None)
