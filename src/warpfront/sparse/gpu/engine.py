"""A symmetric factorisation on the device: refactorise, solve, read the outcome. Only reading waits for the device."""

from __future__ import annotations

from typing import Any, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotSupportedError, Status
from warpfront.report import Inertia, PivotStats
from warpfront.sparse.analysis.symbolic import Symbolic
from warpfront.sparse.gpu import memory, steps
from warpfront.sparse.gpu.inverses import SPAN, Inversion, invert_items
from warpfront.sparse.gpu.look_ahead import look_ahead
from warpfront.sparse.gpu.runner import Runner
from warpfront.sparse.gpu.schedule import Device, GpuPlan, make_plan

__all__ = ["GpuFactor", "Planned", "Refined", "require_gpu"]

# right-hand sides solved for at once, and where a whole solve is one launch
GROUPS, TREE_GROUPS = (64, 32, 16, 8, 1), (64, 32, 16, 8, 4, 1)
MOST = 64
LEAST_ROOM = 1 << 28  # bytes that right-hand sides may take in any case; else no more than the factor's
NOTHING_FAILED = 2**31 - 1


class Refined(NamedTuple):
    """Worst over the right-hand sides of a solve."""

    steps: int
    componentwise: float
    normwise: float


def require_gpu() -> int:
    """Return the device to use.

    Raises
    ------
    NotSupportedError
        No usable GPU: the message says what is missing.
    """
    from warpfront.backend import capability

    reason = capability.missing()
    if reason is not None:
        raise NotSupportedError(f"device='cuda': {reason}; device='cpu' needs none of it")
    import cupy

    device = int(cupy.cuda.runtime.getDevice())
    have = capability.probe(device).cc
    if have < (8, 0):
        raise NotSupportedError(
            f"device='cuda': the sparse solver needs compute capability 8.0, device {device} has {have[0]}.{have[1]}"
        )
    return device


class Planned(NamedTuple):
    """What there is to know before anything is allocated."""

    plan: GpuPlan
    sweeps: list[list[tuple[str, int, int, int]]]
    uploaded: dict[str, NDArray[Any]]
    written: dict[str, memory.Need]
    inversions: tuple[Inversion, ...]

    @classmethod
    def of(cls, symbolic: Symbolic, pivoting: bool, dtype: Any, device: int) -> Planned:
        """Plan for a device."""
        from warpfront.backend import capability

        probed = capability.probe(device)
        plan = make_plan(
            symbolic, pivoting=pivoting, itemsize=np.dtype(dtype).itemsize,
            device=Device(probed.shared_bytes_optin, probed.sm_count),
        )  # fmt: skip
        plan = look_ahead(plan)
        items, sweeps = steps.solve_items(plan)
        more, inversions = invert_items(plan, SPAN, items.size)
        items = np.concatenate([items, more])
        pattern = symbolic.pattern
        uploaded = memory.uploads(plan, steps.make_tables(pattern, symbolic.perm), items)
        written = memory.needs(plan, pattern.nnz, pattern.value_map.size, dtype)
        return cls(plan, sweeps, uploaded, written, inversions)

    def estimates(self) -> tuple[dict[str, int], tuple[int, ...]]:
        """Bytes by name, and cuDSS's slots."""
        return memory.estimates(
            self.uploaded, self.written, sum(int(a.nbytes) for a in self.uploaded.values())
        )


class GpuFactor:
    """Device buffers of one pattern, and the factorisation that lies in them.

    Parameters
    ----------
    symbolic : Symbolic
    pivoting : bool
        LDL^T with interchanges; otherwise positive definite.
    scaled : bool
        Equilibrate on the device.
    dtype : numpy dtype
        float64 or float32.
    tolerances : Tolerances
    device : int

    Attributes
    ----------
    most_steps : int
        Refinement goes on to this many steps while the componentwise error is above 1e-12 (float64), where all fronts
        are small.
    """

    scale = None
    most_steps = 0
    groups: tuple[int, ...]
    _room = memory.ROOM

    def __init__(
        self, symbolic: Symbolic, *, pivoting: bool, scaled: bool, dtype: Any, tolerances: steps.Tolerances, device: int,
    ) -> None:  # fmt: skip
        self.symbolic, self.pivoting, self.scaled = symbolic, pivoting, scaled
        self.dtype = np.dtype(dtype)
        self.tolerances = tolerances
        planned = Planned.of(symbolic, pivoting, self.dtype, device)
        self.plan, self._sweeps, self._inversions = planned.plan, planned.sweeps, planned.inversions
        self.span = SPAN
        self.memory, self.memory_slots = planned.estimates()
        self.runner = Runner(planned.uploaded, planned.written, device)
        self.groups = self._worth_room(GROUPS if self.plan.tree is None else TREE_GROUPS)
        self._outcome: tuple[int, ...] | None = None
        self._states: list[Any] = []

    def _worth_room(self, groups: tuple[int, ...]) -> tuple[int, ...]:
        """Of numbers of right-hand sides, the largest first, those whose memory is worth spending."""
        most = max(LEAST_ROOM, self.memory["total"])
        return tuple(
            g for g in groups if g <= self._room or memory.solve_bytes(self.plan, self.dtype, g) <= most
        )

    # ------------------------------------------------------------------ factor
    def refactorize(self, values: Any, *, canonical: bool) -> None:
        """Queue a factorisation on the current stream.

        Parameters
        ----------
        values : float[nnz]
            On the host or the device; canonical slots, or the caller's entries in the caller's order.
        canonical : bool
            Which of the two.
        """
        import cupy

        buffer = self.runner.buffers["original" if canonical else "source"]
        self._follow()
        if values.size:
            if isinstance(values, np.ndarray):
                buffer[: values.size].set(np.ascontiguousarray(values, self.dtype))
            else:
                cupy.copyto(buffer[: values.size], values.reshape(-1), casting="same_kind")
        key = "factor" if canonical else "factor from entries"
        if not self.runner.defined(key):
            self.runner.define(key, self._factor_sequence(gather=not canonical))
        self._outcome = None
        if self.plan.n:
            self.runner.run(key)

    def _factor_sequence(self, gather: bool) -> list[steps.Step]:
        return steps.factor_steps(
            self.plan, self.symbolic.pattern.nnz, self.dtype.name, self.tolerances, scaled=self.scaled, gather=gather,
            inversions=self._inversions,
        )  # fmt: skip

    def _solve_sequence(self, rhs: int, refinements: int, trans: str) -> list[steps.Step]:
        eps = float(np.finfo(self.dtype).eps)
        return steps.solve_steps(
            self.plan, self._sweeps, self.dtype.name, rhs, refinements, scaled=self.scaled, target=8 * eps,
            rounds=self.most_steps, limit=4500 * eps, span=self.span,
        )  # fmt: skip

    def _follow(self) -> None:
        import cupy

        stream = cupy.cuda.get_current_stream()
        if not stream.is_capturing():
            self.runner.follow(stream)

    def _summary(self) -> tuple[int, ...]:
        """Counts of the last factorisation; waits for it."""
        if self._outcome is None:
            if self.plan.n == 0:
                self._outcome = (0,) * 7 + (NOTHING_FAILED, 0)
            else:
                self._follow()
                self._outcome = tuple(self.runner.buffers["summary"][:9].get().tolist())
        return self._outcome

    @property
    def status(self) -> Status:
        """Outcome; waits for the factorisation, as every other property of it does."""
        summary = self._summary()
        if summary[7] != NOTHING_FAILED:
            return Status.SINGULAR if self.pivoting else Status.NOT_POSITIVE_DEFINITE
        return Status.NON_FINITE if summary[8] else Status.OK

    @property
    def column(self) -> int:
        """First failing column in the caller's numbering, or -1."""
        failed = self._summary()[7]
        return -1 if failed == NOTHING_FAILED else int(self.symbolic.perm[failed])

    @property
    def inertia(self) -> Inertia:
        """Numbers of positive, negative and zero pivots."""
        s = self._summary()
        if self.status == Status.NOT_POSITIVE_DEFINITE:
            return Inertia(0, 0, 0)
        return Inertia(s[4], s[5], s[3])

    @property
    def pivots(self) -> PivotStats:
        """Counts of pivots."""
        s = self._summary()
        if self.status == Status.NOT_POSITIVE_DEFINITE:
            return PivotStats(0, 0, 0, 0, 0, 0)
        return PivotStats(s[0], s[1], 0, s[2], s[3], s[6])

    @property
    def nnz_factor(self) -> int:
        """Entries of L."""
        return self.symbolic.nnz_factor

    @property
    def nbytes(self) -> int:
        """Bytes of device buffers."""
        return self.runner.nbytes

    # ------------------------------------------------------------------ solve
    def solve(self, b: Any, refinements: int, out: Any = None, trans: str = "N") -> Any:
        """Queue a solve on the current stream.

        Parameters
        ----------
        b : cupy array, (n,) or (n, k)
            Any strides; read.
        refinements : int
            Steps at most (see ``most_steps``).
        out : cupy array, shape of b, optional
            Written and returned; may be ``b``. With it, a solve can be captured into a caller's graph.
        trans : {"N", "T"}
            Solve with the transpose; the same where the matrix is symmetric.

        Returns
        -------
        cupy array, shape of b
            New ones are C-ordered, of the factor's type.
        """
        import cupy

        n = self.plan.n
        x = cupy.empty(b.shape, self.dtype) if out is None else out
        self._states = []
        if x.size == 0:
            return x
        self._follow()
        capturing = cupy.cuda.get_current_stream().is_capturing()
        columns = b[None, :] if b.ndim == 1 else b.T
        results = x[None, :] if x.ndim == 1 else x.T
        done = 0
        while done < columns.shape[0]:
            rhs, taken = self._take(columns.shape[0] - done, self._room if capturing else MOST)
            if not self._make_room(rhs):
                continue
            key = f"solve {trans} {rhs} {refinements} {self.most_steps}"
            if not self.runner.defined(key):
                self.runner.define(key, self._solve_sequence(rhs, refinements, trans))
            buffers = self.runner.buffers
            given = buffers["b"][: rhs * n].reshape(rhs, n)
            given[:taken] = columns[done : done + taken]
            if taken < rhs:
                given[taken:] = 0
            self.runner.run(key)
            results[done : done + taken] = buffers["best"][: rhs * n].reshape(rhs, n)[:taken]
            if refinements and not capturing:
                self._states.append(buffers["state"].reshape(-1, steps.STATE)[:taken].copy())
            done += taken
        return x

    def _take(self, left: int, most: int = MOST) -> tuple[int, int]:
        """Right-hand sides to solve for at once, zeros among them where ``left`` is no such number, and given ones."""
        groups = [g for g in self.groups if g <= most]
        fitting = [g for g in groups if g >= left]
        if left > 1 and fitting:
            return fitting[-1], left
        rhs = next(g for g in groups if g <= left)
        return rhs, rhs

    def _make_room(self, rhs: int) -> bool:
        """Buffers for that many right-hand sides; the first solve for more than before allocates.

        False where memory runs out, with a `UserWarning`: from then on no more are solved for at once than there is
        room for, with the same bits.
        """
        if rhs <= self._room:
            return True
        try:
            self.runner.grow(memory.solve_needs(self.plan, self.dtype, rhs))
        except MemoryError as error:
            self.groups = tuple(g for g in self.groups if g <= self._room)
            needed = memory.solve_bytes(self.plan, self.dtype, rhs)
            warn(
                f"no memory for {rhs} right-hand sides at once ({needed} bytes: {error}); solved {self._room} at a time",
                stacklevel=2,
            )
            return False
        self._room = rhs
        return True

    def last_states(self) -> list[Any]:
        """Refinement states of the last solve, on the device; for `refined`."""
        return list(self._states)

    def refined(self, states: list[Any]) -> Refined:
        """What a solve's refinement reached; waits for it. NaN where no residual was computed."""
        if not states:
            return Refined(0, float("nan"), float("nan"))
        import cupy

        self._follow()
        state = cupy.concatenate(states).get()
        return Refined(int(state[:, 7].max()), float(state[:, 4].max()), float(state[:, 5].max()))
