"""LU of a batch on the GPU and solves with it: own kernels for real matrices, cuSOLVER and cuBLAS for the others.

Everything is queued on CuPy's current stream, matrices beyond cuBLAS's batched sizes on several that join it. Nothing
waits until a status is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warpfront.dense import _lu_graph_cuda as graphs
from warpfront.dense import _lu_panel_cuda as panels
from warpfront.dense import _lu_small_cuda as small

__all__ = ["DeviceLU", "factor", "fan_out", "mark_not_finite", "summarised"]

_LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
MANY_COLUMNS = 64  # right-hand sides from which two triangular solves of cuBLAS are the faster way
# A few float32 right-hand sides could take triangles and products in turn from order 8192: timed there on a device and
# right at small orders, but not yet checked at that one, so off.
BLOCKED_ORDER, SOLVE_BLOCK = 1 << 30, 2048
STREAMS = 8  # for matrices factored one after another
BATCHED_ORDER, BATCHED_COUNT = (
    1024,
    4,
)  # cuBLAS's batched routines up to this order and from this many matrices


@dataclass(frozen=True, eq=False)
class DeviceLU:
    """Factors of a batch on the device.

    Attributes
    ----------
    matrices : cupy array [batch, n, n]
        What was factored.
    lu : cupy array [batch, n, n]
        Column-major factors (``lu[b].T`` reads as a matrix).
    pivots : cupy int32 [batch, n]
        Row interchanges, counted from 1.
    report : cupy float64 [batch, small.REPORT], or NumPy
        What `lu_summary` and `lu_finite` found, see `lu_small.cu`.
    value, sign : cupy array [batch] or None
        Determinants and their signs.
    info : cupy int32 [batch] or None
        As `lu_small` left it; needed by `lu_small_solve`.
    """

    matrices: Any
    lu: Any
    pivots: Any
    report: Any
    value: Any = None
    sign: Any = None
    info: Any = None

    @cached_property
    def facts(self) -> Any:
        """The report on the host. Waits for the device."""
        import cupy

        return cupy.asnumpy(self.report)

    @cached_property
    def norm1(self) -> Any:
        """1-norms on the host, float64[batch]. Reading it waits for the device."""
        import cupy

        if not self.matrices.size:
            return np.zeros(len(self.matrices))
        return cupy.asnumpy(abs(self.matrices).sum(axis=1).max(axis=1)).astype(np.float64)

    @cached_property
    def zero(self) -> Any:
        """On the host, int64[batch]: column of the first zero pivot, -1, or -2 for factors that are not finite. Waits."""
        return np.where(self.facts[:, 0] != 0, -2, self.facts[:, 1]).astype(np.int64)

    def given_finite(self, b: int) -> bool:
        """Whether matrix b itself is finite: where a factor is not, it has overflowed. Waits."""
        import cupy

        return bool(cupy.isfinite(self.matrices[b]).all())

    @cached_property
    def doubtful(self) -> Any:
        """On the host, bool[batch]: the pivots give reason to look at the condition number. Waits."""
        limit = 16 * self.order * float(np.finfo(self.lu.dtype).eps)
        return (self.facts[:, 2] < limit * self.facts[:, 3]) & (self.zero == -1)

    @property
    def order(self) -> int:
        """Order of the matrices."""
        return int(self.lu.shape[1])

    def solve(self, b: Any, trans: str = "N") -> Any:
        """Solve for ``b`` [batch, n, k]; a failed member's result is meaningless or NaN."""
        import cupy

        x = cupy.ascontiguousarray(b.transpose(0, 2, 1)).astype(self.lu.dtype, copy=True)
        if not x.size:
            return x.transpose(0, 2, 1)
        if self.order <= small.MAX_ORDER and trans == "N":
            self._sweep_small(x)
        elif self.order <= BATCHED_ORDER and len(self.lu) >= BATCHED_COUNT:
            self._sweep_batched(x, trans)
        elif trans == "N" and x.shape[1] >= MANY_COLUMNS and panels.solves(self.lu.dtype.name, self.order):
            for k in range(len(x)):
                x[k] = graphs.solve_triangles(self.lu[k], self.pivots[k], x[k])
        elif (
            trans == "N"
            and self.lu.dtype == np.float32
            and BLOCKED_ORDER <= self.order <= panels.MAX_ORDER_SOLVE
        ):
            for k in range(len(x)):
                x[k] = graphs.solve_triangles(self.lu[k], self.pivots[k], x[k], SOLVE_BLOCK)
        else:
            self._sweep_large(x, trans)
        return x.transpose(0, 2, 1)

    def inverse(self) -> Any:
        """Inverses [batch, n, n]; a failed member's is meaningless or NaN."""
        import cupy

        batch, n = self.lu.shape[:2]
        if self.order <= small.MAX_ORDER or not panels.solves(self.lu.dtype.name, n):
            return self.solve(cupy.broadcast_to(cupy.eye(n, dtype=self.lu.dtype), self.lu.shape))
        if n <= BATCHED_ORDER and batch >= BATCHED_COUNT:
            return graphs.invert_batch(self.lu, self.pivots)
        x = cupy.empty_like(self.lu)
        for k in range(batch):
            graphs.invert_one(self.lu[k], self.pivots[k], x[k])
        return x

    def _sweep_small(self, x: Any) -> None:
        kernel, stream = _kernel(self.lu, 1)
        batch, count, n = x.shape
        args = (self.lu.data.ptr, self.pivots.data.ptr, self.info.data.ptr, x.data.ptr, n, count)
        shared = small.shared_bytes(self.lu.dtype.name, n, solve=True)
        kernel.launch(stream, batch, small.THREADS, args, shared)

    def _sweep_large(self, x: Any, trans: str) -> None:
        import cupy
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cusolver

        solve_one = getattr(cusolver, _LETTER[self.lu.dtype.name] + "getrs")
        info = cupy.empty(len(self.lu), np.int32)
        n, count = self.order, x.shape[1]

        def run(b: int) -> None:
            handle, at = device.get_cusolver_handle(), (self.lu[b].data.ptr, self.pivots[b].data.ptr)
            right, done = x[b].data.ptr, info[b:].data.ptr
            solve_one(handle, _operation(trans), n, count, at[0], n, at[1], right, n, done)

        fan_out(len(self.lu), run)

    def _sweep_batched(self, x: Any, trans: str) -> None:
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cublas

        solve_all = getattr(cublas, _LETTER[self.lu.dtype.name] + "getrsBatched")
        n, count, info = self.order, x.shape[1], np.zeros(1, np.int32)
        at, xs = _addresses(self.lu), _addresses(x)
        solve_all(
            device.get_cublas_handle(), _operation(trans), n, count, at.data.ptr, n, self.pivots.data.ptr,
            xs.data.ptr, n, info.ctypes.data, len(x),
        )  # fmt: skip

    @cached_property
    def rcond(self) -> Any:
        """Reciprocal condition estimates in the 1-norm, float64[batch] on the host."""
        return np.array([self.condition(b) for b in range(len(self.lu))], np.float64)

    def condition(self, b: int) -> float:
        """Return one matrix's entry of `rcond`; it takes about ten solves, each waited for."""
        if self.zero[b] != -1:
            return 0.0 if self.zero[b] >= 0 else float("nan")
        product = float(self.norm1[b]) * _inverse_norm(self, b) if self.order else 1.0
        return 1.0 / product if product > 0 else 0.0


def _operation(trans: str) -> int:
    return {"N": 0, "T": 1, "H": 2}[trans]


def _addresses(stack: Any) -> Any:
    import cupy

    step = stack[0].nbytes
    return cupy.arange(stack.data.ptr, stack.data.ptr + step * len(stack), step, dtype=np.uint64)


def _kernel(like: Any, which: int) -> tuple[Any, int]:
    import cupy

    from warpfront.backend import cuda

    expression = small.expressions(like.dtype.name)[which]
    signature = small.SIGNATURES[expression.partition("<")[0]]
    kernel = cuda.load(small.SOURCE, expression, signature, like.device.id, options=small.OPTIONS)
    return kernel, int(cupy.cuda.get_current_stream().ptr)


def factor(a: Any) -> DeviceLU:
    """Factor a batch [batch, n, n] of a working type on its device; ``a`` is read. Nothing is waited for."""
    import cupy

    batch, n = a.shape[:2]
    if not a.size:
        report = np.tile(np.array([0.0, -1, 1, 1, 0, 1, 0, 0]), (batch, 1))
        ones = cupy.ones(batch, a.dtype)
        none = cupy.zeros((batch, n), np.int32)
        return DeviceLU(a, cupy.zeros_like(a), none, report, ones, ones)
    if n <= small.MAX_ORDER:
        lu, info, pivots = (
            cupy.empty(a.shape, a.dtype),
            cupy.empty(batch, np.int32),
            cupy.empty((batch, n), np.int32),
        )
        rows, size = cupy.ascontiguousarray(a), cupy.empty((batch, 2), np.float64)
        kernel, stream = _kernel(a, 0)
        shared = small.shared_bytes(a.dtype.name, n, solve=False)
        args = (rows.data.ptr, lu.data.ptr, pivots.data.ptr, info.data.ptr, size.data.ptr, n)
        kernel.launch(stream, batch, small.THREADS, args, shared)
        return summarised(a, lu, pivots, info)
    if panels.supported(a.dtype.name, n):
        return summarised(a, *graphs.factor_panels(a))
    lu, pivots = cupy.array(a.transpose(0, 2, 1), order="C", copy=True), cupy.empty((batch, n), np.int32)
    if batch >= BATCHED_COUNT and n <= BATCHED_ORDER:
        _factor_batched(lu, pivots)
    else:
        _factor_large(lu, pivots)
    return summarised(a, lu, pivots)


def summarised(a: Any, lu: Any, pivots: Any, info: Any = None) -> DeviceLU:
    """Look through finished factors."""
    import cupy

    batch, n = a.shape[:2]
    report = cupy.zeros((batch, small.REPORT))
    value, sign = cupy.empty(batch, lu.dtype), cupy.empty(batch, lu.dtype)
    kernel, stream = _kernel(lu, 2)
    args = (lu.data.ptr, pivots.data.ptr, report.data.ptr, value.data.ptr, sign.data.ptr, n)
    kernel.launch(stream, (batch, small.summary_blocks(n * n)), small.SUMMARY_THREADS, args)
    return DeviceLU(a, lu, pivots, report, value, sign, info)


def mark_not_finite(x: Any, report: Any, field: int) -> None:
    """Queue a pass over ``x`` [batch, ...] that sets number ``field`` of a matrix's report where an entry is not finite."""
    import cupy

    from warpfront.backend import cuda

    if not x.size:
        return
    x = cupy.ascontiguousarray(x)
    entries = x[0].size * (2 if x.dtype.kind == "c" else 1)
    expression = small.finite_expression(x.dtype.name)
    kernel = cuda.load(
        small.SOURCE, expression, small.SIGNATURES["lu_finite"], x.device.id, options=small.OPTIONS
    )
    grid, stream = (len(x), small.summary_blocks(entries)), int(cupy.cuda.get_current_stream().ptr)
    kernel.launch(stream, grid, small.SUMMARY_THREADS, (x.data.ptr, entries, report.data.ptr, field))


def fan_out(count: int, run: Callable[[int], None], streams: int = STREAMS) -> None:
    """Call ``run(0) .. run(count - 1)``, in turn on several streams that follow, and join, the current one."""
    import cupy

    if count <= 1 or streams <= 1:
        for k in range(count):
            run(k)
        return
    current = cupy.cuda.get_current_stream()
    start = current.record()
    side = [cupy.cuda.Stream(non_blocking=True) for _ in range(min(streams, count))]
    for k, stream in enumerate(side):
        stream.wait_event(start)
        with stream:
            for b in range(k, count, len(side)):
                run(b)
        current.wait_event(stream.record())


def _factor_large(lu: Any, pivots: Any) -> None:
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusolver

    letter, n = _LETTER[lu.dtype.name], lu.shape[1]
    words = getattr(cusolver, letter + "getrf_bufferSize")(device.get_cusolver_handle(), n, n, lu.data.ptr, n)
    info = cupy.zeros(len(lu), np.int32)
    factor_one = getattr(cusolver, letter + "getrf")

    def run(b: int) -> None:
        work = cupy.empty(
            words, lu.dtype
        )  # from the current stream's part of the pool: safe to drop when queued
        factor_one(
            device.get_cusolver_handle(), n, n, lu[b].data.ptr, n, work.data.ptr, pivots[b].data.ptr,
            info[b:].data.ptr,
        )  # fmt: skip

    fan_out(len(lu), run)


def _factor_batched(lu: Any, pivots: Any) -> None:
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    run = getattr(cublas, _LETTER[lu.dtype.name] + "getrfBatched")
    n, info, at = lu.shape[1], cupy.zeros(len(lu), np.int32), _addresses(lu)
    run(device.get_cublas_handle(), n, at.data.ptr, n, pivots.data.ptr, info.data.ptr, len(lu))


def _inverse_norm(found: DeviceLU, b: int) -> float:
    """Estimate the 1-norm of one inverse (Hager 1984; Higham 1988); a lower bound, rarely off by more than 3."""
    import cupy

    part = slice(b, b + 1)
    info = None if found.info is None else found.info[part]
    one = DeviceLU(found.matrices[part], found.lu[part], found.pivots[part], found.report[part], info=info)
    n, kind = found.order, found.lu.dtype

    def apply(vector: Any, trans: str) -> Any:
        return one.solve(vector.reshape(1, n, 1).astype(kind), trans).ravel()

    x = cupy.full(n, 1.0 / n, kind)
    y = apply(x, "N")
    estimate, last = float(abs(y).sum()), -1
    for _ in range(5):
        sign = cupy.where(abs(y) > 0, y / cupy.where(abs(y) > 0, abs(y), 1), 1)
        z = apply(sign, "H")
        j = int(abs(z).argmax())
        if j == last or not float(abs(z[j])) > float((z.conj() * x).sum().real):
            break
        last = j
        x = cupy.zeros(n, kind)
        x[j] = 1
        y = apply(x, "N")
        size = float(abs(y).sum())
        if not size > estimate:
            break
        estimate = size
    steps = cupy.arange(n) / max(1, n - 1)
    alternating = apply(cupy.where(cupy.arange(n) % 2 == 0, 1.0, -1.0) * (1.0 + steps), "N")
    return max(estimate, 2.0 * float(abs(alternating).sum()) / (3.0 * n))
