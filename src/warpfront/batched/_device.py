"""Batched calls on device arrays: checks, outputs, one launch on the stream their library regards as current."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from warpfront.backend import arrays, capability
from warpfront.batched import _batched_cuda as plans
from warpfront.batched._batched_cuda import BatchedProblem
from warpfront.batched._checks import (
    Operand,
    check_output,
    checked_numbers,
    given,
    no_overlap,
    problem_of,
    shapes_of,
)
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["CC_MIN", "run"]

# Least compute capability of the device kernels.
CC_MIN = (8, 0)


def run(
    method: str, variant: str, a: Any, b: Any, out: Any, raw: tuple[float, float | None, float]
) -> tuple[Any, ...]:
    """Solve a batch in device memory; returns the outputs in the order of the record's fields.

    Parameters
    ----------
    method, variant, a, b, out
        As `warpfront.batched._call.run`.
    raw : (float, float or None, float)
        Shift and tolerances as the caller gave them.
    """
    left, right = _inputs(a, b)
    first, second = _operand(left, "a"), _operand(right, "b")
    problem = problem_of(method, first, second, on_device=True)
    _check_layout(left, first)
    _check_layout(right, second)
    numbers = checked_numbers(problem.dtype, *raw)
    _check_device(left.device)
    empty = not (problem.batch and problem.n)
    if not empty:
        plans.prepared(problem, variant, left.device)
    if out is None:
        results = _new_outputs(problem, left)
        addresses = [_address(left.library, array) for array in results]
    else:
        operands = _given_outputs(problem, left, out)
        no_overlap((first, second), operands)
        results, addresses = tuple(o.array for o in operands), [o.address for o in operands]
    if empty:
        results[-1][...] = 0
        return results
    if (addresses[0] | addresses[1]) % 16:
        problem = replace(problem, aligned=False)
    pointers = (left.pointer, right.pointer, addresses[1], addresses[0], *addresses[2:])
    plans.launch(
        problem, variant, pointers, numbers if method == "cholesky" else (), left.device, left.stream
    )
    return results


def _inputs(a: Any, b: Any) -> tuple[arrays.DeviceView, arrays.DeviceView]:
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
    return left, right


@lru_cache(maxsize=64)
def _check_device(device: int) -> None:
    have = capability.probe(device)
    if have.cc < CC_MIN:
        raise NotSupportedError(
            f"the batched kernels need compute capability {CC_MIN[0]}.{CC_MIN[1]} or newer, device {device} has "
            f"{have.cc_major}.{have.cc_minor}"
        )


@lru_cache(maxsize=1024)
def _contiguous_bytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes of a row-major contiguous array, -1 for any other."""
    count, wanted = itemsize, []
    for size in reversed(shape):
        wanted.append(count)
        count *= size
    triples = zip(shape, strides, reversed(wanted), strict=True)
    return -1 if count and any(size > 1 and have != want for size, have, want in triples) else count


def _operand(view: arrays.DeviceView, name: str) -> Operand:
    nbytes = _contiguous_bytes(view.shape, view.strides, view.itemsize)
    return Operand(name, view.owner, view.pointer, nbytes, view.shape, view.dtype)


def _check_layout(view: arrays.DeviceView, operand: Operand) -> None:
    name = operand.name
    if operand.nbytes < 0:
        raise InvalidValueError(
            f"{name} must be row-major contiguous (no strides, no broadcasting); pass a contiguous copy"
        )
    if view.pointer % view.itemsize:
        raise InvalidValueError(f"{name} must start at a multiple of its element size")
    _check_extent(view, name, operand.nbytes)


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


def _address(library: str, array: Any) -> int:
    return int(array.data_ptr() if library == "torch" else array.data.ptr)


def _new_outputs(p: BatchedProblem, like: arrays.DeviceView) -> tuple[Any, ...]:
    wanted = shapes_of(p).values()
    if like.library == "torch":
        import torch

        device = like.owner.device
        return tuple(torch.empty(shape, dtype=getattr(torch, kind), device=device) for shape, kind in wanted)
    import cupy

    if cupy.cuda.runtime.getDevice() == like.device:
        return tuple(cupy.empty(shape, kind) for shape, kind in wanted)
    with cupy.cuda.Device(like.device):
        return tuple(cupy.empty(shape, kind) for shape, kind in wanted)


def _given_outputs(p: BatchedProblem, like: arrays.DeviceView, out: Any) -> tuple[Operand, ...]:
    result = []
    for name, array in given(p, out):
        if arrays.library_of(array) != arrays.library_of(like.owner):
            raise InvalidValueError(f"out: {name} must be a device array of the inputs' library")
        view = arrays.view(array)
        if view.device != like.device:
            raise InvalidValueError(
                f"out: {name} is on device {view.device}, the inputs on device {like.device}"
            )
        operand = _operand(view, name)
        check_output(operand, *shapes_of(p)[name])
        _check_layout(view, operand)
        result.append(operand._replace(array=array))
    return tuple(result)
