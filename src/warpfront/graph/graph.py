"""`Graph`: adjacency in compressed rows, made once from whatever the caller has, and searched many times."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warpfront.backend import arrays
from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["Graph", "as_graph"]

MAX_VERTICES = 2**31 - 2
_INT32 = np.dtype(np.int32)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph, immutable. Make one with `from_edges`, `from_csr`, `from_scipy`, `from_networkx`, `read_graph`.

    Attributes
    ----------
    ptr : int64[n + 1]
        Where each vertex's arcs start. NumPy, or CuPy for a graph in device memory.
    ind : int32[arcs]
        Heads, ascending and without repetition within each row. An undirected edge is two arcs.
    directed : bool
        Whether arcs have a direction. False means that every arc has its reverse.
    in_ptr, in_ind : arrays or None
        The same by head: needed to pull. The arrays above for an undirected graph; for a directed one what
        `with_transpose` built or was given, else ``None``.
    order : int32[n] or None
        ``order[k]`` is the caller's number of vertex k, for a graph renumbered by `by_degree`.
    input_edges, loops, repeated : int
        Edges given; how many of them were loops or repetitions and were left out (they change no distance).
    index_dtype : dtype
        Type of the vertex numbers that came in, and of the parents that go out.
    """

    ptr: Any
    ind: Any
    directed: bool
    in_ptr: Any = None
    in_ind: Any = None
    order: Any = None
    input_edges: int = 0
    loops: int = 0
    repeated: int = 0
    index_dtype: Any = _INT32
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def n(self) -> int:
        """Number of vertices."""
        return int(self.ptr.shape[0]) - 1

    @property
    def arcs(self) -> int:
        """Number of stored arcs: two for each undirected edge that is not a loop."""
        return int(self.ind.shape[0])

    @property
    def on_device(self) -> bool:
        """Whether the arrays are in GPU memory."""
        return arrays.is_device_array(self.ptr)

    @property
    def can_pull(self) -> bool:
        """Whether arcs are known by head as well."""
        return self.in_ptr is not None

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        place = ", on the GPU" if self.on_device else ""
        return f"Graph({self.n} vertices, {self.arcs} arcs, {kind}{place})"

    def degrees(self) -> Any:
        """Return the number of arcs that leave each vertex, int64[n]."""
        return self.ptr[1:] - self.ptr[:-1]

    def with_transpose(self, ptr: Any = None, ind: Any = None) -> Graph:
        """Return the graph with its arcs by head, so that a search may pull.

        Parameters
        ----------
        ptr, ind : arrays, optional
            The transpose, if the caller has it: as many arcs, rows ascending. Default: it is built.

        Raises
        ------
        InvalidValueError
            The arrays given are not the transpose's shape, or only one of them was given.
        """
        if self.can_pull and ptr is None and ind is None:
            return self
        if (ptr is None) != (ind is None):
            raise InvalidValueError("give both ptr and ind of the transpose, or neither")
        if ptr is None:
            if self.on_device:
                from warpfront.graph import _device_graph

                ptr, ind = _device_graph.transpose(self.ptr, self.ind)
            else:
                ptr, ind = _transposed(self.ptr, self.ind)
            return _replace(self, in_ptr=ptr, in_ind=ind)
        given = Graph.from_csr(ptr, ind, self.n, directed=True)
        if given.arcs != self.arcs:
            raise InvalidValueError(f"the transpose has {given.arcs} arcs, the graph {self.arcs}")
        return _replace(self, in_ptr=given.ptr, in_ind=given.ind)

    def by_degree(self) -> Graph:
        """Return the same graph renumbered inside, vertices of many arcs first (ties: smaller number first).

        Searches still take and return the caller's numbers; among possible parents they take the first in
        *this* order. On graphs of very uneven degree a pull then finds its parent sooner, and what is read
        most often lies together.
        """
        if self.order is not None:
            return self
        if self.on_device:
            from warpfront.graph import _device_graph

            return _device_graph.by_degree(self)
        degree = self.degrees()
        order = np.argsort(-degree, kind="stable").astype(np.int32)
        rank = np.empty(self.n, np.int32)
        rank[order] = np.arange(self.n, dtype=np.int32)
        ptr, ind = _renumbered(self.ptr, self.ind, order, rank)
        if not self.directed:
            return _replace(self, ptr=ptr, ind=ind, in_ptr=ptr, in_ind=ind, order=order)
        into = _renumbered(self.in_ptr, self.in_ind, order, rank) if self.can_pull else (None, None)
        return _replace(self, ptr=ptr, ind=ind, in_ptr=into[0], in_ind=into[1], order=order)

    def to_device(self) -> Graph:
        """Return the graph with its arrays in GPU memory; kept, so that a second call copies nothing."""
        if self.on_device:
            return self
        from warpfront.graph import _device_graph

        if "device" not in self._kept:
            self._kept["device"] = _device_graph.upload(self)
        found: Graph = self._kept["device"]
        return found

    @classmethod
    def from_edges(cls, tail: Any, head: Any, n: int | None = None, *, directed: bool = False) -> Graph:
        """Make a graph from its edges.

        Parameters
        ----------
        tail, head : int[edges]
            Vertex numbers from 0. In device memory the graph is built there.
        n : int, optional
            Number of vertices. Default: one more than the largest number.
        directed : bool

        Raises
        ------
        InvalidValueError
            Not integers, unequal lengths, or a vertex outside 0 … n - 1; the message names it.
        """
        if arrays.is_device_array(tail):
            from warpfront.graph import _device_graph

            return _device_graph.from_edges(tail, head, n, directed)
        tail, head = _vertices(tail, "tail"), _vertices(head, "head")
        if tail.shape != head.shape:
            raise InvalidValueError(
                f"tail has {tail.size} entries and head {head.size}; an edge has one of each"
            )
        if n is None:
            n = 1 + max((int(a.max()) for a in (tail, head) if a.size), default=-1)
        n = _size(n)
        for name, a in (("tail", tail), ("head", head)):
            _check_range(a, n, name)
        kept = np.result_type(tail.dtype, head.dtype)
        tail, head = tail.astype(np.int32, copy=False), head.astype(np.int32, copy=False)
        ptr, ind, arcs = _sorted_rows(tail, head, n, both=not directed)
        loops = int(np.count_nonzero(tail == head))
        repeated = (arcs - ind.size) // (1 if directed else 2)
        index = np.dtype(np.int64 if kept.itemsize == 8 else np.int32)
        counts = {"input_edges": tail.size, "loops": loops, "repeated": repeated}
        into = (None, None) if directed else (ptr, ind)
        return cls(ptr, ind, directed, into[0], into[1], index_dtype=index, **counts)

    @classmethod
    def from_csr(cls, ptr: Any, ind: Any, n: int | None = None, *, directed: bool | None = None) -> Graph:
        """Make a graph from compressed rows. Sorted rows without repetition are used as they are, not copied.

        Parameters
        ----------
        ptr : int[n + 1]
            Offsets, from 0 to the number of arcs.
        ind : int[arcs]
            Heads.
        n : int, optional
            Checked against ``ptr``.
        directed : bool, optional
            Default: found out. False asks for arcs that all have their reverse, and is checked.

        Raises
        ------
        InvalidValueError
            Offsets that decrease or do not fit, a head outside 0 … n - 1, or ``directed=False`` and an arc
            without its reverse.
        """
        if arrays.is_device_array(ptr):
            from warpfront.graph import _device_graph

            return _device_graph.from_csr(ptr, ind, directed)
        from warpfront.graph import _build_kernels as kernels

        ptr, ind = _vertices(ptr, "ptr"), _vertices(ind, "ind")
        if ptr.size < 1:
            raise InvalidValueError("ptr must have one entry more than there are vertices, it is empty")
        size = _size(ptr.size - 1)
        if n is not None and n != size:
            raise InvalidValueError(f"ptr has {ptr.size} entries, which is not n + 1 for n = {n}")
        offsets = np.ascontiguousarray(ptr, dtype=np.int64)
        if offsets[0] != 0 or offsets[-1] != ind.size:
            raise InvalidValueError(
                f"ptr must run from 0 to the number of arcs, {ind.size}; it runs from {offsets[0]} to {offsets[-1]}"
            )
        index = np.dtype(np.int64 if ind.dtype.itemsize == 8 else np.int32)
        found = np.zeros(3, np.int64)
        kernels.check_rows(offsets, ind, size, found)
        if found[0] == kernels.BAD_POINTER:
            u = int(found[1])
            raise InvalidValueError(
                f"ptr decreases or leaves the arcs after vertex {u}: {offsets[u]}, {offsets[u + 1]}"
            )
        if found[0] == kernels.OUT_OF_RANGE:
            raise InvalidValueError(
                f"ind[{found[1]}] is vertex {ind[found[1]]}, and there are 0 … {size - 1}"
            )
        heads = np.ascontiguousarray(ind, dtype=np.int32)
        if not found[2]:
            # Rows to be sorted: the graph is made from its arcs, each kept once.
            tail = np.repeat(np.arange(size, dtype=np.int32), np.diff(offsets))
            offsets, heads, _ = _sorted_rows(tail, heads, size, both=False, keep_loops=True)
        if directed is not True:
            symmetric = bool(kernels.mirrored(offsets, heads))
            if directed is False and not symmetric:
                raise InvalidValueError(
                    "directed=False, and there is an arc without its reverse; see from_edges"
                )
            directed = not symmetric
        into = (None, None) if directed else (offsets, heads)
        counts = {"input_edges": ind.size, "repeated": ind.size - heads.size}
        return cls(offsets, heads, directed, into[0], into[1], index_dtype=index, **counts)

    @classmethod
    def from_scipy(cls, matrix: Any, *, directed: bool | None = None) -> Graph:
        """Make a graph from a square sparse matrix: an arc (i, j) for each stored entry, explicit zeros included.

        Parameters
        ----------
        matrix : scipy.sparse array or matrix, n x n
            CSR in canonical form is used without a copy of its indices; other formats are converted.
        directed : bool, optional
            As `from_csr`.
        """
        shape: tuple[int, ...] = getattr(matrix, "shape", ())
        if not hasattr(matrix, "tocsr") or len(shape) != 2:
            raise InvalidValueError(f"a scipy.sparse matrix is needed, got {type(matrix).__name__}")
        if shape[0] != shape[1]:
            raise InvalidValueError(f"an adjacency matrix is square, got {shape[0]} x {shape[1]}")
        rows = matrix.tocsr()
        return cls.from_csr(rows.indptr, rows.indices, shape[0], directed=directed)

    @classmethod
    def from_networkx(cls, graph: Any) -> Graph:
        """Make a graph from a networkx graph whose nodes are the numbers 0 … n - 1 (``convert_node_labels_to_integers``)."""
        if not (hasattr(graph, "is_directed") and hasattr(graph, "edges") and hasattr(graph, "nodes")):
            raise InvalidValueError(f"a networkx graph is needed, got {type(graph).__name__}")
        names = list(graph.nodes)
        if any(not isinstance(v, (int, np.integer)) for v in names) or sorted(names) != list(
            range(len(names))
        ):
            raise InvalidValueError(
                "the nodes must be the numbers 0 … n - 1; networkx.convert_node_labels_to_integers makes them so"
            )
        pairs = np.array([(e[0], e[1]) for e in graph.edges], np.int64).reshape(-1, 2)
        tail, head = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
        return cls.from_edges(tail, head, len(names), directed=graph.is_directed())


def as_graph(graph: Any) -> Graph:
    """Return a `Graph` from one, from a sparse matrix, a networkx graph, or the path of a file."""
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, (str, os.PathLike)):
        from warpfront.graph.loaders import read_graph

        return read_graph(graph)
    if hasattr(graph, "tocsr"):
        return Graph.from_scipy(graph)
    if hasattr(graph, "is_directed") and hasattr(graph, "nodes"):
        return Graph.from_networkx(graph)
    raise InvalidValueError(
        f"a Graph, scipy.sparse matrix, networkx graph or file name is needed, got {type(graph).__name__}"
    )


def _replace(graph: Graph, **changes: Any) -> Graph:
    from dataclasses import replace

    return replace(graph, **changes, _kept={})


def _vertices(a: Any, name: str) -> NDArray[Any]:
    found = np.asarray(a)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise InvalidValueError(
            f"{name} must be a vector of integers, got {found.dtype} of shape {found.shape}"
        )
    return np.ascontiguousarray(found) if found.size else np.empty(0, np.int32)


def _size(n: Any) -> int:
    if not isinstance(n, (int, np.integer)) or n < 0:
        raise InvalidValueError(f"the number of vertices must be an integer >= 0, got {n!r}")
    if n > MAX_VERTICES:
        raise NotSupportedError(f"vertices are numbered in 32 bits inside: at most {MAX_VERTICES}, got {n}")
    return int(n)


def _check_range(a: NDArray[Any], n: int, name: str) -> None:
    if a.size and (int(a.min()) < 0 or int(a.max()) >= n):
        k = int(np.flatnonzero((a < 0) | (a >= n))[0])
        raise InvalidValueError(f"{name}[{k}] is vertex {a[k]}, and there are 0 … {n - 1}")


def _sorted_rows(
    tail: NDArray[np.int32], head: NDArray[np.int32], n: int, *, both: bool, keep_loops: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
    """Return offsets, sorted heads without repetition, and the number of arcs before repetitions were dropped."""
    from warpfront.graph import _build_kernels as kernels

    if keep_loops:
        by_head = np.zeros(n + 1, np.int64)
        by_head[1:] = np.bincount(head, minlength=n)
        by_head = np.cumsum(by_head)
        tails = tail[np.argsort(head, kind="stable")]
    else:
        by_head = np.zeros(n + 1, np.int64)
        kernels.count_arcs(tail, head, both, by_head)
        by_head = np.cumsum(by_head)
        tails = np.empty(int(by_head[-1]), np.int32)
        kernels.rows_by_head(tail, head, both, by_head[:-1].copy(), tails)
    ptr = np.zeros(n + 1, np.int64)
    ptr[1:] = np.cumsum(np.bincount(tails, minlength=n)) if n else 0
    ind = np.empty(tails.size, np.int32)
    kernels.rows_by_tail(by_head, tails, ptr[:-1].copy(), ind)
    arcs = ind.size
    new_ptr = np.empty(n + 1, np.int64)
    left = kernels.compress_rows(ptr, ind, new_ptr)
    return new_ptr, ind if left == arcs else ind[:left].copy(), arcs


def _transposed(
    ptr: NDArray[np.int64], ind: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    from warpfront.graph import _build_kernels as kernels

    n = ptr.size - 1
    new_ptr = np.zeros(n + 1, np.int64)
    new_ptr[1:] = np.cumsum(np.bincount(ind, minlength=n)) if n else 0
    out = np.empty(ind.size, np.int32)
    kernels.transpose_rows(ptr, ind, new_ptr[:-1].copy(), out)
    return new_ptr, out


def _renumbered(
    ptr: NDArray[np.int64], ind: NDArray[np.int32], order: NDArray[np.int32], rank: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    from warpfront.graph import _build_kernels as kernels

    new_ptr, out = np.empty(ptr.size, np.int64), np.empty(ind.size, np.int32)
    kernels.renumber(ptr, ind, order, rank, new_ptr, out)
    return _transposed(*_transposed(new_ptr, out))  # twice: rows come out sorted
