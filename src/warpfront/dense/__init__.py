"""Dense linear algebra: transpose, LU, solve, inverse, determinant, condition."""

from warpfront.dense.factor import DenseLU, lu_factor
from warpfront.dense.linalg import det, inv, rcond, slogdet, solve
from warpfront.dense.many import many
from warpfront.dense.records import DenseOutcome, Determinant, SignLog
from warpfront.dense.transpose import explain_transpose, transpose

__all__ = [
    "DenseLU",
    "DenseOutcome",
    "Determinant",
    "SignLog",
    "det",
    "explain_transpose",
    "inv",
    "lu_factor",
    "many",
    "rcond",
    "slogdet",
    "solve",
    "transpose",
]
