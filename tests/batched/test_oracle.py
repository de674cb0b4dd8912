"""The reference models: the serial recurrence, the 32-lane ownership, and SciPy agree."""

import numpy as np
import pytest
from batched_systems import SHAPES, definite, general, right
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import lu_factor

from warpfront.batched import _reference
from warpfront.batched._ownership import OwnershipError, Shared, cholesky_lanes, lu_lanes

ONE_EACH = [(1, n, nrhs) for _, n, nrhs in SHAPES if n < 32] + [(1, 32, 1)]


@pytest.mark.parametrize(("batch", "n", "nrhs"), ONE_EACH)
def test_lanes_equal_the_recurrence(batch, n, nrhs):
    a, b = definite(batch, n, np.float32), right(batch, n, nrhs, np.float32)
    x, low, status = _reference.cholesky_serial(a, b)
    got = cholesky_lanes(a[0], b[0])
    assert status.tolist() == [0]
    np.testing.assert_array_equal(got[0], x[0])
    np.testing.assert_array_equal(got[1], low[0])
    a = general(batch, n, np.float32)
    x, lu, pivots, status = _reference.lu_serial(a, b)
    got = lu_lanes(a[0], b[0])
    assert status.tolist() == [0]
    np.testing.assert_array_equal(got[0], x[0])
    np.testing.assert_array_equal(got[1], lu[0])
    np.testing.assert_array_equal(got[2], pivots[0])


def test_the_model_refuses_what_needs_a_barrier():
    memory = Shared("line", 4, np.float32)
    memory.write(3, 1, 7)
    with pytest.raises(OwnershipError, match="written by lane 3"):
        memory.read(0, 1)
    with pytest.raises(OwnershipError, match="both write"):
        memory.write(2, 1, 8)
    with pytest.raises(OwnershipError, match="outside"):
        memory.write(2, 4, 8)
    with pytest.raises(OwnershipError, match="nobody has written"):
        memory.read(2, 0)
    memory.barrier()
    assert memory.read(0, 1) == 7
    with pytest.raises(OwnershipError, match="read by another"):
        memory.write(1, 1, 8)


@given(n=st.integers(1, 9), seed=st.integers(0, 1000), scale=st.integers(-60, 60))
def test_pivots_are_lapacks(n, seed, scale):
    a = general(1, n, np.float64, seed) * 2.0**scale
    _, lu, pivots, status = _reference.lu_serial(a, np.ones((1, n, 1)))
    want, rows = lu_factor(a[0])
    assert status.tolist() == [0]
    np.testing.assert_array_equal(pivots[0], rows)
    np.testing.assert_allclose(lu[0], want, rtol=1e-9, atol=1e-9 * 2.0**scale)


def test_a_power_of_two_is_chosen():
    with np.errstate(all="raise"):
        for dtype in (np.float32, np.float64):
            info = np.finfo(dtype)
            sizes = np.array([0, info.smallest_subnormal, info.tiny, 0.3, 1, 1.5, info.max], dtype)
            scale, inverse = _reference.power_scale(sizes)
            np.testing.assert_array_equal(scale * inverse, 1)
            assert (sizes[2:] * scale[2:] >= 1).all()
            assert (sizes[2:] * scale[2:] < 4).all()
