"""Runs the GPU solver's sequences one launch after another under the SIMT runner, and reads the factor back."""

import numpy as np
from built import simt

from warpfront.sparse.gpu import memory, steps
from warpfront.sparse.gpu.inverses import SPAN, invert_items
from warpfront.sparse.gpu.kernels import KERNELS
from warpfront.sparse.gpu.look_ahead import look_ahead
from warpfront.sparse.gpu.schedule import make_plan

WAITING = ("strips", "forward_strips", "backward_strips")


class Emulated:
    """A solver whose device is the SIMT runner."""

    def __init__(
        self, symbolic, pivoting, dtype=np.float64, scaled=False, tolerances=None, schedules=2, seed=0,
        span=SPAN, ahead=True, **plan,
    ):  # fmt: skip
        self.symbolic, self.pattern, self.scaled = symbolic, symbolic.pattern, scaled
        self.dtype, self.schedules, self.seed = np.dtype(dtype), schedules, seed
        self.plan = make_plan(symbolic, pivoting=pivoting, itemsize=self.dtype.itemsize, **plan)
        self.plan = look_ahead(self.plan) if ahead else self.plan
        self.tolerances = tolerances or steps.Tolerances()
        items, self.sweeps = steps.solve_items(self.plan)
        more, self.inversions = invert_items(self.plan, span, items.size)
        items, self.span, self.room = np.concatenate([items, more]), span, memory.ROOM
        tables = steps.make_tables(self.pattern, symbolic.perm)
        self.buffers = dict(memory.uploads(self.plan, tables, items))
        self.make(memory.needs(self.plan, self.pattern.nnz, self.pattern.value_map.size, self.dtype))

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
            # a kernel that waits for other blocks needs them in flight; for the others few are enough
            blocks = step.blocks * step.groups
            resident = blocks if step.kernel in WAITING else 4
            report = simt(KERNELS[step.kernel].source, step.expression).launch(
                step.expression, (step.blocks, step.groups), step.threads, [*arguments, *step.numbers],
                shared_bytes=step.shared_bytes, resident=resident, schedules=self.schedules, seed=self.seed,
            )  # fmt: skip
            report.check()

    def factorize(self, values):
        """Values in the caller's order."""
        self.buffers["source"][: values.size] = values
        self.run(
            steps.factor_steps(
                self.plan,
                self.pattern.nnz,
                self.dtype.name,
                self.tolerances,
                scaled=self.scaled,
                inversions=self.inversions,
            )
        )
        return self.buffers["summary"][:9].copy()

    def solve(self, b, refinements=0, rhs=1, target=2e-15):
        """b: (rhs, n)."""
        n = self.plan.n
        if rhs > self.room:
            self.room = rhs
            self.make(memory.solve_needs(self.plan, self.dtype, rhs))
        self.buffers["b"][: rhs * n] = b.reshape(-1)
        self.run(
            steps.solve_steps(
                self.plan,
                self.sweeps,
                self.dtype.name,
                rhs,
                refinements,
                scaled=self.scaled,
                target=target,
                span=self.span,
            )
        )
        return self.buffers["best"][: rhs * n].reshape(b.shape).copy()

    def dense_factor(self):
        """(L, D, place): dense factor of the permuted matrix; row k of L belongs to permuted column place[k]."""
        plan, n, buffers = self.plan, self.plan.n, self.buffers
        lower, d, place = np.eye(n), np.zeros((n, n)), np.arange(n)
        ind, ptr = self.symbolic.plan.front_ind, self.symbolic.plan.front_ptr
        for f in plan.fronts:
            first, width = int(f["first"]), int(f["width"])
            place[first : first + width] = first + buffers["pivots"][2 * first : 2 * (first + width) : 2]
        position = np.empty(n, int)
        position[place] = np.arange(n)
        for s, f in enumerate(plan.fronts):
            first, width, rows = int(f["first"]), int(f["width"]), int(f["rows"])
            where = ind[ptr[s] : ptr[s + 1]].astype(int)
            where = np.concatenate([np.arange(first, first + width), position[where[width:]]])
            panel = buffers["panels"][f["panel"] : f["panel"] + f["ld"] * width].reshape(width, f["ld"])
            for k in range(width):
                lower[where[k + 1 : rows], first + k] = panel[k, k + 1 : rows]
                d[first + k, first + k] = buffers["diagonal"][2 * (first + k)]
                if buffers["pivots"][2 * (first + k) + 1] == 2:
                    d[first + k, first + k + 1] = d[first + k + 1, first + k] = buffers["diagonal"][
                        2 * (first + k) + 1
                    ]
        return lower, d, place
