"""Whole systems of an interior-point method under the SIMT runner: fronts that random matrices of a few rows do not make."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from emulate import Emulated
from emulate_lu import EmulatedLu
from scipy.io import mmread

from warpfront import DirectSolver
from warpfront.sparse.gpu.regroup import INDEFINITE, WARP_ROWS, regroup

DATA = Path(__file__).parents[2] / "examples" / "data"
pytestmark = pytest.mark.simt


def componentwise(a, x, b):
    r = np.abs(b - a @ x)
    return np.max(np.where(r > 0, r / (abs(a) @ np.abs(x) + np.abs(b)), 0.0))


@pytest.mark.parametrize("name", ["case118_kkt_it01", "case118_kkt", "case118_kkt_it20"])
@pytest.mark.parametrize("ordering", ["amd", "multilevel"])
def test_factor_and_refined_solve(name, ordering):
    a = sp.csr_matrix(mmread(DATA / f"{name}.mtx.gz"))
    cpu = DirectSolver(a, structure="S", reordering_alg=ordering).factorize()
    fronts = regroup(cpu._symbolic, most_width=WARP_ROWS, rules=INDEFINITE)
    e = Emulated(fronts, True, scaled=True, schedules=1)
    summary = e.factorize(a.data)
    assert (summary[4], summary[5]) == tuple(cpu.inertia)[:2]
    b = a @ np.ones(a.shape[0])
    assert componentwise(a, e.solve(b[None], refinements=4)[0], b) <= 5e-15


@pytest.mark.parametrize("ordering", ["amd", "multilevel"])
def test_lu_of_the_same(ordering):
    a = sp.csc_matrix(mmread(DATA / "case118_kkt.mtx.gz"))
    solver = DirectSolver(a, structure="G", reordering_alg=ordering, block_triangular=False)
    e = EmulatedLu(solver.analyze()._symbolic, schedules=1)
    e.factorize(a.data)
    b = a @ np.ones(a.shape[0])
    for transposed in (False, True):
        m = a.T if transposed else a
        c = m @ np.ones(a.shape[0]) if transposed else b
        assert componentwise(m, e.solve(c[None], 4, transposed)[0], c) <= 5e-15
