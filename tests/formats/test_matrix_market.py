"""Matrix Market: every file of the parsers' suites, every header, every way to be malformed."""

import gzip
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import FormatError, InvalidValueError
from warpfront.formats import read_matrix_market, write_matrix_market

DATA = Path(__file__).resolve().parents[1] / "data"
KINDS = dict(
    re.findall(r"^\| (\S+\.mtx) \| ([^|]+?) \|", (DATA / "README.md").read_text("utf-8"), re.MULTILINE)
)
# Malformed only for their own suites: a repeated entry, which the format has, and a value that fits 64 bits.
WITHIN_THE_FORMAT = {
    "lagraph_mangled14.mtx",
    "fmm_overflow_value_gt_int32.mtx",
    "lagraph_west0067_jumbled.mtx",
}
MALFORMED = sorted(f for f, kind in KINDS.items() if kind[0] in "mn" and f not in WITHIN_THE_FORMAT)
VALID = sorted(set(KINDS) - set(MALFORMED))
VECTORS = {
    "fmmval_vector_array.mtx": [101, 202, 0, 404],
    "fmmval_vector_coordinate_complex_dupes.mtx": [101, 202 + 1j, 0, 404],
    "fmmval_vector_coordinate_dupes.mtx": [101, 202, 0, 404],
}
SCIPY_ACCEPTS_COMMENTS_ONLY_ABOVE = "lagraph_west0067_jumbled.mtx"
GENERAL = "%%MatrixMarket matrix coordinate real general\n"


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def written(tmp_path, text, name="a.mtx"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
    return path


def refusal(path):
    with pytest.raises(FormatError) as caught:
        read_matrix_market(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    found = re.match(re.escape(str(path)) + r":(\d+): (.+)", message)
    assert found, message
    return int(found[1]), found[2]


def test_the_suite_is_all_there():
    assert set(KINDS) == {path.name for path in (DATA / "malformed").glob("*.mtx")}
    assert (len(MALFORMED), len(VALID)) == (49, 25)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_with_a_line(name):
    path = DATA / "malformed" / name
    line, _ = refusal(path)
    assert 1 <= line <= path.read_bytes().count(b"\n") + 1


@pytest.mark.parametrize("name", VALID)
def test_valid_files_are_what_scipy_reads(name):
    path = DATA / "malformed" / name
    ours = read_matrix_market(path).matrix
    if name in VECTORS:  # SciPy reads no vectors
        np.testing.assert_array_equal(dense(ours)[:, 0], VECTORS[name])
        return
    if name == SCIPY_ACCEPTS_COMMENTS_ONLY_ABOVE:
        lines = path.read_text("ascii").splitlines()
        values = np.array([line.split() for line in lines[2:] if line and line[0] != "%"], dtype=float)[1:]
        expected = sp.coo_array((values[:, 2], (values[:, :2].astype(int) - 1).T), shape=(67, 67)).toarray()
        np.testing.assert_array_equal(dense(ours), expected)
        return
    theirs = scipy.io.mmread(path)
    assert sp.issparse(ours) == sp.issparse(theirs)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(dense(ours), dense(theirs))


HEADERS = [(f, s) for f in ("real", "complex", "integer") for s in ("general", "symmetric", "skew-symmetric")]
HEADERS += [("complex", "hermitian"), ("unsigned-integer", "general")]
PATTERNS = [("coordinate", "pattern", "general"), ("coordinate", "pattern", "symmetric")]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("layout", "field", "symmetry"),
    [(layout, *header) for layout in ("coordinate", "array") for header in HEADERS] + PATTERNS,
)
def test_every_header(tmp_path, layout, field, symmetry, packed):
    rng = np.random.default_rng(3)
    a = rng.integers(1, 9, (5, 5)).astype(complex if field == "complex" else float)
    a = a + 1j * rng.integers(1, 9, (5, 5)) if field == "complex" else a
    a = np.ones((5, 5)) if field == "pattern" else a
    mirrored = {"general": a, "symmetric": a.T, "skew-symmetric": -a.T, "hermitian": a.conj().T}[symmetry]
    expected = a if symmetry == "general" else np.tril(a, -1) + np.triu(mirrored, 1)
    if symmetry in ("symmetric", "hermitian"):
        expected = expected + np.diag(np.diag(a).real if symmetry == "hermitian" else np.diag(a))
    lowest = {"general": -9, "skew-symmetric": 1}.get(symmetry, 0)
    lines = []
    for j in range(5):
        for i in range(5):
            if i - j >= lowest:
                number = {"complex": f"{expected[i, j].real:g} {expected[i, j].imag:g}", "pattern": ""}
                value = number.get(field, f"{expected[i, j].real:g}")
                lines.append(f"{i + 1} {j + 1} {value}" if layout == "coordinate" else value)
    size = f"5 5 {len(lines)}" if layout == "coordinate" else "5 5"
    text = "\n".join([f"%%MatrixMarket matrix {layout} {field} {symmetry}", size, *lines]) + "\n"
    path = written(
        tmp_path, gzip.compress(text.encode()) if packed else text, "a.mtx.gz" if packed else "a.mtx"
    )
    read = read_matrix_market(path)
    assert (read.format, read.field, read.symmetry, read.n_stored) == (layout, field, symmetry, len(lines))
    np.testing.assert_array_equal(dense(read.matrix), expected)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "must start with %%MatrixMarket"),
        ("\n", 1, "not with nothing"),
        (b"\x00\xff\xfe\x01garbage\n\x02", 1, "must start with"),
        ("%%MatrixMarket matrix coordinate real general extra\n1 1 0\n", 1, "five words"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", 1, "array cannot be a pattern"),
        ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", 1, "cannot be skew-symmetric"),
        (GENERAL, 1, "ends before the size line"),
        (GENERAL + "% c\n\n", 3, "ends before the size line"),
        (GENERAL + "2 2\n", 2, "the size line has 2 items"),
        (GENERAL + "2 x 1\n", 2, "columns 'x' is not an integer"),
        (GENERAL + "2 2 1.0\n", 2, "entries '1.0' is not an integer"),
        (GENERAL + "9223372036854775808 2 1\n", 2, "overflows int64"),
        (GENERAL + "2 2 " + "9" * 5000 + "\n", 2, "overflows int64"),
        (GENERAL + "2 2 2\n1 1 1\n", 3, "ends after 1 of the 2 entries"),
        (GENERAL + "2 2 1\n1 1 1\n\n% c\n2 2 1\n", 6, "more entries than the 1 declared"),
        (GENERAL + "2 2 1\n1 1 1 1\n", 3, "4 items on the line"),
        (GENERAL + "2 2 1\n1 1\n1\n", 3, "2 items on the line"),
        (GENERAL + "2 2 1\n1 1 1.5abc\n", 3, "'1.5abc' is not a real value"),
        (GENERAL + "2 2 1\n1 1 1.2.3\n", 3, "'1.2.3' is not a real value"),
        (GENERAL + "2 2 1\n1 1 1e\n", 3, "'1e' is not a real value"),
        (GENERAL + "2 2 1\n1 1 0x10\n", 3, "'0x10' is not a real value"),
        (GENERAL + "2 2 1\n1 1 1_0\n", 3, "'1_0' is not a real value"),
        (GENERAL + "2 2 1\n1. 1 1\n", 3, "'1.' is not an index"),
        (GENERAL + "2 2 1\n1 1 \x00\n", 3, "is not a real value"),
        (GENERAL + "2 2 1\n1 1 " + "7x" * 999 + "\n", 3, "is not a real value"),
        (GENERAL + "2 2 1\n3 1 1\n", 3, "row index '3' is outside 1..2"),
        (GENERAL + "2 2 1\n1 0 1\n", 3, "indices count from 1"),
        (GENERAL + "2 2 1\n" + "1" * 5000 + " 1 1\n", 3, "outside 1..2"),
        (GENERAL + "2 2 1\n1 1 -1e999\n", 3, "'-1e999' overflows float64"),
        (GENERAL + "0 0 1\n1 1 1\n", 3, "outside 1..0"),
        (GENERAL.replace("real", "integer") + "2 2 1\n1 1 1.0\n", 3, "'1.0' is not an integer value"),
        (GENERAL.replace("real", "integer") + "2 2 1\n1 1 9223372036854775808\n", 3, "overflows"),
        (GENERAL.replace("real", "unsigned-integer") + "2 2 1\n1 1 -1\n", 3, "not an unsigned-integer"),
        (GENERAL.replace("real", "complex") + "2 2 1\n1 1 1\n", 3, "3 items on the line"),
        (GENERAL.replace("general", "symmetric") + "2 3 0\n", 2, "must be square"),
        (GENERAL.replace("general", "symmetric") + "2 2 2\n2 1 1\n1 2 1\n", 4, r"entry \(1, 2\).*above"),
        (GENERAL.replace("general", "skew-symmetric") + "2 2 1\n1 1 0\n", 3, "on the diagonal"),
        (
            GENERAL.replace("real general", "complex hermitian") + "2 2 1\n% c\n1 1 1 2\n",
            4,
            r"entry \(1, 1\).*not real",
        ),
        (
            GENERAL.replace("real general", "integer skew-symmetric") + "2 2 1\n2 1 -9223372036854775808\n",
            3,
            "negated value overflows",
        ),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", 5, "ends after 3 of the 4"),
        ("%%MatrixMarket matrix array complex hermitian\n1 1\n1 1\n", 3, "not real"),
        ("%%MatrixMarket matrix array integer general\n1 1\n99999999999999999999\n", 3, "overflows"),
    ],
)
def test_refusals_name_line_and_reason(tmp_path, text, line, what):
    found_line, found = refusal(written(tmp_path, text))
    assert re.search(what, found), found
    assert found_line == line
    assert len(found) < 200


@pytest.mark.parametrize(
    "size",
    ["9223372036854775807 9223372036854775807 9223372036854775807", "3 3 4000000000000"],
)
def test_a_claimed_size_allocates_nothing(tmp_path, size):
    path = written(tmp_path, GENERAL + size + "\n1 1 1\n")
    array = written(
        tmp_path, "%%MatrixMarket matrix array real symmetric\n3000000000 3000000000\n1\n", "b.mtx"
    )
    refusal(path)
    tracemalloc.start()
    try:
        assert "ends after 1 of" in refusal(path)[1]
        assert "ends after 1 of" in refusal(array)[1]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_gzip_damage_says_where_the_text_stops(tmp_path):
    text = (GENERAL + "5000 5000 5000\n" + "".join(f"{k} {k} {1 / k!r}\n" for k in range(1, 5001))).encode()
    packed = gzip.compress(text)
    line, what = refusal(written(tmp_path, packed[: len(packed) // 2], "a.mtx.gz"))
    assert "gzip" in what
    assert 1 < line < 5002
    broken = bytearray(packed)
    broken[len(packed) // 2] ^= 255
    assert "gzip" in refusal(written(tmp_path, bytes(broken), "b.mtx.gz"))[1]
    assert "gzip" in refusal(written(tmp_path, packed + b"tail", "c.mtx.gz"))[1]
    assert "gzip" in refusal(written(tmp_path, text, "d.mtx.gz"))[1]
    assert read_matrix_market(written(tmp_path, packed, "e.mtx")).n_stored == 5000
    pieces = b"".join(
        gzip.compress(text[k : k + 100]) for k in range(0, len(text), 100)
    )  # many members, as bgzip's
    assert read_matrix_market(written(tmp_path, pieces + bytes(512), "f.mtx.gz")).n_stored == 5000
    assert "gzip" in refusal(written(tmp_path, pieces[:-5], "g.mtx.gz"))[1]


def test_free_format_comments_crlf_signs_and_missing_last_newline(tmp_path):
    text = "%%matrixmarket MATRIX Coordinate DOUBLE General \r\n\r\n%c\r\n +2\t2   4\r\n% in between\r\n\r\n"
    text += " 1 1 +1.5e+0 \r\n\t2 2 .5\r\n1 2 -Inf\r\n%\r\n2 1 NaN"
    read = read_matrix_market(written(tmp_path, text))
    assert (read.field, read.shape) == ("real", (2, 2))
    np.testing.assert_array_equal(dense(read.matrix), [[1.5, -np.inf], [np.nan, 0.5]])


def test_duplicates_zeros_and_order_are_kept(tmp_path):
    read = read_matrix_market(written(tmp_path, GENERAL + "2 2 4\n2 2 0\n1 1 3\n1 1 4\n1 2 5\n"))
    assert read.matrix.data.tolist() == [0, 3, 4, 5]
    assert read.matrix.row.tolist() == [1, 0, 0, 0]


def test_large_shapes_and_no_entries(tmp_path):
    read = read_matrix_market(written(tmp_path, GENERAL + "9000000000 3 1\n8999999999 2 7\n"))
    assert (read.matrix.shape, read.matrix.row.tolist()) == ((9000000000, 3), [8999999998])
    assert read_matrix_market(written(tmp_path, GENERAL + "0 4 0\n")).matrix.shape == (0, 4)
    empty = "%%MatrixMarket matrix array complex general\n0 3\n"
    assert read_matrix_market(written(tmp_path, empty)).matrix.shape == (0, 3)
    assert read_matrix_market(written(tmp_path, empty.replace("0 3", "1 1\n2 0"))).matrix.tolist() == [[2]]
    single = "%%MatrixMarket matrix array real skew-symmetric\n1 1\n"
    assert read_matrix_market(written(tmp_path, single)).matrix.tolist() == [[0]]


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "none.mtx", tmp_path):
        with pytest.raises(InvalidValueError, match=re.escape(str(path))):
            read_matrix_market(path)


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=6),
    st.sampled_from([np.float64, np.float32]),
    st.booleans(),
)
def test_what_is_written_reads_back_bit_for_bit(tmp_path_factory, values, dtype, packed):
    path = tmp_path_factory.getbasetemp() / ("round.mtx.gz" if packed else "round.mtx")
    with np.errstate(over="ignore"):
        vector = np.array(values, dtype=np.float64).astype(dtype)
    write_matrix_market(path, vector)
    np.testing.assert_array_equal(read_matrix_market(path).matrix[:, 0], vector)
    index = np.arange(len(vector))
    write_matrix_market(
        path, sp.coo_array((vector + 0j, (index, index[::-1])), shape=(9, 9)), comment="two\nlines"
    )
    back = read_matrix_market(path).matrix
    np.testing.assert_array_equal(back.data.real, vector)
    assert back.row.tolist() == index.tolist()


def test_the_writer_agrees_with_scipys_reader(tmp_path):
    rng = np.random.default_rng(4)
    for x in (
        rng.standard_normal((4, 3)),
        sp.random_array((9, 7), density=0.3, rng=rng),
        np.arange(6).reshape(2, 3),
    ):
        write_matrix_market(tmp_path / "x.mtx", x)
        np.testing.assert_array_equal(dense(scipy.io.mmread(tmp_path / "x.mtx")), dense(x))
    write_matrix_market(tmp_path / "b.mtx", np.array([True, False]))
    assert read_matrix_market(tmp_path / "b.mtx").matrix.tolist() == [[1], [0]]
    for wrong in (np.ones((2, 2, 2)), np.array(["a"]), np.ones(2, np.longdouble), sp.coo_array(np.ones(3))):
        with pytest.raises(InvalidValueError):
            write_matrix_market(tmp_path / "x.mtx", wrong)
    write_matrix_market(tmp_path / "1.mtx.gz", np.eye(2))
    write_matrix_market(tmp_path / "2.mtx.gz", np.eye(2))
    assert (tmp_path / "1.mtx.gz").read_bytes() == (tmp_path / "2.mtx.gz").read_bytes()


@given(st.binary(max_size=80))
def test_no_bytes_end_in_anything_but_a_matrix_or_one_line(tmp_path_factory, tail):
    path = tmp_path_factory.getbasetemp() / "fuzz.mtx"
    path.write_bytes(b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n" + tail)
    try:
        outcome = f"{read_matrix_market(path).matrix.nnz} entries"
    except FormatError as error:
        outcome = str(error)
    assert re.fullmatch(r"2 entries|\S+fuzz\.mtx:\d+: [ -~]+", outcome)
