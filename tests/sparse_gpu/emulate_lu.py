"""Runs the GPU's LU one launch after another under the SIMT runner, and reads the factor back."""

import numpy as np
from built import simt

from warpfront.sparse.gpu import steps
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.lu_schedule import make_lu_plan
from warpfront.sparse.gpu.lu_steps import LuTolerances, lu_factor_steps, lu_needs, lu_solve_steps, lu_uploads

WAITING = ("lu_strips", "forward_wide", "backward_wide")


class EmulatedLu:
    """A solver for general matrices whose device is the SIMT runner."""

    def __init__(
        self, symbolic, dtype=np.float64, scaling="auto", tolerances=None, schedules=2, seed=0, **plan
    ):
        self.symbolic, self.pattern, self.scaling = symbolic, symbolic.pattern, scaling
        self.dtype, self.schedules, self.seed = np.dtype(dtype), schedules, seed
        self.plan = make_lu_plan(symbolic, itemsize=self.dtype.itemsize, **plan)
        self.tolerances = tolerances or LuTolerances()
        items, self.sweeps = steps.solve_items(self.plan)
        self.buffers = dict(lu_uploads(self.plan, symbolic, items))
        for name, need in lu_needs(self.plan, symbolic, self.dtype).items():
            poison = np.nan if need.dtype.kind == "f" else -99
            self.buffers[name] = np.full(need.size, 0 if "flags" in name else poison, need.dtype)
        for name in ("flags", "solve_flags"):
            self.buffers[name] = self.buffers[name].view(np.uint32)
        self.buffers["col_pivots"] = self.buffers["pivots"][2 * self.plan.n :]

    def run(self, sequence):
        for step in sequence:
            names = step.buffers()
            arguments = [None if name is None else self.buffers[name] for name in names]
            if step.items >= 0:
                at = KERNELS[step.kernel].arguments.index("items")
                arguments[at] = arguments[at][step.items : step.items + step.blocks].copy()
            report = simt(KERNELS[step.kernel].source, step.expression).launch(
                step.expression, step.blocks, step.threads, [*arguments, *step.numbers], shared_bytes=step.shared_bytes,
                resident=step.blocks if step.kernel in WAITING else 4, schedules=self.schedules, seed=self.seed,
            )  # fmt: skip
            report.check()

    def factorize(self, values):
        """Values in the caller's order."""
        self.buffers["source"][: values.size] = values
        self.run(
            lu_factor_steps(
                self.plan, self.pattern.nnz, self.dtype.name, self.tolerances, scaling=self.scaling
            )
        )
        return self.buffers["summary"][:9].copy()

    def solve(self, b, refinements=0, transposed=False, target=2e-15):
        """b: (rhs, n)."""
        n, rhs = self.plan.n, b.shape[0]
        self.buffers["b"][: rhs * n] = b.reshape(-1)
        self.run(
            lu_solve_steps(
                self.plan, self.sweeps, self.dtype.name, rhs, refinements, scaled=self.scaling != "none", target=target,
                transposed=transposed,
            )
        )  # fmt: skip
        return self.buffers["best"][: rhs * n].reshape(b.shape).copy()

    def dense_factor(self):
        """(L, D, U, row, col): the permuted, scaled matrix is L D U; its row k is place row[k] of the elimination order."""
        plan, n, buffers = self.plan, self.plan.n, self.buffers
        lower, upper = np.eye(n), np.eye(n)
        row, col = np.arange(n), np.arange(n)
        ind, ptr = self.symbolic.plan.front_ind, self.symbolic.plan.front_ptr
        for f in plan.fronts:
            first, last = int(f["first"]), int(f["first"] + f["width"])
            row[first:last] = first + buffers["pivots"][2 * first : 2 * last : 2]
            col[first:last] = first + buffers["col_pivots"][2 * first : 2 * last : 2]
        for order, target, behind in ((row, lower, 0), (col, upper.T, 1)):
            position = np.empty(n, int)
            position[order] = np.arange(n)
            for s, f in enumerate(plan.fronts):
                first, width, rows, ld = (int(f[k]) for k in ("first", "width", "rows", "ld"))
                where = ind[ptr[s] : ptr[s + 1]].astype(int)
                where = np.concatenate([np.arange(first, first + width), position[where[width:]]])
                at = int(f["panel"]) + behind * ld * width
                panel = buffers["panels"][at : at + ld * width].reshape(width, ld)
                for k in range(width):
                    target[where[k + 1 : rows], first + k] = panel[k, k + 1 : rows]
        return lower, buffers["diagonal"][: 2 * n : 2].copy(), upper, row, col
