"""`read_matrix` by suffix: npz, Harwell-Boeing, and one-line refusals; the package import stays light."""

import gzip
import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from warpfront import formats
from warpfront.errors import FormatError, InvalidValueError, NotSupportedError
from warpfront.formats import read_harwell_boeing, read_matrix, write_matrix_market

RSA = (
    "A symmetric matrix with D exponents and touching fields                 tiny    \n"
    "             4             1             1             2             0\n"
    "RSA                        3             3             4             0\n"
    "(4I3)           (4I2)           (3D10.3)                                \n"
    "  1  3  4  5\n"
    " 1 3 2 3\n"
    " 1.500D+00-2.000D+00 3.000D+00\n"
    " 4.000+000\n"
)
RSA_DENSE = [[1.5, 0, -2], [0, 3, 0], [-2, 0, 4]]


def refusal(path, kind=FormatError):
    with pytest.raises(kind) as caught:
        read_matrix(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_scipy_npz(tmp_path, kind):
    matrix = sp.random_array((8, 8), density=0.4, format=kind, rng=np.random.default_rng(5))
    sp.save_npz(tmp_path / "a.npz", matrix)
    back = read_matrix(tmp_path / "a.npz")
    assert back.format == ("csr" if kind == "dia" else kind)
    np.testing.assert_array_equal(back.toarray(), matrix.toarray())


def test_npz_of_one_array(tmp_path):
    np.savez(tmp_path / "a.npz", np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(read_matrix(tmp_path / "a.npz"), [[0, 1, 2], [3, 4, 5]])
    np.savez_compressed(tmp_path / "a.npz", b=np.arange(3))
    np.testing.assert_array_equal(read_matrix(tmp_path / "a.npz"), [0, 1, 2])


def test_npz_refusals(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"not a zip file")
    assert "not an npz file" in refusal(path)
    np.savez(path, np.ones(2), np.ones(3))
    assert "arr_0, arr_1" in refusal(path)
    np.savez(path, np.array([{}], dtype=object))
    assert "Python objects" in refusal(path)
    np.savez(path, np.ones((2, 2, 2)))
    assert "3 dimensions" in refusal(path)
    np.savez(path, format=np.array("csr"), indptr=np.array([0, 1]))
    assert "damaged npz" in refusal(path)
    np.savez(path)
    assert "nothing" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"not an array")
    assert "damaged npz" in refusal(path)


@pytest.mark.parametrize(
    "change", [{"format": np.array(3)}, {"shape": np.array(3)}, {"shape": np.array([3, 3, 3])}]
)
def test_npz_with_entries_of_another_kind(tmp_path, change):
    arrays = {"format": np.array(b"csr"), "shape": np.array([1, 1]), "data": np.ones(1)}
    arrays |= {"indices": np.zeros(1, int), "indptr": np.arange(2), **change}
    np.savez(tmp_path / "a.npz", **arrays)
    assert "damaged npz" in refusal(tmp_path / "a.npz")


def test_npz_with_a_corrupt_pattern_says_where(tmp_path):
    matrix = sp.csr_array(np.eye(3))
    matrix.indices[1] = 7
    sp.save_npz(tmp_path / "a.npz", matrix)
    assert "7" in refusal(tmp_path / "a.npz")


def test_npz_that_claims_more_than_it_holds_allocates_nothing(tmp_path):
    stream = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", stream.getvalue() + b"\0" * 8)
    assert "claims 8000000000000000 bytes" in refusal(tmp_path / "a.npz")


def test_truncated_npz(tmp_path):
    np.savez(tmp_path / "a.npz", np.ones(100))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    refusal(tmp_path / "a.npz")


def test_suffixes(tmp_path):
    for name in ("a.mtx", "a.mtx.gz", "a.MTX", "a.mm.gz"):
        write_matrix_market(tmp_path / name, np.eye(2))
        np.testing.assert_array_equal(read_matrix(tmp_path / name), np.eye(2))
    for name in ("a.txt", "a", "a.gz"):
        assert "unknown suffix" in refusal(tmp_path / name, InvalidValueError)
    for name in ("none.mtx", "none.npz", "none.rua"):
        assert "no such file" in refusal(tmp_path / name, InvalidValueError)
    (tmp_path / "folder.npz").mkdir()
    assert "not a regular file" in refusal(tmp_path / "folder.npz", InvalidValueError)


@pytest.mark.parametrize("name", ["a.rsa", "a.rb.gz"])
def test_harwell_boeing_symmetric(tmp_path, name):
    text = RSA.encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    matrix = read_matrix(tmp_path / name)
    assert matrix.format == "csc"
    np.testing.assert_array_equal(matrix.toarray(), RSA_DENSE)


def test_harwell_boeing_against_scipys_writer(tmp_path):
    matrix = sp.random_array((9, 9), density=0.4, format="csc", rng=np.random.default_rng(6))
    scipy.io.hb_write(tmp_path / "a.rua", matrix)
    np.testing.assert_allclose(
        read_harwell_boeing(tmp_path / "a.rua").toarray(), matrix.toarray(), rtol=1e-15
    )


@pytest.mark.parametrize(
    ("old", "new", "dense"),
    [
        ("RSA", "RUA", [[1.5, 0, 0], [0, 3, 0], [-2, 0, 4]]),
        ("RSA", "PSA", [[1, 0, 1], [0, 1, 0], [1, 0, 1]]),
        ("\n", "\r\n", RSA_DENSE),
    ],
)
def test_harwell_boeing_types_and_line_ends(tmp_path, old, new, dense):
    (tmp_path / "a.hb").write_bytes(RSA.replace(old, new).encode())
    np.testing.assert_array_equal(read_matrix(tmp_path / "a.hb").toarray(), dense)


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("RSA", "XSA", 3, "matrix type 'XSA'"),
        ("RSA", "RHA", 3, "contradicts"),
        ("RSA", "RZA", 3, "lower triangle"),
        ("(4I3) ", "(4X3) ", 4, "not a format for a pointer"),
        ("(3D10.3)", "(3D00.3)", 4, "not a format for a value"),
        ("  1  3  4  5", "  1  4  3  5", 5, "pointers must rise"),
        (" 1 3 2 3\n", " 1 9 2 3\n", 6, "row index 9 .number 2"),
        (" 1 3 2 3\n", " 1 x 2 3\n", 6, "'x' in column 3 is not a row index"),
        ("-2.000D+00", "-2.0.0D+00", 7, "is not a value"),
        ("  1  3  4  5", "  1  3  4 _5", 5, "'_5' in column 10 is not a pointer"),
        ("(4I3)           (4I2) ", "(4I25)          (4I2) ", 5, "in column 1 is not a pointer"),
        (" 4.000+000\n", "", 7, "room for 3 of the 4"),
        ("             4             0\nRSA", "             4            -1\nRSA", 2, "is not a count"),
        ("3             3             4", "3             4             4", 3, "square"),
        ("3             3             4", "3 999999999999 4           ", 3, "larger than"),
    ],
)
def test_harwell_boeing_refusals(tmp_path, old, new, line, what):
    path = tmp_path / "a.rb"
    text = (
        RSA.replace("             2             0\nRSA", "             4             0\nRSA")
        if "-1" in new
        else RSA
    )
    assert old in text
    if "4I25" in new:  # a number that no index holds
        text = text.replace("  1  3  4  5\n", f"{'9' * 25}{3:25}{4:25}{5:25}\n")
    path.write_bytes(text.replace(old, new, 1).encode())
    message = refusal(path)
    assert message.startswith(f"{path}:{line}: "), message
    assert what.replace(".number", "(number") in message


def test_harwell_boeing_elemental_and_short_files(tmp_path):
    (tmp_path / "a.rse").write_text("x")
    refusal(tmp_path / "a.rse", InvalidValueError)
    (tmp_path / "a.rb").write_bytes(RSA.replace("RSA", "RSE").encode())
    refusal(tmp_path / "a.rb", NotSupportedError)
    (tmp_path / "a.rb").write_bytes(b"one\ntwo\n")
    assert "ends inside the header" in refusal(tmp_path / "a.rb")


def test_every_public_name_resolves():
    assert set(formats.__all__) <= set(dir(formats))
    for name in formats.__all__:
        assert getattr(formats, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_here"):
        formats.nothing_here  # noqa: B018


def test_importing_the_package_imports_no_heavy_library():
    code = (
        "import sys, warpfront.formats; print([m for m in ('numpy', 'scipy', 'numba') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_path()
    )
    assert done.stdout.strip() == "[]"


def _path():
    import os
    from pathlib import Path

    return {**os.environ, "PYTHONPATH": str(Path(formats.__file__).parents[2])}
