"""Graphs: breadth-first search, generators, files, and the check of a result."""

from warpfront.graph.bfs import VARIANTS, bfs, explain_bfs
from warpfront.graph.generators import grid, kronecker, kronecker_edges, uniform, uniform_edges
from warpfront.graph.graph import Graph
from warpfront.graph.loaders import read_graph
from warpfront.graph.plots import plot_levels
from warpfront.graph.result import BfsLevel, BfsRecord, BfsResult
from warpfront.graph.teps import TepsRecord, teps
from warpfront.graph.verify import Verification, verify

__all__ = [
    "VARIANTS",
    "BfsLevel",
    "BfsRecord",
    "BfsResult",
    "Graph",
    "TepsRecord",
    "Verification",
    "bfs",
    "explain_bfs",
    "grid",
    "kronecker",
    "kronecker_edges",
    "plot_levels",
    "read_graph",
    "teps",
    "uniform",
    "uniform_edges",
    "verify",
]
