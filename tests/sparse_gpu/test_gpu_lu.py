"""LU on the GPU, launch by launch under the SIMT runner, against dense arithmetic and the CPU's LU."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from emulate_lu import EmulatedLu

from warpfront import DirectSolver
from warpfront.sparse.gpu.lu_steps import LuTolerances
from warpfront.sparse.gpu.records import Device

sys.path.insert(0, str(Path(__file__).parents[1] / "sparse"))
from general_matrices_for_tests import GENERAL, leaves_on_a_hub

pytestmark = pytest.mark.simt
SMALL = {"small_rows": 32, "chunk": 64}  # most fronts are wide, and wide ones have several chunks


def convection(*dims, flow=0.4):
    """Upwind-ish convection and diffusion: unsymmetric values on a grid."""
    parts = []
    for k in range(len(dims)):
        term = sp.identity(1)
        for j, m in enumerate(dims):
            line = sp.diags([-1.0 - flow, 2.05, -1.0 + flow], [-1, 0, 1], shape=(m, m))
            term = sp.kron(term, line if j == k else sp.identity(m))
        parts.append(term)
    return sp.csc_matrix(sum(parts[1:], parts[0]))


def random_dense(n, seed):
    return sp.csc_matrix(np.random.default_rng(seed).standard_normal((n, n)))


def weak_columns(n, seed):
    """Columns whose fully summed entries are too small for the threshold until others have been eliminated."""
    a = np.random.default_rng(seed).standard_normal((n, n))
    a[: n // 2, : n // 4] *= 1e-4
    a[np.arange(n), np.arange(n)] *= 1e-3
    return sp.csc_matrix(a)


def dominant(n, seed, *large):
    """Every diagonal entry does as a pivot, but in columns where a row has a large entry."""
    a = np.random.default_rng(seed).standard_normal((n, n)) / n + np.eye(n)
    for row, col in large:
        a[row, col] = 5.0
    return sp.csc_matrix(a)


def hard(name, n):
    return sp.csc_matrix(GENERAL[name](np.random.default_rng(11), n, "float64"))


def emulated(a, ordering="amd", matching="auto", **more):
    solver = DirectSolver(
        a, structure="G", reordering_alg=ordering, matching_alg=matching, block_triangular=False
    )
    return EmulatedLu(solver.analyze()._symbolic, **more)


def reconstruction(e, a):
    lower, d, upper, row, col = e.dense_factor()
    n, general = e.plan.n, e.symbolic.general
    r, c = np.ones(n), np.ones(n)
    if e.scaling != "none":
        r, c = (np.ldexp(1.0, e.buffers[f"{side}_exponents"][:n]) for side in ("row", "col"))
    m = (r[:, None] * a.toarray() * c)[np.ix_(general.rows[row], e.symbolic.perm[col])]
    return np.abs(lower * d @ upper - m).max() / np.abs(m).max()


def errors(a, x, b):
    r = np.abs(b - a @ x)
    return np.max(np.where(r > 0, r / (abs(a) @ np.abs(x) + np.abs(b)), 0.0))


CASES = {
    "grid": (lambda: convection(12, 12), {}),
    "cube": (lambda: convection(7, 7, 7), {}),
    "cube wide": (lambda: convection(7, 7, 7), SMALL),
    "cube wide, one chunk": (lambda: convection(7, 7, 7), {"small_rows": 32}),
    "cube wide, assembled apart": (
        lambda: convection(7, 7, 7),
        {"small_rows": 32, "device": Device(sms=4)},
    ),
    "weak columns wide, one chunk": (lambda: weak_columns(100, 5), {"small_rows": 32}),
    "cube by levels": (lambda: convection(7, 7, 7), {"one_launch": False}),
    "dense in a warp": (lambda: random_dense(31, 1), {}),
    "dense in a block": (lambda: random_dense(100, 2), {}),
    "dense wide": (lambda: random_dense(150, 3), SMALL),
    "weak columns": (lambda: weak_columns(90, 4), {}),
    "in place": (lambda: dominant(77, 6), {}),
    "in place wide": (lambda: dominant(77, 6), SMALL),
    "weak columns wide": (lambda: weak_columns(100, 5), SMALL),
}


@pytest.mark.parametrize("name", CASES)
def test_factor_and_both_solves(name):
    make_matrix, plan = CASES[name]
    a = make_matrix()
    e = emulated(a, **plan)
    assert e.plan.wide.any() == ("small_rows" in plan)
    summary = e.factorize(a.data)
    assert summary[0] == a.shape[0]
    assert summary[7] == 2**31 - 1
    assert reconstruction(e, a) <= 1e-11
    b = np.random.default_rng(0).standard_normal((4, a.shape[0]))
    for transposed in (False, True):
        m = a.T.tocsc() if transposed else a
        x = e.solve(b, refinements=1, transposed=transposed)
        assert errors(m, x.T, b.T) <= 1e-13
        e.schedules = 1
        alone = e.solve(b[1:2], refinements=1, transposed=transposed)
        assert np.array_equal(alone, x[1:2]), "a column's bits depend on its neighbours"


@pytest.mark.parametrize(
    ("name", "matching"),
    [(name, "auto") for name in GENERAL] + [(name, "none") for name in GENERAL if name != "badly scaled"],
)
def test_hard_matrices(name, matching):
    a = hard(name, 40)
    e = emulated(a, schedules=1, matching=matching)
    summary = e.factorize(a.data)
    assert summary[3] == 0
    steps = 2 if matching == "auto" else 5  # without it pivots are perturbed
    b = np.random.default_rng(5).standard_normal((1, 40))
    for transposed, m in ((False, a), (True, a.T.tocsc())):
        x = e.solve(b, refinements=steps, transposed=transposed)
        assert errors(m, x.T, b.T) <= 1e-12


@pytest.mark.parametrize("n", [1, 2, 3, 20, 33, 70])
def test_pivots_are_those_of_the_serial_rule(n):
    a = weak_columns(n, n) if n > 3 else random_dense(n, n)
    e = emulated(a, schedules=1)
    e.factorize(a.data)
    cpu = DirectSolver(
        a, structure="G", reordering_alg="amd", block_triangular=False, on_unstable="perturb"
    ).factorize()
    state = cpu._factor.state
    rows = e.symbolic.plan.front_ind[: e.plan.fronts["rows"][0]] if e.plan.fronts.size == 1 else None
    if rows is not None:
        assert np.array_equal(e.buffers["pivots"][: 2 * n : 2], state.ind[:n])
        assert np.array_equal(e.buffers["col_pivots"][: 2 * n : 2], state.col[:n])
    np.testing.assert_allclose(e.buffers["diagonal"][: 2 * n : 2], state.diagonal[: 2 * n : 2], rtol=1e-8)
    stats = cpu.pivot_stats
    assert tuple(e.buffers["summary"][[0, 2, 3]]) == (stats.one_by_one, stats.perturbed, stats.zero)


LARGE = {
    "nowhere": (),
    "rows of the block": ((50, 40),),
    "rows below": ((60, 10),),
    "last block": ((70, 66), (3, 2)),
}


@pytest.mark.parametrize("where", LARGE)
@pytest.mark.parametrize("n", [77, 111])
def test_panels_in_place_and_searched_ones(n, where):
    a = dominant(n, 7, *LARGE[where])
    e = emulated(a, schedules=1, scaling="none", matching="none", ordering="natural")
    assert e.factorize(a.data)[0] == n
    cpu = DirectSolver(
        a, structure="G", reordering_alg="natural", block_triangular=False, scaling="none", matching_alg="none",
    ).factorize()._factor.state  # fmt: skip
    assert np.array_equal(e.buffers["pivots"][: 2 * n : 2], cpu.ind[:n])
    assert np.array_equal(e.buffers["col_pivots"][: 2 * n : 2], cpu.col[:n])
    assert (e.buffers["pivots"][: 2 * n : 2] == np.arange(n)).all() == (where == "nowhere")
    np.testing.assert_allclose(e.buffers["diagonal"][: 2 * n : 2], cpu.diagonal[: 2 * n : 2], rtol=1e-12)
    assert reconstruction(e, a) <= 1e-14


@pytest.mark.parametrize("plan", [{}, SMALL], ids=["small", "wide"])
def test_tiny_pivots_are_perturbed_and_counted(plan):
    a = sp.csc_matrix(leaves_on_a_hub(60, 4))
    if plan:  # five columns of a diagonal block hold nothing but dust
        a = random_dense(70, 6).toarray()
        a[:32, :5] *= 1e-6
        a = sp.csc_matrix(a)
    rule = LuTolerances(epsilon=1e-4 if plan else 0.02)
    e = emulated(a, schedules=1, tolerances=rule, scaling="none", matching="none", ordering="natural", **plan)
    counted = e.factorize(a.data)[2]
    if plan:
        assert counted == 5
        return
    cpu = DirectSolver(
        a, structure="G", reordering_alg="natural", block_triangular=False, on_unstable="perturb", pivot_epsilon=0.02,
        scaling="none", matching_alg="none",
    ).factorize()  # fmt: skip
    assert counted == cpu.pivot_stats.perturbed > 0


@pytest.mark.parametrize("plan", [{}, SMALL], ids=["small", "wide"])
def test_zero_pivot_and_nan_are_seen(plan):
    dense = random_dense(50, 7).toarray()
    dense[:, 7] = dense[:, 3]
    a = sp.csc_matrix(dense)
    e = emulated(a, schedules=1, tolerances=LuTolerances(zero=1e-13), **plan)
    summary = e.factorize(a.data)
    if plan:  # rounding in front of the last pivot may hide it, but not from the count of tiny pivots
        assert summary[3] + summary[6] == 1
    else:
        assert summary[3] == 1
        assert e.symbolic.perm[summary[7]] in (3, 7)
    a.data[5 * 50 + 5] = np.nan
    assert e.factorize(a.data)[8] > 0
    a.data[5 * 50 + 5] = np.inf
    assert e.factorize(a.data)[8] > 0


def test_float32():
    a = convection(6, 6, 6)
    e = emulated(a, dtype=np.float32, schedules=1, tolerances=LuTolerances(zero=1e-5, epsilon=3e-4), **SMALL)
    e.factorize(a.data.astype(np.float32))
    assert reconstruction(e, a) <= 1e-6
    b = np.random.default_rng(0).standard_normal((1, a.shape[0])).astype(np.float32)
    for transposed in (False, True):
        x = e.solve(b, refinements=1, transposed=transposed)
        m = a.T if transposed else a
        assert np.abs(b.T - m @ x.T).max() / (np.abs(x).max() * abs(m).sum(1).max()) <= 1e-6


def test_scaling_of_the_matching_is_given_up_and_taken_up_again():
    a = hard("random", 40)
    e = emulated(a, schedules=1)
    general = e.symbolic.general
    e.factorize(a.data)
    assert e.buffers["quality"][1] == 0
    assert np.array_equal(np.ldexp(1.0, e.buffers["row_exponents"][:40]), general.row_scale)
    assert np.array_equal(np.ldexp(1.0, e.buffers["col_exponents"][:40]), general.col_scale)
    first = {k: e.buffers[k].tobytes() for k in ("panels", "diagonal", "pivots")}
    new = a.copy()
    rng = np.random.default_rng(1)
    new.data *= 10.0 ** rng.uniform(-6, 6, new.nnz)
    from warpfront.sparse.numeric.factorize_lu import choose_scaling

    wanted = choose_scaling(e.symbolic, e.pattern.gather(new.data), "auto")
    assert wanted.stale
    e.factorize(new.data)
    assert e.buffers["quality"][1] == 1
    assert e.buffers["quality"][2] == wanted.weak
    assert np.array_equal(np.ldexp(1.0, e.buffers["row_exponents"][:40]), wanted.rows)
    assert np.array_equal(np.ldexp(1.0, e.buffers["col_exponents"][:40]), wanted.cols)
    e.seed = 5
    e.factorize(a.data)
    assert {k: e.buffers[k].tobytes() for k in first} == first, "old -> new -> old"


def test_a_repeat_has_the_same_bits():
    a = convection(6, 6, 6)
    e = emulated(a, schedules=1, **SMALL)
    e.factorize(a.data)
    first = {k: e.buffers[k].tobytes() for k in ("panels", "diagonal", "pivots")}
    e.factorize(a.data * 3)
    e.seed = 5
    e.factorize(a.data)
    assert {k: e.buffers[k].tobytes() for k in first} == first


def test_the_tree_has_the_bits_of_the_levels():
    a = hard("random", 120)  # some fronts are refused by a warp, and searched again
    found = []
    for plan in ({}, {"one_launch": False}, {"one_launch": False, "lists": False}):
        e = emulated(a, schedules=1, matching="none", **plan)
        e.factorize(a.data)
        found.append([e.buffers[k].tobytes() for k in ("diagonal", "pivots", "blocks")])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("plan", [SMALL, {"one_launch": False}, {}], ids=["wide", "levels", "tree"])
def test_every_front_is_eliminated_once_after_its_children(plan):
    e = emulated(convection(7, 7, 7), **plan)
    plan, finished, done = e.plan, np.full(e.plan.fronts.size, -1), []
    for k, launch in enumerate(plan.launches):
        assert all(earlier < k for earlier in launch.after)
        done.append(set(launch.after).union(*(done[j] for j in launch.after)))
        tree = launch.kernel == "lu_tree"
        items = plan.forest.items if tree else plan.items[launch.items : launch.items + launch.blocks]
        if launch.kernel in ("lu_fronts", "lu_tree"):
            for item in items:
                assert (finished[item["front"] : item["last"] + 1] == -1).all()
                finished[item["front"] : item["last"] + 1] = k
        if launch.kernel == "lu_assemble" or (launch.kernel == "lu_strips" and (items["e1"] >= 2).all()):
            finished[np.unique(items["front"])] = k
    assert (finished >= 0).all()
    for s, p in enumerate(plan.parent):
        if p >= 0 and (plan.root[s] < 0 or plan.root[p] != plan.root[s]):
            inside = plan.forest is not None and plan.forest.member[[s, p]].all()  # the tickets' order
            inside = inside or (p == s + 1 and finished[s] == finished[p])  # one block takes both
            assert finished[s] in done[finished[p]] or inside
