"""Host side of the triangular sweeps: scaling, permutation, threads, buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend.cpu import run_threads
from warpfront.sparse.numeric.factorize import Factor

__all__ = ["Sweeper"]

SMALL_FACTOR = 150_000  # entries of L below which one thread solves alone


class Sweeper:
    """Solves with one `Factor`; holds the buffers, so one object serves one caller at a time.

    Parameters
    ----------
    factor : Factor
        Status OK, or SINGULAR with components of zero pivots set to zero.
    """

    def __init__(self, factor: Factor) -> None:
        symbolic, state = factor.symbolic, factor.state
        plan = symbolic.plan
        self.factor = factor
        self.threads = max(1, factor.options.threads) if factor.nnz_factor >= SMALL_FACTOR else 1
        roots = state.node[plan.task_end]
        self._stored_ptr = np.concatenate([[0], np.cumsum(roots[:, 3] - roots[:, 5])]).astype(np.int64)
        dtype = state.panel.dtype
        rows = int(state.limits[8])
        self._stored = np.empty(int(self._stored_ptr[-1]), dtype)
        self._owed = np.zeros(self.threads * symbolic.n, dtype)
        self._scratch = np.empty(self.threads * rows, dtype)
        self._y = np.empty(symbolic.n, dtype)
        self._scale = np.ones(0) if factor.scale is None else factor.scale

    def solve_into(self, b: NDArray[Any], base: NDArray[Any], x: NDArray[Any]) -> None:
        """``x = base + A^-1 b`` for one right-hand side.

        Parameters
        ----------
        b : float[n]
            Contiguous; read.
        base : float[n] or empty
            Added to the solution; may be ``x`` itself.
        x : float[n]
            Contiguous; written.
        """
        from warpfront.sparse.solve import _residual_kernels as vectors

        if self._y.size:
            self.permute_in(b, self._y)
            self.apply(7, self._y)
            vectors.permute_out(self.factor.symbolic.perm, self._scale, self._y, base, x)

    def permute_in(self, b: NDArray[Any], y: NDArray[Any]) -> None:
        """``y = P^T S b``."""
        from warpfront.sparse.solve import _residual_kernels as vectors

        vectors.permute_in(self.factor.symbolic.perm, self._scale, b, y)

    def permute_out(self, y: NDArray[Any], x: NDArray[Any]) -> None:
        """``x = S P y``."""
        from warpfront.sparse.solve import _residual_kernels as vectors

        vectors.permute_out(self.factor.symbolic.perm, self._scale, y, np.empty(0, y.dtype), x)

    def apply(self, parts: int, y: NDArray[Any]) -> None:
        """Sweep in place over the permuted vector ``y``: 1 forward, 2 diagonal, 4 backward, or a sum of these."""
        from warpfront.sparse.solve._sweep_kernels import SWEEP_WORDS, sweep

        symbolic, state = self.factor.symbolic, self.factor.state
        if symbolic.n == 0:
            return
        sync = np.zeros(SWEEP_WORDS, np.int64)
        unit = 0 if self.factor.options.cholesky else 1
        stored, places = self._stored, self._stored_ptr

        def body(tid: int) -> None:
            sweep(symbolic.plan, state, unit, parts, y, self._owed, stored, places, sync, tid, self._scratch)

        run_threads(self.threads, body)
