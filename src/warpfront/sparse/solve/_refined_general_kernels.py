"""A whole refined solve with an LU factor for one right-hand side in one compiled call, on one thread.

The steps and decisions are those of `refine.Refiner`, as in `_refined_kernels`; the same bits.
"""

from __future__ import annotations

from warpfront.backend._bundle import bundle
from warpfront.backend._intrinsics import conjugate_if
from warpfront.backend.jit import njit
from warpfront.sparse.solve._block_kernels import block_sweeps
from warpfront.sparse.solve._general_residual_kernels import general_residual
from warpfront.sparse.solve._refined_kernels import GOOD_ENOUGH
from warpfront.sparse.solve._residual_kernels import backward_errors

__all__ = ["refined_solve_general"]


@njit(cache=True, nogil=True)
def _correct(w, r, base, x):
    """``x = base + op(A)^-1 r`` by the factor; an empty ``base`` means zero."""
    scaled = w.in_scale.size > 0
    for k in range(w.in_perm.size):
        i = w.in_perm[k]
        value = conjugate_if(w.conjugate == 1, r[i])
        w.x[k] = value * w.in_scale[i] if scaled else value
    coupling = (w.coupling_ptr, w.coupling_col, w.coupling_slot)
    block_sweeps(w, w.node_ptr, w.blocks, coupling, w.scaled, min(w.operation, 1), w.x, w.y, w.owed, w.t)
    scaled = w.out_scale.size > 0
    for k in range(w.out_perm.size):
        i = w.out_perm[k]
        value = conjugate_if(w.conjugate == 1, w.y[k])
        if scaled:
            value = value * w.out_scale[i]
        x[i] = base[i] + value if base.size else value


@njit(cache=True, nogil=True)
def _measured(w, x, b):
    """Componentwise and normwise backward error; leaves the residual in ``w.residual``."""
    general_residual(w.ptr, w.ind, w.values, w.operation, x, b, w.residual, w.size)
    return backward_errors(w.residual, w.size, x, b, w.sums, w.eps)


@njit(cache=True, nogil=True)
def refined_solve_general(work_arrays, b, nothing, x, steps):
    """Write the solution of ``op(A) x = b`` to ``x``.

    Parameters
    ----------
    work_arrays : GeneralWork
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
    w = bundle(work_arrays)
    taken, component, whole = 0, 0.0, 0.0
    base, target = nothing, x
    while True:
        _correct(w, w.residual if taken else b, base, target)
        if steps == 0:
            break
        next_component, next_whole = _measured(w, target, b)
        helped = next_component < 0.5 * component
        if taken == 0 or next_component < component:
            if taken:
                for i in range(x.size):
                    x[i] = target[i]
            component, whole = next_component, next_whole
        if (taken > 0 and not helped) or taken == steps or not component > GOOD_ENOUGH * w.eps:
            break
        taken += 1
        base, target = x, w.other
    return taken, component, whole
