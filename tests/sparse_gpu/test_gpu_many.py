"""Inverses of larger diagonal blocks, and many right-hand sides with the bits of single ones; under the SIMT runner."""

import numpy as np
import pytest
import scipy.sparse as sp
from emulate import Emulated
from emulate_lu import EmulatedLu

from conftest import grid_kkt, laplacian, random_symmetric
from warpfront import DirectSolver
from warpfront.sparse.gpu import inverses, steps

SMALL = {"small_rows": 32, "chunk": 64}


def dense_definite(n):
    return sp.csr_matrix(random_symmetric(n, 3).toarray() + 4 * np.sqrt(n) * np.eye(n))


def emulated(a, pivoting, **more):
    symbolic = DirectSolver(a, structure="S" if pivoting else "SPD", reordering_alg="amd").analyze()._symbolic
    made = Emulated(symbolic, pivoting, scaled=pivoting, schedules=1, **more)
    made.factorize(a.data)
    return made


CASES = {
    "dense": (lambda: dense_definite(300), False, SMALL),
    "cube": (lambda: laplacian(7, 7, 7), False, SMALL),
    "kkt": (lambda: grid_kkt(12), True, SMALL),
    "forest": (lambda: laplacian(12, 12), False, {}),
    "levels": (lambda: laplacian(12, 12), False, {"one_launch": False}),
}


@pytest.mark.simt
@pytest.mark.parametrize("name", CASES)
def test_many_have_the_bits_of_single_ones(name):
    make, pivoting, plan = CASES[name]
    a = make()
    e = emulated(a, pivoting, **plan)
    b = np.random.default_rng(0).standard_normal((64, a.shape[0]))
    single = [e.solve(b[k : k + 1], refinements=1)[0] for k in (0, 7, 63)]
    for count, picked in ((8, (0, 1)), (16, (0, 1)), (64, (0, 1, 2))):
        x = e.solve(b[:count], refinements=1, rhs=count)
        for k in picked:
            assert np.array_equal(x[(0, 7, 63)[k]], single[k]), (count, k)
    size = abs(a) @ np.abs(x.T) + np.abs(b.T)
    assert np.max(np.abs(b.T - a @ x.T) / size) <= 1e-12


@pytest.mark.simt
def test_float32_of_several_groups():
    a = laplacian(6, 6, 6)
    symbolic = DirectSolver(a, structure="SPD", reordering_alg="amd").analyze()._symbolic
    e = Emulated(symbolic, False, dtype=np.float32, schedules=1, **SMALL)
    e.factorize(a.data.astype(np.float32))
    b = np.random.default_rng(0).standard_normal((8, a.shape[0])).astype(np.float32)
    x = e.solve(b, rhs=8)
    assert np.array_equal(e.solve(b[3:4])[0], x[3])
    assert np.abs(b.T - a @ x.T).max() / (np.abs(x).max() * abs(a).sum(1).max()) <= 1e-6


@pytest.mark.simt
@pytest.mark.parametrize(("n", "span"), [(300, 8), (300, 4), (97, 4), (64, 2), (33, 8)])
def test_stored_inverses_are_those_of_the_blocks(n, span):
    a = dense_definite(n)
    e = emulated(a, False, span=span, small_rows=32, chunk=64)
    front = e.plan.fronts[0]
    panel = e.buffers["panels"][: int(front["ld"]) * n].reshape(n, int(front["ld"]))[:, :n]
    lower = np.tril(panel.T, -1) + np.eye(n)
    for begin in range(0, n, 32 * span):
        end = min(n, begin + 32 * span)
        stored = np.tril(panel[begin:end, begin:end], -1) + np.eye(end - begin)
        np.testing.assert_allclose(stored, np.linalg.inv(lower[begin:end, begin:end]), atol=1e-13)


def test_items_of_the_inverses_cover_each_corner_once():
    a = dense_definite(300)
    symbolic = DirectSolver(a, structure="SPD", reordering_alg="amd").analyze()._symbolic
    plan = Emulated(symbolic, False, small_rows=32, chunk=64).plan
    items, made = inverses.invert_items(plan, 8, 5)
    assert made[0].first == 5
    assert [m.blocks for m in made] == [5, 2 * 2, 4]
    assert sum(m.blocks for m in made) == items.size
    assert inverses.invert_items(plan, 1, 0)[0].size == 0
    sequence = steps.factor_steps(
        plan, symbolic.pattern.nnz, "float64", steps.Tolerances(), scaled=False, inversions=made
    )
    inverting = [k for k, step in enumerate(sequence) if step.kernel == "invert"]
    assert [sequence[k].after for k in inverting[1:]] == [(k,) for k in inverting[:-1]]
    assert {sequence[k].kernel for k in sequence[inverting[0]].after} == {"strips"}
    assert inverting[-1] in sequence[-1].after


@pytest.mark.parametrize(
    ("rhs", "rows", "tiles"), [(1, 1, 1), (4, 1, 1), (8, 2, 1), (16, 4, 1), (32, 8, 2), (64, 16, 4)]
)
def test_groups_of_right_hand_sides(rhs, rows, tiles):
    assert (steps.row_groups(rhs), steps.tile_groups(rhs)) == (rows, tiles)


def test_look_ahead_cuts_updates_and_keeps_their_order():
    a = dense_definite(300)
    symbolic = DirectSolver(a, structure="SPD", reordering_alg="amd").analyze()._symbolic
    before, after = (Emulated(symbolic, False, ahead=flag, **SMALL).plan for flag in (False, True))
    kinds = [x.kernel for x in after.launches]
    assert kinds.count("update_rest") > 0
    rest = [k for k, kind in enumerate(kinds) if kind == "update_rest"]
    near = [k - 1 for k in rest]

    def items(plan, kinds):
        taken = [plan.items[x.items : x.items + x.blocks] for x in plan.launches if x.kernel in kinds]
        return sorted(item.tobytes() for part in taken for item in part)

    assert items(before, ("update",)) == items(after, ("update", "update_rest"))
    for k, follower in zip(rest[:-1], near[1:], strict=True):
        assert k in after.launches[follower].after
        assert k in after.launches[follower + 1].after
    for k, launch in enumerate(after.launches):
        assert all(j < k for j in launch.after)
        if launch.kernel == "strips":
            assert not set(launch.after) & set(rest)


LU_CASES = {
    "wide": (lambda: sp.csc_matrix(np.random.default_rng(3).standard_normal((150, 150))), SMALL),
    "forest": (lambda: sp.csc_matrix(laplacian(12, 12) + sp.triu(laplacian(12, 12), 1) * 0.3), {}),
    "strips above a forest": (
        lambda: sp.csc_matrix(laplacian(7, 7, 7) * 1.0),
        {"small_rows": 64, "chunk": 64},
    ),
}


@pytest.mark.simt
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", LU_CASES)
def test_many_of_an_lu_have_the_bits_of_single_ones(name, transposed):
    make, plan = LU_CASES[name]
    a = make()
    symbolic = (
        DirectSolver(a, structure="G", reordering_alg="amd", block_triangular=False).analyze()._symbolic
    )
    e = EmulatedLu(symbolic, schedules=1, **plan)
    assert e.plan.wide.any() == (name != "forest")
    e.factorize(a.data)
    b = np.random.default_rng(0).standard_normal((64, a.shape[0]))
    single = [e.solve(b[k : k + 1], 1, transposed)[0] for k in (0, 7, 63)]
    for count, picked in ((8, (0, 1)), (16, (0, 1)), (64, (0, 1, 2))):
        x = e.solve(b[:count], 1, transposed)
        for k in picked:
            assert np.array_equal(x[(0, 7, 63)[k]], single[k]), (count, k)
    m = a.T if transposed else a
    size = abs(m) @ np.abs(x.T) + np.abs(b.T)
    assert np.max(np.abs(b.T - m @ x.T) / size) <= 1e-12
