"""From the caller's arrays to one launch: checks, outputs, and where the work runs.

Everything is checked on the host before anything is allocated or launched. Arrays in host memory are solved
by the CPU twin, arrays in device memory by the variant that was called; neither ever stands in for the other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays, capability, settings
from warpfront.batched import _batched_cuda as plans
from warpfront.batched._batched_cuda import BatchedProblem
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["Numbers", "checked_numbers", "run"]

# Least compute capability of the device kernels.
CC_MIN = (8, 0)
# Below this many floating-point operations a second thread costs more than it saves.
_THREAD_FLOPS = 1 << 20
_OUTPUTS = {"cholesky": ("solution", "factor", "status"), "lu": ("solution", "lu", "pivots", "status")}

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class _Operand:
    """One array, wherever it lies."""

    name: str
    array: Any
    address: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


def checked_numbers(dtype: str, shift: float, rtol: float | None, atol: float) -> Numbers:
    """Return (shift, rtol, atol); the default rtol is 64 units in the last place of ``dtype``.

    Raises
    ------
    InvalidValueError
        One is not finite in ``dtype``, or a tolerance is negative.
    """
    for name, value in (("diagonal_shift", shift), ("symmetry_rtol", rtol), ("symmetry_atol", atol)):
        if not isinstance(value, Real) and not (value is None and name == "symmetry_rtol"):
            raise InvalidValueError(f"{name} must be a number, got {value!r}")
    return _checked(dtype, float(shift), None if rtol is None else float(rtol), float(atol))


@lru_cache(maxsize=256)
def _checked(dtype: str, shift: float, rtol: float | None, atol: float) -> Numbers:
    info = np.finfo(dtype)
    chosen = 64 * float(info.eps) if rtol is None else rtol
    for name, value in (("diagonal_shift", shift), ("symmetry_rtol", chosen), ("symmetry_atol", atol)):
        if not abs(value) <= float(info.max):
            raise InvalidValueError(f"{name} must be finite in {dtype}, got {value!r}")
        if value < 0 and name != "diagonal_shift":
            raise InvalidValueError(f"{name} must not be negative, got {value!r}")
    return (shift, chosen, atol)


@lru_cache(maxsize=8)
def _bounds(dtype: str) -> tuple[float, int]:
    """Largest finite number of a type, and the greatest exponent a scale may have."""
    info = np.finfo(dtype)
    return float(info.max), int(info.maxexp) - 2


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
        return _on_device(method, variant, a, b, out, (shift, rtol, atol))
    left, right = _host(a, "a"), _host(b, "b")
    problem = _problem(method, left, right, on_device=False)
    numbers = checked_numbers(problem.dtype, shift, rtol, atol)
    if variant != "serial" and problem.n:
        plans.plan(problem, variant)  # the limits of a variant are the same everywhere
    outputs = _host_outputs(problem, out)
    _no_overlap((left, right), outputs if out is not None else ())
    results = tuple(o.array for o in outputs)
    if problem.batch and problem.n:
        _solve_on_cpu(problem, left.array, right.array, results, numbers)
    else:
        results[-1][...] = 0
    return results


def _problem(method: str, a: _Operand, b: _Operand, *, on_device: bool) -> BatchedProblem:
    if len(a.shape) != 3 or a.shape[1] != a.shape[2]:
        raise InvalidValueError(f"a must have shape (batch, n, n), got {a.shape}")
    if a.dtype not in plans.DTYPES:
        raise InvalidValueError(
            f"a must be float32 or float64, got {a.dtype}; convert it (and b) to float32, for example with "
            "a.astype('float32')"
        )
    if b.dtype != a.dtype:
        raise InvalidValueError(f"b must have a's type, {a.dtype}, got {b.dtype}")
    if len(b.shape) != 3 or b.shape[:2] != a.shape[:2]:
        want = f"({a.shape[0]}, {a.shape[1]}, nrhs)"
        hint = "; add an axis: b[..., None]" if b.shape == a.shape[:2] else ""
        raise InvalidValueError(f"b must have shape {want}, got {b.shape}{hint}")
    aligned = a.address % 16 == 0 and b.address % 16 == 0
    batch, n, nrhs = b.shape
    return BatchedProblem(method, n, nrhs, batch, a.dtype, on_device, aligned)


def _shapes(p: BatchedProblem) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every output."""
    whole = {
        "solution": ((p.batch, p.n, p.nrhs), p.dtype),
        "factor": ((p.batch, p.n, p.n), p.dtype),
        "lu": ((p.batch, p.n, p.n), p.dtype),
        "pivots": ((p.batch, p.n), "int32"),
        "status": ((p.batch,), "int32"),
    }
    return {name: whole[name] for name in _OUTPUTS[p.method]}


def _given(p: BatchedProblem, out: Any) -> list[tuple[str, Any]]:
    """Outputs the caller brought, by name: a record of an earlier call, or its arrays in order."""
    names = _OUTPUTS[p.method]
    if all(hasattr(out, name) for name in names):
        return [(name, getattr(out, name)) for name in names]
    if not isinstance(out, tuple | list) or len(out) != len(names):
        raise InvalidValueError(
            f"out must be a result of an earlier call, or the arrays ({', '.join(names)}), got {type(out).__name__}"
        )
    return list(zip(names, out, strict=True))


def _check_output(operand: _Operand, shape: tuple[int, ...], dtype: str) -> None:
    if operand.shape != shape or operand.dtype != dtype:
        raise InvalidValueError(
            f"out: {operand.name} must have shape {shape} and type {dtype}, got {operand.shape}, {operand.dtype}"
        )


def _no_overlap(inputs: tuple[_Operand, ...], outputs: tuple[_Operand, ...]) -> None:
    for k, output in enumerate(outputs):
        for other in (*inputs, *outputs[:k]):
            apart = (
                output.address + output.nbytes <= other.address
                or other.address + other.nbytes <= output.address
            )
            if output.nbytes and other.nbytes and not apart:
                raise InvalidValueError(f"out: {output.name} overlaps {other.name} in memory")


# ------------------------------------------------------------------ host memory


def _host(x: Any, name: str) -> _Operand:
    if type(x).__module__.partition(".")[0] == "torch":
        raise InvalidValueError(
            f"{name} is a PyTorch tensor in host memory: move it to the GPU, or pass {name}.numpy()"
        )
    array = np.asarray(x)
    if not array.flags.c_contiguous:
        raise InvalidValueError(
            f"{name} must be row-major contiguous (no strides, no broadcasting); pass np.ascontiguousarray({name})"
        )
    if not (array.flags.aligned and array.dtype.isnative):
        raise InvalidValueError(f"{name} must be aligned and of native byte order")
    address = int(array.ctypes.data)
    return _Operand(name, array, address, array.nbytes, array.shape, arrays.dtype_name(array.dtype))


def _host_outputs(p: BatchedProblem, out: Any) -> tuple[_Operand, ...]:
    if out is None:
        return tuple(_host(np.empty(*wanted), name) for name, wanted in _shapes(p).items())
    result = []
    for name, array in _given(p, out):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise InvalidValueError(f"out: {name} must be a writable NumPy array, as the inputs are")
        operand = _host(array, name)
        _check_output(operand, *_shapes(p)[name])
        result.append(operand)
    return tuple(result)


def _solve_on_cpu(
    p: BatchedProblem, a: NDArray[Any], b: NDArray[Any], results: tuple[NDArray[Any], ...], numbers: Numbers
) -> None:
    """Share out blocks of interleaved systems to threads; the bits do not depend on how."""
    from warpfront.backend.cpu import run_threads
    from warpfront.batched import _batched_cpu as kernels
    from warpfront.batched._lanes_kernels import LANES

    lanes = int(LANES)
    blocks = -(-p.batch // lanes)
    work = p.batch * p.n * p.n * (p.n + 2 * p.nrhs)
    threads = max(1, min(settings.threads(), blocks, work // _THREAD_FLOPS))
    largest, limit = _bounds(p.dtype)
    values = np.array([*numbers, largest, 1], a.dtype)
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
                kernels.lu_blocks(*flat, sizes, values, limit)

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


# ------------------------------------------------------------------ device memory


def _on_device(
    method: str, variant: str, a: Any, b: Any, out: Any, raw: tuple[float, float | None, float]
) -> tuple[Any, ...]:
    library = arrays.library_of(a)
    if library == "jax":
        raise NotSupportedError(
            "JAX arrays are immutable and keep their streams to themselves; pass cupy.from_dlpack(array)"
        )
    if arrays.library_of(b) != library:
        raise InvalidValueError("a and b must be arrays of one library")
    left, right = arrays.view(a), arrays.view(b)
    if left.device != right.device:
        raise InvalidValueError(f"a is on device {left.device}, b on device {right.device}")
    if left.stream != right.stream:
        raise InvalidValueError("a and b must be used on one stream")
    problem = _problem(method, _device(left, "a"), _device(right, "b"), on_device=True)
    numbers = checked_numbers(problem.dtype, *raw)
    _check_device(left.device)
    empty = not (problem.batch and problem.n)
    if not empty:
        plans.plan(problem, variant, plans.limits_of(left.device))
    operands = _device_outputs(problem, left, out)
    _no_overlap((_device(left, "a"), _device(right, "b")), operands if out is not None else ())
    results = tuple(o.array for o in operands)
    if empty:
        results[-1][...] = 0
        return results
    if not all(o.address % 16 == 0 for o in operands[:2]):
        problem = BatchedProblem(method, problem.n, problem.nrhs, problem.batch, problem.dtype, True, False)
    addresses = tuple(o.address for o in operands)
    pointers = (left.pointer, right.pointer, addresses[1], addresses[0], *addresses[2:])
    passed = numbers if method == "cholesky" else ()
    plans.launch(problem, variant, pointers, passed, left.device, left.stream)
    return results


@lru_cache(maxsize=64)
def _check_device(device: int) -> None:
    have = capability.probe(device)
    if have.cc < CC_MIN:
        raise NotSupportedError(
            f"the batched kernels need compute capability {CC_MIN[0]}.{CC_MIN[1]} or newer, device {device} has "
            f"{have.cc_major}.{have.cc_minor}"
        )


def _device(view: arrays.DeviceView, name: str) -> _Operand:
    count, steps = view.itemsize, []
    for size in reversed(view.shape):
        steps.append(count)
        count *= size
    loose = [
        size > 1 and have != want
        for size, have, want in zip(view.shape, view.strides, reversed(steps), strict=True)
    ]
    if count and any(loose):
        raise InvalidValueError(
            f"{name} must be row-major contiguous (no strides, no broadcasting); pass a contiguous copy"
        )
    if view.pointer % view.itemsize:
        raise InvalidValueError(f"{name} must start at a multiple of its element size")
    _check_extent(view, name, count)
    return _Operand(name, view.owner, view.pointer, count, view.shape, view.dtype)


def _check_extent(view: arrays.DeviceView, name: str, nbytes: int) -> None:
    """Refuse an array that says it reaches beyond the memory it is a view of."""
    if view.library == "torch":
        storage = view.owner.untyped_storage()
        begin, size = int(storage.data_ptr()), int(storage.nbytes())
    else:
        memory = view.owner.data.mem
        begin, size = int(memory.ptr), int(memory.size)
    # Memory that came through another library's protocol may not say how large it is.
    if nbytes and size and not (begin <= view.pointer and view.pointer + nbytes <= begin + size):
        raise InvalidValueError(f"{name} reaches beyond the memory it is a view of")


def _device_outputs(p: BatchedProblem, like: arrays.DeviceView, out: Any) -> tuple[_Operand, ...]:
    if out is None:
        made = [(name, _empty(like, *wanted)) for name, wanted in _shapes(p).items()]
        return tuple(_device(arrays.view(array), name) for name, array in made)
    result = []
    for name, array in _given(p, out):
        if arrays.library_of(array) != arrays.library_of(like.owner):
            raise InvalidValueError(f"out: {name} must be a device array of the inputs' library")
        view = arrays.view(array)
        if view.device != like.device:
            raise InvalidValueError(
                f"out: {name} is on device {view.device}, the inputs on device {like.device}"
            )
        operand = _device(view, name)
        _check_output(operand, *_shapes(p)[name])
        result.append(_Operand(name, array, operand.address, operand.nbytes, operand.shape, operand.dtype))
    return tuple(result)


def _empty(like: arrays.DeviceView, shape: tuple[int, ...], dtype: str) -> Any:
    if like.library == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=like.owner.device)
    import cupy

    with cupy.cuda.Device(like.device):
        return cupy.empty(shape, dtype)
