"""From the caller's arrays to the results: which memory they lie in decides what solves them.

Arrays in host memory are solved by the CPU twin, arrays in device memory by the variant that was called; neither
ever stands in for the other. Everything is checked before anything is allocated or launched.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays, settings
from warpfront.batched import _batched_cuda as plans
from warpfront.batched._batched_cuda import BatchedProblem
from warpfront.batched._checks import (
    Numbers,
    Operand,
    check_output,
    checked_numbers,
    given,
    no_overlap,
    problem_of,
    shapes_of,
)
from warpfront.errors import InvalidValueError

__all__ = ["run"]

# Below this many floating-point operations a second thread costs more than it saves.
_THREAD_FLOPS = 1 << 20


@lru_cache(maxsize=8)
def _largest(dtype: str) -> float:
    """Largest finite number of a type."""
    return float(np.finfo(dtype).max)


def run(
    method: str, variant: str, a: Any, b: Any, out: Any, shift: float, rtol: float | None, atol: float
) -> tuple[Any, ...]:
    """Solve a batch; returns the outputs in the order of the record's fields.

    Parameters
    ----------
    method : {"cholesky", "lu"}
    variant : {"serial", "warp", "packed"}
    a, b, out
        As the public functions.
    shift, rtol, atol
        Cholesky's numbers; ignored by LU, which has none.
    """
    on_device = arrays.is_device_array(a)
    if on_device != arrays.is_device_array(b):
        raise InvalidValueError(
            "a and b must lie in the same memory: one is in host, the other in device memory"
        )
    if on_device:
        from warpfront.batched import _device

        return _device.run(method, variant, a, b, out, (shift, rtol, atol))
    left, right = _host(a, "a"), _host(b, "b")
    problem = problem_of(method, left, right, on_device=False)
    _check_layout(left)
    _check_layout(right)
    numbers = checked_numbers(problem.dtype, shift, rtol, atol)
    if variant != "serial" and problem.n:
        plans.plan(problem, variant)  # the limits of a variant are the same everywhere
    if out is None:
        results = tuple(np.empty(*wanted) for wanted in shapes_of(problem).values())
    else:
        outputs = _host_outputs(problem, out)
        no_overlap((left, right), outputs)
        results = tuple(o.array for o in outputs)
    if problem.batch and problem.n:
        _solve_on_cpu(problem, left.array, right.array, results, numbers)
    else:
        results[-1][...] = 0
    return results


def _host(x: Any, name: str) -> Operand:
    if type(x).__module__.partition(".")[0] == "torch":
        raise InvalidValueError(
            f"{name} is a PyTorch tensor in host memory: move it to the GPU, or pass {name}.numpy()"
        )
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidValueError(
            f"{name} is a masked array, and masks are not kept: pass {name}.filled(value)"
        )
    array = np.asarray(x)
    if array.ndim == 0:
        raise InvalidValueError(
            f"{name} must be an array of NumPy, or of CuPy or PyTorch on the GPU, got {type(x).__name__}"
        )
    if not (array.flags.aligned and array.dtype.isnative):
        raise InvalidValueError(f"{name} must be aligned and of native byte order")
    address = int(array.__array_interface__["data"][0])
    return Operand(name, array, address, array.nbytes, array.shape, arrays.dtype_name(array.dtype))


def _check_layout(operand: Operand) -> None:
    name, array = operand.name, operand.array
    if not array.flags.c_contiguous:
        raise InvalidValueError(
            f"{name} must be row-major contiguous (no strides, no broadcasting); pass np.ascontiguousarray({name})"
        )


def _host_outputs(p: BatchedProblem, out: Any) -> tuple[Operand, ...]:
    result = []
    for name, array in given(p, out):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise InvalidValueError(f"out: {name} must be a writable NumPy array, as the inputs are")
        operand = _host(array, name)
        check_output(operand, *shapes_of(p)[name])
        _check_layout(operand)
        result.append(operand)
    return tuple(result)


def _solve_on_cpu(
    p: BatchedProblem, a: NDArray[Any], b: NDArray[Any], results: tuple[NDArray[Any], ...], numbers: Numbers
) -> None:
    """Share out blocks of interleaved systems to threads; the bits do not depend on how."""
    from warpfront.backend.cpu import run_threads
    from warpfront.batched import _batched_cpu as kernels
    from warpfront.batched._strips import LANES

    lanes = int(LANES)
    blocks = -(-p.batch // lanes)
    work = p.batch * p.n * p.n * (p.n + 2 * p.nrhs)
    threads = max(1, min(settings.threads(), blocks, work // _THREAD_FLOPS))
    values = np.array([*numbers, _largest(p.dtype)], a.dtype)
    flat = [_flat(x) for x in (a, b, results[1], results[0], *results[2:])]

    # Shares are taken, not assigned: a thread that never gets to run leaves nothing undone.
    share = max(1, blocks // (8 * threads)) * lanes
    waiting = deque(range(0, p.batch, share))

    def body(thread: int) -> None:
        while True:
            try:
                begin = waiting.popleft()
            except IndexError:
                return
            end = min(begin + share, p.batch)
            sizes = tuple(np.uint64(v) for v in (begin, end, p.batch, p.n, p.nrhs))
            if p.method == "cholesky":
                kernels.cholesky_blocks(*flat, sizes, values)
            else:
                kernels.lu_blocks(*flat, sizes, values)

    run_threads(threads, body)


def _flat(a: NDArray[Any]) -> NDArray[Any]:
    """A 1-D view, writable as far as NumPy knows: a read-only argument would make Numba compile a second version."""
    flat = a.reshape(-1)
    if flat.flags.writeable:
        return flat
    return np.asarray(_Memory(flat))


class _Memory:
    """Memory for NumPy to view; keeps its owner alive."""

    def __init__(self, owner: NDArray[Any]) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (int(owner.__array_interface__["data"][0]), False),
            "shape": owner.shape,
            "typestr": owner.dtype.str,
            "version": 3,
        }
