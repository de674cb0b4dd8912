"""Every cuDSS name works or is refused with its reason; wrong kinds and wrong phases are told what is
allowed."""

import numpy as np
import pytest
import scipy.sparse as sp
from matrices_for_tests import INDEFINITE, laplacian_2d

from warpfront import DirectSolver, Inertia
from warpfront.errors import InvalidValueError, NotAnalyzedError, NotFactorizedError, NotSupportedError
from warpfront.sparse.parameters import REFUSED, SETTINGS
from warpfront.sparse.results import read_result

# the specification's list, by cuDSS names in lower case; written down here once more on purpose
SPECIFIED_SETTINGS = [
    "solve_alg",
    "max_lu_nnz",
    "use_superpanels",
    "nd_ubfactor",
    "nd_partition_tree",
    "user_host_interrupt",
    "downcast_factors",
    "perm_row",
    "perm_col",
    "reordering_alg",
    "matching_alg",
    "factorization_alg",
    "solve_mode",
    "ir_n_steps",
    "ir_tol",
    "pivot_type",
    "pivot_threshold",
    "pivot_epsilon",
    "pivot_epsilon_alg",
    "host_nthreads",
    "nd_nlevels",
    "ubatch_size",
    "ubatch_index",
    "ubatch_mask",
    "schur_mode",
    "user_schur_indices",
    "deterministic_mode",
    "user_perm",
    "hybrid_mode",
    "hybrid_device_memory_limit",
    "hybrid_execute_mode",
    "device_count",
    "device_indices",
    "comm",
    "use_matching",
    "use_cuda_register_memory",
]
SPECIFIED_DATA = [
    "info",
    "lu_nnz",
    "npivots",
    "inertia",
    "perm_reorder_row",
    "perm_reorder_col",
    "perm_matching",
    "scale_row",
    "scale_col",
    "diag",
    "memory_estimates",
    "flops",
    "nsuperpanels",
    "schur_shape",
    "schur_matrix",
    "ir_n_steps",
    "perm_row",
    "perm_col",
]
EXAMPLES = {
    "reordering_alg": "natural", "user_perm": [2, 0, 1], "scaling": "none", "pivot_threshold": 0.1,
    "pivot_epsilon": 1e-10, "zero_pivot_tol": 1e-13, "on_unstable": "perturb", "host_nthreads": 2,
    "deterministic_mode": False, "ir_n_steps": 4, "ir_tol": 1e-6, "downcast_factors": True,
    "pivot_type": "diagonal", "pivot_epsilon_alg": "static", "pivot_sign": [1, 1, -1], "solve_mode": "t",
    "ir_mode": "fgmres", "forward_error": True, "matching_alg": "none", "block_triangular": False,
    "stale_matching": "analyze", "diag_pivot_thresh": 1.0,
}  # fmt: skip
WRONG = {
    str: [1, None, "nonsense", ["amd"], np.array([1, 2]), b"amd"],
    int: [1.5, "1", None, True, -7, 10**9],
    float: ["x", None, True, -1.0, float("nan"), 2j],
    bool: ["yes", 2, None, np.array([0, 1]), 0.5],
}


def solver():
    return DirectSolver(sp.csr_array(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, -1.0]])))


@pytest.mark.parametrize("name", SPECIFIED_SETTINGS)
def test_every_cudss_setting_works_or_is_refused_with_its_reason(name):
    s = solver()
    if name in SETTINGS:
        s.set(name, EXAMPLES[name])
        assert np.array_equal(s.get(name), EXAMPLES[name])
        np.testing.assert_allclose(s.solve([3.0, 5.0, 0.0]), [1.0, 1.0, 1.0], rtol=1e-9)
        return
    with pytest.raises(NotSupportedError, match=name) as error:
        s.set(name, 1)
    assert REFUSED[name] in str(error.value)
    assert len(REFUSED[name]) > 10
    with pytest.raises(NotSupportedError):
        DirectSolver(np.eye(2), **{name: 1})


@pytest.mark.parametrize("name", SPECIFIED_DATA)
def test_every_cudss_result_works_or_is_refused_with_its_reason(name):
    s = solver().factorize()
    if name in REFUSED:
        with pytest.raises(NotSupportedError, match=name):
            s.get(name)
    else:
        assert s.get(name) is not None


def test_settings_are_all_exercised():
    assert set(EXAMPLES) == set(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_wrong_kinds_are_refused_and_change_nothing(name):
    setting = SETTINGS[name]
    s = solver()
    if setting.kind is object:
        return
    for value in WRONG[setting.kind]:
        with pytest.raises(InvalidValueError, match=name):
            s.set(name, value)
        assert s.get(name) == setting.default


@pytest.mark.parametrize(
    "perm", [[0, 0, 1], [0, 1], [0, 1, 3], [0.0, 1.0, 2.0], [[0, 1, 2]], "abc", [-1, 0, 1]]
)
def test_bad_permutations(perm):
    s = solver()
    s.set("user_perm", perm)
    with pytest.raises(InvalidValueError, match="user_perm"):
        s.analyze()


@pytest.mark.parametrize("name", ["nonsense", "pivot_treshold", "", 5, None, ["ir_tol"]])
def test_unknown_names_list_what_is_allowed(name):
    s = solver().factorize()
    with pytest.raises(InvalidValueError, match="pivot_threshold"):
        s.set(name, 1)
    with pytest.raises(InvalidValueError, match="pivot_threshold"):
        s.get(name)


def test_a_typing_error_is_answered_with_the_name_meant():
    with pytest.raises(InvalidValueError, match="did you mean 'pivot_threshold'"):
        solver().set("pivot_treshold", 0.1)


def test_reading_before_the_phase():
    s = solver()
    for name in (
        "lu_nnz",
        "flops",
        "nsuperpanels",
        "perm_reorder_row",
        "perm_reorder_col",
        "memory_estimates",
    ):
        with pytest.raises(NotAnalyzedError):
            s.get(name)
    with pytest.raises(NotAnalyzedError):
        _ = s.memory_estimates
    readers = [lambda: s.status, lambda: s.info, lambda: s.inertia, lambda: s.pivot_stats, s.rcond]
    readers += [
        lambda name=name: s.get(name)
        for name in ("info", "inertia", "npivots", "diag", "scale_row", "scale_col")
    ]
    for phase in (lambda: None, s.analyze):
        phase()
        for read in readers:
            with pytest.raises(NotFactorizedError):
                read()
    assert s.report.analysis is not None
    assert s.report.factor is None
    s.factorize()
    for read in readers:
        read()
    assert s.report.factor is not None
    assert s.report.solve is None


def test_a_setting_reruns_its_phase_and_no_other():
    s = solver().factorize()
    s.set("deterministic_mode", False)
    s.set("ir_n_steps", 3)
    assert s.inertia == Inertia(2, 1, 0)
    assert s.report.factor is not None
    s.set("pivot_threshold", 0.1)
    with pytest.raises(NotFactorizedError):
        _ = s.inertia
    assert s.get("lu_nnz") > 0
    s.factorize()
    s.set("reordering_alg", "natural")
    with pytest.raises(NotAnalyzedError):
        s.get("lu_nnz")
    np.testing.assert_allclose(s.solve([3.0, 5.0, 0.0]), [1.0, 1.0, 1.0], rtol=1e-14)
    assert s.report.analysis.ordering == "natural"


def test_user_permutation_can_be_taken_back():
    s = DirectSolver(laplacian_2d(5), user_perm=np.arange(25)[::-1])
    assert s.factorize().report.analysis.ordering == "user"
    s.set("user_perm", None)
    assert s.factorize().report.analysis.ordering != "user"


def test_a_permutation_without_its_method_is_refused():
    with pytest.raises(InvalidValueError, match="user_perm"):
        DirectSolver(laplacian_2d(5), reordering_alg="user").analyze()


@pytest.mark.parametrize(
    "form", [list, tuple, np.array, lambda p: np.array(p, np.int64), lambda p: np.array(p, np.uint8)]
)
def test_user_permutation_is_kept_up_to_postorder(form):
    """The pivots stand in an order equivalent to the caller's: same fill."""
    rng = np.random.default_rng(0)
    a = laplacian_2d(7)
    perm = rng.permutation(49).tolist()
    s = DirectSolver(a, structure="SPD", user_perm=form(perm)).factorize()
    again = DirectSolver(a, structure="SPD", user_perm=perm).factorize()
    assert s.report.analysis.flops == again.report.analysis.flops
    assert sorted(s.get("perm_reorder_row")) == list(range(49))


def test_results_are_copies():
    s = DirectSolver(INDEFINITE["badly scaled"](np.random.default_rng(0), 20), structure="S").factorize()
    for name in ("perm_reorder_row", "perm_reorder_col", "scale_row", "scale_col", "diag"):
        first = s.get(name).copy()
        s.get(name)[:] = 0
        assert np.array_equal(s.get(name), first)


def test_memory_estimates_cover_what_the_factor_takes():
    s = DirectSolver(laplacian_2d(30), structure="SPD").factorize()
    estimates = s.get("memory_estimates")
    assert estimates["factor"] >= 8 * s.get("lu_nnz")
    assert estimates["total"] == sum(v for k, v in estimates.items() if k != "total")
    assert s.report.factor.peak_bytes >= estimates["factor"]


def test_report_is_plain_data():
    import json

    s = solver()
    s.solve(np.ones(3))
    text = json.dumps(s.report.to_dict(), default=str)
    assert "backward_error" in text
    assert read_result(s, "inertia") == s.inertia


def test_perturbed_pivots_are_counted_and_nothing_else_changes():
    """on_unstable="perturb": no delay; what was replaced is counted, refinement still solves."""
    a = np.zeros((6, 6))
    a[0, 5] = a[5, 0] = a[1, 5] = a[5, 1] = 1.0
    np.fill_diagonal(a, [0.0, 1e-12, 2.0, 3.0, 4.0, 5.0])
    s = DirectSolver(
        a, structure="S", on_unstable="perturb", reordering_alg="natural", ir_n_steps=50, check="status"
    )
    s.factorize()
    assert s.pivot_stats.delayed == 0
    assert s.get("npivots") == s.pivot_stats.perturbed
    if s.pivot_stats.perturbed:
        assert not s.report.factor.inertia_certain
    off = DirectSolver(a, structure="S", pivot_epsilon=0.0, on_unstable="perturb", check="status").factorize()
    assert off.pivot_stats.perturbed == 0
