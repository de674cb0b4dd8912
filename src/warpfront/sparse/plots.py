"""Pictures of an analysis: where A and L have entries, how large the fronts are, where the time went.

`portrait` reduces an analysis to small arrays with NumPy alone, for any drawing; `plot_symbolic` and
`plot_solver` draw them with matplotlib, which is imported when one of them is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warpfront.errors import NotAnalyzedError

if TYPE_CHECKING:
    from warpfront.sparse.analysis.symbolic import Symbolic
    from warpfront.sparse.solver import DirectSolver

__all__ = [
    "FrontClass",
    "Portrait",
    "front_classes",
    "phase_seconds",
    "plot_solver",
    "plot_symbolic",
    "portrait",
]

CHUNK = 1 << 22
INK = "#1f4e8c"
INK_SOFT = "#9db8d9"


@dataclass(frozen=True, eq=False)
class Portrait:
    """An analysis in small arrays. ``m`` is the number of cells along each side of the pictures.

    Attributes
    ----------
    n : int
        Order of the matrix.
    nnz_lower, nnz_factor : int
        Entries of the lower triangle of A and of the predicted L, diagonals included.
    matrix, permuted : float64[m, m]
        Share of the entries of each cell that are nonzero, 0 to 1: A as given and in elimination order.
    factor : float64[m, m]
        The same for L, relaxed zeros counted as entries.
    front_rows, front_columns : int64[fronts]
        Size of every front and of its fully summed part.
    """

    n: int
    nnz_lower: int
    nnz_factor: int
    matrix: NDArray[np.float64]
    permuted: NDArray[np.float64]
    factor: NDArray[np.float64]
    front_rows: NDArray[np.int64]
    front_columns: NDArray[np.int64]


@dataclass(frozen=True)
class FrontClass:
    """Fronts with ``low`` to ``high`` rows: their number, and their share of all flops."""

    low: int
    high: int
    count: int
    flops_share: float


def portrait(symbolic: Symbolic, cells: int = 160) -> Portrait:
    """Reduce an analysis to pictures of at most ``cells`` x ``cells``."""
    n, plan = symbolic.n, symbolic.plan
    m = max(1, min(cells, n))
    cell = np.arange(n, dtype=np.int64) * m // max(n, 1)
    area = np.outer(*2 * [np.bincount(cell, minlength=m)]).astype(np.float64)
    area[area == 0] = 1.0
    place = np.empty(n, np.int64)
    place[symbolic.perm] = np.arange(n)
    pattern = symbolic.pattern
    column = np.repeat(np.arange(n, dtype=np.int64), np.diff(pattern.ptr))
    given = _symmetric_counts(cell[pattern.ind], cell[column], pattern.ind != column, m)
    permuted = _symmetric_counts(cell[place[pattern.ind]], cell[place[column]], pattern.ind != column, m)
    return Portrait(
        n=n,
        nnz_lower=pattern.nnz,
        nnz_factor=symbolic.nnz_factor,
        matrix=given / area,
        permuted=permuted / area,
        factor=_factor_counts(plan, cell, m) / area,
        front_rows=np.diff(plan.front_ptr),
        front_columns=np.diff(plan.node_ptr),
    )


def _symmetric_counts(row: Any, column: Any, mirrored: Any, m: int) -> NDArray[np.float64]:
    counts = np.bincount(row * m + column, minlength=m * m) + np.bincount(
        column[mirrored] * m + row[mirrored], minlength=m * m
    )
    return counts.reshape(m, m).astype(np.float64)


def _factor_counts(plan: Any, cell: NDArray[np.int64], m: int) -> NDArray[np.float64]:
    """Entries of L by cell. A front's columns are cut where a cell ends: a piece lies in one column."""
    n = cell.size
    starts = np.unique(np.concatenate([plan.node_ptr[:-1], np.flatnonzero(np.diff(cell, prepend=-1))]))
    ends = np.append(starts[1:], n)
    node = np.searchsorted(plan.node_ptr, starts, side="right") - 1
    rows = np.diff(plan.front_ptr)[node]
    counts = np.zeros(m * m)
    pieces = np.concatenate([[0], np.cumsum(rows)])
    begin = 0
    while begin < starts.size:  # in chunks: the fronts' row lists together may be larger than the matrix
        end = max(begin + 1, int(np.searchsorted(pieces, pieces[begin] + CHUNK, side="right")) - 1)
        part = slice(begin, end)
        owner = np.repeat(np.arange(begin, end), rows[part])
        inside = np.arange(owner.size) - np.repeat(pieces[part] - pieces[begin], rows[part])
        row = plan.front_ind[plan.front_ptr[node[owner]] + inside].astype(np.int64)
        entries = (
            np.minimum(row + 1, ends[owner]) - starts[owner]
        )  # columns of the piece on or left of the diagonal
        below = entries > 0
        at = cell[row[below]] * m + cell[starts[owner[below]]]
        counts += np.bincount(at, weights=entries[below], minlength=m * m)
        begin = end
    return counts.reshape(m, m)


def front_classes(picture: Portrait) -> list[FrontClass]:
    """Histogram of the fronts by rows, in classes 1, 2, 3-4, 5-8, ...; empty classes in between are kept."""
    rows, width = picture.front_rows.astype(np.float64), picture.front_columns.astype(np.float64)
    if rows.size == 0:
        return []
    flops = width * rows**2 - rows * width * (width - 1) + (width - 1) * width * (2 * width - 1) / 6
    index = np.ceil(np.log2(rows)).astype(np.int64)
    count = np.bincount(index)
    share = np.bincount(index, weights=flops) / flops.sum()
    first = int(index.min())
    return [
        FrontClass((1 << (k - 1)) + 1 if k else 1, 1 << k, int(count[k]), float(share[k]))
        for k in range(first, count.size)
    ]


def phase_seconds(solver: DirectSolver) -> dict[str, tuple[float, float]]:
    """Seconds of work and of JIT compilation of every phase that has run."""
    report = solver.report
    phases = {"analysis": report.analysis, "factorisation": report.factor, "solve": report.solve}
    return {name: (r.seconds, r.jit_seconds) for name, r in phases.items() if r is not None}


def plot_symbolic(symbolic: Symbolic, title: str = "") -> Any:
    """Draw A as given, A in elimination order, L, and the histogram of the fronts.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot; ``figure.savefig(path)`` writes it.
    """
    return _figure(portrait(symbolic, 320), {}, title)


def plot_solver(
    solver: DirectSolver, title: str = "", seconds: Mapping[str, tuple[float, float]] | None = None
) -> Any:
    """Draw what `plot_symbolic` draws, and the time of each phase.

    Parameters
    ----------
    solver : DirectSolver
        Analysed.
    title : str
        First line of the figure.
    seconds : mapping of str to (float, float), optional
        Work and compilation of each phase. Default: `phase_seconds`.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    NotAnalyzedError
        Before ``solver.analyze()``.
    """
    if solver._symbolic is None:
        raise NotAnalyzedError("plot_solver before analyze(): there is nothing to draw")
    return _figure(
        portrait(solver._symbolic, 320), phase_seconds(solver) if seconds is None else seconds, title
    )


def _figure(picture: Portrait, seconds: Mapping[str, tuple[float, float]], title: str) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=12)
    halves: Any = figure.subfigures(2, 1, height_ratios=[1.15, 1.0])
    top, bottom = halves
    spies = (
        ("A as given", picture.matrix, 2 * picture.nnz_lower - picture.n),
        ("A in elimination order", picture.permuted, 2 * picture.nnz_lower - picture.n),
        ("L (predicted)", picture.factor, picture.nnz_factor),
    )
    for axes, (name, share, entries) in zip(top.subplots(1, 3), spies, strict=True):
        _draw_spy(axes, f"{name}: {entries:,} entries", share, picture.n)
    axes = bottom.subplots(1, 2 if seconds else 1, squeeze=False)[0]
    _draw_fronts(axes[0], picture)
    if seconds:
        _draw_seconds(axes[1], seconds)
    return figure


def _draw_spy(axes: Any, title: str, share: NDArray[np.float64], n: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    # the square root keeps single entries of a large matrix visible beside dense blocks
    ink = LinearSegmentedColormap.from_list("ink", ["#ffffff", INK_SOFT, INK])
    shade = np.where(share > 0, 0.35 + 0.65 * np.sqrt(share), 0.0)
    side = max(n, 1)
    axes.imshow(shade, cmap=ink, vmin=0, vmax=1, extent=(0, side, side, 0), interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.tick_params(labelsize=8)
    axes.locator_params(nbins=5)


def _draw_fronts(axes: Any, picture: Portrait) -> None:
    classes = front_classes(picture)
    labels = [str(c.low) if c.low == c.high else f"{c.low}-{c.high}" for c in classes]
    at = np.arange(len(classes))
    total = max(1, picture.front_rows.size)
    axes.bar(at - 0.2, [100 * c.count / total for c in classes], 0.4, color=INK_SOFT, label="of all fronts")
    axes.bar(at + 0.2, [100 * c.flops_share for c in classes], 0.4, color=INK, label="of all flops")
    for k, c in enumerate(classes):
        axes.annotate(f"{c.count:,}", (k - 0.2, 100 * c.count / total), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(at, labels, fontsize=8)
    axes.set_xlabel("rows of the front", fontsize=9)
    axes.set_ylabel("per cent", fontsize=9)
    axes.set_title(f"{picture.front_rows.size:,} fronts, number above each bar", fontsize=10)
    axes.margins(y=0.12)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_seconds(axes: Any, seconds: Mapping[str, tuple[float, float]]) -> None:
    names = list(seconds)
    work, compile_ = np.array(list(seconds.values())).T
    at = np.arange(len(names))
    axes.barh(at, 1e3 * work, color=INK, label="work")
    if compile_.any():
        axes.barh(
            at,
            1e3 * compile_,
            left=1e3 * work,
            color="white",
            edgecolor=INK,
            hatch="///",
            label="compiling (once)",
        )
        axes.legend(fontsize=8, frameon=False)
    for k in range(len(names)):
        axes.annotate(
            f" {1e3 * work[k]:,.{0 if work[k] >= 0.1 else 1}f}",
            (1e3 * (work[k] + compile_[k]), k),
            va="center",
            fontsize=8,
        )
    axes.set_yticks(at, names, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("milliseconds", fontsize=9)
    axes.set_title("time per phase (milliseconds of work beside each bar)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
