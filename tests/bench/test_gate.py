"""The gate on made-up samples whose truth is known: it finds slowdowns, and noise of many kinds does not raise it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from warpfront.bench import gate, record
from warpfront.bench.collect import collected, refused
from warpfront.bench.record import Record, Row
from warpfront.cli.main import main

MILLI = 1e-3


def measured(samples, **more):
    return collected(list(samples), clock="wall", version=more.pop("version", "1"), **more)


def of(row_of, **changes):
    """A record with one row of contenders."""
    row = Row("case", "work", {"n": 5}, "float64", "made up", 0, ["ours"], row_of)
    whole = Record(record.SCHEMA, "test", "a-cpu", "2026-01-01T00:00:00Z", {}, {}, {"threads": 2}, [row])
    return replace(whole, **changes)


def noise(rng, kind, count=15):
    """Relative times around 1: what machines do."""
    if kind == "quiet":
        return 1 + 0.005 * rng.standard_normal(count)
    if kind == "noisy":
        return np.exp(0.05 * rng.standard_normal(count))
    if kind == "bimodal":
        return np.where(rng.random(count) < 0.5, 1.0, 1.15) * (1 + 0.005 * rng.standard_normal(count))
    if kind == "drift":
        return np.linspace(1, 1.1, count) * (1 + 0.005 * rng.standard_normal(count))
    if kind == "outliers":
        return np.where(rng.random(count) < 0.1, 3.0, 1.0) * (1 + 0.005 * rng.standard_normal(count))
    return np.exp(0.1 * np.abs(rng.standard_cauchy(count)).clip(0, 20))  # heavy tail


KINDS = ("quiet", "noisy", "bimodal", "drift", "outliers", "heavy tail")


def verdicts(kind, factor, seed, trials=200, count=15):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        base, new = (measured(MILLI * noise(rng, kind, count)) for _ in range(2))
        slower = measured([factor * value for value in new.seconds])
        found.append(gate.judge(base, slower).verdict)
    return {name: found.count(name) for name in dict.fromkeys(found)}


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_equal_pairs_raise_next_to_no_alarm(kind):
    found = verdicts(kind, 1.0, 1)
    assert found.get("slow", 0) <= 1, found  # half a percent
    assert found.get("ambiguous", 0) <= 12, found


def test_a_slowdown_of_a_tenth_is_found_on_a_quiet_machine():
    assert verdicts("quiet", 1.1, 2) == {"slow": 200}


def test_a_slowdown_is_never_passed_off_as_faster():
    for kind in KINDS:
        assert verdicts(kind, 1.3, 3).get("faster", 0) == 0


def pairs_on_a_drifting_machine(factor, seed, trials=200, count=15):
    """The machine's speed wanders by tenths, and both samples of a pair see the same of it."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(trials):
        machine = MILLI * np.exp(np.cumsum(0.05 * rng.standard_normal(count)))
        sides = (machine * factor_of * noise(rng, "quiet", count) for factor_of in (1.0, factor))
        found.append(gate.judge(*(measured(side, values={"pairing": "now"}) for side in sides)).verdict)
    return {name: found.count(name) for name in dict.fromkeys(found)}


def test_pairs_show_a_tenth_on_a_machine_that_drifts():
    """Its 95th percentiles follow the machine, so some runs ask for another; none passes, and equal ones do."""
    found = pairs_on_a_drifting_machine(1.1, 5)
    assert found["slow"] >= 180, found
    assert found["slow"] + found.get("ambiguous", 0) == 200, found
    assert pairs_on_a_drifting_machine(1.0, 6).get("slow", 0) == 0


def test_pairs_of_several_processes_know_what_processes_differ_by():
    """Each process is quiet in itself, and one of three is a fifth slower on one side: memory that lies elsewhere."""
    base = measured([1e-3] * 21, values={"pairing": "now", "processes": [1e-3] * 3})
    apart = [1.2e-3, 1.02e-3, 1.2e-3]
    samples = [value for value in apart for _ in range(7)]
    found = gate.judge(base, measured(samples, values={"pairing": "now", "processes": apart}))
    assert found.floor == pytest.approx(3 * 0.18 / 1.2 / 2)
    assert found.verdict == "ambiguous"
    assert gate.judge(base, measured(samples, values={"pairing": "now"})).verdict == "slow"


def test_samples_that_were_not_taken_together_are_no_pairs():
    base = measured([1e-3, 2e-3] * 8, values={"pairing": "then"})
    for values in ({"pairing": "now"}, {}):
        found = gate.judge(base, measured([1.1e-3, 2.2e-3] * 8, values=values))
        assert found.verdict != "slow", found
    assert gate.judge(base, measured([1.1e-3, 2.2e-3] * 8, values={"pairing": "then"})).verdict == "slow"


def test_a_large_slowdown_is_found_among_outliers_and_drift():
    """Outliers of the base lift its 95th percentile: the rule then asks for another run, it does not pass."""
    for kind in ("outliers", "drift", "noisy"):
        found = verdicts(kind, 1.6, 4)
        assert found.get("slow", 0) >= 100, (kind, found)
        assert found.get("slow", 0) + found.get("ambiguous", 0) >= 195, (kind, found)


def test_single_slow_samples_are_no_slowdown():
    base = measured([1e-3] * 15)
    tail = measured([1e-3] * 13 + [9e-3, 8e-3])
    found = gate.judge(base, tail)
    assert (found.verdict, found.ratio) == ("same", 1.0)
    assert found.p95_ratio > 5


def test_what_is_short_is_judged_by_the_clocks_resolution():
    base, new = measured([1e-5] * 15), measured([1.1e-5] * 15)
    assert gate.judge(base, new).verdict == "same"
    assert gate.judge(base, new).floor == pytest.approx(0.15)
    assert gate.judge(base, measured([1.2e-5] * 15)).verdict == "slow"


def test_the_spread_between_processes_counts():
    apart = measured([1e-3] * 15, values={"processes": [1e-3, 1.06e-3]})
    assert gate.spread(apart) == pytest.approx(0.06)
    found = gate.judge(apart, measured([1.15e-3] * 15))
    assert found.floor == pytest.approx(0.18)
    assert (found.verdict, found.reason) == ("ambiguous", "1.15 x the time, within a noise floor of 18%")
    assert gate.judge(apart, measured([1.04e-3] * 15)).verdict == "same"


def test_a_loud_machine_says_ambiguous_rather_than_same():
    found = verdicts("noisy", 1.1, 2)
    assert found.get("slow", 0) + found["ambiguous"] >= 150, found
    assert verdicts("drift", 1.1, 2).get("same", 0) == 0


def test_doubts_make_it_ambiguous_and_say_why():
    base = measured([1e-3] * 15)
    assert "fewer than 5 samples" in gate.judge(base, measured([1.2e-3] * 3)).reason
    half = measured([1e-3, 1.2e-3] * 7 + [1.2e-3])
    assert gate.judge(half, measured([1.3e-3] * 4 + [1.0e-3] * 3)).verdict in ("same", "ambiguous")
    tail = measured([1e-3] * 10 + [2e-3] * 5)
    found = gate.judge(tail, measured([1.9e-3] * 15))
    assert found.verdict == "same" or "P95" in found.reason or "overlap" in found.reason


def test_a_peer_that_moved_along_tells_of_the_machine():
    base = of({"ours": measured([1e-3] * 15), "peer": measured([2e-3] * 15)})
    slow = {"ours": measured([1.2e-3] * 15), "peer": measured([2.4e-3] * 15)}
    found = gate.gate(base, of(slow))
    assert found.verdict == "ambiguous"
    assert "peer became 1.20 x in the same run: the machine" in found.rows[0].reason
    newer = {**slow, "peer": measured([2.4e-3] * 15, version="2")}
    assert gate.gate(base, of(newer)).verdict == "slow"
    steady = {**slow, "peer": measured([2e-3] * 15)}
    assert gate.gate(base, of(steady)).verdict == "slow"


def test_other_machines_and_other_problems_never_pass():
    base = of({"ours": measured([1e-3] * 15)})
    for other, text in (
        (of({"ours": measured([1e-3] * 15)}, fingerprint={"threads": 4}), "threads differs"),
        (of({"ours": measured([1e-3] * 15)}, device="b-cpu"), "device is 'a-cpu' and 'b-cpu'"),
        (of({"ours": measured([1e-3] * 15)}, compile_options={"fast": True}), "compile_options"),
    ):
        found = gate.gate(base, other)
        assert (found.verdict, found.exit_code) == ("incomparable", 3)
        assert text in found.reasons[0]
    gpu = {"threads": 2, "gpu": {"board": {"model": "B"}}}
    assert gate.gate(base, of({"ours": measured([1e-3])}, fingerprint=gpu)).exit_code == 3
    row = base.rows[0]
    assert gate.gate(base, replace(base, rows=[replace(row, seed=1)])).exit_code == 3
    assert gate.gate(base, replace(base, rows=[replace(row, dtype="float32")])).exit_code == 3
    assert gate.gate(base, replace(base, rows=[])).exit_code == 3
    assert gate.gate(replace(base, rows=[]), base).exit_code == 3
    device = {"ours": measured([1e-3] * 15)}
    device["ours"] = replace(device["ours"], clock="device")
    assert gate.gate(base, of(device)).exit_code == 3


def test_rows_of_one_name_are_told_apart_by_their_type():
    quick, slow = ({"ours": measured([t] * 15)} for t in (1e-3, 2e-3))
    base = of(quick)
    both = replace(base, rows=[base.rows[0], replace(base.rows[0], dtype="float32", contenders=slow)])
    assert gate.gate(both, both).verdict == "same"


def test_an_output_that_is_no_longer_right_is_slow():
    base = of({"ours": measured([1e-3] * 15)})
    wrong = of({"ours": measured([1e-3] * 15, right=False, detail="off by one")})
    assert gate.gate(base, wrong).exit_code == 1
    assert "off by one" in gate.gate(base, wrong).rows[0].reason
    assert gate.gate(base, of({"ours": refused("failed", "crash")})).exit_code == 1


def test_intervals_of_the_median_cover_it():
    """The coverage by simulation is at least what is asked, for few samples and for many, whatever the tail."""
    rng = np.random.default_rng(5)
    for count in (3, 6, 9, 15, 40):
        draws = rng.standard_cauchy((2000, count))
        found = [gate.median_interval(row) for row in draws]
        inside = np.mean([low <= 0 <= high for low, high in found])
        assert inside >= (0.94 if count >= 6 else 0.7)
    assert gate.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert gate.median_interval([1.0]) == (1.0, 1.0)


def test_command_prints_a_verdict_and_returns_its_code(tmp_path, monkeypatch, capsys):
    paths = {}
    for name, factor in (("base", 1.0), ("slow", 1.2), ("fast", 0.5)):
        paths[name] = tmp_path / f"{name}.json"
        record.write(of({"ours": measured([factor * 1e-3] * 15)}), paths[name])
    record.write(of({"ours": measured([1e-3] * 3)}, fingerprint={"threads": 3}), tmp_path / "other.json")
    base = str(paths["base"])
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["gate", base, base]) == 0
    shown = capsys.readouterr().out
    assert "verdict: same (1 same)" in shown
    assert "…" not in shown
    assert main(["gate", base, str(paths["fast"])]) == 0
    assert main(["gate", base, str(tmp_path / "other.json")]) == 3
    assert "threads differs" in capsys.readouterr().out
    output = tmp_path / "verdict.json"
    assert main(["gate", base, str(paths["slow"]), "--json", "-o", str(output)]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(output.read_text())
    assert (shown["schema"], shown["verdict"], shown["exit_code"]) == ("warpfront.gate/1", "slow", 1)
    assert shown["rows"][0]["ratio"] == pytest.approx(1.2)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    assert main(["gate", base, str(tmp_path / "binary.json")]) == 2
    assert "not JSON" in capsys.readouterr().err
    assert main(["gate", base, str(tmp_path / "absent.json")]) == 2
    assert "No such file" in capsys.readouterr().err
