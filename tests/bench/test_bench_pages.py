"""Generated pages: performance from records, matrices from a data folder; both on tiny made-up input."""

import gzip
import importlib.util
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from scipy import sparse

from warpfront.bench import record
from warpfront.bench.record import Measurement, Record, Row

ROOT = Path(__file__).resolve().parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # a dataclass looks its module up
        patch.setitem(importlib.import_module("sys").modules, name, module)
        spec.loader.exec_module(module)
    return module


performance = tool("build_performance")
matrices = tool("build_matrix_table")


def timed(seconds, status="ok", **more):
    s = sorted(seconds)
    values = {"normwise": 1e-17, "componentwise": 2e-16}
    return Measurement(
        status,
        seconds=list(seconds),
        median=s[len(s) // 2],
        p95=s[-1],
        minimum=s[0],
        repeats=len(s),
        values=values,
        **more,
    )


@pytest.fixture
def tree(tmp_path):
    contenders = {
        "ours": timed([1e-3, 2e-3, 3e-3], first_call_jit_seconds=2.5),
        "peer": timed([8e-3, 8e-3, 8e-3]),
        "liar": timed([1e-6, 1e-6, 1e-6], "wrong", detail="off | by one"),
        "away": record.absent("away-package"),
    }
    row = Row("tiny", "solve", {"n": 3}, "float64", "made up", None, ["ours"], contenders)
    cpu = {"cpu": {"model": "A CPU", "cores": 2}, "code": {"revision": "0123456789abcdef", "dirty": True}}
    made = Record(record.SCHEMA, "test", "a-cpu", "2026-01-01T00:00:00Z", {}, {}, cpu, [row])
    record.write(made, tmp_path / "benchmarks" / "records" / "a-cpu" / "test.json")
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_performance_page_has_the_figures_of_the_record(tree):
    assert performance.main(["--root", str(tree)]) == 0
    text = (tree / "docs" / "performance.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| tiny | 3"))
    assert line == (
        "| tiny | 3 | 2 ms ±100% | 2.5 s | 8 ms ±0% (0.25) | **wrong** 1 µs ±0% (2000.00) | absent | peer |"
    )
    assert "A CPU, 2 cores" in text
    assert "revision 0123456789ab, source changed since" in text
    assert "wrong: off / by one" in text
    assert "absent: away-package is not installed" in text


def test_check_finds_a_stale_page(tree):
    assert performance.main(["--root", str(tree), "--check"]) == 1  # none yet
    performance.main(["--root", str(tree)])
    assert performance.main(["--root", str(tree), "--check"]) == 0
    path = tree / "benchmarks" / "records" / "a-cpu" / "test.json"
    made = record.read(path)
    record.write(replace(made, created="2026-01-02T00:00:00Z"), path)
    assert performance.main(["--root", str(tree), "--check"]) == 1


def test_blocks_of_other_pages_are_filled_from_their_record(tree, capsys):
    begin, end = "<!-- records: {} -->\n", "<!-- end of records -->"
    page, readme = tree / "docs" / "room.md", tree / "README.md"
    page.write_text(f"before\n\n{begin.format('a-cpu/test.json')}old\n{end}\nafter\n")
    readme.write_text(f"top\n{begin.format('summary')}{end}\n")
    (tree / "docs" / "plain.md").write_text("no block\n")
    assert performance.main(["--root", str(tree), "--check"]) == 1
    assert {line.split()[0] for line in capsys.readouterr().err.splitlines()} == {
        "docs/performance.md", "docs/room.md", "README.md",
    }  # fmt: skip
    assert performance.main(["--root", str(tree)]) == 0
    assert performance.main(["--root", str(tree), "--check"]) == 0
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "| tiny | 3 | 2 ms ±100%" in text
    assert "old" not in text
    assert "| test | a-cpu | solve | 1 | 0.25 | 0.25 | 0.25 |" in readme.read_text()
    page.write_text(f"{begin.format('a-cpu/none.json')}{end}\n")
    with pytest.raises(SystemExit, match=r"there is no record a-cpu/none.json; there are a-cpu/test.json"):
        performance.main(["--root", str(tree)])


def test_a_ceiling_is_no_peer_and_gives_shares(tree):
    path = tree / "benchmarks" / "records" / "a-cpu" / "test.json"
    made = record.read(path)
    row = made.rows[0]
    bounded = replace(row, contenders={**row.contenders, "copy": timed([1e-3] * 3)}, reference="copy")
    record.write(replace(made, rows=[bounded]), path)
    performance.main(["--root", str(tree)])
    text = (tree / "docs" / "performance.md").read_text(encoding="utf-8")
    assert (
        "| case | n | ours | compilation | of the ceiling | peer | liar | away | copy | fastest right peer |"
        in text
    )
    line = next(line for line in text.splitlines() if line.startswith("| tiny | 3"))
    assert "| 50.0% |" in line
    assert line.endswith("| peer |")


def test_the_page_in_this_tree_is_what_its_records_give():
    assert performance.main(["--check"]) == 0, "run python tools/build_performance.py"


def test_a_duration_has_three_digits_and_a_unit():
    found = [performance.duration(value) for value in (None, 0, 12.3456, 0.0123456, 1.5e-5, 2e-9)]
    assert found == ["–", "0", "12.3 s", "12.3 ms", "15 µs", "0.002 µs"]


def put(path, matrix, **options):
    stream = io.BytesIO()
    scipy.io.mmwrite(stream, matrix, **options)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(stream.getvalue()))


@pytest.fixture
def data(tmp_path):
    def symmetric(values):
        return sparse.coo_array(np.array(values, dtype=float))

    put(tmp_path / "matrices" / "spd.mtx.gz", symmetric([[2, 1], [1, 3]]))
    put(tmp_path / "matrices" / "indefinite.mtx.gz", symmetric([[0, 1], [1, 0]]))
    put(tmp_path / "matrices" / "singular.mtx.gz", symmetric([[1, 0], [0, 0]]))
    put(tmp_path / "matrices" / "unsymmetric.mtx.gz", symmetric([[1, 2], [0, 1]]))
    put(tmp_path / "matrices" / "wide.mtx.gz", sparse.coo_array(np.ones((1, 2))))
    put(tmp_path / "matrices" / "pattern.mtx.gz", symmetric([[1, 0], [0, 1]]), field="pattern")
    put(tmp_path / "matrices" / "complex.mtx.gz", sparse.coo_array(np.array([[1j]])))
    put(tmp_path / "kkt" / "one.mtx.gz", symmetric([[2, 1], [1, -1]]))
    put(tmp_path / "kkt" / "one_rhs.mtx.gz", np.array([[1.0], [2.0]]))
    write_manifest(tmp_path, spd="2,0,0", indefinite="1,1,0", singular="1,0,1")
    return tmp_path


def write_manifest(folder, **inertia):
    lines = [f"matrices/{name}.mtx.gz\t{found}\t1" for name, found in inertia.items()]
    (folder / "MANIFEST.tsv").write_text("\n".join(["file\tinertia\tinertia_firm", *lines]) + "\n")


def test_matrix_table(data, tmp_path, capsys):
    page = tmp_path / "matrices.md"
    assert matrices.main([str(data), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "5 matrices: 4 solved, 1 refused, 0 wrong." in text
    assert "6 matrices: 5 solved, 1 refused, 0 wrong." in text  # by LU: also the one without symmetry
    first = text.split("## LU of every matrix")[0].splitlines()
    rows = {line.split(" | ")[0]: line for line in first if line.startswith("| ")}
    assert "| SPD | LL^T | 2, 0, 0 | 2, 0, 0 (manifest) |" in rows["| matrices/spd.mtx"]
    assert "| S | LDL^T | 1, 1, 0 |" in rows["| matrices/indefinite.mtx"]
    assert "SINGULAR" in rows["| matrices/singular.mtx"]
    assert "1, 1, 0 (eigenvalues)" in rows["| kkt/one.mtx"]
    assert rows["| kkt/one.mtx"].count("–") == 0  # its own right-hand side was solved, too
    skipped = text.split("## Not in the tables")[1]
    for line in ("pattern.mtx: pattern only", "wide.mtx: rect"):
        assert line in skipped
    assert "_rhs" not in text


def test_matrix_table_fails_for_a_wrong_inertia(data, tmp_path):
    write_manifest(data, spd="1,1,0", indefinite="1,1,0", singular="1,0,1")
    page = tmp_path / "matrices.md"
    assert matrices.main([str(data), "-o", str(page), "--only", "matrices/", "--no-lu"]) == 1
    assert "**wrong**: inertia (2, 0, 0) is not (1, 1, 0) (manifest)" in page.read_text(encoding="utf-8")


def test_matrix_table_fails_for_a_bad_solution_and_a_refusal_without_cause(data, monkeypatch):
    from warpfront.sparse.solver import DirectSolver

    right = DirectSolver.solve
    monkeypatch.setattr(DirectSolver, "solve", lambda self, b: 1.0001 * right(self, b))
    (row,), _ = matrices.build(data, "spd")
    assert row.wrong[0].startswith("backward error, normwise")
    monkeypatch.undo()
    write_manifest(data, singular="2,0,0")
    (row,), _ = matrices.build(data, "singular")
    assert "refused, but it is nonsingular" in row.wrong


def test_eigenvalue_inertia_wants_a_gap():
    diagonal = sparse.diags_array
    assert matrices.eigenvalue_inertia(diagonal([1e9, -1e-9, 1.0]).tocsr()) == (2, 1, 0)  # scaling settles it
    dense = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 1.0]]))
    assert matrices.eigenvalue_inertia(dense) == (1, 0, 1)
    near = sparse.csr_array(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12]]))
    assert matrices.eigenvalue_inertia(near) is None
    assert matrices.eigenvalue_inertia(sparse.csr_array((3, 3))) == (0, 0, 3)


def test_a_rounding_size_eigenvalue_may_have_either_sign():
    for inertia, fine in (((5, 0, 1), True), ((6, 0, 0), True), ((5, 1, 0), True), ((4, 0, 2), False)):
        assert matrices.agrees(inertia, (5, 0, 1), "eigenvalues") == fine
        assert matrices.agrees(inertia, (5, 0, 1), "manifest") == (inertia == (5, 0, 1))


def test_backward_errors_of_a_solution_with_zeros():
    matrix = sparse.csr_array(np.diag([1.0, 1.0]))
    b, x = np.array([1.0, 0.0]), np.array([1.0, 1e-20])
    found = matrices.backward_errors(matrix, x, b)
    assert found.componentwise == 1.0  # the second row holds rounding noise only
    assert found.guarded < 1e-15
    assert matrices.backward_errors(matrix, np.array([1.0, np.nan]), b).normwise == np.inf
