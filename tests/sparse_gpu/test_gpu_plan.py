"""The plan is a pure function: what covers what, what waits for what, what it costs."""

import numpy as np
import pytest

from conftest import laplacian
from warpfront import DirectSolver
from warpfront.errors import NotSupportedError
from warpfront.sparse.gpu import layout, memory, schedule, steps
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.regroup import DEFINITE, regroup
from warpfront.sparse.gpu.runner import WAITING, assign_branches, early_launches


def symbolic(a):
    return DirectSolver(a, structure="SPD", reordering_alg="amd").analyze()._symbolic


@pytest.fixture(scope="module")
def cube():
    return symbolic(laplacian(9, 9, 9))


@pytest.mark.parametrize(
    "options", [{}, {"small_rows": 32, "chunk": 64}, {"small_rows": 64, "subtree_share": 0.1}]
)
@pytest.mark.parametrize("pivoting", [False, True])
def test_every_front_is_eliminated_once_after_its_children(cube, options, pivoting):
    plan = schedule.make_plan(cube, pivoting=pivoting, **options)
    finished = np.full(plan.fronts.size, -1)
    for k, launch in enumerate(plan.launches):
        assert all(earlier < k for earlier in launch.after)
        if launch.kernel == "factor_tree":
            for item in plan.forest.items:
                assert (finished[item["front"] : item["last"] + 1] == -1).all()
                finished[item["front"] : item["last"] + 1] = k
            continue
        items = plan.items[launch.items : launch.items + launch.blocks]
        assert items.size == launch.blocks
        if launch.kernel == "fronts":
            for item in items:
                assert (finished[item["front"] : item["last"] + 1] == -1).all()
                finished[item["front"] : item["last"] + 1] = k
        if launch.kernel in ("assemble", "strips"):
            begun = np.unique(items["front"])
            finished[begun[finished[begun] == -1]] = k
    assert (finished >= 0).all()
    ready = _before(plan.launches)
    for s, p in enumerate(plan.parent):
        if p >= 0 and (plan.root[s] < 0 or plan.root[p] != plan.root[s]):
            assert finished[s] in ready[finished[p]] or (
                plan.launches[finished[s]].kernel == "factor_tree" and finished[p] == finished[s]
            )


def _before(launches):
    done = []
    for launch in launches:
        done.append(set(launch.after).union(*(done[k] for k in launch.after)))
    return done


def test_strips_wait_for_smaller_blocks_only(cube):
    plan = schedule.make_plan(cube, pivoting=True, small_rows=32, chunk=64)
    strips = [x for x in plan.launches if x.kernel == "strips"]
    assert strips
    for launch in strips:
        items = plan.items[launch.items : launch.items + launch.blocks]
        for s in np.unique(items["front"]):
            index = items["index"][items["front"] == s]
            assert (np.diff(index) >= 0).all()


def test_ranges_point_at_the_childs_rows(cube):
    plan = schedule.make_plan(cube, pivoting=False)
    for child in plan.children:
        rows = plan.maps[child["map"] : child["map"] + child["below"]]
        parent = plan.parent[child["front"]]
        bins = -(-int(plan.fronts["rows"][parent]) // 32)
        for b in range(bins + 1):
            assert plan.maps[child["range"] + b] == np.searchsorted(rows, 32 * b)


def test_memory_is_what_the_buffers_take(cube):
    plan = schedule.make_plan(cube, pivoting=False)
    items, _ = steps.solve_items(plan)
    tables = steps.make_tables(cube.pattern, cube.perm)
    uploaded = memory.uploads(plan, tables, items)
    written = memory.needs(plan, cube.pattern.nnz, cube.pattern.value_map.size, np.dtype(np.float64))
    named, slots = memory.estimates(uploaded, written, 123)
    total = sum(a.nbytes for a in uploaded.values()) + sum(n.nbytes for n in written.values())
    assert named["total"] == total == slots[0] == slots[1] == slots[4]
    assert slots[2] == slots[3] == 123
    assert slots[12] == named["contribution_blocks"] == written["blocks"].nbytes
    assert slots[13] == named["plan"]
    assert len(slots) == 16
    blocks = (plan.fronts["rows"] - plan.fronts["width"]).astype(np.int64)
    assert written["blocks"].size >= (blocks * (blocks + 1) // 2).sum()


def test_blocks_that_32_bits_cannot_number_are_refused(cube, monkeypatch):
    monkeypatch.setattr(layout, "PACKED_ROWS", 10)
    with pytest.raises(NotSupportedError, match="rows; the GPU path packs blocks of at most 10"):
        schedule.make_plan(cube, pivoting=False)


def test_smaller_shared_memory_makes_more_fronts_wide(cube):
    large = schedule.make_plan(cube, pivoting=False)
    small = schedule.make_plan(cube, pivoting=False, device=schedule.Device(shared_bytes=49152))
    assert small.wide.sum() > large.wide.sum()
    for launch in small.launches:
        if launch.kernel == "fronts":
            assert launch.shared_bytes <= 49152 - 16384


def test_branches_keep_a_chain_together_and_spread_the_rest():
    def step(*after):
        return steps.Step("collect", "collect", 1, 1, after=after)

    where = assign_branches([step(), step(0), step(0), step(1), step(2), step(3, 4)], 3)
    assert where[0] == where[1] == where[3]
    assert where[2] == where[4] != where[0]


def test_a_launch_is_early_behind_its_only_predecessor_alone():
    def step(kernel, *after):
        return steps.Step(kernel, kernel, 1, 1, after=after)

    sequence = [
        step("start_solve"), step("permute_in", 0), step("forward", 1), step("forward_strips", 1), step("backward", 2, 3),
        step("permute_out", 4), step("collect", 5), step("judge", 6),
    ]  # fmt: skip
    assert early_launches(sequence, [0, 0, 0, 1, 0, 0, 0, 0]) == [
        False, True, True, False, False, True, False, False,
    ]  # fmt: skip
    assert not any(early_launches(sequence, range(8)))


@pytest.mark.parametrize("kernel", sorted(WAITING))
def test_kernels_that_may_begin_early_wait_before_they_return(kernel):
    """`grid_wait` stands before the first way out, so that the end of a launch means that of all before it."""
    spec = KERNELS[kernel]
    text = spec.source.read_text()
    body = text[text.index(f" {spec.template.partition('<')[0]}(") :]
    body = body[: body.index("\n}\n")]
    assert "grid_wait();" in body
    assert "return" not in body[: body.index("grid_wait();")].replace("// ", "")


def test_regrouping_keeps_the_matrix_and_only_merges_small_fronts():
    before = symbolic(laplacian(20, 20))
    after = regroup(before)
    assert after.n_supernodes < before.n_supernodes
    assert np.array_equal(np.sort(after.perm), np.arange(400))
    assert after.pattern is before.pattern
    rows = np.diff(after.plan.front_ptr)
    assert rows.max() <= max(32, before.max_front)
    assert after.nnz_factor >= before.nnz_factor
    assert regroup(before, 0) is before


def test_regrouping_cuts_fronts_to_what_a_warp_searches():
    before = symbolic(laplacian(9, 9, 9))
    after = regroup(before, most_width=16)
    width, rows = np.diff(after.plan.node_ptr), np.diff(after.plan.front_ptr)
    assert (width[(rows <= 160) & (rows > 32)] <= 16).all()
    assert width.sum() == 729
    assert after.nnz_factor <= regroup(before).nnz_factor
    ind, ptr, parent = (
        after.plan.front_ind,
        after.plan.front_ptr,
        schedule.make_plan(after, pivoting=True).parent,
    )
    for s in np.flatnonzero(parent >= 0):
        below, above = ind[ptr[s] + width[s] : ptr[s + 1]], ind[ptr[parent[s]] : ptr[parent[s] + 1]]
        assert np.isin(below, above).all()
        assert (np.diff(above) > 0).all()


def test_merging_takes_the_cheaper_tree():
    before = symbolic(laplacian(14, 14, 14))
    plain, merged = regroup(before), regroup(before, rules=DEFINITE)
    assert merged.n_supernodes < plain.n_supernodes
    assert merged.nnz_factor > plain.nnz_factor
    assert np.diff(merged.plan.node_ptr).sum() == 14**3
    levels = [int(schedule.make_plan(s, pivoting=False).level.max()) for s in (plain, merged)]
    assert levels[1] <= levels[0]


def test_gather_lists_hold_every_source_in_order(cube):
    plan = schedule.make_plan(cube, pivoting=False)
    for s in np.flatnonzero(~plan.wide):
        f, g = plan.fronts[s], plan.gathers[s]
        ld = -(-int(f["rows"]) // 16) * 16 + 4
        expected = {}
        for e in plan.entries[f["entry0"] : f["entry1"]]:
            expected.setdefault(int(e["col"]) * ld + int(e["row"]), []).append(-2 - int(e["slot"]))
        for child in plan.children[f["child0"] : f["child1"]]:
            into = plan.maps[child["map"] : child["map"] + child["below"]].astype(int)
            at = int(child["block"]) - int(g["base"])
            for j in range(into.size):
                for i in range(j, into.size):
                    expected.setdefault(into[j] * ld + into[i], []).append(at)
                    at += 1
        shape = (int(g["last"] - g["first"]), 8, 32)
        sources = plan.sources[256 * g["first"] : 256 * g["last"]].reshape(shape)
        places = plan.places[256 * g["first"] : 256 * g["last"]].reshape(shape)
        found = {}
        for lane in range(32):
            pending = []
            for source, place in zip(sources[:, :, lane].ravel(), places[:, :, lane].ravel(), strict=True):
                pending += [int(source)] if source != -1 else []
                if place != 65535:
                    found[int(place)], pending = pending, []
            assert not pending
        assert found == expected


def test_empty_matrix():
    import scipy.sparse as sp

    made = symbolic(sp.csr_matrix((0, 0)))
    plan = schedule.make_plan(regroup(made), pivoting=True)
    assert plan.launches == ()
