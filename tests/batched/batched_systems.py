"""Batches for the tests: ordinary systems, and the awkward ones of the contract."""

import numpy as np

# (batch, n, nrhs)
SHAPES = [(1, 1, 1), (3, 2, 3), (5, 7, 1), (65, 8, 8), (3, 16, 4), (2, 31, 3), (5, 32, 8)]


def definite(batch, n, dtype, seed=0):
    """Exactly symmetric positive definite matrices of moderate condition."""
    g = np.random.default_rng(seed).standard_normal((batch, n, n))
    a = (g @ g.transpose(0, 2, 1) + n * np.eye(n)).astype(dtype)
    return np.ascontiguousarray(np.tril(a) + np.tril(a, -1).transpose(0, 2, 1))


def general(batch, n, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal((batch, n, n)).astype(dtype)


def right(batch, n, nrhs, dtype, seed=1):
    return np.random.default_rng(seed).standard_normal((batch, n, nrhs)).astype(dtype)


def matrices(method, batch, n, dtype, seed=0):
    return (definite if method == "cholesky" else general)(batch, n, dtype, seed)


def awkward(method, n, dtype):
    """One system of every kind; returns (a, expected status or None where the reference alone decides)."""
    huge = np.finfo(dtype).max
    good = matrices(method, 12, n, dtype, seed=5)
    a, expected = good.copy(), [0] * 12
    a[1], expected[1] = np.nan, -1
    a[2, n - 1, 0], expected[2] = np.inf, -1
    a[3], expected[3] = 0, 1
    a[4], expected[4] = np.ones((n, n)), 2 if n > 1 else 0
    a[5] = good[5] * dtype(1e-30)
    a[6] = good[6] * dtype(1e30)
    a[7] = np.diag(np.arange(n, 0, -1))
    a[8], expected[8] = (-good[8], 1) if method == "cholesky" else (good[8], 0)
    if n > 1 and method == "cholesky":
        a[9, 1, 0], expected[9] = a[9, 1, 0] + 5, -2
        a[10, 1, 0] *= 1 + dtype(2 * np.finfo(dtype).eps)  # symmetric but for the last place
        a[11] = np.diag(np.full(n, huge))
        a[11, n - 1, : n - 1] = a[11, : n - 1, n - 1] = huge / 2
        expected[11] = None
    if n > 1 and method == "lu":
        a[9] = np.where(np.arange(n)[:, None] >= np.arange(n), 1, -1)  # equal candidates in every column
        a[10] = good[10] * dtype(np.finfo(dtype).tiny)
        expected[10] = None  # down to subnormal numbers: few digits, possibly none
        a[11], expected[11] = np.diag(np.full(n, huge)), 0
    return a, expected
