"""Graphs made from a rule and a seed: Kronecker (Graph500), uniform, grid. The same graph on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError
from warpfront.graph.graph import MAX_VERTICES, Graph

__all__ = ["grid", "kronecker", "kronecker_edges", "uniform", "uniform_edges"]


def kronecker(scale: int, edge_factor: int = 16, *, seed: int = 1, device: str = "cpu") -> Graph:
    """Return the undirected graph of the Graph500 benchmark's generator.

    Parameters
    ----------
    scale : int
        The graph has 2^scale vertices.
    edge_factor : int
        Edges for each vertex before loops and repetitions are dropped.
    seed : int
        Any 64-bit number.
    device : {"cpu", "cuda"}
        Where the graph is made and stays.

    Notes
    -----
    Initiator (0.57, 0.19, 0.19, 0.05), vertices permuted by a bijection of the seed (graph500.org,
    specification, "Generating the Edge List"). Edge k is a function of seed and k alone.
    """
    tail, head = kronecker_edges(scale, edge_factor, seed=seed, device=device)
    return Graph.from_edges(tail, head, 1 << scale)


def kronecker_edges(
    scale: int, edge_factor: int = 16, *, seed: int = 1, device: str = "cpu"
) -> tuple[Any, Any]:
    """Return the edge list of `kronecker`, tails and heads int32[edge_factor * 2^scale], loops and repetitions included."""
    _integer(scale, "scale", 0, 30)
    _integer(edge_factor, "edge_factor", 0, 1 << 20)
    return _edges("kronecker_edges", edge_factor << scale, scale, seed, device)


def uniform(n: int, edges: int, *, seed: int = 1, device: str = "cpu") -> Graph:
    """Return an undirected graph of ``edges`` edges, both ends drawn uniformly from 0 … n - 1.

    Parameters
    ----------
    n, edges : int
        Loops and repetitions among the drawn edges are dropped.
    seed, device
        As `kronecker`.
    """
    tail, head = uniform_edges(n, edges, seed=seed, device=device)
    return Graph.from_edges(tail, head, n)


def uniform_edges(n: int, edges: int, *, seed: int = 1, device: str = "cpu") -> tuple[Any, Any]:
    """Return the edge list of `uniform`."""
    _integer(n, "n", 0, MAX_VERTICES)
    _integer(edges, "edges", 0, 1 << 40)
    if edges and not n:
        raise InvalidValueError("a graph without vertices has no edges; edges must be 0 where n is 0")
    return _edges("uniform_edges", edges, n, seed, device)


def grid(rows: int, columns: int, *, keep: float = 1.0, seed: int = 1, device: str = "cpu") -> Graph:
    """Return a grid of streets: each crossing joined to its neighbours left, right, above and below.

    Parameters
    ----------
    rows, columns : int
        Vertex ``r * columns + c`` is the crossing of row r and column c.
    keep : float
        Share of the streets that stay, 0 to 1, drawn by the seed. Below about 0.5 the grid falls apart.
    seed, device
        As `kronecker`.
    """
    _integer(rows, "rows", 0, MAX_VERTICES)
    _integer(columns, "columns", 0, MAX_VERTICES)
    _integer(rows * columns, "rows * columns", 0, MAX_VERTICES)
    if not 0.0 <= keep <= 1.0:
        raise InvalidValueError(f"keep is a share, 0 to 1, got {keep!r}")
    xp: Any = np
    if _on_gpu(device):
        import cupy

        xp = cupy
    vertex = xp.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    across = vertex[:, :-1].ravel() if columns else vertex.ravel()
    down = vertex[:-1, :].ravel() if rows else vertex.ravel()
    tail = xp.concatenate([across, down])
    head = xp.concatenate([across + np.int32(1), down + np.int32(columns)])
    if keep < 1.0:
        kept = _grid_keep(tail.size, round(keep * 2**32), seed, device)
        tail, head = tail[kept], head[kept]
    return Graph.from_edges(tail, head, rows * columns)


def _edges(kind: str, count: int, parameter: int, seed: int, device: str) -> tuple[Any, Any]:
    seed = _seed(seed)
    if _on_gpu(device):
        from warpfront.graph import _device_graph

        return _device_graph.generate(kind, count, parameter, seed)
    from warpfront.backend.settings import threads
    from warpfront.graph import _generate_kernels as kernels
    from warpfront.graph._threads import share_out

    tail, head = np.empty(count, np.int32), np.empty(count, np.int32)
    kernel = getattr(kernels, kind)
    pieces = -(-count // (1 << 18))
    what = parameter if kind == "kronecker_edges" else np.uint64(parameter)

    def part(k: int) -> None:
        low, high = count * k // pieces, count * (k + 1) // pieces
        kernel(tail[low:high], head[low:high], np.uint64(low), what, np.uint64(seed))

    if pieces:
        share_out(threads(), pieces, part)
    return tail, head


def _grid_keep(count: int, threshold: int, seed: int, device: str) -> Any:
    if device == "cuda":
        from warpfront.graph import _device_graph

        return _device_graph.grid_keep(count, threshold, _seed(seed))
    from warpfront.graph import _generate_kernels as kernels

    kept = np.empty(count, np.bool_)
    kernels.grid_keep(kept, np.uint64(0), np.uint64(threshold), np.uint64(_seed(seed)))
    return kept


def _on_gpu(device: str) -> bool:
    if device not in ("cpu", "cuda"):
        raise InvalidValueError(f'device must be "cpu" or "cuda", got {device!r}')
    if device == "cpu":
        return False
    from warpfront.backend import capability
    from warpfront.errors import NotSupportedError

    reason = capability.missing()
    if reason is not None:
        raise NotSupportedError(reason)
    return True


def _integer(value: Any, name: str, low: int, high: int) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidValueError(f"{name} must be an integer from {low} to {high}, got {value!r}")


def _seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)):
        raise InvalidValueError(f"seed must be an integer, got {seed!r}")
    return int(seed) % 2**64
