"""Breadth-first search: distances and parents from one source or several, on the CPU and on a GPU: `bfs`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import capability, cpu, dispatch
from warpfront.errors import InvalidValueError, NotSupportedError
from warpfront.graph import _bfs_cuda as plans
from warpfront.graph._bfs_host import Found, Options
from warpfront.graph.graph import Graph, as_graph
from warpfront.graph.result import BfsRecord, BfsResult

__all__ = ["PATHS", "VARIANTS", "bfs", "explain_bfs"]

DIRECTIONS = ("auto", "push", "pull")
# With fewer arcs a vertex than this there is little to save by pulling, and "auto" pushes throughout.
THIN = 6
# The ladder: what each variant adds to the one before it. The first five run level by level from the host.
VARIANTS = plans.VARIANTS
_PATH_OF = {name: name if name in ("persistent", "block") else "levels" for name in VARIANTS}


@dataclass(frozen=True)
class BfsProblem:
    """One search, as dispatch sees it."""

    n: int
    arcs: int
    can_pull: bool
    direction: str
    on_device: bool
    trace: bool = False
    dtype: str = "int32"


@dispatch.requires(
    cc_min=(7, 5),
    shared_bytes=lambda p: plans.block_bytes(p.n, p.arcs) + 1024,
    when=lambda p: plans.why_not_block(p.n, p.arcs, p.direction, p.trace),
)
def _block(graph: Graph, sources: NDArray[np.int64], options: Options, variant: str) -> Found:
    return _on_gpu(graph, sources, options, "block")


@dispatch.requires(cc_min=(7, 5), shared_bytes=24 * 1024, cooperative=True)
def _persistent(graph: Graph, sources: NDArray[np.int64], options: Options, variant: str) -> Found:
    return _on_gpu(graph, sources, options, "persistent")


@dispatch.requires(cc_min=(7, 5), shared_bytes=24 * 1024)
def _levels(graph: Graph, sources: NDArray[np.int64], options: Options, variant: str) -> Found:
    return _on_gpu(graph, sources, options, "direction" if variant == "auto" else variant)


def _on_gpu(graph: Graph, sources: NDArray[np.int64], options: Options, variant: str) -> Found:
    from warpfront.graph import _bfs_device

    return _bfs_device.search(graph, sources, options, variant)


@dispatch.requires(device="cpu")
def _cpu(graph: Graph, sources: NDArray[np.int64], options: Options, variant: str) -> Found:
    from warpfront.graph import _bfs_host

    return _bfs_host.search(graph, sources, options)


# In order of preference.
PATHS = (
    dispatch.Path("block", _block, "one block, graph and all state in its shared memory"),
    dispatch.Path(
        "persistent", _persistent, "one cooperative launch for all levels, edge ranges taken dynamically"
    ),
    dispatch.Path("levels", _levels, "one or two launches a level, decided on the host"),
    dispatch.Path("cpu", _cpu, "Numba kernels, direction optimising, threads on wide levels"),
)


def bfs(
    graph: Any,
    source: Any,
    *,
    max_depth: int | None = None,
    direction: str = "auto",
    alpha: float = 15.0,
    beta: float = 18.0,
    device: dispatch.Device = "auto",
    variant: str = "auto",
    trace: bool = False,
) -> BfsResult:
    """Search a graph breadth first.

    Parameters
    ----------
    graph : Graph, scipy.sparse matrix, networkx graph, or path
        Anything but a `Graph` is made into one first, at each call: keep the `Graph` to search it again.
    source : int or sequence of int
        Where the search starts. With several, distances are to the nearest.
    max_depth : int, optional
        Vertices further away stay unreached.
    direction : {"auto", "push", "pull"}
        ``"push"`` walks the arcs out of the frontier. ``"pull"`` lets every unreached vertex look for a
        parent in it, for which a directed graph needs its transpose (`Graph.with_transpose`). ``"auto"``
        changes between them by the two numbers below; without a transpose, or with fewer than six arcs a
        vertex, it pushes, and the record says so.
    alpha, beta : float
        Pull when the frontier's arcs, times alpha, exceed the arcs of the unreached vertices (and,
        times beta, the vertices); push again when the frontier, times beta, is smaller than the graph. Both
        greater than 0.
    device : {"auto", "cpu", "cuda"}
        ``"auto"``: where the graph is. ``"cuda"`` with a graph in host memory copies it to the GPU (once for
        each `Graph`) and the result back.
    variant : str
        ``"auto"``, or a step of the GPU's ladder: see `VARIANTS` and docs/bfs.md.
    trace : bool
        On a GPU: count examined arcs, duplicates and atomics in each level; costs time. The CPU counts what
        costs nothing.

    Returns
    -------
    BfsResult
        Same bits for the same graph and sources, whatever the device, the variant, the direction or the
        number of threads.

    Raises
    ------
    InvalidValueError
        A source that is no vertex (named), no source at all, an option out of its range, or
        ``direction="pull"`` without the transpose.
    NotSupportedError
        The device or variant asked for cannot run; the message names the requirement.

    Notes
    -----
    Direction optimisation: S. Beamer, K. Asanović, D. Patterson, SC 2012. The condition with beta on entering
    is ours: it keeps the last levels of long searches, where a few arcs outweigh the few that are left, from
    going through all vertices.
    """
    given = as_graph(graph)
    starts = _sources(source, given.n)
    asked = (max_depth, direction, alpha, beta, device, variant, trace)
    options, choice, through = _prepared(given, asked)
    here = given.to_device() if through else given
    inner = starts if here.order is None else _inner(here, starts)
    with cpu.Clock() as clock:
        found: Found = choice.path.run(here, inner, options, variant)
    if through:
        import cupy

        found = _moved(found, cupy.asnumpy)
    seconds = clock.seconds if math.isnan(found.seconds) else found.seconds
    times = (seconds, clock.jit_seconds)

    def record() -> BfsRecord:
        return _record(given, starts, options, choice, variant, direction, found, times)

    return BfsResult(found.distances, found.parents, record)


def _prepared(given: Graph, asked: tuple[Any, ...]) -> tuple[Options, dispatch.Choice, bool]:
    """Check the options and choose the path; kept with the graph: a small search takes no longer than this."""
    try:
        found: tuple[Options, dispatch.Choice, bool] | None = given._kept.get(asked)
    except TypeError:  # something that cannot be a key is no valid option either
        found = None
    if found is not None:
        return found
    max_depth, direction, alpha, beta, device, variant, trace = asked
    options = _options(given, max_depth, direction, alpha, beta, trace)
    policy = dispatch.Policy(device=device, path=_path(variant))
    on_device = given.on_device
    through = device == "cuda" and not on_device
    if variant != "auto" and device != "cuda" and not on_device:
        raise NotSupportedError(
            f'variant {variant!r} is a GPU kernel and the graph is in host memory; ask for device="cuda"'
        )
    problem = BfsProblem(given.n, given.arcs, given.can_pull, direction, on_device or through, trace)
    found = (options, _choice(problem, policy), through)
    given._kept[asked] = found
    return found


def explain_bfs(
    n: int,
    arcs: int,
    *,
    direction: str = "auto",
    device: dispatch.Device = "auto",
    variant: str = "auto",
    trace: bool = False,
    on_device: bool | None = None,
    capability_: capability.Capability | None = None,
) -> tuple[dispatch.Decision, ...]:
    """Return which path `bfs` takes for a graph of a size, and why not the others.

    Parameters
    ----------
    n, arcs : int
        Vertices and stored arcs.
    direction, device, variant, trace
        As `bfs`.
    on_device : bool, optional
        Where the graph is. Default: in device memory if there is a GPU and ``device`` is not ``"cpu"``.
    capability_ : Capability, optional
        Ask for another device than the one here.
    """
    if min(n, arcs) < 0:
        raise InvalidValueError(f"sizes must not be negative, got {n} vertices and {arcs} arcs")
    have = capability_ or (capability.probe(0) if capability.missing() is None else None)
    if on_device is None:
        on_device = device == "cuda" or (device != "cpu" and have is not None)
    problem = BfsProblem(n, arcs, True, direction, on_device, trace)
    policy = dispatch.Policy(device=device, path=_path(variant))
    return dispatch.explain(PATHS, problem, policy, have, capability.missing() if have is None else None)


def _choice(problem: BfsProblem, policy: dispatch.Policy) -> dispatch.Choice:
    absent = (
        capability.missing()
        if problem.on_device or policy.device == "cuda"
        else "the graph is in host memory"
    )
    have = capability.probe(0) if absent is None else None
    return dispatch.choose(PATHS, problem, policy, have, absent)


def _path(variant: str) -> str:
    if variant == "auto":
        return "auto"
    if variant not in _PATH_OF:
        raise InvalidValueError(f'variant must be "auto" or one of {", ".join(VARIANTS)}, got {variant!r}')
    return _PATH_OF[variant]


def _options(
    graph: Graph, max_depth: int | None, direction: str, alpha: float, beta: float, trace: bool
) -> Options:
    if direction not in DIRECTIONS:
        raise InvalidValueError(f"direction must be one of {', '.join(DIRECTIONS)}, got {direction!r}")
    if direction == "pull" and not graph.can_pull:
        raise InvalidValueError(
            'direction="pull" needs the arcs by head, which this directed graph does not have; '
            "graph.with_transpose() (on the command line --transpose) builds them"
        )
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0):
            raise InvalidValueError(f"{name} must be a number greater than 0, got {value!r}")
    if max_depth is not None and (not isinstance(max_depth, (int, np.integer)) or max_depth < 0):
        raise InvalidValueError(f"max_depth must be an integer >= 0 or None, got {max_depth!r}")
    if direction == "auto" and graph.arcs < THIN * graph.n:
        direction = "push"
    return Options(
        direction, float(alpha), float(beta), None if max_depth is None else int(max_depth), bool(trace)
    )


def _sources(source: Any, n: int) -> NDArray[np.int64]:
    """Check the sources; return them ascending, each once."""
    if type(source) is int and 0 <= source < n:  # the usual call: half its overhead was here
        return np.array([source], np.int64)
    found = np.atleast_1d(np.asarray(source.get() if hasattr(source, "get") else source))
    if found.size == 0:
        raise InvalidValueError("no source was given; a search starts at one vertex or more")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidValueError(f"source must be a vertex number or a sequence of them, got {source!r}")
    outside = np.flatnonzero((found < 0) | (found >= n))
    if outside.size:
        bad = found[outside[0]]
        there = f"there are 0 … {n - 1}" if n else "the graph has none"
        raise InvalidValueError(f"source {bad} is not a vertex of the graph: {there}")
    return np.unique(found).astype(np.int64)


def _inner(graph: Graph, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sources in the inner numbering of a renumbered graph, ascending."""
    if "rank" not in graph._kept:
        order = graph.order.get() if graph.on_device else graph.order
        rank = np.empty(graph.n, np.int64)
        rank[order] = np.arange(graph.n)
        graph._kept["rank"] = rank
    return np.sort(graph._kept["rank"][starts])


def _moved(found: Found, move: Any) -> Found:
    from dataclasses import replace

    return replace(found, distances=move(found.distances), parents=move(found.parents))


def _record(
    graph: Graph,
    starts: NDArray[np.int64],
    options: Options,
    choice: dispatch.Choice,
    variant: str,
    direction: str,
    found: Found,
    times: tuple[float, float],
) -> BfsRecord:
    path = choice.path.name
    return BfsRecord(
        n=graph.n,
        arcs=graph.arcs,
        directed=graph.directed,
        sources=tuple(int(s) for s in starts[:16]),
        n_sources=int(starts.size),
        device="cpu" if path == "cpu" else "cuda",
        path=path,
        variant=("direction" if path == "levels" else path) if variant == "auto" else variant,
        reason=choice.reason,
        direction=direction,
        pull=_pull_said(graph, direction, path, variant, found),
        alpha=options.alpha,
        beta=options.beta,
        max_depth=options.max_depth,
        order="natural" if graph.order is None else "degree",
        reached=found.reached,
        depth=found.levels.depth if found.depth is None else found.depth,
        edges=found.reached_arcs if graph.directed else (found.reached_arcs + 1) // 2,
        threads=found.workers,
        levels=found.levels,
        seconds=times[0],
        jit_seconds=times[1],
    )


def _pull_said(graph: Graph, direction: str, path: str, variant: str, found: Found) -> str:
    """Say whether levels were pulled, and if not, why."""
    if found.levels.pulled:
        return "used"
    if direction == "push":
        return 'off: direction="push" was asked for'
    if not graph.can_pull:
        return "off: the graph is directed and its transpose was not given"
    if path == "block" or variant in plans.PUSH_ONLY:
        return f"off: {path if variant == 'auto' else variant} only pushes"
    if direction == "auto" and graph.arcs < THIN * graph.n:
        return f"off: fewer than {THIN} arcs a vertex, little to save"
    return "not needed"
