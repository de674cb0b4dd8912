"""What ``warpfront profile`` can run: operations on made-up data of a given size, with what they must do at the least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError

__all__ = ["OPERATIONS", "Work", "array_module", "make_work"]


@dataclass(frozen=True)
class Work:
    """One operation, ready to be called again and again.

    Attributes
    ----------
    call : callable
        Does it once; on a GPU it queues the work.
    flops, bytes : float
        Floating-point operations, and bytes that must be read and written at the least.
    what : str
        The data.
    """

    call: Callable[[], Any]
    flops: float
    bytes: float
    what: str


def _normal(shape: tuple[int, ...], kind: np.dtype[Any], xp: Any) -> Any:
    return xp.asarray(np.random.default_rng(0).standard_normal(shape).astype(kind))


def _dense(operation: str) -> Callable[..., Work]:
    def make(sizes: tuple[int, ...], kind: np.dtype[Any], xp: Any) -> Work:
        from warpfront import dense

        n, batch = sizes[0], sizes[1] if len(sizes) == 2 else 1
        a = _normal((n, n) if batch == 1 else (batch, n, n), kind, xp)
        b = xp.ones(n, kind)
        calls: dict[str, Callable[[], Any]] = {
            "solve": lambda: dense.solve(a, b),
            "inv": lambda: dense.inv(a),
            "slogdet": lambda: dense.slogdet(a),
        }
        third, matrix = batch * n**3 / 3.0, batch * float(n * n) * kind.itemsize
        inverse = operation == "inv"
        what = f"{batch} of order {n}, standard normal" if batch > 1 else f"order {n}, standard normal"
        return Work(calls[operation], (6 if inverse else 2) * third, (2 if inverse else 1) * matrix, what)

    return make


def _transpose(sizes: tuple[int, ...], kind: np.dtype[Any], xp: Any) -> Work:
    from warpfront import dense

    m, n = sizes
    a, out = _normal((m, n), kind, xp), xp.empty((n, m), kind)
    return Work(lambda: dense.transpose(a, out=out), 0.0, 2.0 * m * n * kind.itemsize, f"{m} x {n}")


def _product(columns_given: bool) -> Callable[..., Work]:
    def make(sizes: tuple[int, ...], kind: np.dtype[Any], xp: Any) -> Work:
        from scipy import sparse

        from warpfront.sparse.products import SparseOperator

        side, columns = sizes[0], sizes[1] if columns_given else 1
        line = sparse.diags_array(
            [-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1]
        )
        eye = sparse.eye_array(side)
        grid = (sparse.kron(line, eye) + sparse.kron(eye, line)).tocsr().astype(kind)
        operator = SparseOperator(grid, device="cpu" if xp is np else "cuda")
        rows = side * side
        x = _normal((rows, columns) if columns_given else (rows,), kind, xp)
        moved = grid.nnz * (kind.itemsize + 4.0) + 8.0 * (rows + 1) + 2.0 * rows * columns * kind.itemsize
        what = f"five-point Laplacian on {side} x {side}, {grid.nnz:,} entries, {columns} columns"
        return Work(lambda: operator @ x, 2.0 * grid.nnz * columns, moved, what)

    return make


# Operation -> what its sizes are, how many there may be, what makes it.
OPERATIONS: dict[str, tuple[str, tuple[int, int], Callable[..., Work]]] = {
    "solve": ("N [BATCH]", (1, 2), _dense("solve")),
    "inv": ("N [BATCH]", (1, 2), _dense("inv")),
    "slogdet": ("N [BATCH]", (1, 2), _dense("slogdet")),
    "transpose": ("M N", (2, 2), _transpose),
    "spmv": ("SIDE of a square grid", (1, 1), _product(False)),
    "spmm": ("SIDE of a square grid, COLUMNS", (2, 2), _product(True)),
}


def array_module(device: str) -> Any:
    """Return NumPy, or CuPy for ``"cuda"``."""
    if device == "cpu":
        return np
    import cupy

    return cupy


def make_work(operation: str, sizes: tuple[int, ...], dtype: str, device: str) -> Work:
    """Make an operation's data and call on ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    InvalidValueError
        No such operation, sizes that are not its own, or an element type it has no use for.
    """
    if operation not in OPERATIONS:
        raise InvalidValueError(f"no such operation: {operation!r}; there are {', '.join(OPERATIONS)}")
    usage, (least, most), make = OPERATIONS[operation]
    if not least <= len(sizes) <= most or any(size < 1 for size in sizes):
        given = " ".join(map(str, sizes)) or "none"
        raise InvalidValueError(f"{operation} takes its sizes as {usage}, each at least 1; got {given}")
    if dtype not in ("float32", "float64"):
        raise InvalidValueError(f"dtype is {dtype!r}; allowed are 'float32' and 'float64'")
    return make(sizes, np.dtype(dtype), array_module(device))
