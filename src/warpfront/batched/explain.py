"""Which of the batched variants can run, what each would launch, and why the others cannot."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.backend import capability
from warpfront.backend.dispatch import Decision
from warpfront.batched import _batched_cuda as plans
from warpfront.batched._device import CC_MIN
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["explain_batched", "shared_memory_table"]


def explain_batched(
    n: int,
    nrhs: int = 1,
    *,
    batch: int = 1,
    dtype: Any = "float32",
    method: str = "cholesky",
    device: str = "auto",
    path: str = "auto",
    capability_: capability.Capability | None = None,
) -> tuple[Decision, ...]:
    """Return what each entry would do with a batch. Nothing chooses among them: the caller names the entry.

    Parameters
    ----------
    n, nrhs, batch : int
    dtype : dtype
    method : {"cholesky", "lu"}
    device : {"auto", "cpu", "cuda"}
        Leave out the other device.
    path : str
        Only one: ``"serial"``, ``"warp"``, ``"packed"`` or ``"cpu"``.
    capability_ : Capability, optional
        Ask for another device than the one here.

    Returns
    -------
    tuple of Decision
        ``taken`` says that it can run here.
    """
    names = (*plans.VARIANTS, "cpu")
    if min(n, nrhs, batch) < 0:
        raise InvalidValueError(f"sizes must not be negative, got n = {n}, nrhs = {nrhs}, batch = {batch}")
    if method not in plans.METHODS or device not in ("auto", "cpu", "cuda") or path not in ("auto", *names):
        raise InvalidValueError(
            f"method is cholesky or lu, device auto, cpu or cuda, path auto or one of {', '.join(names)}; "
            f"got {method!r}, {device!r}, {path!r}"
        )
    kind = np.dtype(dtype).name
    problem = plans.BatchedProblem(method, n, nrhs, max(batch, 1), kind)
    have = capability_ or (capability.probe(0) if capability.missing() is None else None)
    result = []
    for name in names:
        if path not in ("auto", name) or device == ("cuda" if name == "cpu" else "cpu"):
            continue
        result.append(_cpu(problem) if name == "cpu" else _gpu(problem, name, have))
    return tuple(result)


def _entry(problem: plans.BatchedProblem, variant: str) -> str:
    return f"{problem.method}_solve_batched" + ("" if variant in ("serial", "cpu") else f"_{variant}")


def _cpu(problem: plans.BatchedProblem) -> Decision:
    summary = "sixteen systems side by side, vector statements over them, threads over blocks"
    if problem.dtype not in plans.DTYPES:
        return Decision("cpu", False, f"is written for float32 and float64, not for {problem.dtype}", summary)
    return Decision("cpu", True, f"call {_entry(problem, 'cpu')} with NumPy arrays", summary)


def _gpu(problem: plans.BatchedProblem, variant: str, have: capability.Capability | None) -> Decision:
    if problem.n == 0:
        return Decision(variant, True, "n = 0: nothing is launched", "")
    try:
        made = plans.plan(problem, variant)
    except NotSupportedError as error:
        return Decision(variant, False, str(error), "")
    if variant == "serial":
        summary = f"one thread to a system, {made.blocks} blocks of {made.threads}, global memory only"
    else:
        summary = (
            f"{made.lanes} lanes to a system, {made.systems} systems to a block of one warp, {made.blocks} "
            f"blocks, {made.shared_bytes} bytes of shared memory each"
        )
    if variant in plans.EXPERIMENTAL:
        summary += "; experimental: its sanitizer suite has not passed yet"
    if have is None:
        return Decision(variant, False, str(capability.missing()), summary)
    if have.cc < CC_MIN:
        reason = f"needs compute capability {CC_MIN[0]}.{CC_MIN[1]}, the device has {have.cc_major}.{have.cc_minor}"
        return Decision(variant, False, reason, summary)
    return Decision(variant, True, f"call {_entry(problem, variant)} with device arrays", summary)


def shared_memory_table(method: str = "cholesky", dtype: Any = "float32") -> tuple[Decision, ...]:
    """Return the shared memory that the warp and packed kernels declare, a row for each n, bytes for nrhs = 0 to 8."""
    kind = np.dtype(dtype).name
    rows = []
    for n in range(1, plans.MAX_N + 1):
        made = {
            variant: [
                plans.plan(plans.BatchedProblem(method, n, nrhs, 1, kind), variant)
                for nrhs in range(plans.MAX_NRHS + 1)
            ]
            for variant in ("warp", "packed")
        }
        bytes_of = {v: " ".join(str(p.shared_bytes) for p in ps) for v, ps in made.items()}
        packed = f"packed, {made['packed'][0].systems} systems to a block: {bytes_of['packed']}"
        rows.append(Decision(f"n = {n}", False, f"warp: {bytes_of['warp']}", packed))
    return tuple(rows)
