"""cuSPARSE's products as plain calls, for `tools/device/products.py`.

CuPy's own calls refuse to be captured into a graph and take longer than the kernels they queue; the library itself takes
part in a graph like any kernel, so its routines are called by address here and timed as ours are.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p

import numpy as np

SPMV = {
    "default": 0,
    "csr alg 1": 2,
    "csr alg 2": 3,
}  # the last is the one with the same bits from run to run
SPMM = {"default": 0, "csr alg 2": 6}
FLOAT64, INDEX32, ROW_MAJOR = 1, 2, 2


def library():
    """Return cuSPARSE as CuPy loads it."""
    import cupy  # noqa: F401 - its library first
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(str(load_nvidia_dynamic_lib("cusparse").abs_path))


def checked(status, name):
    """Raise for a status that is not 0."""
    if status:
        raise RuntimeError(f"{name}: cuSPARSE status {status}")


class Peer:
    """One float64 CSR matrix of cuSPARSE with 32-bit indices, and buffers that its calls keep."""

    def __init__(self, matrix):
        import cupy

        self.lib, self.handle, self.matrix = library(), c_void_p(), c_void_p()
        checked(self.lib.cusparseCreate(byref(self.handle)), "create")
        self.parts = [cupy.asarray(matrix.indptr.astype(np.int32)), cupy.asarray(matrix.indices.astype(np.int32)),
                      cupy.asarray(matrix.data)]  # fmt: skip
        at = [c_void_p(part.data.ptr) for part in self.parts]
        rows, columns, entries = c_int64(matrix.shape[0]), c_int64(matrix.shape[1]), c_int64(matrix.nnz)
        kinds = c_int(INDEX32), c_int(INDEX32), c_int(0), c_int(FLOAT64)
        made = self.lib.cusparseCreateCsr(byref(self.matrix), rows, columns, entries, *at, *kinds)
        checked(made, "CreateCsr")
        self.scalars = np.array([1.0, 0.0])
        self.one, self.zero = c_void_p(self.scalars.ctypes.data), c_void_p(self.scalars.ctypes.data + 8)
        self.kept = []

    def _dense(self, array):
        found = c_void_p()
        at = c_void_p(array.data.ptr)
        if array.ndim == 1:
            made = self.lib.cusparseCreateDnVec(byref(found), c_int64(len(array)), at, c_int(FLOAT64))
        else:
            sizes = c_int64(array.shape[0]), c_int64(array.shape[1]), c_int64(array.shape[1])
            made = self.lib.cusparseCreateDnMat(byref(found), *sizes, at, c_int(FLOAT64), c_int(ROW_MAJOR))
        checked(made, "dense operand")
        return found

    def call(self, x, y, algorithm):
        """Return a call of one stream that multiplies ``x`` into ``y``; its preparation is done here, untimed."""
        import cupy

        name = "cusparseSpMV" if x.ndim == 1 else "cusparseSpMM"
        operations = (c_int(0),) if x.ndim == 1 else (c_int(0), c_int(0))
        run, size = getattr(self.lib, name), c_size_t()
        head = (self.handle, *operations, self.one, self.matrix, self._dense(x), self.zero, self._dense(y))
        head = (*head, c_int(FLOAT64), c_int(algorithm))
        checked(getattr(self.lib, name + "_bufferSize")(*head, byref(size)), "bufferSize")
        buffer = cupy.empty(max(16, size.value), np.uint8)
        self.kept += [x, y, buffer]
        prepare = getattr(self.lib, name + "_preprocess", None)
        if prepare is not None:
            checked(prepare(*head, c_void_p(buffer.data.ptr)), "preprocess")

        def queue(stream):
            self.lib.cusparseSetStream(self.handle, c_void_p(stream))
            checked(run(*head, c_void_p(buffer.data.ptr)), name)

        return queue
