"""warpfront: sparse direct solvers, batched tiny solvers and four complete pipelines, on CPU and GPU.

Names are re-exported from their rooms and imported at first use, so that ``import warpfront`` stays cheap and
compiles nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from warpfront import errors
from warpfront.errors import Status
from warpfront.report import Inertia

if TYPE_CHECKING:
    from warpfront.sparse.differentiable import DifferentiableSolver
    from warpfront.sparse.interface import cholesky, factorized, ldlt, spsolve
    from warpfront.sparse.lu import splu, spsolve_triangular
    from warpfront.sparse.schur import SchurComplement, schur_complement
    from warpfront.sparse.solver import DirectSolver

    __version__: str

# Public name -> module that defines it. One line here, and one above for type checkers, makes a name public.
_LAZY = {
    "DifferentiableSolver": "warpfront.sparse.differentiable",
    "DirectSolver": "warpfront.sparse.solver",
    "SchurComplement": "warpfront.sparse.schur",
    "cholesky": "warpfront.sparse.interface",
    "factorized": "warpfront.sparse.interface",
    "ldlt": "warpfront.sparse.interface",
    "schur_complement": "warpfront.sparse.schur",
    "splu": "warpfront.sparse.lu",
    "spsolve": "warpfront.sparse.interface",
    "spsolve_triangular": "warpfront.sparse.lu",
}

__all__ = [
    "DifferentiableSolver",
    "DirectSolver",
    "Inertia",
    "SchurComplement",
    "Status",
    "__version__",
    "cholesky",
    "errors",
    "factorized",
    "ldlt",
    "schur_complement",
    "splu",
    "spsolve",
    "spsolve_triangular",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("warpfront")
    except PackageNotFoundError:  # run from a source folder that was never installed
        return "0+source"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
