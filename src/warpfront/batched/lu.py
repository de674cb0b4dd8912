"""Batched LU solve of many tiny systems with partial pivoting, each with its own verdict."""

from __future__ import annotations

from typing import Any

from warpfront.batched import _call
from warpfront.batched.results import LUBatch

__all__ = ["lu_solve_batched", "lu_solve_batched_packed", "lu_solve_batched_warp"]


def lu_solve_batched(a: Any, b: Any, out: Any = None) -> LUBatch:
    """Solve ``A x = b`` for every system by LU with partial pivoting, ``P A = L U``: the serial baseline.

    One thread to a system on the GPU, any ``n`` and ``nrhs``; never rerouted to another kernel. NumPy arrays are
    solved by the CPU twin, sixteen systems side by side. Both give the same bits, whatever the batch and the
    position in it. Each matrix is scaled by the power of two nearest its largest entry (exact) and U
    scaled back; of equal candidates the lowest row wins; products and sums are rounded separately,
    so a matrix that is singular in exact elimination on one device is so on all (Golub and Van Loan, 4th
    ed., algorithm 3.4.1).

    Parameters
    ----------
    a : float32 or float64 array [batch, n, n]
        Row-major contiguous; read only. NumPy, CuPy or PyTorch (on the GPU).
    b : array [batch, n, nrhs]
        Same type, library and device; read only.
    out : LUBatch or (solution, lu, pivots, status), optional
        Written instead of new arrays. Must overlap neither the inputs nor one another.

    Returns
    -------
    LUBatch
        GPU work is queued on the library's current stream, as one launch (none for an empty batch or n = 0),
        and not waited for. With ``nrhs = 0`` the systems are factored only.

    Raises
    ------
    InvalidValueError
        Wrong type, shape, layout or memory. Nothing has been launched.
    NotSupportedError
        The device cannot run the kernel.
    """
    return LUBatch(*_call.run("lu", "serial", a, b, out, 0.0, None, 0.0))


def lu_solve_batched_warp(a: Any, b: Any, out: Any = None) -> LUBatch:
    """`lu_solve_batched` with one warp to a system, n = 1 to 32 and nrhs = 0 to 8.

    The same contract and the same bits. NumPy arrays are solved by the CPU twin under the same limits.

    Raises
    ------
    InvalidValueError, NotSupportedError
        As `lu_solve_batched`; a size beyond the limits is refused, never passed on to another kernel.
    """
    return LUBatch(*_call.run("lu", "warp", a, b, out, 0.0, None, 0.0))


def lu_solve_batched_packed(a: Any, b: Any, out: Any = None) -> LUBatch:
    """`lu_solve_batched_warp` with several systems to a warp: the same limits, contract and bits, more throughput."""
    return LUBatch(*_call.run("lu", "packed", a, b, out, 0.0, None, 0.0))
