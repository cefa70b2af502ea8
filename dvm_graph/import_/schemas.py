"""What the installed onnx knows about an operator at a version, in a form that is cheap to ask.

Out: a `Signature` per (operator, domain, version): arity, attribute types and defaults, and how the
dtype of a result follows from operands and attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import defs

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

    schema: Any
    """The onnx.defs.OpSchema, whose type stubs lack half of its methods."""
    min_inputs: int
    max_inputs: int
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
        if self.schema.name == "ConstantOfShape":
            value = attrs.get("value")
            return DType.FLOAT32 if value is None else dtype_of_array(value)
        for name in _DTYPE_ATTRIBUTES:
            if isinstance(attrs.get(name), int):
                return dtype_of(attrs[name])
        return DType.OPAQUE


@functools.lru_cache(maxsize=4096)
def signature(op: str, domain: str, version: int) -> Signature | None:
    """The signature, or None where the installed onnx does not know the operator."""
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None
    attributes: Mapping[str, Any] = schema.attributes
    inputs, outputs = schema.inputs, schema.outputs
    single = {
        constraint.type_param_str: _TENSOR_TYPES.get(constraint.allowed_type_strs[0], DType.OPAQUE)
        for constraint in schema.type_constraints
        if len(constraint.allowed_type_strs) == 1
    }
    return Signature(
        schema=schema,
        min_inputs=schema.min_input,
        max_inputs=schema.max_input,
        min_outputs=schema.min_output,
        max_outputs=schema.max_output,
        attribute_types={name: int(a.type.value) for name, a in attributes.items()},
        required=tuple(name for name, a in attributes.items() if a.required),
        defaults={name: a.default_value for name, a in attributes.items() if a.default_value.type},
        input_types=tuple(formal.type_str for formal in inputs),
        output_types=tuple(formal.type_str for formal in outputs),
        variadic=bool(inputs) and inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic,
        single_types=single,
    )
