"""What a factorisation has to be, in dense double-precision NumPy: what every sparse test compares with.

Nothing here knows fronts, trees or sweeps. A factor is read through its public face (``L``, ``perm``,
``scale``, ``diagonal()``) and multiplied out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warpfront.report import Inertia

__all__ = [
    "DenseFactor",
    "backward_errors",
    "dense_inertia",
    "dense_symmetric",
    "inverse_condition",
    "reconstruct",
    "reconstruction_error",
]

Floats = NDArray[np.float64]
Array = NDArray[Any]


class DenseFactor(NamedTuple):
    """``(P^T S A S P) = L D L^T``, or ``L D L^H`` of a Hermitian matrix, as dense arrays.

    Attributes
    ----------
    L, D : float64 or complex128[n, n]
        Lower triangular; block diagonal with blocks of order 1 and 2 (identity for LL^T).
    perm : int64[n]
        ``perm[k]``: row of A eliminated k-th.
    scale : float64[n]
        Diagonal of S, in the caller's numbering.
    """

    L: Array
    D: Array
    perm: NDArray[np.int64]
    scale: Floats
    hermitian: bool = False


def dense_symmetric(matrix: Any, view: str = "full") -> Array:
    """Return the dense float64 or complex128 matrix that ``matrix`` (sparse, dense, CSR triple) stands for."""
    from scipy import sparse

    if isinstance(matrix, tuple):
        n = len(matrix[0]) - 1
        matrix = sparse.csr_array((matrix[2], matrix[1], matrix[0]), shape=(n, n))
    dense = np.asarray(matrix.toarray() if sparse.issparse(matrix) else matrix)
    dense = dense.astype(np.complex128 if dense.dtype.kind == "c" else np.float64)
    if view == "full":
        return dense.copy()
    half = np.tril(dense) if view == "lower" else np.triu(dense)
    return np.asarray(half + half.T - np.diag(np.diag(half)))


def reconstruct(factor: Any) -> DenseFactor:
    """Read a `SymmetricFactor` into dense arrays.

    Parameters
    ----------
    factor : SymmetricFactor
        Status OK or SINGULAR.
    """
    from warpfront.sparse.numeric.readout import pivots

    inner = factor.solver._factored()
    perm = np.asarray(factor.perm)
    lower: Array = factor.L.toarray()
    lower = lower.astype(np.complex128 if lower.dtype.kind == "c" else np.float64)
    n, hermitian = perm.size, inner.options.hermitian
    if inner.options.cholesky:
        return DenseFactor(lower, np.eye(n), perm, factor.scale, hermitian)
    diagonal, off = pivots(inner)
    d = np.diag(diagonal[perm]).astype(lower.dtype)
    beside = off[perm][: n - 1] if n else np.zeros(0)
    first = np.arange(beside.size)
    d[first + 1, first] = beside
    d[first, first + 1] = beside.conj() if hermitian else beside
    return DenseFactor(lower, d, perm, factor.scale, hermitian)


def reconstruction_error(matrix: Array, factor: DenseFactor) -> float:
    """``|P^T S A S P - L D L^T| / |S A S|`` in the largest-entry norm (0 for an empty or zero matrix)."""
    scaled = (matrix * factor.scale[:, None]) * factor.scale[None, :]
    scaled = scaled[np.ix_(factor.perm, factor.perm)]
    size = float(np.abs(scaled).max(initial=0.0))
    difference = scaled - factor.L @ factor.D @ (factor.L.conj() if factor.hermitian else factor.L).T
    error = float(np.abs(difference).max(initial=0.0))
    return error / size if size > 0.0 else error


def dense_inertia(matrix: Array, gap: float = 1e-11) -> Inertia | None:
    """Count eigenvalues by sign; None where one lies too near zero, relative to the largest, to be called.

    An eigenvalue is zero below ``1e-13`` times the largest and nonzero above ``gap`` times it. The matrix is
    first
    scaled by powers of two to row maxima near 1, a congruence: the counts stay, the gap becomes clear.
    """
    n = matrix.shape[0]
    if n == 0:
        return Inertia(0, 0, 0)
    scaled = matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)
    for _ in range(8):
        top = np.abs(scaled).max(axis=1)
        exponent = np.where(top > 0.0, np.frexp(np.where(top > 0.0, top, 1.0))[1], 0)
        step = -(exponent // 2)
        scaled = scaled * np.ldexp(1.0, step)[:, None] * np.ldexp(1.0, step)[None, :]
    values = np.linalg.eigvalsh(scaled)
    top_value = float(np.abs(values).max())
    if top_value == 0.0:
        return Inertia(0, 0, n)
    relative = values / top_value
    if np.any((np.abs(relative) > 1e-13) & (np.abs(relative) < gap)):
        return None
    return Inertia(
        int((relative >= gap).sum()), int((relative <= -gap).sum()), int((np.abs(relative) <= 1e-13).sum())
    )


def backward_errors(matrix: Any, x: Array, b: Array) -> tuple[float, float]:
    """Return the normwise and the componentwise backward error, the worst over the columns.

    Normwise ``|b - Ax| / (|A||x| + |b|)`` in the infinity norm; componentwise after Oettli and Prager (1964).
    The residual is summed in extended precision where the machine has it.
    """
    dense = dense_symmetric(matrix)
    wide = np.clongdouble if "c" in (dense.dtype.kind, np.asarray(x).dtype.kind) else np.longdouble
    dense = dense.astype(wide)
    x, b = np.atleast_2d(np.asarray(x).T).T, np.atleast_2d(np.asarray(b).T).T
    worst = 0.0, 0.0
    norm = float(np.abs(dense).sum(axis=1).max(initial=0.0))
    for k in range(b.shape[1]):
        xk, bk = x[:, k].astype(wide), b[:, k].astype(wide)
        residual = np.abs(bk - dense @ xk)
        size = np.abs(dense) @ np.abs(xk) + np.abs(bk)
        whole = norm * np.abs(xk).max(initial=0.0) + np.abs(bk).max(initial=0.0)
        if not np.isfinite(residual).all():
            return float("inf"), float("inf")
        component = float((residual[residual > 0] / size[residual > 0]).max(initial=0.0))
        worst = (
            max(worst[0], float(residual.max(initial=0.0) / whole) if whole > 0 else 0.0),
            max(worst[1], component),
        )
    return worst


def inverse_condition(matrix: Array) -> float:
    """``1 / (|A|_1 |A^-1|_1)`` from the explicit inverse; 0 for a singular matrix."""
    try:
        inverse = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return 0.0
    return float(1.0 / (np.linalg.norm(matrix, 1) * np.linalg.norm(inverse, 1)))
