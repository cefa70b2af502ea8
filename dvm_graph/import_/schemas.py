"""What is known about an operator at a version, in a form that is cheap to ask.

Out: a `Signature` per (operator, domain, version): arity, attribute types and defaults, and how the
dtype of a result follows from operands and attributes. The installed onnx is asked first, then, about
operators that it does not know, the installed onnxruntime.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import defs

from dvm_graph.import_ import vendor_library
from dvm_graph.import_.tensors import dtype_of, dtype_of_array
from dvm_graph.ir import DType, Value

_TENSOR_TYPES = {
    f"tensor({name.lower()})": dtype_of(number)
    for name, number in onnx.TensorProto.DataType.items()
}
_DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")


@dataclass(frozen=True, slots=True)
class Signature:
    """A schema, read once."""

    op: str
    since_version: int
    definition: Any | None
    """The onnx.defs.OpSchema, whose type stubs lack half of its methods; None: an operator of the
    vendor library."""
    min_inputs: int
    max_inputs: int
    needed: tuple[str, ...]
    """The names of operands, the last of all behind it, too; none of those that may be left out."""
    min_outputs: int
    max_outputs: int
    attribute_types: Mapping[str, int]
    required: tuple[str, ...]
    defaults: Mapping[str, onnx.AttributeProto]
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    variadic: bool
    single_types: Mapping[str, DType]
    """Type variables that stand for one type only."""
    admitted: tuple[frozenset[DType], ...]
    """The dtypes that an operand may have."""

    def admits(self, operands: Sequence[Value | None]) -> bool:
        """Whether the operands are of types that the operator is defined for."""
        for position, operand in enumerate(operands):
            formal = min(position, len(self.admitted) - 1)
            past_end = position > formal and not self.variadic
            if operand is not None and not past_end and operand.dtype not in self.admitted[formal]:
                return False
        return True

    def result_dtype(
        self, index: int, operands: Sequence[Value | None], attrs: Mapping[str, Any]
    ) -> DType:
        """The dtype of a result, OPAQUE where the schema alone does not tell."""
        text = self.output_types[min(index, len(self.output_types) - 1)]
        if text in _TENSOR_TYPES:
            return _TENSOR_TYPES[text]
        if text in self.single_types:
            return self.single_types[text]
        for position, operand in enumerate(operands):
            formal = min(position, len(self.input_types) - 1)
            past_end = position > formal and not self.variadic
            if operand is not None and not past_end and self.input_types[formal] == text:
                return operand.dtype
        return self._dtype_from_attributes(attrs)

    def _dtype_from_attributes(self, attrs: Mapping[str, Any]) -> DType:
        if self.op == "ConstantOfShape":
            value = attrs.get("value")
            return DType.FLOAT32 if value is None else dtype_of_array(value)
        for name in _DTYPE_ATTRIBUTES:
            if isinstance(attrs.get(name), int):
                return dtype_of(attrs[name])
        return DType.OPAQUE


@functools.lru_cache(maxsize=4096)
def signature(op: str, domain: str, version: int) -> Signature | None:
    """The signature, or None where neither onnx nor the vendor library knows the operator."""
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        vendor = vendor_library.find_schema(op, domain, version)
        return None if vendor is None else _read(vendor, None)
    return _read(schema, schema)


def _read(schema: Any, definition: Any | None) -> Signature:
    """From a schema of onnx or of onnxruntime, whose fields have the same names but for two."""
    attributes: Mapping[str, Any] = schema.attributes
    defaults = {
        name: onnx.AttributeProto.FromString(a._default_value) for name, a in attributes.items()
    }
    inputs, outputs = schema.inputs, schema.outputs
    type_of = operator.attrgetter("typeStr" if definition is None else "type_str")
    allowed = {
        constraint.type_param_str: frozenset(
            _TENSOR_TYPES.get(text, DType.OPAQUE) for text in constraint.allowed_type_strs
        )
        for constraint in schema.type_constraints
    }
    single = {
        constraint.type_param_str: _TENSOR_TYPES.get(constraint.allowed_type_strs[0], DType.OPAQUE)
        for constraint in schema.type_constraints
        if len(constraint.allowed_type_strs) == 1
    }
    return Signature(
        op=schema.name,
        since_version=schema.since_version,
        definition=definition,
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        needed=tuple("" if formal.option.name == "Optional" else formal.name for formal in inputs),
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
        attribute_types={name: int(a.type.value) for name, a in attributes.items()},
        required=tuple(name for name, a in attributes.items() if a.required),
        defaults={name: default for name, default in defaults.items() if default.type},
        input_types=tuple(type_of(formal) for formal in inputs),
        output_types=tuple(type_of(formal) for formal in outputs),
        variadic=bool(inputs) and inputs[-1].option.name == "Variadic",
        single_types=single,
        admitted=tuple(
            allowed.get(
                type_of(formal), frozenset((_TENSOR_TYPES.get(type_of(formal), DType.OPAQUE),))
            )
            for formal in inputs
        ),
    )
