"""`read_graph`: a graph from a file, by suffix."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from warpfront.errors import FormatError, InvalidValueError
from warpfront.graph.graph import Graph

__all__ = ["GRAPH_SUFFIXES", "made_graph", "read_graph"]

_EDGE_LISTS = (".el", ".edges", ".txt", ".csv", ".tsv")
_MATRICES = (".mtx", ".mm", ".rb", ".hb", ".rua", ".rsa", ".npz")
GRAPH_SUFFIXES = (*_EDGE_LISTS, *_MATRICES)
_MATRIX_MARKET = (".mtx", ".mm")


def read_graph(path: str | os.PathLike[str], *, directed: bool | None = None) -> Graph:
    """Read a graph.

    Parameters
    ----------
    path : path
        ``.mtx`` (coordinate; numbers from 1, as the format has them) and the other matrix files of
        `warpfront.formats.read_matrix`: an arc for each entry. ``.el``, ``.edges``, ``.txt``, ``.csv``,
        ``.tsv``: a pair of vertex numbers from 0 on each line, separated by blanks, tabs or commas; further
        columns (weights) are ignored, lines that start with ``#`` or ``%`` are comments. Any of these but
        ``.npz`` also with ``.gz``.
    directed : bool, optional
        Default: a Matrix Market file is undirected when its banner says symmetric and directed when it says
        general; an edge list is undirected; other matrices are looked at.

    Raises
    ------
    InvalidValueError
        Unknown suffix, no such file, not square.
    FormatError
        Malformed, with file and line.
    """
    target = Path(path)
    name = target.name.lower().removesuffix(".gz")
    if name.endswith(_EDGE_LISTS):
        tail, head = _read_edge_list(target)
        return Graph.from_edges(tail, head, directed=bool(directed))
    if name.endswith(_MATRIX_MARKET):
        from warpfront.formats import read_matrix_market

        found = read_matrix_market(target)
        if found.format != "coordinate":
            raise InvalidValueError(f"{target}: a graph is a coordinate file, this one is a dense array")
        rows, columns = found.shape
        if rows != columns:
            raise InvalidValueError(
                f"{target}: an adjacency matrix is square, this one is {rows} x {columns}"
            )
        row, column = found.matrix.coords
        general = found.symmetry == "general"
        stored = (
            slice(None) if general else slice(found.n_stored)
        )  # the mirrored half comes after the stored one
        wanted = general if directed is None else directed
        if wanted and not general:
            stored = slice(None)
        return Graph.from_edges(row[stored], column[stored], rows, directed=wanted)
    if name.endswith(_MATRICES):
        from scipy import sparse

        from warpfront.formats import read_matrix

        matrix = read_matrix(target)
        if not sparse.issparse(matrix):
            raise InvalidValueError(f"{target}: a graph is a sparse matrix, this one is dense")
        return Graph.from_scipy(matrix, directed=directed)
    raise InvalidValueError(
        f"{target}: unknown suffix; allowed are {', '.join(GRAPH_SUFFIXES)} (all but .npz also .gz)"
    )


def made_graph(text: str, *, seed: int = 1, device: str = "cpu") -> Graph:
    """Make the graph that a word describes.

    Parameters
    ----------
    text : str
        ``kronecker:SCALE[:EDGE_FACTOR]``, ``uniform:VERTICES:EDGES`` or ``grid:ROWS:COLUMNS[:KEEP]``.
    seed, device
        As the generators.
    """
    from warpfront.graph import generators

    kind, *words = text.split(":")
    numbers = {"kronecker": (1, 2), "uniform": (2, 2), "grid": (2, 3)}
    if kind not in numbers:
        raise InvalidValueError(f"{text!r}: graphs that can be made are {', '.join(numbers)}")
    least, most = numbers[kind]
    try:
        whole = [int(word) for word in words[:2]]
        rest = [float(word) for word in words[2:]]
    except ValueError:
        raise InvalidValueError(f"{text!r}: a number is expected after each colon") from None
    if not least <= len(words) <= most:
        raise InvalidValueError(f"{text!r}: {kind} takes {least} to {most} numbers, got {len(words)}")
    if kind == "grid":
        return generators.grid(*whole, keep=rest[0] if rest else 1.0, seed=seed, device=device)
    make = generators.kronecker if kind == "kronecker" else generators.uniform
    return make(*whole, seed=seed, device=device)


def _read_edge_list(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.exists():
        raise InvalidValueError(f"{path}: no such file")
    if not path.is_file():
        raise InvalidValueError(f"{path}: not a regular file")
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")
    except OSError as error:
        raise InvalidValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error):
        raise FormatError(f"{path}: damaged gzip file") from None
    lines = text.splitlines()
    pairs = np.empty((len(lines), 2), np.int64)
    count = 0
    for k, line in enumerate(lines):
        words = line.replace(",", " ").split()
        if not words or words[0][0] in "#%":
            continue
        try:
            u, v = int(words[0]), int(words[1])
        except (ValueError, IndexError):
            raise FormatError(
                f"{path}:{k + 1}: expected two vertex numbers, found {line.strip()[:40]!r}"
            ) from None
        if not (0 <= u < 2**31 - 1 and 0 <= v < 2**31 - 1):
            raise FormatError(
                f"{path}:{k + 1}: vertex {u if not 0 <= u < 2**31 - 1 else v} is outside 0 … 2^31 - 2"
            )
        pairs[count] = u, v
        count += 1
    return np.ascontiguousarray(pairs[:count, 0]), np.ascontiguousarray(pairs[:count, 1])
