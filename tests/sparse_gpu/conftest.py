"""Matrices, and the device the whole-solver tests run on: the SIMT runner behind a stand-in CuPy, or a GPU."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parent))

import pretend


def laplacian(*dims):
    parts = []
    for k in range(len(dims)):
        term = sp.identity(1)
        for j, m in enumerate(dims):
            line = sp.diags([-1.0, 2.05, -1.0], [-1, 0, 1], shape=(m, m)) if m > 1 else sp.identity(1) * 2.05
            term = sp.kron(term, line if j == k else sp.identity(m))
        parts.append(term)
    return sp.csr_matrix(sum(parts[1:], parts[0]))


def grid_kkt(m):
    rng = np.random.default_rng(0)
    h = laplacian(m, m)
    n, rows = m * m, m * m // 3
    j = sp.random(rows, n, 0.02, random_state=rng, format="csr")
    j = j + sp.csr_matrix((np.ones(rows), (np.arange(rows), rng.permutation(n)[:rows])), shape=(rows, n))
    return sp.bmat([[h, j.T], [j, None]]).tocsr()


def random_symmetric(n, seed=0, zero_diagonal=False):
    m = np.random.default_rng(seed).standard_normal((n, n))
    m = m + m.T
    if zero_diagonal:
        np.fill_diagonal(m, 0)
    return sp.csr_matrix(m)


@pytest.fixture(
    params=[pytest.param("simt", marks=pytest.mark.simt), pytest.param("cuda", marks=pytest.mark.cuda)]
)
def cupy(request, monkeypatch):
    """CuPy, or the stand-in whose device is the SIMT runner."""
    if request.param == "simt":
        return pretend.install(monkeypatch)
    return pytest.importorskip("cupy")
