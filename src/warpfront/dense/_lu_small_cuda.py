"""Launch plan of ``lu_small.cu``: LU and solve for matrices of order 1 to 64 on the GPU, one per block."""

from __future__ import annotations

from pathlib import Path

from warpfront.backend.compile import CompileOptions

__all__ = [
    "MAX_ORDER",
    "OPTIONS",
    "RESULT",
    "RIGHT_HAND_SIDE",
    "SIGNATURES",
    "SOURCE",
    "THREADS",
    "expressions",
    "finite_expression",
    "instantiations",
    "shared_bytes",
    "summary_blocks",
]

SOURCE = Path(__file__).parent / "lu_small.cu"
THREADS = 64
MAX_ORDER = 64
OPTIONS = CompileOptions(fma=False)
CUDA_TYPES = {
    "float32": "float",
    "float64": "double",
    "complex64": "wf::complex<float>",
    "complex128": "wf::complex<double>",
}
ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
SIGNATURES = {"lu_small": "pppppi", "lu_small_solve": "ppppii", "lu_summary": "pppppi", "lu_finite": "pqpi"}
SUMMARY_THREADS = 256
REPORT = 8  # numbers of one matrix's summary
RESULT, RIGHT_HAND_SIDE = 6, 7  # those that say: the result, the right-hand side is not finite


def expressions(dtype: str) -> tuple[str, str, str]:
    """Return the name expressions of factorisation, solve and summary for an element type."""
    kind = CUDA_TYPES[dtype]
    return f"lu_small<{kind}>", f"lu_small_solve<{kind}>", f"lu_summary<{kind}>"


def finite_expression(dtype: str) -> str:
    """Return the name expression of the check of a result; complex entries are read as pairs of reals."""
    return f"lu_finite<{'float' if dtype in ('float32', 'complex64') else 'double'}>"


def summary_blocks(entries: int) -> int:
    """Return the blocks that look through so many entries of one matrix's factors or result."""
    return max(1, min(512, entries // (16 * SUMMARY_THREADS)))


def shared_bytes(dtype: str, n: int, *, solve: bool) -> int:
    """Return the dynamic shared memory of one block: the matrix with an odd pitch, and one vector for the solve."""
    entries = (n | 1) * n + (n if solve else 0)
    return entries * ITEM_BYTES[dtype]


def instantiations() -> list[tuple[Path, tuple[str, ...], int]]:
    """Return all that can be launched: (file, expressions, least architecture)."""
    names = tuple(name for dtype in CUDA_TYPES for name in expressions(dtype))
    return [(SOURCE, (*names, "lu_finite<float>", "lu_finite<double>"), 75)]
