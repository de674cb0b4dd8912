"""The tuples compiled code reads and writes. Plain NamedTuples, so that Numba takes them as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = [
    "CholeskyRule",
    "FactorState",
    "FrontPlan",
    "GeneralWork",
    "LdltRule",
    "LuRule",
    "Many",
    "Matrix",
    "Sides",
    "Work",
]

Array = NDArray[Any]


class FrontPlan(NamedTuple):
    """Symbolic facts of every front; read only. ``s`` is a node of the supernodal tree, postordered.

    Attributes
    ----------
    node_ptr : int64[nodes+1]
        Own columns of node s, in the permuted numbering.
    front_ptr : int64[nodes+1]
        Node s's part of ``front_ind``: its columns, then its rows below.
    front_ind : int32
        Permuted indices of the rows of each front.
    asm_map : int32
        Same layout; place of each row below in the parent's front (entries of own columns are unused).
    child_ptr, child_ind : int64
        Children of each node, ascending.
    a_ptr, a_slot, a_row, a_col : int64, int64, int32, int32
        Entries of A of each front: slot in the canonical values, local row and column.
    panel_ptr : int64[nodes+1]
        Planned place of each panel (front rows x own columns, column-major).
    depth : int64[nodes]
        Distance to the root; its parity picks the contribution stack.
    task_begin, task_end : int64[tasks]
        Subtrees that one thread takes as a whole: nodes task_begin..task_end, both included, longest first.
    trunk : int64
        The remaining nodes, ascending.
    """

    node_ptr: Array
    front_ptr: Array
    front_ind: Array
    asm_map: Array
    child_ptr: Array
    child_ind: Array
    a_ptr: Array
    a_slot: Array
    a_row: Array
    a_col: Array
    panel_ptr: Array
    depth: Array
    task_begin: Array
    task_end: Array
    trunk: Array


class FactorState(NamedTuple):
    """Everything a factorisation writes. Lengths are the memory plan's; overflow areas lie behind the planned part.

    Attributes
    ----------
    values : float[nnz]
        Scaled values of A in canonical order (read).
    panel : float
        L, one column-major panel a front (leading dimension = the front's rows, delayed ones included).
    stack : float
        Contribution blocks: two stacks a thread (one from each end of its part), then the roots of subtrees.
    ind : int32
        Row indices of each front after pivoting.
    diagonal : float[2 * pivots]
        D: at ``2k`` the diagonal entry, at ``2k + 1`` the subdiagonal one of a 2x2 pivot's first column. LL^T: at
        ``2k`` the reciprocal of L's diagonal entry.
    kind : int8
        1: 1x1 pivot, 2 and 3: first and second column of a 2x2 pivot, 0: zero pivot.
    node : int64[nodes, 8]
        Panel position, index position, pivot position, rows, fully summed, eliminated, block position, block size.
    work : float
        Per-thread scratch.
    work_map : int32
        Per-thread scratch.
    sync : int64
        Tickets, job words and overflow counters, one cache line apart.
    stats : int64[threads, 16]
        Counters, see ``_walk_kernels``.
    limits : int64
        Capacities and strides, see ``memory.py``.
    upper : float
        LU: rows of U, transposed, laid out as ``panel``; empty for a symmetric factorisation.
    col : int32
        LU: column indices of each front after pivoting, laid out as ``ind``; empty for a symmetric factorisation.
    """

    values: Array
    panel: Array
    stack: Array
    ind: Array
    diagonal: Array
    kind: Array
    node: Array
    work: Array
    work_map: Array
    sync: Array
    stats: Array
    limits: Array
    upper: Array
    col: Array


class CholeskyRule(NamedTuple):
    """LL^T, or LL^H of a complex matrix: no pivoting, stops at the first pivot that is not positive.

    Attributes
    ----------
    gemm, trsm : int
        Addresses of the BLAS routines.
    conj : int
        1: updates conjugate their right operand (of no effect on real types).
    hermitian : int
        1: entries that move to the other triangle are conjugated (of no effect on real types).
    """

    gemm: int
    trsm: int
    conj: int
    hermitian: int


class LdltRule(NamedTuple):
    """LDL^T: 1x1 and 2x2 pivots.

    Attributes
    ----------
    gemm : int
        Address of the BLAS routine.
    conj : int
        0: updates take their right operand as it is; see ``_ldlt_kernels`` for a Hermitian matrix.
    hermitian : int
        1: L D L^H.
    search : int
        Which pivots are looked for: 1x1 and 2x2, 1x1 on the diagonal, or none (``_ldlt_kernels``).
    sign : int8[n] or empty
        Sign, 1 or -1, that a perturbed pivot of each column takes, in the permuted numbering; 0: its own.
    threshold : float
        u: entries of L stay below 1/u.
    zero : float
        A fully summed column with no entry above this is a zero pivot.
    doubt : float
        A pivot whose column has no entry above this may as well be rounding; it is counted.
    cancelled : float
        A 2x2 pivot whose determinant is below this share of its terms is refused.
    epsilon : float
        Size given to a perturbed pivot.
    perturb : int
        1: columns without an acceptable pivot are perturbed in their front; 0: they are delayed to the parent.
    """

    gemm: int
    conj: int
    hermitian: int
    search: int
    sign: Array
    threshold: float
    zero: float
    doubt: float
    cancelled: float
    epsilon: float
    perturb: int


class LuRule(NamedTuple):
    """LU: pivots from the rows of a front's fully summed part.

    Attributes
    ----------
    gemm : int
        Address of the BLAS routine.
    threshold : float
        u: entries of L stay below 1/u.
    diagonal : float
        Share of the largest entry of its column from which the diagonal is taken without an exchange of rows.
    zero, doubt, epsilon, perturb
        As for `LdltRule`.
    """

    gemm: int
    threshold: float
    diagonal: float
    zero: float
    doubt: float
    epsilon: float
    perturb: int


class Sides(NamedTuple):
    """What the triangular sweeps read of a factor: one panel and one index list for each direction.

    ``A x = b`` with A = L U goes forward through L and back through U; ``A^T x = b`` forward through U^T and back
    through L^T. A symmetric factorisation has the same arrays on both sides.

    Attributes
    ----------
    forward, backward : float
        Panels laid out as `FactorState.panel`, the backward one transposed.
    forward_ind, backward_ind : int32
        Indices of each front on either side.
    node, diagonal, kind
        As in `FactorState`.
    forward_unit, backward_unit : int
        1: the panel's triangle has a unit diagonal that is not read; 0: it is divided by; 2: ``diagonal`` holds its
        reciprocals at ``2k`` (LL^T).
    hermitian : int
        1: the backward side is conjugated: L^H for L^T, and D is Hermitian.
    """

    forward: Array
    backward: Array
    forward_ind: Array
    backward_ind: Array
    node: Array
    diagonal: Array
    kind: Array
    forward_unit: int
    backward_unit: int
    hermitian: int


class Matrix(NamedTuple):
    """A symmetric or Hermitian matrix as refinement reads it.

    Attributes
    ----------
    ptr, ind, values : int64[n+1], int32[nnz], [nnz]
        Lower triangle by columns, unscaled.
    sums : float64[n]
        Row sums of |A|.
    hermitian : int
        1: Hermitian.
    eps : float
        Of the values' type.
    """

    ptr: Array
    ind: Array
    values: Array
    sums: Array
    hermitian: int
    eps: float


class Work(NamedTuple):
    """What a solve on one thread needs besides factor and matrix.

    Attributes
    ----------
    perm, scale : int32[n], float64[n] or empty
        Order of elimination and symmetric scaling.
    parts : int
        Directions of a whole sweep, as in ``_sweep_kernels``.
    x, y, owed, stored, stored_ptr, t
        Of the sweeps: vectors, zeros[n], room for the roots of subtrees and its layout, scratch.
    residual, size, other : [n]
        Of the refinement.
    """

    perm: Array
    scale: Array
    parts: int
    x: Array
    y: Array
    owed: Array
    stored: Array
    stored_ptr: Array
    t: Array
    residual: Array
    size: Array
    other: Array


class Many(NamedTuple):
    """What a solve for a block of right-hand sides needs besides factor and matrix; vectors are [n, lanes], flat.

    Attributes
    ----------
    perm, scale, parts, stored_ptr
        As in `Work`.
    x, y, owed, stored, t, residual, size, other
        As in `Work`, for every right-hand side; ``t`` has a row more.
    sums : [5 lanes]
        Scratch.
    errors : float64[6 lanes]
        Scratch.
    """

    perm: Array
    scale: Array
    parts: int
    stored_ptr: Array
    x: Array
    y: Array
    owed: Array
    stored: Array
    t: Array
    residual: Array
    size: Array
    other: Array
    sums: Array
    errors: Array


class GeneralWork(NamedTuple):
    """Everything a refined solve with an LU factor reads and writes on one thread, for one op(A).

    Attributes
    ----------
    forward, ..., hermitian
        As in `Sides`.
    node_ptr, blocks, coupling_ptr, coupling_col, coupling_slot, scaled
        Columns of each front, fronts of each diagonal block, entries above the blocks (`analysis.symbolic.Coupling`)
        and their scaled values.
    ptr, ind, values : int64[n+1], int32[nnz], [nnz]
        The matrix by columns, unscaled.
    sums, eps : float64[n], float
        Row sums of op(|A|); rounding of the values' type.
    operation, conjugate : int
        0: A, 1: A^T, 2: A^H; 1: the factor is applied to conjugates.
    in_perm, in_scale, out_perm, out_scale : int32[n], float64[n] or empty
        Order and scaling of right-hand side and solution.
    x, y, owed, t, residual, size, other
        As in `Work`.
    """

    forward: Array
    backward: Array
    forward_ind: Array
    backward_ind: Array
    node: Array
    diagonal: Array
    kind: Array
    forward_unit: int
    backward_unit: int
    hermitian: int
    node_ptr: Array
    blocks: Array
    coupling_ptr: Array
    coupling_col: Array
    coupling_slot: Array
    scaled: Array
    ptr: Array
    ind: Array
    values: Array
    sums: Array
    eps: float
    operation: int
    conjugate: int
    in_perm: Array
    in_scale: Array
    out_perm: Array
    out_scale: Array
    x: Array
    y: Array
    owed: Array
    t: Array
    residual: Array
    size: Array
    other: Array
