"""What comes in: matrices in memory (`read_operand`), their canonical pattern (`canonicalize`), and files.

Names are loaded on first use, so importing this package imports neither NumPy, SciPy nor Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warpfront.formats.canonical import Canonical, SymmetryEvidence, canonicalize, symmetry
    from warpfront.formats.files import read_matrix
    from warpfront.formats.harwell_boeing import read_harwell_boeing
    from warpfront.formats.matrix_market import MatrixMarket, read_matrix_market
    from warpfront.formats.matrix_market_write import write_matrix_market
    from warpfront.formats.operand import Operand, first_nonfinite, flat_values, read_operand

__all__ = [
    "Canonical",
    "MatrixMarket",
    "Operand",
    "SymmetryEvidence",
    "canonicalize",
    "first_nonfinite",
    "flat_values",
    "read_harwell_boeing",
    "read_matrix",
    "read_matrix_market",
    "read_operand",
    "symmetry",
    "write_matrix_market",
]

_MODULE_OF = {
    "Canonical": "canonical",
    "MatrixMarket": "matrix_market",
    "Operand": "operand",
    "SymmetryEvidence": "canonical",
    "canonicalize": "canonical",
    "first_nonfinite": "operand",
    "flat_values": "operand",
    "read_harwell_boeing": "harwell_boeing",
    "read_matrix": "files",
    "read_matrix_market": "matrix_market",
    "read_operand": "operand",
    "symmetry": "canonical",
    "write_matrix_market": "matrix_market_write",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
