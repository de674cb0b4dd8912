"""What the vector statements over interleaved systems share: strips of arrays, vector constants.

`WIDTH` neighbouring elements are one vector: element e of a system t lies at ``e * WIDTH + t``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

__all__ = ["LANES", "WIDTH", "Strips", "constant", "moved", "spread"]

WIDTH = 16
LANES = np.uint64(WIDTH)


class Strips:
    """Vector loads and stores of the arrays of one intrinsic call."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any) -> None:
        self.builder = builder
        self.data = {}
        self.kinds = {}
        for k, kind in enumerate(signature.args):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, values[k])
                self.data[k] = array.data
                self.kinds[k] = context.get_data_type(kind.dtype)

    def _place(self, k: int, at: Any, width: int) -> Any:
        pointer = self.builder.gep(self.data[k], [at])
        return self.builder.bitcast(pointer, ir.VectorType(self.kinds[k], width).as_pointer())

    def load(self, k: int, at: Any, width: int = WIDTH) -> Any:
        return self.builder.load(self._place(k, at, width), align=4)

    def store(self, k: int, at: Any, value: Any, width: int = WIDTH) -> None:
        self.builder.store(value, self._place(k, at, width), align=4)

    def vector(self, k: int) -> Any:
        return ir.VectorType(self.kinds[k], WIDTH)

    def bits(self, k: int) -> Any:
        """Whole numbers as wide as the elements of an array of floats."""
        return ir.VectorType(ir.IntType(64 if isinstance(self.kinds[k], ir.DoubleType) else 32), WIDTH)

    def magnitude(self, k: int, value: Any) -> Any:
        kind = ir.VectorType(self.kinds[k], WIDTH)
        name = f"llvm.fabs.v{WIDTH}f{64 if isinstance(self.kinds[k], ir.DoubleType) else 32}"
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(kind, [kind]), name)
        return self.builder.call(function, [value])

    def greater(self, a: Any, b: Any) -> Any:
        """``a if a > b else b``."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)


def spread(builder: Any, kind: Any, value: Any) -> Any:
    """A vector that is ``value`` in every lane."""
    empty = ir.Constant(ir.VectorType(kind, WIDTH), ir.Undefined)
    one = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, empty, zeros)


def moved(builder: Any, at: Any, step: Any, index: Any) -> Any:
    return builder.add(at, builder.mul(step, index))


def constant(kind: Any, value: float) -> Any:
    return ir.Constant(ir.VectorType(kind, WIDTH), [ir.Constant(kind, value)] * WIDTH)
