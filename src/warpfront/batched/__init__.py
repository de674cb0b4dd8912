"""Batched tiny dense solvers: millions of small systems, each with its own verdict."""

from warpfront.batched.cholesky import (
    cholesky_solve_batched,
    cholesky_solve_batched_packed,
    cholesky_solve_batched_warp,
)
from warpfront.batched.lu import lu_solve_batched, lu_solve_batched_packed, lu_solve_batched_warp
from warpfront.batched.results import CholeskyBatch, LUBatch

__all__ = [
    "CholeskyBatch",
    "LUBatch",
    "cholesky_solve_batched",
    "cholesky_solve_batched_packed",
    "cholesky_solve_batched_warp",
    "lu_solve_batched",
    "lu_solve_batched_packed",
    "lu_solve_batched_warp",
]
