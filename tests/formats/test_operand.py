"""What `read_operand` accepts, what it refuses, and that it says where."""

import numpy as np
import pytest
import scipy.sparse as sp

from warpfront.errors import FormatError, InvalidValueError, NotSupportedError, PatternChangedError
from warpfront.formats import first_nonfinite, flat_values, read_operand

DENSE = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [2.0, 0.0, 5.0]])


def rebuilt(operand):
    row, col = operand.coordinates()
    dense = np.zeros(operand.shape, operand.dtype)
    np.add.at(dense, (row, col), operand.data)
    return dense


class OnlyDLPack:
    """An array that offers nothing but DLPack; `device` is what it claims to live on."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return (self.device, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("family", ["array", "matrix"])
def test_scipy_matrices_and_arrays_keep_values_order_and_dtype(kind, family, dtype):
    matrix = getattr(sp, f"{kind}_{family}")(DENSE.astype(dtype))
    operand = read_operand(matrix)
    assert (operand.kind, operand.shape, operand.dtype) == (kind, (3, 3), dtype)
    assert np.shares_memory(operand.data, matrix.data)
    np.testing.assert_array_equal(operand.data, matrix.data.reshape(-1))
    np.testing.assert_array_equal(rebuilt(operand), DENSE)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
def test_both_index_types(kind, index):
    coo = sp.coo_array(np.arange(24.0).reshape(4, 6))
    if kind == "coo":
        matrix = sp.coo_array((coo.data, (coo.row.astype(index), coo.col.astype(index))), shape=coo.shape)
    else:
        matrix = coo.tobsr((2, 3)) if kind == "bsr" else coo.asformat(kind)
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    operand = read_operand(matrix)
    assert operand.index_dtype == index
    np.testing.assert_array_equal(rebuilt(operand), matrix.toarray())


def test_csc_is_not_read_as_csr():
    lower = sp.csc_array(np.tril(np.arange(1.0, 10.0).reshape(3, 3)))
    np.testing.assert_array_equal(rebuilt(read_operand(lower)), lower.toarray())
    assert not np.array_equal(rebuilt(read_operand(lower)), lower.toarray().T)


def test_bsr_blocks_are_flattened_row_by_row():
    blocks = np.arange(12.0).reshape(2, 2, 3)
    matrix = sp.bsr_array((blocks, [1, 0], [0, 1, 2]), shape=(4, 6))
    operand = read_operand(matrix)
    assert operand.block == (2, 3)
    np.testing.assert_array_equal(operand.data, np.arange(12.0))
    np.testing.assert_array_equal(rebuilt(operand), matrix.toarray())


def test_dense_keeps_nonzeros_in_row_major_order_and_nan_is_one():
    array = DENSE.copy()
    array[1, 1] = np.nan
    operand = read_operand(np.asfortranarray(array))
    assert operand.kind == "dense"
    np.testing.assert_array_equal(operand.data, [4, 1, np.nan, 2, 5])
    np.testing.assert_array_equal(rebuilt(operand), array)


def test_raw_triples_from_lists_numpy_and_dlpack():
    csr = sp.csr_array(DENSE)
    members = (csr.indptr, csr.indices, csr.data)
    for triple in (members, tuple(m.tolist() for m in members), tuple(map(OnlyDLPack, members))):
        operand = read_operand(triple)
        assert operand.kind == "raw"
        np.testing.assert_array_equal(rebuilt(operand), DENSE)
    wide = read_operand((*members, (3, 7)))
    assert wide.shape == (3, 7)
    np.testing.assert_array_equal(rebuilt(read_operand(OnlyDLPack(DENSE))), DENSE)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int64])
def test_integers_and_bool_become_float64(dtype):
    operand = read_operand(sp.csr_array(np.eye(3, dtype=dtype)))
    assert operand.dtype == np.float64
    np.testing.assert_array_equal(operand.data, np.ones(3))


def test_foreign_byte_order_and_strides_are_normalised():
    csr = sp.csr_array(DENSE)
    padded = np.repeat(csr.data, 2)[::2]
    operand = read_operand((csr.indptr.astype(">i4"), csr.indices.astype(">i8"), padded.astype(">f8")))
    assert operand.dtype == np.float64
    assert operand.dtype.isnative
    np.testing.assert_array_equal(rebuilt(operand), DENSE)


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (0, 3), (3, 0), (4, 2)])
def test_empty_matrices(shape):
    for matrix in (sp.csr_array(shape), sp.csc_array(shape), sp.coo_array(shape), np.zeros(shape)):
        operand = read_operand(matrix)
        assert operand.shape == shape
        assert operand.nnz == 0


def test_spare_room_behind_a_scipy_matrix_is_not_read():
    matrix = sp.csr_array(DENSE)
    matrix.data = np.concatenate([matrix.data, [9.0]])
    matrix.indices = np.concatenate([matrix.indices, [99]]).astype(np.int32)
    np.testing.assert_array_equal(rebuilt(read_operand(matrix)), DENSE)


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        (([0, 2, 1], [0, 1], [1.0, 2.0]), r"indptr decreases from 2 to 1 at position 2"),
        (([1, 1, 2], [0, 1], [1.0, 2.0]), r"indptr\[0\] = 1"),
        (([0, 1, 2], [0, 2], [1.0, 2.0]), r"indices\[1\] = 2 \(pointer slot 1\) is outside 0\.\.1"),
        (([0, 0, 1], [-1], [1.0]), r"indices\[0\] = -1 \(pointer slot 1\)"),
        (([0, 1, 2], [0], [1.0, 2.0]), r"indices has 1 entries, but indptr ends at 2"),
        (([0, 1, 2], [0, 1], [1.0]), r"data has 1 entries"),
        (([0, 1, 2], [0, 1], [1.0, 2.0, 3.0]), r"data has 3 entries"),
        (([0, 1, 2], [0, 1], [1.0, 2.0], (3, 2)), r"indptr has 3 entries; 3 rows"),
        (([0, 1, 2], [[0, 1]], [1.0, 2.0]), r"indices has 2 dimensions"),
        (([0, 1], [0], [[1.0]]), r"data has 2 dimensions"),
        (([0, 1], np.array([2**64 - 1], np.uint64), [1.0]), r"does not fit int64"),
        (([], [], []), r"indptr has 0 entries"),
    ],
)
def test_malformed_triples_say_where(triple, message):
    with pytest.raises(FormatError, match=message):
        read_operand(triple)


def test_corrupted_scipy_matrices_say_where():
    coo = sp.coo_array(DENSE)
    coo.coords[0][2] = 3
    with pytest.raises(FormatError, match=r"row\[2\] = 3 is outside 0\.\.2"):
        read_operand(coo)
    csc = sp.csc_array(DENSE)
    csc.indices[3] = -5
    with pytest.raises(FormatError, match=r"indices\[3\] = -5 \(pointer slot 2\)"):
        read_operand(csc)


@pytest.mark.parametrize(
    ("values", "dtype", "alternative"),
    [
        (np.ones(3, np.float16), "float16", "float32 or float64"),
        (np.ones(3, np.longdouble), "longdouble|float128", "float32 or float64"),
        (np.ones(3, np.clongdouble), "clongdouble|complex256", "complex64 or complex128"),
        (np.ones(3, object), "object", "numeric dtype"),
        (np.array(["1", "2", "3"]), "str", "numeric dtype"),
    ],
)
def test_refused_dtypes_name_themselves_and_an_alternative(values, dtype, alternative):
    with pytest.raises(InvalidValueError, match=f"data has dtype ({dtype}).*{alternative}"):
        read_operand(([0, 1, 2, 3], [0, 1, 2], values))


@pytest.mark.parametrize(
    "thing",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        "matrix",
        None,
        3.0,
        np.ones(3),
        np.ones((2, 2, 2)),
        sp.coo_array(np.ones(3)),
        np.ma.masked_array(np.eye(2)),
        (1, 2),
        ([0.0, 1.0], [0], [1.0]),
        ([0, 1], [0], [1.0], (1, 1, 1)),
        ([0, 1], [0], [1.0], "square"),
        ([0, 1], [0], [1.0], (1, -1)),
    ],
)
def test_other_containers_are_refused(thing):
    with pytest.raises(InvalidValueError):
        read_operand(thing)


def test_gpu_memory_and_too_many_rows_are_not_supported():
    with pytest.raises(NotSupportedError, match="CPU"):
        read_operand(OnlyDLPack(DENSE, device=2))
    with pytest.raises(NotSupportedError, match="2147483647"):
        read_operand(sp.coo_array((2**31, 1)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_first_nonfinite_is_the_first(bad, dtype):
    values = np.ones(200_000, dtype)
    assert first_nonfinite(values) == -1
    values[[70_001, 199_999]] = bad
    assert first_nonfinite(values) == 70_001
    assert first_nonfinite(values.reshape(2, -1)[1]) == 99_999
    if values.dtype.kind == "c":
        assert first_nonfinite(np.array([1, complex(0, bad)])) == 1


def test_first_nonfinite_of_nothing():
    assert first_nonfinite(np.zeros(0)) == -1


def test_flat_values_take_the_callers_order_or_the_same_matrix():
    matrix = sp.csr_array(DENSE)
    operand = read_operand(matrix)
    np.testing.assert_array_equal(flat_values(operand, [1, 2, 3, 4]), [1, 2, 3, 4])
    np.testing.assert_array_equal(flat_values(operand, matrix * 2), operand.data * 2)
    dense = read_operand(DENSE)
    np.testing.assert_array_equal(flat_values(dense, DENSE * 3), dense.data * 3)
    np.testing.assert_array_equal(flat_values(dense, dense.data * 3), dense.data * 3)


def test_flat_values_refuse_another_pattern():
    operand = read_operand(sp.csr_array(DENSE))
    changed = DENSE.copy()
    changed[1, 1] = 1.0
    for values in (np.ones(3), np.ones(5), sp.csr_array(changed), sp.csc_array(DENSE)):
        with pytest.raises(PatternChangedError):
            flat_values(operand, values)
    with pytest.raises(PatternChangedError):
        flat_values(read_operand(DENSE), changed)
