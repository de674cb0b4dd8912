"""Host side of the triangular sweeps: scaling, permutation, transposition, threads, buffers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import run_threads
from warpfront.sparse.numeric.factorize import Factor
from warpfront.sparse.plan import GeneralWork, Many, Sides, Work

__all__ = ["Sweeper"]

SMALL_FACTOR = 1_000_000  # entries of L below which one thread solves alone
FORWARD, DIAGONAL, BACKWARD = 1, 2, 4


class Sweeper:
    """Solves with one `Factor`; holds the buffers, so one object serves one caller at a time.

    Parameters
    ----------
    factor : Factor
        Status OK, or SINGULAR with components of zero pivots set to zero.
    """

    def __init__(self, factor: Factor) -> None:
        symbolic, state = factor.symbolic, factor.state
        self.factor = factor
        self.general = symbolic.general
        self._large = factor.nnz_factor >= SMALL_FACTOR
        self.threads = max(1, factor.options.threads) if self._large else 1
        dtype = self.dtype = state.panel.dtype
        rows = int(state.limits[8])
        self._owed = np.zeros(self.threads * symbolic.n, dtype)
        self._scratch = np.empty(self.threads * rows, dtype)
        self._x, self._y = np.empty((2, symbolic.n), dtype)
        self._complex = dtype.kind == "c"
        self._hermitian = self._complex and (factor.options.hermitian or factor.options.cholesky)
        one = np.ones(0)
        row_scale = one if factor.scale is None else factor.scale
        if self.general is None:
            self._rows = self._cols = (symbolic.perm, row_scale)
        else:
            self._rows = (self.general.rows, row_scale)
            self._cols = (symbolic.perm, one if factor.col_scale is None else factor.col_scale)

    @cached_property
    def _stored_ptr(self) -> NDArray[np.int64]:
        """Where `_stored` has the rows of each subtree's root."""
        roots = self.factor.state.node[self.factor.symbolic.plan.task_end]
        return np.concatenate([[0], np.cumsum(roots[:, 3] - roots[:, 5])]).astype(np.int64)

    @cached_property
    def _stored(self) -> NDArray[Any]:
        """What subtrees owe to the trunk; a block triangular solve has no use for it."""
        return np.empty(int(self._stored_ptr[-1]), self.dtype)

    def solve_into(self, b: NDArray[Any], base: NDArray[Any], x: NDArray[Any], trans: str = "N") -> None:
        """``x = base + op(A)^-1 b`` for one right-hand side.

        Parameters
        ----------
        b : float[n]
            Contiguous; read.
        base : float[n] or empty
            Added to the solution; may be ``x`` itself.
        x : float[n]
            Contiguous; written.
        trans : {"N", "T", "H"}
            op(A) is A, its transpose, or its conjugate transpose.
        """
        from warpfront.sparse.solve import _residual_kernels as vectors

        if not self._y.size:
            return
        conj = self._complex and trans == ("T" if self._hermitian else "H")
        self.permute_in(np.conj(b) if conj else b, self._x, trans)
        self.apply(FORWARD | DIAGONAL | BACKWARD, self._x, self._y, trans)
        perm, scale = self._cols if trans == "N" else self._rows
        if conj:
            np.conjugate(self._y, out=self._y)
        vectors.permute_out(perm, scale, self._y, base, x)

    def work(self, residual: NDArray[Any], size: NDArray[Any], other: NDArray[Any]) -> Work | None:
        """Buffers for a refined solve on this thread alone; None where threads share the factor, or it is LU's."""
        if self.threads > 1 or self.general is not None:
            return None
        parts = FORWARD | BACKWARD | (0 if self.factor.options.cholesky else DIAGONAL)
        perm, scale = self._rows
        return Work(
            perm, scale, parts, self._x, self._y, self._owed, self._stored, self._stored_ptr, self._scratch,
            residual, size, other,
        )  # fmt: skip

    def general_work(
        self, operator: Any, trans: str, vectors: tuple[NDArray[Any], ...]
    ) -> GeneralWork | None:
        """The same for an LU factor and the `GeneralOperator` of ``trans``; ``vectors`` are residual, size, other.

        None for a large factor of one block, whatever the threads: `sweep` adds in another order.
        """
        general, state = self.general, self.factor.state
        if general is None or (self._large and general.n_blocks == 1):
            return None
        pattern = operator.pattern
        before, after = (self._rows, self._cols) if trans == "N" else (self._cols, self._rows)
        return GeneralWork(
            *self.sides(trans), self.factor.symbolic.plan.node_ptr, general.blocks, *general.coupling, state.values,
            pattern.ptr, pattern.ind, operator.values, operator.sums, float(np.finfo(self.dtype).eps),
            operator.kind, int(self._complex and trans == "H"), *before, *after,
            self._x, self._y, self._owed, self._scratch, *vectors,
        )  # fmt: skip

    def many(self, lanes: int) -> Many:
        """Buffers for one block of ``lanes`` right-hand sides; of a symmetric factor."""
        n, rows = self.factor.symbolic.n, int(self.factor.state.limits[8])
        parts = FORWARD | BACKWARD | (0 if self.factor.options.cholesky else DIAGONAL)
        perm, scale = self._rows

        def vectors(rows: int) -> NDArray[Any]:
            return np.empty(rows * lanes, self.dtype)

        return Many(
            perm, scale, parts, self._stored_ptr, vectors(n), vectors(n), np.zeros(n * lanes, self.dtype),
            vectors(int(self._stored_ptr[-1])), vectors(rows + 1), vectors(n), vectors(n), vectors(n), vectors(5),
            np.empty(6 * lanes),
        )  # fmt: skip

    def permute_in(self, b: NDArray[Any], y: NDArray[Any], trans: str = "N") -> None:
        """``y = P^T S b``."""
        from warpfront.sparse.solve import _residual_kernels as vectors

        vectors.permute_in(*(self._rows if trans == "N" else self._cols), b, y)

    def permute_out(self, y: NDArray[Any], x: NDArray[Any], trans: str = "N") -> None:
        """``x = S P y``."""
        from warpfront.sparse.solve import _residual_kernels as vectors

        perm, scale = self._cols if trans == "N" else self._rows
        vectors.permute_out(perm, scale, y, np.empty(0, y.dtype), x)

    def sides(self, trans: str = "N") -> Sides:
        """Panels and indices of the two directions."""
        state, options = self.factor.state, self.factor.options
        lower, upper = (state.panel, state.ind, 1), (state.upper, state.col, 0)
        if self.general is None:
            lower = upper = (state.panel, state.ind, 2 if options.cholesky else 1)
        elif trans != "N":
            lower, upper = upper, lower
        return Sides(
            lower[0], upper[0], lower[1], upper[1],
            state.node, state.diagonal, state.kind, lower[2], upper[2], int(self._hermitian),
        )  # fmt: skip

    def apply(self, parts: int, x: NDArray[Any], y: NDArray[Any], trans: str = "N") -> None:
        """Sweep from the permuted vector ``x`` to ``y``: 1 forward, 2 diagonal, 4 backward, or a sum of these.

        Without a forward part ``y`` is both read and written. Diagonal blocks are solved one after the other, so
        where there are several the forward part hands ``x`` on and the backward part does all.
        """
        from warpfront.sparse.solve._sweep_kernels import SWEEP_WORDS, sweep

        symbolic, general = self.factor.symbolic, self.general
        if symbolic.n == 0:
            return
        if general is not None or self.factor.options.cholesky:
            parts &= ~DIAGONAL
        sides, owed = self.sides(trans), self._owed
        if general is not None and general.n_blocks > 1:
            from warpfront.sparse.solve._block_kernels import solve_blocks

            source = x if parts & FORWARD else y.copy()
            if parts & BACKWARD:
                solve_blocks(
                    symbolic.plan.node_ptr, sides, general.blocks, general.coupling,
                    self.factor.state.values, int(trans != "N"), source, y, owed, self._scratch,
                )  # fmt: skip
            else:
                y[:] = source
            return
        sync = np.zeros(SWEEP_WORDS, np.int64)
        stored, places = self._stored, self._stored_ptr

        def body(tid: int) -> None:
            sweep(symbolic.plan, sides, parts, x, y, owed, stored, places, sync, tid, self._scratch)

        run_threads(self.threads, body)
