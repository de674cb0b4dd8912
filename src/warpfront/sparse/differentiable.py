"""Sparse solves inside PyTorch and JAX: ``x = solve(values, b)``, with gradients for both.

The gradient of ``x = A^-1 b`` is another solve with the same factor: with ``w = A^-H g`` it is ``w`` for b and
``-w_i conj(x_j)`` for the stored entry (i, j). This module holds the pattern and the factor; `_torch_solve` and
`_jax_solve` tell the two libraries about it. Source: M. Giles, Collected matrix derivative results for forward and
reverse mode algorithmic differentiation (2008), section 2.3.1.
"""

from __future__ import annotations

from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import InvalidValueError
from warpfront.formats.operand import read_operand

__all__ = ["DifferentiableSolver", "library_of_matrix"]


def library_of_matrix(A: Any) -> str | None:
    """Return ``"torch"`` or ``"jax"`` for a sparse matrix of that library, else ``None``."""
    root = type(A).__module__.partition(".")[0]
    if root == "torch":
        layout = str(getattr(A, "layout", ""))
        return "torch" if layout.startswith("torch.sparse") else None
    return "jax" if root in ("jax", "jaxlib") and type(A).__name__ in ("BCOO", "BCSR") else None


class DifferentiableSolver:
    """Solve ``A x = b`` as a differentiable function of A's stored values and of b.

    Parameters
    ----------
    A : sparse matrix, n x n
        Its pattern is kept, its values are not: of PyTorch (``sparse_coo``, ``sparse_csr``, ``sparse_csc``), of JAX
        (``BCOO``, ``BCSR``), or anything that `DirectSolver` takes.
    structure, view
        As for `DirectSolver`. For a triangle of a complex matrix the structure must be named, since it says what
        the other triangle is.
    device : {"auto", "cpu", "cuda"}
        Where the solver works. ``auto``: where PyTorch's tensors are; for JAX, which hands values over through host
        memory, the CPU.
    **parameters
        Keywords of `DirectSolver`, e.g. ``ir_n_steps=0``.

    Notes
    -----
    The first call analyses the pattern with its values; later ones refactorise, and values equal to the last ones do
    not even that, so a backward pass costs one solve. Gradients of a full symmetric matrix are those of independent
    entries; for a triangle, those of its entries, each of which stands for two. Reverse mode of any order for PyTorch;
    forward, reverse, ``jit`` and ``vmap`` for JAX.

    Examples
    --------
    >>> solve = DifferentiableSolver(A)
    >>> x = solve(values, b)  # tensors of PyTorch, or arrays of JAX
    >>> x.square().sum().backward()
    """

    def __init__(
        self, A: Any, structure: str = "auto", view: str = "full", device: str = "auto", **parameters: Any
    ) -> None:
        self.shape, rows, cols = _pattern(A)
        if len(set(self.shape)) != 1:
            raise InvalidValueError(f"A is {self.shape[0]} x {self.shape[1]}; a linear system is square")
        if device not in ("auto", "cpu", "cuda"):
            raise InvalidValueError(f"device is {device!r}; allowed are 'auto', 'cpu', 'cuda'")
        if view not in ("full", "lower", "upper"):
            raise InvalidValueError(f"view is {view!r}; allowed are 'full', 'lower', 'upper'")
        self.nnz = rows.shape[0]
        self._position = (rows, cols)
        self._options = {"structure": structure, "view": view, **parameters}
        self._device = device
        self._dtype: np.dtype[Any] | None = None
        self._solver: Any = None
        self._values: Any = None  # of the factor that is held
        self._lock = RLock()
        self.entries = _entries(rows, cols, view, structure in ("H", "HPD"))

    @property
    def solver(self) -> Any:
        """The `DirectSolver` that holds the last factor, for its `report`; ``None`` before the first call."""
        return self._solver

    def __call__(self, values: Any, b: Any, trans: str = "N") -> Any:
        """Solve with these values.

        Parameters
        ----------
        values : [nnz]
            In the order of A's entries (of a BCOO or sparse_coo: of its indices). Of the type of the first call.
        b : [n] or [n, k]
            Of the same library; real b for a complex matrix is fine.
        trans : {"N", "T", "H"}
            Solve with A, its transpose or its conjugate transpose.

        Returns
        -------
        tensor or array, shape of b

        Raises
        ------
        SingularMatrixError, NotPositiveDefiniteError, RefinementFailedError
            Under ``jax.jit`` wrapped by JAX into an error of its own, with the message.
        """
        if not isinstance(trans, str) or trans not in ("N", "T", "H"):
            raise InvalidValueError(f"trans is {trans!r}; allowed are 'N', 'T', 'H'")
        for name, given, sizes in (("values", values, (1,)), ("b", b, (1, 2))):
            if not hasattr(given, "shape") or len(given.shape) not in sizes:
                raise InvalidValueError(f"{name} must be a tensor or an array with {sizes[-1]} dimension(s)")
        if values.shape[0] != self.nnz:
            raise InvalidValueError(f"{values.shape[0]} values given; the pattern has {self.nnz} entries")
        if b.shape[0] != self.shape[0]:
            raise InvalidValueError(f"b has {b.shape[0]} rows; the matrix has {self.shape[0]}")
        roots = [type(given).__module__.partition(".")[0] for given in (values, b)]
        if "torch" in roots:
            from warpfront.sparse import _torch_solve

            return _torch_solve.solve(self, values, b, trans)
        if roots[0] in ("jax", "jaxlib") or roots[1] in ("jax", "jaxlib"):
            from warpfront.sparse import _jax_solve

            return _jax_solve.solve(self, values, b, trans)
        raise InvalidValueError(
            f"values and b are {roots[0]} and {roots[1]} arrays; allowed are PyTorch's and JAX's. "
            "Without gradients, DirectSolver solves for NumPy and CuPy arrays"
        )

    def solve_now(self, values: Any, b: Any, trans: str, cuda: bool = False) -> Any:
        """Solve without gradients, on arrays: refactorise unless these values are the factor's.

        Parameters
        ----------
        values : [nnz], ndarray, or on the device an array of CuPy
        b : [n] or [n, k], likewise
        trans : {"N", "T", "H"}
        cuda : bool
            The arrays are in device memory.
        """
        with self._lock:
            self._hold(values, cuda)
            return self._solver.solve(b, trans)

    def _hold(self, values: Any, cuda: bool) -> None:
        if self._dtype is None:
            self._dtype = np.dtype(values.dtype)
        if np.dtype(values.dtype) != self._dtype:
            raise InvalidValueError(f"values are {values.dtype}; the first ones were {self._dtype}")
        held = self._values
        if held is not None and type(held) is type(values) and bool((held == values).all()):
            return
        self._values = None  # until the factor is made
        if self._solver is None:
            self._solver = self._begin(values, cuda)
            self._solver.factorize()
        else:
            self._solver.refactorize(values)
        self._values = values.copy()

    def _begin(self, values: Any, cuda: bool) -> Any:
        from scipy.sparse import coo_array

        from warpfront.sparse.solver import DirectSolver

        host = values.get() if cuda else np.asarray(values)
        device = ("cuda" if cuda else "cpu") if self._device == "auto" else self._device
        return DirectSolver(
            coo_array((host, self._position), shape=self.shape), device=device, **self._options
        )


def _pattern(A: Any) -> tuple[tuple[int, int], NDArray[np.int32], NDArray[np.int32]]:
    """Return shape, rows and columns of the stored entries, in their order."""
    library = library_of_matrix(A)
    if library == "torch":
        from warpfront.sparse import _torch_solve

        A = _torch_solve.pattern(A)
    elif library == "jax":
        from warpfront.sparse import _jax_solve

        A = _jax_solve.pattern(A)
    operand = read_operand(A)
    return operand.shape, *operand.coordinates()


class Entries:
    """The matrix as a sum of stored values: entry e is ``values[slot[e]]`` at (row[e], col[e]).

    `slot` is ``None`` where each value stands for itself. Entries from `mirrored` on are those of the other triangle,
    conjugated where the matrix is Hermitian.
    """

    def __init__(
        self,
        row: NDArray[np.int64],
        col: NDArray[np.int64],
        slot: NDArray[np.int64] | None,
        mirrored: int,
        hermitian: bool,
    ) -> None:
        self.row, self.col, self.slot, self.mirrored, self.hermitian = row, col, slot, mirrored, hermitian


def _entries(rows: NDArray[Any], cols: NDArray[Any], view: str, hermitian: bool) -> Entries:
    row, col = rows.astype(np.int64), cols.astype(np.int64)
    if view == "full":
        return Entries(row, col, None, row.shape[0], False)
    kept = np.flatnonzero(row >= col if view == "lower" else row <= col)
    off = kept[row[kept] != col[kept]]
    return Entries(
        np.concatenate([row[kept], col[off]]),
        np.concatenate([col[kept], row[off]]),
        np.concatenate([kept, off]),
        kept.shape[0],
        hermitian,
    )
