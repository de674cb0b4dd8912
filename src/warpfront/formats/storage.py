"""Sparse storage: compressed rows or columns, ELLPACK, and conversions among them that keep every entry's bits.

`Compressed` is CSR or CSC with sorted, unique indices. `Ell` pads every row to the longest one and stores slot by slot,
which suits rows of nearly equal length; it refuses more padding than is asked for. Conversions are deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError

__all__ = ["Compressed", "Ell", "compressed"]

MAX_PADDING = 3.0


@dataclass(frozen=True, eq=False)
class Compressed:
    """Compressed sparse rows (``by="row"``) or columns (``by="column"``).

    Attributes
    ----------
    shape : (int, int)
        Rows, columns.
    by : {"row", "column"}
        What `ptr` points at.
    ptr : int64[lines + 1]
        Start of each row (column).
    ind : int32[nnz]
        Column (row) of each entry, strictly increasing within a line.
    values : float32, float64, complex64 or complex128 [nnz]
    """

    shape: tuple[int, int]
    by: str
    ptr: NDArray[np.int64]
    ind: NDArray[np.int32]
    values: NDArray[Any]

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return int(self.ind.size)

    def turned(self) -> Compressed:
        """Return the same matrix compressed the other way (a stable counting sort)."""
        from warpfront.formats._storage_kernels import turn

        lines = self.shape[1] if self.by == "row" else self.shape[0]
        ptr = np.zeros(lines + 1, np.int64)
        ind, values = np.empty(self.nnz, np.int32), np.empty_like(self.values)
        turn(self.ptr, self.ind, self.values, ptr, ind, values)
        return Compressed(self.shape, "column" if self.by == "row" else "row", ptr, ind, values)

    def transposed(self) -> Compressed:
        """Return the transpose: the same arrays, read the other way."""
        by = "column" if self.by == "row" else "row"
        return Compressed((self.shape[1], self.shape[0]), by, self.ptr, self.ind, self.values)

    def to_rows(self) -> Compressed:
        """Return the matrix compressed by rows (itself where it is)."""
        return self if self.by == "row" else self.turned()

    def to_columns(self) -> Compressed:
        """Return the matrix compressed by columns (itself where it is)."""
        return self if self.by == "column" else self.turned()

    def to_scipy(self) -> Any:
        """Return a SciPy ``csr_array`` or ``csc_array`` on the same memory."""
        from scipy.sparse import csc_array, csr_array

        kind = csr_array if self.by == "row" else csc_array
        return kind((self.values, self.ind, self.ptr), shape=self.shape)

    def to_ell(self, max_padding: float = MAX_PADDING) -> Ell:
        """Return the matrix in ELLPACK storage.

        Parameters
        ----------
        max_padding : float
            Largest allowed ratio of stored slots to entries.

        Raises
        ------
        InvalidValueError
            The longest row would pad the others beyond that; keep such a matrix in compressed rows.
        """
        from warpfront.formats._storage_kernels import fill_ell

        rows = self.to_rows()
        lengths = np.diff(rows.ptr)
        width, n = int(lengths.max(initial=0)), rows.shape[0]
        padding = width * n / max(1, rows.nnz)
        if padding > max_padding:
            raise InvalidValueError(
                f"ELLPACK storage would hold {padding:.1f} slots an entry (longest row {width}, mean "
                f"{rows.nnz / max(1, n):.1f}), more than max_padding = {max_padding}; use storage='csr'"
            )
        ind = np.full((width, n), -1, np.int32)
        values = np.zeros((width, n), rows.values.dtype)
        fill_ell(rows.ptr, rows.ind, rows.values, ind.reshape(-1), values.reshape(-1))
        return Ell(rows.shape, ind, values)


@dataclass(frozen=True, eq=False)
class Ell:
    """ELLPACK: slot k of every row side by side, so that neighbouring rows lie in neighbouring memory.

    Attributes
    ----------
    shape : (int, int)
    ind : int32[width, rows]
        Column of each slot; -1 is padding, after a row's entries.
    values : [width, rows]
        0 in padding.
    """

    shape: tuple[int, int]
    ind: NDArray[np.int32]
    values: NDArray[Any]

    @property
    def nnz(self) -> int:
        """Entries, padding not counted."""
        return int(np.count_nonzero(self.ind >= 0))

    def to_rows(self) -> Compressed:
        """Return the matrix in compressed rows."""
        from warpfront.formats._storage_kernels import drain_ell

        ptr = np.zeros(self.shape[0] + 1, np.int64)
        np.cumsum((self.ind >= 0).sum(axis=0), out=ptr[1:])
        ind, values = np.empty(int(ptr[-1]), np.int32), np.empty(int(ptr[-1]), self.values.dtype)
        drain_ell(ptr, ind, values, self.ind.reshape(-1), self.values.reshape(-1))
        return Compressed(self.shape, "row", ptr, ind, values)


def compressed(A: Any) -> Compressed:
    """Read any sparse or dense matrix that `read_operand` takes; duplicates are summed, explicit zeros stay.

    Raises
    ------
    FormatError, InvalidValueError, NotSupportedError
        As `read_operand`.
    """
    from warpfront.formats.canonical import canonicalize
    from warpfront.formats.operand import read_operand

    operand = read_operand(A)
    canonical = canonicalize(operand)
    values = canonical.gather(operand.data)
    return Compressed((canonical.n_rows, canonical.n_cols), "column", canonical.ptr, canonical.ind, values)
