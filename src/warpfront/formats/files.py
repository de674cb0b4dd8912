"""`read_matrix`: a matrix or vector from a file, by suffix."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from warpfront.errors import FormatError, InvalidValueError

__all__ = ["read_matrix"]

_MATRIX_MARKET = (".mtx", ".mtx.gz", ".mm", ".mm.gz")
_HARWELL_BOEING = tuple(
    f".{name}{packed}"
    for name in ("rb", "hb", *(a + b + "a" for a in "rcpi" for b in "suhzr"))
    for packed in ("", ".gz")
)


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a matrix or vector.

    Parameters
    ----------
    path : path
        ``.mtx``, ``.mm``: Matrix Market. ``.rb``, ``.hb``, ``.rua``, ``.rsa`` and the like: Rutherford-Boeing
        and Harwell-Boeing. Each of these also with ``.gz``. ``.npz``: written by
        ``scipy.sparse.save_npz``, or holding one array.

    Returns
    -------
    scipy.sparse array or ndarray
        A sparse array for coordinate files, an ndarray for dense ones.

    Raises
    ------
    InvalidValueError
        Unknown suffix, no such file; the message is one line.
    FormatError
        The file is malformed: one line with what and where.
    """
    target = Path(path)
    name = target.name.lower()
    if name.endswith(_MATRIX_MARKET):
        from warpfront.formats.matrix_market import read_matrix_market

        return read_matrix_market(target).matrix
    if name.endswith(_HARWELL_BOEING):
        from warpfront.formats.harwell_boeing import read_harwell_boeing

        return read_harwell_boeing(target)
    if name.endswith(".npz"):
        return _read_npz(target)
    raise InvalidValueError(
        f"{target}: unknown suffix; allowed are .mtx, .mm, .rb, .hb, .rua and the like (all also .gz), .npz"
    )


def _read_npz(path: Path) -> Any:
    if not path.exists():
        raise InvalidValueError(f"{path}: no such file")
    if not path.is_file():
        raise InvalidValueError(f"{path}: not a regular file")
    try:
        with path.open("rb") as stream:
            with zipfile.ZipFile(stream) as archive:
                for member in archive.infolist():
                    _check_member(path, archive, member)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as arrays:
                if "format" in arrays.files:
                    return _sparse(path, stream)
                if len(arrays.files) != 1:
                    names = ", ".join(arrays.files[:6]) or "nothing"
                    raise FormatError(
                        f"{path}: holds {names}; expected one array, or a file of scipy.sparse.save_npz"
                    )
                array = arrays[arrays.files[0]]
    except zipfile.BadZipFile as error:
        raise FormatError(f"{path}: not an npz file: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise InvalidValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (
        ValueError, KeyError, EOFError, zlib.error, NotImplementedError, RuntimeError, TypeError, AttributeError
    ) as error:  # fmt: skip
        if isinstance(error, InvalidValueError):
            raise
        raise FormatError(f"{path}: damaged npz file: {' '.join(str(error).split())}") from None
    if array.ndim not in (1, 2):
        raise FormatError(f"{path}: the array has {array.ndim} dimensions; a matrix has 2 and a vector 1")
    return array


def _check_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header claims more bytes than the archive holds, before NumPy allocates them."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        reader = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = reader(stream)
        header_bytes = stream.tell()
    if dtype.hasobject:
        raise FormatError(f"{path}: {member.filename} holds Python objects, which are not loaded")
    claimed = dtype.itemsize
    for extent in shape:
        claimed *= int(extent)
    present = member.file_size - header_bytes
    if claimed != present:
        raise FormatError(f"{path}: {member.filename} claims {claimed} bytes of data and has {present}")


def _sparse(path: Path, stream: Any) -> Any:
    from scipy import sparse

    from warpfront.formats.operand import read_operand

    stream.seek(0)
    matrix = sparse.load_npz(stream)
    if matrix.format not in ("csr", "csc", "coo", "bsr"):
        matrix = matrix.tocsr()
    try:
        read_operand(matrix)
    except InvalidValueError as error:
        raise FormatError(f"{path}: {error}") from None
    return matrix
