"""Second half of ``docs/matrices.md``: LU of every square matrix of a data folder, beside SuperLU and PARDISO.

Used by ``build_matrix_table.py``. SuperLU runs in a process of its own: some singular matrices end it.
A row is wrong when the backward error of a returned solution is above 1e-12, when a matrix that is clearly
nonsingular is refused, or when anything but a typed refusal is raised. Fill is counted alike for both: entries
of L and U that are not zero, without L's unit diagonal.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
from scipy import sparse

LIMIT, FILL_LIMIT, DENSE_LIMIT = 1e-12, 1.3, 1500
COLUMNS = ("matrix", "n", "nnz", "dtype", "outcome", "normwise", "componentwise", "L + U")
COLUMNS += ("SuperLU", "its L + U", "ratio", "PARDISO")
INTRODUCTION = """\

## LU of every matrix

The same matrices and the others, in the dtype of the file, all with `structure="G"`: default parameters, right-hand
side A times ones. Beside them SciPy's SuperLU by its defaults on the same system: its backward error, or that it
failed. `L + U` counts entries that are not zero, without the unit diagonal. A refused matrix is singular to working
precision; SuperLU may divide by rounding there. PARDISO: backward error and entries of its factors, zeros among them,
where it is installed (real matrices).

"""


@dataclass
class LuRow:
    """One matrix and what came of it."""

    name: str
    n: int
    nnz: int
    dtype: str
    outcome: str = ""
    normwise: float | None = None
    componentwise: float | None = None
    entries: int = 0
    peer: str = ""
    peer_entries: int = 0
    other: str = "–"
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """Our entries by SuperLU's."""
        return self.entries / self.peer_entries if self.entries and self.peer_entries else None


def superlu(matrix: Any, b: Any) -> tuple[Any, int, str]:
    """Return SuperLU's solution (or None), the nonzeros of its L and U, and its message. Runs in the other process."""
    from scipy.sparse.linalg import splu

    try:
        factor = splu(sparse.csc_matrix(matrix))
        entries = np.count_nonzero(factor.L.data) + np.count_nonzero(factor.U.data) - matrix.shape[0]
        return factor.solve(b), int(entries), ""
    except (RuntimeError, ValueError, MemoryError) as error:
        return None, 0, str(error).splitlines()[0]


class Peer:
    """SuperLU in a process that is started again after a crash."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def solve(self, matrix: Any, b: Any) -> tuple[Any, int, str]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        try:
            return self._pool.submit(superlu, matrix, b).result(timeout=300)
        except BrokenProcessPool:
            self._pool = None
            return None, 0, "crashed"

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def pardiso(matrix: Any, b: Any, measure: Any) -> str:
    """Return PARDISO's backward error and the entries it stores, or – where it is not installed or takes no such matrix."""
    try:
        import pypardiso
    except ImportError:
        return "–"
    if np.iscomplexobj(matrix.data):
        return "–"
    try:
        solver = pypardiso.PyPardisoSolver()
        x = solver.solve(sparse.csr_matrix(matrix), b)
        text = f"{measure(matrix, x, b).normwise:.0e}, {solver.get_iparm(18)}"
        solver.free_memory(everything=True)
        return text
    except Exception as error:  # a peer's failure is its outcome
        return type(error).__name__


def nonzeros(factor: Any) -> int:
    """Entries of L and U that are not zero, without the unit diagonal, with those above the diagonal blocks."""
    state, count = factor.state, 0
    for at, _, pivot_at, rows, _, done, _, _ in state.node.tolist():
        shape, part = (done, rows), slice(at, at + done * rows)
        count += np.count_nonzero(np.triu(state.panel[part].reshape(shape), 1))
        count += np.count_nonzero(np.triu(state.upper[part].reshape(shape), 1))
        count += np.count_nonzero(state.diagonal[2 * pivot_at : 2 * (pivot_at + done) : 2])
    return int(count + factor.symbolic.general.coupling.slot.size)


def clearly_nonsingular(matrix: Any) -> bool:
    """Whether the smallest singular value of the equilibrated matrix stands far above rounding; False if too large."""
    n = matrix.shape[0]
    if n > DENSE_LIMIT:
        return False
    a = matrix.toarray()
    for _ in range(10):
        for axis in (0, 1):
            top = np.abs(a).max(axis=axis, keepdims=True)
            if not np.all(top > 0):
                return False
            a = a / np.sqrt(top)
    values = np.linalg.svd(a, compute_uv=False)
    return bool(values[-1] > 1e4 * n * np.finfo(np.float64).eps * values[0])


def lu_row(name: str, matrix: Any, peer: Peer, measure: Any) -> LuRow:
    """Solve by ours and by the peers, and judge ours."""
    from warpfront.errors import Status, WarpfrontError
    from warpfront.sparse.solver import DirectSolver

    row = LuRow(name, matrix.shape[0], matrix.nnz, str(matrix.dtype))
    b = matrix @ np.ones(matrix.shape[0], matrix.dtype)
    start = time.perf_counter()
    try:
        solver = DirectSolver(matrix, structure="G", check="status").factorize()
        record = solver.report.factor
        assert record is not None
        row.entries = 0 if solver._factor.state is None else nonzeros(solver._factor)
        if record.status != Status.OK:
            row.outcome = f"{record.status.name}, column {record.column}"
        else:
            errors = measure(matrix, solver.solve(b), b)
            row.outcome, row.normwise, row.componentwise = "solved", errors.normwise, errors.componentwise
            if not errors.normwise <= LIMIT:
                row.wrong.append(f"backward error {errors.normwise:.1e}")
    except WarpfrontError as error:
        row.outcome = f"{type(error).__name__}: {error}"
    except Exception as error:  # what the table is there to find
        row.wrong.append(f"raised {type(error).__name__}: {error}")
    row.seconds = time.perf_counter() - start
    if row.outcome != "solved" and clearly_nonsingular(matrix):
        row.wrong.append("refused, but it is nonsingular")
    x, row.peer_entries, message = peer.solve(matrix, b)
    row.peer = message or f"{measure(matrix, x, b).normwise:.0e}"
    row.other = pardiso(matrix, b, measure)
    return row


def lu_page(rows: list[LuRow]) -> str:
    """Return the second half of the page."""
    wrong = sum(bool(row.wrong) for row in rows)
    solved = sum(row.outcome == "solved" and not row.wrong for row in rows)
    ratios = [row.ratio for row in rows if row.ratio is not None and row.outcome == "solved"]
    within = sum(ratio <= FILL_LIMIT for ratio in ratios)
    summary = f"{len(rows)} matrices: {solved} solved, {len(rows) - solved - wrong} refused, {wrong} wrong."
    if ratios:
        summary += f" Fill within {FILL_LIMIT} times SuperLU's on {within} of {len(ratios)} that both factor;"
        summary += f" median {float(np.median(ratios)):.2f}, largest {max(ratios):.2f}."
    lines = [INTRODUCTION + summary, "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        outcome = "**wrong**: " + "; ".join(row.wrong) if row.wrong else row.outcome
        figures = ["–" if value is None else f"{value:.0e}" for value in (row.normwise, row.componentwise)]
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        cells = [row.name.removesuffix(".gz"), str(row.n), str(row.nnz), row.dtype, outcome.replace("|", "/")]
        cells += [*figures, str(row.entries), row.peer.replace("|", "/"), str(row.peer_entries or "–"), ratio]
        lines.append("| " + " | ".join([*cells, row.other]) + " |")
    return "\n".join(lines) + "\n"
