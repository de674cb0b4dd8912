"""Matrices without symmetry that are hard on an LU, small and by name, in any dtype."""

import numpy as np
import scipy.sparse as sp

DTYPES = ("float32", "float64", "complex64", "complex128")


def entries(rng, shape, dtype):
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def _masked(rng, n, dtype, density):
    return entries(rng, (n, n), dtype) * (rng.random((n, n)) < density)


def _random(rng, n, dtype):
    """Some zero diagonals, no shift; a hidden permutation keeps it structurally nonsingular."""
    a = _masked(rng, n, dtype, min(1.0, 4.0 / n))
    a[np.arange(n), rng.permutation(n)] = entries(rng, n, dtype) + 3
    return a


def _dense(rng, n, dtype):
    return entries(rng, (n, n), dtype)


def _zero_block(rng, n, dtype):
    """Finite elements with Lagrange multipliers: an unsymmetric block, and a zero block on the diagonal."""
    m = n // 3
    k = _masked(rng, n - m, dtype, 0.4) + np.eye(n - m, dtype=dtype) * 4
    b, c = _masked(rng, n - m, dtype, 0.5)[:m], _masked(rng, n - m, dtype, 0.5)[:m]
    b[np.arange(m), np.arange(m)] = c[np.arange(m), np.arange(m)] = 2
    return np.block([[k, b.T], [c, np.zeros((m, m), dtype)]])


def _triangular(rng, n, dtype):
    a = np.triu(_masked(rng, n, dtype, 0.3), 1) + np.eye(n, dtype=dtype)
    return a[np.ix_(rng.permutation(n), rng.permutation(n))]


def _blocks(rng, n, dtype):
    """Block triangular with blocks of several sizes, hidden by permutations."""
    a = np.triu(_masked(rng, n, dtype, 0.2))
    at = 0
    while at < n:
        size = min(n - at, int(rng.integers(1, 9)))
        a[at : at + size, at : at + size] = entries(rng, (size, size), dtype) + 3 * np.eye(size, dtype=dtype)
        at += size
    return a[np.ix_(rng.permutation(n), rng.permutation(n))]


def _arrow(rng, n, dtype):
    a = np.diag(entries(rng, n, dtype) * np.asarray(0.01, dtype))
    a[-1, :], a[:, -1] = entries(rng, n, dtype), entries(rng, n, dtype)
    return a


def _banded(rng, n, dtype):
    i, j = np.indices((n, n))
    return entries(rng, (n, n), dtype) * ((i - j <= 1) & (j - i <= 3))


def _badly_scaled(rng, n, dtype):
    spread = 4 if np.dtype(dtype).name in ("float32", "complex64") else 40
    a = _random(rng, n, dtype).astype("complex128" if np.dtype(dtype).kind == "c" else "float64")
    a *= 10.0 ** rng.uniform(-spread, spread, (n, 1))
    return (a * 10.0 ** rng.uniform(-spread, spread, (1, n))).astype(dtype)


def _tiny_pivots(rng, n, dtype):
    """Every diagonal entry is too small to be a pivot where it stands."""
    a = _random(rng, n, dtype)
    np.fill_diagonal(a, 1e-7)
    a[np.arange(n), np.roll(np.arange(n), 1)] = 2 + rng.random(n)
    return a


GENERAL = {
    "random": _random,
    "dense": _dense,
    "zero block": _zero_block,
    "triangular": _triangular,
    "blocks": _blocks,
    "arrow": _arrow,
    "banded": _banded,
    "badly scaled": _badly_scaled,
    "tiny pivots": _tiny_pivots,
}


def convection(k, wind=5.0):
    """Convection and diffusion on a k x k grid, upwind: unsymmetric values on a symmetric pattern."""
    d = sp.diags_array([-1.0 - wind, 2.0 + wind, -1.0], offsets=[-1, 0, 1], shape=(k, k))
    one = sp.eye_array(k)
    return sp.csr_array(sp.kron(d, one) + sp.kron(one, d))


def saddle(k, seed=0):
    """Convection with Lagrange multipliers on every fifth unknown, unsymmetric coupling, zero block."""
    rng = np.random.default_rng(seed)
    a = convection(k)
    n = k * k
    m = n // 5
    rows = np.arange(m)
    b = sp.csr_array((1 + rng.random(m), (rows, 5 * rows)), shape=(m, n))
    c = sp.csr_array((1 + rng.random(m), (rows, 5 * rows + 1)), shape=(m, n))
    return sp.csr_array(sp.block_array([[a, b.T], [c, None]]))


def leaves_on_a_hub(n, hubs, seed=0):
    """Rows with nothing but zeros among themselves, all coupled to a few: every pivot is delayed without a matching."""
    rng = np.random.default_rng(seed)
    a = np.zeros((n + hubs, n + hubs))
    a[:n, n:], a[n:, :n] = rng.standard_normal((n, hubs)), rng.standard_normal((hubs, n))
    a[np.arange(n), np.arange(n)] = 1e-3 * (1 + rng.random(n))
    a[n:, n:] = rng.standard_normal((hubs, hubs))
    return sp.csr_array(a)


def backward_error(a, x, b):
    """Normwise, infinity norms."""
    a = sp.csr_array(a)
    scale = abs(a).sum(axis=1).max(initial=0) * np.abs(x).max(initial=0) + np.abs(b).max(initial=0)
    residual = np.abs(a @ x - b).max(initial=0)
    return float(residual / scale) if residual else 0.0


def oettli_prager(a, x, b):
    """Componentwise."""
    a = sp.csr_array(a)
    size = abs(a) @ np.abs(x) + np.abs(b)
    residual = np.abs(a @ x - b)
    return float(np.divide(residual, size, out=np.zeros_like(size), where=size > 0).max(initial=0))
