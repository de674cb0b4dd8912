"""Sparse matrix times vectors, the same bits every time: `SparseOperator`, `spmv`, `spmm`.

The matrix is read once; a product is then one pass over its rows (CPU: threads own rows; GPU: part of a warp owns a
row, long rows are split and their parts added in order).
"""

from __future__ import annotations

from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays, capability, dispatch, settings
from warpfront.backend.cpu import run_jobs
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.formats.storage import MAX_PADDING, Compressed, Ell, compressed

__all__ = ["SparseOperator", "spmm", "spmv"]

STORAGE = ("auto", "csr", "csc", "ell")
THREAD_ENTRIES = 50_000  # entries below which a second thread costs more than it brings
ELL_PADDING = 1.1  # "auto" on the GPU takes ELLPACK where padding stays below this


class SparseOperator:
    """A sparse matrix prepared for products. Usable wherever SciPy takes a ``LinearOperator``.

    Parameters
    ----------
    A : sparse matrix or array, dense array, or ``(indptr, indices, data[, shape])``
        As `DirectSolver` takes it, of any shape; duplicates are summed. Also a CuPy sparse matrix, with
        ``device="auto"`` or ``"cuda"``.
    storage : {"auto", "csr", "csc", "ell"}
        ``"csr"``: compressed rows. ``"csc"``: compressed columns; products convert them to rows once, since sums in
        column order could not be shared among threads with fixed bits. ``"ell"``: ELLPACK, for rows of nearly equal
        length. ``"auto"``: compressed rows on the CPU; on the GPU ELLPACK where it pads little.
    device : {"auto", "cpu", "cuda"}
        Where products run; ``"auto"``: where the matrix is.
    max_padding : float
        With ``storage="ell"`` only: slots an entry at most; default 3.

    Attributes
    ----------
    shape : (int, int)
    dtype : dtype
    storage : str
        What was taken.
    """

    def __init__(
        self,
        A: Any,
        storage: str = "auto",
        device: dispatch.Device = "auto",
        max_padding: float | None = None,
    ) -> None:
        if not isinstance(storage, str) or storage not in STORAGE:
            raise InvalidValueError(f"storage is {storage!r}; allowed are {', '.join(map(repr, STORAGE))}")
        if not isinstance(device, str) or device not in ("auto", "cpu", "cuda"):
            raise InvalidValueError(f"device is {device!r}; allowed are 'auto', 'cpu', 'cuda'")
        if max_padding is not None and storage != "ell":
            raise InvalidValueError(f"max_padding = {max_padding} belongs to storage='ell', not {storage!r}")
        on_device = type(A).__module__.startswith("cupyx.")
        if on_device and device == "cpu":
            raise InvalidValueError(
                "A is in device memory and device='cpu': copy it to the host first (A.get())"
            )
        self.device = "cuda" if on_device or device == "cuda" else "cpu"
        if self.device == "cuda" and capability.missing() is not None:
            raise NotSupportedError(str(capability.missing()))
        matrix = compressed(A.get() if on_device else A)
        self.shape, self.dtype = matrix.shape, matrix.values.dtype
        self._given = matrix
        self._ell: Ell | None = None
        self.storage = self._choose(storage, MAX_PADDING if max_padding is None else max_padding)

    def _choose(self, storage: str, max_padding: float) -> str:
        if storage == "ell":
            self._ell = self._rows.to_ell(max_padding)
        elif storage == "auto" and self.device == "cuda":
            lengths = np.diff(self._rows.ptr)
            if lengths.size and lengths.max() * lengths.size <= ELL_PADDING * max(1, self._rows.nnz):
                self._ell = self._rows.to_ell(ELL_PADDING)
        if storage == "auto":
            return "csr" if self._ell is None else "ell"
        return storage

    @cached_property
    def _rows(self) -> Compressed:
        return self._given.to_rows()

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return self._given.nnz

    @property
    def T(self) -> SparseOperator:
        """The transpose, without copying the matrix."""
        turned = self._given.transposed()
        kind = "csr" if self.storage == "csc" else "csc" if self.storage == "csr" else "auto"
        return _from_compressed(turned, kind, self.device)

    def to_scipy(self) -> Any:
        """Return the matrix as a SciPy sparse array."""
        return (self._given.to_columns() if self.storage == "csc" else self._rows).to_scipy()

    def matvec(self, x: Any, out: Any = None) -> Any:
        """``A x``.

        Parameters
        ----------
        x : array [columns] or [columns, 1]
            NumPy, or on the GPU also CuPy or PyTorch. Read.
        out : array [rows], optional
            Written and returned; must not overlap ``x``.

        Returns
        -------
        array [rows] (or [rows, 1])
            In the wider type of matrix and vector.
        """
        vector = x if arrays.is_device_array(x) else np.asarray(x)
        if tuple(vector.shape) not in ((self.shape[1],), (self.shape[1], 1)):
            raise InvalidValueError(f"x has shape {tuple(vector.shape)}; it must be [{self.shape[1]}]")
        y = self._apply(vector.reshape(-1), out)
        return y if len(vector.shape) == 1 else y.reshape(-1, 1)

    def matmat(self, X: Any) -> Any:
        """``A X`` for X [columns, k]; each column has the bits of `matvec`'s row sums, k does not matter."""
        block = X if arrays.is_device_array(X) else np.asarray(X)
        if len(block.shape) != 2 or block.shape[0] != self.shape[1]:
            raise InvalidValueError(f"X has shape {tuple(block.shape)}; it must be [{self.shape[1]}, k]")
        return self._apply(block, None)

    def rmatvec(self, x: Any) -> Any:
        """``A^H x`` for x [rows]."""
        if self.dtype.kind != "c":
            return self.T.matvec(x)
        conjugated = x.conj() if hasattr(x, "conj") else np.conj(x)
        return self.T.matvec(conjugated).conj()

    def __matmul__(self, other: Any) -> Any:
        """``A @ x`` or ``A @ X``."""
        return self.matvec(other) if np.ndim(other) == 1 else self.matmat(other)

    def _apply(self, x: Any, out: Any) -> Any:
        if self.device == "cuda":
            from warpfront.sparse import _product_cuda

            return _product_cuda.apply(self, x, out)
        if arrays.is_device_array(x):
            raise InvalidValueError(
                "x is in device memory and the matrix on the CPU: make it with device='cuda'"
            )
        kind = np.result_type(self.dtype, _checked(x.dtype))
        values = self._values_as(kind)
        x = np.ascontiguousarray(x, dtype=kind)
        shape = (self.shape[0], *x.shape[1:])
        y = np.empty(shape, kind) if out is None else _checked_out(out, shape, kind, x)
        self._rows_product(values, x, y)
        return y

    def _rows_product(self, values: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> None:
        from warpfront.sparse import _product_kernels as kernels

        rows, ptr, ind = self.shape[0], self._rows.ptr, self._rows.ind
        threads = settings.threads() if self.nnz * x[:1].size >= THREAD_ENTRIES else 1
        pieces = 8 * threads if threads > 1 else 1
        edges = np.searchsorted(ptr, np.linspace(0, self.nnz, pieces + 1).astype(np.int64))
        edges[0], edges[-1] = 0, rows

        def job(first: int, last: int) -> None:
            if x.ndim == 2:
                kernels.csr_times_block(
                    ptr, ind, values, x.reshape(-1), y.reshape(-1), x.shape[1], first, last
                )
            elif self._ell is not None:
                slots = self._ell.ind
                kernels.ell_times_vector(
                    slots.reshape(-1), self._ell_values(values.dtype), x, y, rows, len(slots), first, last
                )
            else:
                kernels.csr_times_vector(ptr, ind, values, x, y, first, last)

        run_jobs(threads, (partial(job, int(a), int(b)) for a, b in pairwise(edges)))

    def _values_as(self, kind: np.dtype[Any]) -> NDArray[Any]:
        return self._rows.values.astype(kind, copy=False)

    def _ell_values(self, kind: np.dtype[Any]) -> NDArray[Any]:
        assert self._ell is not None
        return self._ell.values.reshape(-1).astype(kind, copy=False)


def _from_compressed(matrix: Compressed, storage: str, device: str) -> SparseOperator:
    made = SparseOperator.__new__(SparseOperator)
    made.device, made.shape, made.dtype = device, matrix.shape, matrix.values.dtype
    made._given, made._ell = matrix, None
    made.storage = made._choose(storage, ELL_PADDING)
    return made


def _checked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    if dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise InvalidValueError(f"elements are {dtype}; allowed are float32, float64, complex64, complex128")
    return dtype.newbyteorder("=")


def _checked_out(out: Any, shape: tuple[int, ...], kind: np.dtype[Any], x: NDArray[Any]) -> NDArray[Any]:
    fits = isinstance(out, np.ndarray) and out.shape == shape and out.dtype == kind
    if not fits or not out.flags.c_contiguous or not out.flags.writeable:
        raise InvalidValueError(f"out must be a writable contiguous {kind} array of shape {shape}")
    if np.may_share_memory(out, x):
        raise InvalidValueError("out overlaps x, which is read while out is written")
    result: NDArray[Any] = out
    return result


def spmv(A: Any, x: Any, out: Any = None) -> Any:
    """Return ``A x``; for many products make a `SparseOperator` once.

    Parameters
    ----------
    A : sparse matrix
        As `SparseOperator` takes it.
    x : array [columns]
    out : array [rows], optional
        Written and returned.
    """
    return SparseOperator(A).matvec(x, out)


def spmm(A: Any, X: Any) -> Any:
    """Return ``A X`` for X [columns, k]; for many products make a `SparseOperator` once."""
    return SparseOperator(A).matmat(X)
