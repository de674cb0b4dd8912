"""`DirectSolver` where ``device="cuda"``: its numeric phases are those of `gpu.facade`."""

from __future__ import annotations

from warpfront.sparse.exclusive import exclusive
from warpfront.sparse.gpu.facade import CudaPhases
from warpfront.sparse.solver import DirectSolver

__all__ = ["CudaSolver"]


class CudaSolver(CudaPhases, DirectSolver):
    """`DirectSolver` with its numeric phases on the GPU."""

    _target = "cuda"

    analyze = exclusive(CudaPhases.analyze)
    factorize = exclusive(CudaPhases.factorize)
    refactorize = exclusive(CudaPhases.refactorize)
    solve = exclusive(CudaPhases.solve)
