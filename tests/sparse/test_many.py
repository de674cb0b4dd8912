"""Many right-hand sides at a time: the bits of each alone, for every kind of front, with any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, laplacian_2d

from warpfront import DirectSolver
from warpfront.sparse._reference import backward_errors
from warpfront.sparse.solve._lanes_kernels import LANES


def systems():
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((150, 150))
    yield "diagonal", sp.diags_array(np.arange(1.0, 20.0)).tocsc(), "SPD"
    yield "grid", laplacian_2d(40), "SPD"
    yield "grid, LDL^T", laplacian_2d(40), "S"
    yield "dense", sp.csc_array(dense @ dense.T + 150 * np.eye(150)), "SPD"
    yield "dense, 2x2 pivots", sp.csc_array(dense + dense.T), "S"
    for kind in ("zero block", "badly scaled", "70% delayed", "all 2x2"):
        yield kind, sp.csc_array(INDEFINITE[kind](rng, 90)), "S"


@pytest.mark.parametrize(("name", "a", "structure"), [pytest.param(*case, id=case[0]) for case in systems()])
def test_the_bits_of_each_alone(name, a, structure):
    n = a.shape[0]
    b = np.random.default_rng(1).standard_normal((n, 2 * LANES + 3))
    b[:, 5] = 0.0
    for dtype in (np.float64, np.float32):
        if name == "badly scaled" and dtype == np.float32:
            continue
        for steps in (0, 3):
            found = set()
            for threads in (1, 2, 4):
                solver = DirectSolver(
                    a.astype(dtype),
                    structure=structure,
                    ir_n_steps=steps,
                    host_nthreads=threads,
                    check="status",
                )
                x = solver.solve(b.astype(dtype))
                found.add(x.tobytes())
            assert len(found) == 1
            worst = 0.0
            for c in range(b.shape[1]):
                alone = solver.solve(b[:, c].astype(dtype))
                assert alone.tobytes() == x[:, c].tobytes(), (dtype, steps, c)
                worst = max(worst, solver.report.solve.backward_error)
            if steps:
                solver.solve(b.astype(dtype))
                assert solver.report.solve.backward_error == worst
    assert backward_errors(a.toarray(), x.astype(np.float64), b)[0] <= 1e-4


@pytest.mark.parametrize("count", [1, 3, 4, LANES - 1, LANES, LANES + 1])
def test_every_number_of_columns_and_any_layout(count):
    a = laplacian_2d(12)
    b = np.asfortranarray(np.random.default_rng(2).standard_normal((144, 2 * count))[:, ::2])
    solver = DirectSolver(a)
    x = solver.solve(b)
    np.testing.assert_allclose(a @ x, b, atol=1e-12)
    out = b.copy()
    assert solver.solve(out, out=out) is out
    assert out.tobytes() == x.tobytes()


def test_a_bad_column_does_not_touch_its_neighbours():
    a = laplacian_2d(10)
    b = np.random.default_rng(3).standard_normal((100, 8))
    b[:, 2] *= 1e300
    solver = DirectSolver(a, check="status")
    x = solver.solve(b)
    for c in range(8):
        assert solver.solve(b[:, c].copy()).tobytes() == x[:, c].tobytes()
