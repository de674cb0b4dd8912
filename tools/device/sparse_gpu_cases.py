"""Matrices of the sparse GPU runs, with the orderings that were computed where METIS is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parents[2]
CARRIED = ROOT / ".carry" / "sparse"


def laplacian(*dims):
    """Positive definite, 5- or 7-point."""
    parts = []
    for k, m in enumerate(dims):
        line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(m, m))
        term = sp.identity(1)
        for j, size in enumerate(dims):
            term = sp.kron(term, line if j == k else sp.identity(size))
        parts.append(term)
    return sum(parts[1:], parts[0]).tocsr()


def grid_kkt(m):
    """[H J'; J 0] over an m x m grid."""
    rng = np.random.default_rng(0)
    h = laplacian(m, m) + 0.05 * sp.identity(m * m)
    n, rows = m * m, m * m // 3
    j = sp.random(rows, n, 2.0 / n, random_state=rng, format="csr")
    j = j + sp.csr_matrix((np.ones(rows), (np.arange(rows), rng.permutation(n)[:rows])), shape=(rows, n))
    return sp.bmat([[h, j.T], [j, None]]).tocsr()


def kkt(n, m, seed=0):
    """The anchors' random KKT system."""
    rng = np.random.default_rng(seed)
    h = sp.diags(rng.uniform(1, 10, n))
    j = sp.random(m, n, density=4 / n, random_state=rng, format="csr") + sp.eye(m, n)
    return sp.bmat([[h, j.T], [j, -1e-8 * sp.identity(m)]]).tocsr()


def carried(name):
    """A KKT system that was brought along."""
    from scipy.io import mmread

    return sp.csr_matrix(mmread(CARRIED / f"{name}.mtx.gz"))


def carried_names(part=""):
    return sorted(p.name[:-7] for p in CARRIED.glob("*.mtx.gz") if part in p.name and "_rhs" not in p.name)


def ordering(name):
    """Keywords that hand a stored ordering to the solver; AMD where there is none."""
    file = CARRIED / f"perm_{name}.npy"
    if file.is_file():
        return {"reordering_alg": "user", "user_perm": np.load(file)}
    return {"reordering_alg": "amd"}


def errors(a, x, b):
    """Normwise and componentwise backward error."""
    x, b = x.reshape(a.shape[0], -1), b.reshape(a.shape[0], -1)
    r = np.abs(b - a @ x)
    size = np.abs(a) @ np.abs(x) + np.abs(b)
    norm = np.abs(a).sum(1).max() * np.abs(x).max() + np.abs(b).max()
    with np.errstate(invalid="ignore", divide="ignore"):
        component = np.where(r > 0, r / size, 0.0).max()
    return float(r.max() / norm), float(component)
