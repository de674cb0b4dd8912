"""Strict Matrix Market reader: array and coordinate, every field and symmetry, plain or gzip.

Format: R. F. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats: Initial Design", NISTIR
5935 (1996). A body of checked grammar is parsed in bulk by SciPy.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import FormatError
from warpfront.formats._mm_text import Body, FileText, load_text, shown

__all__ = ["MatrixMarket", "read_matrix_market"]

_BANNER = b"%%matrixmarket"
_OBJECTS = ("matrix", "vector")
_FORMATS = ("coordinate", "array")
_FIELDS = ("real", "double", "complex", "integer", "unsigned-integer", "pattern")
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
_INT64_MAX = 2**63 - 1
# Range of values that a "%%GraphBLAS type" comment allows; None: any.
_GRAPHBLAS_RANGES: dict[str, tuple[int, int] | None] = {
    "bool": (0, 1),
    **{f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (0, 2**b - 1) for b in (8, 16, 32, 64)},
    **dict.fromkeys(("float", "double", "float complex", "double complex")),
}


@dataclass(frozen=True)
class MatrixMarket:
    """One file.

    Attributes
    ----------
    object, format, field, symmetry : str
        The banner, in lower case; ``double`` is given as ``real``.
    shape : tuple of int
        Rows, columns; a vector has one column.
    n_stored : int
        Entries in the file, before a symmetry is expanded.
    matrix : scipy.sparse.coo_array or ndarray
        Coordinate: every entry in file order, duplicates and zeros included, then the mirrored entries of a
        symmetric file in the same order. Array: 2-D. Values float64, complex128, int64 or uint64; 1.0 for
        pattern.
    """

    object: str
    format: str
    field: str
    symmetry: str
    shape: tuple[int, int]
    n_stored: int
    matrix: Any


@dataclass(frozen=True)
class _Header:
    object: str
    format: str
    field: str
    symmetry: str
    graphblas: tuple[int, str] | None  # line number and type
    size_line: int
    size: tuple[int, ...]
    body_start: int


def read_matrix_market(path: str | os.PathLike[str]) -> MatrixMarket:
    """Read a Matrix Market file.

    Parameters
    ----------
    path : path
        Plain or gzip, told by content. Comments and blank lines may stand anywhere after the banner, lines
        may end in CRLF, NaN and infinities may be written out as values.

    Raises
    ------
    FormatError
        ``file:line: what`` for anything that is not the format: banner, size line, number of entries, indices
        out of range, an entry on the wrong side of a symmetric matrix's diagonal, text that is no number,
        numbers that overflow, values outside the range of a ``%%GraphBLAS type`` comment, damaged gzip.
    InvalidValueError
        The file does not exist or cannot be read.
    """
    source = load_text(Path(path))
    header = _read_header(source)
    reader = _read_array if header.format == "array" else _read_coordinate
    return reader(source, header)


def _read_header(source: FileText) -> _Header:
    words = _banner(source)
    offset = source.text.index(b"\n") + 1
    line = 2
    graphblas = None
    while offset < len(source.text):
        end = source.text.index(b"\n", offset)
        text = source.text[offset:end].strip()
        offset = end + 1
        if text.lower().startswith(b"%%graphblas type ") and graphblas is None:
            graphblas = (line, _graphblas_type(source, line, text, words[2]))
        elif text and not text.startswith(b"%"):
            size = _size(source, line, text.split(), words)
            return _Header(*words, graphblas, line, size, offset)
        line += 1
    raise source.error(source.last_line, "the file ends before the size line")


def _banner(source: FileText) -> tuple[str, str, str, str]:
    """Check line 1; return object, format, field and symmetry."""
    words = source.text[: source.text.find(b"\n") + 1].split()
    if not words or words[0].lower() != _BANNER:
        what = shown(words[0]) if words else "nothing"
        raise source.error(1, f"the file must start with %%MatrixMarket, not with {what}")
    lists = (("object", _OBJECTS), ("format", _FORMATS), ("field", _FIELDS), ("symmetry", _SYMMETRIES))
    found = []
    for k, (name, allowed) in enumerate(lists, start=1):
        if k >= len(words):
            raise source.error(1, f"the banner has no {name} ({', '.join(allowed)})")
        word = words[k].lower().decode("ascii", "replace")
        if word not in allowed:
            raise source.error(1, f"{name} {shown(words[k])} is not one of {', '.join(allowed)}")
        found.append(word)
    if len(words) > 5:
        raise source.error(1, f"{shown(words[5])} after the symmetry; the banner has five words")
    kind, layout, field, symmetry = found
    field = "real" if field == "double" else field
    refused = {
        "an array cannot be a pattern": layout == "array" and field == "pattern",
        "a vector has no symmetry": kind == "vector" and symmetry != "general",
        f"{field} values cannot be hermitian": symmetry == "hermitian" and field != "complex",
        f"{field} values cannot be skew-symmetric": symmetry == "skew-symmetric"
        and field in ("pattern", "unsigned-integer"),
    }
    for what, applies in refused.items():
        if applies:
            raise source.error(1, what)
    return kind, layout, field, symmetry


def _graphblas_type(source: FileText, line: int, text: bytes, field: str) -> str:
    name = " ".join(text.decode("ascii", "replace").split()[2:]).removesuffix("_t")
    if name not in _GRAPHBLAS_RANGES:
        raise source.error(line, f"GraphBLAS type {name[:40]!r} is not one of {', '.join(_GRAPHBLAS_RANGES)}")
    if name.endswith("complex") and field != "complex":
        raise source.error(line, f"GraphBLAS type {name!r} contradicts the banner's field {field!r}")
    return name


def _size(source: FileText, line: int, tokens: list[bytes], words: tuple[str, ...]) -> tuple[int, ...]:
    """Return (rows, columns) of an array, (rows, columns, entries) of a coordinate file."""
    kind, layout, _, symmetry = words
    names = ["rows"] + ["columns"] * (kind == "matrix") + ["entries"] * (layout == "coordinate")
    if len(tokens) != len(names):
        raise source.error(line, f"the size line has {len(tokens)} items; expected {', '.join(names)}")
    numbers = []
    for name, token in zip(names, tokens, strict=True):
        if re.fullmatch(rb"[-+]?\d++", token) is None:
            raise source.error(line, f"{name} {shown(token)} is not an integer")
        # the length guard keeps int() away from arbitrarily long digit strings
        value = int(token) if len(token) < 32 else _INT64_MAX + 1
        if token.startswith(b"-"):
            raise source.error(line, f"{name} {shown(token)} is negative")
        if value > _INT64_MAX:
            raise source.error(line, f"{name} {shown(token)} overflows int64")
        numbers.append(value)
    if kind == "vector":
        numbers.insert(1, 1)
    if symmetry != "general" and numbers[0] != numbers[1]:
        raise source.error(line, f"a {symmetry} matrix must be square, not {numbers[0]} x {numbers[1]}")
    return tuple(numbers)


def _bulk(header: str, body: bytes) -> Any:
    """Parse a body of checked grammar with SciPy; ValueError or OverflowError on an unfit number."""
    from scipy.io import mmread

    body = re.sub(rb"(?<![^\s])\+", b"", body) if b"+" in body else body  # SciPy knows no leading plus sign
    return mmread(io.BytesIO(b"%%MatrixMarket matrix " + header.encode() + b"\n" + body))


def _read_coordinate(source: FileText, header: _Header) -> MatrixMarket:
    from scipy.sparse import coo_array

    n_rows, n_cols, n_stored = header.size
    body = Body(source, header.body_start, 2 if header.object == "matrix" else 1, header.field)
    text = body.entries(n_stored)
    if header.object == "vector":
        text = re.sub(rb"^([ \t]*+[-+]?\d++)", rb"\1 1", text, flags=re.MULTILINE)
    if n_stored == 0:
        row, col, data = _no_entries(header.field)
    else:
        try:
            parsed = _bulk(f"coordinate {header.field} general\n{n_rows} {n_cols} {n_stored}", text)
        except (ValueError, OverflowError) as error:
            raise _value_error(body, (n_rows, n_cols)[: body.n_index], error) from None
        row, col, data = parsed.row, parsed.col, parsed.data
    _check_overflow(body, data)
    _check_graphblas(body, header, data)
    if header.symmetry != "general":
        _check_triangle(body, header.symmetry, row, col, data)
        off = np.flatnonzero(row != col)
        row, col = np.concatenate([row, col[off]]), np.concatenate([col, row[off]])
        data = np.concatenate([data, _mirrored(data[off], header.symmetry)])
    matrix = coo_array((data, (row, col)), shape=(n_rows, n_cols))
    return _result(header, (n_rows, n_cols), n_stored, matrix)


def _no_entries(field: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    dtype = {"complex": np.complex128, "integer": np.int64, "unsigned-integer": np.uint64}.get(
        field, np.float64
    )
    index = np.zeros(0, dtype=np.int32)
    return index, index, np.zeros(0, dtype=dtype)


def _read_array(source: FileText, header: _Header) -> MatrixMarket:
    n_rows, n_cols = header.size
    below = 0 if header.symmetry == "skew-symmetric" else 1
    n_stored = n_rows * n_cols if header.symmetry == "general" else n_rows * (n_rows - 1 + 2 * below) // 2
    body = Body(source, header.body_start, 0, header.field)
    text = body.entries(n_stored)
    try:
        flat = _bulk(f"array {header.field} general\n{n_stored} 1", text).reshape(-1) if n_stored else None
    except (ValueError, OverflowError) as error:
        raise _value_error(body, (), error) from None
    flat = _no_entries(header.field)[2] if flat is None else flat
    _check_overflow(body, flat)
    _check_graphblas(body, header, flat)
    if header.symmetry == "general":
        dense = np.ascontiguousarray(flat.reshape(n_cols, n_rows).T)
        return _result(header, (n_rows, n_cols), n_stored, dense)
    # column by column of the lower triangle is row by row of the transpose's upper one
    col, row = np.triu_indices(n_rows, k=1 - below)
    _check_triangle(body, header.symmetry, row, col, flat)
    dense = np.zeros((n_rows, n_cols), dtype=flat.dtype)
    dense[col, row] = _mirrored(flat, header.symmetry)
    dense[row, col] = flat
    return _result(header, (n_rows, n_cols), n_stored, dense)


def _result(header: _Header, shape: tuple[int, int], n_stored: int, matrix: Any) -> MatrixMarket:
    return MatrixMarket(header.object, header.format, header.field, header.symmetry, shape, n_stored, matrix)


def _mirrored(data: NDArray[Any], symmetry: str) -> NDArray[Any]:
    if symmetry == "skew-symmetric":
        return -data
    return np.conj(data) if symmetry == "hermitian" else data


def _check_triangle(
    body: Body, symmetry: str, row: NDArray[Any], col: NDArray[Any], data: NDArray[Any]
) -> None:
    wrong = row <= col if symmetry == "skew-symmetric" else row < col
    what = "lies on the diagonal or above it" if symmetry == "skew-symmetric" else "lies above the diagonal"
    if symmetry == "hermitian" and not wrong.any():
        wrong, what = (row == col) & (data.imag != 0), "is on the diagonal and not real"
    if wrong.any():
        k = int(np.argmax(wrong))
        at = f"entry ({int(row[k]) + 1}, {int(col[k]) + 1})"
        raise body.source.error(body.line_of(k), f"{at} of a {symmetry} matrix {what}")
    if (
        symmetry == "skew-symmetric"
        and data.dtype == np.int64
        and data.size
        and data.min() == -_INT64_MAX - 1
    ):
        raise body.source.error(body.line_of(int(np.argmin(data))), "the negated value overflows int64")


def _check_overflow(body: Body, data: NDArray[Any]) -> None:
    """Refuse numbers too large for float64, which parse as infinity; a written-out infinity is a value."""
    if data.dtype.kind not in "fc" or not np.isinf(data).any():
        return
    for number, tokens in body.lines():
        for token in tokens[body.n_index :]:
            if b"n" not in token.lower() and np.isinf(float(token)):
                raise body.source.error(number, f"value {shown(token)} overflows float64")


def _check_graphblas(body: Body, header: _Header, data: NDArray[Any]) -> None:
    if header.graphblas is None or data.dtype.kind == "c" or not data.size:
        return
    limits = _GRAPHBLAS_RANGES[header.graphblas[1]]
    if limits is None:
        return
    mirrored_too = header.symmetry == "skew-symmetric"
    bad = (data < limits[0]) | (data > limits[1])
    if mirrored_too:
        bad |= (-data < limits[0]) | (-data > limits[1])
    if bad.any():
        k = int(np.argmax(bad))
        value = f"value {data[k]}" + (" or its mirrored negative" if mirrored_too else "")
        raise body.source.error(body.line_of(k), f"{value} is outside GraphBLAS type {header.graphblas[1]}")


def _value_error(body: Body, limits: tuple[int, ...], error: Exception) -> FormatError:
    """Find what the bulk parser stumbled on: an index out of range, or an integer that does not fit."""
    lowest, highest = (0, 2**64 - 1) if body.field == "unsigned-integer" else (-_INT64_MAX - 1, _INT64_MAX)
    names = ("row index", "column index") if len(limits) == 2 else ("index",)
    for number, tokens in body.lines():
        for name, token, limit in zip(names, tokens, limits, strict=False):
            if not (len(token) < 32 and 1 <= int(token) <= limit):
                hint = " (indices count from 1)" if int(token[:32]) == 0 else ""
                return body.source.error(number, f"{name} {shown(token)} is outside 1..{limit}{hint}")
        for token in tokens[body.n_index :] if body.field.endswith("integer") else ():
            if not (len(token) < 32 and lowest <= int(token) <= highest):
                return body.source.error(number, f"value {shown(token)} overflows a 64-bit {body.field}")
    return body.source.error(body.source.last_line, f"not readable: {' '.join(str(error).split())}")
