"""The three backends of the batched tests, and the reference they are held against."""

import functools

import numpy as np
from batched_systems import SHAPES

from warpfront import batched
from warpfront.batched import _batched_cuda as plans
from warpfront.batched import _reference

METHODS = ("cholesky", "lu")
VARIANTS = ("serial", "warp", "packed")
DTYPES = (np.float32, np.float64)
RTOL = {np.float32: 64 * np.finfo(np.float32).eps, np.float64: 64 * np.finfo(np.float64).eps}


def entry(method, variant):
    return getattr(batched, f"{method}_solve_batched" + ("" if variant == "serial" else f"_{variant}"))


def poisoned(method, a, b):
    """Outputs that hold what no result may contain."""
    batch, n, _ = a.shape
    arrays = [np.full(b.shape, 1e33, b.dtype), np.full(a.shape, -1e33, a.dtype)]
    arrays += [np.full((batch, n), -77, np.int32)] * (method == "lu") + [np.full(batch, -77, np.int32)]
    return arrays


class Cpu:
    """The public functions on NumPy arrays."""

    def solve(self, method, variant, a, b, shift=0.0):
        options = {"diagonal_shift": shift} if method == "cholesky" else {}
        made = poisoned(method, a, b)
        before = a.tobytes(), b.tobytes()
        entry(method, variant)(a, b, out=tuple(made), **options)
        assert (a.tobytes(), b.tobytes()) == before
        return made


class Cuda:
    """The public functions on CuPy arrays."""

    def solve(self, method, variant, a, b, shift=0.0):
        import cupy

        options = {"diagonal_shift": shift} if method == "cholesky" else {}
        made = [cupy.asarray(x) for x in poisoned(method, a, b)]
        left, other = cupy.asarray(a), cupy.asarray(b)
        entry(method, variant)(left, other, out=tuple(made), **options)
        assert cupy.asnumpy(left).tobytes() == a.tobytes()
        assert cupy.asnumpy(other).tobytes() == b.tobytes()
        return [cupy.asnumpy(x) for x in made]


class Simt:
    """The kernel sources under the SIMT runner, launched as planned."""

    schedules = 2
    # (n, nrhs) of the tests: one build instead of one each. A test with other sizes sets its own.
    sizes = sorted(
        {(n, r) for _, n, r in SHAPES}
        | {(1, 2), (2, 1), (2, 2), (3, 1), (5, 0), (5, 2), (8, 1), (8, 2), (8, 3), (17, 1), (17, 2)}
    )

    def solve(self, method, variant, a, b, shift=0.0):
        from warpfront.backend.simt import Simt as Runner

        batch, n, nrhs = b.shape
        made = plans.plan(plans.BatchedProblem(method, n, nrhs, batch, a.dtype.name), variant)
        together = [
            plans.plan(plans.BatchedProblem(method, *size, 1, a.dtype.name), variant) for size in self.sizes
        ]
        names = [p.expression for p in together if p.source == made.source]
        x, factor, *rest = poisoned(method, a, b)
        numbers = (shift, float(RTOL[a.dtype.type]), 0.0) if method == "cholesky" else ()
        arguments = [a, b, factor, x, *rest, *made.tail, *numbers]
        runner = Runner.build(made.source, names if made.expression in names else [made.expression])
        runner.launch(made.expression, made.blocks, made.threads, arguments, schedules=self.schedules).check()
        return [x, factor, *rest]


@functools.cache
def reference(method, dtype, shape, a, b, shift):
    a, b = np.frombuffer(a, dtype).reshape(*shape[:2], shape[1]), np.frombuffer(b, dtype).reshape(shape)
    if method == "cholesky":
        return _reference.cholesky_serial(a, b, shift, RTOL[a.dtype.type], 0.0)
    return _reference.lu_serial(a, b)


def expected(method, a, b, shift=0.0):
    return reference(method, a.dtype.type, b.shape, a.tobytes(), b.tobytes(), shift)


def same(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape
        # -0 and +0 are different results, too
        np.testing.assert_array_equal(g, w)
        assert np.ascontiguousarray(g).tobytes() == np.ascontiguousarray(w).tobytes()
