"""Matrix Market writer: what it writes reads back bit for bit."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError

__all__ = ["write_matrix_market"]

_FIELD_OF_KIND = {"f": "real", "c": "complex", "i": "integer", "u": "unsigned-integer", "b": "integer"}


def write_matrix_market(path: str | os.PathLike[str], x: Any, comment: str = "") -> None:
    """Write a vector or matrix as ``general``, with the shortest digits that read back exactly (at most 17).

    Parameters
    ----------
    path : path
        ``.mtx``, or ``.gz`` after it for gzip. An existing file is replaced.
    x : ndarray or sparse matrix
        1-D (written as one column) or 2-D ndarray: array format. Sparse: coordinate format, entries in the
        order of ``x.tocoo()``, duplicates and zeros included. float32 and complex64 are written exactly.
    comment : str, optional
        Written after the banner, one ``%`` line each.

    Raises
    ------
    InvalidValueError
        A dtype or number of dimensions that the format does not have.
    """
    from scipy.sparse import issparse

    target = Path(path)
    if issparse(x):
        if len(x.shape) != 2:
            raise InvalidValueError(f"x has {len(x.shape)} dimension(s); a sparse matrix has 2")
        coo = x.tocoo()
        layout, size, values = "coordinate", (*x.shape, coo.nnz), coo.data
        columns = [(coo.row + 1).tolist(), (coo.col + 1).tolist()]
    else:
        values = np.asarray(x)
        if values.ndim not in (1, 2):
            raise InvalidValueError(f"x has {values.ndim} dimension(s); allowed are 1 and 2")
        layout, size = "array", (values.shape[0], values.shape[1] if values.ndim == 2 else 1)
        columns, values = [], values.reshape(-1, order="F")
    field = _field(values.dtype)
    columns += _value_columns(values)
    lines = [f"%%MatrixMarket matrix {layout} {field} general"]
    lines += [f"% {line}" for line in comment.splitlines()]
    lines.append(" ".join(str(int(s)) for s in size))
    lines += map(" ".join(["%r"] * len(columns)).__mod__, zip(*columns, strict=True))
    text = ("\n".join(lines) + "\n").encode("utf-8")
    # mtime 0: the same matrix gives the same bytes
    target.write_bytes(gzip.compress(text, mtime=0) if target.suffix.lower() == ".gz" else text)


def _field(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in _FIELD_OF_KIND or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise InvalidValueError(f"x has dtype {dtype.name}; convert it to float64 or complex128")
    return _FIELD_OF_KIND[dtype.kind]


def _value_columns(values: NDArray[Any]) -> list[list[Any]]:
    if values.dtype.kind == "c":
        return [values.real.tolist(), values.imag.tolist()]
    return [values.astype(np.int64).tolist() if values.dtype.kind == "b" else values.tolist()]
