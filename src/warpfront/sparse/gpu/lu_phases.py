"""What `DirectSolver(device="cuda")` does otherwise with a general matrix (structure G)."""

from __future__ import annotations

from typing import Any

from warpfront.backend.cpu import Clock
from warpfront.errors import NotSupportedError, Status
from warpfront.report import FactorRecord
from warpfront.sparse.gpu.lu_engine import LuFactor, LuPlanned, lu_tolerances
from warpfront.sparse.parameters import SETTINGS

__all__ = ["LU_TAKEN", "lu_estimates", "lu_factor_for", "lu_record", "take_whole"]

# settings the LU reads besides those of the symmetric solver
LU_TAKEN = frozenset(("block_triangular", "diag_pivot_thresh", "matching_alg"))


def take_whole(settings: Any) -> None:
    """Settle that the matrix is factored whole.

    Raises
    ------
    NotSupportedError
        ``block_triangular=True`` was asked for.
    """
    if settings.values.get("block_triangular"):
        raise NotSupportedError(
            "device='cuda' factors the matrix whole, without its block triangular form: leave block_triangular out, or "
            "use device='cpu'"
        )
    settings.set("block_triangular", False)


def lu_factor_for(solver: Any) -> LuFactor:
    """Buffers for the settings of a solver; made once and kept while pattern and rule stay."""
    settings, dtype = solver._settings, solver._values.dtype
    if settings["on_unstable"] == "error" or settings["stale_matching"] != SETTINGS["stale_matching"].default:
        name = "on_unstable" if settings["on_unstable"] == "error" else "stale_matching"
        raise NotSupportedError(f"device='cuda' does not take {name}={settings[name]!r}; use device='cpu'")
    rule = lu_tolerances(settings, dtype)
    key = ("LU", settings["scaling"], rule)
    if key not in solver._engines:
        solver._engines[key] = LuFactor(
            solver._symbolic, scaling=settings["scaling"], dtype=dtype, tolerances=rule, device=solver._device
        )
    factor: LuFactor = solver._engines[key]
    return factor


def lu_estimates(solver: Any) -> tuple[dict[str, int], tuple[int, ...]]:
    """Memory by purpose and in cuDSS's slots, before anything is allocated."""
    return LuPlanned.of(solver._symbolic, solver._values.dtype, solver._device).estimates()


def lu_record(factor: Any, symbolic: Any, clock: Clock) -> FactorRecord:
    """Say what the factorisation did; waits for it."""
    how, stale = factor.scaling_words()
    status = factor.status
    return FactorRecord(
        status=status, column=factor.column, method="LU", scaling=how, inertia=None, inertia_certain=False,
        pivots=factor.pivots, nnz_factor=factor.nnz_factor if status != Status.NON_FINITE else 0, flops=symbolic.flops,
        factor_bytes=factor.memory["factor"], peak_bytes=factor.nbytes, threads=0, seconds=clock.seconds,
        jit_seconds=clock.jit_seconds, stale_matching=stale,
    )  # fmt: skip
