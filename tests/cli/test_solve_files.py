"""`warpfront solve` on files of every kind: what it writes, and how it refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmread, mmwrite

from warpfront.cli import _files
from warpfront.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "data"
MALFORMED = ROOT / "tests" / "data" / "malformed"
KINDS = dict(
    re.findall(
        r"^\| (\S+\.mtx) \| ([^|]+?) \|", (MALFORMED.parent / "README.md").read_text("utf-8"), re.MULTILINE
    )
)
# its one value only overflows 32 bits, which this reader has 64 for
READABLE = {"fmm_overflow_value_gt_int32.mtx"}
KKT = EXAMPLES / "case118_kkt.mtx.gz"


@pytest.fixture
def run(capsys):
    def run(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (err == "") == (code == 0)
        if code:
            assert err.startswith("error: ")
            assert err.count("\n") == 1
            assert "internal error" not in err
        return code, out, err

    return run


def system(n=40, seed=0):
    """A symmetric indefinite matrix with a zero block, dense."""
    rng = np.random.default_rng(seed)
    H, J = np.diag(1.0 + rng.random(n)), rng.standard_normal((n // 4, n)) * (rng.random((n // 4, n)) < 0.3)
    J[:, : n // 4] += np.eye(n // 4)
    return np.block([[H, J.T], [J, np.zeros((n // 4, n // 4))]])


def write(path, A, **options):
    mmwrite(path, sparse.coo_array(A), **options)
    return path


def test_the_bundled_kkt_with_its_right_hand_side(run, tmp_path):
    rhs, x_file, report = EXAMPLES / "case118_kkt_rhs.mtx.gz", tmp_path / "x.mtx", tmp_path / "r.json"
    code, out, _ = run("solve", KKT, rhs, "-o", x_file, "--report", report)
    assert code == 0
    K, b, x = mmread(KKT).tocsr(), mmread(rhs), mmread(x_file)
    norm = abs(K).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max()
    assert np.abs(b - K @ x).max() <= 1e-15 * norm
    found = json.loads(report.read_text())
    assert found["status"] == "ok"
    assert found["backward_error"] == pytest.approx(np.abs(b - K @ x).max() / norm, rel=0.5, abs=1e-17)
    assert found["inertia"] == {"positive": 1611, "negative": 1539, "zero": 0}
    assert found["forward_error"] is None
    assert "1,611 positive, 1,539 negative, 0 zero" in out
    assert "forward error" not in out
    for row in (
        "structure",
        "candidates",
        "fill: nnz(L)",
        "flops",
        "2x2",
        "perturbed",
        "delayed",
        "componentwise",
    ):
        assert row in out
    for row in ("condition number", "compiling kernels", "largest resident size", str(x_file)):
        assert row in out


def test_without_b_the_solution_is_known(run, tmp_path):
    code, out, _ = run("solve", EXAMPLES / "bcsstk13.mtx.gz", "--report", tmp_path / "r.json")
    assert code == 0
    assert "b = A x with x = ones" in out
    assert "forward error" in out
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["known_solution"] is True
    assert found["forward_error"] < 1e-5  # condition number 5e10
    assert 1e9 < found["condition_estimate"] < 1e12
    assert found["records"]["factor"]["method"] == "LL^T"


@pytest.mark.parametrize("b_kind", ["array", "coordinate", "npz", "npz vector"])
@pytest.mark.parametrize("x_name", ["x.mtx", "x.mtx.gz", "x.npz"])
def test_right_hand_sides_and_solutions_of_every_kind(run, tmp_path, b_kind, x_name):
    A = system()
    b = np.random.default_rng(1).standard_normal((A.shape[0], 1 if b_kind == "npz vector" else 3))
    path = tmp_path / ("b.npz" if "npz" in b_kind else "b.mtx")
    if "npz" in b_kind:
        np.savez(path, b[:, 0] if b_kind == "npz vector" else b)
    else:
        mmwrite(path, sparse.coo_array(b) if b_kind == "coordinate" else b)
    sparse.save_npz(tmp_path / "A.npz", sparse.csr_array(A))
    code, _, _ = run("solve", tmp_path / "A.npz", path, "-o", tmp_path / x_name)
    assert code == 0
    x = np.load(tmp_path / x_name)["x"] if x_name.endswith("npz") else mmread(tmp_path / x_name)
    assert np.allclose(np.reshape(x, b.shape), np.linalg.solve(A, b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("view", ["lower", "upper"])
def test_views_read_one_triangle(run, tmp_path, view):
    A = system()
    half = np.tril(A) if view == "lower" else np.triu(A)
    half[np.ix_([0, 39], [39, 0])] += (
        np.array([[7.0, 0], [0, 0]]) if view == "lower" else np.array([[0, 0], [0, 7.0]])
    )
    path = write(tmp_path / "A.mtx", half, symmetry="general")
    code, _, _ = run("solve", path, "--view", view, "--report", tmp_path / "r.json")
    assert code == 0
    assert json.loads((tmp_path / "r.json").read_text())["forward_error"] < 1e-10
    assert run("solve", path)[0] in (0, 3)  # without a view it is another matrix: general, perhaps singular


def test_options_reach_the_solver(run, tmp_path):
    words = (
        "--structure",
        "S",
        "--ordering",
        "natural",
        "--threads",
        "1",
        "--refine",
        "0",
        "--report",
        tmp_path / "r.json",
    )
    code, _, _ = run("solve", EXAMPLES / "bcsstk13.mtx.gz", *words)
    assert code == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["records"]["factor"]["method"] == "LDL^T"
    assert found["records"]["analysis"]["ordering"] == "natural"
    assert found["records"]["factor"]["threads"] == 1
    assert found["records"]["solve"]["refinement_steps"] == 0
    assert 0 < found["backward_error"] < 1e-13  # measured although nothing was refined


@pytest.mark.parametrize("path", sorted(MALFORMED.glob("*.mtx")), ids=lambda path: path.name)
def test_a_malformed_file_is_one_line_and_code_two(run, path):
    code, out, err = run("solve", path)
    if KINDS[path.name] == "malformed" and path.name not in READABLE:
        assert code == 2
        assert out == ""
        assert str(path) in err
    else:
        assert code in (0, 2, 3, 4)


@pytest.mark.parametrize(
    ("matrix", "words", "code", "status", "column"),
    [
        ([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], (), 3, "singular", {0, 1}),
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]], (), 3, "singular", {1}),
        (
            [[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, -1.0]],
            ("--structure", "SPD"),
            3,
            "not_positive_definite",
            {2},
        ),
        ([[1.0, 2.0], [0.0, 1.0]], ("--structure", "S"), 2, "invalid_input", {None}),
        ([[1.0, np.nan], [np.nan, 1.0]], (), 3, "non_finite", {None}),
        ([[1.0, 2.0, 3.0], [2.0, 1.0, 0.0]], (), 2, "invalid_input", {None}),
    ],
)
def test_a_refusal_names_the_column_and_still_writes_its_reports(
    run, tmp_path, matrix, words, code, status, column
):
    path = write(tmp_path / "A.mtx", np.array(matrix), symmetry="general")
    reports = ("--report", tmp_path / "r.json", "--report", tmp_path / "r.html", "-o", tmp_path / "x.mtx")
    found_code, _, err = run("solve", path, *words, *reports)
    assert found_code == code
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["status"] == status
    assert found["column"] in column
    assert found["message"] in err
    if column != {None}:
        assert f"column {found['column']}" in err
    assert found["backward_error"] is None
    assert "Refused" in (tmp_path / "r.html").read_text("utf-8")
    assert not (tmp_path / "x.mtx").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("no-such.mtx",),
        ("A.txt",),
        (),
        ("A.mtx", "--no-such"),
        ("A.mtx", "--structure", "banana"),
        ("A.mtx", "--ordering", "banana"),
        ("A.mtx", "--ordering", "user"),
        ("A.mtx", "--view", "left"),
        ("A.mtx", "--threads", "0"),
        ("A.mtx", "--threads", "many"),
        ("A.mtx", "--refine", "-1"),
        ("A.mtx", "short.mtx"),
        ("A.mtx", "no-such-b.mtx"),
        ("A.mtx", "-o", "no-such-folder/x.mtx"),
        ("A.mtx", "-o", "x.txt"),
        ("A.mtx", "-o", "A.mtx"),
        ("A.mtx", "-o", "folder.mtx"),
        ("A.mtx", "--report", "r.xml"),
        ("A.mtx", "--plot", "p.bmp"),
        ("A.mtx", "b.mtx", "extra.mtx"),
    ],
)
def test_misuse_is_one_line_and_code_two(run, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "A.mtx", np.eye(3), symmetry="symmetric")
    mmwrite(tmp_path / "short.mtx", np.ones((2, 1)))
    (tmp_path / "A.txt").write_text("1")
    (tmp_path / "folder.mtx").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    assert run("solve", *words)[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_output_that_cannot_be_written_is_said_before_the_work(run, tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_writable", lambda path: False)  # root may write anywhere
    code, out, err = run("solve", KKT, "-o", tmp_path / "x.mtx")
    assert (code, out) == (2, "")
    assert "cannot be written" in err


def test_a_size_that_only_the_header_believes_in(run, tmp_path):
    (tmp_path / "A.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n99999999999 99999999999 1\n1 1 1\n"
    )
    code, _, err = run("solve", tmp_path / "A.mtx")
    assert code == 4
    assert "limited to 2147483647" in err


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that takes no files")
def test_an_output_that_turns_out_not_to_be_writable(run):
    code, _, err = run("solve", KKT, "-o", "/proc/self/x.mtx")
    assert code == 2
    assert "/proc/self/x.mtx" in err


@pytest.mark.parametrize("matrix", [np.empty((0, 0)), np.array([[4.0]]), np.array([[-3.0]]), np.eye(3)])
def test_degenerate_sizes(run, tmp_path, matrix):
    np.savez(tmp_path / "A.npz", matrix)
    words = ("--report", tmp_path / "r.json", "--report", tmp_path / "r.html", "--plot", tmp_path / "p.png")
    code, _, _ = run("solve", tmp_path / "A.npz", "-o", tmp_path / "x.npz", *words)
    assert code == 0
    assert np.array_equal(np.load(tmp_path / "x.npz")["x"], np.ones(len(matrix)))
    assert json.loads((tmp_path / "r.json").read_text())["forward_error"] == 0
