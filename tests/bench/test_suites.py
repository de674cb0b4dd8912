"""Every listed benchmark runs from the installed package; a row is timed, verified and kept with its peers."""

import numpy as np
import pytest

from warpfront.bench import suites
from warpfront.bench.case import Case, Verdict
from warpfront.bench.suites import generic
from warpfront.errors import InvalidValueError


def test_every_suite_has_rows_and_a_module():
    tables = set()
    for name, (text, table, _) in suites.SUITES.items():
        assert suites.find(name)[0] == table
        assert suites.find(name.replace("_", "-"))[1] is suites.find(name)[1]
        assert text
        cases = suites.read_cases(table)
        assert cases, f"no [[{table}]] in cases.toml"
        assert any(not entry.get("large") for entry in cases.values())
        tables.add(table)
    import tomllib

    with suites.CASES.open("rb") as stream:
        assert set(tomllib.load(stream)) == tables


def test_choosing_rows():
    cases = {"a": {"name": "a"}, "b": {"name": "b", "large": True}}
    assert [entry["name"] for entry in suites.choose([], cases)] == ["a"]
    assert [entry["name"] for entry in suites.choose(["b"], cases)] == ["b"]
    with pytest.raises(InvalidValueError, match="no row 'c'; allowed are a, b"):
        suites.choose(["c"], cases)


def test_a_generic_suite_keeps_ours_peers_and_who_is_absent(monkeypatch):
    monkeypatch.setattr(generic, "read_cases", lambda table: {"x": {"name": "x", "n": 7}})

    def compare(entry):
        def case(value):
            return Case(
                lambda: np.full(entry["n"], value),
                lambda a: a + 1,
                lambda a, b: Verdict(bool((b == 2).all())),
            )

        return [
            generic.Comparison(
                "add", {"n": entry["n"]}, "float64", "constant", ["warpfront"],
                {"warpfront": case(1.0), "numpy": case(1.0), "liar": case(5.0)},
                None, {"numpy": "numpy", "liar": "scipy", "nobody": "no-such-package-at-all"}, reference="numpy",
            )
        ]  # fmt: skip

    kept = []
    found = generic.suite("made_up", "table", compare)([], rounds=3, keep=kept.append)
    (row,) = found.rows
    assert {name: one.status for name, one in row.contenders.items()} == {
        "warpfront": "ok", "numpy": "ok", "liar": "wrong", "nobody": "absent",
    }  # fmt: skip
    assert (row.case, row.operation, row.reference) == ("x", "add", "numpy")
    assert row.contenders["numpy"].version == np.__version__
    assert len(row.contenders["warpfront"].seconds) == 3
    assert len(kept) == 1
    assert found.fingerprint["packages"]["no-such-package-at-all"] is None


def test_transpose_and_ceilings_run():
    for name, row in (("transpose_cpu", "500 x 500, float64"), ("ceilings_cpu", "product 2048, float32")):
        record = suites.find(name)[1]([row], rounds=1)
        for found in record.rows[0].contenders.values():
            assert found.status == "ok", found.detail
        assert any(found.flops or found.bytes for found in record.rows[0].contenders.values())
