"""``warpfront det``, ``inv`` and ``transpose``."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from warpfront.cli.main import main


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((9, 9))
    np.save(tmp_path / "a.npy", a)
    scipy.io.mmwrite(tmp_path / "dense.mtx", a)
    sparse = sp.random_array((40, 40), density=0.1, rng=rng, format="csc") + 3 * sp.eye_array(40)
    scipy.io.mmwrite(tmp_path / "sparse.mtx", sparse)
    np.save(tmp_path / "flat.npy", np.ones((2, 3)))
    np.save(tmp_path / "singular.npy", np.array([[4.0, 4], [12, 12]]))
    np.save(tmp_path / "small.npy", 1e-2 * np.eye(32, dtype="float32"))
    return tmp_path, a, sparse


def test_det_of_dense_and_sparse_files(files, capsys):
    folder, a, sparse = files
    for name, matrix in (("a.npy", a), ("dense.mtx", a), ("sparse.mtx", sparse.toarray())):
        assert main(["det", str(folder / name)]) == 0
        text = capsys.readouterr().out
        sign, logarithm = np.linalg.slogdet(matrix)
        found = {
            line.strip().rsplit("  ", 1)[0].strip(): line.rsplit("  ", 1)[1]
            for line in text.splitlines()
            if "  " in line.strip()
        }
        assert float(found["log |det|"]) == pytest.approx(logarithm, rel=1e-9)
        assert float(found["sign"]) == sign
    assert main(["det", str(folder / "small.npy")]) == 0
    assert "underflow" in capsys.readouterr().out
    assert main(["det", str(folder / "singular.npy")]) == 0
    assert "singular" in capsys.readouterr().out


def test_inv_writes_the_inverse(files, capsys):
    folder, a, sparse = files
    for name, matrix, suffix in (
        ("a.npy", a, ".npy"),
        ("sparse.mtx", sparse.toarray(), ".mtx"),
        ("a.npy", a, ".npz"),
    ):
        target = folder / f"out{suffix}"
        assert main(["inv", str(folder / name), "-o", str(target)]) == 0
        assert "backward error" in capsys.readouterr().out
        read = {".npy": np.load, ".npz": lambda p: np.load(p)["a"], ".mtx": scipy.io.mmread}[suffix](target)
        assert read @ matrix == pytest.approx(np.eye(len(matrix)), abs=1e-9)
    assert main(["inv", str(folder / "a.npy"), "--precision", "float32"]) == 0
    assert "Newton" in capsys.readouterr().out
    assert main(["inv", str(folder / "singular.npy")]) == 3
    assert "pivot 1" in capsys.readouterr().err


def test_transpose(files, capsys):
    folder, a, sparse = files
    assert main(["transpose", str(folder / "a.npy"), "-o", str(folder / "t.npy")]) == 0
    assert np.array_equal(np.load(folder / "t.npy"), a.T)
    assert main(["transpose", str(folder / "sparse.mtx"), "-o", str(folder / "t.mtx")]) == 0
    assert (scipy.io.mmread(folder / "t.mtx").tocsr() != sparse.T.tocsr()).nnz == 0
    assert "sparse" in capsys.readouterr().out


def test_wrong_files_are_refused_in_one_line(files, capsys):
    folder = files[0]
    (folder / "bad.npy").write_bytes(b"not an array")
    for line in (
        ["det", str(folder / "flat.npy")],
        ["inv", str(folder / "flat.npy")],
        ["det", str(folder / "absent.npy")],
        ["det", str(folder / "bad.npy")],
        ["inv", str(folder / "a.npy"), "-o", str(folder / "x.txt")],
        ["inv", str(folder / "a.npy"), "-o", str(folder / "a.npy")],
        ["det", str(folder / "a.npy"), "--device", "tpu"],
        ["det", str(folder / "a.npy"), "--structure", "SPD"],
        ["det", str(folder / "sparse.mtx"), "--device", "cpu"],
        ["transpose", str(folder / "sparse.mtx"), "--device", "cuda"],
    ):
        assert main(line) == 2, line
        captured = capsys.readouterr()
        assert captured.out == ""
        assert len(captured.err.strip().splitlines()) == 1
