"""Solver parameters by their cuDSS names in lower case: one table for ``set``, ``get`` and the keywords.

Each name is either a setting, a value to read, or known and refused with its reason.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warpfront.errors import InvalidValueError, NotSupportedError

__all__ = ["REFUSED", "SETTINGS", "Settings"]


@dataclass(frozen=True)
class Setting:
    """One parameter that can be set.

    Attributes
    ----------
    default : object
    kind : type
        ``str``, ``int``, ``float`` or ``bool``; ``object`` for arrays.
    allowed : tuple
        Values for a ``str``; (low, high) for a number; empty: no limit.
    phase : str
        First phase that reads it again: ``analysis``, ``factorization`` or ``solve``.
    doc : str
        One line for the error message and the documents.
    """

    default: Any
    kind: type
    allowed: tuple[Any, ...]
    phase: str
    doc: str


_INF = float("inf")

SETTINGS: dict[str, Setting] = {
    "reordering_alg": Setting(
        "auto",
        str,
        ("auto", "amd", "metis", "level_set", "natural", "user"),
        "analysis",
        "fill-reducing ordering",
    ),
    "user_perm": Setting(
        None, object, (), "analysis", "int[n], user_perm[k] is the k-th pivot; sets reordering_alg to 'user'"
    ),
    "scaling": Setting(
        "auto", str, ("auto", "none", "equilibrate"), "factorization", "symmetric scaling by powers of two"
    ),
    "pivot_threshold": Setting(
        0.01,
        float,
        (0.0, 1.0),
        "factorization",
        "u: entries of L stay below 1/u; LDL^T: at most 0.5; LU: 0.1 by default",
    ),
    "pivot_epsilon": Setting(
        1e-8,
        float,
        (0.0, 1.0),
        "factorization",
        "size of a perturbed pivot, for entries scaled to 1; 0: never perturb",
    ),
    "zero_pivot_tol": Setting(
        1e-13, float, (0.0, 1.0), "factorization", "a column with no scaled entry above this is a zero pivot"
    ),
    "matching_alg": Setting(
        "auto",
        str,
        ("auto", "none", "max_diag_product"),
        "analysis",
        "LU: permute rows so that large entries stand on the diagonal, and scale by the matching",
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
        ("delay", "perturb"),
        "factorization",
        "columns without a stable pivot: pass to the parent, or perturb",
    ),
    "host_nthreads": Setting(
        -1, int, (-1, 1024), "factorization", "CPU threads; -1: all this process may use"
    ),
    "deterministic_mode": Setting(
        True, bool, (), "solve", "results are bitwise reproducible in either mode on the CPU"
    ),
    "ir_n_steps": Setting(
        2, int, (0, 100), "solve", "refinement steps at most; 0: no residual is computed at all"
    ),
    "ir_tol": Setting(
        1e-8, float, (0.0, _INF), "solve", "normwise backward error above which a refined solve is refused"
    ),
}

_NO_GPU = "belongs to the GPU path, which this build does not have"
REFUSED: dict[str, str] = {
    "comm": "several machines: use the distributed package's solver instead",
    "device_count": "one device only",
    "device_indices": "one device only",
    "downcast_factors": "factors keep the dtype of the matrix",
    "emulation_mantissa_bit_count": "arithmetic is never emulated",
    "factorization_alg": "one algorithm for each structure: multifrontal",
    "force_nonsymmetric_matching": "structure 'G' has it",
    "hybrid_device_memory_limit": _NO_GPU,
    "hybrid_device_memory_min": _NO_GPU,
    "hybrid_execute_mode": _NO_GPU,
    "hybrid_memory_mode": _NO_GPU,
    "hybrid_mode": _NO_GPU,
    "max_lu_nnz": "memory is sized from the analysis",
    "perm_col": "it is a result: read it with get() after factorize()",
    "perm_matching": "it is a result: read it with get() after analyze()",
    "perm_row": "it is a result: read it with get() after factorize()",
    "nd_nlevels": "the dissection chooses its depth",
    "nd_partition_tree": "the dissection keeps no tree to export",
    "nd_ubfactor": "METIS runs with its own balance",
    "pivot_epsilon_alg": "pivot_epsilon is relative to entries scaled to 1",
    "pivot_type": "1x1 and 2x2 pivots by threshold Bunch-Kaufman (S), none (SPD)",
    "reordering_btf": "set block_triangular",
    "schur_matrix": "Schur complements are not in this build",
    "schur_mode": "Schur complements are not in this build",
    "schur_shape": "Schur complements are not in this build",
    "solve_alg": "one algorithm: sweeps over the tree",
    "solve_mode": "pass trans= to solve",
    "ubatch_index": "uniform batches are not in this build",
    "ubatch_mask": "uniform batches are not in this build",
    "ubatch_size": "uniform batches are not in this build",
    "use_cuda_register_memory": _NO_GPU,
    "use_matching": "set matching_alg",
    "use_superpanels": "fronts are always supernodal",
    "user_elimination_tree": "give user_perm instead",
    "user_host_interrupt": "interrupt the Python thread instead",
    "user_nd_partition_tree": "give user_perm instead",
    "user_schur_indices": "Schur complements are not in this build",
}


@dataclass
class Settings:
    """Checked values of every setting; ``given`` are those a caller has chosen."""

    values: dict[str, Any] = field(default_factory=lambda: {name: s.default for name, s in SETTINGS.items()})
    given: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def set(self, name: str, value: Any) -> str:
        """Check and store one value; returns the first phase that has to run again.

        Raises
        ------
        NotSupportedError
            A known cuDSS name this build does not implement; the message says why.
        InvalidValueError
            An unknown name, or a value of the wrong kind or range; the message lists what is allowed.
        """
        if not isinstance(name, str):
            raise InvalidValueError(
                f"a parameter's name is a string, not {name!r}; allowed are {', '.join(sorted(SETTINGS))}"
            )
        if name in REFUSED:
            raise NotSupportedError(f"parameter {name!r} is not supported: {REFUSED[name]}")
        if name not in SETTINGS:
            close = difflib.get_close_matches(name, SETTINGS, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidValueError(
                f"unknown parameter {name!r}{hint}; allowed are {', '.join(sorted(SETTINGS))}"
            )
        setting = SETTINGS[name]
        self.values[name] = _checked(name, setting, value)
        self.given.add(name)
        if name == "user_perm":
            self.values["reordering_alg"] = "auto" if value is None else "user"
        return setting.phase


def _checked(name: str, setting: Setting, value: Any) -> Any:
    kind, allowed = setting.kind, setting.allowed
    if kind is object:
        return value
    if kind is str:
        if not isinstance(value, str) or value not in allowed:
            raise InvalidValueError(
                f"{name} is {value!r}; allowed are {', '.join(map(repr, allowed))} ({setting.doc})"
            )
        return value
    if kind is bool:
        if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
            raise InvalidValueError(f"{name} is {value!r}; allowed are True and False ({setting.doc})")
        return bool(value)
    whole = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, whole):
        raise InvalidValueError(f"{name} is {value!r}; allowed is a {kind.__name__} ({setting.doc})")
    low, high = allowed
    if name == "host_nthreads" and value == 0:
        raise InvalidValueError(f"host_nthreads is 0; allowed is -1 or 1 to {high} ({setting.doc})")
    if not low <= value <= high:
        raise InvalidValueError(f"{name} is {value!r}; allowed is {low} to {high} ({setting.doc})")
    return kind(value)
