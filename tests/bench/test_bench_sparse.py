"""The sparse benchmark on tiny systems, with the command line; peers that are absent are named."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import warpfront
from warpfront.bench import record, suites
from warpfront.bench.suites import sparse_cpu, sparse_peers
from warpfront.bench.suites import sparse_inputs as inputs
from warpfront.cli.main import main

CASES = """
[[sparse]]
name = "grid"
kind = "laplacian"
dims = [5, 4]
structure = "SPD"

[[sparse]]
name = "saddle"
kind = "kkt"
n = 30
m = 10
seed = 1
structure = "S"
large = true

[[sparse]]
name = "file"
kind = "file"
file = "kkt/a.mtx.gz"
structure = "S"
"""


@pytest.fixture
def benchmark(monkeypatch, tmp_path):
    cases = tmp_path / "cases.toml"
    cases.write_text(CASES)
    monkeypatch.setattr(suites, "CASES", cases)
    return sparse_cpu


@pytest.fixture
def few_peers(monkeypatch, benchmark):
    """Only SuperLU is here, and one peer that nobody has."""
    one = {"superlu": benchmark.PEERS["superlu"], "nobody": ("no-such-package-at-all", None)}
    monkeypatch.setattr(benchmark, "PEERS", one)
    return benchmark


def test_laplacian_has_the_known_eigenvalues(benchmark):
    found = np.linalg.eigvalsh(inputs.laplacian([5, 4]).toarray())
    line = [2 - 2 * np.cos(np.arange(1, n + 1) * np.pi / (n + 1)) for n in (5, 4)]
    assert np.allclose(found, np.sort(np.add.outer(*line).ravel()), atol=1e-12)


def test_saddle_point_system_has_the_inertia_it_claims(benchmark):
    problem = inputs.build(suites.read_cases("sparse")["saddle"], None)
    values = np.linalg.eigvalsh(problem.matrix.toarray())
    assert problem.inertia == ((values > 0).sum(), (values < 0).sum(), 0) == (30, 10, 0)


def test_listed_rows_are_known_kinds_and_unique():
    cases = suites.read_cases("sparse")
    assert {"lap2d_300", "lap3d_40", "case1354_K2_it20", "kkt_30000_10000"} <= set(cases)
    text = suites.CASES.read_text()
    assert len(cases) == text.count("[[sparse]]")
    assert {entry["kind"] for entry in cases.values()} == {"laplacian", "kkt", "file"}
    assert [name for name, entry in cases.items() if entry.get("large")] == [
        "kkt_30000_10000",
        "lap2d_1000",
        "lap3d_64",
    ]


def test_rows_hold_ours_the_peers_and_who_is_absent(few_peers):
    kept = []
    found = few_peers.run(["grid", "saddle"], rounds=2, keep=kept.append)
    assert [(row.case, row.operation) for row in found.rows] == [
        (case, operation) for case in ("grid", "saddle") for operation in ("first", "refactor", "solve")
    ]
    assert [len(part.rows) for part in kept] == [3, 6]
    for row in found.rows:
        ours = row.contenders["warpfront"]
        assert ours.status == "ok", ours.detail
        assert len(ours.seconds) == 2
        assert ours.values["normwise"] <= 1e-14
        assert row.contenders["nobody"].status == "absent"
        assert "no-such-package-at-all" in row.contenders["nobody"].detail
        expected = "not offered" if row.operation == "refactor" else "ok"
        assert row.contenders["superlu"].status == expected
        assert ("warpfront unrefined" in row.contenders) == (row.operation == "solve")
    assert found.rows[3].contenders["warpfront"].values["inertia"] == [30, 10, 0]
    assert found.fingerprint["packages"]["no-such-package-at-all"] is None


def test_a_wrong_peer_is_marked_and_a_broken_one_named(monkeypatch, benchmark):

    def liar(problem):
        return sparse_peers.Contender(problem, "zeros", lambda: None, lambda: np.zeros(20), lambda: None)

    def broken(problem):
        raise ImportError("no library")

    monkeypatch.setattr(benchmark, "PEERS", {"liar": ("scipy", liar), "broken": ("scipy", broken)})
    solve = benchmark.run(["grid"], rounds=1).rows[2]
    assert solve.contenders["liar"].status == "wrong"
    assert "normwise" in solve.contenders["liar"].detail
    assert solve.contenders["broken"].status == "failed"
    assert "no library" in solve.contenders["broken"].detail
    assert record.fastest_peer(solve) is None
    assert record.fastest_peer(solve, right=False) == "liar"


def test_backward_errors_agree_with_dense_arithmetic(benchmark):
    draw = np.random.default_rng(3)
    matrix = sparse.random(30, 30, 0.2, random_state=4, format="csc") + sparse.eye(30)
    x, b = draw.standard_normal((2, 30))
    dense = matrix.toarray()
    norm, component = benchmark.backward_errors(matrix, x, b)
    r = np.abs(b - dense @ x)
    assert norm == pytest.approx(r.max() / (np.abs(dense).sum(1).max() * np.abs(x).max() + np.abs(b).max()))
    assert component == pytest.approx((r / (np.abs(dense) @ np.abs(x) + np.abs(b))).max())
    assert benchmark.backward_errors(matrix, np.full(30, np.nan), b) == (np.inf, np.inf)


def test_command_writes_a_record_and_shows_ratios(few_peers, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    output = tmp_path / "r.json"
    assert main(["bench", "sparse-cpu", "--rows", "grid", "--rounds", "2", "-o", str(output)]) == 0
    written = record.read(output)
    assert written.options["rounds"] == 2
    assert written.name == "sparse_cpu"
    shown = capsys.readouterr()
    for text in ("grid", "(superlu)", "absent", "backward error"):
        assert text in shown.out
    assert "grid: solve" in shown.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["sparse-cpu", "--rows", "nothing"], "no row 'nothing'"),
        (["sparse-cpu", "--rows", "file"], "--data"),
        (["sparse-cpu", "-o", "record.txt"], ".json"),
        (["no-such"], "no benchmark 'no-such'; there are "),
    ],
)
def test_command_refuses_what_it_cannot_do(benchmark, words, text, capsys):
    assert main(["bench", *words]) == 2
    assert text in capsys.readouterr().err


def test_an_unknown_revision_is_refused(benchmark, capsys):
    """From a clone git is asked; an installed package has no revisions and says so."""
    code = main(["bench", "sparse-cpu", "--rows", "grid", "--against", "no-such-revision"])
    cloned = (Path(warpfront.__file__).resolve().parents[2] / ".git").exists()
    assert code == (2 if cloned else 4)
    assert ("git knows no revision" if cloned else "clone") in capsys.readouterr().err


def test_benchmarks_and_rows_are_listed(benchmark, capsys):
    assert main(["bench"]) == 0
    assert main(["bench", "--rows", "grid"]) == 2  # of no benchmark
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} >= {
        "sparse-cpu",
        "ceilings-cpu",
    }
    assert main(["bench", "sparse-cpu", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == ["grid", "saddle (large)", "file"]
