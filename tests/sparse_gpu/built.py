"""Kernels under the SIMT runner: the small ones of a file in one build, the large ones apart."""

from functools import cache

from warpfront.backend.simt import Simt
from warpfront.sparse.gpu.kernels import of_type

APART = ("fronts.cu", "strips.cu", "wide_sweeps.cu")


@cache
def simt(source, expression):
    """The build that holds an instantiation."""
    if source.name not in APART:
        for dtype in ("float64", "float32"):
            for file, names in of_type(dtype):
                if file == source and expression in names:
                    return Simt.build(source, list(names))
    return Simt.build(source, [expression])
