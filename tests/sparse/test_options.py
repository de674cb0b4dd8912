"""Pivot rules, refinement modes, diagonal shifts, saved analyses, pictures: what each option promises."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices_for_tests import INDEFINITE, kkt, laplacian_2d

from warpfront import DirectSolver, Inertia, Status, ldlt
from warpfront.errors import (
    FormatError,
    InvalidValueError,
    NotAnalyzedError,
    NotPositiveDefiniteError,
    NotSupportedError,
    PatternChangedError,
    SingularMatrixError,
    UnstablePivotError,
)
from warpfront.sparse._reference import backward_errors, reconstruct, reconstruction_error
from warpfront.sparse.analysis.symbolic import Symbolic


def quasi_definite(n=30, m=12, seed=0):
    """[[H, B^T], [B, -C]] with H and C positive definite: LDL^T exists for every ordering."""
    a = kkt(n, m, seed)
    a[n:, n:] = -np.diag(np.random.default_rng(seed).uniform(0.5, 1.0, m))
    return a, np.r_[np.ones(n, np.int8), -np.ones(m, np.int8)]


# ---------------------------------------------------------------- pivots
@pytest.mark.parametrize("pivot_type", ["diagonal", "none"])
def test_quasi_definite_needs_no_pivot_search(pivot_type):
    a, sign = quasi_definite()
    solver = DirectSolver(sp.csr_array(a), structure="S", pivot_type=pivot_type, pivot_sign=sign).factorize()
    assert solver.pivot_stats.two_by_two == 0
    assert solver.inertia == Inertia(30, 12, 0)
    assert solver.get("npivots") == 0
    b = a @ np.ones(42)
    assert backward_errors(a, solver.solve(b), b)[0] < 1e-14


def test_diagonal_pivots_keep_the_threshold():
    a = INDEFINITE["random"](np.random.default_rng(1), 60)
    factor = ldlt(sp.csr_array(a), pivot_type="diagonal", pivot_threshold=0.1, check="status")
    assert factor.solver.pivot_stats.two_by_two == 0
    done = reconstruct(factor)
    assert reconstruction_error(a, done) < 1e-10


def test_pivot_sign_decides_the_sign_of_a_perturbed_pivot():
    a = np.diag([1.0, 1.0, 0.0, 0.0])
    a[0, 1] = a[1, 0] = 0.5
    for signs in ([1, 1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]):
        solver = DirectSolver(
            sp.csr_array(a), structure="S", on_unstable="perturb", pivot_sign=signs, ir_n_steps=0
        ).factorize()
        assert solver.status == Status.OK
        assert solver.get("npivots") == 2
        positive = 2 + sum(s > 0 for s in signs[2:])
        assert solver.inertia == Inertia(positive, 4 - positive, 0)
        assert not solver.report.factor.inertia_certain
        assert np.sign(solver.get("diag"))[2:].tolist() == signs[2:]


def test_without_search_a_pivot_of_the_wrong_sign_is_perturbed():
    a, sign = quasi_definite()
    a[3, 3] = -5.0
    solver = DirectSolver(sp.csr_array(a), structure="S", pivot_type="none", pivot_sign=sign).factorize()
    assert solver.get("npivots") >= 1
    assert solver.inertia == Inertia(30, 12, 0)


@pytest.mark.parametrize("alg", ["scaled", "static"])
def test_size_of_a_perturbed_pivot(alg):
    a = 1e4 * np.diag([1.0, 0.0, 1.0])
    solver = DirectSolver(
        sp.csr_array(a), structure="S", scaling="none", pivot_type="none", pivot_epsilon=1e-3,
        pivot_epsilon_alg=alg, ir_n_steps=0,
    ).factorize()  # fmt: skip
    assert solver.get("diag")[1] == pytest.approx(1e-3 * (1e4 if alg == "scaled" else 1.0), rel=1e-12)


def test_epsilon_zero_fails_with_the_column_instead_of_dividing():
    a = np.diag([1.0, 0.0, 1.0])
    for pivot_type in ("auto", "none", "diagonal"):
        with pytest.raises(SingularMatrixError) as error:
            DirectSolver(
                sp.csr_array(a),
                structure="S",
                pivot_epsilon=0.0,
                on_unstable="perturb",
                pivot_type=pivot_type,
            ).factorize()
        assert error.value.column == 1


def test_on_unstable_error_names_the_column():
    a = INDEFINITE["70% delayed"](np.random.default_rng(0), 40)
    delayed = DirectSolver(sp.csr_array(a), structure="S").factorize()
    assert delayed.pivot_stats.delayed > 0
    with pytest.raises(UnstablePivotError) as error:
        DirectSolver(sp.csr_array(a), structure="S", on_unstable="error").factorize()
    assert 0 <= error.value.column < 40
    solver = DirectSolver(sp.csr_array(a), structure="S", on_unstable="error", check="status").factorize()
    assert solver.status == Status.UNSTABLE
    assert solver.info == error.value.column + 1
    good = DirectSolver(laplacian_2d(5), structure="S", on_unstable="error")
    assert good.factorize().status == Status.OK


@pytest.mark.parametrize(
    ("name", "value"),
    [("pivot_sign", [1, 2, 1]), ("pivot_sign", [1, 1]), ("pivot_sign", "+"), ("pivot_threshold", 0.7)],
)
def test_wrong_values_change_nothing(name, value):
    solver = DirectSolver(np.eye(3), structure="S")
    before = solver.get(name)
    with pytest.raises(InvalidValueError, match=name):
        solver.set(name, value)
    assert solver.get(name) is before or solver.get(name) == before
    with pytest.raises(InvalidValueError, match=name):
        DirectSolver(np.eye(3), structure="S", **{name: value})


@pytest.mark.parametrize("value", ["local_block", "global_col", "global_row"])
def test_known_pivot_types_are_refused_with_their_reason(value):
    with pytest.raises(NotSupportedError, match="pivot_type"):
        DirectSolver(np.eye(3), pivot_type=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("pivot_type", "diagonal"), ("pivot_epsilon_alg", "static"), ("downcast_factors", True)],
)
def test_what_lu_does_not_read_is_refused(name, value):
    with pytest.raises(NotSupportedError, match=name):
        DirectSolver(np.eye(3), structure="G", **{name: value})
    solver = DirectSolver(np.eye(3), structure="G")
    with pytest.raises(NotSupportedError, match=name):
        solver.set(name, value)
    assert solver.solve(np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_increase_quality():
    a = INDEFINITE["random"](np.random.default_rng(0), 40)
    solver = DirectSolver(sp.csr_array(a), structure="S").factorize()
    seen = [solver.get("pivot_threshold")]
    while solver.increase_quality():
        seen.append(solver.get("pivot_threshold"))
        solver.solve(np.ones(40))
    assert seen == sorted(seen)
    assert seen[-1] == 0.5
    assert not DirectSolver(np.eye(2), structure="SPD").increase_quality()


# ---------------------------------------------------------------- definite or not
def test_a_singular_matrix_does_not_pass_as_definite():
    """Rounding leaves the Laplacian's last pivot positive; auto looks again, SPD says it is not certain."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        weights = rng.random((50, 50)) * (rng.random((50, 50)) < 0.1)
        weights = (
            np.triu(weights, 1) + np.triu(weights, 1).T + np.diag(np.ones(49), 1) + np.diag(np.ones(49), -1)
        )
        a = np.diag(weights.sum(axis=1)) - weights
        with pytest.raises(SingularMatrixError):
            DirectSolver(sp.csr_array(a)).factorize()
        try:
            record = DirectSolver(sp.csr_array(a), structure="SPD").factorize().report.factor
        except NotPositiveDefiniteError:
            continue
        assert not record.inertia_certain
        assert record.pivots.doubtful == 1


# ---------------------------------------------------------------- matching
def test_pairs_and_scaling_by_a_matching():
    """True inertia, fewer delays; values the scaling does not fit are equilibrated, and it is said."""
    a = sp.csr_array(kkt(60, 30, 3, density=0.1))
    matched = DirectSolver(a, structure="S", matching_alg="max_diag_product").factorize()
    plain = DirectSolver(a, structure="S", matching_alg="none").factorize()
    assert matched.inertia == plain.inertia == Inertia(60, 30, 0)
    assert "matching" in matched.report.factor.scaling
    assert "maximum product" in matched.report.analysis.matching
    assert matched.pivot_stats.delayed <= plain.pivot_stats.delayed
    b = a @ np.ones(90)
    assert backward_errors(a, matched.solve(b), b)[0] < 1e-14
    first = matched.solve(b).tobytes()
    d = sp.diags_array(np.ldexp(1.0, np.random.default_rng(0).integers(-40, 40, 90)))
    matched.refactorize(sp.csr_array(d @ a @ d))
    assert matched.report.factor.stale_matching
    assert "does not fit" in matched.report.factor.scaling
    assert matched.inertia == Inertia(60, 30, 0)
    assert matched.refactorize(a).solve(b).tobytes() == first


def test_auto_tries_a_matching_where_delays_make_much_fill():
    rng = np.random.default_rng(0)
    m, n = 150, 250
    b = sp.random_array((m, n), density=0.02, rng=rng)
    b = sp.diags_array(10.0 ** rng.uniform(-6, 6, m)) @ b @ sp.diags_array(10.0 ** rng.uniform(-3, 3, n))
    h = sp.diags_array(1e-8 * rng.uniform(0.5, 1.0, n))
    c = sp.diags_array(-1e-12 * rng.uniform(0.5, 1.0, m))
    a = sp.csr_array(sp.block_array([[h, b.T], [b, c]]))
    plain = DirectSolver(a, structure="S", matching_alg="none").factorize()
    auto = DirectSolver(a, structure="S").factorize()
    assert auto.get("lu_nnz") <= plain.get("lu_nnz")
    if auto.report.analysis.matching:
        assert auto.get("lu_nnz") < plain.get("lu_nnz")
    right = a @ np.ones(m + n)
    x = auto.solve(right)
    assert backward_errors(a, x, right)[0] < 1e-14
    assert auto.refactorize(2 * a).refactorize(a).solve(right).tobytes() == x.tobytes()


# ---------------------------------------------------------------- diagonal shift
def test_shift_of_a_saddle_point_matrix():
    n, m = 20, 8
    a = kkt(n, m, 1)
    k = sp.coo_array(a)
    rows, cols = np.r_[k.row, np.arange(n, n + m)], np.r_[k.col, np.arange(n, n + m)]
    stored = sp.csr_array(sp.coo_array((np.r_[k.data, np.zeros(m)], (rows, cols)), shape=(n + m, n + m)))
    shifted = a + np.diag(np.r_[np.full(n, 0.5), np.full(m, -0.25)])
    solver = DirectSolver(stored, structure="S").analyze()
    with pytest.raises(InvalidValueError, match="pivot_sign"):
        solver.refactorize(stored, diagonal_shift=(0.5, 0.25))
    solver.set("pivot_sign", np.r_[np.ones(n), -np.ones(m)])
    solver.analyze().refactorize(stored, diagonal_shift=(0.5, 0.25))
    b = np.ones(n + m)
    np.testing.assert_allclose(solver.solve(b), np.linalg.solve(shifted, b), rtol=1e-10)
    assert solver.inertia == Inertia(n, m, 0)


# ---------------------------------------------------------------- refinement
@pytest.mark.parametrize("mode", ["residual", "fgmres"])
def test_refinement_repairs_a_perturbed_factor(mode):
    a = INDEFINITE["zero diagonal"](np.random.default_rng(5), 60)
    b = np.random.default_rng(6).standard_normal(60)
    solver = DirectSolver(
        sp.csr_array(a), structure="S", pivot_type="none", pivot_epsilon=1e-4, ir_n_steps=60, ir_mode=mode,
        ir_tol=1.0,
    )  # fmt: skip
    x = solver.solve(b)
    error = backward_errors(a, x, b)[0]
    if mode == "fgmres":
        assert error < 1e-12
    assert solver.report.solve.backward_error == pytest.approx(error, rel=0.5, abs=1e-16)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("trans", ["N", "T", "H"])
@pytest.mark.parametrize("structure", ["S", "G"])
def test_forward_error_bound_holds(dtype, trans, structure):
    n = 40
    a = INDEFINITE["random"](np.random.default_rng(2), n)
    if dtype == "complex128":
        a = a + 1j * INDEFINITE["random"](np.random.default_rng(3), n)
    if structure == "G":
        a = a + np.triu(np.random.default_rng(4).standard_normal((n, n)), 1)
    op = {"N": a, "T": a.T, "H": a.conj().T}[trans]
    exact = np.ones(n)
    solver = DirectSolver(sp.csr_array(a), structure=structure, forward_error=True)
    x = solver.solve(op @ exact, trans)
    bound = solver.report.solve.forward_error
    assert np.abs(x - exact).max() <= bound <= 1e-13 * n * np.linalg.cond(a)
    solver.set("forward_error", False)
    solver.solve(op @ exact, trans)
    assert np.isnan(solver.report.solve.forward_error)


def test_solve_mode():
    a = np.triu(np.random.default_rng(0).standard_normal((12, 12))) + 5 * np.eye(12) + 0.5j * np.eye(12)
    b = np.arange(12.0) + 1
    for mode, op in (("n", a), ("t", a.T), ("h", a.conj().T)):
        x = DirectSolver(a, solve_mode=mode).solve(b)
        np.testing.assert_allclose(x, np.linalg.solve(op, b), rtol=1e-10)


# ---------------------------------------------------------------- analysis kept, pictures
@pytest.mark.parametrize("structure", ["SPD", "S", "G"])
def test_a_saved_analysis_gives_the_same_bits(tmp_path, structure):
    a = laplacian_2d(12)
    if structure != "SPD":
        a = sp.csr_array(INDEFINITE["some zero diagonals"](np.random.default_rng(0), 80))
    solver = DirectSolver(a, structure=structure).factorize()
    solver.symbolic.save(tmp_path / "kept")
    again = DirectSolver(a, structure=structure).analyze(Symbolic.load(tmp_path / "kept")).factorize()
    b = np.ones(a.shape[0])
    assert again.solve(b).tobytes() == solver.solve(b).tobytes()
    assert again.report.analysis.candidates == solver.report.analysis.candidates
    with pytest.raises(PatternChangedError):
        DirectSolver(sp.csr_array(np.eye(3)), structure=structure).analyze(solver.symbolic)
    with pytest.raises(PatternChangedError):
        DirectSolver(a, structure="S" if structure == "G" else "G").analyze(solver.symbolic)


def test_what_is_no_saved_analysis_is_refused(tmp_path):
    (tmp_path / "text").write_text("no analysis")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    for name in ("text", "other.npz"):
        with pytest.raises(FormatError):
            Symbolic.load(tmp_path / name)
    with pytest.raises(InvalidValueError, match="Symbolic"):
        DirectSolver(np.eye(2)).analyze("kept")


def test_a_saved_analysis_that_changed_is_refused(tmp_path):
    DirectSolver(laplacian_2d(8)).analyze().symbolic.save(tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as file:
        held = {name: file[name] for name in file.files}
    name = next(name for name in sorted(held) if name.startswith("plan.") and held[name].size > 5)
    held[name].flat[3] = 10**6
    np.savez(tmp_path / "changed.npz", **held)
    with pytest.raises(FormatError, match="damaged"):
        Symbolic.load(tmp_path / "changed.npz")


def test_pictures():
    solver = DirectSolver(laplacian_2d(8))
    for draw in (solver.plot, lambda: solver.symbolic, solver.report.plot):
        with pytest.raises(NotAnalyzedError):
            draw()
    solver.solve(np.ones(64))
    for figure in (solver.plot("title"), solver.symbolic.plot(), solver.report.plot()):
        assert len(figure.axes) >= 4
    assert "drawing" not in solver.report.to_dict()


@settings(max_examples=40)
@given(
    st.sampled_from(["auto", "diagonal", "none"]), st.sampled_from(["delay", "perturb"]), st.integers(1, 40),
    st.integers(0, 500), st.sampled_from(["random", "zero diagonal", "zero block", "banded"]),
)  # fmt: skip
def test_no_option_gives_a_wrong_answer_silently(pivot_type, unstable, n, seed, kind):
    a = INDEFINITE[kind](np.random.default_rng([seed, n]), n)
    solver = DirectSolver(
        sp.csr_array(a), structure="S", check="status", pivot_type=pivot_type, on_unstable=unstable
    )
    b = np.random.default_rng(seed).standard_normal(n)
    x = solver.solve(b)
    if solver.status == Status.OK:
        assert backward_errors(a, x, b)[0] <= 1.01 * solver.get("ir_tol")
