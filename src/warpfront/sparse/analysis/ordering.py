"""Fill-reducing ordering: candidates, their predicted cost, and the choice among them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warpfront.errors import InvalidValueError
from warpfront.report import OrderingCandidate
from warpfront.sparse.analysis.amd import amd
from warpfront.sparse.analysis.dissection import level_set, metis, multilevel
from warpfront.sparse.analysis.etree import EliminationTree, elimination_tree
from warpfront.sparse.analysis.graph import compress, expand

__all__ = ["METHODS", "Ordering", "choose"]

METHODS = ("auto", "amd", "multilevel", "metis", "level_set", "natural", "user")

# Cost model of `auto`: one numeric factorisation, and the orderings themselves. Fixed figures, not clocks, so that
# the choice is the same in every run. Seconds a flop, an entry of L, a level, a column of the longest path: of two cores,
# and of an H200, fitted to factorisations and solves of eight systems in four orders each. There columns of a path follow
# one another at the speed of one warp, and a level is a hand-over.
_FACTOR_SECONDS = {"cpu": (1 / 40e9, 6e-9, 5e-6, 0.0), "cuda": (1 / 25e12, 5e-11, 10e-6, 0.8e-6)}
# An ordering is tried when its cost is below what it may still save, as many factorisations as are expected: the most that
# nested dissection has saved is about two thirds of what minimum degree costs, on long thin patterns more.
_POSSIBLE_SAVING, _LEAST_SAVING = 2 / 3, 1 / 8
_FACTORISATIONS = {"cpu": 1, "cuda": 200}
# method -> seconds per vertex, seconds per adjacency entry; of hosts of GPUs, which have more cores
_ORDERING_SECONDS = {"level_set": (0.5e-6, 0.025e-6), "multilevel": (2e-6, 0.3e-6)}
_MORE_CORES = {"cpu": 1.0, "cuda": 0.5}

_Graph = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32]]
_Orderer = Callable[[int, npt.NDArray[np.int64], npt.NDArray[np.int32], Any], npt.NDArray[np.int32]]


@dataclass(frozen=True, eq=False)
class Ordering:
    """A postordered elimination order and how it came about.

    Attributes
    ----------
    perm : int32[n]
        ``perm[k]`` is the original index of the k-th pivot; rows of one group are next to each other.
    parent : int32[n]
        Elimination tree in the permuted numbering, -1 at a root.
    counts : int64[n]
        Entries of each column of L, with the diagonal.
    method : str
        Ordering used: never ``"auto"``.
    reason : str
        Why, in words.
    candidates : tuple of OrderingCandidate
        Every ordering that was computed, in the order tried.
    """

    perm: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    method: str
    reason: str
    candidates: tuple[OrderingCandidate, ...]


def choose(
    n: int,
    xadj: npt.NDArray[np.int64],
    adj: npt.NDArray[np.int32],
    method: str = "auto",
    user_perm: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
    work: float = 1.0,
    target: str = "cpu",
) -> Ordering:
    """Order a symmetric pattern.

    Parameters
    ----------
    n, xadj, adj
        Symmetric pattern: both triangles, no diagonal, sorted; not modified.
    method : {"auto", "amd", "multilevel", "metis", "level_set", "natural", "user"}
        ``auto`` always tries minimum degree, then level sets and multilevel nested dissection where the time they
        could save in the factorisations to come pays for them, and keeps the order with the least predicted time
        (flops, entries of L, depth of the supernodal schedule, on a GPU columns of the longest path). The choice depends
        on the pattern alone.
    user_perm : integer[n], optional
        With ``method="user"`` only: ``user_perm[k]`` is the k-th pivot. It is postordered, which changes
        neither the fill nor the flops. With ``groups``, a group stands where its first row does.
    groups : int32[n], optional
        Group number of each row, every number from 0 up used. The rows of a group are eliminated one after
        the other in ascending order, and each must be a neighbour of the next.
    work : float
        Cost of the factorisation as a multiple of LL^T's on this pattern: what an ordering may cost.
    target : {"cpu", "cuda"}
        Where the factorisation will run. On a GPU depth costs more, flops less, and many factorisations are expected.

    Returns
    -------
    Ordering

    Raises
    ------
    InvalidValueError
        Unknown method; ``user_perm`` missing, not wanted, or no permutation (the first bad entry is named);
        ``groups`` malformed or a group whose rows are not neighbours.
    NotSupportedError, OrderingFailedError
        ``method="metis"``, and pymetis is missing or METIS fails.
    """
    if method not in METHODS:
        raise InvalidValueError(f"ordering method must be one of {', '.join(METHODS)}; got {method!r}")
    if (user_perm is not None) != (method == "user"):
        raise InvalidValueError(
            f"method 'user' and user_perm go together; got method {method!r}, {user_perm=}"
        )
    search = _Search(n, xadj, adj, groups)
    search.work, search.target = work, target
    if method == "auto":
        reason = _search_all(search)
    elif method == "user":
        checked = _checked_permutation(n, user_perm)
        search.attempt("user", lambda *_: search.grouped(checked))
        reason = "the caller's permutation, postordered"
    else:
        search.attempt(method, _ORDERERS[method])
        reason = f"{method} was asked for"
    return search.result(reason)


class _Search:
    """The pattern, its quotient by groups, and the orderings computed so far."""

    def __init__(
        self,
        n: int,
        xadj: npt.NDArray[np.int64],
        adj: npt.NDArray[np.int32],
        groups: npt.NDArray[Any] | None,
    ) -> None:
        self.pattern: _Graph = (n, xadj, adj)
        self.graph: _Graph = self.pattern
        self.work, self.target = 1.0, "cpu"
        self.groups = groups
        self.weights: npt.NDArray[np.int32] | None = None
        if groups is not None:
            n_groups, group_xadj, group_adj, self.weights = compress(n, xadj, adj, groups, joined=True)
            self.graph = (n_groups, group_xadj, group_adj)
        self.trees: list[EliminationTree] = []
        self.candidates: list[OrderingCandidate] = []

    def attempt(self, method: str, orderer: _Orderer) -> None:
        """Compute one ordering and its tree; keep both."""
        start = time.perf_counter()
        perm = orderer(*self.graph, self.weights)
        if self.groups is not None:
            perm = expand(perm, self.groups)
        tree = elimination_tree(*self.pattern, perm)
        height = _height(tree) if self.target == "cuda" else None
        seconds = time.perf_counter() - start
        self.trees.append(tree)
        self.candidates.append(
            OrderingCandidate(method, tree.nnz_factor, tree.flops, tree.depth, seconds, height)
        )

    def grouped(self, perm: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Turn a permutation of rows into one of groups, by first appearance."""
        if self.groups is None:
            return perm
        sequence = np.asarray(self.groups)[perm]
        _, first = np.unique(sequence, return_index=True)
        return sequence[np.sort(first)].astype(np.int32)

    def best(self) -> int:
        """Return the index of the candidate with the least predicted time; the earlier one in a tie."""
        return min(
            range(len(self.candidates)), key=lambda t: predicted_seconds(self.candidates[t], self.target)
        )

    def result(self, reason: str) -> Ordering:
        """Return the best candidate as the chosen ordering."""
        t = self.best()
        tree, candidate = self.trees[t], self.candidates[t]
        return Ordering(tree.perm, tree.parent, tree.counts, candidate.method, reason, tuple(self.candidates))


def predicted_seconds(candidate: OrderingCandidate, target: str = "cpu") -> float:
    """Predict the time of one numeric factorisation, in seconds."""
    per_flop, per_entry, per_level, per_column = _FACTOR_SECONDS[target]
    work = candidate.flops * per_flop + candidate.nnz_factor * per_entry
    return work + candidate.depth * per_level + (candidate.height or 0) * per_column


def _height(tree: EliminationTree) -> int:
    from warpfront.sparse.analysis._etree_kernels import tree_height

    return int(tree_height(tree.parent))


def _search_all(search: _Search) -> str:
    """Try what can pay; return the reason for the choice."""
    search.attempt("amd", amd)
    passed_over = []
    times = _FACTORISATIONS[search.target]
    for method, (per_vertex, per_entry) in _ORDERING_SECONDS.items():
        cost = per_vertex * search.graph[0] + per_entry * search.graph[2].size
        cost *= _MORE_CORES[search.target]
        first, best = (
            search.work * predicted_seconds(search.candidates[k], search.target) for k in (0, search.best())
        )
        saving = max(best - (1 - _POSSIBLE_SAVING) * first, _LEAST_SAVING * best)
        if cost >= saving * times:
            passed_over.append(
                f"{method} not tried: about {1e3 * cost:.3g} ms to order, "
                f"one factorisation takes about {1e3 * best:.3g} ms"
            )
            continue
        search.attempt(method, _ORDERERS[method])
    tried = ", ".join(
        f"{c.method} {c.flops:.3g} flops, {c.nnz_factor} entries, {c.depth} levels" for c in search.candidates
    )
    winner = search.candidates[search.best()].method
    lead = (
        f"{winner} has the least predicted time ({tried})" if len(search.candidates) > 1 else f"amd ({tried})"
    )
    return "; ".join([lead, *passed_over])


def _natural(n: int, _xadj: Any, _adj: Any, _weights: Any) -> npt.NDArray[np.int32]:
    return np.arange(n, dtype=np.int32)


_ORDERERS: dict[str, _Orderer] = {
    "amd": amd,
    "multilevel": multilevel,
    "metis": metis,
    "level_set": level_set,
    "natural": _natural,
}


def _checked_permutation(n: int, perm: npt.NDArray[Any] | None) -> npt.NDArray[np.int32]:
    """Return ``perm`` as int32, or raise naming its first bad entry."""
    given = np.asarray(perm)
    if given.shape != (n,) or (n and given.dtype.kind not in "iu"):
        raise InvalidValueError(f"user_perm must be {n} integers, got {given.dtype} of shape {given.shape}")
    bad = (given < 0) | (given >= n)
    repeated = np.ones(n, dtype=bool)
    repeated[np.unique(given, return_index=True)[1]] = False
    wrong = np.flatnonzero(bad | repeated)
    if wrong.size:
        k = int(wrong[0])
        why = f"is outside [0, {n})" if bad[k] else "occurs twice"
        raise InvalidValueError(f"user_perm is no permutation: user_perm[{k}] = {given[k]} {why}")
    return given.astype(np.int32)
