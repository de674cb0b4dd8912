"""A whole refined solve for one right-hand side in one compiled call, on one thread.

For a small system the calls cost as much as the numbers. The steps and decisions are those of `refine.Refiner`, which
runs the same kernels one by one where threads share a large factor, and gives the same bits.
"""

from __future__ import annotations

from warpfront.backend._bundle import bundle
from warpfront.backend.jit import njit
from warpfront.sparse.solve._residual_kernels import (
    backward_errors,
    permute_in,
    permute_out,
    symmetric_residual,
)
from warpfront.sparse.solve._sweep_kernels import sweep_alone

__all__ = ["GOOD_ENOUGH", "refined_solve"]

GOOD_ENOUGH = 16  # as in refine.Refiner


@njit(cache=True, nogil=True)
def _correct(plan, sides, work, r, base, x):
    """``x = base + A^-1 r`` by the factor."""
    permute_in(work.perm, work.scale, r, work.x)
    sweep_alone(plan, sides, work.parts, work.x, work.y, work.owed, work.stored, work.stored_ptr, work.t)
    permute_out(work.perm, work.scale, work.y, base, x)


@njit(cache=True, nogil=True)
def refined_solve(plan_arrays, side_arrays, matrix_arrays, work_arrays, b, nothing, x, steps):
    """Write the solution of ``A x = b`` to ``x``.

    Parameters
    ----------
    plan_arrays, side_arrays, matrix_arrays, work_arrays : FrontPlan, Sides, Matrix, Work
    b, x : [n]
        Contiguous.
    nothing : [0]
        Stands for no base.
    steps : int
        Corrections at most; 0: none, and nothing is measured.

    Returns
    -------
    (taken, component, whole) : corrections, componentwise and normwise backward error of ``x``
    """
    plan, sides, matrix, work = (
        bundle(plan_arrays),
        bundle(side_arrays),
        bundle(matrix_arrays),
        bundle(work_arrays),
    )
    _correct(plan, sides, work, b, nothing, x)
    component, whole, taken = 0.0, 0.0, 0
    if steps == 0:
        return taken, component, whole
    residual, size, other = work.residual, work.size, work.other
    symmetric_residual(matrix.ptr, matrix.ind, matrix.values, matrix.hermitian == 1, x, b, residual, size)
    component, whole = backward_errors(residual, size, x, b, matrix.sums, matrix.eps)
    while taken < steps and component > GOOD_ENOUGH * matrix.eps:
        taken += 1
        _correct(plan, sides, work, residual, x, other)
        symmetric_residual(
            matrix.ptr, matrix.ind, matrix.values, matrix.hermitian == 1, other, b, residual, size
        )
        next_component, next_whole = backward_errors(residual, size, other, b, matrix.sums, matrix.eps)
        helped = next_component < 0.5 * component
        if next_component < component:
            for i in range(x.size):
                x[i] = other[i]
            component, whole = next_component, next_whole
        if not helped:
            break
    return taken, component, whole
