"""What is checked of a batched call, wherever the arrays lie, before anything is allocated or launched."""

from __future__ import annotations

from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from warpfront.batched import _batched_cuda as plans
from warpfront.batched._batched_cuda import BatchedProblem
from warpfront.errors import InvalidValueError

__all__ = [
    "Numbers",
    "Operand",
    "check_output",
    "checked_numbers",
    "given",
    "no_overlap",
    "problem_of",
    "shapes_of",
]

OUTPUTS = {"cholesky": ("solution", "factor", "status"), "lu": ("solution", "lu", "pivots", "status")}

Numbers = tuple[float, ...]


class Operand(NamedTuple):
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


def problem_of(method: str, a: Operand, b: Operand, *, on_device: bool) -> BatchedProblem:
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


def shapes_of(p: BatchedProblem) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of every output."""
    whole = {
        "solution": ((p.batch, p.n, p.nrhs), p.dtype),
        "factor": ((p.batch, p.n, p.n), p.dtype),
        "lu": ((p.batch, p.n, p.n), p.dtype),
        "pivots": ((p.batch, p.n), "int32"),
        "status": ((p.batch,), "int32"),
    }
    return {name: whole[name] for name in OUTPUTS[p.method]}


def given(p: BatchedProblem, out: Any) -> list[tuple[str, Any]]:
    """Outputs the caller brought, by name: a record of an earlier call, or its arrays in order."""
    names = OUTPUTS[p.method]
    if all(hasattr(out, name) for name in names):
        return [(name, getattr(out, name)) for name in names]
    if not isinstance(out, tuple | list) or len(out) != len(names):
        raise InvalidValueError(
            f"out must be a result of an earlier call, or the arrays ({', '.join(names)}), got {type(out).__name__}"
        )
    return list(zip(names, out, strict=True))


def check_output(operand: Operand, shape: tuple[int, ...], dtype: str) -> None:
    if operand.shape != shape or operand.dtype != dtype:
        raise InvalidValueError(
            f"out: {operand.name} must have shape {shape} and type {dtype}, got {operand.shape}, {operand.dtype}"
        )


def no_overlap(inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> None:
    for k, output in enumerate(outputs):
        for other in (*inputs, *outputs[:k]):
            apart = (
                output.address + output.nbytes <= other.address
                or other.address + other.nbytes <= output.address
            )
            if output.nbytes and other.nbytes and not apart:
                raise InvalidValueError(f"out: {output.name} overlaps {other.name} in memory")
