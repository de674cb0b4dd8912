"""Launch plan of ``lu_panel.cu`` and the LU of a batch of real matrices on the GPU: our panels, cuBLAS's products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

__all__ = [
    "SOURCE",
    "PanelPlan",
    "Side",
    "all_instantiations",
    "cuda_load",
    "factor_on",
    "follow",
    "instantiations",
    "outer_width",
    "panel_width",
    "plan_panel",
    "scratch",
    "solves",
    "steps",
    "subset",
    "supported",
]

SOURCE = Path(__file__).parent / "lu_panel.cu"
ALONE, CLUSTER, GRID = 0, 1, 2
MAX_RANKS, MAX_WARPS = 8, 8  # blocks that share a panel, warps of each
WIDTH, NARROW = 32, 16  # columns of a panel; narrower where a thread's rows would not fit its registers
# Threads of a block, rows a thread, columns: 128 registers of data at most.
ALONE_SHAPE = {"float32": (512, 1, WIDTH), "float64": (512, 1, WIDTH)}
SHAPES = {
    "float32": ((128, 1, WIDTH), (256, 1, WIDTH), (256, 2, WIDTH), (256, 4, WIDTH), (256, 8, NARROW)),
    "float64": ((128, 1, WIDTH), (256, 1, WIDTH), (256, 2, WIDTH), (256, 4, NARROW)),
}
MAX_ORDER = {"float32": 16384, "float64": 8192}
MAX_ORDER_SOLVE = 16384  # two integers a row in shared memory
CUDA_TYPES = {"float32": "float", "float64": "double"}
ITEM_BYTES = {"float32": 4, "float64": 8}
SIGNATURES = {
    "lu_panel": "pqiiipppp",
    "lu_rows": "pqiiiiiipii",
    "lu_triangle": "ppiiiii",
    "lu_order": "pppi",
    "lu_place": "pppi",
}
ROWS_THREADS, ROWS_COLUMNS = 128, 16  # a block of lu_rows takes 16 columns
ORDER_THREADS = 256
PLACE_SIDE, PLACE_THREADS = 32, 256
LIST_BYTES = 16 * WIDTH


@dataclass(frozen=True)
class PanelPlan:
    """How one panel is factored.

    Attributes
    ----------
    expression : str
        Kernel.
    way : int
        ALONE, CLUSTER or GRID: what the blocks exchange candidates through.
    ranks, threads : int
        Blocks that share a panel, and threads of each.
    """

    expression: str
    way: int
    ranks: int
    threads: int


def supported(dtype: str, n: int) -> bool:
    """Whether matrices of this type and order are factored here."""
    return n <= MAX_ORDER.get(dtype, 0)


def solves(dtype: str, n: int) -> bool:
    """Whether triangular solves of cuBLAS take a factor, ours or cuSOLVER's."""
    return dtype in CUDA_TYPES and n <= MAX_ORDER_SOLVE


def panel_width(dtype: str, rows: int) -> int:
    """Return the columns of the panels of a block column with this many rows."""
    return next(width for threads, each, width in SHAPES[dtype] if threads * each * MAX_RANKS >= rows)


def outer_width(n: int, ahead: bool = False) -> int:
    """Return the columns after which the rest of the matrix is brought up to date at once."""
    if ahead:
        return WIDTH if n <= 2048 else 128
    return n if n <= 2048 else 256


def plan_panel(dtype: str, rows: int, width: int, clusters: bool) -> PanelPlan:
    """Plan a panel of ``width`` columns."""
    kind = CUDA_TYPES[dtype]
    threads, each, wide = ALONE_SHAPE[dtype]
    if rows <= threads * each and width == wide:
        warps = -(-rows // (32 * each))
        return PanelPlan(f"lu_panel<{kind}, {each}, {wide}, {ALONE}>", ALONE, 1, 32 * warps)
    threads, each, _ = next(
        one for one in SHAPES[dtype] if one[2] == width and one[0] * one[1] * MAX_RANKS >= rows
    )
    way = CLUSTER if clusters else GRID
    return PanelPlan(f"lu_panel<{kind}, {each}, {width}, {way}>", way, -(-rows // (threads * each)), threads)


def _registers(shapes: tuple[tuple[int, int, int], ...]) -> list[tuple[int, int]]:
    """Rows a thread and columns, each pair once."""
    return list(dict.fromkeys((each, width) for _, each, width in shapes))


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that can be launched: (file, expressions, least architecture)."""
    found: list[tuple[Path, tuple[str, ...], int]] = []
    for way, least in ((GRID, 75), (CLUSTER, 90)):
        shapes = [(CUDA_TYPES[dtype], r, w) for dtype, all_ in SHAPES.items() for r, w in _registers(all_)]
        found.append((SOURCE, tuple(f"lu_panel<{kind}, {r}, {w}, {way}>" for kind, r, w in shapes), least))
    names = [f"lu_panel<{CUDA_TYPES[d]}, {r}, {w}, {ALONE}>" for d, (_, r, w) in ALONE_SHAPE.items()]
    names += [
        f"lu_rows<{CUDA_TYPES[d]}, {w}>" for d, all_ in SHAPES.items() for w in sorted({s[2] for s in all_})
    ]
    names += [f"lu_place<{kind}>" for kind in CUDA_TYPES.values()]
    names += [f"lu_triangle<{kind}, {upper}>" for kind in CUDA_TYPES.values() for upper in ("false", "true")]
    return [*found, (SOURCE, (*names, "lu_order"), 75)]


def all_instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return those of small orders too: what the room's build suite compiles."""
    from warpfront.dense import _lu_small_cuda as small

    return [*instantiations(), *small.instantiations()]


def subset() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return every kernel once: the largest instantiations take seconds to compile."""
    from warpfront.dense import _lu_small_cuda as small

    names = (
        "lu_panel<float, 1, 32, 0>",
        "lu_panel<double, 1, 32, 2>",
        "lu_rows<float, 32>",
        "lu_triangle<double, true>",
        "lu_order",
        "lu_place<float>",
    )
    return [(SOURCE, names, 75), (SOURCE, ("lu_panel<float, 1, 32, 1>",), 90), *small.instantiations()]


def cuda_load(expression: str, device: int) -> Any:
    """Return a loaded kernel; one place, so that a profile can stand in between."""
    from warpfront.backend import cuda

    return cuda.load(SOURCE, expression, SIGNATURES[expression.partition("<")[0]], device)


@dataclass(frozen=True)
class Step:
    """One step of the factorisation.

    Attributes
    ----------
    kind : str
        ``panel``, ``rows`` (interchanges, with ``triangle`` also the panel's inverse triangle), ``triangle``, ``product``,
        ``fork`` or ``join``.
    first, wide : int
        Columns of the panel or block column.
    begin, end : int
        Columns that the step changes.
    width : int
        Columns a list of moves is made for.
    lists : tuple of int
        Which lists of moves, the first and one past the last.
    triangle : bool
    hole : int
        ``rows``: columns from ``first`` on that are left out; 0: the panel's own.
    side : bool
        For the second stream.
    """

    kind: str
    first: int
    wide: int
    begin: int
    end: int
    width: int = WIDTH
    lists: tuple[int, int] = (0, 0)
    triangle: bool = False
    hole: int = 0
    side: bool = False


def steps(n: int, dtype: str, outer: int, ahead: bool = False) -> Iterator[Step]:
    """Yield the steps that factor a matrix of order n: block columns of panels, and what brings other columns up to date.

    With ``ahead`` the next block column is brought up to date first, and all others beside its factorisation: steps with
    ``side`` belong to a second stream. At ``fork`` that stream waits for what the first has been given so far, at
    ``join`` the first waits for the second.
    """
    made = 0
    for block in range(0, n, outer):
        end, begun = min(block + outer, n), made
        wide, width = end - block, panel_width(dtype, n - block)
        for first in range(block, end, width):
            columns = min(width, end - first)
            lists = (made, made + 1)
            made += 1
            yield Step("panel", first, columns, first, first + columns, width, lists)
            if wide > columns:
                yield Step("rows", first, columns, block, end, width, lists, True)
            if first + columns < end:
                yield Step("product", first, columns, first + columns, end)
        others, alone = partial(_others, block, wide, width, (begun, made)), wide <= width
        if not ahead:
            yield from others(0, n, wide, alone) if n > wide else ()
            continue
        following = min(end + outer, n)
        yield Step("fork", block, wide, block, end)
        yield Step("join", block, wide, block, end)
        if end < n:
            yield from others(block, following, wide, alone)
        if n > following - block:
            for step in others(0, n, following - block, alone):
                yield replace(step, side=True)
    if ahead:
        yield Step("join", 0, n, 0, n)


def _others(
    block: int, wide: int, width: int, lists: tuple[int, int], begin: int, end: int, hole: int, alone: bool
) -> Iterator[Step]:
    """Yield what brings the columns from ``begin`` to ``end``, without ``hole`` from the block column on, up to date."""
    right = block + hole
    yield Step("rows", block, wide, begin, end, width, lists, alone, hole)
    if right < end:
        if not alone:
            yield Step("triangle", block, wide, right, end)
        yield Step("product", block, wide, right, end)


def scratch(n: int, batch: int, dtype: str, outer: int) -> tuple[int, int]:
    """Return the integers that all lists of moves take, and the bytes of the mailboxes."""
    panels = sum(step.kind == "panel" for step in steps(n, dtype, outer))
    mailbox = 2 * MAX_RANKS * (WIDTH * ITEM_BYTES[dtype] + 16)
    return panels * batch * 4 * WIDTH, mailbox * batch


@dataclass(frozen=True)
class Side:
    """A second stream, and cuBLAS on it: what is not urgent goes there.

    Attributes
    ----------
    stream : int
    routines : Blas
    """

    stream: int
    routines: Any


def factor_on(
    lu: Any,
    pivots: Any,
    room: Any,
    routines: Any,
    stream: int,
    outer: int | None = None,
    side: Side | None = None,
) -> None:
    """Queue the factorisation of column-major matrices in place (``lu[b, j, i]`` is entry i, j of matrix b).

    Parameters
    ----------
    lu : cupy float [batch, n, n], contiguous
    pivots : cupy int32 [batch, n]
        Written, counted from 1.
    room : (moves, mailboxes, counters)
        CuPy arrays: `scratch` says how many; counters uint32 [panels * batch], 0.
    routines : Blas
        On ``stream``.
    stream : int
    outer : int, optional
        Columns of a block column; default `outer_width`.
    side : Side, optional
        Factor ahead: see `steps`. ``stream`` has waited for it at the end.
    """
    n, work = lu.shape[1], _Work(lu, pivots, room)
    for step in steps(n, lu.dtype.name, outer or outer_width(n), side is not None):
        if side is not None and step.kind in ("fork", "join"):
            follow(stream, side.stream) if step.kind == "fork" else follow(side.stream, stream)
        elif side is not None and step.side:
            work.queue(step, side.stream, side.routines)
        else:
            work.queue(step, stream, routines)


def follow(first: int, second: int) -> None:
    """Let the second stream wait for what the first has been given."""
    from cupy.cuda import runtime

    event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
    runtime.eventRecord(event, first)
    runtime.streamWaitEvent(second, event, 0)
    runtime.eventDestroy(event)


class _Work:
    """One factorisation's arrays, and the launches of its steps."""

    def __init__(self, lu: Any, pivots: Any, room: Any) -> None:
        from warpfront.backend import capability

        self.batch, self.n = lu.shape[:2]
        self.dtype, self.item, self.device = lu.dtype.name, lu.itemsize, lu.device.id
        self.kind, self.clusters = CUDA_TYPES[self.dtype], capability.probe(self.device).clusters
        self.at, self.stride, self.pivots = lu.data.ptr, self.n * self.n, pivots.data.ptr
        self.moves, self.box, self.counters = (part.data.ptr for part in room)

    def queue(self, step: Step, stream: int, routines: Any) -> None:
        corner = self.at + step.first * (self.n + 1) * self.item
        right, down = corner + (step.begin - step.first) * self.n * self.item, step.wide * self.item
        below, columns = self.n - step.first - step.wide, step.end - step.begin
        if step.kind == "panel":
            self._panel(step, stream)
        elif step.kind == "rows":
            self._rows(step, stream)
        elif step.kind == "triangle":
            for shift in range(0, self.batch * self.stride * self.item, self.stride * self.item):
                routines.solve_triangle(
                    False, step.wide, columns, corner + shift, self.n, right + shift, self.n
                )
        else:
            routines.subtract_product(
                below, columns, step.wide, corner + down, right, right + down, self.n, self.batch, self.stride
            )

    def _panel(self, step: Step, stream: int) -> None:
        made = plan_panel(self.dtype, self.n - step.first, step.width, self.clusters)
        kernel, first = cuda_load(made.expression, self.device), step.lists[0] * self.batch
        alone = range(self.batch) if made.way == GRID else (0,)  # resident blocks: one matrix at a time
        for b in alone:
            args = (
                self.at + b * self.stride * self.item, self.stride, self.n, step.first, step.wide,
                self.pivots + 4 * b * self.n, self.moves + (first + b) * LIST_BYTES, self.box,
                self.counters + 4 * (first + b),
            )  # fmt: skip
            kernel.launch(
                stream, (made.ranks, self.batch // len(alone)), made.threads, args,
                cooperative=made.way == GRID, cluster=made.ranks if made.way == CLUSTER else 1,
            )  # fmt: skip

    def _rows(self, step: Step, stream: int) -> None:
        hole = step.hole or step.wide
        args = (
            self.at, self.stride, self.n, step.first, step.wide, hole, step.begin, step.end,
            self.moves + step.lists[0] * self.batch * LIST_BYTES, step.lists[1] - step.lists[0], int(step.triangle),
        )  # fmt: skip
        grid = (-(-(step.end - step.begin - hole) // ROWS_COLUMNS), self.batch)
        kernel = cuda_load(f"lu_rows<{self.kind}, {step.width}>", self.device)
        kernel.launch(stream, grid, ROWS_THREADS, args)
