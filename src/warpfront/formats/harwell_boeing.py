"""Harwell-Boeing and Rutherford-Boeing reader for assembled matrices; right-hand sides are not read.

Format: I. S. Duff, R. G. Grimes, J. G. Lewis, "Users' Guide for the Harwell-Boeing Sparse Matrix Collection",
RAL-92-086 (1992), and "The Rutherford-Boeing Sparse Matrix Collection", RAL-TR-97-031 (1997).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError
from warpfront.formats._mm_text import FileText, load_text, shown
from warpfront.formats.operand import MAX_DIMENSION

__all__ = ["read_harwell_boeing"]

_FORMAT = re.compile(rb"\((?:[-+]?\d*P,?)?(\d*)([IEDFG])(\d+)(?:\.\d+)?(?:E\d+)?\)", re.IGNORECASE)
_BARE_EXPONENT = re.compile(rb"(?<=[\d.])([-+]\d)")


def read_harwell_boeing(path: str | os.PathLike[str]) -> Any:
    """Read an assembled matrix as ``scipy.sparse.csc_array``.

    Parameters
    ----------
    path : path
        Plain or gzip. Values real, complex, integer (int64) or pattern (1.0); symmetric, Hermitian and
        skew-symmetric files are expanded to the full matrix.

    Raises
    ------
    FormatError
        ``file:line: what``.
    NotSupportedError
        Unassembled (elemental) matrices.
    InvalidValueError
        The file does not exist or cannot be read.
    """
    from scipy.sparse import csc_array

    source = load_text(Path(path))
    lines = source.text.split(b"\n")[:-1]
    if len(lines) < 4:
        raise source.error(source.last_line, "the file ends inside the header")
    kind, (n_rows, n_cols, nnz) = _kind_and_size(source, lines[2])
    cards = _integers(source, 2, lines[1], 4)
    ptr_fmt, ind_fmt, val_fmt = lines[3][:16], lines[3][16:32], lines[3][32:52]
    has_rhs = len(lines[1].split()) > 4 and _integers(source, 2, lines[1], 5)[4] > 0
    start = 5 if has_rhs else 4
    width = 2 if kind[0] == "c" else 1
    blocks = []
    for what, fmt, n_lines, count in (
        ("pointer", ptr_fmt, cards[1], n_cols + 1),
        ("row index", ind_fmt, cards[2], nnz),
        ("value", val_fmt, cards[3], 0 if kind[0] == "p" else nnz * width),
    ):
        blocks.append(_numbers(source, lines, start, n_lines, (what, fmt, count)) if count else [])
        start += n_lines
    ptr, ind = (np.array(block, dtype=np.int64) for block in blocks[:2])
    first = 4 + has_rhs
    _check_structure(source, ptr, ind, (n_rows, nnz), (first + 1, first + cards[1] + 1))
    values = _values(kind[0], blocks[2], nnz)
    matrix = csc_array((values, ind - 1, ptr - 1), shape=(n_rows, n_cols))
    if kind[1] in "ur":
        return matrix
    return _expanded(source, matrix, kind[1])


def _kind_and_size(source: FileText, line: bytes) -> tuple[str, tuple[int, int, int]]:
    """Return the type code in lower case, and rows, columns, entries."""
    kind = line[:3].decode("ascii", "replace").lower()
    if re.fullmatch("[rcpi][suhzr][ae]", kind) is None:
        raise source.error(3, f"matrix type {shown(line[:3])} is not one of [RCPI][SUHZR]A")
    if kind[2] == "e":
        raise NotSupportedError(f"{source.path}:3: unassembled (elemental) matrices are not read")
    if (kind[1] == "h" and kind[0] != "c") or (kind[1] == "z" and kind[0] == "p"):
        raise source.error(3, f"matrix type {shown(line[:3])} contradicts itself")
    n_rows, n_cols, nnz = _integers(source, 3, line[3:], 3)
    if max(n_rows, n_cols) > MAX_DIMENSION:
        raise source.error(3, f"{n_rows} x {n_cols} is larger than {MAX_DIMENSION}")
    if kind[1] in "shz" and n_rows != n_cols:
        raise source.error(3, f"a symmetric matrix must be square, not {n_rows} x {n_cols}")
    return kind, (n_rows, n_cols, nnz)


def _integers(source: FileText, line: int, text: bytes, count: int) -> list[int]:
    tokens = text.split()[:count]
    for token in tokens:
        if re.fullmatch(rb"\d{1,18}", token) is None:
            raise source.error(line, f"{shown(token)} is not a count")
    if len(tokens) < count:
        raise source.error(line, f"{len(tokens)} counts on the line; expected {count}")
    return [int(token) for token in tokens]


def _numbers(
    source: FileText, lines: list[bytes], start: int, n_lines: int, wanted: tuple[str, bytes, int]
) -> list[Any]:
    """Read `count` fixed-width numbers from `n_lines` lines beginning at `start` (from 0)."""
    what, fmt, count = wanted
    match = _FORMAT.fullmatch(fmt.replace(b" ", b""))
    if match is None or not int(match[3]) or (match[2] not in b"iI" and what != "value"):
        raise source.error(4, f"{shown(fmt.strip())} is not a format for a {what}")
    per_line, width = int(match[1] or 1), int(match[3])
    convert = _integer if match[2] in b"iI" else _real
    if per_line * n_lines < count or start + n_lines > len(lines):
        have = min(per_line * n_lines, per_line * max(len(lines) - start, 0))
        raise source.error(source.last_line, f"room for {have} of the {count} numbers declared as {what}")
    numbers: list[Any] = []
    for k in range(start, start + n_lines):
        line = lines[k].rstrip(b"\r")
        for at in range(0, min(per_line, count - len(numbers)) * width, width):
            field = line[at : at + width].strip()
            try:
                numbers.append(convert(field))
            except ValueError:
                raise source.error(k + 1, f"{shown(field)} in column {at + 1} is not a {what}") from None
    if len(numbers) < count:
        raise source.error(start + n_lines, f"{len(numbers)} of {count} numbers declared as {what}")
    return numbers


def _integer(field: bytes) -> int:
    if re.fullmatch(rb"[-+]?\d{1,18}", field) is None:  # int64, and none of the underscores that int() takes
        raise ValueError
    return int(field)


def _real(field: bytes) -> float:
    """Read a Fortran real: exponent letter E, D or none at all."""
    field = field.upper().replace(b"D", b"E")
    if b"E" not in field:
        field = _BARE_EXPONENT.sub(rb"E\1", field)
    return float(field)


def _check_structure(
    source: FileText, ptr: NDArray[Any], ind: NDArray[Any], size: tuple[int, int], at: tuple[int, int]
) -> None:
    n_rows, nnz = size
    if ptr[0] != 1 or ptr[-1] != nnz + 1 or (np.diff(ptr) < 0).any():
        raise source.error(at[0], f"column pointers must rise from 1 to {nnz + 1}")
    outside = (ind < 1) | (ind > n_rows)
    if outside.any():
        k = int(np.argmax(outside))
        raise source.error(at[1], f"row index {ind[k]} (number {k + 1} of the list) is outside 1..{n_rows}")


def _values(letter: str, numbers: list[Any], nnz: int) -> NDArray[Any]:
    if letter == "p":
        return np.ones(nnz)
    if letter == "c":
        return np.array(numbers, dtype=np.float64).view(np.complex128)
    return np.array(numbers, dtype=np.int64 if letter == "i" else np.float64)


def _expanded(source: FileText, lower: Any, letter: str) -> Any:
    """Return the full matrix of a stored lower triangle."""
    coo = lower.tocoo()
    wrong = coo.row <= coo.col if letter == "z" else coo.row < coo.col
    if wrong.any():
        k = int(np.argmax(wrong))
        at = f"entry ({coo.row[k] + 1}, {coo.col[k] + 1})"
        raise source.error(3, f"type says lower triangle only, but {at} is stored")
    off = coo.row != coo.col
    data = coo.data[off]
    data = -data if letter == "z" else np.conj(data) if letter == "h" else data
    both = (np.concatenate([coo.row, coo.col[off]]), np.concatenate([coo.col, coo.row[off]]))
    return type(coo)((np.concatenate([coo.data, data]), both), shape=lower.shape).tocsc()
