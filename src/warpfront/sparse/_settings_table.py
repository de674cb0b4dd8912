"""The table of settings, and of the cuDSS names and values that are refused, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["REFUSED", "REFUSED_VALUES", "SETTINGS", "Setting"]


@dataclass(frozen=True)
class Setting:
    """One parameter that can be set.

    Attributes
    ----------
    default : object
    kind : type
        ``str``, ``int``, ``float`` or ``bool``; ``object`` for arrays.
    allowed : tuple
        Values for a ``str`` and of an array's entries; (low, high) for a number; empty: no limit.
    phase : str
        First phase that reads it again: ``analysis``, ``factorization`` or ``solve``.
    doc : str
        One line for the error message and the documents.
    single : object
        Default where the precision is float32, if it is another one.
    general : object
        Default for LU, if it is another one.
    """

    default: Any
    kind: type
    allowed: tuple[Any, ...]
    phase: str
    doc: str
    single: Any = None
    general: Any = None


_INF = float("inf")

SETTINGS: dict[str, Setting] = {
    "reordering_alg": Setting(
        "auto",
        str,
        ("auto", "amd", "multilevel", "metis", "level_set", "natural", "user"),
        "analysis",
        "fill-reducing ordering",
    ),
    "user_perm": Setting(
        None, object, (), "analysis", "int[n], user_perm[k] is the k-th pivot; sets reordering_alg to 'user'"
    ),
    "scaling": Setting(
        "auto",
        str,
        ("auto", "none", "equilibrate"),
        "factorization",
        "symmetric scaling by powers of two",
    ),
    "pivot_type": Setting(
        "auto",
        str,
        ("auto", "none", "diagonal", "bunch_kaufman"),
        "factorization",
        "pivots that are looked for (LDL^T): 1x1 and 2x2, 1x1 only, or none",
    ),
    "pivot_threshold": Setting(
        0.01,
        float,
        (0.0, 1.0),
        "factorization",
        "u: entries of L stay below 1/u; LDL^T: at most 0.5; LU: 0.1 by default",
        general=0.1,
    ),
    "pivot_epsilon": Setting(
        1e-8,
        float,
        (0.0, 1.0),
        "factorization",
        "size of a perturbed pivot, see pivot_epsilon_alg; 0: never perturb",
        3e-4,
    ),
    "pivot_epsilon_alg": Setting(
        "scaled",
        str,
        ("scaled", "static"),
        "factorization",
        "pivot_epsilon relative to the largest entry of the scaled matrix, or as it is",
    ),
    "pivot_sign": Setting(
        None,
        object,
        (-1, 0, 1),
        "factorization",
        "int[n], sign a perturbed pivot of each row takes, 0: its own; and the row's block for diagonal_shift",
    ),
    "zero_pivot_tol": Setting(
        1e-13,
        float,
        (0.0, 1.0),
        "factorization",
        "a column with no scaled entry above this is a zero pivot",
        1e-5,
        1e-14,
    ),
    "matching_alg": Setting(
        "auto",
        str,
        ("auto", "none", "max_diag_product"),
        "analysis",
        "maximum-product matching: LU permutes rows by it and scales; LDL^T takes pairs and scaling from it, in "
        "'auto' where delayed pivots make much fill without it",
    ),
    "block_triangular": Setting(
        True, bool, (), "analysis", "LU: factor only the diagonal blocks of the block triangular form"
    ),
    "diag_pivot_thresh": Setting(
        0.5,
        float,
        (0.0, 1.0),
        "factorization",
        "LU: share of the largest entry of its column from which the diagonal is taken without an exchange",
    ),
    "stale_matching": Setting(
        "rescale",
        str,
        ("rescale", "analyze"),
        "factorization",
        "LU: when the matching no longer fits new values, scale anew (rows keep their columns), or match anew",
    ),
    "on_unstable": Setting(
        "delay",
        str,
        ("delay", "perturb", "error"),
        "factorization",
        "columns without a stable pivot in their front: pass to the parent, perturb, or fail",
    ),
    "downcast_factors": Setting(False, bool, (), "factorization", "factor in float32, refine in float64"),
    "host_nthreads": Setting(
        -1, int, (-1, 1024), "factorization", "CPU threads; -1: all this process may use"
    ),
    "deterministic_mode": Setting(
        True, bool, (), "solve", "results are bitwise reproducible in either mode on the CPU"
    ),
    "solve_mode": Setting(
        "n", str, ("n", "t", "h"), "solve", "solve with A, its transpose, or its conjugate transpose"
    ),
    "ir_n_steps": Setting(
        2, int, (0, 100), "solve", "refinement steps at most; 0: no residual is computed at all"
    ),
    "ir_tol": Setting(
        1e-8,
        float,
        (0.0, _INF),
        "solve",
        "normwise backward error above which a refined solve is refused",
        3e-4,
    ),
    "ir_mode": Setting(
        "residual",
        str,
        ("residual", "fgmres"),
        "solve",
        "refinement by residual correction or flexible GMRES",
    ),
    "forward_error": Setting(
        False, bool, (), "solve", "estimate a bound of the forward error after each solve (some solves more)"
    ),
}

_NO_GPU = "belongs to the GPU path, which this build does not have"
_ONE_CHOICE = "there is one algorithm for each structure"
REFUSED: dict[str, str] = {
    "comm": "several machines: use the distributed package's solver instead",
    "device_count": "one device only",
    "device_indices": "one device only",
    "emulation_mantissa_bit_count": "arithmetic is never emulated",
    "factorization_alg": f"{_ONE_CHOICE}: multifrontal",
    "force_nonsymmetric_matching": "a symmetric matrix keeps its symmetry; solve it with structure='G' instead",
    "hybrid_device_memory_limit": _NO_GPU,
    "hybrid_device_memory_min": _NO_GPU,
    "hybrid_execute_mode": _NO_GPU,
    "hybrid_memory_mode": _NO_GPU,
    "hybrid_mode": _NO_GPU,
    "max_lu_nnz": "memory is sized from the analysis; read lu_nnz after analyze() and decide",
    "nd_nlevels": "the dissection chooses its depth",
    "nd_partition_tree": "the dissection keeps no tree to export",
    "nd_ubfactor": "METIS runs with its own balance",
    "reordering_btf": "set block_triangular",
    "solve_alg": f"{_ONE_CHOICE}: sweeps over the tree",
    "ubatch_index": "uniform batches are not in this build",
    "ubatch_mask": "uniform batches are not in this build",
    "ubatch_size": "uniform batches are not in this build",
    "use_cuda_register_memory": _NO_GPU,
    "use_matching": "dropped by cuDSS 0.8 too: set matching_alg",
    "use_superpanels": "fronts are always supernodal",
    "user_elimination_tree": "give user_perm instead",
    "user_host_interrupt": "interrupt the Python thread instead",
    "user_nd_partition_tree": "give user_perm instead",
}

# results that cuDSS lists beside its parameters
REFUSED |= dict.fromkeys(
    ("perm_col", "perm_matching", "perm_row"),
    "it is a result: read it with get()",
)
REFUSED |= dict.fromkeys(
    ("schur_matrix", "schur_mode", "schur_shape", "user_schur_indices"),
    "a Schur complement is an object of its own: warpfront.schur_complement(A, indices)",
)

REFUSED_VALUES: dict[str, dict[str, str]] = {
    "pivot_type": {
        "local_block": "pivots are looked for in the whole front, which is at least as stable; leave 'auto'",
        "global_col": "pivots stay inside their front or are delayed to its parent; leave 'auto'",
        "global_row": "pivots stay inside their front or are delayed to its parent; leave 'auto'",
    },
    "reordering_alg": {
        "btf_colamd": "LU finds block triangular form by itself; leave 'auto'",
        "colamd": "orderings work on the pattern of A + A^T; leave 'auto'",
        "nested_dissection": "name the kind: 'multilevel', 'metis' or 'level_set'",
    },
}
