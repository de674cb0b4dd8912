"""What overflows on the way is said, or scaled away: on the CPU, by the device's host logic alone, and on a device."""

import sys
import types
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from warpfront import dense, errors
from warpfront.dense import _device_lu, _lu_cuda, lu_factor
from warpfront.dense import _lu_small_cuda as small
from warpfront.errors import Status

DTYPES = ("float32", "float64", "complex64", "complex128")
DEVICES = ("cpu", "pretended", pytest.param("cuda", marks=pytest.mark.cuda))


@dataclass(frozen=True, eq=False)
class HostLU(_device_lu.DeviceLU):
    """Factors of the CPU behind the device's names."""

    def solve(self, b, trans="N"):
        solved = []  # the report is not finished yet: `facts` must not be read
        for one, right, report in zip(self.matrices, b, self.report, strict=True):
            if report[0] != 0 or report[1] >= 0:
                solved.append(np.full(right.shape, np.nan, one.dtype))
                continue
            with np.errstate(all="ignore"):
                solved.append(lu_factor(one).solve(right.astype(one.dtype), trans))
        return np.stack(solved)

    def inverse(self):
        return self.solve(np.broadcast_to(np.eye(self.order), self.matrices.shape))

    def condition(self, b):
        return lu_factor(self.matrices[b]).rcond if self.zero[b] == -1 else 0.0


def host_factor(a):
    with np.errstate(all="ignore"):
        found = [dense.factor.factor_matrix(one, "partial", 1) for one in a]
    report = np.zeros((len(a), small.REPORT))
    value, sign = np.zeros(len(a), a.dtype), np.zeros(len(a), a.dtype)
    for b, one in enumerate(found):
        pivots = np.abs(one.lu.diagonal())
        report[b, :4] = not np.isfinite(one.lu).all(), one.column, pivots.min(), pivots.max()
        if not report[b, 0]:
            sign[b], report[b, 4], value[b] = one.scaled_product()
            report[b, 5] = abs(value[b])
    lu, pivots = np.stack([one.lu.T for one in found]), np.stack([one.pivots for one in found])
    return HostLU(a, lu, pivots, report, value, sign)


def mark(x, report, field):
    for b, one in enumerate(x):
        if not np.isfinite(one).all():
            report[b, field] = 1


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """A device's name; the pretended one has NumPy for CuPy and the CPU's factors for kernels."""
    if request.param != "pretended":
        yield request.param
        return
    cupy = types.ModuleType("cupy")
    cupy.__dict__.update({name: getattr(np, name) for name in (
        "asarray", "ascontiguousarray", "broadcast_to", "empty", "eye", "isfinite", "where")}, asnumpy=np.array)  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(_lu_cuda.capability, "missing", lambda: None)
    monkeypatch.setattr(_lu_cuda, "factor", host_factor)
    monkeypatch.setattr(_lu_cuda, "mark_not_finite", mark)
    with np.errstate(all="ignore"):  # CuPy does not warn
        yield "cuda"


def grown(n, dtype):
    """A matrix whose second pivot is above the largest number, and its determinant's logarithm.

    Its entries are powers of two, whose reciprocals are exact: some libraries multiply by those of pivots.
    """
    kind = np.finfo(dtype)
    rest, most = 2.0 ** (kind.maxexp // 2), 2.0 ** (kind.maxexp - 1)
    a = np.eye(n, dtype=dtype) * np.dtype(dtype).type(rest)
    a[:2, :2] = [[most, most], [-most, most]]
    return a, 2 * np.log(float(most)) + np.log(2) + (n - 2) * np.log(rest)


@pytest.mark.parametrize("n", [3, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_that_overflows_is_said(n, dtype, device):
    kind = np.finfo(dtype)
    small_one = np.eye(n, dtype=dtype) * float(kind.tiny)
    large = np.full(n, float(kind.max) / 2, dtype)
    for call in (
        lambda: dense.solve(small_one, large, device=device),
        lambda: dense.inv(small_one * kind.eps, device=device),
    ):
        with pytest.raises(errors.NonFiniteError, match="the result does not fit its type"):
            call()
    found = dense.solve(small_one, large, check="status", device=device)
    assert found.status == Status.NON_FINITE
    assert found.method.endswith("overflowed")
    assert np.isnan(found.value).all()
    assert np.isnan(found.rcond)
    found = dense.inv(small_one * kind.eps, check="status", device=device)
    assert (found.status, found.column) == (Status.NON_FINITE, -1)


@pytest.mark.parametrize("n", [2, 70])
@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_that_overflow_are_said_or_scaled(n, dtype, device):
    a, logarithm = grown(n, dtype)
    for call in (lambda: dense.solve(a, a[0] * 0 + 1, device=device), lambda: dense.inv(a, device=device)):
        with pytest.raises(errors.NonFiniteError, match="the factors do not"):
            call()
    for outcome in (
        dense.solve(a, a[0] * 0 + 1, device=device, check="status"),
        dense.inv(a, device=device, check="status"),
    ):
        assert outcome.status == Status.NON_FINITE
        assert np.isnan(outcome.value).all()
    found = dense.slogdet(a, device=device)
    assert found.sign == 1
    assert found.logabsdet == pytest.approx(
        logarithm, rel=1e-6 if dtype in ("float32", "complex64") else 1e-12
    )
    assert dense.det(a, device=device, check="status").flag == "overflow"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.DeterminantRangeWarning)
        assert np.isinf(dense.det(a, device=device))
    assert dense.rcond(a, device=device) == pytest.approx(0.5 if n == 2 else 0.0, abs=0.1)
    if np.dtype(dtype).kind == "c" and n > dense.factor.EXACT:
        return  # a quotient of equal complex numbers need not be 1 there
    a[1] = a[0]  # singular, and found so only when scaled
    a[0, 1] = a[1, 1] = -a[0, 0]
    if n > 2:
        a[2, :2], a[3, :2] = a[0, :2], -a[0, :2]
        a[0, 2], a[3, 2] = a[0, 0], a[0, 0]
    assert dense.slogdet(a, device=device) == (0, -np.inf)


def test_one_that_overflows_leaves_its_neighbours_alone(device):
    n = 70
    batch = np.stack([np.eye(n), grown(n, "float64")[0], 2 * np.eye(n), np.zeros((n, n)), 3 * np.eye(n)])
    b = np.ones((5, n, 2))
    b[4, 3, 1] = np.nan
    found = dense.solve(batch, b, check="status", device=device)
    assert found.status == [Status.OK, Status.NON_FINITE, Status.OK, Status.SINGULAR, Status.NON_FINITE]
    assert np.array_equal(found.value[2], b[2] / 2)
    assert np.isnan(found.value[[1, 3, 4]]).all()
    assert found.column == [-1, -1, -1, 0, -1]
    determinants = dense.det(batch, check="status", device=device)
    assert determinants.flag == ["ok", "overflow", "ok", "singular", "ok"]
    assert determinants.logabsdet[2] == pytest.approx(n * np.log(2))
    assert np.isfinite(determinants.logabsdet[[0, 1, 2, 4]]).all()


@pytest.mark.parametrize("n", [4, 80])
def test_input_that_is_not_finite_comes_first(n, device):
    a, b = np.zeros((n, n)), np.ones(n)
    b[2] = np.inf
    for precision in ("working", "float32"):
        assert (
            dense.solve(a, b, check="status", precision=precision, device=device).status == Status.NON_FINITE
        )
        if sys.modules.get("cupy") is not None and not hasattr(sys.modules["cupy"], "RawKernel"):
            break  # the pretended device has no lower precision
    with pytest.raises(errors.NonFiniteError, match=r"NaN|inf"):
        dense.solve(a + np.eye(n), b, device=device)
    a[1, 1] = np.nan
    for call in (dense.inv, dense.det, dense.slogdet, dense.rcond):
        with pytest.raises(errors.NonFiniteError, match=r"NaN|nan"):
            call(a, device=device)


def test_growth_beyond_a_lower_precision_is_no_solution():
    n = 200  # Wilkinson's matrix doubles its last column at every step
    a = np.eye(n) - np.tril(np.ones((n, n)), -1)
    a[:, -1] = 1
    with np.errstate(over="ignore"):
        outcome = dense.solve(a, np.ones(n), precision="float32", check="status")
    assert outcome.status == Status.REFINEMENT_FAILED
    assert "overflow" in outcome.method
    assert not np.isfinite(outcome.backward_error)


def test_factors_that_overflowed_are_not_solved_with():
    factor = lu_factor(grown(100, "float64")[0])
    assert (factor.status, factor.overflowed) == (Status.NON_FINITE, True)
    assert np.isnan(factor.rcond)
    for call in (lambda: factor.solve(np.ones(100)), factor.inv):
        with pytest.raises(errors.NonFiniteError, match="scale the matrix"):
            call()
