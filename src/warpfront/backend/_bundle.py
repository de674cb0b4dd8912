"""A NamedTuple of arrays passed among compiled functions as one pointer.

Numba passes a tuple by value: one with 27 arrays is 190 words at every call, unpacked and counted anew in every
function, which costs more to compile than the functions themselves. `bundle` puts the tuple on the stack of the
function that received it from Python and returns a `Bundle`: its fields read like the tuple's, it is one pointer wide,
and the arrays it hands out carry no reference count. The caller of that function keeps the arrays alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, register_model

__all__ = ["Bundle", "bundle"]


class Bundle(types.Type):  # type: ignore[misc]
    """Numba's type of a bundle; ``fields`` is the NamedTuple's type."""

    def __init__(self, fields: Any) -> None:
        self.fields = fields
        super().__init__(name=f"Bundle({fields})")


@register_model(Bundle)
class _BundleModel(models.OpaqueModel):  # type: ignore[misc]
    """One pointer."""


@infer_getattr
class _BundleAttributes(AttributeTemplate):  # type: ignore[misc]
    key = Bundle

    def generic_resolve(self, typ: Any, name: str) -> Any:  # type: ignore[override]
        """Type of a field; None for what is not one."""
        names = typ.fields.fields
        return typ.fields.types[names.index(name)] if name in names else None


@lower_getattr_generic(Bundle)
def _read_field(context: Any, builder: Any, typ: Any, value: Any, name: str) -> Any:
    index = typ.fields.fields.index(name)
    kind = typ.fields.types[index]
    struct = context.get_value_type(typ.fields)
    pointer = builder.bitcast(value, struct.as_pointer())
    field = builder.load(cgutils.gep_inbounds(builder, pointer, 0, index))
    # Nothing writes the tuple after `bundle`, and LLVM cannot see through it to the moment before.
    field.set_metadata("invariant.load", builder.module.add_metadata([]))
    if not isinstance(kind, types.Array):
        return field
    array = context.make_array(kind)(context, builder, value=field)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    array.parent = cgutils.get_null_value(array.parent.type)
    return array._getvalue()


@intrinsic
def bundle(typingctx: Any, fields: Any) -> Any:
    """Put a NamedTuple of arrays and numbers on this function's stack and return the `Bundle` that reads it."""
    if not isinstance(fields, types.BaseNamedTuple):
        return None
    result = Bundle(fields)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = cgutils.alloca_once_value(builder, args[0])
        address = builder.bitcast(place, context.get_value_type(result))
        # An empty piece of assembly that may change anything: LLVM cannot tell that the pointer is `place`, so it
        # can move no invariant load before the store.
        kind = ir.FunctionType(address.type, [address.type])
        return builder.asm(kind, "", "=r,0,~{memory}", [address], side_effect=True)

    return result(fields), codegen
