"""`DirectSolver(device="cuda")` from outside: on a GPU, and with the SIMT runner for a device."""

import numpy as np
import pytest
import scipy.sparse as sp

from conftest import grid_kkt, laplacian, random_symmetric
from warpfront import DirectSolver
from warpfront.errors import (
    InvalidValueError,
    NotAnalyzedError,
    NotPositiveDefiniteError,
    NotSupportedError,
    PatternChangedError,
    SingularMatrixError,
    Status,
)


def componentwise(a, x, b):
    r = np.abs(b - a @ x)
    return np.max(np.where(r > 0, r / (abs(a) @ np.abs(x) + np.abs(b)), 0.0))


def make(a, **more):
    return DirectSolver(a, device="cuda", reordering_alg="amd", **more)


def test_solves_and_reports(cupy):
    a = laplacian(9, 9)
    s = make(a, structure="SPD")
    b = np.random.default_rng(0).standard_normal((81, 6))
    x = s.solve(b)
    assert type(x) is np.ndarray
    assert componentwise(a, x, b) <= 1e-13
    assert s.status == Status.OK
    assert s.inertia == (81, 0, 0)
    assert s.report.factor.method == "LL^T"
    assert s.report.solve.n_rhs == 6
    assert np.array_equal(s.solve(b[:, 2]), x[:, 2])
    out = np.empty_like(b)
    assert s.solve(b, out=out) is out
    assert np.array_equal(out, x)
    strided = np.asfortranarray(np.repeat(b, 2, axis=1))[:, ::2]
    assert np.array_equal(s.solve(strided), x)
    assert s.solve(np.empty((81, 0))).shape == (81, 0)


def test_the_order_is_chosen_for_a_gpu(cupy):
    candidates = make(laplacian(9, 9), structure="SPD").analyze().report.analysis.candidates
    assert all(c.height is not None for c in candidates)


def test_more_right_hand_sides_than_there_is_room_for(cupy):
    a = laplacian(9, 9)
    s = make(a, structure="SPD")
    b = np.random.default_rng(0).standard_normal((81, 19))
    few = s.solve(b[:, :3])
    s._factor.groups = (32, 8, 1)
    before = s._factor.nbytes
    x = s.solve(b)
    assert s._factor.nbytes > before
    assert componentwise(a, x, b) <= 1e-13
    assert np.array_equal(x[:, :3], few)
    assert np.array_equal(s.solve(b[:, :3]), few)
    assert np.array_equal(s.solve(b[:, 18]), x[:, 18])
    assert s.report.solve.n_rhs == 1


def test_a_captured_solve_takes_no_more_than_there_is_room_for(cupy):
    factor = make(laplacian(5, 5), structure="SPD", check="status").factorize()._factor
    assert factor._take(20) == (32, 20)
    assert factor._take(20, factor._room) == (8, 8)
    assert factor._take(3, factor._room) == (4, 3)


@pytest.mark.parametrize("structure", ["SPD", "G"])
def test_where_memory_runs_out_fewer_are_solved_for_at_once(cupy, monkeypatch, structure):
    import cupy as device

    a = laplacian(9, 9)
    s = make(a, structure=structure)
    b = np.random.default_rng(0).standard_normal((81, 19))
    x = s.solve(b[:, 0])
    before, real, made = s._factor.nbytes, device.empty, []

    def empty(shape, dtype=float, **more):
        if np.prod(shape) >= 32 * 81:
            made.append(shape)
            if len(made) == 3:
                raise MemoryError("no more")
        return real(shape, dtype, **more)

    monkeypatch.setattr(device, "empty", empty)
    with pytest.warns(
        UserWarning, match=r"no memory for 32 right-hand sides at once \(\d+ bytes: no more\); solved 8"
    ):
        many = s.solve(b)
    assert len(made) == 3
    assert s._factor.nbytes == before
    assert componentwise(a, many, b) <= 1e-13
    assert np.array_equal(many[:, 0], x)
    assert np.array_equal(s.solve(b[:, 0]), x)


def test_growing_keeps_what_a_callers_graph_has_captured(cupy):
    s = make(laplacian(9, 9), structure="SPD", check="status")
    b = np.random.default_rng(0).standard_normal((81, 19))
    s.solve(b[:, 0])
    runner = s._factor.runner
    old = dict(runner.buffers)
    runner._captured = True  # as `run` notes where a caller's stream is capturing
    s.solve(b)
    moved = [name for name in old if runner.buffers[name] is not old[name]]
    assert "x" in moved
    assert all(any(kept is old[name] for kept in runner._kept) for name in moved)


def test_device_arrays_stay_on_the_device(cupy):
    a = grid_kkt(7)
    s = make(a, structure="S", check="status")
    b = np.random.default_rng(0).standard_normal(a.shape[0])
    x = s.solve(cupy.asarray(b))
    assert type(x).__module__.startswith("cupy")
    assert np.array_equal(x.get(), s.solve(b))
    s.refactorize(cupy.asarray(2 * a.data))
    assert componentwise(2 * a, s.solve(b), b) <= 1e-12
    s.refactorize(a.data)
    assert np.array_equal(s.solve(b), x.get()), "old -> new -> old"


def test_new_values_in_the_callers_order_with_duplicates(cupy):
    dense = random_symmetric(12, 1).toarray() + 9 * np.eye(12)
    row, col = np.nonzero(dense)
    rng = np.random.default_rng(2)
    order = rng.permutation(row.size)
    row, col = np.concatenate([row[order]] * 2), np.concatenate([col[order]] * 2)
    values = np.concatenate(
        [
            0.25 * dense[row[: order.size], col[: order.size]],
            0.75 * dense[row[: order.size], col[: order.size]],
        ]
    )
    s = make(sp.coo_matrix((values, (row, col)), shape=(12, 12)), structure="S")
    b = rng.standard_normal(12)
    x = s.solve(b)
    s.refactorize(cupy.asarray(values))
    assert np.array_equal(s.solve(b), x)
    assert componentwise(sp.csr_matrix(dense), x, b) <= 1e-12


def test_structure_found(cupy):
    assert make(laplacian(6, 6)).factorize().report.factor.method == "LL^T"
    shifted = (laplacian(6, 6) - 2 * sp.identity(36)).tocsr()
    s = make(shifted).factorize()
    w = np.linalg.eigvalsh(shifted.toarray())
    assert s.inertia == ((w > 0).sum(), (w < 0).sum(), 0)
    assert "Cholesky stopped at column" in s.report.factor.method


def test_not_positive_definite_then_new_values(cupy):
    a = laplacian(6, 6)
    bad = a.copy()
    bad.data = -bad.data
    s = make(bad, structure="SPD")
    with pytest.raises(NotPositiveDefiniteError) as caught:
        s.factorize()
    assert caught.value.column == s._symbolic.perm[0], "the first pivot fails"
    assert s.refactorize(a.data).status == Status.OK
    quiet = make(bad, structure="SPD", check="status")
    assert np.isnan(quiet.solve(np.ones(36))).all()
    assert quiet.status == Status.NOT_POSITIVE_DEFINITE
    assert quiet.info == s._symbolic.perm[0] + 1


def test_singular_names_the_column(cupy):
    a = laplacian(5, 5).tolil()
    a[11, :] = 0
    a[:, 11] = 0
    a = sp.csr_matrix(a) + sp.csr_matrix(([0.0], ([11], [11])), shape=(25, 25))
    with pytest.raises(SingularMatrixError) as caught:
        make(a, structure="S").factorize()
    assert caught.value.column == 11


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny(cupy, n):
    a = sp.csr_matrix(np.diag(np.arange(1.0, n + 1)))
    s = make(a, structure="S")
    np.testing.assert_allclose(s.solve(np.ones(n)), 1 / np.arange(1.0, n + 1))
    assert s.inertia == (n, 0, 0)


def test_refinement_goes_on_while_it_has_to(cupy):
    a = grid_kkt(7)
    b = a @ np.ones(a.shape[0])
    s = make(a, structure="S").factorize()
    s._factor.runner.buffers["diagonal"][...] *= 1.001  # a factor that is off by a thousandth
    x = s.solve(b)
    assert s.report.solve.refinement_steps > 2
    assert componentwise(a, x, b) <= 1e-12
    s.set("ir_n_steps", 2)
    x = s.solve(b)
    assert s.report.solve.refinement_steps == 2
    assert 1e-12 < componentwise(a, x, b) < 1e-6


def test_readings(cupy):
    a = laplacian(8, 8)
    s = make(a, structure="SPD")
    with pytest.raises(NotAnalyzedError):
        _ = s.memory_estimates
    with pytest.raises(NotAnalyzedError):
        s.refactorize(cupy.asarray(a.data))
    s.analyze()
    planned = s.memory_estimates
    s.factorize()
    assert s.memory_estimates == planned
    assert planned["total"] == s._factor.runner.nbytes == s.memory_slots[0]
    exact = 1 / (np.linalg.norm(a.toarray(), 1) * np.linalg.norm(np.linalg.inv(a.toarray()), 1))
    assert s.rcond() == pytest.approx(exact, rel=0.5)
    s.set("ir_n_steps", 0)
    s.solve(np.ones(64))
    assert np.isnan(s.report.solve.backward_error)
    s.set("deterministic_mode", False)
    assert s.get("npivots") == 0


def test_misuse(cupy):
    a = laplacian(5, 5)
    with pytest.raises(NotSupportedError, match="delayed pivots are on the CPU"):
        make(a, on_unstable="delay")
    s = make(a, structure="SPD")
    with pytest.raises(NotSupportedError, match="delayed"):
        s.set("on_unstable", "delay")
    s.factorize()
    with pytest.raises(InvalidValueError, match="shape"):
        s.solve(cupy.asarray(np.ones(7)))
    with pytest.raises(PatternChangedError):
        s.refactorize(cupy.asarray(np.ones(3)))
    with pytest.raises(InvalidValueError, match="trans"):
        s.solve(np.ones(25), trans="X")
    with pytest.raises(NotSupportedError, match="as a whole"):
        s.execute("solve_fwd", np.empty(25), np.ones(25))
    with pytest.raises(NotSupportedError, match="does not take matching_alg='none'"):
        make(a, matching_alg="none").factorize()
    x = np.empty(25)
    s.execute("refactorization|solve", x, np.ones(25))
    assert componentwise(a, x, np.ones(25)) <= 1e-13
    with pytest.raises(NotSupportedError, match="complex128"):
        make(a.astype(complex))


def test_without_a_gpu_the_message_says_what_is_missing(monkeypatch):
    from warpfront.backend import capability

    monkeypatch.setattr(capability, "missing", lambda: "no NVIDIA driver on this machine")
    with pytest.raises(NotSupportedError, match="no NVIDIA driver"):
        make(laplacian(4, 4))


def test_solves_that_nobody_asks_about_leave_nothing_behind(cupy):
    s = make(laplacian(3, 3), structure="SPD", check="status").factorize()
    before = s._late
    for _ in range(3000):  # a report that is made of all before it would pass Python's depth of calls
        s._record_late(s._factor, (9,), s._clock)
    assert s._late is before
    assert s.report.solve.n_rhs == 1
    assert s.report.factor.method == "LL^T"
    assert s._late_solve is None
