"""Symmetric matrices that are hard on a factorisation, small and by name; and where the real ones lie."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

DATA = Path(__file__).resolve().parents[1] / "data"


def mirrored(lower):
    """Dense symmetric matrix from the lower triangle of ``lower``."""
    return np.tril(lower) + np.tril(lower, -1).T


def random_symmetric(rng, n, density, diagonal="random"):
    a = mirrored(rng.standard_normal((n, n)) * (rng.random((n, n)) < density))
    values = rng.standard_normal(n)
    if diagonal == "zero":
        values[:] = 0.0
    elif diagonal == "some":
        values *= rng.random(n) < 0.5
    np.fill_diagonal(a, values)
    return a


def _dense(rng, n):
    return mirrored(rng.standard_normal((n, n)))


def _zero_block(rng, n):
    m = n // 3
    h = random_symmetric(rng, n - m, 0.3)
    b = rng.standard_normal((m, n - m)) * (rng.random((m, n - m)) < 0.4)
    return np.block([[h, b.T], [b, np.zeros((m, m))]])


def _arrow(rng, n):
    a = np.diag(rng.standard_normal(n))
    a[-1, :] = a[:, -1] = rng.standard_normal(n)
    return a


def _arrow_up(rng, n):
    return np.ascontiguousarray(_arrow(rng, n)[::-1, ::-1])


def _banded(rng, n):
    width = int(rng.integers(1, 6))
    i, j = np.indices((n, n))
    return mirrored(rng.standard_normal((n, n)) * (abs(i - j) <= width))


def _disconnected(rng, n):
    sizes = []
    while sum(sizes) < n:
        sizes.append(min(n - sum(sizes), int(rng.integers(1, 7))))
    a = np.zeros((n, n))
    at = 0
    for size in sizes:
        a[at : at + size, at : at + size] = _dense(rng, size)
        at += size
    order = rng.permutation(n)
    return a[np.ix_(order, order)]


def _leaves_on_one_parent(rng, n):
    """Every row hangs on the last three and on nothing else."""
    a = np.diag(rng.standard_normal(n) * 0.1)
    a[-3:, :] = rng.standard_normal((min(3, n), n))
    return mirrored(a)


def _empty_rows(rng, n):
    a = random_symmetric(rng, n, 0.2)
    gone = rng.random(n) < 0.2
    a[gone, :] = a[:, gone] = 0.0
    return a


def _bordered(rng, n):
    a = _disconnected(rng, n)
    border = max(1, n // 8)
    a[-border:, :] = rng.standard_normal((border, n)) * (rng.random((border, n)) < 0.5)
    return mirrored(a)


def _delayed(rng, n):
    """About 70% of the columns have no acceptable pivot where they lie: tiny diagonals, large entries far
    right."""
    far = max(1, int(0.3 * n))
    a = np.zeros((n, n))
    a[:-far, :-far] = np.diag(1e-7 * rng.uniform(0.5, 1.0, n - far))
    a[-far:, :] = rng.standard_normal((far, n)) * (rng.random((far, n)) < 0.5)
    return mirrored(a)


def _two_by_two(rng, n):
    """Nothing but 2x2 pivots: [[0, 1], [1, 0]] everywhere, coupled weakly."""
    a = 0.01 * random_symmetric(rng, n, 0.1, "zero")
    first = np.arange(0, n - 1, 2)
    a[first + 1, first] = a[first, first + 1] = rng.uniform(1, 2, first.size)
    if n % 2:
        a[-1, -1] = 1.0
    return a


def _badly_scaled(rng, n):
    a = random_symmetric(rng, n, 0.3)
    d = np.ldexp(1.0, rng.integers(-250, 250, n))  # entries span 1e-150 to 1e150
    return d[:, None] * a * d[None, :]


def _all_negative(rng, n):
    a = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.2)
    return -(a @ a.T + np.eye(n))


def _spd(rng, n):
    return -_all_negative(rng, n)


def _tiny_everywhere(rng, n):
    return 1e-150 * random_symmetric(rng, n, 0.3)


def _huge_everywhere(rng, n):
    return 1e150 * random_symmetric(rng, n, 0.3)


INDEFINITE = {
    "random": lambda rng, n: random_symmetric(rng, n, 0.15),
    "zero diagonal": lambda rng, n: random_symmetric(rng, n, 0.3, "zero"),
    "some zero diagonals": lambda rng, n: random_symmetric(rng, n, 0.1, "some"),
    "zero block": _zero_block,
    "arrow": _arrow,
    "arrow upwards": _arrow_up,
    "dense": _dense,
    "banded": _banded,
    "disconnected": _disconnected,
    "many leaves on one parent": _leaves_on_one_parent,
    "empty rows": _empty_rows,
    "bordered block diagonal": _bordered,
    "70% delayed": _delayed,
    "all 2x2": _two_by_two,
    "badly scaled": _badly_scaled,
    "all negative": _all_negative,
    "positive definite": _spd,
    "times 1e-150": _tiny_everywhere,
    "times 1e150": _huge_everywhere,
}


def positive_definite(kind, rng, n):
    """Turn one of the patterns above into a positive definite matrix: diagonally dominant, or scaled so."""
    a = INDEFINITE[kind](rng, n)
    if kind in ("badly scaled", "times 1e-150", "times 1e150"):
        d = np.ldexp(1.0, rng.integers(-250, 250, n)) if kind == "badly scaled" else np.full(n, 1e75)
        d = 1.0 / d if kind == "times 1e-150" else d
        return d[:, None] * positive_definite("random", rng, n) * d[None, :]
    np.fill_diagonal(a, 0.0)
    np.fill_diagonal(a, 1.01 * np.abs(a).sum(axis=1) + 0.1)
    return a


def laplacian_2d(k):
    """5-point Laplacian of a k x k grid, CSR."""
    line = sp.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
    eye = sp.eye_array(k)
    return sp.csr_array(sp.kron(eye, line) + sp.kron(line, eye))


def leaves_on_hubs(leaves, hubs, seed=0):
    """Leaves with a tiny diagonal hang on a few hubs: no leaf is a pivot where it lies, all are delayed to
    the root."""
    rng = np.random.default_rng(seed)
    i = np.repeat(np.arange(leaves), 3)
    j = rng.integers(0, hubs, 3 * leaves)
    b = sp.csr_array((rng.standard_normal(3 * leaves), (i, j)), shape=(leaves, hubs))
    tiny = sp.diags_array(1e-6 * rng.uniform(0.5, 1.0, leaves))
    return sp.csr_array(sp.block_array([[tiny, b], [b.T, sp.eye_array(hubs)]]))


def with_dense_root(n, root, seed=0, *, indefinite):
    """Sparse tridiagonal blocks that all hang on a dense part of ``root`` rows: fronts wide enough to be
    shared."""
    rng = np.random.default_rng(seed)
    outer = n - root
    line = sp.diags_array(
        [np.full(outer - 1, -1.0), np.full(outer, 4.0), np.full(outer - 1, -1.0)], offsets=[-1, 0, 1]
    )
    i = np.repeat(np.arange(outer), 2)
    j = rng.integers(0, root, 2 * outer)
    b = sp.csr_array((rng.standard_normal(2 * outer), (i, j)), shape=(outer, root))
    core = mirrored(rng.standard_normal((root, root)))
    if indefinite:
        line = line - sp.diags_array(rng.choice([0.0, 4.0, 8.0], outer))
    else:
        core = core + np.diag(np.abs(core).sum(axis=1) + 10.0 * outer / root)
    return sp.csr_array(sp.block_array([[line, b], [b.T, sp.csr_array(core)]]))


def kkt(n, m, seed, *, rank=None, density=0.3):
    """[[H, B^T], [B, 0]] with H positive definite and B of the given rank: inertia (n, rank, m - rank)."""
    rng = np.random.default_rng(seed)
    h = rng.standard_normal((n, n)) * (rng.random((n, n)) < density)
    h = h @ h.T + np.eye(n)
    rank = m if rank is None else rank
    b = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    return np.block([[h, b.T], [b, np.zeros((m, m))]])
