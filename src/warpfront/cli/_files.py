"""Files of the commands: read a system, check early where results will go, write a solution."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from warpfront.errors import InvalidValueError

__all__ = ["InputFile", "check_output", "describe_file", "read_rhs", "write_solution"]

SOLUTION_SUFFIXES = (".mtx", ".mtx.gz", ".npz")


@dataclass(frozen=True)
class InputFile:
    """A file that was read: as the user named it, its size, and the SHA-256 of its bytes."""

    path: str
    bytes: int
    sha256: str


def describe_file(path: Path) -> InputFile:
    """Hash a file that has been read."""
    data = path.read_bytes()
    return InputFile(str(path), len(data), sha256(data).hexdigest())


def check_output(path: Path | None, option: str, suffixes: tuple[str, ...], inputs: list[Path]) -> None:
    """Refuse a path that could not be written, or that would overwrite an input, before the work begins.

    Raises
    ------
    InvalidValueError
        One line that begins with the path.
    """
    if path is None:
        return
    if not path.name.lower().endswith(suffixes):
        raise InvalidValueError(f"{path}: {option} writes {', '.join(suffixes)}; the suffix says which")
    if path.is_dir():
        raise InvalidValueError(f"{path}: is a folder; {option} needs a file")
    folder = path.parent
    if not folder.is_dir():
        raise InvalidValueError(f"{path}: the folder {folder} does not exist")
    if any(path.exists() and source.exists() and path.samefile(source) for source in inputs):
        raise InvalidValueError(f"{path}: {option} would overwrite an input")
    if not _writable(path if path.exists() else folder):
        raise InvalidValueError(f"{path}: cannot be written (permission denied)")


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK)


def read_rhs(path: Path, n: int) -> Any:
    """Read right-hand sides: float[n, k], dense or coordinate, ``.npz`` too.

    Raises
    ------
    InvalidValueError
        Not n rows; the line names the file.
    """
    from warpfront.formats import read_matrix

    b = read_matrix(path)
    rows = b.shape[0]
    if rows != n:
        extent = " x ".join(str(s) for s in b.shape)
        raise InvalidValueError(f"{path}: is {extent}; the matrix has {n} rows, so b needs {n}")
    return b.toarray() if hasattr(b, "toarray") else b


def write_solution(path: Path, x: Any) -> None:
    """Write x as a Matrix Market array, gzipped or not, or as the one array of an ``.npz``."""
    if path.name.lower().endswith(".npz"):
        import numpy as np

        np.savez_compressed(path, x=x)
        return
    from warpfront.formats import write_matrix_market

    write_matrix_market(path, x, "solution of A x = b, written by warpfront solve")
