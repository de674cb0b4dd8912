"""An LU on the device: buffers, sequences and readings where they differ from those of a symmetric factor."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError, Status
from warpfront.report import PivotStats
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu import memory, steps
from warpfront.sparse.gpu.engine import GROUPS, NOTHING_FAILED, GpuFactor
from warpfront.sparse.gpu.inverses import SPAN, Inversion, invert_items
from warpfront.sparse.gpu.lu_schedule import LuPlan, make_lu_plan
from warpfront.sparse.gpu.lu_steps import LuTolerances, lu_factor_steps, lu_needs, lu_solve_steps, lu_uploads
from warpfront.sparse.gpu.runner import Runner
from warpfront.sparse.gpu.schedule import Device

__all__ = ["LuFactor", "LuPlanned", "lu_tolerances"]

DOUBT = 1e-11  # numeric.factorize.DOUBT


class LuPlanned(NamedTuple):
    """What there is to know before anything is allocated."""

    plan: LuPlan
    sweeps: list[list[tuple[str, int, int, int]]]
    uploaded: dict[str, NDArray[Any]]
    written: dict[str, memory.Need]
    inversions: tuple[Inversion, ...]

    @classmethod
    def of(cls, symbolic: Symbolic, dtype: Any, device: int) -> LuPlanned:
        """Plan for a device.

        Raises
        ------
        NotSupportedError
            The analysis has diagonal blocks: it is of the CPU's, with ``block_triangular=True``.
        """
        from warpfront.backend import capability

        assert symbolic.general is not None
        if symbolic.general.coupling.col.size:
            raise NotSupportedError(
                "device='cuda' takes a matrix whole; analyse with block_triangular=False, or use device='cpu'"
            )
        probed = capability.probe(device)
        plan = make_lu_plan(
            symbolic,
            itemsize=np.dtype(dtype).itemsize,
            device=Device(probed.shared_bytes_optin, probed.sm_count),
        )
        items, sweeps = steps.solve_items(cast(Any, plan))
        more, inversions = invert_items(cast(Any, plan), SPAN, items.size)
        items = np.concatenate([items, more])
        uploaded = lu_uploads(plan, symbolic, items)
        return cls(plan, sweeps, uploaded, lu_needs(plan, symbolic, dtype), inversions)

    def estimates(self) -> tuple[dict[str, int], tuple[int, ...]]:
        """Bytes by name, and cuDSS's slots."""
        return memory.estimates(
            self.uploaded, self.written, sum(int(a.nbytes) for a in self.uploaded.values())
        )


class LuFactor(GpuFactor):
    """Device buffers of one pattern of a general matrix, and the factorisation that lies in them.

    Parameters
    ----------
    symbolic : Symbolic
        Of `analyze_general`, without diagonal blocks.
    scaling : {"auto", "none", "equilibrate"}
        See `lu_factor_steps`.
    dtype : numpy dtype
        float64 or float32.
    tolerances : LuTolerances
    device : int
    """

    def __init__(
        self, symbolic: Symbolic, *, scaling: str, dtype: Any, tolerances: LuTolerances, device: int
    ) -> None:
        self.symbolic, self.pivoting, self.scaling, self.scaled = symbolic, True, scaling, scaling != "none"
        self.dtype = np.dtype(dtype)
        self.rule = tolerances
        planned = LuPlanned.of(symbolic, self.dtype, device)
        self.plan, self._sweeps, self._inversions = (
            cast(Any, planned.plan),
            planned.sweeps,
            planned.inversions,
        )
        self.span = SPAN
        self.memory, self.memory_slots = planned.estimates()
        self.runner = Runner(planned.uploaded, planned.written, device)
        n = planned.plan.n
        if n:
            self.runner.buffers["col_pivots"] = self.runner.buffers["pivots"][2 * n :]
        self.groups = self._worth_room(GROUPS)
        self._outcome = None
        self._states = []

    def _factor_sequence(self, gather: bool) -> list[steps.Step]:
        nnz = self.symbolic.pattern.nnz
        return lu_factor_steps(
            cast(Any, self.plan), nnz, self.dtype.name, self.rule, scaling=self.scaling, gather=gather,
            inversions=self._inversions,
        )  # fmt: skip

    def _solve_sequence(self, rhs: int, refinements: int, trans: str) -> list[steps.Step]:
        return lu_solve_steps(
            cast(Any, self.plan), self._sweeps, self.dtype.name, rhs, refinements, scaled=self.scaled,
            target=8 * float(np.finfo(self.dtype).eps), transposed=trans != "N", span=self.span,
        )  # fmt: skip

    @property
    def status(self) -> Status:
        """Outcome; SINGULAR too where the pattern alone says so."""
        general = self.symbolic.general
        assert general is not None
        summary = self._summary()
        if summary[8]:
            return Status.NON_FINITE
        if summary[7] != NOTHING_FAILED or general.unmatched_columns.size:
            return Status.SINGULAR
        return Status.OK

    @property
    def column(self) -> int:
        """First column without a pivot, caller's numbering, or -1."""
        general = self.symbolic.general
        assert general is not None
        failed = self._summary()[7]
        if failed != NOTHING_FAILED:
            return int(self.symbolic.perm[failed])
        return int(general.unmatched_columns[0]) if general.unmatched_columns.size else -1

    @property
    def pivots(self) -> PivotStats:
        """Counts of pivots."""
        s = self._summary()
        return PivotStats(s[0], 0, 0, s[2], s[3], s[6])

    @property
    def nbytes(self) -> int:
        """Bytes of device buffers; the columns' pivots are a part of the rows' buffer."""
        n = self.plan.n
        return self.runner.nbytes - (int(self.runner.buffers["col_pivots"].nbytes) if n else 0)

    @property
    def quality(self) -> tuple[int, bool]:
        """Weak matched entries with the scales that were used, and whether these are new ones; waits."""
        if self.plan.n == 0 or not self.scaled:
            return 0, False
        self._follow()
        weak, stale, anew = self.runner.buffers["quality"][:3].get().tolist()
        return (anew if stale else weak), bool(stale)

    def _scales(self, side: str) -> NDArray[np.float64]:
        n = self.plan.n
        if n == 0 or not self.scaled:
            return np.ones(n)
        self._follow()
        exponents: NDArray[np.int32] = self.runner.buffers[f"{side}_exponents"][:n].get()
        return np.ldexp(np.ones(n), exponents)

    @property
    def scale(self) -> NDArray[np.float64]:  # type: ignore[override]
        """Scales of the rows; waits."""
        return self._scales("row")

    @property
    def col_scale(self) -> NDArray[np.float64]:
        """Scales of the columns; waits."""
        return self._scales("col")

    def _pivot_records(self) -> NDArray[np.int32]:
        """Rows' and columns' pivots, (2, n, 2): place in the front and kind; waits."""
        n = self.plan.n
        self._follow()
        found: NDArray[np.int32] = self.runner.buffers["pivots"][: 4 * n].get().reshape(2, n, 2)
        return found

    def orders(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of A in the order of the pivots, caller's numbering; waits."""
        general, fronts = self.symbolic.general, self.plan.fronts
        assert general is not None
        place = self._pivot_records()[:, :, 0] + np.repeat(fronts["first"], fronts["width"])
        return general.rows[place[0]].astype(np.int64), self.symbolic.perm[place[1]].astype(np.int64)

    def pivot_values(self) -> NDArray[Any]:
        """Pivots of the scaled matrix in pivot order; waits."""
        self._follow()
        values: NDArray[Any] = self.runner.buffers["diagonal"][: 2 * self.plan.n : 2].get()
        return values

    def zero_pivots(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns left without a pivot, caller's numbering, in elimination order."""
        at = np.flatnonzero(self._pivot_records()[0, :, 1] == 0)
        rows, cols = self.orders()
        return rows[at], cols[at]

    def scaling_words(self) -> tuple[str, bool]:
        """How the last values were scaled, in words, and whether the matching's scaling did not fit them; waits."""
        weak, stale = self.quality
        if not self.scaled:
            return "none", False
        if self.scaling == "equilibrate":
            return "rows and columns equilibrated", False
        if not stale:
            return "by the matching", False
        n = self.symbolic.n
        return (
            f"equilibrated anew: the scaling of the matching does not fit these values; {weak} of {n} matched entries are "
            "below 0.001 of the largest in their column (analyze() matches anew)"
        ), True


def lu_tolerances(settings: Any, dtype: Any) -> LuTolerances:
    """Pivot rule from the settings, as `sparse.general` makes it."""
    eps = float(np.finfo(dtype).eps)
    single = eps > 1e-10
    threshold = max(float(settings["pivot_threshold"]), 1e-30)
    epsilon = float(settings["pivot_epsilon"])
    return LuTolerances(
        threshold=threshold,
        share=max(float(settings["diag_pivot_thresh"]), threshold),
        zero=max(float(settings["zero_pivot_tol"]), 8 * eps if single else 0.0),
        doubt=DOUBT,
        epsilon=max(epsilon, 8 * eps) if epsilon else 0.0,
    )
