"""Dense linear algebra: transpose."""

from warpfront.dense.transpose import explain_transpose, transpose

__all__ = ["explain_transpose", "transpose"]
