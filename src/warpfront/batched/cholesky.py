"""Batched Cholesky solve of many tiny symmetric positive definite systems, each with its own verdict."""

from __future__ import annotations

from typing import Any

from warpfront.batched import _call
from warpfront.batched.results import CholeskyBatch

__all__ = ["cholesky_solve_batched", "cholesky_solve_batched_packed", "cholesky_solve_batched_warp"]


def cholesky_solve_batched(
    a: Any,
    b: Any,
    diagonal_shift: float = 0.0,
    symmetry_rtol: float | None = None,
    symmetry_atol: float = 0.0,
    out: Any = None,
) -> CholeskyBatch:
    """Solve ``(A + diagonal_shift I) x = b`` for every system by Cholesky, ``L L^T``: the serial baseline.

    One thread to a system on the GPU, any ``n`` and ``nrhs``; never rerouted to another kernel. NumPy arrays are
    solved by the CPU twin, sixteen systems side by side. Both give the same bits, whatever the batch and the
    position in it: inner products in increasing k, each product and sum rounded by itself, IEEE division
    and square root (Golub and Van Loan, 4th ed., algorithm 4.2.2).

    Parameters
    ----------
    a : float32 or float64 array [batch, n, n]
        Row-major contiguous; read only. NumPy, CuPy or PyTorch (on the GPU). The lower triangle is factored;
        the upper one is only compared with it.
    b : array [batch, n, nrhs]
        Same type, library and device; read only.
    diagonal_shift : float
        Added to every diagonal element. Nothing else is: there is no hidden jitter.
    symmetry_rtol, symmetry_atol : float
        A system is symmetric if ``|a_ij - a_ji| <= symmetry_atol + symmetry_rtol * max|a|``. Default of the
        first: 64 units in the last place (7.6e-6 in float32).
    out : CholeskyBatch or (solution, factor, status), optional
        Written instead of new arrays. Must overlap neither the inputs nor one another.

    Returns
    -------
    CholeskyBatch
        GPU work is queued on the library's current stream, as one launch (none for an empty batch or n = 0),
        and not waited for. With ``nrhs = 0`` the systems are factored only.

    Raises
    ------
    InvalidValueError
        Wrong type, shape, layout, memory, or a parameter that is not finite. Nothing has been launched.
    NotSupportedError
        The device cannot run the kernel.
    """
    return CholeskyBatch(
        *_call.run("cholesky", "serial", a, b, out, diagonal_shift, symmetry_rtol, symmetry_atol)
    )


def cholesky_solve_batched_warp(
    a: Any,
    b: Any,
    diagonal_shift: float = 0.0,
    symmetry_rtol: float | None = None,
    symmetry_atol: float = 0.0,
    out: Any = None,
) -> CholeskyBatch:
    """`cholesky_solve_batched` with one warp to a system, n = 1 to 32 and nrhs = 0 to 8.

    The same contract and the same bits. NumPy arrays are solved by the CPU twin under the same limits.

    Raises
    ------
    InvalidValueError, NotSupportedError
        As `cholesky_solve_batched`; a size beyond the limits is refused, never passed on to another kernel.
    """
    return CholeskyBatch(
        *_call.run("cholesky", "warp", a, b, out, diagonal_shift, symmetry_rtol, symmetry_atol)
    )


def cholesky_solve_batched_packed(
    a: Any,
    b: Any,
    diagonal_shift: float = 0.0,
    symmetry_rtol: float | None = None,
    symmetry_atol: float = 0.0,
    out: Any = None,
) -> CholeskyBatch:
    """`cholesky_solve_batched_warp` with several systems to a warp: the same limits, contract and bits, more throughput."""
    return CholeskyBatch(
        *_call.run("cholesky", "packed", a, b, out, diagonal_shift, symmetry_rtol, symmetry_atol)
    )
