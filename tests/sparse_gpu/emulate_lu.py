"""Runs the GPU's LU one launch after another under the SIMT runner, and reads the factor back."""

import numpy as np
from built import simt

from warpfront.sparse.gpu import memory, steps
from warpfront.sparse.gpu.inverses import SPAN, invert_items
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.lu_schedule import make_lu_plan
from warpfront.sparse.gpu.lu_steps import LuTolerances, lu_factor_steps, lu_needs, lu_solve_steps, lu_uploads

WAITING = ("lu_strips", "forward_strips", "backward_strips")


class EmulatedLu:
    """A solver for general matrices whose device is the SIMT runner."""

    def __init__(
        self, symbolic, dtype=np.float64, scaling="auto", tolerances=None, schedules=2, seed=0, span=SPAN, **plan
    ):  # fmt: skip
        self.symbolic, self.pattern, self.scaling = symbolic, symbolic.pattern, scaling
        self.dtype, self.schedules, self.seed = np.dtype(dtype), schedules, seed
        self.plan = make_lu_plan(symbolic, itemsize=self.dtype.itemsize, **plan)
        self.tolerances = tolerances or LuTolerances()
        items, self.sweeps = steps.solve_items(self.plan)
        more, self.inversions = invert_items(self.plan, span, items.size)
        items, self.span, self.room = np.concatenate([items, more]), span, memory.ROOM
        self.buffers = dict(lu_uploads(self.plan, symbolic, items))
        self.make(lu_needs(self.plan, symbolic, self.dtype))
        self.buffers["col_pivots"] = self.buffers["pivots"][2 * self.plan.n :]

    def make(self, needs):
        for name, need in needs.items():
            poison = np.nan if need.dtype.kind == "f" else -99
            made = np.full(need.size, 0 if "flags" in name else poison, need.dtype)
            self.buffers[name] = made.view(np.uint32) if "flags" in name else made

    def run(self, sequence):
        for step in sequence:
            names = step.buffers()
            arguments = [None if name is None else self.buffers[name] for name in names]
            if step.items >= 0:
                at = KERNELS[step.kernel].arguments.index("items")
                arguments[at] = arguments[at][step.items : step.items + step.blocks].copy()
            report = simt(KERNELS[step.kernel].source, step.expression).launch(
                step.expression, (step.blocks, step.groups), step.threads, [*arguments, *step.numbers],
                shared_bytes=step.shared_bytes, resident=step.blocks * step.groups if step.kernel in WAITING else 4,
                schedules=self.schedules, seed=self.seed,
            )  # fmt: skip
            report.check()

    def factorize(self, values):
        """Values in the caller's order."""
        self.buffers["source"][: values.size] = values
        self.run(
            lu_factor_steps(
                self.plan, self.pattern.nnz, self.dtype.name, self.tolerances, scaling=self.scaling,
                inversions=self.inversions,
            )
        )  # fmt: skip
        return self.buffers["summary"][:9].copy()

    def solve(self, b, refinements=0, transposed=False, target=2e-15, rhs=0):
        """b: (rhs, n), or fewer with the rest zero."""
        n, rhs = self.plan.n, rhs or b.shape[0]
        if rhs > self.room:
            self.room = rhs
            self.make(memory.solve_needs(self.plan, self.dtype, rhs))
        self.buffers["b"][: rhs * n] = 0
        self.buffers["b"][: b.size] = b.reshape(-1)
        self.run(
            lu_solve_steps(
                self.plan, self.sweeps, self.dtype.name, rhs, refinements, scaled=self.scaling != "none", target=target,
                transposed=transposed, span=self.span,
            )
        )  # fmt: skip
        return self.buffers["best"][: b.size].reshape(b.shape).copy()

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
