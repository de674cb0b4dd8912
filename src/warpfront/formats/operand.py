"""`Operand`: the matrix exactly as the caller gave it, checked once.

Nothing is sorted, summed or transposed here; `canonicalize` does that, with a map from the caller's entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import FormatError, InvalidValueError, NotSupportedError, PatternChangedError

__all__ = ["Operand", "first_nonfinite", "flat_values", "host_array", "read_operand"]

Kind = Literal["csr", "csc", "coo", "bsr", "dense", "raw"]
Array = NDArray[Any]

SUPPORTED_DTYPES = ("float32", "float64", "complex64", "complex128")
MAX_DIMENSION = 2**31 - 1
_CPU_DEVICE = 1  # kDLCPU
_NATIVE = frozenset(np.dtype(name) for name in SUPPORTED_DTYPES)
_FINITE_CHUNK = 1 << 16


@dataclass(frozen=True)
class Operand:
    """A checked matrix in the caller's own layout.

    Attributes
    ----------
    shape : tuple of int
        Rows, columns; each at most 2^31 - 1.
    kind : {"csr", "csc", "coo", "bsr", "dense", "raw"}
        What the caller gave. ``raw`` is a CSR triple.
    data : ndarray, 1-D
        The caller's values in the caller's order: as stored; blocks row by row for ``bsr``; the nonzeros in
        row-major order for ``dense``. A view of the caller's array where dtype and layout allow it.
    ptr, ind : ndarray of int32 or int64, or None
        Compressed kinds: row pointers and column indices (``csr``, ``raw``), column pointers and row indices
        (``csc``), block-row pointers and block-column indices (``bsr``).
    row, col : ndarray of int32 or int64, or None
        ``coo`` and ``dense``: position of each value.
    block : tuple of int
        Block shape of ``bsr``; (1, 1) otherwise.
    """

    shape: tuple[int, int]
    kind: Kind
    data: Array
    ptr: Array | None = None
    ind: Array | None = None
    row: Array | None = None
    col: Array | None = None
    block: tuple[int, int] = (1, 1)

    @property
    def nnz(self) -> int:
        """Number of stored values, duplicates and explicit zeros included."""
        return int(self.data.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Value type: float32, float64, complex64 or complex128."""
        return self.data.dtype

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """Index type: int32 or int64."""
        index = self.ind if self.ind is not None else self.row
        assert index is not None
        return index.dtype

    def coordinates(self) -> tuple[Array, Array]:
        """Return row and column of every value of `data`, int32[nnz] each, in the caller's order."""
        if self.row is not None and self.col is not None:
            return self.row.astype(np.int32, copy=False), self.col.astype(np.int32, copy=False)
        assert self.ptr is not None
        assert self.ind is not None
        major = np.repeat(np.arange(self.ptr.shape[0] - 1, dtype=np.int32), np.diff(self.ptr))
        minor = self.ind.astype(np.int32, copy=False)
        if self.kind == "csc":
            return minor, major
        if self.kind != "bsr":
            return major, minor
        height, width = self.block
        in_row = np.arange(height, dtype=np.int32)[None, :, None]
        in_col = np.arange(width, dtype=np.int32)[None, None, :]
        full = (major.shape[0], height, width)
        row = np.broadcast_to(major[:, None, None] * np.int32(height) + in_row, full)
        col = np.broadcast_to(minor[:, None, None] * np.int32(width) + in_col, full)
        return row.reshape(-1), col.reshape(-1)


def first_nonfinite(values: Array) -> int:
    """Return the flat index (C order) of the first NaN or infinity in `values`, or -1. Either part counts."""
    flat = np.asarray(values).reshape(-1)
    for start in range(0, flat.shape[0], _FINITE_CHUNK):
        finite = np.isfinite(flat[start : start + _FINITE_CHUNK])
        if not finite.all():
            return start + int(np.argmin(finite))
    return -1


def read_operand(A: Any) -> Operand:
    """Check `A` and return it as an `Operand`.

    Parameters
    ----------
    A : sparse matrix or array, ndarray, or tuple
        SciPy ``csr``, ``csc``, ``coo`` or ``bsr``, matrix or array; ``dia``, ``lil`` and ``dok`` are read as their
        ``tocsr()``; a dense 2-D array, of which only the
        nonzeros are kept (NaN is one; for explicit zeros pass a sparse matrix); or a CSR triple
        ``(indptr, indices, data)``, square, or ``(indptr, indices, data, shape)``. The members of a triple
        and a dense `A` may be anything that speaks DLPack on the CPU. Indices int32 or int64, in any order,
        repeated or not. Values float32, float64, complex64, complex128; bool and integers become float64.

    Raises
    ------
    FormatError
        Pointers that decrease, indices out of range, lengths that disagree; the message says where.
    InvalidValueError
        Another container, dtype or number of dimensions; the message says what is allowed.
    NotSupportedError
        Arrays that live on a GPU; more than 2^31 - 1 rows or columns.
    """
    from scipy import sparse

    if sparse.issparse(A):
        return _read_scipy(A)
    if isinstance(A, tuple):
        return _read_raw(A)
    if isinstance(A, np.ndarray) or hasattr(A, "__dlpack__") or hasattr(A, "__cuda_array_interface__"):
        return _read_dense(host_array(A, "A"))
    raise InvalidValueError(
        f"A is a {type(A).__module__}.{type(A).__qualname__}; allowed are scipy.sparse csr, csc, coo, bsr, "
        "a dense 2-D array (numpy.asarray) and a CSR tuple (indptr, indices, data[, shape])"
    )


def flat_values(operand: Operand, values: Any) -> Array:
    """Return new values for the pattern of `operand`, flattened in its order.

    Parameters
    ----------
    operand : Operand
        The analysed matrix.
    values : array, or a matrix of the same kind
        ``operand.nnz`` values in the caller's order (for ``bsr`` also blocks), or a whole matrix of the kind
        and pattern of `operand`.

    Raises
    ------
    PatternChangedError
        Another length, shape, kind or index array. A dense matrix may not gain or lose a nonzero.
    InvalidValueError
        A dtype that is not allowed.
    """
    from scipy import sparse

    whole = sparse.issparse(values) or isinstance(values, tuple)
    if operand.kind == "dense" and not whole:
        array = host_array(values, "values")
        if array.ndim == 2:
            values, whole = array, True
    if not whole:
        flat = _as_values(host_array(values, "values"), "values").reshape(-1)
        if flat.shape[0] != operand.nnz:
            raise PatternChangedError(
                f"{flat.shape[0]} values given; the analysed matrix has {operand.nnz} entries"
            )
        return flat
    new = read_operand(values)
    if (new.kind, new.shape, new.block) != (operand.kind, operand.shape, operand.block):
        raise PatternChangedError(
            f"a {new.kind} matrix {new.shape} given, but a {operand.kind} matrix {operand.shape} was analysed"
        )
    for name in ("ptr", "ind", "row", "col"):
        old_array, new_array = getattr(operand, name), getattr(new, name)
        if old_array is not None and old_array is not new_array and not np.array_equal(old_array, new_array):
            raise PatternChangedError(f"the pattern differs from the analysed one (array {name!r})")
    return new.data


def _read_scipy(A: Any) -> Operand:
    if len(A.shape) != 2:
        raise InvalidValueError(f"A has {len(A.shape)} dimension(s); a matrix has 2")
    shape = _checked_shape(A.shape)
    if A.format in ("dia", "lil", "dok"):
        A = A.tocsr()  # the order of its entries is the caller's order then
    if A.format in ("csr", "csc", "bsr"):
        block = tuple(int(b) for b in A.blocksize) if A.format == "bsr" else (1, 1)
        if min(block) < 1 or shape[0] % block[0] or shape[1] % block[1]:
            raise FormatError(f"blocks of {block} do not tile a matrix of {shape}")
        n_major = shape[1] if A.format == "csc" else shape[0] // block[0]
        n_minor = shape[0] if A.format == "csc" else shape[1] // block[1]
        ptr, ind = _as_index(A.indptr, "indptr"), _as_index(A.indices, "indices")
        values = _as_values(np.asarray(A.data), "data")
        stored = _check_compressed(ptr, ind, values.shape[0], (n_major, n_minor), exact=False)
        return Operand(shape, A.format, values[:stored].reshape(-1), ptr=ptr, ind=ind[:stored], block=block)  # type: ignore[arg-type]
    if A.format == "coo":
        return _read_coordinates(A.row, A.col, A.data, shape)
    raise InvalidValueError(
        f"A is stored as {A.format!r}; allowed are SciPy's csr, csc, coo, bsr, dia, lil, dok"
    )


def _read_coordinates(row: Any, col: Any, data: Any, shape: tuple[int, int]) -> Operand:
    row, col = _as_index(row, "row"), _as_index(col, "col")
    values = _as_values(np.asarray(data), "data")
    if not row.shape == col.shape == values.shape:
        raise FormatError(f"row, col and data have lengths {row.size}, {col.size}, {values.size}")
    for name, index, limit in (("row", row, shape[0]), ("col", col, shape[1])):
        bad = _first_outside(index, limit)
        if bad >= 0:
            raise FormatError(f"{name}[{bad}] = {index[bad]} is outside {_range(limit)}")
    return Operand(shape, "coo", values, row=row, col=col)


def _read_raw(triple: tuple[Any, ...]) -> Operand:
    if len(triple) not in (3, 4):
        raise InvalidValueError(f"a tuple of {len(triple)}; allowed are (indptr, indices, data[, shape])")
    ptr = _as_index(host_array(triple[0], "indptr"), "indptr")
    ind = _as_index(host_array(triple[1], "indices"), "indices")
    values = _as_values(host_array(triple[2], "data"), "data")
    if values.ndim != 1:
        raise FormatError(f"data has {values.ndim} dimensions; a CSR triple has 1-D data")
    n_rows = max(ptr.shape[0] - 1, 0)
    shape = _checked_shape(triple[3] if len(triple) == 4 else (n_rows, n_rows))
    _check_compressed(ptr, ind, values.shape[0], shape, exact=True)
    return Operand(shape, "raw", values, ptr=ptr, ind=ind)


def _read_dense(array: Array) -> Operand:
    if array.ndim != 2:
        raise InvalidValueError(f"A has {array.ndim} dimension(s); a matrix has 2")
    shape = _checked_shape(array.shape)
    _refuse_dtype(array.dtype, "A")
    row, col = np.nonzero(array)
    return Operand(shape, "dense", _as_values(array[row, col], "A"), row=row, col=col)


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        n_rows, n_cols = (int(s) for s in shape)
    except (TypeError, ValueError):
        raise InvalidValueError(f"shape is {shape!r}; a matrix has two integers, (rows, columns)") from None
    if min(n_rows, n_cols) < 0:
        raise InvalidValueError(f"shape is {(n_rows, n_cols)}; neither may be negative")
    if max(n_rows, n_cols) > MAX_DIMENSION:
        raise NotSupportedError(f"shape is {(n_rows, n_cols)}; each is limited to {MAX_DIMENSION}")
    return n_rows, n_cols


def host_array(source: Any, name: str) -> Array:
    """Return `source` as a NumPy array on the CPU, without a copy where it already is one."""
    if isinstance(source, np.ma.MaskedArray):
        raise InvalidValueError(f"{name} is a masked array; fill it or pass a sparse matrix")
    if isinstance(source, np.ndarray):
        return np.asarray(source)
    if hasattr(source, "__cuda_array_interface__") or _dlpack_device(source) not in (None, _CPU_DEVICE):
        raise NotSupportedError(f"{name} is not in CPU memory; copy it to the CPU first")
    if hasattr(source, "__dlpack__"):
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError) as error:
            raise InvalidValueError(f"{name} cannot be read through DLPack: {error}") from error
    try:
        return np.asarray(source)
    except ValueError as error:
        raise InvalidValueError(f"{name} is not an array: {error}") from error


def _dlpack_device(source: Any) -> int | None:
    probe = getattr(source, "__dlpack_device__", None)
    return None if probe is None else int(probe()[0])


def _refuse_dtype(dtype: np.dtype[Any], name: str) -> None:
    if dtype.newbyteorder("=").name in SUPPORTED_DTYPES or dtype.kind in "biu":
        return
    known = {"f": "float32 or float64", "c": "complex64 or complex128"}
    alternative = known.get(dtype.kind, "a numeric dtype")
    raise InvalidValueError(
        f"{name} has dtype {dtype.name}; convert it to {alternative} "
        f"(allowed: {', '.join(SUPPORTED_DTYPES)}; bool and integers become float64)"
    )


def _as_values(array: Array, name: str) -> Array:
    """Return contiguous values of a supported dtype in native byte order."""
    if array.dtype in _NATIVE:
        return np.asarray(array, order="C")
    _refuse_dtype(array.dtype, name)
    dtype = np.dtype(np.float64) if array.dtype.kind in "biu" else array.dtype.newbyteorder("=")
    # asarray with order="C" keeps 0-d and 1-d as they are and copies only where the layout demands it
    return np.asarray(array, dtype=dtype, order="C")


def _as_index(array: Any, name: str) -> Array:
    array = np.asarray(array)
    if array.ndim != 1:
        raise FormatError(f"{name} has {array.ndim} dimensions; an index array has 1")
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidValueError(f"{name} has dtype {array.dtype.name}; indices are int32 or int64")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise FormatError(f"{name}[{int(array.argmax())}] = {int(array.max())} does not fit int64")
    dtype = np.int32 if array.dtype.newbyteorder("=") == np.int32 else np.int64
    return np.asarray(array, dtype=dtype, order="C")


def _check_compressed(ptr: Array, ind: Array, n_values: int, shape: tuple[int, int], *, exact: bool) -> int:
    """Check compressed index arrays over (n_major, n_minor); return the number of stored entries.

    With ``exact=False`` the arrays may be longer than ``indptr`` says, as SciPy allows.
    """
    n_major, n_minor = shape
    if ptr.shape[0] != n_major + 1:
        raise FormatError(f"indptr has {ptr.shape[0]} entries; {n_major} rows or columns need {n_major + 1}")
    if ptr[0] != 0:
        raise FormatError(f"indptr[0] = {ptr[0]}; it must be 0")
    falling = np.flatnonzero(ptr[1:] < ptr[:-1])
    if falling.size:
        k = int(falling[0])
        raise FormatError(f"indptr decreases from {ptr[k]} to {ptr[k + 1]} at position {k + 1}")
    stored = int(ptr[-1])
    for name, length in (("indices", ind.shape[0]), ("data", n_values)):
        if length < stored or (exact and length > stored):
            raise FormatError(f"{name} has {length} entries, but indptr ends at {stored}")
    bad = _first_outside(ind[:stored], n_minor)
    if bad >= 0:
        major = int(np.searchsorted(ptr, bad, side="right")) - 1
        raise FormatError(f"indices[{bad}] = {ind[bad]} (pointer slot {major}) is outside {_range(n_minor)}")
    return stored


def _first_outside(index: Array, limit: int) -> int:
    if index.size == 0 or (int(index.min()) >= 0 and int(index.max()) < limit):
        return -1
    return int(np.argmax((index < 0) | (index >= limit)))


def _range(limit: int) -> str:
    return f"0..{limit - 1}" if limit else "an empty range"
